"""Charts of a proposal: what they show, and when there are none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tradewind.problem import Configuration, Offer
from tradewind.reporting.charts.document import chart_json
from tradewind.reporting.proposal_charts import proposal_charts
from tradewind.searcher.base import PastRunPoint, PredictedSpace

NODES = (1, 2, 4, 8)


def space(runs: int = 4, *, known: bool = True, settings: tuple[str, ...] = ("a", "b")) -> PredictedSpace:
    """Two settings on each of four numbers of machines; the first setting is the better one."""
    offers = [Offer("local", "c1", 1.0, 1.0, 0.05, nodes=nodes) for nodes in NODES for _ in settings]
    configurations = [Configuration({"nodes": nodes, "mode": mode}) for nodes in NODES for mode in settings]
    seconds = np.array([100.0 / nodes + 20.0 * (mode == "b") for nodes in NODES for mode in settings])
    cost = seconds / 3600.0
    points = [
        PastRunPoint(configurations[at], offers[at], 90.0 + at, 0.03, at != 1, 0.25 * at if at < 4 else None)
        for at in range(runs)
    ]
    return PredictedSpace(
        configurations,
        offers,
        np.stack([seconds, 0.8 * seconds, 1.25 * seconds], axis=1),
        np.stack([cost, 0.8 * cost, 1.25 * cost], axis=1),
        np.argsort(np.argsort(seconds)),
        np.full(len(seconds), known),
        points,
    )


def test_a_curve_goes_over_the_best_at_each_number_of_machines() -> None:
    given = space()
    choices = [
        (given.configurations[6], given.offers[6], ("best", "fastest")),
        (given.configurations[0], given.offers[0], ()),
    ]
    charts = proposal_charts(given, choices)
    assert list(charts) == ["time", "cost", "distance"]
    time = charts["time"]
    assert [row[:2] for row in time.layer("expected").rows] == [(1, 100.0), (2, 50.0), (4, 25.0), (8, 12.5)]
    assert time.layer("90 % range").rows[3] == pytest.approx((8, 10.0, 15.625))
    assert (len(time.layer("runs with these parameters").rows), len(time.layer("runs with other parameters").rows)) == (
        3,
        1,
    )
    assert (time.layer("best known").keys, time.layer("best known").rows) == ([0], [(8.0, 12.5)])
    assert time.table is not None
    assert time.table.rows[0][:3] == ("1", "mode a, nodes 1", "1m 40s")
    assert [row[1] for row in charts["distance"].layer("runs").rows] == [0.0, 25.0, 50.0, 75.0]
    assert chart_json(time)["layers"]


@pytest.mark.parametrize(
    "given", [None, space(0), space(2), replace(space(), known=np.full(8, False), runs=space(4).runs[:2])]
)
def test_with_few_runs_nothing_is_drawn(given: PredictedSpace | None) -> None:
    assert proposal_charts(given, []) == {}


def test_of_what_is_not_known_no_curve_is_drawn() -> None:
    assert list(proposal_charts(space(known=False), [])) == ["distance"]
