# What the controlling machine may ask for.

do_hello() {
  _tools=
  for _tool in setsid taskset tar base64 find mkfifo; do
    command -v $_tool >/dev/null && _tools="$_tools $_tool"
  done
  for _listener in listeners/*; do
    _pid=${_listener##*-}
    case $_listener in "listeners/$_host-"*) [ -d "/proc/$_pid" ] || rm -f "$_listener" ;; esac
  done
  for _run in runs/*; do # what expired while nobody watched over it
    if read -r _end <"$_run/expires" && [ "$(date +%s)" -gt "$_end" ] && ! { claim_of "$_run" && alive "$_claim"; }; then
      identity "$_run"
      end_all 0 && drop_group && remove "$_run"
    fi
  done 2>/dev/null
  find bundles inputs -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} + 2>/dev/null
  printf '%s\n' "hello $_host$_tools $_folder"
}

do_submit() { # NAME TOKEN OWNER TAG SPEC BUNDLE INPUTS OPTION...
  _run=runs/$1 _name=$1 _token=$2 _owner=$3 _tag=$4 _spec=$5 _bundle=$6 _inputs=$7
  shift 7
  if [ -h "$_run/claim" ]; then
    echo started
    return
  fi
  if [ -n "$_bundle" ] && ! [ -f "bundles/$_bundle.tar" ]; then
    echo "need bundle"
    return
  fi
  if [ -n "$_inputs" ] && ! [ -d "inputs/$_inputs" ]; then
    echo "need inputs"
    return
  fi
  now
  # All folders by one program: what a run takes is how many small programs there are around it.
  _more=
  [ -n "$_inputs" ] || _more=$_run/inputs
  mkdir -p "$_run/outputs" "$_run/work.$_token" ${_more:+"$_more"} &&
    echo "$_now" >"$_run/asked" && echo "$_owner" >"$_run/owner" && echo "$_tag" >"$_run/tag" &&
    base64 -d >"$_run/start.$_token" <<END &&
$_spec
END
    { [ -p "$_run/e" ] || mkfifo "$_run/control" "$_run/o" "$_run/e" || [ -p "$_run/e" ]; } || {
    rm -f "$_run/start.$_token"
    echo failed
    return
  }
  _setsid=
  command -v setsid >/dev/null && _setsid=setsid
  $_setsid sh "$_self" "$_folder" supervise "$_name" "$_token" bundle="$_bundle" inputs="$_inputs" \
    mask="$_mask" page="$_page" sleeps="$_sleeps" "$@" \
    </dev/null >/dev/null 2>>"$_run/trouble" &
  echo starting
}

do_prepare() { # NAME TOKEN OWNER TAG BUNDLE INPUTS EXPIRES: the files only, on a node that is not the first
  _run=runs/$1
  if [ -n "$5" ] && ! [ -f "bundles/$5.tar" ]; then
    echo "need bundle"
  elif [ -n "$6" ] && ! [ -d "inputs/$6" ]; then
    echo "need inputs"
  elif [ -d "$_run/work" ]; then
    echo started
  elif mkdir -p "$_run" && echo "$3" >"$_run/owner" && echo "$4" >"$_run/tag" &&
    echo "$(($(date +%s) + $7))" >"$_run/expires" && unfold "$_run" "$2" "$5" "$6"; then
    echo started
  else
    echo failed
  fi
}

unfold() { # RUN FOLDER, TOKEN, BUNDLE, INPUTS: makes work/, outputs/ and inputs
  { [ -d "$1/outputs" ] && [ -d "$1/work.$2" ]; } || mkdir -p "$1/outputs" "$1/work.$2" || return 1
  if [ -n "$3" ]; then
    tar xf "bundles/$3.tar" -C "$1/work.$2" || return 1
    touch "bundles/$3.tar" &
  fi
  if [ -n "$4" ]; then
    [ -h "$1/inputs" ] || ln -s "../../inputs/$4" "$1/inputs" || return 1
    touch "inputs/$4" &
  else
    [ -d "$1/inputs" ] || mkdir -p "$1/inputs" || return 1
  fi
  [ -d "$1/work" ] || mv "$1/work.$2" "$1/work" || return 1
  # Another node that shares this folder may have been faster.
  if [ -d "$1/work.$2" ] || [ -d "$1/work/work.$2" ]; then rm -rf "$1/work.$2" "$1/work/work.$2"; fi
}

do_poll() { # NAME...
  now
  for _name in "$@"; do
    state_of "$_name"
  done
}

state_of() { # NAME: says where it is
  _run=runs/$1
  if [ -f "$_run/result" ]; then
    read -r _line <"$_run/result"
    echo "$1 result $_line"
  elif ! [ -d "$_run" ]; then
    echo "$1 none"
  elif ! claim_of "$_run"; then
    # Its submission may have made the folder and nothing in it yet; if it goes no further, time runs from now.
    read -r _asked <"$_run/asked" || { _asked=$_now && echo "$_now" >"$_run/asked"; }
    if { [ "$((_now - _asked))" -gt 3000 ] || [ "$_asked" -gt "$_now" ]; } && ln -s cancelled "$_run/claim"; then
      echo "$1 gone 0" # and from now on it can not start any more
    else
      echo "$1 waiting"
    fi
  elif alive "$_claim"; then
    if read -r _begun <"$_run/begun"; then echo "$1 running $((_now - _begun))"; else echo "$1 waiting"; fi
  elif [ -f "$_run/result" ]; then # written a moment ago
    state_of "$1"
  else
    identity "$_run"
    _lived=0
    if read -r _begun <"$_run/begun"; then
      read -r _last <"$_run/last" || _last=$_begun
      _lived=$((_last - _begun))
    fi
    if end_all 0; then
      drop_group
      echo "$1 gone $_lived"
    else
      echo "$1 dying $_lived"
    fi
  fi 2>/dev/null
}

do_cancel() { # NAME STATE
  _run=runs/$1
  if ! [ -d "$_run" ]; then
    echo none
  elif ln -s cancelled "$_run/claim" 2>/dev/null; then # it never starts
    rm -f "$_run"/start.*
    echo "state=$2 code= runtime=0 memory= cpu= cut=0 full=0" >"$_run/result"
    echo ended
  elif [ -f "$_run/result" ]; then
    echo ended
  elif claim_of "$_run" && alive "$_claim"; then
    echo "cancel $2" 1<>"$_run/control"
    echo asked
  else
    identity "$_run"
    end_all 0
    drop_group
    echo ended
  fi
}

do_forget() { # NAME...
  for _name in "$@"; do
    _run=runs/$_name
    [ -d "$_run" ] || continue
    if claim_of "$_run" && case $_claim in "$_host:$_boot:"*) alive "$_claim" ;; *) false ;; esac then
      echo forget 1<>"$_run/control"
    else
      identity "$_run"
      [ "$_tag" = none ] || end_all 0
      drop_group
      remove "$_run"
    fi
  done
  echo forgotten
}

do_list() { # NAME OWNER EXPIRES CREATED of each run, the last two in seconds from now, or empty
  _now=$(date +%s)
  for _run in runs/*; do
    _owner= _end=
    { read -r _owner <"$_run/owner"; } 2>/dev/null || continue
    { read -r _end <"$_run/expires"; } 2>/dev/null
    _made=$(date -r "$_run/owner" +%s 2>/dev/null)
    echo "${_run#runs/} $_owner ${_end:+$((_end - _now))} ${_made:+$((_made - _now))}"
  done
  return 0
}

do_log() { # NAME STREAM OFFSET
  [ -f "runs/$1/$2" ] && tail -c "+$(($3 + 1))" "runs/$1/$2" | head -c 4000000 | base64
}

do_listens() { # PORT in hexadecimal: says whether somebody listens on it
  if grep -qs "^ *[0-9]*: [0-9A-F]*:$1 [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6; then echo yes; else echo no; fi
}

do_collect() { # NAME LIMIT PATTERN...: what a run left, as base64 of a tar; "large" if that has more than LIMIT KiB
  _name=$1 _limit=$2
  shift 2
  cd "runs/$_name" 2>/dev/null || {
    echo none
    return
  }
  [ ! -d kept ] || rm -rf kept
  [ "$#" = 0 ] || mkdir -p kept
  for _pattern in "$@"; do # like work/./PATTERN, where * matches slashes too; whoever asked looks more closely
    (cd work && find . -path "$_pattern" -exec sh "$_self" "$_folder" keep "$_name" {} +) 2>/dev/null
  done
  _size=0
  for _word in $(du -sk stdout stderr metrics.jsonl outputs kept 2>/dev/null); do # sizes and names in turn
    case $_word in *[!0-9]*) ;; *) _size=$((_size + _word)) ;; esac
  done
  if [ "$_size" -gt "$_limit" ]; then
    echo large
  else
    echo small
    archive | base64
  fi
}

archive() { # in a run's folder
  for _file in stdout stderr metrics.jsonl outputs kept; do
    [ -e "$_file" ] && set -- "$@" "$_file"
  done
  tar cf - "$@"
}

keep() { # NAME FILE...: in work/ of a run
  shift
  for _file in "$@"; do
    mkdir -p "../kept/${_file%/*}"
    if [ -d "$_file" ] && ! [ -h "$_file" ]; then
      cp -R "$_file" "../kept/${_file%/*}/"
    else
      ln "$_file" "../kept/$_file" || cp -R "$_file" "../kept/$_file"
    fi
  done 2>/dev/null
}

serve() {
  mkdir -p runs bundles inputs cpus listeners || exit 1
  _listener=listeners/$_host-$$
  rm -f "$_listener"
  mkfifo "$_listener" && exec 4<>"$_listener" || exit 1
  trap 'rm -f "$_listener"' EXIT
  trap 'exit 0' HUP INT TERM PIPE
  # Ends when this process does, which alone keeps the pipe open for writing.
  cat <"$_listener" >&2 4>&- &
  _page=$(getconf PAGESIZE 2>/dev/null || echo 4096)
  _sleeps=0
  sleep 0.01 2>/dev/null && _sleeps=1
  while IFS= read -r _request; do
    eval "set -- $_request"
    _id=$1 _what=$2
    shift 2
    ("do_$_what" "$@") 4>&- </dev/null
    echo ".end $_id $?"
  done
}
