"""Checkpoints of runs on machines that are reached by SSH: put there before the job starts, looked at, and copied."""

from __future__ import annotations

import datetime
import hashlib
import re
import time
from pathlib import Path

from tradewind.deployer.bundle import unpack
from tradewind.deployer.checkpoints import ATTEMPTS, CHANGES, FOLDER, CheckpointLook, CheckpointStore
from tradewind.deployer.runner.ssh.remote_machine import RemoteMachine
from tradewind.errors import DeployError
from tradewind.problem import CheckpointPlan

_SECONDS = 60.0
_LIST = f"""
cd "$1" 2>/dev/null && [ -d {FOLDER} ] || exit 0
list() {{ find {FOLDER} -type f -exec stat -c "%y %i %s %n" {{}} +; }}
say() {{ [ -z "$1" ] || {{ : >looked; stat -c "%y" looked; printf '%s\\n' "$1"; }}; }}
"""
_LOOK = f'{_LIST} say "$(list)"'
"""Prints the time there, and a line for each file, which begins with the time at which it was written."""
_COPY = f"""{_LIST}
for _turn in {" ".join(map(str, range(ATTEMPTS)))}; do
  _before=$(list)
  rm -rf {FOLDER}.copy
  if cp -Rp {FOLDER} {FOLDER}.copy 2>/dev/null && [ "$_before" = "$(list)" ]; then
    say "$_before"
    exit 0
  fi
done
"""
"""Copies the files there, which takes less time than bringing them here; prints the same, or nothing if they change."""
_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?) ([-+]\d{4})")


def put_checkpoint(machine: RemoteMachine, name: str, plan: CheckpointPlan) -> None:
    """Put the latest checkpoint into a run's folder there, unless it is there already.

    Args:
        machine: The machine.
        name: The name of the run's command there.
        plan: Where the checkpoints are kept.

    Raises:
        DeployError: The machine does not answer, or its disk is full.
    """
    place, latest = f"{_run_folder(machine, name)}/{FOLDER}", CheckpointStore(plan.folder).latest()
    # Of a run that was submitted before, the job may be writing into it.
    if latest is not None and machine.link.run(["test", "-d", place], check=False, timeout=_SECONDS).code != 0:
        machine.link.put_folder(latest.files, place)


def look_at_checkpoint(machine: RemoteMachine, name: str) -> CheckpointLook:
    """Look at the checkpoint files of a run there.

    Args:
        machine: The machine.
        name: The name of the run's command there.

    Raises:
        DeployError: The machine does not answer, or files go away meanwhile.
    """
    return _look(machine, name, _LOOK)


def _look(machine: RemoteMachine, name: str, script: str) -> CheckpointLook:
    answer = machine.link.run(["sh", "-c", script, "look", _run_folder(machine, name)], timeout=_SECONDS)
    first, _, rest = answer.stdout.decode(errors="surrogateescape").partition("\n")
    if not rest:
        return CheckpointLook()
    now = _seconds(first, machine)
    newest = max((_seconds(line, machine) for line in rest.splitlines() if _TIME.match(line)), default=now)
    digest = hashlib.sha256("\n".join(sorted(rest.splitlines())).encode(errors="surrogateescape")).hexdigest()
    return CheckpointLook(digest, time.time() - max(0.0, now - newest))  # clocks may differ, time spans do not


def copy_checkpoint(machine: RemoteMachine, name: str, folder: Path, limit_bytes: int) -> CheckpointLook:
    """Bring the checkpoint files of a run to this machine, as they were at one moment.

    Args:
        machine: The machine.
        name: The name of the run's command there.
        folder: The folder that is made for them.
        limit_bytes: The most bytes that they may have.

    Returns:
        What was copied.

    Raises:
        DeployError: The machine does not answer, or the files change all the time, are too large or cannot be written.
    """
    found = _look(machine, name, _COPY)
    if not found.fingerprint:
        raise DeployError(CHANGES)
    argv = ["tar", "cf", "-", "-C", f"{_run_folder(machine, name)}/{FOLDER}.copy", "."]
    machine.link.receive(argv, lambda stream: unpack(stream, folder, limit_bytes=limit_bytes, lenient=True))
    return found


def _run_folder(machine: RemoteMachine, name: str) -> str:
    return f"{machine.far_folder}/runs/{name}"


def _seconds(line: str, machine: RemoteMachine) -> float:
    """The time at the beginning of a line, in seconds since the epoch.

    Raises:
        DeployError: There is none.
    """
    found = _TIME.match(line)
    if found is None:
        raise DeployError(f"{machine.target.host}: stat does not say when a file was written: {line[:80]!r}")
    date, clock, zone = found.groups()
    return datetime.datetime.fromisoformat(f"{date}T{clock}{zone}").timestamp()
