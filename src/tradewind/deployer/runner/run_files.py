"""Files that runners leave for other processes or bring into run folders, and errors of writing them.

A note is a small file about a run that is not settled: by it a process that comes after this one finds the run.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from tradewind.errors import DeployError
from tradewind.utils.atomic_files import write_atomically

_CHUNK_BYTES = 4 << 20


def read_chunk(path: Path, offset: int) -> bytes:
    """Read up to 4 MiB of a file that may still grow, from an offset on; empty when there is no such file.

    Raises:
        DeployError: It cannot be read.
    """
    if not path.is_file():  # what the job made of it may be a pipe, which would never end
        return b""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(_CHUNK_BYTES)
    except OSError as error:
        raise folder_error(error, path.parent) from error


def read_document(path: Path) -> dict[str, Any] | None:
    """The JSON document of a file, or None when there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def modified_at(path: Path) -> float | None:
    """The time when a file was last written, in seconds since the epoch, or None when there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def replace_document(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON document; a reader sees the old one or the new one, never half of one."""
    write_atomically(path, json.dumps(content))


def merge_folder(source: Path, target: Path, *, move: bool = False) -> None:
    """Copy or move the content of a folder into another one, over equal names; nothing is written through a link.

    It may be repeated, also after a kill in the middle, with the same result. Links stay links; what is neither a file
    nor a folder nor a link is left out.

    Args:
        source: The folder with the content.
        target: The folder that gets it; made if it is not there.
        move: Move the content, which needs no disk space and both folders on one file system.

    Raises:
        OSError: It cannot be read, or not be written.
    """
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        target.unlink()
    target.mkdir(parents=True, exist_ok=True)
    for path in list(source.iterdir()):
        there = target / path.name
        folder = path.is_dir() and not path.is_symlink()
        if folder and not (move and not os.path.lexists(there)):
            merge_folder(path, there, move=move)
            continue
        if there.is_dir() and not there.is_symlink():
            shutil.rmtree(there)
        if move:
            path.replace(there)
        elif path.is_symlink():
            there.unlink(missing_ok=True)
            there.symlink_to(path.readlink())
        elif path.is_file():
            there.unlink(missing_ok=True)
            shutil.copy2(path, there)


def write_marker(path: Path, text: str) -> None:
    """Write a file whose presence is what matters: on a full disk it stays empty."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    except OSError:
        return
    try:
        os.write(fd, text.encode())
    except OSError:
        return
    finally:
        os.close(fd)


def folder_error(error: OSError, folder: Path) -> DeployError:
    """The typed error for a run folder that cannot be written or used.

    Args:
        error: The error of the system.
        folder: The folder, for the message.
    """
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DeployError(f"the disk under {folder} is full", hint="free some space and repeat the command")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST):
        return DeployError(
            f"the run folder {folder} cannot be written: {error.strerror}",
            hint="set TRADEWIND_HOME to a folder that can",
            retryable=False,
        )
    return DeployError(f"the run folder {folder} cannot be used: {error.strerror}")


def file_name_of(text: str) -> str:
    """Encode any text as the name of a file; `urllib.parse.unquote` decodes it, but for the empty text."""
    word = quote(text, safe="") or "%"
    return word.replace(".", "%2E", 1) if word.startswith(".") else word


class RunNote(NamedTuple):
    """A note of a run.

    Attributes:
        owner: The owner of the run.
        run_id: The run.
        content: The JSON document that was written.
    """

    owner: str
    run_id: str
    content: dict[str, Any]


class RunNotes:
    """The notes of a runner: one folder for each owner, one file for each run.

    Args:
        folder: The folder with the notes.
        suffix: The ending of the files' names.
    """

    def __init__(self, folder: Path, suffix: str = ".json") -> None:
        self._folder = folder
        self._suffix = suffix

    def path(self, owner: str, run_id: str) -> Path:
        """The file with the note of a run; it need not be there."""
        return self._folder / file_name_of(owner) / f"{file_name_of(run_id)}{self._suffix}"

    def write(self, owner: str, run_id: str, content: Mapping[str, Any]) -> None:
        """Write the note of a run, before anything is started for it.

        Raises:
            DeployError: It cannot be written.
        """
        path = self.path(owner, run_id)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_document(path, content)
        except OSError as error:
            raise folder_error(error, path.parent) from error

    def read(self, owner: str, run_id: str) -> dict[str, Any] | None:
        """The content of a run's note, or None without one."""
        return read_document(self.path(owner, run_id))

    def paths(self, owner: str | None) -> Iterator[tuple[str, str, Path]]:
        """The files of the notes of an owner, or of all: owner, run id and path of each."""
        folders = [self._folder / file_name_of(owner)] if owner is not None else sorted(self._folder.glob("*"))
        for folder in folders:
            for path in sorted(folder.glob(f"*{self._suffix}")):
                yield unquote(folder.name), unquote(path.name.removesuffix(self._suffix)), path

    def all(self, owner: str | None) -> Iterator[RunNote]:
        """The notes of an owner, or of all, that can be read."""
        for whose, run_id, path in self.paths(owner):
            content = read_document(path)
            if content is not None:
                yield RunNote(whose, run_id, content)

    def remove(self, owner: str, run_id: str) -> None:
        """Remove the note of a run; a note that cannot be removed now is found by the next sweep."""
        with suppress(OSError):
            self.path(owner, run_id).unlink(missing_ok=True)
