"""The program of a run of a Python function."""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tradewind import tunable
from tradewind.engine.ask_tell.asked_trial import Asked
from tradewind.engine.function_calls import call_for_trial
from tradewind.problem import Configuration, Offer
from tradewind.tenancy.submission.function_program import arguments_from, call, main


def test_arguments_are_the_values_that_were_declared() -> None:
    space = {"Learning-rate": [0.5, 1], "word": ["1", "True"], "on": [True, False], "n": "1..9", "absent": "1..2"}
    space |= {"real": {"type": "float", "low": 0, "high": 3}, "kind": {"values": ["1e3", "b"]}}
    texts = {"LEARNING_RATE": "1", "WORD": "1", "ON": "False", "N": "4", "REAL": "2", "KIND": "1e3"}
    found = arguments_from({f"TRADEWIND_PARAM_{name}": text for name, text in texts.items()}, space)
    wanted = {"Learning-rate": 1, "word": "1", "on": False, "n": 4, "real": 2.0, "kind": "1e3"}
    assert found == wanted
    assert {name: type(value) for name, value in found.items()} == {n: type(value) for n, value in wanted.items()}


def _exit(code: Any) -> Callable[..., Any]:
    def function(x: int) -> float:
        sys.exit(code)

    return function


@pytest.mark.parametrize(("code", "ends"), [(3, 3), (0, 1), (None, 1), ("no data", 1), (256, 1)])
def test_a_function_that_exits_fails_its_run(code: Any, ends: int, capsys: pytest.CaptureFixture[str]) -> None:
    function = tunable({"x": [1]})(_exit(code))
    assert call(function, "value", {"TRADEWIND_PARAM_X": "1"}) == ends
    said = "" if code is None else repr(code)
    assert capsys.readouterr().err == f"it called sys.exit({said})\n"


@pytest.mark.parametrize(("value", "metric", "reported"), [(2.5, "loss", {"loss": 2.5}), ({"a": 1}, "loss", {"a": 1})])
def test_what_it_returns_is_reported(
    value: Any, metric: str, reported: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_METRICS", str(tmp_path / "metrics"))
    assert call(tunable({"x": [1]})(lambda x: value), metric, {"TRADEWIND_PARAM_X": "1"}) == 0
    assert call(tunable({"x": [1]})(lambda x: value if metric == "" else None), "", {"TRADEWIND_PARAM_X": "1"}) == 0
    assert [json.loads(line) for line in (tmp_path / "metrics").read_text().splitlines()] == [reported]


def test_a_file_that_does_not_load_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.py").write_text("x = 1\ny = nothing\n")
    monkeypatch.chdir(tmp_path)
    assert main(["bad.py:f", "value"]) == 1
    assert "bad.py:2: NameError" in capsys.readouterr().err


def test_threads_that_go_on_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Python waits for them, so the run does not end with the function."""
    over = threading.Event()

    def leaves(x: int) -> None:
        threading.Thread(target=over.wait, name="writer").start()

    try:
        assert call(tunable({"x": [1]})(leaves), "", {"TRADEWIND_PARAM_X": "1"}) == 0
    finally:
        over.set()
    assert "leaves has returned; its run ends with the threads that go on: writer" in capsys.readouterr().err


def test_an_exception_is_one_line_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    def breaks(x: int) -> None:
        raise ValueError("no data\nof many lines")

    assert call(tunable({"x": [1]})(breaks), "", {"TRADEWIND_PARAM_X": "1"}) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("Traceback") and said[-1] == "ValueError: no data"


class _Odd:
    def __float__(self) -> float:
        raise RuntimeError("no number, and no words")

    __repr__ = __float__  # type: ignore[assignment]


WRONG: dict[str, Any] = {
    "abc": "it returned 'abc', which is no number",
    "1.5": "it returned '1.5', which is no number",
    "bytes": "it returned b'1', which is no number",
    "complex": "it returned 1j, which is no number",
    "list": "it returned [1.0], which is no number",
    "odd": "it returned an object of type _Odd, which is no number",
    "large": f"it returned {'1' + '0' * 76}..., which is too large for a number",
    "nan": "it returned nan, which is no finite number",
    "infinite": "it returned value=-inf, which is no finite number",
    "text of a metric": "it returned value='x', which is no number",
    "none of a metric": "it returned value=None, which is no number",
    "text of another": "it returned note='x', which is no number",
    "name": "it returned a metric that is called 3, and names are text",
    "no name": "it returned a metric that is called '', and names are text",
}
VALUES: dict[str, Any] = {
    "abc": "abc", "1.5": "1.5", "bytes": b"1", "complex": 1j, "list": [1.0], "odd": _Odd(), "large": 10**400,
    "nan": math.nan, "infinite": {"value": -math.inf}, "text of a metric": {"value": "x"},
    "none of a metric": {"value": None}, "text of another": {"value": 1, "note": "x"}, "name": {3: 1.0},
    "no name": {"": 1.0},
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_value_fails_its_trial_with_the_same_words_here_and_on_a_cluster(
    what: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    function = tunable({"x": [1]})(lambda x: VALUES[what])
    asked = Asked(0, Configuration({"x": 1}), Offer("local", "c1", 1, 2.0, 0.1), None, 1.0, {})
    here = call_for_trial(function, asked, "value")
    assert (here["state"], here["reason"]) == ("failed", WRONG[what])
    monkeypatch.setenv("TRADEWIND_METRICS", str(tmp_path / "metrics"))
    assert call(function, "value", {"TRADEWIND_PARAM_X": "1"}) == 1
    assert capsys.readouterr().err == f"{WRONG[what]}\n"
    assert not (tmp_path / "metrics").exists()


def test_what_is_right_is_the_same_here_and_on_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another metric that is no finite number is left out of what is reported, which takes none."""
    asked = Asked(0, Configuration({"x": 1}), Offer("local", "c1", 1, 2.0, 0.1), None, 1.0, {})
    for value in (True, Decimal("1.5"), {"value": 2, "other": math.nan}, {"value": 2, "step": 3}):
        function = tunable({"x": [1]})(lambda x, value=value: value)
        path = tmp_path / "metrics"
        monkeypatch.setenv("TRADEWIND_METRICS", str(path))
        assert call(function, "value", {"TRADEWIND_PARAM_X": "1"}) == 0
        here = call_for_trial(function, asked, "value")["metrics"]
        assert json.loads(path.read_text()) == {name: one for name, one in here.items() if one == one}
        path.unlink()
