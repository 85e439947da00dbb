#!/bin/sh
# The far side of the ssh runner: starts jobs on this machine, watches them, and tells how they ended.
#
#   sh ssh_far.sh FOLDER serve                          answers requests, a line each, until its input ends
#   sh ssh_far.sh FOLDER supervise NAME TOKEN KEY=VALUE...   one run, from its start until it is forgotten or expires
#   sh ssh_far.sh FOLDER job NAME TOKEN ...             becomes the job
#   sh ssh_far.sh FOLDER archive NAME                   a tar of what a run left
#
# POSIX sh and the usual tools (coreutils or busybox, grep, find, tar) are enough. Below FOLDER there are bundles/
# (archives of working folders), inputs/, cpus/ (who has which CPU), listeners/ (pipes of those who serve) and runs/NAME/.
# A run's folder has: claim (a link whose target says who supervises it: made once, so that nothing starts twice),
# begun, last, result (all times in hundredths of seconds since boot), stdout, stderr, outputs/, work/.
# All variables begin with an underscore: what the job inherits stays as the login made it.
set -u
[ "$2" != serve ] || _mask=$(umask) # that of the login; the others get it as a word
umask 077
cd "$1" || exit 1
_folder=$PWD
_self=$_folder/${0##*/}
_mode=$2
shift 2
read -r _host </proc/sys/kernel/hostname || _host=$(uname -n)
read -r _boot </proc/sys/kernel/random/boot_id || _boot=unknown

now() { # -> _now
  read -r _now _ </proc/uptime
  _now=${_now%.*}${_now#*.}
}

ticks_of() { # PID -> _ticks, when it was started; fails if it is gone
  _ticks=
  { read -r _line <"/proc/$1/stat"; } 2>/dev/null || return 1
  set -- ${_line##*) }
  case ${1:-X} in Z | X) return 1 ;; esac
  [ "$#" -ge 20 ] && _ticks=${20}
}

claim_of() { # RUN FOLDER -> _claim
  _claim=
  { read -r _claim <"$1/pid"; } 2>/dev/null || _claim=$(readlink "$1/claim" 2>/dev/null)
  [ -n "$_claim" ]
}

alive() { # CLAIM: host:boot:pid:ticks
  case $1 in "$_host:$_boot:"*) ;; "$_host:"* | cancelled) return 1 ;; *) return 0 ;; esac
  _rest=${1#"$_host:$_boot:"}
  ticks_of "${_rest%:*}" && [ "$_ticks" = "${_rest#*:}" ]
}

members() { # -> _pids: all processes with the tag, of the job's session, and in its control group
  _pids=
  [ -n "$_tag" ] || _tag=none # an empty one would be that of all runs
  [ -n "$_session" ] || _session=none
  for _file in $(grep -ls -e "TRADEWIND_FAR=$_tag" -e "^[0-9]* (.*) [^ZX] [0-9]* [0-9]* $_session " \
    /proc/[0-9]*/environ /proc/[0-9]*/stat 2>/dev/null); do
    _file=${_file#/proc/}
    _pids="$_pids ${_file%/*}"
  done
  if [ -r "$_group/cgroup.procs" ]; then
    while read -r _pid; do _pids="$_pids $_pid"; done <"$_group/cgroup.procs"
  fi
  set -- $_pids # without the blanks
  _pids=$*
}

end_all() { # GRACE in hundredths: ends all members; fails if some do not go
  members
  [ -n "$_pids" ] || return 0
  _left=$(($1 / 5))
  if [ "$_left" -gt 0 ]; then
    kill -TERM $_pids 2>/dev/null
    while [ "$_left" -gt 0 ]; do
      nap
      members
      [ -n "$_pids" ] || return 0
      _left=$((_left - 1))
    done
  fi
  _left=100
  while [ -n "$_pids" ]; do
    kill -KILL $_pids 2>/dev/null
    _left=$((_left - 1))
    [ "$_left" -gt 0 ] || return 1
    members
    [ -z "$_pids" ] || nap
  done
}

nap() { sleep 0.05 2>/dev/null || sleep 1; }

identity() { # RUN FOLDER -> _tag, _session, _group, as its files say
  _tag=none _session=none _since= _group=
  { read -r _tag <"$1/tag"; } 2>/dev/null
  { read -r _session _since <"$1/leader"; } 2>/dev/null
  # Once the job's first process is gone, its number may be that of anybody's session.
  { [ -n "$_since" ] && ticks_of "$_session" && [ "$_ticks" = "$_since" ]; } || _session=none
  { read -r _group <"$1/group"; } 2>/dev/null
  [ -d "$_group" ] || _group=
}

drop_group() {
  [ -n "$_group" ] || return 0
  _left=20
  until rmdir "$_group" 2>/dev/null || ! [ -d "$_group" ] || [ "$_left" = 0 ]; do
    _left=$((_left - 1))
    nap
  done
}

remove() { # RUN FOLDER
  rm -rf "$1" 2>/dev/null || { chmod -R u+rwX "$1" && rm -rf "$1"; } 2>/dev/null
}
