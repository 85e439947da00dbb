"""Notes of runs that are not settled: a small file each, for a process that comes after this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from tradewind.deployer.runner.run_files import folder_error, read_document, replace_document


def file_name_of(text: str) -> str:
    """Any text as one word that can be the name of a file; `urllib.parse.unquote` reads it, but for the empty one."""
    word = quote(text, safe="") or "%"
    return word.replace(".", "%2E", 1) if word.startswith(".") else word


class RunNote(NamedTuple):
    """A note: whose run it is, which one, and what was noted."""

    owner: str
    run_id: str
    content: dict[str, Any]


class RunNotes:
    """The notes of a runner: one folder for each owner, one file for each run.

    Args:
        folder: Where they are.
        suffix: How their names end.
    """

    def __init__(self, folder: Path, suffix: str = ".json") -> None:
        self._folder = folder
        self._suffix = suffix

    def path(self, owner: str, run_id: str) -> Path:
        """The file of a run."""
        return self._folder / file_name_of(owner) / f"{file_name_of(run_id)}{self._suffix}"

    def write(self, owner: str, run_id: str, content: Mapping[str, Any]) -> None:
        """Note a run, before anything is started for it.

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
        """What was noted of a run, or None."""
        return read_document(self.path(owner, run_id))

    def paths(self, owner: str | None) -> Iterator[tuple[str, str, Path]]:
        """The notes of an owner, or of all: whose run it is, which one, and the file."""
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
        """Forget a run; a note that cannot be removed now is found by the next sweep."""
        with suppress(OSError):
            self.path(owner, run_id).unlink(missing_ok=True)
