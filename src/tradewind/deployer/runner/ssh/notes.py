"""Where the ssh runner has started what, for a process that comes after this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from tradewind.deployer.runner.files import document, folder_error, replace_document


class Notes:
    """A file for each run that is not settled, written before the run is started.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, owner: str, run_id: str, data: Mapping[str, Any]) -> None:
        """Keep what a handle needs.

        Raises:
            DeployError: It cannot be written.
        """
        path = self._path(owner, run_id)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_document(path, data)
        except OSError as error:
            raise folder_error(error, path.parent) from error

    def read(self, owner: str, run_id: str) -> dict[str, Any] | None:
        """What was kept of a run, or None."""
        return document(self._path(owner, run_id))

    def all(self, owner: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """All runs of an owner, or of all: their ids and what was kept."""
        folders = [self._folder / _word(owner)] if owner is not None else sorted(self._folder.glob("*"))
        for folder in folders:
            for path in sorted(folder.glob("*.json")):
                data = document(path)
                if data is not None:
                    yield unquote(path.stem), data

    def remove(self, owner: str, run_id: str) -> None:
        """Forget a run."""
        self._path(owner, run_id).unlink(missing_ok=True)

    def _path(self, owner: str, run_id: str) -> Path:
        return self._folder / _word(owner) / f"{_word(run_id)}.json"


def _word(text: str) -> str:
    """A text as one word that can be the name of a file."""
    word = quote(text, safe="") or "%"
    return word.replace(".", "%2E", 1) if word.startswith(".") else word


def far_name(run_id: str) -> str:
    """What a run is called on the machines; `run_id_of` reads it."""
    return _word(run_id)


def run_id_of(name: str) -> str:
    """The run of a name on a machine."""
    return unquote(name)
