from __future__ import annotations

from itertools import pairwise

import pytest

from tradewind.cli.study.recommend import PredictedRange, PredictionRow, prediction_lines

RANGED = ["90", "%", "range"]
LINES = [
    PredictionRow(
        f"instance=c5.{size} nodes={nodes} blocks=64",
        PredictedRange(90.0 * nodes, 70.0, 130.4),
        PredictedRange(0.0412 * nodes, 0.0381, 0.0466),
        0.97,
        "never run; by what others took",
        PredictedRange(0.912, 0.88, 0.931),
    )
    for size, nodes in (("large", 1), ("xlarge", 3))
]


def test_a_wide_terminal_has_a_line_each() -> None:
    head, *body = prediction_lines(LINES, 200, bound=True, metric="acc")
    assert head.split() == ["configuration", "acc", *RANGED, "time", *RANGED, "cost", *RANGED, "fits", "why"]
    assert [line.split()[0] for line in body] == ["1", "2"]
    assert body[0].endswith("97%  never run; by what others took")


def test_the_ranges_are_short() -> None:
    body = prediction_lines(LINES, 200, bound=True, metric="acc")[1]
    assert "0.912  0.88..0.931  1m 30s  1m 10s..2m 10s  $0.0412  $0.038..0.047   97%" in body
    seconds = PredictionRow("a=1", PredictedRange(0.1, 0.08, 0.13), PredictedRange(2.5, 2.0, 1234.5), None, "")
    assert "0.10 s  0.08..0.13 s  $2.50  $2.00..1,234.50" in prediction_lines([seconds], 200, bound=False)[1]


@pytest.mark.parametrize("metric", [None, "acc"])
@pytest.mark.parametrize("cost", [0.0412, 0.000000687])
def test_eighty_columns_hold_the_figures_in_a_line_and_the_configuration_in_another(
    cost: float, metric: str | None
) -> None:
    lines = [
        PredictionRow(
            one.words, one.runtime, PredictedRange(cost, 0.8 * cost, 1.2 * cost), one.chance, one.reason, one.objective
        )
        for one in LINES
    ]
    found = prediction_lines(lines, 80, bound=True, metric=metric)
    assert len(found) == 1 + 2 * 2
    assert max(map(len, found)) <= 80
    assert all(line.rstrip().endswith("%") for line in found[1::2])
    assert found[2] == "   instance=c5.large nodes=1 blocks=64  (never run; by what others took)"
    assert {len(line) for line in (found[0], *found[1::2])} == {len(found[0])}, "columns are straight"


def test_the_range_of_the_cost_goes_only_where_there_is_no_room() -> None:
    ranges = [prediction_lines(LINES, width, bound=True, metric="acc")[0].count("90 %") for width in (60, 80, 200)]
    assert ranges == [2, 3, 3]
    assert all(a <= b for a, b in pairwise(ranges))


def test_long_words_are_folded_below_their_figures() -> None:
    found = prediction_lines([LINES[0]], 50, bound=False)
    assert all(line.startswith("   ") for line in found[2:])
    assert " ".join(" ".join(found[2:]).split()) == f"{LINES[0].words} ({LINES[0].reason})"


def test_what_is_not_known_is_a_dash_and_the_time_says_so() -> None:
    row = prediction_lines(
        [PredictionRow("a=1", PredictedRange(None), PredictedRange(None), None, "")], 200, bound=True, metric="acc"
    )[1]
    assert row.split() == ["1", "a=1", "-", "-", "not", "known", "yet", *"----"]


def test_a_figure_lies_within_its_range() -> None:
    same = PredictionRow(
        "workers=1", PredictedRange(0.15, 0.1, 0.22), PredictedRange(0.0000125, 0.0000125, 0.0000125), None, ""
    )
    assert "$0.0125  $0.012..0.013" in prediction_lines([same], 200, bound=False)[1], "for 1,000 runs"
    exact = PredictionRow("workers=1", PredictedRange(0.15, 0.1, 0.22), PredictedRange(0.038, 0.038, 0.038), None, "")
    assert "$0.038..0.038" in prediction_lines([exact], 200, bound=False)[1]
