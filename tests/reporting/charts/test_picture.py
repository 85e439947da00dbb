"""Pictures of charts: what stands on them, and where."""

from __future__ import annotations

import numpy as np
import pytest

from tradewind.reporting.charts.document import Chart, ChartAxis, ChartBound, ChartLayer
from tradewind.reporting.study.charts import cost_axis


def test_a_bound_beyond_all_points_is_on_the_picture() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    from tradewind.reporting.charts.picture import draw_chart

    points = ChartLayer("points", "feasible", "feasible", [(1.0, 0.1), (15.0, 0.2)])
    chart = Chart(
        "c", "C", ChartAxis("time", log=True), ChartAxis("cost", "money"), [points], ChartBound(20.0, "deadline")
    )
    axes = Figure().add_subplot()
    draw_chart(chart, axes)
    low, high = axes.get_xlim()
    assert low < 1.0
    assert high > 20.0


def test_costs_below_a_cent_are_drawn_for_as_many_runs_as_can_be_read() -> None:
    axis = cost_axis(np.array([0.00005, 0.00006, np.nan, 0.0004]), log=True)
    assert (axis.title, axis.log) == ("cost, 1,000 runs", True)
    assert axis.unit == pytest.approx(0.001)
    assert (cost_axis(np.array([0.2, 0.0])).title, cost_axis(np.array([0.0])).unit) == ("cost, this run", 1.0)
