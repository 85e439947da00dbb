"""What the commands of clusters share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tradewind.store.cluster import ClusterRow, ClusterStore


def open_cluster_store(url: str | None) -> ClusterStore:
    """The tables of clusters in the store at ``url``, or in the user's own."""
    from tradewind.paths import store_url
    from tradewind.store.cluster import ClusterStore

    return ClusterStore(url or store_url())


def pairs(words: Sequence[str] | None, option: str) -> dict[str, Any]:
    """The values of ``KEY=VALUE`` words, as YAML reads them.

    Raises:
        InputError: A word is not of that form.
    """
    import yaml

    from tradewind.errors import InputError

    found: dict[str, Any] = {}
    for word in words or ():
        key, sign, text = word.partition("=")
        if not sign or not key:
            raise InputError(f"{option} {word!r} is not KEY=VALUE", hint=f"write {option} key=4")
        try:
            found[key] = yaml.safe_load(text) if text else ""
        except yaml.YAMLError:
            found[key] = text
    return found


def amounts(words: Sequence[str] | None, option: str) -> dict[str, float]:
    """Amounts of resources of words like ``cpu=4`` and ``memory=8GiB``; memory in GiB.

    Raises:
        InputError: A word is none, or the cluster has no such resource.
    """
    from tradewind.errors import InputError
    from tradewind.tenancy.resources import Kinds
    from tradewind.units import parse_memory

    found: dict[str, float] = {}
    for key, value in pairs(words, option).items():
        if key == "memory" and isinstance(value, str):
            found[key] = parse_memory(value) / 2**30
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[key] = float(value)
        else:
            raise InputError(f"{option} {key}={value}: {value!r} is no amount", hint=f"write {option} {key}=4")
    Kinds().amounts(found)
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
