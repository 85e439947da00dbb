"""The contract of a rule between tenants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from tradewind.plugins import Plugin, Settings
from tradewind.tenancy.views import TenantView


class Fairness(Plugin, ABC):
    """Says which tenant gets the next free resources.

    Args:
        settings: An instance of the class's ``Settings``.

    Attributes:
        keeps_places: A place that is too small for the run that is due is kept for it at once, and until then only
            runs start there that are expected to end before. Otherwise a node is kept for a run that has found no room
            for a while.
    """

    keeps_places: ClassVar[bool] = False

    def __init__(self, *, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    def key(self, tenant: TenantView) -> tuple[float, ...]:
        """The tenant of the smallest key is next; it depends on the tenant alone, and is asked when that changes."""

    def came(self, tenant: TenantView) -> None:
        """A tenant has work that waits, and had none that waits before, or its quota let it have no more."""

    def began(self, turn: tuple[float, ...]) -> None:
        """A run that was next has started.

        Args:
            turn: The key that its tenant had when the run was chosen, before it was counted.
        """

    def used(self, tenant: TenantView, amount: float, since: float) -> None:
        """Count a use, when a run starts for as long as it is expected to take; what was wrong about it follows later.

        Args:
            tenant: Whose use.
            amount: Dominant share of the cluster times seconds; below zero where less was used than was counted.
            since: When it began, on the allocator's clock.
        """

    def may_take(self, tenant: TenantView, other: TenantView) -> bool:
        """True when runs of another tenant may be ended so that a tenant gets its share, if its policy says so."""
        return True

    def precedes(self, turn: tuple[float, ...], other: TenantView) -> bool:
        """True when a tenant may have a place of another one before that had its share; always, where none is due.

        Args:
            turn: The key that it had when its work came, before anything of it was counted.
            other: The other one.
        """
        return True

    def may_pass(self, tenant: TenantView, other: TenantView, amount: float, now: float) -> bool:
        """True when a run may start beside a place that is kept for another one, and still be there when that begins.

        Args:
            tenant: Whose run it is.
            other: The one for whose run the place is kept.
            amount: Dominant share times seconds, divided by the weight, of that one of the two of which it is larger.
            now: The time.
        """
        return True

    def runs_before(self, tenant: TenantView, other: TenantView, amount: float, now: float) -> int | None:
        """The most runs of another tenant that start before the next one of a tenant; None where nothing limits them.

        Args:
            tenant: The tenant that waits.
            other: The other one.
            amount: Dominant share times seconds of the other one's runs.
            now: The time.
        """
        return None
