"""Curves of what a program reports."""

from __future__ import annotations

import io
import json
from typing import Any

from tradewind.reporting.charts.document import Chart
from tradewind.service.results.curves import reported_curves, thinned


def curves(*records: Any, rest: bytes = b"") -> list[Chart]:
    data = b"".join(json.dumps(record).encode() + b"\n" for record in records) + rest
    return reported_curves(io.BytesIO(data), len(data))


def test_each_metric_is_a_curve_over_its_steps() -> None:
    found = curves({"step": 10, "loss": 1.0}, {"step": 20, "loss": 0.5, "accuracy": 0.9}, rest=b'{"step": 30, "lo')
    [loss] = found
    assert (loss.title, loss.x.title, loss.layers[0].rows) == ("loss", "Step", [(10.0, 1.0), (20.0, 0.5)])
    assert loss.table is not None
    assert list(loss.table.rows) == [("10", "1"), ("20", "0.5")]


def test_what_cannot_be_drawn_is_passed_over() -> None:
    assert curves("x", [1], {"loss": "high"}, {"loss": float("nan")}, {"loss": True}, {"loss": 1}) == []
    assert [len(one.layers[0].rows) for one in curves({"rate": 1}, {"rate": float("inf")}, {"rate": 3})] == [2]
    many = [{f"m{number}": at for number in range(100)} for at in range(2)]
    assert len(curves(*many)) == 12


def test_no_peak_is_lost() -> None:
    points = [(float(x), 1000.0 if x == 54_321 else float(x % 3)) for x in range(100_000)]
    found = thinned(points)
    assert len(found) <= 1000
    assert (54_321.0, 1000.0) in found
    assert found == sorted(found)
