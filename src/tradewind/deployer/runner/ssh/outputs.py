"""Brings the logs and outputs of a run from its machines into its folder."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from tradewind.deployer.environment import METRICS, OUTPUTS
from tradewind.deployer.runner.log_limit import shorten_log
from tradewind.deployer.runner.run_files import folder_error, merge_folder, replace_document
from tradewind.deployer.runner.ssh.remote_machine import RemoteMachine
from tradewind.deployer.runner.ssh.status import fields
from tradewind.deployer.staging import stage_out
from tradewind.errors import DeployError
from tradewind.problem import RunRequest

_LOGS = ("stdout", "stderr", METRICS)


def collect(parts: Sequence[tuple[RemoteMachine, str]], request: RunRequest, limit_bytes: int) -> None:
    """Bring the logs, metrics and outputs of a run; with a load generator also those of the application.

    Args:
        parts: The machine and the name of each command of the run; that of the run itself comes first.
        request: The run.
        limit_bytes: The most bytes that each command may bring.

    Raises:
        UnreachableError: A machine does not answer.
        DeployError: The files are gone, too large, or cannot be written here.
    """
    folder = request.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        cut = False
        with tempfile.TemporaryDirectory(prefix=".bringing-", dir=folder, ignore_cleanup_errors=True) as place:
            for i, (machine, name) in reversed(list(enumerate(parts))):
                came = Path(place) / str(i)
                if not machine.bring(name, _find_patterns(request.outputs), came, limit_bytes):
                    if i == 0 and len(parts) > 1:
                        continue  # an application that was never ready has had no load
                    raise DeployError(f"run {request.run_id} left nothing on {machine.target.host}")
                _, words = machine.answer(name) or (0.0, "")
                cut = _put(came, request, "application." if i else "", fields(words))
        replace_document(folder / "result.json", {"truncated": cut})
    except OSError as error:
        raise folder_error(error, folder) from error


def _put(came: Path, request: RunRequest, prefix: str, result: Mapping[str, str]) -> bool:
    """Put what came into the run's folder; True when its logs have not all that was printed."""
    limit = request.limits.log_bytes
    more = [int(word) for word in result.get("more", "").split("/") if word.isdigit()] or [0, 0]
    for name, count in zip(("stdout", "stderr"), more, strict=True):
        if limit is not None and count and (came / name).is_file():
            shorten_log(came / name, limit, limit + count)
    for name in _LOGS:
        source = came / name
        if source.is_file() and not source.is_symlink() and not (prefix and name == METRICS):
            source.replace(request.folder / f"{prefix}{name}")
    outputs = request.folder / OUTPUTS
    outputs.mkdir(exist_ok=True)
    if (came / OUTPUTS).is_dir() and not (came / OUTPUTS).is_symlink():
        merge_folder(came / OUTPUTS, outputs, move=True)
    kept = came / "kept"
    if kept.is_dir() and request.outputs:
        picked = came / "picked"
        if stage_out(replace(request, workdir=kept, folder=picked)):
            merge_folder(picked / OUTPUTS, outputs, move=True)
    return result.get("cut") == "1"


def _find_patterns(patterns: Sequence[str]) -> list[str]:
    """Patterns for ``find -path`` that match all files that some output patterns do, and perhaps more.

    Raises:
        DeployError: A pattern leaves the working folder.
    """
    found: list[str] = []
    for pattern in patterns:
        if pattern.startswith("/") or ".." in PurePosixPath(pattern).parts or "\n" in pattern:
            raise DeployError(f"output pattern {pattern!r} leaves the working folder", retryable=False)
        path = str(PurePosixPath(pattern))
        # A star of find matches slashes too; two stars of ours match no folder as well.
        found += dict.fromkeys([f"./{path}", f"./{path.replace('**/', '')}", f"./{path.removesuffix('/**')}"])
    return found


def read_log(machine: RemoteMachine, name: str, stream: str, offset: int) -> bytes:
    """Read a log of a command from a byte on.

    Args:
        machine: The machine.
        name: The name of the command there.
        stream: ``stdout``, ``stderr`` or the metrics file.
        offset: The first byte that is wanted, counted from 0.

    Raises:
        UnreachableError: The machine does not answer.
    """
    if stream not in _LOGS:
        raise DeployError(f"there is no stream {stream!r}", retryable=False)
    lines = machine.ask("log", name, stream, str(offset))
    return base64.b64decode("".join(lines))
