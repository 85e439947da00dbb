"""What a run's job reads, and the folder that the run writes into."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tradewind.deployer.environment import OUTPUTS, check_variables, is_variable, job_environment, resolve_secrets
from tradewind.deployer.runner.run_files import folder_error
from tradewind.errors import DeployError
from tradewind.problem import RunRequest

_OURS = re.compile(r"(SLURM|SBATCH|SRUN|PMI|PMIX)_?.*")


def job_order(request: RunRequest, folder: Path, mark: Path, words: Sequence[str], facts: Mapping[str, Any]) -> bytes:
    """What a job reads: see ``job.sh``.

    Args:
        request: The run.
        folder: Its folder, as the nodes see it.
        mark: The file that it leaves when it has ended.
        words: The command.
        facts: ``inherit`` (whether this process's environment is handed on), ``grace``, ``wall_seconds``,
            ``memory_bytes``, ``log_bytes``, ``slots`` and ``engine`` (what has to remove the run's container,
            or empty).

    Raises:
        DeployError: A secret cannot be read, or a variable's name or a value cannot be handed over.
    """
    given = {**request.env, **resolve_secrets(request.secrets)}
    check_variables(given)
    given |= job_environment(request, folder)
    inherited = {
        name: value
        for name, value in (os.environ.items() if facts["inherit"] else ())
        if is_variable(name) and not _OURS.fullmatch(name) and name not in given
    }
    memory, wall = facts["memory_bytes"], facts["wall_seconds"]
    fields = [
        str(folder),
        str(request.workdir.absolute()),
        "" if wall is None else str(max(1, round(wall * 100))),
        str(round(facts["grace"] * 100)),
        "" if memory is None else str(memory // 1024),
        "" if facts["log_bytes"] is None else str(facts["log_bytes"]),
        str(facts["slots"]),
        str(mark),
        facts["engine"],
        label_of(mark),
        str(len(inherited)),
        str(len(inherited) + len(given)),
        *(f"{name}={value}" for name, value in {**inherited, **given}.items()),
        *words,
    ]
    if any("\0" in field for field in fields):
        raise DeployError("a word or a variable of the command has a zero byte in it", retryable=False)
    return b"".join(os.fsencode(field) + b"\0" for field in fields)


def label_of(mark: Path) -> str:
    """What a run's containers are labelled with, by which they are found.

    Args:
        mark: The file that the run leaves when it has ended.
    """
    return hashlib.sha256(str(mark).encode(errors="surrogateescape")).hexdigest()[:16]


def make_folder(folder: Path) -> None:
    """Make the folder of a run.

    Raises:
        DeployError: It cannot be made.
    """
    try:
        (folder / OUTPUTS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise folder_error(error, folder) from error
