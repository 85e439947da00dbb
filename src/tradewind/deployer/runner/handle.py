"""The typed data of handles: every runner derives its own from `HandleData`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Self

from tradewind.problem import Handle


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleData:
    """The data of a handle. A field of a derived class is JSON-able and has a default.

    Handles are kept in the store and in notes. Unknown keys were written by another version and are left out; missing
    ones have their defaults.

    Attributes:
        owner: The owner of the run, as in `RunRequest.owner`.
        expires: The time from which anyone may end it, in seconds since the epoch; None for one that waits, or where it
            is not known.
        created: The time when it was submitted, in seconds since the epoch, or None.
        price_per_hour: The price of all its machines together, in USD an hour, or None.
    """

    owner: str = ""
    expires: float | None = None
    created: float | None = None
    price_per_hour: float | None = None

    @classmethod
    def of(cls, handle: Handle) -> Self:
        """The data of a handle."""
        return cls.from_json(handle.data)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """The data of a document that `to_json` made, in this version or in another."""
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in document.items() if key in known and value is not None})

    def to_json(self) -> dict[str, Any]:
        """A JSON-able document, without the fields that have their defaults."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {field.name: found[field.name] for field in fields(self) if found[field.name] != _default(field)}

    def handle(self, run_id: str, runner: str) -> Handle:
        """The handle of a run.

        Args:
            run_id: The run.
            runner: The entry-point name of its runner.
        """
        return Handle(run_id, runner, self.to_json())

    def waiting(self) -> Self:
        """The same data for a run that waits in a queue: it costs nothing, and has no expiry."""
        return replace(self, expires=None)

    def begun(self, began: float, lasts: float | None) -> Self:
        """The same data for a run that has waited in a queue: its expiry counts from its beginning.

        Args:
            began: The time when it began, in seconds since the epoch.
            lasts: Seconds from its beginning after which anyone may end it. None where an earlier version did not write
                them down: then the seconds from its submission to its expiry are taken.
        """
        if self.expires is None:
            return self
        if lasts is None:
            lasts = self.expires - (self.expires if self.created is None else self.created)
        return replace(self, expires=max(self.expires, began + lasts))


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
