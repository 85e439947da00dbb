"""Who asks."""

from __future__ import annotations

from dataclasses import dataclass

from tradewind.store.service.accounts import Role

ROLES: tuple[Role, ...] = ("admin", "user")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks for something: every function of the service takes one, and shows no more than it may see.

    Attributes:
        user_id: Number of the user; 0 for the command line on the server's own machine.
        name: The user's name.
        role: ``admin`` or ``user``.
        tenant: Whose requests, studies and applications the user sees and makes.
        address: Where the call came from, for the audit log; empty for the command line.
    """

    user_id: int
    name: str
    role: Role
    tenant: str
    address: str = ""

    @property
    def is_admin(self) -> bool:
        """Whether the user sees all tenants and may change settings."""
        return self.role == "admin"

    @property
    def sees(self) -> str | None:
        """The one tenant whose things the user sees; None for those of all."""
        return None if self.is_admin else self.tenant

    def may_see(self, tenant: str) -> bool:
        """Whether what belongs to a tenant exists for this user."""
        return self.is_admin or tenant == self.tenant
