"""The program of a run of a Python function."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tradewind import tunable
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
    assert f"called sys.exit({said})" in capsys.readouterr().err


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
    assert said[0].startswith("Traceback") and said[-1] == "breaks: ValueError: no data"
