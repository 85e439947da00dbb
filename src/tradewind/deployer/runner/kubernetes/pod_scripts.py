"""The scripts that run in the pods, in a static busybox; no text of a user becomes a part of them."""

from __future__ import annotations

_LOOKUP = r"""program=$1
case $program in
  */*) ;;
  *)
    program=
    rest=$PATH:
    while [ -n "$rest" ]; do
      place=${rest%%:*}; rest=${rest#*:}
      if [ -f "${place:-.}/$1" ] && [ -x "${place:-.}/$1" ]; then program=${place:-.}/$1; break; fi
    done ;;
esac
"""

_READY = r"""ready() {
  if [ -n "$TW_PORT" ]; then
    $b cat /proc/net/tcp /proc/net/tcp6 2> /dev/null | $b grep -q ":$TW_PORT [0-9A-F]*:[0-9A-F]* 0A " || return 1
  fi
  if [ -n "$TW_SAYS" ]; then
    $b cat "$TW/${logs}stdout" "$TW/${logs}stderr" 2> /dev/null | $b grep -qE -e "$TW_SAYS" || return 1
  fi
  if [ -n "$TW_PATH" ]; then
    # Some static busyboxes crash in their wget.
    answer=$(printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$TW_PATH" |
      $b nc -w 5 127.0.0.1 "$((0x$TW_PORT))" 2> /dev/null | $b head -n 1)
    case $answer in "HTTP/"*" "[123][0-9][0-9]*) ;; *) return 1 ;; esac
  fi
}
"""
"""Tells whether an application is ready; ``logs`` is what the names of its logs begin with."""

_USED = r"""used() {
  times > "$TW/$1.times"  # by itself: a pipe would ask a shell that has run nothing
  cpu=$($b tail -n 1 "$TW/$1.times")
  peak=
  for file in /sys/fs/cgroup/memory.peak /sys/fs/cgroup/memory/memory.max_usage_in_bytes; do
    if [ -r "$file" ]; then peak=$($b cat "$file"); break; fi
  done
}
"""
"""Peak memory of the container, and the processor time of what this shell has waited for, in minutes and seconds."""

PREPARE = """
set -e
for b in "$(command -v busybox)" /bin/busybox /usr/bin/busybox; do
  if [ -x "$b" ]; then break; fi  # some shells say the name only
done
$b mkdir -p "$TW/bin" "$TW/work" "$TW/inputs" "$TW/outputs" "$TW/checkpoint"
$b cp "$b" "$TW_FILES/work/run" "$TW/bin"
for name in application ready; do
  if [ -f "$TW_FILES/work/$name" ]; then $b cp "$TW_FILES/work/$name" "$TW/bin"; fi
done
for name in work inputs; do
  if [ -f "$TW_FILES/$name/tar.gz" ]; then $b gzip -dc "$TW_FILES/$name/tar.gz" | $b tar -x -f - -C "$TW/$name"; fi
done
if [ -d "$TW_FILES/checkpoint-00" ]; then
  for part in "$TW_FILES"/checkpoint-*; do $b cat "$part/tar.gz"; done | $b gzip -dc > "$TW/checkpoint.tar"
  $b tar -x -f "$TW/checkpoint.tar" -C "$TW/checkpoint"
  $b rm "$TW/checkpoint.tar"
fi
for place in bin work inputs outputs checkpoint; do $b chmod -R a+rwX "$TW/$place" || true; done
$b chmod a+rwx "$TW" || true
"""
"""The script of the step in the helper image: it unpacks the files."""

SCRIPT = (
    r"""
b=$TW/bin/busybox
cd "$TW/work" || exit 125
if [ -n "$TW_WAITS" ] && [ "${JOB_COMPLETION_INDEX:-0}" != 0 ]; then
  trap 'exit 0' TERM
  while :; do $b sleep 3600 & wait $!; done
fi
"""
    + _LOOKUP
    + r"""if [ ! -f "$program" ] || [ ! -x "$program" ]; then
  : > "$TW/over"; printf 'state=missing\n' > "$TW_END"; exit 127
fi
shift
"""
    + _USED
    + r"""now() { read -r up _ < /proc/uptime; echo "$up"; }
logs=application.
"""
    + _READY
    + r"""late() {
  $b awk -v began="$began" -v now="$(now)" -v ready="$TW_READY" -v wall="${TW_WALL:-1e12}" \
    'BEGIN { t = now - began; print ((t > wall) ? "timed_out" : ((t > ready) ? "unready" : "")) }'
}
began=$(now)
stopped= ended= code=1
if [ -n "$TW_READY" ]; then
  until ready; do
    stopped=$(late)
    if [ -f "$TW/application.code" ]; then stopped=died; fi
    if [ -n "$stopped" ]; then break; fi
    $b sleep 0.1
  done
  if [ -n "$TW_WALL" ]; then
    TW_WALL=$($b awk "BEGIN { t = $TW_WALL - ($(now) - $began); print ((t > 0.1) ? t : 0.1) }")
  fi
fi
: > "$TW/stdout"
: > "$TW/stderr"
drove=$(now)
if [ -z "$stopped" ]; then
printf '%s\n' "$TRADEWIND_NODE_IPS" | $b sed "s/\$/ slots=$TW_SLOTS/" > "$TW/hosts"
$b mkfifo "$TW/out" "$TW/err" "$TW/out.marked" "$TW/err.marked" "$TW/lines"
$b cat < "$TW/lines" & cat=$!
exec 3> "$TW/lines"
$b awk '{ print "O" $0; fflush() }' < "$TW/out.marked" >&3 & tees=$!
$b awk '{ print "E" $0; fflush() }' < "$TW/err.marked" >&3 & tees="$tees $!"
$b tee "$TW/stdout" < "$TW/out" > "$TW/out.marked" 3>&- & tees="$tees $!"
$b tee "$TW/stderr" < "$TW/err" > "$TW/err.marked" 3>&- & tees="$tees $!"
(
  exec 3>&-
  exec "$b" env -u TW -u TW_END -u TW_WALL -u TW_PATTERNS -u TW_LIMIT -u TW_LOG -u TW_WAITS -u TW_SLOTS -u TW_KEEPS \
    -u TW_GRACE -u TW_READY -u TW_PORT -u TW_PATH -u TW_SAYS -u TW_DRIVEN \
    "$b" setsid "$program" "$@"
) < /dev/null > "$TW/out" 2> "$TW/err" & pid=$!
end() { kill -TERM -$pid; $b sleep "$TW_GRACE"; kill -KILL -$pid; } 2> /dev/null
trap 'end; exit 143' TERM
if [ -n "$TW_WALL" ]; then
  (
    exec 3>&-; trap - TERM
    $b sleep "$TW_WALL"; : > "$TW/timed-out"; end
  ) & timer=$!
fi
if [ -n "$TW_READY" ]; then
  (
    exec 3>&-; trap - TERM
    while [ ! -f "$TW/application.code" ]; do $b sleep 0.1; done
    kill -KILL -$pid 2> /dev/null
  ) & watch=$!
fi
if [ -n "$TW_DRIVEN" ]; then
  (
    exec 3>&-; trap - TERM
    while [ ! -f "$TW/enough" ]; do $b sleep 0.1; done
    end
  ) & driven=$!
fi
wait $pid; code=$?
while kill -0 $pid 2> /dev/null; do wait $pid; code=$?; done
ended=$(now)
kill -KILL -$pid 2> /dev/null
if [ -n "$TW_WALL" ]; then kill $timer 2> /dev/null; fi
if [ -n "$TW_DRIVEN" ]; then kill $driven 2> /dev/null; fi
if [ -n "$TW_READY" ]; then
  kill $watch 2> /dev/null
  if [ -f "$TW/application.code" ]; then stopped=died; fi
fi
(
  exec 3>&-; trap - TERM
  $b sleep 2; kill $tees; $b sleep 1; kill $cat
) 2> /dev/null & guard=$!
wait $tees
exec 3>&-
wait $cat
kill $guard 2> /dev/null
fi
: "${ended:=$(now)}"
state=${stopped:-ended}
if [ -f "$TW/timed-out" ]; then
  state=timed_out
elif [ -f "$TW/enough" ]; then
  state=$($b cat "$TW/enough")
  code=0
fi
: > "$TW/over"
used run
application= figures="peak=$peak
cpu=$cpu"
if [ -n "$TW_READY" ]; then
  waited=0
  while [ ! -f "$TW/application.code" ] && [ $waited -lt 50 ]; do $b sleep 0.1; waited=$((waited + 1)); done
  if [ -f "$TW/application.code" ]; then application=$($b cat "$TW/application.code"); fi
  figures="load_peak=$peak
load_cpu=$cpu
load_began=$drove
$($b cat "$TW/application.used" 2> /dev/null)"
fi
if [ "$state" = died ] || [ "$state" = unready ]; then code=1; fi
cd "$TW"
if [ -n "$TW_LOG" ]; then
  set -- $TW_LOG
  for file in stdout stderr application.stdout application.stderr; do
    if [ -f "$file" ] && size=$($b stat -c %s "$file") && [ "$size" -gt "$1" ]; then
      { $b head -c "$2" "$file"; $b tail -c "$3" "$file"; } > part
      $b mv part "$file"
      echo "$size" > "$file.written"
    fi
  done
fi
keep() {
  while read -r file; do
    $b mkdir -p "pack/${file%/*}"
    $b ln "$file" "pack/$file" 2> /dev/null || $b cp "$file" "pack/$file"
  done
}
$b mkdir pack
for file in stdout stderr application.stdout application.stderr metrics.jsonl; do
  for each in "$file" "$file.written"; do
    if [ -f "$each" ]; then $b cp "$each" "pack/$each"; fi
  done
done
$b find outputs -type f | keep
if [ -n "$TW_KEEPS" ]; then $b find checkpoint -type f | keep; fi
printf '%s\n' "$TW_PATTERNS" | while read -r pattern; do
  if [ -n "$pattern" ]; then
    (cd work && $b find . -type f \( -path "./$pattern" -o -path "./$pattern/*" \)) | $b sed 's/^[.]/work/'
  fi
done | $b sort -u | keep
(cd pack && $b tar -c -f - *) | $b gzip -c > files.tgz
size=$($b stat -c %s files.tgz)
large=
if [ "$size" -gt "$TW_LIMIT" ]; then
  large=$size
else
  echo "T $size"; $b base64 files.tgz; echo T
fi
printf 'state=%s\nbegan=%s\nended=%s\nlarge=%s\napplication=%s\n%s\n' \
  "$state" "$began" "$ended" "$large" "$application" "$figures" > "$TW_END"
exit $code
"""
)
"""The script around the command, or around the load generator, which it starts when the application is ready.

The application of a load generator in another pod ends, as if by itself, with a file ``enough`` that says why.
"""

READY = (
    r"""
b=$TW/bin/busybox
logs=
"""
    + _READY
    + """ready
"""
)
"""The probe of an application whose load generator is in another pod."""

APPLICATION = (
    r"""
b=$TW/bin/busybox
cd "$TW/work" || exit 125
end() { echo "$1" > "$TW/application.part"; $b mv "$TW/application.part" "$TW/application.code"; }
"""
    + _USED
    + _LOOKUP
    + r"""
if [ ! -f "$program" ] || [ ! -x "$program" ]; then printf 'state=missing\n' > "$TW_END"; end 127; exit 127; fi
shift
(
  exec "$b" env -u TW -u TW_END "$b" setsid "$program" "$@"
) < /dev/null > "$TW/application.stdout" 2> "$TW/application.stderr" & pid=$!
trap 'kill -KILL -$pid 2> /dev/null; exit 143' TERM
(
  trap - TERM
  while [ ! -f "$TW/over" ]; do $b sleep 0.1; done
  kill -KILL -$pid 2> /dev/null
) & guard=$!
wait $pid; code=$?
while kill -0 $pid 2> /dev/null; do wait $pid; code=$?; done
kill -KILL -$pid 2> /dev/null
kill $guard 2> /dev/null
if [ -f "$TW/over" ]; then code=0; fi
used application
printf 'peak=%s\ncpu=%s\n' "$peak" "$cpu" > "$TW/application.used"
end "$code"
exit "$code"
"""
)
"""The script around the application that a load generator drives: the application is ended with the load."""
