from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tradewind import plugins
from tradewind.errors import InterpretationError
from tradewind.interpreter.base import Interpreter, run_interpreters
from tradewind.plugins import Settings
from tradewind.problem import RunOutput
from tradewind.testing.interpreters import make_output


class Given(Interpreter):
    """Calls a function."""

    def __init__(self, function: Callable[[Mapping[str, float]], Mapping[str, float]]) -> None:
        super().__init__(settings=Settings(), base=Path())
        self.function = function

    def interpret(self, output: RunOutput, metrics: Mapping[str, float]) -> Mapping[str, float]:
        return self.function(metrics)


def test_runtime_and_cost_come_first_and_each_interpreter_sees_what_was_read(tmp_path: Path) -> None:
    output = make_output(tmp_path, {"stdout": b"score: 8\n"}, runtime=3.0, cost=0.5)
    chain = [
        plugins.create("interpreter", "exit_code", {}, base=tmp_path),
        plugins.create("interpreter", "regex", {"patterns": r"score: (?P<score>\d+)"}, base=tmp_path),
        plugins.create("interpreter", "price_ratio", {"metric": "score", "as": "score"}, base=tmp_path),
        Given(lambda metrics: {"seen": len(metrics)}),
    ]
    assert run_interpreters(chain, output) == {
        "runtime": 3.0,
        "cost": 0.5,
        "exit_code": 0.0,
        "score": 40.0,
        "seen": 4.0,
    }
    assert run_interpreters([], output) == {"runtime": 3.0, "cost": 0.5}


def _break(_: Mapping[str, float]) -> Mapping[str, float]:
    raise RuntimeError("first line\nsecond line")


@pytest.mark.parametrize(
    ("function", "reason", "words"),
    [
        (_break, "user-code", "the interpreter Given broke: RuntimeError: first line"),
        (lambda _: {"x": float("nan")}, "not-a-number", "read x as nan"),
        (lambda _: {"x": "text"}, "user-code", "broke: ValueError"),
        (lambda _: None, "user-code", "broke: AttributeError"),
    ],
)
def test_a_broken_interpreter_is_a_typed_error(
    tmp_path: Path, function: Callable[[Mapping[str, float]], Mapping[str, float]], reason: str, words: str
) -> None:
    with pytest.raises(InterpretationError, match=words) as caught:
        run_interpreters([Given(function)], make_output(tmp_path, {}))
    assert caught.value.reason == reason
    assert "\n" not in str(caught.value)


def test_the_metrics_of_one_cannot_be_changed_by_another(tmp_path: Path) -> None:
    def meddle(metrics: Mapping[str, float]) -> Mapping[str, float]:
        assert isinstance(metrics, dict)
        metrics["cost"] = 0.0
        return {}

    assert run_interpreters([Given(meddle)], make_output(tmp_path, {}, cost=0.5))["cost"] == 0.5


def test_recorded_metrics_stand_for_logs_that_were_not_kept(tmp_path: Path) -> None:
    output = replace(
        make_output(tmp_path, {}, runtime=3.0, cost=0.5), recorded={"score": 8.0, "score_per_hourly": 1.0, "cost": 9.0}
    )
    chain = [
        plugins.create("interpreter", "exit_code", {}, base=tmp_path),
        plugins.create("interpreter", "regex", {"patterns": r"score: (?P<score>\d+)"}, base=tmp_path),
        Given(_break),
        Given(lambda metrics: {"score": 0.0, "twice": 2 * metrics["score"]}),
        plugins.create("interpreter", "price_ratio", {"metric": "score"}, base=tmp_path),
    ]
    found = run_interpreters(chain, output)
    assert (found["score"], found["twice"], found["runtime"], found["cost"]) == (8.0, 16.0, 3.0, 0.5)
    assert found["score_per_hourly"] == 8.0 / output.offer.hourly, "at the present price"
