"""The contract of a priority between the searches of one tenant."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tradewind.plugins import Plugin, Settings
from tradewind.tenancy.views import JobView


class Priority(Plugin, ABC):
    """Says which search of a tenant gets what its tenant is due.

    It is a function of what the searches were told: after a restart all results are told again in their order.

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

    def forget(self, job: JobView) -> None:
        """A search is over."""
