"""A request as people see it: what it is called, what it has used of its money and time, and how its stages went."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tradewind.errors import InputError
from tradewind.service.web.words import badge_of, setting, short
from tradewind.store.request_values import ACTIVE, OPEN, RequestEvent, RequestRow
from tradewind.units import format_money, parse_duration, parse_money

GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "": ("All", ()),
    "open": ("Active", OPEN),
    "done": ("Done", ("done",)),
    "failed": ("Failed", ("failed", "timed_out", "preempted")),
    "cancelled": ("Cancelled", ("cancelled",)),
}
"""What the list of requests can be narrowed to: words and states."""

STAGES = ("pending", *ACTIVE, "done")
"""The way of a request that ends well."""


@dataclass(frozen=True, slots=True)
class Used:
    """How much of something a request has used.

    Attributes:
        value: So much.
        limit: Of so much; None without a limit.
        words: What is used, in words.
        rest: What is left, in words.
        kind: ``warn`` from four fifths on, ``bad`` above the limit.
    """

    value: float
    limit: float | None
    words: str
    rest: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """A request for a template.

    Attributes:
        row: The request.
        title: What it is called.
        remark: How far it is, or why it ended, in a line.
        money: What it has cost, of its budget.
        time: How long it has run, of its deadline or of what was predicted.
        running: Since when its clock ticks, seconds since the epoch; None for one that does not run.
    """

    row: RequestRow
    title: str
    remark: str
    money: Used
    time: Used | None
    running: float | None

    @property
    def can_cancel(self) -> bool:
        """Whether there is anything to end."""
        return not self.row.over and self.row.wanted == "run"

    @property
    def can_retry(self) -> bool:
        """Whether it may be carried out once more."""
        return self.row.over and self.row.state != "done"


def show(row: RequestRow, now: float | None = None) -> Shown:
    """A request as people see it.

    Args:
        row: The request.
        now: Seconds since the epoch; the clock's without it.
    """
    now = time.time() if now is None else now
    running = row.started if row.started is not None and not row.over else None
    return Shown(row, title_of(row), _remark(row), _money(row), _time(row, now), running)


def title_of(row: RequestRow) -> str:
    """What a request is called: its own name, else what it runs."""
    return row.name or row.application or f"request {row.id}"


def _remark(row: RequestRow) -> str:
    if row.over:
        return row.problem
    if row.wanted != "run":
        return "is being cancelled" if row.wanted == "cancel" else "is being deleted"
    found = [str(row.progress[key]) for key in ("waits", "text") if row.progress.get(key)]
    trials = row.progress.get("trials")
    if isinstance(trials, int):
        found.insert(0, f"{trials:,} trial{'' if trials == 1 else 's'}")
    best = row.progress.get("best")
    if isinstance(best, int | float):
        found.insert(1, f"best {setting(float(best))}")
    return " · ".join(found)


def _money(row: RequestRow) -> Used:
    limit = _read(parse_money, _search(row).get("budget"))
    words = format_money(row.cost)
    if limit is None:
        return Used(row.cost, None, words, "")
    rest = "" if row.over else f"{format_money(max(0.0, limit - row.cost))} left"
    return Used(row.cost, limit, f"{words} of {format_money(limit)}", rest, _kind(row.cost, limit))


def _time(row: RequestRow, now: float) -> Used | None:
    if row.started is None:
        return None
    elapsed = max(0.0, (row.ended or now) - row.started)
    words = short(elapsed)
    limit = _limit(row)
    if limit is None:
        return Used(elapsed, None, words, "")
    rest = "" if row.over else f"{short(max(0.0, limit - elapsed))} left"
    return Used(elapsed, limit, f"{words} of {short(limit)}", rest, _kind(elapsed, limit))


def _limit(row: RequestRow) -> float | None:
    """Seconds that a request may or should take."""
    for place, key in ((_search(row), "hours"), (row.document, "deadline"), (row.document.get("resources"), "time")):
        value = place.get(key) if isinstance(place, Mapping) else None
        found = _read(parse_duration, value)
        if found:
            return found * (3600.0 if key == "hours" and isinstance(value, int | float) else 1.0)
    return None


def _search(row: RequestRow) -> Mapping[str, Any]:
    search = row.document.get("search")
    return search if isinstance(search, Mapping) else {}


def _read(reader: Any, value: Any) -> float | None:
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        return None
    try:
        return float(reader(value))
    except InputError:
        return None


def _kind(value: float, limit: float) -> str:
    if value > limit:
        return "bad"
    return "warn" if limit and value >= 0.8 * limit else ""


# ------------------------------------------------------------------ the stages of one request


@dataclass(frozen=True, slots=True)
class Step:
    """A stage of a request.

    Attributes:
        stage: Its name.
        words: What it is called.
        state: ``past``, ``now``, ``to come`` or ``skipped``.
        at: When it began, or None.
        seconds: How long it took, or None.
        share: Its part of the whole time so far, from 0 to 1.
    """

    stage: str
    words: str
    state: str
    at: float | None
    seconds: float | None
    share: float = 0.0


def steps(row: RequestRow, events: Sequence[RequestEvent], now: float | None = None) -> list[Step]:
    """The stages of a request with their times, those of its last attempt.

    Args:
        row: The request.
        events: All that happened to it, the oldest first.
        now: Seconds since the epoch; the clock's without it.
    """
    now = time.time() if now is None else now
    begun: dict[str, float] = {}
    spent: dict[str, float] = {}
    last: RequestEvent | None = None
    for event in events:
        if event.stage == "pending" and last is not None and last.stage not in OPEN:
            begun, spent = {}, {}  # once more, from the beginning
        elif last is not None and last.stage != event.stage:
            spent[last.stage] = spent.get(last.stage, 0.0) + event.at - begun_at(begun, last)
        if last is None or last.stage != event.stage:
            begun[event.stage] = event.at
        last = event
    if last is not None and not row.over:
        spent[last.stage] = spent.get(last.stage, 0.0) + max(0.0, now - begun[last.stage])
    end = row.state if row.over else "done"
    names = [*STAGES[:-1], end]
    total = sum(spent.get(name, 0.0) for name in names[:-1]) or 1.0
    return [_step(row, name, begun, spent, total) for name in names]


def begun_at(begun: Mapping[str, float], event: RequestEvent) -> float:
    """When the stage of an event began."""
    return begun.get(event.stage, event.at)


def _step(row: RequestRow, name: str, begun: Mapping[str, float], spent: Mapping[str, float], total: float) -> Step:
    words = badge_of(name)[2]
    if name == row.state:
        state = "past" if row.over else "now"
    elif name in begun:
        state = "past"
    else:
        state = "skipped" if row.over or _before(name, row.state) else "to come"
    seconds = spent.get(name)
    return Step(name, words, state, begun.get(name), seconds, (seconds or 0.0) / total)


def _before(name: str, state: str) -> bool:
    return name in STAGES and state in STAGES and STAGES.index(name) < STAGES.index(state)
