"""Snapshots of the program's folder: a search that was handed over runs the code that was there at that moment."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tradewind import plugins
from tradewind.deployer.bundle import Bundle, pack, unpack
from tradewind.deployer.runner.base import RunsWorkflows, Simulates
from tradewind.errors import DeployError, PrerequisiteError
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.utils.paths import make_private
from tradewind.utils.user_functions import is_reference

LIMIT_BYTES = 2**30
"""The most that a folder may have that is kept with a search."""

KEPT_SECONDS = 90 * 86400.0
"""How long a snapshot is kept that no search begins with; the files that it is laid out as, too."""


def runs_code(spec: JobSpec) -> bool:
    """True where runs of a specification need the program's folder; those that are answered from records do not."""
    runner = plugins.load("runner", spec.runner.name)
    return not issubclass(runner, Simulates) or issubclass(runner, RunsWorkflows)


def archive_path(digest: str, data_folder: Path) -> Path:
    """The archive of a snapshot in a data folder."""
    return data_folder / "code" / "snapshots" / f"{digest}.tar"


def take_snapshot(workdir: Path, data_folder: Path, *, purpose: str = "kept with the search") -> Bundle:
    """Keep a program's folder as it is now; of equal ones, one is kept.

    What ``.tradewindignore`` names is left out, and a folder half kept by a process that was killed is never used.

    Args:
        workdir: The folder.
        data_folder: Snapshots are kept below it.
        purpose: What the folder may be too large for, in words.

    Raises:
        DeployError: The folder is not there, cannot be read, or is too large; or there is no room for it.
    """
    place = data_folder / "code" / "snapshots"
    with suppress(OSError):  # `pack`, which needs it, says why
        make_private(place)
    return pack(workdir, place, limit_bytes=LIMIT_BYTES, purpose=purpose, unused_seconds=KEPT_SECONDS)


def lay_out(
    archive: Path,
    name: str,
    data_folder: Path,
    *,
    workdir: Path,
    hint: str = "submit where the cluster has its data, or with --live-folder",
) -> Path:
    """The folder with the files of a snapshot, made where it is not there yet; it appears when all of it is there.

    On a machine without the archive the program's folder will do, where it has the same files there.

    Args:
        archive: The snapshot's archive, which has its digest as its name.
        name: Name of the folder, another one for each search.
        data_folder: Such folders are below it; those that no search began with for long are removed.
        workdir: The program's folder.
        hint: What to do where the snapshot is not on this machine.

    Raises:
        PrerequisiteError: The archive is not on this machine, nor are these files in the program's folder.
        DeployError: It is damaged, or there is no room for its files.
    """
    trees = tree_path(name, data_folder).parent
    place = trees / name
    if not archive.is_file():
        if place.is_dir():
            return place
        archive = _same_files(archive, workdir, data_folder, hint)
    make_private(trees)
    with suppress(OSError):
        archive.touch()
    if not place.is_dir():
        _drop_old(trees)
        unpack(archive, place, limit_bytes=2 * LIMIT_BYTES)
    with suppress(OSError):
        place.touch()
    return place


def tree_path(name: str, data_folder: Path) -> Path:
    """The folder that a snapshot is laid out as under a name."""
    return data_folder / "code" / "trees" / name


def _same_files(archive: Path, workdir: Path, data_folder: Path, hint: str) -> Path:
    """The archive of a program's folder that has the files of a snapshot of another machine."""
    missing = f"the snapshot {archive} of the program's folder is not there"
    try:
        here = take_snapshot(workdir, data_folder)
    except DeployError as error:
        raise PrerequisiteError(f"{missing}, and {error.message}", hint=hint) from error
    if here.digest != archive.stem:
        raise PrerequisiteError(f"{missing}, and {workdir} has other files here", hint=hint)
    return here.path


def _drop_old(trees: Path) -> None:
    before = time.time() - KEPT_SECONDS
    for path in trees.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime < before:
                shutil.rmtree(path, ignore_errors=True)


def run_from(document: Mapping[str, Any], tree: Path) -> dict[str, Any]:
    """The specification of a study whose program is in another folder.

    Inputs that the snapshot does not have stay where they are, and so does all that is no part of the program:
    catalogues, secrets. Parts of the user's own are taken from the snapshot where it has them.

    Args:
        document: The specification's document.
        tree: The folder with the snapshot's files.
    """
    inner = dict(document["job"])
    job = dict(inner["job"])
    folder = Path(job["workdir"])
    job["workdir"] = str(tree)
    job["inputs"] = [_input(text, folder, tree) for text in job.get("inputs", ())]
    moved = {name: _moved(value, folder, tree) for name, value in inner.items() if name != "job"}
    return {**document, "job": {**moved, "job": job}}


def _input(text: str, folder: Path, tree: Path) -> str:
    place = text.partition("#")[0]
    if "://" in place or place.startswith(("/", "~")) or (tree / place).exists():
        return text
    return f"{folder}/{text}"


def _moved(part: Any, folder: Path, tree: Path) -> Any:
    if isinstance(part, list):
        return [_moved(one, folder, tree) for one in part]
    if not isinstance(part, Mapping):
        return part
    found = {name: _moved(value, folder, tree) for name, value in part.items()}
    use = found.get("use")
    if isinstance(use, str) and is_reference(use):
        file, _, symbol = use.rpartition(":")
        with suppress(ValueError):
            copied = tree / Path(file).relative_to(folder)
            if copied.is_file():
                found["use"] = f"{copied}:{symbol}"
    return found
