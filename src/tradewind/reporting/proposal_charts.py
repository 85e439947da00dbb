"""Charts of a proposal: time and cost over machines as predicted, the past runs, and how near each run came."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tradewind.problem import Configuration, Offer
from tradewind.reporting.charts.document import Chart, ChartAxis, ChartLayer, ChartTable, time_axis
from tradewind.reporting.proposal_words import MARKS, marks_words
from tradewind.searcher.base import PastRunPoint, PredictedSpace
from tradewind.utils.units import bill_column, format_bill, format_duration, runs_of_unit

FEWEST_RUNS = 3
"""Runs below which a curve would be drawn from nothing but assumptions."""

_MOST_PLACES = 40
"""Places of the axis across, more of which are put together."""

_FEWEST_DISTANCES = 3
_LOG = 20.0
"""Ratio of the greatest to the least figure from which on an axis is logarithmic."""

_LOG_ACROSS = 8.0

Across = Callable[[Mapping[str, Any], Offer], float]
"""Where a configuration with its machines stands on the axis across."""

Choice = tuple[Mapping[str, Any], Offer, Sequence[str]]
"""A configuration that may be chosen, its machines, and by what it stands out (`proposal_words.MARKS`)."""


def proposal_charts(space: PredictedSpace | None, choices: Sequence[Choice]) -> dict[str, Chart]:
    """Return the charts of a proposal by name: ``time``, ``cost`` and ``distance``, as far as they would say something.

    Args:
        space: Predictions of all configurations, or None.
        choices: What may be chosen; their places are the keys of the points that mark them.
    """
    if space is None or len(space.runs) < FEWEST_RUNS:
        return {}
    charts = {}
    if (found := _axis(space)) is not None:
        title, across = found
        curve = _curve(space, across)
        if len(curve) > 1:
            charts = {
                "time": _over(space, choices, title, across, curve, "time"),
                "cost": _over(space, choices, title, across, curve, "cost"),
            }
    if (distance := _distance_chart(space.runs)) is not None:
        charts["distance"] = distance
    return charts


# ---------------------------------------------------------------------- over machines


def _axis(space: PredictedSpace) -> tuple[str, Across] | None:
    """Find the axis across: machines where their number varies, else their CPUs, else a parameter that is a number."""
    tried: list[tuple[str, Across]] = [
        ("machines", lambda _, offer: float(offer.nodes)),
        ("CPUs of all machines", lambda _, offer: float(offer.vcpu * offer.nodes)),
    ]
    names = [name for name, value in space.configurations[0].items() if _is_number(value) and name != "nodes"]
    tried += [(name, _of_parameter(name)) for name in names]
    for least in (3, 2):
        for title, across in tried:
            places = {across(*one) for one in zip(space.configurations, space.offers, strict=True)}
            if len(places) >= least:
                return title, across
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _of_parameter(name: str) -> Across:
    return lambda configuration, _: float(configuration[name])


def _curve(space: PredictedSpace, across: Across) -> list[tuple[float, int]]:
    """Places of the axis, each with the best configuration there, of those of which anything is known."""
    places = np.array([across(*one) for one in zip(space.configurations, space.offers, strict=True)])
    distinct = np.unique(places)
    if len(distinct) > _MOST_PLACES:
        edges = np.linspace(distinct[0], distinct[-1], _MOST_PLACES + 1)[1:-1]
        groups = np.digitize(places, edges)
    else:
        groups = np.searchsorted(distinct, places)
    found = []
    for group in np.unique(groups):
        here = np.flatnonzero((groups == group) & space.known)
        if len(here):
            best = int(here[np.argmin(space.rank[here])])
            found.append((float(places[best]), best))
    return sorted(found)


def _over(
    space: PredictedSpace,
    choices: Sequence[Choice],
    across_title: str,
    across: Across,
    curve: Sequence[tuple[float, int]],
    what: str,
) -> Chart:
    # A bill that is too small to be read is drawn for as many runs as make it readable.
    many = 1 if what == "time" else runs_of_unit(float(np.median([space.cost[at, 0] for _, at in curve])))
    figures = space.runtime if what == "time" else many * space.cost
    known = [run.runtime if what == "time" else many * run.cost for run in space.runs]
    places = [across(run.configuration, run.offer) for run in space.runs]
    runs = list(zip(places, known, space.runs, strict=True))
    band = [(place, *figures[at, 1:]) for place, at in curve]
    line = [(place, figures[at, 0]) for place, at in curve]
    layers = [
        ChartLayer("band", "90 % range", "use", band),
        ChartLayer("line", "expected", "use", line),
        _runs_layer("runs with other parameters", [one for one in runs if not one[2].same], "lost"),
        _runs_layer("runs with these parameters", [one for one in runs if one[2].same], "feasible"),
        *_marked_layers(space, choices, across, figures),
    ]
    every = [value for _, low, high in band for value in (low, high)] + known
    positive = [value for value in every if value > 0]
    log = len(positive) == len(every) and bool(max(every) > _LOG * min(every))
    ends = [place for place, _ in curve]
    steps = len(ends) <= 12
    x = ChartAxis(
        f"{across_title[:1].upper()}{across_title[1:]}",
        log=ends[0] > 0 and ends[-1] >= _LOG_ACROSS * ends[0],
        labels=[(place, f"{place:g}") for place in ends] if steps else (),
    )
    of = "a run" if many == 1 else f"{many:,} runs"
    y = time_axis("Time", max(every), log=log) if what == "time" else ChartAxis(f"Cost of {of}", kind="money", log=log)
    moved = any(not run.same for run in space.runs)
    note = f"At each number, the best configuration that has it. {len(runs)} runs are shown" + (
        "; those with other parameters stand where they would with these." if moved else "."
    )
    return Chart(
        f"proposal-{what}",
        f"{'Time' if what == 'time' else 'Cost'} over {across_title}",
        x,
        y,
        [layer for layer in layers if len(layer.rows)],
        note=note if what == "time" else "",
        table=_table(space, across_title, across, curve) if what == "time" else None,
        height=260,
    )


def _runs_layer(name: str, runs: Sequence[tuple[float, float, PastRunPoint]], look: str) -> ChartLayer:
    return ChartLayer(
        "points",
        name,
        look,
        [(place, figure) for place, figure, _ in runs],
        words=[f"{_settings(run.configuration)}\n{_figures(run.runtime, run.cost)}\n{name[:-1]}" for *_, run in runs],
        faint=look == "lost",
    )


def _marked_layers(space: PredictedSpace, choices: Sequence[Choice], across: Across, figures: Any) -> list[ChartLayer]:
    """A layer for each thing that a choice stands out by, the best known above all others."""
    where = {Configuration(one): at for at, one in enumerate(space.configurations)}
    found = []
    for mark in reversed(MARKS):
        here = [
            (key, place, where[Configuration(one)], marks)
            for key, (one, offer, marks) in enumerate(choices)
            if mark in marks and Configuration(one) in where and space.known[where[Configuration(one)]]
            for place in [across(one, offer)]
        ]
        found.append(
            ChartLayer(
                "points",
                MARKS[mark],
                mark,
                [(place, float(figures[at, 0])) for _, place, at, _ in here],
                words=[
                    f"{marks_words(marks).capitalize()}: {_settings(choices[key][0])}\n"
                    f"{_figures(space.runtime[at, 0], space.cost[at, 0])}, predicted"
                    for key, _, at, marks in here
                ],
                keys=[key for key, *_ in here],
            )
        )
    # What stands out most is drawn last.
    return [layer for layer in found if layer.look != "best"] + [layer for layer in found if layer.look == "best"]


def _figures(seconds: float, usd: float) -> str:
    return f"{format_duration(seconds)}, {format_bill(usd)}"


def _settings(configuration: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in configuration.items())


def _table(space: PredictedSpace, across_title: str, across: Across, curve: Sequence[tuple[float, int]]) -> ChartTable:
    unit, bill = bill_column(float(space.cost[at][0]) for _, at in curve)
    measured = [across(run.configuration, run.offer) for run in space.runs]
    rows = []
    for place, at in curve:
        time, cost = space.runtime[at], space.cost[at]
        rows.append(
            (
                f"{place:g}",
                _settings(space.configurations[at]),
                format_duration(time[0]),
                f"{format_duration(time[1])} to {format_duration(time[2])}",
                bill(cost[0]),
                f"{bill(cost[1])} to {bill(cost[2])}",
                str(measured.count(place)),
            )
        )
    title = f"{across_title[:1].upper()}{across_title[1:]}"
    return ChartTable(
        (
            title,
            "Best there",
            "Time",
            "90 % range",
            "Cost" if unit == "this run" else f"Cost of {unit}",
            "90 % range",
            "Runs",
        ),
        rows,
    )


# ---------------------------------------------------------------------- run by run


def _distance_chart(runs: Sequence[PastRunPoint]) -> Chart | None:
    known = [(number, run, run.distance) for number, run in enumerate(runs, 1) if run.distance is not None]
    if len(known) < _FEWEST_DISTANCES:
        return None
    rows = [(float(number), 100.0 * distance) for number, _, distance in known]
    words = [
        f"Run {number}: {_settings(run.configuration)}\n{_share(distance)} of the way from the best to the worst"
        for number, run, distance in known
    ]
    return Chart(
        "proposal-distance",
        "How near each run came to the best",
        ChartAxis("Run", low=0.5, high=len(runs) + 0.5),
        ChartAxis("Distance, %", low=0.0, high=105.0),
        [ChartLayer("line", "", "use", rows, faint=True), ChartLayer("points", "runs", "feasible", rows, words=words)],
        note="0 % is the best configuration for the parameters of that run, 100 % the worst, by all that is known now.",
        table=ChartTable(
            ("Run", "Configuration", "Distance"),
            [(str(number), _settings(run.configuration), _share(distance)) for number, run, distance in known],
        ),
        height=220,
    )


def _share(distance: float) -> str:
    return f"{100 * distance:.0f} %"
