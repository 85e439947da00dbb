# Drives an application with a load generator, as the program of a job of two nodes: the application runs here, on the
# job's first node, the load generator in a step on the other one. It ends with the load generator, and as that did.
#
# load.sh FOLDER SECONDS PORT PATH PATTERN LOG_BYTES CPUS MEMORY COUNT VARIABLES... COUNT APPLICATION... LOAD...
# PORT is hexadecimal, MEMORY in MiB; what is empty is not asked for. It works with bash 4.0.
folder=$1 seconds=$2 port=$3 path=$4 pattern=$5 logs=$6 cpus=$7 memory=$8
shift 8
variables=("${@:2:$1}")
shift "$(($1 + 1))"
application=("${@:2:$1}")
shift "$(($1 + 1))"

say() { printf '%s\n' "$*" > "$folder/load.state"; }
now() {
  local up
  read -r up _ < /proc/uptime
  clock=$((10#${up/./}))
}

# The nodes of the job are those of the application and of the load: the application sees its own only.
other=''
for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  [ "$node" = "$SLURMD_NODENAME" ] || other=$node
done
address=''
while read -r line; do
  for word in $line; do case $word in NodeAddr=*) address=${word#*=} ;; esac; done
done < <(scontrol -o show node "$SLURMD_NODENAME")
[ -n "$other" ] && [ -n "$address" ] || { say lost; exit 1; }
export TRADEWIND_NODE_IPS=$address
read -r line < "$folder/hostfile" && printf '%s\n' "$address ${line#* }" > "$folder/hostfile"

# The job script looks at the first word only, which is the shell of this script.
case ${application[0]} in
*/*)
  [ -e "${application[0]}" ] || { echo missing > "$folder/refused"; exit 127; }
  [ -x "${application[0]}" ] && [ ! -d "${application[0]}" ] || { echo inert > "$folder/refused"; exit 127; }
  ;;
*) hash -- "${application[0]}" 2> /dev/null || { echo missing > "$folder/refused"; exit 127; } ;;
esac
( exec -- "${application[@]}" ) < /dev/null >> "$folder/application.stdout" 2>> "$folder/application.stderr" &
driven=$!

# The first half of what an application may write stays.
trim() {
  local name size
  [ -n "$logs" ] || return
  for name in stdout stderr; do
    size=$(stat -c %s "$folder/application.$name" 2> /dev/null)
    [ "${size:-0}" -gt "$logs" ] && truncate -s $((logs / 2)) "$folder/application.$name"
  done
}
answers() {
  local line
  [ -n "$path" ] || return 0
  exec 7<> "/dev/tcp/127.0.0.1/$((16#$port))" || return 1
  printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$path" >&7
  read -r -t 5 line <&7
  exec 7>&-
  case $line in HTTP/*' '[123][0-9][0-9]*) return 0 ;; esac
  return 1
} 2> /dev/null
ready() {
  if [ -n "$port" ]; then
    grep -qsE "^ *[0-9]+: [0-9A-F]+:$port [0-9A-F]+:0000 0A " /proc/net/tcp /proc/net/tcp6 || return 1
  fi
  if [ -n "$pattern" ]; then
    cat "$folder/application.stdout" "$folder/application.stderr" 2> /dev/null | grep -qE -e "$pattern" || return 1
  fi
  answers
}
# Ends a process that was started here, at once if it does not go.
finish() {
  local i
  kill -TERM "$1" 2> /dev/null
  for ((i = 0; i < 20; i++)); do kill -0 "$1" 2> /dev/null || break; sleep 0.1; done
  kill -KILL "$1" 2> /dev/null
}
died() {
  wait "$driven"
  code=$?
  say "died $1 $code"
  [ "$code" -ne 0 ] || code=1
}

now
until=$((clock + seconds * 100))
until ready; do
  kill -0 "$driven" 2> /dev/null || { died before; exit "$code"; }
  now
  [ "$clock" -le "$until" ] || { say "unready $seconds"; finish "$driven"; exit 1; }
  trim
  sleep 0.1
done

# What a step is, and what it used: its cgroup has the peak of all its processes.
step='
folder=$1; shift
read -r up _ < /proc/uptime; begun=$((10#${up/./}))
"$@"
code=$?
read -r up _ < /proc/uptime
peak=""
while IFS=: read -r _ controllers place; do
  case ,$controllers, in
  *,memory,*) read -r peak < "/sys/fs/cgroup/memory$place/memory.max_usage_in_bytes" ;;
  ,,) [ -n "$peak" ] || read -r peak < "/sys/fs/cgroup$place/memory.peak" ;;
  esac
done 2> /dev/null < /proc/self/cgroup
{ echo "$((10#${up/./} - begun)) ${peak:-0}"; times; } > "$folder/load.usage"
exit "$code"'
words=(--nodes=1 --ntasks=1 --nodelist="$other" --overlap --input=none --export=ALL --cpus-per-task="$cpus")
[ -n "$memory" ] && words+=(--mem="${memory}M")
(
  for word in "${variables[@]}" "TRADEWIND_APPLICATION_HOST=$address"; do export "$word"; done
  [ -n "$port" ] && export "TRADEWIND_APPLICATION_PORT=$((16#$port))"
  unset SRUN_CPUS_PER_TASK
  exec srun "${words[@]}" bash -c "$step" load "$folder" "$@"
) < /dev/null &
load=$!
say driven
while kill -0 "$load" 2> /dev/null; do
  kill -0 "$driven" 2> /dev/null || {
    kill -0 "$load" 2> /dev/null || break
    died during
    finish "$load"
    exit "$code"
  }
  trim
  sleep 0.1
done
wait "$load"
code=$?
finish "$driven"
exit "$code"
