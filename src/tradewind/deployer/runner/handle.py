"""What is in the data of handles, typed: every runner derives its own from `HandleData`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Self

from tradewind.problem import Handle


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleData:
    """What a handle tells of its run. A field of a derived class is JSON-able and has a default.

    Handles are kept in the store and in notes. What is there and not known here was written by another version, and is
    left out; what is not there has its default.

    Attributes:
        owner: Whose run it is.
        expires: When anyone may end it, in seconds since the epoch; None for one that waits, or if nobody knows.
        created: When it was submitted, in seconds since the epoch.
        price_per_hour: What its machines cost, all of them, in USD.
    """

    owner: str = ""
    expires: float | None = None
    created: float | None = None
    price_per_hour: float | None = None

    @classmethod
    def of(cls, handle: Handle) -> Self:
        """What a handle tells."""
        return cls.from_json(handle.data)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """What a document tells that `to_json` made, in this version or in another."""
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in document.items() if key in known and value is not None})

    def to_json(self) -> dict[str, Any]:
        """A JSON-able document, without what has its default."""
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
        """The same of a run that waits in a queue: it costs nothing, and has no expiry."""
        return replace(self, expires=None)

    def begun(self, began: float, lasts: float | None) -> Self:
        """The same of a run that has waited in a queue: the time there does not count.

        Args:
            began: When it began, in seconds since the epoch.
            lasts: Seconds from its beginning after which anyone may end it. None where an earlier version did not write
                them down: then they are those from when it was submitted.
        """
        if self.expires is None:
            return self
        if lasts is None:
            lasts = self.expires - (self.expires if self.created is None else self.created)
        return replace(self, expires=max(self.expires, began + lasts))


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
