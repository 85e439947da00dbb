# One run, from its start until it is forgotten or expires.

options() { # KEY=VALUE...
  _wall= _memory= _cpus= _log= _tail=0 _grace=50 _expires=86400 _bundle= _inputs= _sleeps=1 _groups=1 _mask=022 _page=4096
  for _option in "$@"; do
    _value=${_option#*=}
    case $_option in
      wall=*) _wall=$_value ;; memory=*) _memory=$_value ;; cpus=*) _cpus=$_value ;; log=*) _log=$_value ;; tail=*) _tail=$_value ;;
      grace=*) _grace=$_value ;; expires=*) _expires=$_value ;; bundle=*) _bundle=$_value ;;
      inputs=*) _inputs=$_value ;; sleeps=*) _sleeps=$_value ;; groups=*) _groups=$_value ;;
      mask=*) _mask=$_value ;; page=*) _page=$_value ;;
    esac
  done
}

group_for() { # BYTES -> _group: a control group with that limit, or none where we may not make one
  _group=
  _place=/sys/fs/cgroup/tradewind-$_tag
  if [ -w /sys/fs/cgroup/cgroup.procs ] && grep -qsw memory /sys/fs/cgroup/cgroup.subtree_control; then
    mkdir "$_place" && echo "$1" >"$_place/memory.max" && _group=$_place
    echo 0 >"$_place/memory.swap.max"
    echo 1 >"$_place/memory.oom.group"
  elif [ -w /sys/fs/cgroup/memory/cgroup.procs ]; then
    _place=/sys/fs/cgroup/memory/tradewind-$_tag
    mkdir "$_place" && echo "$1" >"$_place/memory.limit_in_bytes" && _group=$_place
    echo "$1" >"$_place/memory.memsw.limit_in_bytes"
  fi 2>/dev/null
  [ -z "$_group" ] || echo "$_group" >group
}

overrun() { # true when the control group has ended something
  for _file in "$_group/memory.events" "$_group/memory.oom_control"; do
    [ -f "$_file" ] && while read -r _key _value; do
      [ "$_key" = oom_kill ] && [ "$_value" -gt 0 ] && return 0
    done <"$_file"
  done
  return 1
}

choose_cpus() { # COUNT -> _list, comma-separated, empty where all may be used; _mine, those that are ours alone
  _list= _mine= _all= _count=0
  while read -r _key _value; do
    case $_key in Cpus_allowed_list:) break ;; esac
  done </proc/self/status
  _ifs=$IFS
  IFS=,
  set -- "$1" $_value
  IFS=$_ifs
  _left=$1 _taken=
  shift
  for _range in "$@"; do
    _cpu=${_range%-*}
    while [ "$_cpu" -le "${_range#*-}" ]; do
      _all="$_all $_cpu" _count=$((_count + 1)) _cpu=$((_cpu + 1))
    done
  done
  [ "$_left" -lt "$_count" ] || return 0
  for _cpu in $_all; do
    [ "$_left" -gt 0 ] || break
    _file=$_folder/cpus/$_host-$_cpu
    if take_cpu "$_file"; then
      _list="$_list${_list:+,}$_cpu" _mine="$_mine $_cpu" _left=$((_left - 1))
    else
      _taken="$_taken $_cpu"
    fi
  done
  for _cpu in $_taken; do # more runs than CPUs: they share
    [ "$_left" -gt 0 ] || break
    _list="$_list${_list:+,}$_cpu" _left=$((_left - 1))
  done
}

take_cpu() { # LINK: fails when a run that is alive has it
  ln -s "$_claim" "$1" 2>/dev/null && return
  _who=$(readlink "$1")
  [ -z "$_who" ] || ! alive "$_who" || return 1
  rm -f "$1"
  ln -s "$_claim" "$1" 2>/dev/null
}

free_cpus() { # FILE...: and removes some files
  for _cpu in $_mine; do set -- "$@" "$_folder/cpus/$_host-$_cpu"; done
  rm -f "$@"
}

drain() { # PIPE FILE: keeps what the job writes: to the limit, then its end; fails with 1 when that was less, with 2 when the disk was full
  if [ -z "$_log" ]; then
    cat >"$2" && exit 0
    cat >/dev/null
    exit 2
  fi
  head -c "$_log" >"$2" || {
    cat >/dev/null
    exit 2
  }
  head -c 1 >"$1.more"
  [ -s "$1.more" ] || exit 0
  # The controlling machine leaves the beginning, the end, and a line about the rest: it gets to know how much there was.
  cat "$1.more" - | { tee /proc/self/fd/5 | wc -c >"$1.count"; } 5>&1 | tail -c "$_tail" >>"$2" || exit 2
  exit 1
} <"$1"

timer() { # HUNDREDTHS: a tick after that
  _rest=$(($1 % 100))
  [ "$_rest" -gt 9 ] || _rest=0$_rest
  _seconds=$(($1 / 100)).$_rest
  [ "$_sleeps" = 1 ] || _seconds=$((($1 + 99) / 100))
  (
    _sleeper=
    trap '[ -z "$_sleeper" ] || kill "$_sleeper"; exit' TERM
    sleep "$_seconds" &
    _sleeper=$!
    wait "$_sleeper"
    echo tick >&3
  ) &
  _timer=$!
}

sample() { # -> _used, and _peak: KiB that all processes of the run have resident
  _used=0
  if [ -n "$_group" ]; then
    _pids=$(cat "$_group/cgroup.procs" 2>/dev/null)
  else
    _pids=
    for _file in $(grep -ls -e "TRADEWIND_FAR=$_tag" /proc/[0-9]*/environ 2>/dev/null); do
      _file=${_file#/proc/}
      _pids="$_pids ${_file%/*}"
    done
  fi
  for _pid in $_pids; do
    { read -r _line _pages _line <"/proc/$_pid/statm"; } 2>/dev/null && _used=$((_used + _pages * _page))
  done
  [ "$_used" -gt "$_peak" ] || return 0
  set -- $_pids
  [ "$#" -le 1 ] || share
  [ "$_used" -le "$_peak" ] || _peak=$_used
}

share() { # -> _used: what processes share counts once; only where the plain sum is too much, because the kernel walks all pages
  _used=0
  for _pid in $_pids; do
    _kib=
    while read -r _field _kib _line; do
      [ "$_field" != Pss: ] || break
      _kib=
    done <"/proc/$_pid/smaps_rollup"
    [ -n "$_kib" ] || { read -r _line _kib _line <"/proc/$_pid/statm" && _kib=$((_kib * _page)); }
    _used=$((_used + ${_kib:-0}))
  done 2>/dev/null
}

wait_ticks() { # sets the next timer: often at first, then once a second
  _interval=$((_interval * 3 / 2))
  [ "$_interval" -le 100 ] || _interval=100
  _next=$_interval
  if [ -n "$_wall" ] && [ "$((_begun + _wall - _now))" -lt "$_next" ]; then _next=$((_begun + _wall - _now)); fi
  [ "$_next" -gt 0 ] || _next=1
  timer "$_next"
}

supervise() { # NAME TOKEN OPTION...
  _name=$1 _token=$2
  shift 2
  options "$@"
  cd "runs/$_name" || exit 1
  exec 3<>control
  ticks_of $$
  _claim=$_host:$_boot:$$:$_ticks
  ln -s "$_claim" claim 2>/dev/null || {
    rm -rf "start.$_token" "work.$_token"
    exit 0
  }
  echo "$_claim" >pid
  printf '%-300s\n' '' >result.part # room for the result, should the disk be full by then
  now
  _end=$((_now + _expires * 100))
  { echo "$(($(date +%s) + _expires))" >expires; } 3>&- &
  identity .
  _page=$((_page / 1024)) _peak=0 _mine= _list= _group= _begun=$_now _timer= _missing= _drain_o= _drain_e=
  _unfolding=
  if ! [ -d work ]; then
    (cd ../.. && unfold "runs/$_name" "$_token" "$_bundle" "$_inputs") 3>&- &
    _unfolding=$!
  fi
  [ -z "$_memory" ] || [ "$_groups" = 0 ] || group_for "$_memory"
  [ -z "$_cpus" ] || choose_cpus "$_cpus"
  [ -z "$_unfolding" ] || wait "$_unfolding" || finish unfolded ""
  [ -z "$_list" ] || command -v taskset >/dev/null || finish unpinned ""
  drain o stdout 3>&- &
  _drain_o=$!
  drain e stderr 3>&- &
  _drain_e=$!
  now
  _begun=$_now
  echo "$_now" >begun
  _setsid=
  command -v setsid >/dev/null && _setsid=setsid
  (
    $_setsid sh "$_self" "$_folder" job "$_name" "$_token" "$_mask" "$_list" "$_group" "$_tag" &
    wait "$!"
    _code=$?
    times >times
    echo "ended $_code" >&3
  ) &
  _interval=10 _early=
  wait_ticks
  while read -r _event _value <&3; do
    now
    case $_event in
      leader)
        _session=$_value
        [ -z "$_early" ] || finish "$_early" ""
        ;;
      missing) _missing=1 ;;
      ended) [ -n "$_missing" ] && finish missing 127 || finish ended "$_value" ;;
      cancel | forget)
        [ "$_event" = cancel ] || _value=forgotten
        # A job that is only being made has no mark to be found by yet.
        if [ "$_session" = none ]; then _early=$_value; else finish "$_value" ""; fi
        ;;
      tick)
        echo "$_now" >last
        [ "$_session" != none ] || { wait_ticks && continue; }
        if [ -n "$_wall" ] && [ "$_now" -ge "$((_begun + _wall))" ]; then finish timed_out ""; fi
        [ "$_now" -lt "$_end" ] || finish expired ""
        sample
        # A control group holds the job to its limit by itself, and counts exactly.
        if [ -n "$_memory" ] && [ -z "$_group" ] && [ "$_used" -gt "$((_memory / 1024))" ]; then finish memory ""; fi
        wait_ticks
        ;;
    esac 2>/dev/null
  done
}

finish() { # STATE CODE: ends what is left of the job, writes the result, and waits until it is not needed any more
  _state=$1 _code=$2
  _runtime=$((_now - _begun))
  [ -z "$_timer" ] || kill "$_timer" 2>/dev/null
  if [ "$_state" = ended ] || [ "$_state" = missing ]; then _wait=0; else _wait=$_grace; fi
  end_all "$_wait" || kill $_drain_o $_drain_e 2>/dev/null
  _cut=0 _full=0 _more_o=0 _more_e=0
  if [ -n "$_drain_o" ]; then # the job was near its start, at least
    : 1<>o
    : 1<>e
    _drains="$_drain_o $_drain_e"
    (
      _sleeper=
      trap '[ -z "$_sleeper" ] || kill "$_sleeper"; exit' TERM
      sleep 3 & # what got away from us may hold the pipes
      _sleeper=$!
      wait "$_sleeper"
      kill $_drains
    ) &
    _killer=$!
    for _pid in "$_drain_o" "$_drain_e"; do
      wait "$_pid"
      case $? in 1) _cut=1 ;; 2) _full=1 ;; esac
    done
    kill "$_killer"
    { read -r _more_o <o.count; } 2>/dev/null
    { read -r _more_e <e.count; } 2>/dev/null
  fi
  [ -n "$_group" ] && [ "$_state" = ended ] && [ "$_code" != 0 ] && overrun && _state=memory
  [ "$_peak" -gt 0 ] || _peak=
  free_cpus "start.$_token"
  _cpu=
  { read -r _cpu && read -r _cpu; } <times
  if [ "$_state" != expired ] && [ "$_state" != forgotten ]; then
    _line="state=$_state code=$_code runtime=$_runtime memory=$_peak cpu=${_cpu% *}/${_cpu#* } cut=$_cut full=$_full more=$((_more_o))/$((_more_e))"
    printf '%-299s\n' "$_line" 1<>result.part
    until mv -f result.part result || ! [ -e result.part ]; do nap; done
    for _listener in ../../listeners/*; do
      [ -p "$_listener" ] && echo "event $_name $_line" 1<>"$_listener"
    done
    drop_group # whoever forgets the run does so where this was killed before
    _group=
    now
    timer "$((_end > _now ? _end - _now : 1))"
    while read -r _event _value <&3; do
      now
      case $_event in
        forget) break ;;
        tick) [ "$_now" -lt "$_end" ] || break ;; # one from before may still have been on its way
      esac
    done
    kill "$_timer"
  fi
  drop_group
  cd "$_folder"
  remove "runs/$_name"
  exit 0
} 2>/dev/null

case $_mode in
  serve) serve ;;
  supervise) supervise "$@" ;;
  keep) cd "runs/$1/work" && keep "$@" ;;
  archive) cd "runs/$1" && shift && archive ;;
  job)
    cd "runs/$1/work" || exit 126
    exec >../o 2>../e 4>&-
    _token=$2 _list=$4 _group=$5 _tag=$6
    umask "$3"
    ticks_of $$
    echo "$$ $_ticks" >../leader
    echo "leader $$" >&3
    [ -z "$_group" ] || echo 0 >"$_group/cgroup.procs"
    . "../start.$_token" # exports the environment, secrets too, and sets the words of the command
    : >"../start.$_token" # nothing of it stays, and no program is needed for that
    export TRADEWIND_FAR="$_tag"
    case $1 in
      */*) [ -f "$1" ] && [ -x "$1" ] ;;
      *) command -v "$1" >/dev/null ;;
    esac || {
      echo missing >&3
      exit 127
    }
    exec 3>&-
    if [ -n "$_list" ]; then exec taskset -c "$_list" "$@"; fi
    exec "$@"
    ;;
esac
