"""The rows of a run's machines: each is a run of the deployer, written before its machine is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol, runtime_checkable

from tradewind.errors import RecordError, StoreFullError, WorkflowError
from tradewind.problem import Run
from tradewind.store.codec import run_from_json, run_to_json
from tradewind.utils.atomic_files import write_atomically


@runtime_checkable
class RunRows(Protocol):
    """Keeps the rows of a run's machines."""

    def save_run(self, run: Run) -> None:
        """Keep a row; it lasts when this returns."""

    def saved_runs(self) -> list[Run]:
        """Give the newest row of each machine that was ever asked for."""


class FileRows:
    """Rows in files of the run's folder.

    Args:
        folder: Their folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save_run(self, run: Run) -> None:
        """Keep a row.

        Raises:
            StoreFullError: It cannot be written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._folder / f"{run.run_id}.json", json.dumps(run_to_json(run)))
        except OSError as error:
            raise StoreFullError(f"the row of machine {run.run_id} cannot be written: {error.strerror}") from error

    def saved_runs(self) -> list[Run]:
        """Give the newest row of each machine.

        Raises:
            WorkflowError: A file has something else in it.
        """
        found = []
        for file in sorted(self._folder.glob("*.json")):
            try:
                found.append(run_from_json(json.loads(file.read_bytes())))
            except (OSError, ValueError, RecordError) as error:
                raise WorkflowError(f"it is no row of a machine: {error}", file=str(file)) from None
        return found
