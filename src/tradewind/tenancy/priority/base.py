"""The contract of a priority between the searches of one tenant."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from tradewind.plugins import Plugin, Settings
from tradewind.tenancy.views import JobView


class Priority(Plugin, ABC):
    """Says which search of a tenant gets what its tenant is due.

    It is a function of what the searches were told: after a restart all results are told again in their order, and what
    does not follow from them is recalled.

    Args:
        settings: An instance of the class's ``Settings``.
    """

    def __init__(self, *, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    def key(self, job: JobView) -> tuple[float, ...]:
        """The search of the smallest key is next; equal ones go by submission. It is asked when the search changes."""

    def told(self, job: JobView) -> None:
        """A search got a result, the last of ``job.values``."""

    def declines(self, job: JobView) -> int:
        """The number of offers that a search declines before it takes one; none by default."""
        return 0

    def declined(self, job: JobView, *, taken: bool) -> None:
        """A search has declined an offer, and another one took it, or nobody did."""

    def unopposed(self, job: JobView) -> None:
        """A search has declined an offer, and all others that wait have declined it, too; now it takes it."""

    def remembered(self, job: JobView) -> dict[str, Any]:
        """A JSON-able document of what is known of a search and does not follow from its results; none by default."""
        return {}

    def recall(self, job: JobView, document: Mapping[str, Any]) -> None:
        """Take what was remembered of a search before the allocator was started again, before its results are told."""

    def forget(self, job: JobView) -> None:
        """A search is over."""
