"""Helpers that the commands of clusters share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tradewind.cli.common import pairs as pairs

if TYPE_CHECKING:
    from tradewind.store.clusters.cluster_store import ClusterRow, ClusterStore


def open_cluster_store(url: str | None) -> ClusterStore:
    """The tables of clusters in the store at ``url``, or in the user's own."""
    from tradewind.store.clusters.cluster_store import ClusterStore
    from tradewind.utils.paths import store_url

    return ClusterStore(url or store_url())


def amounts(
    words: Sequence[str] | None, option: str, *, quota: bool = False, further: bool = False
) -> dict[str, float]:
    """Amounts of resources of words like ``cpu=4`` and ``memory=8GiB``, or several with commas; memory in GiB.

    Args:
        words: As they were typed.
        option: The option that they stand behind.
        quota: Whether they may be what else a tenant's quota limits: ``dollars=100``, ``requests=4``.
        further: Whether they may be resources of any name: only the cluster knows which it has.

    Raises:
        InputError: A word is none, or the cluster has no such resource.
    """
    from tradewind.errors import InputError
    from tradewind.tenancy.resources import ResourceKinds, check_demand, check_quota
    from tradewind.utils.units import parse_memory

    found: dict[str, float] = {}
    for key, value in pairs([part for word in words or () for part in word.split(",")], option, "cpu=4").items():
        if key == "memory" and isinstance(value, str):
            found[key] = parse_memory(value) / 2**30
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[key] = float(value)
        else:
            raise InputError(f"{option} {key}={value}: {value!r} is no amount", hint=f"write {option} {key}=4")
    if quota:
        check_quota(found)
        return found
    if further:
        return check_demand(found, option)
    ResourceKinds().amounts(found)
    return found


def find_cluster(store: ClusterStore, name: str) -> ClusterRow:
    """A cluster by its name.

    Raises:
        InputError: There is none.
    """
    from tradewind.errors import InputError

    rows: Mapping[str, ClusterRow] = {row.name: row for row in store.clusters()}
    if name not in rows:
        there = f"there are {', '.join(rows)}" if rows else "tradewind cluster start makes one"
        raise InputError(f"there is no cluster {name!r}", hint=there)
    return rows[name]
