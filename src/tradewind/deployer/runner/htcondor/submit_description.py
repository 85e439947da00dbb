"""Writes what HTCondor runs: a script for each run, and one submit description for many runs."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tradewind.deployer.environment import OUTPUTS, check_variables, job_environment
from tradewind.deployer.runner.htcondor.checkpoints import SENDER, SENT, sending
from tradewind.deployer.runner.htcondor.settings import HtCondorSettings
from tradewind.deployer.runner.log_limit import shares
from tradewind.deployer.runner.resource_limits import cpus_of, memory_of, whole_gpus
from tradewind.errors import DeployError
from tradewind.problem import RunRequest

FOLDER = "condor"
"""The folder, below a run's folder, with the files that are exchanged with HTCondor."""

LOG, SCRIPT, SECRETS, RESULT, PACKED = "log", "job.sh", "secrets.sh", "result", "results.tar"
"""Files in it: the job event log, the job's script, its secrets, its end, and the archive of its results."""

WORK_TAR, INPUTS_TAR, CHECKPOINT_TAR = "work.tar", "inputs.tar", "checkpoint.tar"
"""Files in it: the archives of the working folder, the inputs and the checkpoint, where HTCondor transfers them."""

MISSING, NOT_EXECUTABLE = 127, 126
"""The exit codes of shells for a command that is not there, or cannot be run."""

_SPARE_SECONDS = 120
_PLACE = "\N{OBJECT REPLACEMENT CHARACTER}folder"


def quoted(words: Sequence[str]) -> str:
    """Quote arguments in the new syntax of submit descriptions.

    Raises:
        DeployError: An argument has a line break, which a submit description cannot have.
    """
    parts = []
    for word in words:
        _one_line(word, "an argument")
        word = word.replace("'", "''").replace('"', '""')
        parts.append(f"'{word}'" if not word or any(c in word for c in " \t'") else word)
    return literal(f'"{" ".join(parts)}"')


def literal(text: str) -> str:
    """Quote a value of a submit description, so that HTCondor expands nothing in it.

    Raises:
        DeployError: The value has a line break.
    """
    return _one_line(text, "a value").replace("$", "$(DOLLAR)")


def text_of_ad(text: str) -> str:
    """Quote a text as a string of the ClassAd language, for attributes and constraints."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_one_line(escaped, "a tag")}"'


def _one_line(text: str, what: str) -> str:
    if any(c in text for c in "\n\r\0"):
        raise DeployError(
            f"HTCondor cannot be given {what} with a line break: {text!r}",
            hint="rename the folder, or put the value into a file",
            retryable=False,
        )
    return text


@dataclass(frozen=True, slots=True)
class ResourceNeeds:
    """The resources that a run needs of its machine.

    Attributes:
        cpus: Number of whole CPUs.
        memory_mib: Memory in MiB.
        gpus: Number of GPUs.
        wall_seconds: The time limit in seconds, or None.
    """

    cpus: int
    memory_mib: int
    gpus: int
    wall_seconds: float | None

    @classmethod
    def of(cls, request: RunRequest) -> ResourceNeeds:
        """The needs of a request: its limits, or the amounts of its offer where there are none."""
        cpus, memory = max(1, math.ceil(cpus_of(request) or 0)), max(1, math.ceil((memory_of(request) or 0) / 2**20))
        return cls(cpus, memory, whole_gpus(request, "HTCondor"), request.limits.wall_seconds)


def shares_folders(request: RunRequest, settings: HtCondorSettings) -> bool:
    """True when the job sees this machine's folders; a container never does."""
    return settings.files == "shared" and request.image is None


def submit_description(requests: Sequence[RunRequest], settings: HtCondorSettings) -> str:
    """One submit description for some runs: one cluster, with a process for each run, in their order."""
    lines = [
        "executable = /bin/sh",
        "transfer_executable = false",
        f"log = {LOG}",
        "batch_name = tradewind",
        f"job_max_vacate_time = {math.ceil(settings.grace)}",
        # A run that lost its machine is repeated by the engine, which knows what it has cost.
        f"requirements = ({settings.requirements or 'true'}) && (NumJobStarts =?= undefined || NumJobStarts == 0)",
        *(f"{name} = {value}" for name, value in settings.submit.items()),
    ]
    if settings.memory_hold:
        lines += [
            "periodic_hold = MemoryUsage =!= undefined && MemoryUsage > RequestMemory",
            'periodic_hold_reason = "it used more memory than it asked for"',
        ]
    for request in requests:
        lines += ["", *_process(request, settings)]
    return "\n".join(lines) + "\n"


def _process(request: RunRequest, settings: HtCondorSettings) -> list[str]:
    needs, folder = ResourceNeeds.of(request), request.folder.absolute()
    place = folder / FOLDER
    expires = math.ceil(request.expires)
    # Time in the queue costs nothing, and does not count.
    lasts = max(0, math.ceil(request.expires - time.time()))
    lines = [
        "universe = vanilla" if request.image is None else "universe = docker",
        f"initialdir = {literal(str(place))}",
        f"+TradewindRun = {literal(text_of_ad(request.run_id))}",
        f"+TradewindOwner = {literal(text_of_ad(request.owner))}",
        f"+TradewindExpires = {expires}",
        f"+TradewindLasts = {lasts}",
        f"+TradewindFolder = {literal(text_of_ad(str(folder)))}",
        f"request_cpus = {needs.cpus}",
        f"request_memory = {needs.memory_mib}",
        f"request_gpus = {needs.gpus}" if needs.gpus else "",
        # HTCondor's own dead man's switch, and the end of what would run a second time.
        "periodic_remove = (NumJobStarts > 0 && JobStatus == 1)"
        f" || (JobStatus != 1 && time() - EnteredCurrentStatus > {lasts})",
    ]
    if request.image is not None:
        lines.append(f"docker_image = {literal(request.image)}")
    if needs.wall_seconds is not None:
        # The script ends the job; this is for a script that was stopped itself.
        longest = math.ceil(needs.wall_seconds + settings.grace) + _SPARE_SECONDS
        lines.append(f"allowed_execute_duration = {longest}")
    if shares_folders(request, settings):
        lines.append("should_transfer_files = NO")
        lines.append(f"arguments = {quoted([str(place / SCRIPT)])}")
        lines += [f"output = {literal(str(folder / 'stdout'))}", f"error = {literal(str(folder / 'stderr'))}"]
    else:
        if request.checkpoint is not None:
            lines.append("+WantIOProxy = true")  # the job sends its checkpoints by condor_chirp
        sent = [name for name in (SCRIPT, SECRETS, WORK_TAR, INPUTS_TAR, CHECKPOINT_TAR) if (place / name).exists()]
        lines += ["should_transfer_files = YES", "when_to_transfer_output = ON_EXIT"]
        lines += [f"arguments = {quoted([SCRIPT])}", f"transfer_input_files = {','.join(sent)}"]
        lines.append(f"transfer_output_files = {RESULT},{PACKED}")
        lines += ["output = ../stdout", "error = ../stderr"]
    return [*(line for line in lines if line), "queue"]


def script(request: RunRequest, settings: HtCondorSettings) -> str:
    """The script of a job: it runs the command in its folder, with its environment and limits, and writes how it ended.

    It is plain ``sh``, so that it runs in any image. Values of the user are quoted, and never a part of its text.
    """
    shared = shares_folders(request, settings)
    sends = request.checkpoint is not None and not shared
    folder, work = shlex.quote(str(request.folder.absolute())), shlex.quote(str(request.workdir.absolute()))
    limits = request.limits
    wall = "" if limits.wall_seconds is None else _seconds(limits.wall_seconds)
    most, tail = ("", "") if limits.log_bytes is None else (limits.log_bytes, shares(limits.log_bytes)[1])
    environment = {**request.env, **job_environment(request, _PLACE)}
    check_variables((*environment, *request.secrets))
    lines = [
        "#!/bin/sh",
        "umask 077",
        "here=$PWD",
        f': > "{RESULT}"',
        *([] if shared else [f': > "{PACKED}"']),
        *([f"folder={folder}", f"work={work}"] if shared else ['folder="$here/run"', 'work="$here/work"']),
        f'mkdir -p "$folder/{OUTPUTS}"',
        *([] if shared else _unpacking()),
        *([SENDER] if sends else []),
        ': "${PATH:=/usr/local/bin:/usr/bin:/bin}"; export PATH',
        *(f"export {name}={_value(value)}" for name, value in sorted(environment.items())),
        f'if [ -f "$here/{SECRETS}" ]; then . "$here/{SECRETS}"; rm -f "$here/{SECRETS}"; fi',
        f"set -- {shlex.join(request.argv)}",
        f"wall={wall} grace={_seconds(settings.grace)} most={most} tail={tail}",
        *([sending(request.checkpoint)] if sends and request.checkpoint is not None else []),
        _BODY,
        *([SENT] if sends else []),
        *([] if shared else _packing(request.outputs)),
        'exit "$code"',
    ]
    return "\n".join(lines) + "\n"


def _seconds(seconds: float) -> str:
    """Seconds as an argument of ``sleep``; some versions take whole ones only."""
    return str(math.ceil(seconds)) if seconds >= 10 or seconds == int(seconds) else f"{seconds:.3f}"


def secrets_script(values: dict[str, str]) -> str:
    """A script that sets secrets; it is read and removed before the command starts."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(values.items()))


def _value(value: str) -> str:
    return shlex.quote(value).replace(_PLACE, "'\"$folder\"'")


def _unpacking() -> list[str]:
    return [
        f'mkdir -p "$work"; tar -xf "$here/{WORK_TAR}" -C "$work" || exit {NOT_EXECUTABLE}',
        f'if [ -f "$here/{INPUTS_TAR}" ]; then',
        f'  mkdir -p "$folder/inputs"; tar -xf "$here/{INPUTS_TAR}" -C "$folder/inputs" || exit {NOT_EXECUTABLE}',
        "fi",
    ]


def _packing(patterns: Sequence[str]) -> list[str]:
    """Shell lines that pack the results: all that may match is sent, and matching files are picked on arrival."""
    found = " -o ".join(f"-path {shlex.quote('./' + p)}" for each in patterns for p in _wider(each))
    lines = ['cd "$here" && echo run/outputs > kept']
    lines.append("if [ -f run/metrics.jsonl ]; then echo run/metrics.jsonl >> kept; fi")
    if found:
        lines.append(f'(cd "$work" && find . -type f \\( {found} \\)) | sed "s|^\\./|work/|" >> kept')
    return [*lines, f"tar -cf {PACKED} -T kept"]


def _wider(pattern: str) -> tuple[str, str]:
    plain = pattern.removeprefix("./").replace("**/", "*").rstrip("/")
    return plain, f"{plain}/*"


_BODY = f"""\
keep() {{ # NAME: passes on the beginning and the end, and writes down how many bytes came after the beginning
  head -c "$most"
  head -c 1 > "$here/$1.next"
  [ -s "$here/$1.next" ] || return
  cat "$here/$1.next" - | {{ tee /proc/self/fd/5 | wc -c > "$here/$1.more"; }} 5>&1 | tail -c "$tail"
}}
more() {{ [ ! -s "$here/$1.more" ] || cat "$here/$1.more"; }}
late="$here/late"; rm -f "$late"
cd "$work" || {{ echo "fault=workdir" > "$here/{RESULT}"; exit {NOT_EXECUTABLE}; }}
found=$(command -v -- "$1") || found=
case "$1" in */*) [ -x "$1" ] && [ ! -d "$1" ] || found= ;; esac
if [ -z "$found" ]; then
  code={MISSING}; [ -e "$1" ] && code={NOT_EXECUTABLE}
  echo "sh: $1: not found, or not executable" >&2
  echo "fault=missing" > "$here/{RESULT}"
else
  begun=$(date +%s.%N)
  if [ -n "$most" ]; then
    mkfifo "$here/out" "$here/err"
    keep out < "$here/out" & readers=$!
    keep err < "$here/err" >&2 & readers="$readers $!"
    "$@" < /dev/null > "$here/out" 2> "$here/err" & child=$!
  else
    "$@" < /dev/null & child=$!
  fi
  trap 'kill -TERM "$child" 2>/dev/null' TERM INT
  if [ -n "$wall" ]; then
    (
      trap 'kill "$nap" 2>/dev/null; exit' TERM
      sleep "$wall" & nap=$!; wait "$nap" || exit
      : > "$late"
      kill -TERM "$child" 2>/dev/null
      sleep "$grace" & nap=$!; wait "$nap"
      kill -KILL "$child" 2>/dev/null
    ) > /dev/null 2>&1 & watch=$!
  fi
  while :; do
    wait "$child"; code=$?
    kill -0 "$child" 2>/dev/null || break
  done
  ended=$(date +%s.%N)
  times > "$here/times"; {{ read -r cpu; read -r cpu; }} < "$here/times"
  [ -z "$wall" ] || kill "$watch" 2>/dev/null
  if [ -n "$most" ]; then
    (sleep 2; kill $readers) > /dev/null 2>&1 & nap=$!
    wait $readers 2>/dev/null; kill "$nap" 2>/dev/null
  fi
  fault=; [ ! -e "$late" ] || fault=late
  printf 'fault=%s\\ncode=%s\\nbegun=%s\\nended=%s\\ncpu=%s\\nout=%s\\nerr=%s\\n' \\
    "$fault" "$code" "$begun" "$ended" "$cpu" "$(more out)" "$(more err)" \\
    > "$here/{RESULT}.part"
  mv "$here/{RESULT}.part" "$here/{RESULT}"
fi"""
