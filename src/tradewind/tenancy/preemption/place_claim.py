"""The claim of a tenant to places of others, from the moment at which its work comes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class PlaceClaim:
    """A claim to places of others: to one, and to further ones as far as they fit the tenant's share.

    A new one is made when work of a tenant comes that had none; what becomes of it is never undone, so that what was
    taken once is not taken again in turns.

    Attributes:
        open: The tenant has not had its share since it came.
        placed: It has had a place since then.
        taken: The dominant share of the places that it got by it.
        since: Since when it waits for the next one; None where it does not.
        turn: Its key between tenants when its first run was asked for, before anything of it was counted.
    """

    open: bool = True
    placed: bool = False
    taken: float = 0.0
    since: float | None = None
    turn: tuple[float, ...] | None = None
