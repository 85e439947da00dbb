"""Views of a request for pages: its title, the used part of its limits, and its stages."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tradewind.errors import InputError
from tradewind.problem import COST, RUNTIME
from tradewind.reporting.words import machines_of, value_words
from tradewind.service.applications.parameter_words import RequestWords
from tradewind.service.requests.request_planner import CODE
from tradewind.service.web.template_filters import badge_of, short
from tradewind.store.service.request_values import ACTIVE, OPEN, RequestEvent, RequestRow, RequestState
from tradewind.utils.units import bill_column, count, format_money, format_number, parse_duration

GROUPS: dict[str, tuple[str, tuple[RequestState, ...]]] = {
    "": ("All", ()),
    "open": ("Active", OPEN),
    "done": ("Done", ("done",)),
    "failed": ("Failed", ("failed", "timed_out", "preempted")),
    "cancelled": ("Cancelled", ("cancelled",)),
}
"""Groups that the list of requests can be narrowed to: words and states."""

_NO_WORDS = RequestWords()

SILENCE = 60.0
"""Seconds for which money is taken to go on between two looks at a run."""

STAGES = ("pending", *ACTIVE, "done")
"""The stages of a run that ends well, in order."""

_SEARCH_STAGES = ("pending", "executing", "done")


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """Used part of a limit of a request.

    Attributes:
        value: Amount used.
        limit: Greatest amount; None without a limit.
        words: Amount used, in words.
        rest: Amount left, in words.
        kind: ``warn`` from four fifths on, ``bad`` above the limit.
        rate: Amount that is added each second until it is known anew; 0 for one that stands.
        at: Time at which the amount was this, seconds since the epoch.
    """

    value: float
    limit: float | None
    words: str
    rest: str
    kind: str = ""
    rate: float = 0.0
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class BestTrialView:
    """The best trial of a search so far.

    Attributes:
        words: Its figure, such as ``$0.0213`` or ``4m 10s``.
        metric: Name of the figure.
        machines: Machines that it ran on.
        configuration: The values of its parameters.
        trial: Number of the trial.
    """

    words: str
    metric: str
    machines: str
    configuration: Mapping[str, Any]
    trial: int


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request for a template.

    Attributes:
        row: The request.
        title: Name for people.
        words: Its application and parameters.
        error: The first line of what went wrong; empty where nothing did.
        remark: Progress in a line; empty for one that is over.
        trouble: Reason that keeps its runs from going on or from being gone; empty for one that is over.
        money: Cost so far, of the most that it may cost.
        time: Seconds of running, of the most that it may take.
        running: Start of its clock, seconds since the epoch; None for one that does not run.
        machines: Machines that it runs on; empty before they are known.
        configuration: The configuration of a run.
        best: The best trial of a search.
        trials: Trials that a search has ended.
        measured: Metrics of a run that has ended: name and value.
        code: Beginning of the digest of the snapshot of its program's folder; empty without one.
    """

    row: RequestRow
    title: str
    words: RequestWords
    error: str
    remark: str
    trouble: str
    money: LimitUsage
    time: LimitUsage | None
    running: float | None
    machines: str
    configuration: Mapping[str, Any]
    best: BestTrialView | None
    trials: int
    measured: Sequence[tuple[str, str]]
    code: str

    @property
    def can_cancel(self) -> bool:
        """True where there is anything to end."""
        return not self.row.over and self.row.wanted == "run"

    @property
    def can_retry(self) -> bool:
        """True where it may be carried out once more."""
        return self.row.over and self.row.state != "done"


def view_request(row: RequestRow, now: float | None = None, words: RequestWords = _NO_WORDS) -> RequestView:
    """Build the view of a request.

    Args:
        row: The request.
        now: Seconds since the epoch; the clock's without it.
        words: Its application and parameters, where they are shown.
    """
    now = time.time() if now is None else now
    trials = row.progress.get("trials")
    return RequestView(
        row=row,
        title=row.name or row.application or f"request {row.id}",
        words=words,
        error=_first_line(row.problem) if row.state != "done" else "",
        remark=_remark(row),
        trouble="" if row.over else str(row.progress.get("trouble", "")),
        money=_money(row, now),
        time=_time(row, now),
        running=row.started if row.started is not None and not row.over else None,
        machines=machines_of(row.progress.get("offer")),
        configuration=_mapping(row.plan.get("configuration")),
        best=_best(row),
        trials=trials if isinstance(trials, int) else 0,
        measured=_measured(row),
        code=str(row.plan.get(CODE, ""))[:12],
    )


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line[:1].upper() + line[1:]


def _remark(row: RequestRow) -> str:
    if row.over:
        return ""
    if row.wanted != "run":
        return "is being cancelled" if row.wanted == "cancel" else "is being deleted"
    if row.progress.get("waiting"):
        return str(row.progress["waiting"])
    trials, best = row.progress.get("trials"), _best(row)
    found = []
    if isinstance(trials, int) and row.kind == "search":
        found.append(count(trials, "trial"))
    if best is not None:
        found.append(f"best {best.words}")
    return " · ".join(found)


_FIGURES = {RUNTIME: "Run time", COST: "Cost"}
"""Titles of the figures that every run has; what a program measures has the name that it gives."""


def _measured(row: RequestRow) -> list[tuple[str, str]]:
    metrics = _mapping(_mapping(row.progress.get("result")).get("metrics"))
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    written = [(name, value) for name, value in numbers.items() if (name, value) != ("exit_code", 0)]
    return [
        (_FIGURES[name], value_words(name, value)) if name in _FIGURES else (name, format_number(value, 4))
        for name, value in written
    ]


def _best(row: RequestRow) -> BestTrialView | None:
    facts = row.progress.get("best")
    if not isinstance(facts, Mapping) or not isinstance(facts.get("objective"), int | float):
        return None
    metric = str(row.progress.get("metric") or "objective")  # a figure that nobody named is no money
    words = value_words(metric, float(facts["objective"]))
    machines = machines_of(facts.get("offer"))
    return BestTrialView(words, metric, machines, _mapping(facts.get("configuration")), int(facts.get("trial", 0)))


def _money(row: RequestRow, now: float) -> LimitUsage:
    spent, rate = row.cost, 0.0
    running, hourly, at = (row.progress.get(name) for name in ("cost", "hourly", "at"))
    if not row.over and row.kind == "run" and isinstance(running, int | float):
        spent = max(spent, float(running))
        if (
            (running > 0 or row.state == "executing")
            and isinstance(hourly, int | float)
            and isinstance(at, int | float)
        ):
            # Machines cost money between two looks at them, too: but not longer than a worker is silent while it lives.
            rate = hourly / 3600
            spent += rate * min(max(0.0, now - at), SILENCE)
    limit = row.plan.get("dollars")
    words = format_money(spent)
    if not isinstance(limit, int | float) or limit <= 0:
        return LimitUsage(spent, None, words, "", rate=rate, at=now)
    rest = "" if row.over else f"{format_money(max(0.0, limit - spent))} left"
    of = f"{words} of {format_money(limit)}"
    return LimitUsage(spent, float(limit), of, rest, _kind(spent, limit), rate, now)


def _time(row: RequestRow, now: float) -> LimitUsage | None:
    if row.started is None:
        return None
    elapsed = max(0.0, (row.ended or now) - row.started)
    words = short(elapsed)
    limit = _limit(row)
    if limit is None:
        return LimitUsage(elapsed, None, words, "")
    rest = "" if row.over else f"{short(max(0.0, limit - elapsed))} left"
    return LimitUsage(elapsed, limit, f"{words} of {short(limit)}", rest, _kind(elapsed, limit))


def _limit(row: RequestRow) -> float | None:
    """Return the seconds that a request may take: a search by its budget, a run by what was asked for."""
    if row.kind == "search":
        hours = _mapping(row.progress.get("budget")).get("hours")
        return float(hours) * 3600 if isinstance(hours, int | float) else None
    asked = _mapping(row.document.get("resources")).get("time")
    if not isinstance(asked, int | float | str) or isinstance(asked, bool):
        return None
    try:
        return parse_duration(asked) or None
    except InputError:
        return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _kind(value: float, limit: float) -> str:
    if value > limit:
        return "bad"
    return "warn" if limit and value >= 0.8 * limit else ""


# ------------------------------------------------------------------ the stages of one request


@dataclass(frozen=True, slots=True)
class StageView:
    """A stage of a request.

    Attributes:
        stage: Name of the stage.
        words: Name for people.
        state: ``past``, ``now``, ``to come`` or ``skipped``.
        at: Start, seconds since the epoch, or None.
        seconds: Duration in seconds, or None.
        share: Part of the whole time so far, from 0 to 1.
    """

    stage: str
    words: str
    state: str
    at: float | None
    seconds: float | None
    share: float = 0.0


def stage_views(row: RequestRow, events: Sequence[RequestEvent], now: float | None = None) -> list[StageView]:
    """Build the views of a request's stages with their times, those of its last attempt.

    Args:
        row: The request.
        events: All its events, the oldest first.
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
    way = STAGES if row.kind == "run" else _SEARCH_STAGES
    names = [*way[:-1], end]
    total = sum(spent.get(name, 0.0) for name in names[:-1]) or 1.0
    return [_stage_view(row, name, begun, spent, total) for name in names]


def begun_at(begun: Mapping[str, float], event: RequestEvent) -> float:
    """Return the start time of the stage of an event."""
    return begun.get(event.stage, event.at)


def _stage_view(
    row: RequestRow, name: str, begun: Mapping[str, float], spent: Mapping[str, float], total: float
) -> StageView:
    words = badge_of(name)[2]
    if name == row.state:
        state = "past" if row.over else "now"
    elif name in begun:
        state = "past"
    else:
        state = "skipped" if row.over or _before(name, row.state) else "to come"
    seconds = spent.get(name)
    return StageView(name, words, state, begun.get(name), seconds, (seconds or 0.0) / total)


def _before(name: str, state: str) -> bool:
    return name in STAGES and state in STAGES and STAGES.index(name) < STAGES.index(state)


# ------------------------------------------------------------------ predicted and actual


@dataclass(frozen=True, slots=True)
class PredictionComparison:
    """A figure that was predicted, and what it came to.

    Attributes:
        name: Name of the figure.
        predicted: The prediction, in words.
        range: 5 % and 95 % quantiles of the prediction, in words.
        actual: Actual value in words; empty before the end.
        difference: Difference of the actual value from the prediction.
    """

    name: str
    predicted: str
    range: str
    actual: str
    difference: str


def compare_predictions(row: RequestRow, way: Sequence[StageView]) -> list[PredictionComparison]:
    """Compare the predictions made of a run when its configuration was chosen with what it took.

    Args:
        row: The request.
        way: Stages of the request.
    """
    before = _mapping(row.plan.get("predicted"))
    ran = next((step.seconds for step in way if step.stage == "executing"), None)
    ended = row.state == "done"
    # What was predicted and what it took are for as many runs, or they could not be compared.
    cost = before.get("cost")
    unit, bill = bill_column([cost if isinstance(cost, int | float) else None])
    found = []
    for name, key, words, actual in (
        ("Run time", "runtime", short, ran if ended else None),
        (f"Cost, {unit}", "cost", bill, row.cost if ended else None),
    ):
        value = before.get(key)
        if not isinstance(value, int | float):
            continue
        low, high = before.get(f"{key}_low"), before.get(f"{key}_high")
        known = isinstance(low, float) and isinstance(high, float) and words(low) != words(high)
        between = f"{words(low)} and {words(high)}" if known else ""
        difference = f"{100 * (actual / value - 1):+.0f} %" if actual is not None and value else ""
        found.append(
            PredictionComparison(name, words(value), between, words(actual) if actual is not None else "", difference)
        )
    return found


@dataclass(frozen=True, slots=True)
class PredictionBar:
    """A figure so far, against what was predicted.

    Attributes:
        value: The figure so far.
        predicted: The prediction.
        words: The prediction, in words.
        rest: The difference, in words.
        kind: ``warn`` above the prediction's 95 % quantile.
        since: Start of its clock, seconds since the epoch; None for one that stands.
        rate: Amount that is added each second, as in `LimitUsage`.
        at: Time at which the figure was this, seconds since the epoch.
    """

    value: float
    predicted: float
    words: str
    rest: str
    kind: str = ""
    since: float | None = None
    rate: float = 0.0
    at: float = 0.0


def prediction_bars(row: RequestRow, way: Sequence[StageView], now: float | None = None) -> dict[str, PredictionBar]:
    """Return the bars of a run: ``runtime`` and ``cost``, where they were predicted and it has begun to run.

    Args:
        row: The request.
        way: Stages of the request.
        now: Seconds since the epoch; the clock's without it.
    """
    step = next((one for one in way if one.stage == "executing" and one.seconds is not None), None)
    before = _mapping(row.plan.get("predicted"))
    if step is None or step.seconds is None:
        return {}
    money = _money(row, time.time() if now is None else now)
    figures = {"runtime": (step.seconds, short), "cost": (money.value, format_money)}
    found = {}
    for name, (value, words) in figures.items():
        predicted, high = before.get(name), before.get(f"{name}_high")
        if not isinstance(predicted, int | float) or predicted <= 0:
            continue
        most = high if isinstance(high, int | float) else predicted
        rest = f"{words(value - predicted)} more" if value > predicted else ""
        since = step.at if name == "runtime" and step.state == "now" else None
        kind = "warn" if value > most else ""
        rate = money.rate if name == "cost" else 0.0
        found[name] = PredictionBar(
            value, predicted, f"{words(predicted)} predicted", rest, kind, since, rate, money.at
        )
    return found
