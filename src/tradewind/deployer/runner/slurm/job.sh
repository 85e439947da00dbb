#!/bin/bash
# Runs one run of Tradewind on the first node of its allocation: job.sh BATCH_FOLDER. Nothing of the user's stands
# in this file: what is to be run is read, NUL-separated, from BATCH_FOLDER/INDEX (see spool.py). It uses the
# shell's own commands only, because starting a program costs more than most of them, and works with bash 4.0.
#
# It exits as the program did. Where it can leave no result: 78 if the node does not see the folders, 79 if they cannot
# be written, 80 if the run was started, or taken back, before.

batch=$1
index=${SLURM_ARRAY_TASK_ID:-0}
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$index}
job=${job:-$SLURM_JOB_ID}
[ -d "$batch" ] || exit 78

# Of two jobs for the same run, and of a job and a controller that takes the run back, one gets the claim.
set -C
{ printf '%s\n' "$job" > "$batch/$index.claim"; } 2> /dev/null
claimed=$?
set +C
if [ "$claimed" -ne 0 ]; then
  [ -e "$batch/$index.claim" ] && exit 80
  exit 79
fi

exec 3< "$batch/$index" || exit 78
next() { IFS= read -r -d '' "$1" <&3; }
for name in folder workdir wall grace memory logs slots mark engine label inherited variables; do next "$name"; done
# What Slurm and the site have set for this job (its GPUs, its TMPDIR) is not replaced by what the controller has.
here=' '
while IFS= read -r -d '' word; do here="$here${word%%=*} "; done < "/proc/$$/environ"
environment=() words=()
for ((i = 0; i < variables; i++)); do
  next word
  [ "$i" -lt "$inherited" ] && case $here in *" ${word%%=*} "*) continue ;; esac
  environment+=("$word")
done
while next word; do words+=("$word"); done
exec 3<&-
read -r logs head tail <<< "$logs"
: > "$batch/$index" # secrets may have stood there
[ -d "$folder" ] || exit 78

# Hundredths of a second since the node started: unlike the time of day they do not jump.
now() {
  local up
  read -r up _ < /proc/uptime
  clock=$((10#${up/./}))
}

# The end is written over these bytes in place, so that a disk that is full by then cannot lose it.
document() { printf '%-1023s\n' "$1"; }
printf -v about '"job": "%s", "node": "%s", "restarts": %d' "$job" "${SLURMD_NODENAME:-}" "${SLURM_RESTART_COUNT:-0}"
{ document "{\"state\": \"executing\", $about}" > "$folder/result.json"; } 2> /dev/null || exit 79

# The cgroups that Slurm made for this job, as far as it did: where its processes and its memory are counted.
procs='' kills='' limited=''
while IFS=: read -r _ controllers path; do
  case $path in */job_"$SLURM_JOB_ID"/*) ;; *) continue ;; esac
  place=/sys/fs/cgroup${controllers:+/$controllers}
  [ -d "$place$path" ] || place=/sys/fs/cgroup/unified
  whole=$place${path%%/job_*}/job_$SLURM_JOB_ID
  case ,$controllers, in
  *,memory,*)
    procs="$whole/step_[!e]*/cgroup.procs $whole/step_[!e]*/task_*/cgroup.procs" kills=$place$path/memory.oom_control
    read -r bound < "$whole/memory.limit_in_bytes" && [ "${#bound}" -lt 19 ] && limited=1
    ;;
  *,freezer,*) procs=${procs:-"$whole/step_[!e]*/cgroup.procs"} ;;
  ,,)
    [ -r "$place$path/cgroup.procs" ] && procs="$whole/step_[!e]*/user/task_*/cgroup.procs"
    [ -r "$whole/memory.events" ] && kills=$whole/memory.events
    read -r bound < "$whole/memory.max" && [ "$bound" != max ] && limited=1
    ;;
  esac
done 2> /dev/null < /proc/self/cgroup

# All processes of the program on this node, those of srun too, without Slurm's and ours.
members() {
  local pid name file
  pids=()
  if [ -n "$procs" ]; then
    for file in $procs; do
      [ -r "$file" ] || continue
      while read -r pid; do
        [ "$pid" = "$$" ] || [ "$pid" = "${BASHPID:-0}" ] || [ "$pid" = "$watcher" ] && continue
        { read -r name < "/proc/$pid/comm"; } 2> /dev/null && [ "$name" != slurmstepd ] && pids+=("$pid")
      done < "$file"
    done 2> /dev/null
  elif [ -n "$child" ]; then
    descend "$child"
  fi
}
descend() {
  local pid task below
  pids+=("$1")
  for task in "/proc/$1/task"/*/children; do
    { read -r below < "$task"; } 2> /dev/null || true
    for pid in $below; do descend "$pid"; done
  done
}

# KiB that all processes have resident; pages that forked processes share are counted once if $1 says so.
resident() {
  local pid size pages key value
  kib=0
  for pid in "${pids[@]}"; do
    if [ "$1" = shared ]; then
      { while read -r key value _; do [ "$key" = Pss: ] && kib=$((kib + value)) && break; done < "/proc/$pid/smaps_rollup"; } 2> /dev/null
    else
      { read -r size pages _ < "/proc/$pid/statm"; } 2> /dev/null && kib=$((kib + pages * 4))
    fi
  done
}

# Beside the program: its wall time, its memory, its logs, and the controller's request to end it. It says what it saw when
# it is asked to end, and ends everything when this script was killed.
watch() {
  local peak=0 nap=5 line=0 begun deadline left status name since=0 slept=0 frozen=0
  local -A hole taken
  trap '' TERM USR1 USR2
  trap - EXIT
  read -r child begun
  deadline=$((begun + ${wall:-0}))
  since=$begun
  while :; do
    thaw
    left=$((deadline - clock))
    if [ -n "$wall" ] && [ "$left" -le 0 ]; then
      kill -USR1 "$$"
      wall=''
    fi
    [ -n "$wall" ] && [ "$left" -lt "$nap" ] && slept=$left || slept=$nap
    printf -v line '%d.%02d' $((slept / 100)) $((slept % 100))
    read -r -t "$line" line
    status=$?
    if [ "$status" -eq 0 ]; then
      thaw
      echo "$peak $frozen ${taken[stdout]:-0} ${taken[stderr]:-0}"
      exit
    elif [ "$status" -le 128 ]; then
      # The other end is closed when this script was killed, and only then.
      kill -0 "$$" 2> /dev/null || { kill -KILL -- "-$child"; exit; }
      sleep 1
    fi
    [ -e "$folder/cancel" ] && kill -TERM "$$"
    members
    resident
    [ "$kib" -gt "$peak" ] && [ "${#pids[@]}" -gt 1 ] && resident shared
    [ "$kib" -gt "$peak" ] && peak=$kib
    if [ -z "$limited" ] && [ -n "$memory" ] && [ "$kib" -gt "$memory" ]; then kill -USR2 "$$"; fi
    if [ -n "$logs" ]; then
      for name in stdout stderr; do trim "$name"; done
    fi
    nap=$((nap < 50 ? nap * 2 : 100))
  done
}

# Holds a log near its limit on the disk: by a hole in it, or where there can be none by taking its end away. Whoever
# collects it leaves its beginning, its end, and a line about what is missing.
trim() {
  local size
  size=$(stat -c %s "$folder/$1" 2> /dev/null)
  [ "${size:-0}" -gt "$logs" ] && [ "$size" -gt $((${hole[$1]:-$head} + 2 * tail)) ] || return
  if [ -z "${taken[$1]:-}" ] && fallocate -p -o "$head" -l $((size - tail - head)) "$folder/$1" 2> /dev/null; then
    hole[$1]=$((size - tail))
  else
    join "$1" "$folder/$1.end" && truncate -s "$head" "$folder/$1" && taken[$1]=$((${taken[$1]:-0} + size - head))
  fi
}
# The end of a log, from what was taken away of it before and what has come since, in another file.
join() {
  { cat "$folder/$1.end" 2> /dev/null; tail -c "+$((head + 1))" "$folder/$1"; } | tail -c "$tail" > "$folder/$1.part" &&
    mv -f "$folder/$1.part" "$2"
}

# Time in which Slurm had the job suspended is not run time, and Slurm's own limit does not count it either. Who was
# suspended wakes up much later than it wanted to; so does a node that is short of everything, which Slurm can tell.
thaw() {
  local late
  now
  late=$((clock - since - slept))
  if [ "$late" -gt 100 ]; then
    case $(scontrol -o show job "$SLURM_JOB_ID" 2> /dev/null) in
    *SuspendTime=[0-9]*) frozen=$((frozen + late)) deadline=$((deadline + late)) ;;
    esac
    now
  fi
  since=$clock
}

oom_kills() {
  local key value
  count=0
  [ -n "$kills" ] && while read -r key value; do [ "$key" = oom_kill ] && count=$value; done < "$kills"
} 2> /dev/null

# Ask the program to end, and end it after the grace. The first reason stays.
ending=''
stop() {
  [ -n "$ending" ] && return
  ending=$1
  [ -n "$child" ] || return
  kill -TERM -- "-$child"
  if [ "$2" -gt 0 ]; then
    local pause
    printf -v pause '%d.%02d' $(($2 / 100)) $(($2 % 100))
    { sleep "$pause"; kill -KILL -- "-$child"; } < /dev/null > /dev/null 2>&1 8<&- 9>&- &
    killer=$!
  else
    kill -KILL -- "-$child"
  fi
}

# Bytes that the disks moved for this script and what it waited for, and that the node's network carried meanwhile.
moved() {
  local key value receiving sending
  reads='' writes='' cables=''
  while read -r key value; do
    case $key in read_bytes:) reads=$value ;; write_bytes:) writes=$value ;; esac
  done < "/proc/$$/io"
  while IFS=': ' read -r key receiving _ _ _ _ _ _ _ sending _; do
    case $key:$receiving in lo:* | *:*[!0-9]* | *:) ;; *) cables=$((cables + receiving + sending)) ;; esac
  done < /proc/net/dev
} 2> /dev/null

child='' watcher='' killer='' interrupted=''
trap 'interrupted=1; stop terminated "$grace"' TERM
trap 'interrupted=1; stop timed_out "$grace"' USR1
trap 'interrupted=1; stop out_of_memory 0' USR2
trap : PIPE # the watcher may be gone
trap '' HUP

coproc WATCH { watch; } 2> /dev/null
watcher=$WATCH_PID
exec 8<&"${WATCH[0]}" 9>&"${WATCH[1]}"
oom_kills
before=$count
moved
first_reads=$reads first_writes=$writes first_cables=$cables

nodes=${SLURM_JOB_NUM_NODES:-1}
if [ "$nodes" -gt 1 ]; then
  addresses=''
  : > "$folder/hostfile"
  while read -r line; do
    for word in $line; do
      case $word in NodeAddr=*)
        addresses=$addresses${addresses:+$'\n'}${word#*=}
        printf '%s slots=%s\n' "${word#*=}" "$slots" >> "$folder/hostfile"
        ;;
      esac
    done
  done < <(scontrol -o show node "$SLURM_JOB_NODELIST" 2> /dev/null)
  environment+=("TRADEWIND_NODE_IPS=$addresses" "TRADEWIND_HOSTFILE=$folder/hostfile")
fi

# Since 22.05 srun takes the CPUs of a task from nothing else: without it each task is bound to a single one.
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK="${SRUN_CPUS_PER_TASK:-$SLURM_CPUS_PER_TASK}"
unset SLURM_JWT
set -m # a process group of its own, without another program
now
begun=$clock
{
  exec 8<&- 9>&-
  trap - TERM USR1 USR2 HUP
  cd -- "$workdir" || { echo workdir > "$folder/refused"; exit 126; }
  for word in "${environment[@]}"; do export "$word"; done
  ulimit -c 0
  # Afterwards it is too late to tell a program that is not there from one that exits with 127.
  case ${words[0]} in
  */*)
    [ -e "${words[0]}" ] || { echo missing > "$folder/refused"; exit 127; }
    [ -x "${words[0]}" ] && [ ! -d "${words[0]}" ] || { echo inert > "$folder/refused"; exit 127; }
    ;;
  *) hash -- "${words[0]}" || { echo missing > "$folder/refused"; exit 127; } ;;
  esac
  exec -- "${words[@]}"
} < /dev/null >> "$folder/stdout" 2>> "$folder/stderr" &
child=$!
set +m
[ -n "$ending" ] && kill -KILL -- "-$child" # it was to end before it began
echo "$child $begun" >&9

while :; do
  interrupted=''
  wait "$child"
  code=$?
  [ -z "$interrupted" ] && break
done
now
runtime=$((clock - begun))

# A container is no child of the program that was to run it: an engine's own process has it, out of Slurm's reach.
if [ -n "$engine" ] && [ "$code" -gt 124 -o -n "$ending" ]; then
  for word in $("$engine" ps --all --quiet --filter "label=tradewind=$label"); do
    "$engine" kill --signal=KILL "$word" # else Podman asks it politely first, for ten seconds
    "$engine" rm --force "$word"
  done
fi < /dev/null > /dev/null 2>&1

# What the program left behind goes before its end is reported.
kill -KILL -- "-$child" $killer 2> /dev/null
for ((i = 0; i < 20; i++)); do
  members
  [ -n "$procs" ] && [ "${#pids[@]}" -gt 0 ] || break
  kill -KILL "${pids[@]}" 2> /dev/null
  read -r -t 0.02 -u 8 line
done

peak=0 frozen=0 taken=0
echo end >&9
read -r -t 2 -u 8 peak frozen taken
runtime=$((runtime - ${frozen:-0}))
oom_kills
[ -z "$ending" ] && [ "$count" -gt "$before" ] && [ "$code" -ne 0 ] && ending=out_of_memory

state=failed
[ "$code" -eq 0 ] && state=done
[ -s "$folder/refused" ] && read -r state < "$folder/refused"
[ -n "$ending" ] && state=$ending
[ "$state" = timed_out ] && [ "$runtime" -lt "$wall" ] && runtime=$wall
# The second line of `times`, in minutes and seconds, is that of the children.
{ times > "$batch/$index" && { read -r line; read -r user system; } < "$batch/$index"; } 2> /dev/null

moved
io=''
[ -n "$reads" ] && io=$io", \"read_bytes\": $((reads - first_reads)), \"written_bytes\": $((writes - first_writes))"
[ -n "$cables" ] && io=$io", \"network_bytes\": $((cables - first_cables))"
cut=false
set -- $taken
for name in stdout stderr; do
  if [ "${1:-0}" -gt 0 ]; then
    io="$io, \"${name}_written\": $(($1 + $(stat -c %s "$folder/$name")))" cut=true
    join "$name" "$folder/$name.end" && truncate -s "$head" "$folder/$name" && cat "$folder/$name.end" >> "$folder/$name"
  fi
  shift
done
rm -f "$folder/stdout.end" "$folder/stderr.end"
printf -v runtime '%d.%02d' $((runtime / 100)) $((runtime % 100))
printf -v line '{"state": "%s", %s, "exit_code": %d, "runtime": %s, "peak_kib": %d, "user": "%s", "system": "%s", "truncated": %s%s}' \
  "$state" "$about" "$code" "$runtime" "${peak:-0}" "${user:-}" "${system:-}" "$cut" "$io"
document "$line" 1<> "$folder/result.json"
: > "$mark"
[ "$code" -le 255 ] || code=1
exit "$code"
