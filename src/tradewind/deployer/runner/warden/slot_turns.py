"""Turns of those who wait for slots of a machine: the tenant that has used least for its weight is next.

What each tenant has used is kept beside the slots, in the same file: whoever gives slots away knows it, and a program
that is killed takes nothing along. A restart of the machine begins it anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.deployer.runner.warden.files import Document
from tradewind.deployer.runner.warden.weighted_use import HALF_LIFE, NEVER, WeightedUse

DEFAULT_TENANT = "default"
"""Whose searches are that no cluster and no service has started."""

UNCOUNTED: Document = {"tenant": DEFAULT_TENANT, "weight": None, "share": 0.0}
UNCOUNTED |= {"since": 0.0, "foreseen": 0.0, "charged": 0.0}
"""What an entry of an earlier version of this program lacks."""

_KEPT_PART = 0.25
_KEPT_SECONDS = 1.0
"""A turn is kept for a tenant's next run for such a part of the last one, and for so long at most."""

_MOST = 100
_LEAST = 1e-9
_UNKNOWN = 1.0
_LONGER = 1.25
_NEWEST = 0.2


class SlotTurns:
    """The use of a machine by tenants.

    A run counts with the largest share of any resource that it takes, times its seconds: from its start for as long as
    runs of its tenant usually take, and in the end as it was.

    Args:
        boot: The boot of the machine.
        document: What `document` returned; of another boot it says nothing.

    Attributes:
        kept: Turns that are kept for a moment for the next run of a tenant.
    """

    def __init__(self, boot: str, document: Any = None) -> None:
        self._boot = boot
        self.kept: list[Document] = []
        self._tenants: dict[str, Document] = {}
        self._seconds = 0.0
        self._use = WeightedUse(HALF_LIFE)
        if isinstance(document, dict) and document.get("boot") == boot:
            try:
                self._read(document)
            except (ValueError, LookupError, TypeError, AttributeError):  # of another version of this program
                self.kept, self._tenants, self._use = [], {}, WeightedUse(HALF_LIFE)

    def _read(self, document: Document) -> None:
        levels = {str(name): _number(level, NEVER) for name, level in document["levels"].items()}
        self._use = WeightedUse(HALF_LIFE, levels, _number(document["passed"], NEVER))
        self._seconds = _number(document["seconds"])
        for name, each in document["tenants"].items():
            numbers = {key: _number(each[key]) for key in ("seconds", "gap")}
            numbers["weight"] = _number(each["weight"], _LEAST)
            self._tenants[name] = {**numbers, "ended": None if each["ended"] is None else _number(each["ended"])}
        self.kept = [_checked(each) for each in document["kept"]]

    def document(self, there: Sequence[Document]) -> Document:
        """A JSON-able document.

        Args:
            there: All that has a slot or waits. Of tenants that have nothing there, those with most use are noted:
                the others would begin where others stand.
        """
        most = sorted(self._use.levels, key=self._use.level, reverse=True)[:_MOST]
        names = {*most, *(each["tenant"] for each in (*there, *self.kept))}
        return {
            "boot": self._boot,
            "passed": self._use.passed,
            "levels": {name: level for name, level in self._use.levels.items() if name in names},
            "tenants": {name: each for name, each in self._tenants.items() if name in names},
            "seconds": self._seconds,
            "kept": self.kept,
        }

    def _tenant(self, name: str) -> Document:
        return self._tenants.setdefault(name, {"weight": 1.0, "seconds": 0.0, "gap": 0.0, "ended": None})

    def order(self, waits: Sequence[Document]) -> list[Document]:
        """Sort those who wait, the next one first; of one tenant they stay in their order."""
        return sorted(waits, key=lambda each: self._use.level(each["tenant"]))

    def came(self, ticket: Document, others: Sequence[Document], now: float) -> None:
        """Somebody waits from now on, or asks again after a while.

        Args:
            ticket: Who.
            others: The others who wait.
            now: The time.
        """
        name = ticket["tenant"]
        tenant = self._tenant(name)
        if ticket["weight"] is not None:
            tenant["weight"] = max(_LEAST, ticket["weight"])
        if tenant["ended"] is not None:
            tenant["gap"], tenant["ended"] = max(0.0, now - tenant["ended"]), None
        mine = [each for each in self.kept if each["tenant"] == name]
        if mine:
            same = [each for each in mine if each["search"] == ticket["search"]]
            self.kept.remove((same or mine)[0])
        elif all(each["tenant"] != name for each in others):
            self._use.came(name)

    def began(self, entry: Document, now: float, *, passed: bool) -> None:
        """Somebody has a slot from now on.

        Args:
            entry: Who.
            now: The time.
            passed: True where others go before, and have no room.
        """
        name = entry["tenant"]
        if not passed:
            self._use.began(self._use.level(name))
        entry |= {"since": now, "foreseen": self.expected(name) or self._seconds or _UNKNOWN}
        self._charge(entry, entry["foreseen"])

    def expected(self, name: str) -> float:
        """Seconds that a run of a tenant usually takes; 0 where that is not known."""
        return float(self._tenant(name)["seconds"])

    def outlast(self, entries: Sequence[Document], now: float) -> None:
        """Count more for those who have had a slot for longer than was foreseen."""
        for entry in entries:
            if now - entry["since"] > entry["foreseen"]:
                entry["foreseen"] = _LONGER * (now - entry["since"])
                self._charge(entry, entry["foreseen"])

    def ended(self, entry: Document, now: float) -> None:
        """Somebody has no slot any more."""
        if entry["boot"] != self._boot or not entry["share"]:
            return
        ran, tenant = max(0.0, now - entry["since"]), self._tenant(entry["tenant"])
        self._charge(entry, ran)
        tenant["seconds"] = _mean(tenant["seconds"], ran)
        self._seconds = _mean(self._seconds, ran)

    def _charge(self, entry: Document, seconds: float) -> None:
        if not entry["share"]:
            return
        amount = entry["share"] * seconds / self._tenant(entry["tenant"])["weight"]
        self._use.used(entry["tenant"], amount - entry["charged"], entry["since"])
        entry["charged"] = amount

    def keep(self, entry: Document, waits: Sequence[Document], now: float) -> None:
        """Keep the turn of a tenant for its next run, since one has ended: its place, if it is the one that is due.

        That one comes in a moment: its search, its cluster or its service has to hear of the end. Who took longer the
        last time is not waited for.

        Args:
            entry: Who had the place.
            waits: Those who wait.
            now: The time.
        """
        name, tenant = entry["tenant"], self._tenant(entry["tenant"])
        if any(each["tenant"] == name for each in waits):
            tenant["ended"] = None
            return
        tenant["ended"] = now
        lasts = min(_KEPT_SECONDS, _KEPT_PART * (now - entry["since"]))
        if lasts > 0 and tenant["gap"] <= lasts and not entry["gang"]:
            what = {key: entry[key] for key in ("tenant", "cpu", "memory", "device", "search", "name", "group", "gang")}
            self.kept.append({**what, "until": now + lasts})

    def lapse(self, now: float) -> bool:
        """Keep no turns any more whose time is over; True when there were some."""
        before = len(self.kept)
        self.kept = [each for each in self.kept if now < each["until"] <= now + _KEPT_SECONDS]
        return len(self.kept) < before

    def again(self, before: Sequence[Document], now: float) -> float:
        """Seconds after which to ask again, since a turn is kept no more then; 0 where none is."""
        return max(0.0, min((each["until"] - now for each in before if "until" in each), default=0.0))


def _mean(before: float, new: float) -> float:
    return before + _NEWEST * (new - before) if before else new


def _number(value: Any, least: float = 0.0) -> float:
    number = float(value)
    if not least <= number < math.inf:
        raise ValueError(value)
    return number


def _checked(kept: Mapping[str, Any]) -> Document:
    numbers = {key: _number(kept[key]) for key in ("cpu", "memory", "device", "until")}
    return {**numbers, **{key: str(kept[key]) for key in ("tenant", "search", "name", "group", "gang")}}
