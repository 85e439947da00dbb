"""Notes of runs: on which machine each is, which only its provisioner knows, and when it was asked to start."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from tradewind.deployer.runner.files import document, folder_error, replace_document
from tradewind.problem import Handle

ASKED = "asked"
"""What a handle's data call the moment at which the engine was asked to start its run, by the engine's clock."""

LOOK = "look"
"""What a handle's data call it that its run may be anybody's: to poll it starts nothing, and ends nothing that was not
cancelled here."""


class Notes:
    """One small file for each run, below one folder for each owner.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _place(self, handle: Handle) -> Path:
        return (
            self._folder / quote(str(handle.data.get("owner", "")), safe="") / f"{quote(handle.run_id, safe='')}.json"
        )

    def write(self, handle: Handle) -> None:
        """Note a run before anything is created for it.

        Raises:
            DeployError: The note cannot be written.
        """
        place = self._place(handle)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            replace_document(place, handle.to_json())
        except OSError as error:
            raise folder_error(error, self._folder) from error

    def asked(self, handle: Handle) -> float:
        """When a run was asked to start, as it was noted, or 0."""
        told = document(self._place(handle)) or {}
        return float((told.get("data") or {}).get(ASKED, 0.0))

    def read(self, owner: str | None) -> list[Handle]:
        """The noted runs of an owner, or of all."""
        folders = [self._folder / quote(owner, safe="")] if owner is not None else sorted(self._folder.glob("*"))
        found = []
        for folder in folders:
            for place in sorted(folder.glob("*.json")):
                told = document(place)
                if told:
                    found.append(Handle.from_json(told))
        return found

    def remove(self, handle: Handle) -> None:
        """Forget a run."""
        with suppress(OSError):
            self._place(handle).unlink(missing_ok=True)
