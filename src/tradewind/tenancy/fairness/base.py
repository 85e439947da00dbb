"""The contract of a rule between tenants."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tradewind.plugins import Plugin, Settings
from tradewind.tenancy.views import TenantView


class Fairness(Plugin, ABC):
    """Says which tenant gets the next free resources.

    Args:
        settings: An instance of the class's ``Settings``.
    """

    def __init__(self, *, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    def key(self, tenant: TenantView) -> tuple[float, ...]:
        """The tenant of the smallest key is next; it depends on the tenant alone, and is asked when that changes."""
