"""Checkpoints in pods: looked at and copied by a command there, and put into the next pod through Secrets."""

from __future__ import annotations

import gzip
import io
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tradewind.deployer.checkpoints import ATTEMPTS, CHANGES, CheckpointLook, CheckpointStore
from tradewind.deployer.checkpoints import FOLDER as CHECKPOINT
from tradewind.deployer.runner.kubernetes.file_transfer import unpack_all
from tradewind.deployer.runner.kubernetes.job import FOLDER
from tradewind.errors import DeployError
from tradewind.problem import CheckpointPlan
from tradewind.utils.units import format_memory

PART_BYTES = 1_000_000
"""Bytes of a checkpoint that one Secret takes."""

MOST_BYTES = 16 * PART_BYTES
"""The most bytes that a checkpoint may have, compressed: Secrets are kept by the cluster's database."""

_PART = "tar.gz"
_SECONDS = 120.0
_PIECE = 1 << 16
_SCRIPT = rf"""b=$1/bin/busybox; cd "$1" || exit 1
list() {{ $b find {CHECKPOINT} -type f -exec $b stat -c '%Y %i %s %n' {{}} + | $b sort; }}
[ -d {CHECKPOINT} ] && before=$(list) && [ -n "$before" ] || exit 0
if [ "$2" = look ]; then $b date +%s; echo "$before"; exit 0; fi
for turn in {" ".join(map(str, range(ATTEMPTS)))}; do
  before=$(list); $b rm -rf {CHECKPOINT}.copy
  if $b cp -Rp {CHECKPOINT} {CHECKPOINT}.copy 2> /dev/null && [ "$before" = "$(list)" ]; then
    $b date +%s; echo "$before"; echo
    $b tar -c -f - -C {CHECKPOINT}.copy . | $b gzip -c
    $b rm -rf {CHECKPOINT}.copy
    exit 0
  fi
done
echo changes
"""
"""Prints the time there and a line for each file; after an empty line, where they are copied, the archive."""

Channel = Callable[[Sequence[str]], socket.socket]
"""Runs a command in the pod of a run, with a stream to it."""


def checkpoint_parts(plan: CheckpointPlan | None) -> dict[str, dict[str, bytes]]:
    """The latest checkpoint of a trial, as the files of some Secrets, by their volumes.

    Args:
        plan: Where the checkpoints are kept; None for none.
    """
    latest = None if plan is None else CheckpointStore(plan.folder).latest()
    if latest is None:
        return {}
    raw = io.BytesIO()
    latest.pack(raw)
    content = gzip.compress(raw.getvalue(), 6, mtime=0)
    if len(content) > MOST_BYTES:
        raise _too_large(len(content))
    pieces = range(0, len(content), PART_BYTES)
    return {f"{CHECKPOINT}-{n:02d}": {_PART: content[at : at + PART_BYTES]} for n, at in enumerate(pieces)}


def look_at_checkpoint(channel: Channel) -> CheckpointLook:
    """Look at the checkpoint files of a run that is executing.

    Args:
        channel: Runs a command in its pod.

    Raises:
        DeployError: The pod does not answer.
    """
    return _look(_answer(channel, "look"))


def copy_checkpoint(channel: Channel, folder: Path) -> CheckpointLook:
    """Bring the checkpoint files of a run that is executing to this machine, all as they were at one moment.

    Args:
        channel: Runs a command in its pod.
        folder: The folder that is made for them.

    Returns:
        What was copied.

    Raises:
        DeployError: The pod does not answer, or the files change all the time, are too large or cannot be written.
    """
    said, _, archive = _answer(channel, "copy").partition(b"\n\n")
    if said.strip() == b"changes":
        raise DeployError(CHANGES)
    found = _look(said)
    if found.fingerprint:
        try:
            unpack_all(archive, folder)
        except (EOFError, gzip.BadGzipFile) as error:
            raise DeployError(f"the checkpoint did not come whole: {error}") from error
    return found


def _answer(channel: Channel, what: str) -> bytes:
    answer = bytearray()
    with channel([f"{FOLDER}/bin/busybox", "sh", "-c", _SCRIPT, "sh", FOLDER, what]) as stream:
        stream.settimeout(_SECONDS)
        try:
            while piece := stream.recv(_PIECE):
                answer += piece
                if len(answer) > MOST_BYTES + _PIECE:
                    raise _too_large(len(answer), more=True)
        except TimeoutError as error:
            raise DeployError(f"the pod has not sent the checkpoint within {_SECONDS:g} seconds") from error
    return bytes(answer)


def _too_large(size: int, *, more: bool = False) -> DeployError:
    return DeployError(
        f"the checkpoint has {format_memory(size)} compressed{' or more' * more}, and Kubernetes takes "
        f"{format_memory(MOST_BYTES)}",
        hint="write less into it, or keep it in a volume (claim) by a name of the trial's own",
        retryable=False,
    )


def _look(said: bytes) -> CheckpointLook:
    first, _, listed = said.strip().partition(b"\n")
    if not listed:
        return CheckpointLook()
    lines = listed.splitlines()
    newest = max((int(line.split(b" ", 1)[0]) for line in lines if line.split(b" ", 1)[0].isdigit()), default=0)
    return CheckpointLook.by_seconds(listed, int(first) - newest, time.time())
