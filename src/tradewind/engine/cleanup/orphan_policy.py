"""Decides which machines and jobs are orphans. Pure functions over stored rows and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tradewind.utils.units import format_duration


class OrphanKind(StrEnum):
    """Kinds of orphans."""

    MACHINES = "machines"
    JOB = "job"


class OrphanFate(StrEnum):
    """Decisions about something that was found.

    ``keep``: it stays. ``destroy``: it is ended or given back. ``settle``: likewise, and its run's row ends with it.
    ``forget``: the job has ended by itself, and only the engine's record of it goes.
    """

    KEEP = "keep"
    DESTROY = "destroy"
    SETTLE = "settle"
    FORGET = "forget"


@dataclass(frozen=True, slots=True)
class OrphanFinding:
    """Something that a provisioner or runner found by its tags.

    Attributes:
        kind: Machines or a job.
        part: The name of the provisioner or runner.
        run_id: The run's tag.
        owner: The owner's tag; empty if it is not known.
        expires: When anyone may destroy it, in seconds since the epoch, or None if that is not known.
        created: When it was made, likewise.
        alive: False only when it has certainly ended; what is not known counts as alive.
        price_per_hour: USD per hour, or None.
        thing: What the part needs to give it back.
    """

    kind: OrphanKind
    part: str
    run_id: str
    owner: str = ""
    expires: float | None = None
    created: float | None = None
    alive: bool = True
    price_per_hour: float | None = None
    thing: Any = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class OwningStudy:
    """A study of this store, whose tag is an owner's.

    Attributes:
        study_id: Number of the study in the store.
        study: Name of the study.
        holder: The live process that runs it (host and pid), or empty.
    """

    study_id: int
    study: str
    holder: str = ""


@dataclass(frozen=True, slots=True)
class KnownRun:
    """The stored state of a run.

    Attributes:
        owner: Its study's tag.
        ended: True when nothing more will happen to it.
        started: Seconds since the epoch, or None.
        price_per_hour: USD per hour of its machines, all nodes together, or None.
        had_by: The open run that goes on with the machines that were made for this one, or empty.
        kept_until: Until when the machines that were made for this one are kept for the next trial, or None.
    """

    owner: str
    ended: bool
    started: float | None = None
    price_per_hour: float | None = None
    had_by: str = ""
    kept_until: float | None = None


@dataclass(frozen=True, slots=True)
class KnownRecords:
    """The stored studies and runs, read after the findings: a row is written before anything is created for it.

    Attributes:
        owners: Studies by tag.
        rows: Runs by id, at least those that were found.
    """

    owners: Mapping[str, OwningStudy] = field(default_factory=dict)
    rows: Mapping[str, KnownRun] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OrphanDecision:
    """The decision about a finding.

    Attributes:
        finding: What was found.
        fate: What becomes of it.
        why: The reason, in words.
        study_id: The study of this store that it belongs to, or None.
        age: Seconds that it exists, at least; None if nothing is known of that.
        price_per_hour: USD per hour, or None.
        run_id: The run whose row ends with it: that of the finding, or the one that goes on with its machines.
    """

    finding: OrphanFinding
    fate: OrphanFate
    why: str
    study_id: int | None = None
    age: float | None = None
    price_per_hour: float | None = None
    run_id: str = ""

    @property
    def spent(self) -> float | None:
        """USD that it has cost so far, at least; None if its age or price is not known, or if it costs no more."""
        if self.age is None or self.price_per_hour is None or not self.finding.alive:
            return None
        return self.age / 3600.0 * self.price_per_hour


def decide_fate(
    finding: OrphanFinding, known: KnownRecords, now: float, *, older_than: float | None = None, foreign: bool = False
) -> OrphanDecision:
    """Decide about something that was found.

    What belongs to a study that a live process runs is kept, whatever else may be. What belongs to another study of
    this store goes when its run has no row, has ended, or is past its expiry. What belongs to somebody else goes when
    it is past its expiry.

    Args:
        finding: What was found.
        known: What the store says.
        now: The time, in seconds since the epoch.
        older_than: Keep what is not known to exist for so many seconds.
        foreign: What is somebody else's goes also before its expiry.
    """
    row = known.rows.get(finding.run_id)
    tag = finding.owner or (row.owner if row else "")
    owner = known.owners.get(tag)
    past = finding.expires is not None and finding.expires < now
    if owner is None:
        fate, why = _of_somebody(finding, tag, past=past, foreign=foreign)
    elif owner.holder:
        fate, why = OrphanFate.KEEP, f"{owner.study} is being run by {owner.holder}"
    else:
        fate, why = _of_ours(finding, row, owner, past=past)
    if past and finding.expires is not None and fate is not OrphanFate.KEEP:
        why += f", and it expired {format_duration(now - finding.expires)} ago"
    age = _age(finding, row, now)
    if fate is not OrphanFate.KEEP and older_than is not None and (age is None or age < older_than):
        fate, why = OrphanFate.KEEP, f"{why}, but it is not known to be older than {format_duration(older_than)}"
    price = finding.price_per_hour if finding.price_per_hour is not None else row.price_per_hour if row else None
    run_id = row.had_by if row and row.had_by else finding.run_id
    return OrphanDecision(finding, fate, why, owner.study_id if owner else None, age, price, run_id)


def _of_ours(finding: OrphanFinding, row: KnownRun | None, owner: OwningStudy, *, past: bool) -> tuple[OrphanFate, str]:
    gone = OrphanFate.DESTROY if finding.alive else OrphanFate.FORGET
    if row is None:
        return gone, "it has no row in the store"
    if row.kept_until is not None and row.ended:
        return gone, "it was kept for a next trial, and nobody watches it"
    if row.ended and not row.had_by:
        return gone, "its run has ended"
    if past:
        return OrphanFate.SETTLE, "its run is open and nobody watches it"
    return (
        OrphanFate.KEEP,
        f"its run is open: the command that began {owner.study} goes on with it, tradewind down ends it",
    )


def _of_somebody(finding: OrphanFinding, tag: str, *, past: bool, foreign: bool) -> tuple[OrphanFate, str]:
    who = f"{tag} is of another store" if tag else "nobody knows whose it is"
    if past or foreign:
        return (OrphanFate.DESTROY if finding.alive else OrphanFate.FORGET), who
    until = "" if finding.expires is None else " until it expires"
    return OrphanFate.KEEP, f"{who}: kept{until}, unless --foreign is given"


def _age(finding: OrphanFinding, row: KnownRun | None, now: float) -> float | None:
    """Seconds that it exists, at least."""
    moments = (finding.created, row.started if row else None, finding.expires)
    return max((now - moment for moment in moments if moment is not None and moment <= now), default=None)
