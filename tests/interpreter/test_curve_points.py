from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.interpreter.log_reader import CurvePointReader


def lines(*records: object) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def test_points_are_read_as_they_come() -> None:
    reader = CurvePointReader("loss")
    assert reader.feed(lines({"step": 1, "loss": 0.5}) + b'{"step": 2, "lo') == [(1, 0.5)]
    assert reader.feed(b'ss": 0.25}') == []
    assert reader.feed(b"\n") == [(2, 0.25)]
    assert reader.offset == len(lines({"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}))


def test_lines_without_a_step_count_on_and_other_lines_are_passed_over() -> None:
    reader = CurvePointReader("score.test")
    told = lines({"score": {"test": 1}}, {"other": 2}, "text", {"score.test": 3, "step": 7}, {"score": {"test": 4}})
    junk = b"{broken}\nepoch 3\n\xff\xfe\n[1]\n" + lines({"score": {"test": True and "high"}})
    assert reader.feed(junk + told) == [(1, 1), (7, 3), (8, 4)]


def test_a_last_line_without_its_end_counts_when_nothing_more_will_come() -> None:
    reader = CurvePointReader("loss")
    assert reader.feed(b'{"loss": 2}') == []
    assert reader.feed(b"", last=True) == [(1, 2)]


def test_numbers_that_json_does_not_know_are_read() -> None:
    found = CurvePointReader("loss").feed(b'{"loss": NaN}\n{"loss": -Infinity}\n{"loss": 1' + b"0" * 400 + b"}\n")
    assert [step for step, _ in found] == [1, 2, 3]
    assert math.isnan(found[0][1])
    assert found[1][1] == -math.inf
    assert found[2][1] == math.inf


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"epoch (?P<step>\d+).*loss (?P<value>[0-9.]+)", [(1, 0.5), (2, 0.25)]),
        (r"loss (?P<value>\S+)", [(1, 0.5), (2, 0.25)]),
        (r"epoch (?P<value>\w+)", [(1, 1), (2, 2)]),
    ],
)
def test_points_of_a_log(pattern: str, expected: list[tuple[float, float]]) -> None:
    log = b"start\nepoch 1: loss 0.5\repoch 2: loss 0.25\nepoch x: loss ?\n"
    assert CurvePointReader("loss", pattern=pattern).feed(log) == expected


@pytest.mark.slow
@given(st.lists(st.floats(-10, 10), max_size=12), st.integers(1, 40))
def test_the_pieces_do_not_matter(values: list[float], size: int) -> None:
    content = lines(*({"step": i, "loss": value} for i, value in enumerate(values)))
    reader, found = CurvePointReader("loss"), []
    for place in range(0, len(content), size):
        found += reader.feed(content[place : place + size])
    assert found == [(i, value) for i, value in enumerate(values)]
