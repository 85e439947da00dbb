from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tradewind
from tradewind import Study, tunable
from tradewind.errors import ConfigurationError, SpecError, StoreError, StudyBusyError
from tradewind.problem import Trial, TrialState
from tradewind.store.base import Change, store_at
from tradewind.store.studies.tabular import flat_columns
from tradewind.utils.clock import SteadyClock
from tradewind.utils.paths import store_url

JOB: dict[str, Any] = {
    "name": "bowl",
    "space": {"x": "0..10", "mode": ["plain", "fancy"]},
    "objective": {"minimise": "value"},
    "searcher": {"use": "random"},
}


def bowl(x: int, mode: str) -> float:
    return (x - 3) ** 2 + (5 if mode == "fancy" else 0)


def test_asking_and_telling_finds_the_optimum_and_stores_every_trial() -> None:
    with Study(JOB) as study:
        while given := study.ask(3):
            for asked in given:
                study.tell(asked, runtime=1.0, metrics={"value": bowl(**asked.configuration)})  # type: ignore[arg-type]
        assert study.best_configuration == {"x": 3, "mode": "plain"}
        assert study.finished
        assert len(study.trials) == 22
        assert study.spent == pytest.approx(sum(t.spent for t in study.trials))
    with Study(JOB) as again:
        assert len(again.trials) == 22
        assert again.best_configuration == {"x": 3, "mode": "plain"}


def test_a_loop_of_ones_own_ends_once_no_trial_pays_and_says_so() -> None:
    with Study({**JOB, "objective": {"minimise": "cost"}, "future_runs": 10}) as study:
        while given := study.ask():
            study.tell(given[0], runtime=60.0, cost=1.0)
        assert 6 <= len(study.trials) < 22
        assert study.finished is not None
        assert study.finished.startswith("no trial is worth its money: the best would save $")
        reason, number = study.finished, study.row.id
    with closing(store_at(store_url())) as store:
        assert (store.study(number).state, store.study(number).reason) == ("finished", reason)
    with Study({**JOB, "objective": {"minimise": "cost"}, "stop": "never", "name": "whole"}) as study:
        while given := study.ask():
            study.tell(given[0], runtime=60.0, cost=1.0)
        assert len(study.trials) == 22


def test_what_was_asked_and_never_told_comes_first_after_reopening() -> None:
    with Study(JOB) as study:
        first, second = study.ask(2)
        study.tell(second, runtime=1.0, metrics={"value": 1.0})
    with Study(JOB) as again:
        assert next(asked.number for asked in again.ask(2)) == first.number


def test_a_lost_run_comes_back_and_a_failed_one_does_not() -> None:
    with Study(JOB) as study:
        asked = study.ask()[0]
        assert study.tell(asked, runtime=1.0, state="lost", reason="the laptop slept").state == TrialState.PENDING
        back = study.ask()[0]
        assert back.configuration == asked.configuration
        assert study.tell(back, runtime=1.0, state="failed", reason="boom").state == TrialState.FAILED
        assert study.ask()[0].configuration != asked.configuration


def test_an_aborted_run_is_censored() -> None:
    with Study({**JOB, "objective": "cost"}) as study:
        seen = study.tell(study.ask()[0], runtime=30.0, state="aborted").observation
        assert seen is not None
        assert seen.censored
        assert not seen.feasible


def test_the_budget_holds_for_told_costs_too() -> None:
    with Study({**JOB, "budget": {"dollars": 0.1}}) as study:
        told = 0
        while given := study.ask():
            study.tell(given[0], runtime=1.0, cost=0.03, metrics={"value": 1.0})
            told += 1
        assert told == 4  # the fourth run is more than what was left: its cap was for you to keep
        assert study.finished is not None
        assert "budget" in study.finished


def test_wrong_calls_say_what_is_wrong() -> None:
    with Study(JOB) as study:
        with pytest.raises(ConfigurationError, match="at least one"):
            study.ask(0)
        for count in ("2", 1.5, None, True, [1]):
            with pytest.raises(ConfigurationError, match="at least one"):
                study.ask(count)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="trial 7 is not waiting"):
            study.tell(7, runtime=1.0)
        for trial in ("0", True, 0.0, None, {"number": 0}):
            with pytest.raises(ConfigurationError, match="no trial is named so"):
                study.tell(trial, runtime=1.0)  # type: ignore[arg-type]
        asked = study.ask()[0]
        with pytest.raises(ConfigurationError, match="run time cannot be nan"):
            study.tell(asked, runtime=float("nan"))
        with pytest.raises(ConfigurationError, match="run time cannot be '3s' s"):
            study.tell(asked, runtime="3s")  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="cost cannot be '1' USD"):
            study.tell(asked, runtime=1.0, cost="1")  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="run time cannot be inf"):
            study.tell(asked, runtime=float("inf"))
        for cost in (-1.0, float("nan"), float("inf")):
            with pytest.raises(ConfigurationError, match=f"cost cannot be {cost} USD"):
                study.tell(asked, runtime=1.0, cost=cost)
        with pytest.raises(ConfigurationError, match="'success' is no end of a run"):
            study.tell(asked, runtime=1.0, state="success")  # type: ignore[arg-type]
        for wrong in (True, False):
            with pytest.raises(ConfigurationError, match=f"run time cannot be {wrong} s"):
                study.tell(asked, runtime=wrong)
        with pytest.raises(ConfigurationError, match="no end of a run"):
            study.tell(asked, runtime=1.0, state=["failed"])  # type: ignore[arg-type]
        for reason in (None, 3, b"late", ["late"]):
            with pytest.raises(ConfigurationError, match=r"the reason cannot be .*in words"):
                study.tell(asked, runtime=1.0, state="failed", reason=reason)  # type: ignore[arg-type]
        for back in (None, asked, 3, [0], "all"):
            with pytest.raises(ConfigurationError, match="no list of trials"):
                study.give_back(back)  # type: ignore[arg-type]
        for function in (None, 3, "bowl"):
            with pytest.raises(ConfigurationError, match="is no function"):
                study.optimise(function)  # type: ignore[arg-type]
        for trials in ("2", 1.5, True, -1, float("inf")):
            with pytest.raises(ConfigurationError, match="is no number of calls"):
                study.optimise(bowl, trials)  # type: ignore[arg-type]
        for name in (1, "", None):
            with pytest.raises(ConfigurationError, match="is no name of a metric"):
                study.tell(asked, runtime=1.0, metrics={name: 1.0})  # type: ignore[dict-item]
        for metrics in ([3], 3.0, "value", (), False):
            with pytest.raises(ConfigurationError, match=r"the metrics cannot be .*by name"):
                study.tell(asked, runtime=1.0, metrics=metrics)  # type: ignore[arg-type]
        study.tell(np.int64(asked.number), runtime=1.0, metrics={"value": 1.0})  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match=r"told already and is succeeded.*first result"):
            study.tell(asked, runtime=1.0, metrics={"value": 2.0})
        assert study.best is not None
        assert study.best.observation is not None
        assert study.best.observation.objective == 1.0


@pytest.mark.parametrize("method", ["ask", "tell"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_searcher_that_is_interrupted_or_raises_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, method: str, error: type[BaseException]
) -> None:
    """A study goes on where it was, and gives out what an undisturbed one does."""

    def numbers(study: Study, count: int) -> list[tuple[int, Any]]:
        found = []
        for _ in range(count):
            asked = study.ask()[0]
            found.append((asked.number, dict(asked.configuration)))
            study.tell(asked, runtime=1.0, cost=0.1, metrics={"value": float(asked.number)})
        return found

    with Study({**JOB, "name": "undisturbed"}) as study:
        wanted = numbers(study, 4)
    with Study(JOB) as study:
        assert numbers(study, 2) == wanted[:2]
        real, left = getattr(study._searcher, method), [error, error]

        def disturbed(*given: Any) -> Any:
            if left:
                raise left.pop()
            return real(*given)

        monkeypatch.setattr(study._searcher, method, disturbed)
        if method == "ask":
            for _ in range(2):
                with pytest.raises(error):
                    study.ask()
            assert study.finished is None
            assert numbers(study, 2) == wanted[2:]
        else:
            asked = study.ask()[0]
            for _ in range(2):
                with pytest.raises(error):
                    study.tell(asked, runtime=1.0, cost=0.1, metrics={"value": 2.0})
            assert study.tell(asked, runtime=1.0, cost=0.1, metrics={"value": 2.0}).state is TrialState.SUCCEEDED
            assert [(asked.number, dict(asked.configuration)), *numbers(study, 1)] == wanted[2:]


def test_an_interrupted_function_gives_its_trial_back() -> None:
    calls: list[dict[str, Any]] = []

    def function(**configuration: Any) -> float:
        calls.append(configuration)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return 1.0

    with Study(JOB) as study:
        with pytest.raises(KeyboardInterrupt):
            study.optimise(function, 3)
        study.optimise(function, 2)
        assert calls[1] == calls[2]
        assert [trial.state for trial in study.trials] == [TrialState.SUCCEEDED] * 3


def fill_the_disk(study: Study, monkeypatch: pytest.MonkeyPatch, times: int = 1) -> None:
    """The next writes of a study fail."""
    left = iter(range(times))
    write = study._store.write

    def writing(*change: Any) -> None:
        if next(left, None) is not None:
            raise StoreError("the disk is full")
        write(*change)

    monkeypatch.setattr(study._store, "write", writing)


def heard_by_the_searcher(study: Study, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The trials that the searcher is told of from now on."""
    heard: list[int] = []
    tell = study._searcher.tell

    def telling(trial: Trial) -> None:
        heard.append(trial.number)
        tell(trial)

    monkeypatch.setattr(study._searcher, "tell", telling)
    return heard


def test_what_could_not_be_written_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {"runtime": 3600.0, "cost": 5.0, "metrics": {"value": 0.5}}
    with Study(JOB) as study:
        heard = heard_by_the_searcher(study, monkeypatch)
        asked = study.ask()[0]
        fill_the_disk(study, monkeypatch, times=2)
        for _ in range(2):
            with pytest.raises(StoreError, match="disk is full"):
                study.tell(asked, **told)
        assert heard == []
        assert study.tell(asked, **told).state == TrialState.SUCCEEDED
        assert heard == [asked.number]
        assert study.spent == 5.0
        with pytest.raises(ConfigurationError, match="told already"):
            study.tell(asked, **told)
        following = study.ask()[0]
        study.tell(following, runtime=1.0, cost=1.0, metrics={"value": 1.0})
        assert heard == [asked.number, following.number]
    with Study(JOB) as again:
        assert [(t.state, t.spent) for t in again.trials] == [(TrialState.SUCCEEDED, 5.0), (TrialState.SUCCEEDED, 1.0)]
        assert again.best_configuration == dict(asked.configuration)


@pytest.mark.parametrize("then", ["ask", "tell another", "close"])
def test_what_could_not_be_written_is_written_first_at_any_next_call(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Study(JOB) as study:
        first, second = study.ask(2)
        fill_the_disk(study, monkeypatch)
        with pytest.raises(StoreError):
            study.tell(first, runtime=1.0, cost=5.0, metrics={"value": 0.5})
        if then == "ask":
            assert study.ask()[0].number not in {first.number, second.number}
        elif then == "tell another":
            assert study.tell(second, runtime=1.0, metrics={"value": 7.0}).observation.objective == 7.0  # type: ignore[union-attr]
        if then != "close":
            repeated = study.tell(first, runtime=1.0, cost=5.0, metrics={"value": 0.5})
            assert repeated.observation is not None
            assert repeated.observation.objective == 0.5
    with Study(JOB) as again:
        assert again.trials[first.number].spent == 5.0
        assert again.best_configuration == dict(first.configuration)


def test_a_lost_run_that_could_not_be_written_comes_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with Study(JOB) as study:
        asked = study.ask()[0]
        fill_the_disk(study, monkeypatch)
        with pytest.raises(StoreError):
            study.tell(asked, runtime=1.0, cost=2.0, state="lost")
        back = study.ask()[0]
        assert back.number == asked.number
        assert study.tell(back, runtime=1.0, cost=3.0, metrics={"value": 1.0}).spent == 5.0


def test_what_was_asked_for_and_could_not_be_written_is_given_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with Study({**JOB, "budget": {"trials": 1}}) as study:
        fill_the_disk(study, monkeypatch)
        with pytest.raises(StoreError):
            study.ask()
        asked = study.ask()[0]
        assert study.tell(asked, runtime=1.0, metrics={"value": 1.0}).state == TrialState.SUCCEEDED
        assert study.ask() == []
        assert len(study.trials) == 1


@pytest.mark.parametrize(
    "wrong", ["0.5", b"0.5", None, [1.0, 2.0], 10**400], ids=["text", "bytes", "none", "list", "huge"]
)
def test_a_metric_that_is_no_number_is_refused_and_changes_nothing(wrong: Any) -> None:
    with Study(JOB) as study:
        asked = study.ask()[0]
        with pytest.raises(ConfigurationError, match="trial 0: the metric value cannot be "):
            study.tell(asked, runtime=1.0, metrics={"value": wrong})
        assert study.trials[0].state == TrialState.RUNNING
        assert study.tell(asked, runtime=1.0, metrics={"value": 0.5}).state == TrialState.SUCCEEDED
        assert study.best_configuration == dict(asked.configuration)


@pytest.mark.parametrize("wrong", [float("-inf"), float("inf"), float("nan")])
@pytest.mark.parametrize("goal", ["minimise", "maximise"])
def test_an_objective_that_is_not_finite_fails_the_trial_and_is_never_the_best(wrong: float, goal: str) -> None:
    with Study({**JOB, "objective": {goal: "value"}}) as study:
        first, second = study.ask(2)
        study.tell(first, runtime=1.0, cost=2.0, metrics={"value": wrong})
        study.tell(second, runtime=1.0, metrics={"value": 0.5})
    with Study({**JOB, "objective": {goal: "value"}}) as again:
        assert again.best_configuration == dict(second.configuration)
        failed = again.trials[first.number]
        assert (failed.state, failed.spent) == (TrialState.FAILED, 2.0)
        assert failed.observation is not None
        assert failed.observation.reason == f"the metric 'value' is {wrong}, which is not a finite number"


@pytest.mark.parametrize("wrong", [-sys.float_info.max, 1.001e100])
@pytest.mark.parametrize("bounded", [False, True])
def test_the_largest_number_that_there_is_stands_for_no_result(wrong: float, bounded: bool) -> None:
    """Models would square it; 1e100 itself still counts."""
    objective = "cost" if bounded else {"maximise": "value"}
    constraints = {"metrics": {"value": ">= -1e200"}} if bounded else {}
    with Study({**JOB, "objective": objective, "constraints": constraints}) as study:
        first, second = study.ask(2)
        told = study.tell(first, runtime=1.0, cost=2.0, metrics={"value": wrong})
        assert (told.state, told.spent) == (TrialState.FAILED, 2.0)
        assert told.observation is not None
        assert told.observation.reason.startswith(f"the metric 'value' is {wrong:.3g}, which cannot be compared")
        assert study.tell(second, runtime=1.0, cost=2.0, metrics={"value": 1e100}).state == TrialState.SUCCEEDED


def test_a_function_that_returns_an_infinity_has_failed_there() -> None:
    def function(x: int, mode: str) -> float:
        return bowl(x, mode) if x else float("-inf")

    with Study({**JOB, "searcher": "exhaustive"}) as study:
        best = study.optimise(function)
        assert best is not None
        assert best.configuration["x"] == 3
        assert sum(t.state == TrialState.FAILED for t in study.trials) == 2


def test_a_function_that_returns_no_number_fails_its_trial_and_nothing_else() -> None:
    def function(x: int, mode: str) -> Any:
        return "low" if mode == "fancy" else float(x)

    with Study({**JOB, "searcher": "exhaustive"}) as study:
        best = study.optimise(function)
        assert best is not None and best.configuration["x"] == 0
        failed = [t.observation.reason for t in study.trials if t.state == TrialState.FAILED and t.observation]
        assert failed == ["it returned 'low', which is no number"] * 11


def test_a_second_opening_in_the_same_process_is_refused_and_changes_nothing() -> None:
    with Study(JOB) as study:
        with pytest.raises(StudyBusyError, match=r"'bowl' is open already in this process .*close\(\) it first"):
            Study(JOB)
        assert study.ask()
        with Study(JOB, fresh=True) as other:  # another study
            assert other.row.id != study.row.id
    with Study(JOB) as again:
        assert again.ask()


def test_a_study_that_nobody_holds_any_more_is_no_obstacle() -> None:
    """A cell of a notebook that is run again drops the study that it made before."""
    study = Study(JOB)
    number = study.ask()[0].number
    del study
    with Study(JOB) as again:
        assert again.ask()[0].number == number


def test_what_is_refused_leaves_no_study_behind() -> None:
    with pytest.raises(SpecError):
        Study({**JOB, "searcher": {"use": "random", "nothing": 1}})
    with pytest.raises(SpecError, match="least cost or runtime"):
        Study({**JOB, "searcher": {"use": "ernest"}})
    with closing(store_at(store_url())) as store:
        assert store.find_studies() == []


def test_a_wrong_mapping_is_a_specification_error() -> None:
    with pytest.raises(SpecError, match="spase"):
        Study({"name": "x", "spase": {}})


@pytest.mark.parametrize("source", [None, 3, b"job.yaml", ["job.yaml"], object()])
def test_what_is_neither_a_path_nor_a_mapping_is_no_job(source: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"is no job \(give a job YAML's path, or the same as a mapping"):
        Study(source)


def test_wrong_options_of_an_opening_say_what_is_wrong() -> None:
    for store in (3, Path("studies.db"), ["sqlite:///x.db"]):
        with pytest.raises(ConfigurationError, match=r"is no address \(write sqlite:///"):
            Study(JOB, store=store)  # type: ignore[arg-type]
    for fresh in ("no", 1, None):
        with pytest.raises(ConfigurationError, match="is no choice"):
            Study(JOB, fresh=fresh)  # type: ignore[arg-type]


def test_numbers_of_numpy_and_ranges_may_stand_in_a_mapping() -> None:
    space = {"x": np.arange(3), "y": range(2, 4), "z": [np.int64(1), np.float64(2.5)], "w": (np.str_("a"), np.True_)}
    with Study({**JOB, "space": space, "budget": {"trials": np.int64(2)}}) as study:
        wanted: list[dict[str, Any]] = [{"x": 0, "y": 2, "z": 2.5, "w": "a"}, {"x": 2, "y": 3, "z": 1, "w": True}]
        for values in wanted:
            assert study.enqueue(values).configuration.items() >= values.items()
        assert study.spec.budget.trials == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"space": {"x": {1, 2}}}, r"space.x: \{1, 2\} is no value"),
        ({"space": {"x": [1, Decimal(2)]}}, r"space.x.1: Decimal\('2'\) is no value"),
        ({"searcher": lambda: 1}, r"searcher: .* is no value .*name it, .*file.py:Name"),
        ({"budget": {"trials": 2j}}, "budget.trials: 2j is no value"),
    ],
)
def test_what_no_job_can_hold_is_told_by_its_place(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        Study({**JOB, **changes})


def test_a_mapping_that_holds_itself_is_refused() -> None:
    job: dict[str, Any] = {**JOB}
    job["constraints"] = job
    with pytest.raises(SpecError, match="nested too deeply, or holds itself"):
        Study(job)


def test_a_function_that_its_space_does_not_fit_is_refused_where_it_is_declared() -> None:
    async def later(x: int) -> float:
        return x

    def several(x: int) -> Iterator[int]:
        yield x

    def plain(x: int, rate: float = 0.1) -> float:
        return x * rate

    def anything(**given: int) -> float:
        return sum(given.values())

    for function, space, words in (
        (later, {"x": [1]}, "later is a coroutine function.*AsyncStudy"),
        (several, {"x": [1]}, "several is a generator.*return the value"),
        (plain, {"x": [1], "y": [2]}, "plain takes no argument 'y'.*it takes x, rate"),
        (plain, {"rate": [1]}, "plain needs the argument 'x'"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            tunable(space)(function)  # type: ignore[type-var]
    assert tunable({"x": [1], "rate": [2.0]})(plain)(2, 0.5) == 1.0
    assert tunable({"x": [1]})(anything)(x=1) == 1


class _MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_exception_without_words_fails_the_trial_and_not_the_search() -> None:
    def mute(x: int) -> float:
        raise _MuteError

    with Study({"name": "mute", "space": {"x": "0..5"}, "budget": {"trials": 1}, "objective": {"minimise": "v"}}) as s:
        s.optimise(mute)
        assert [trial.state for trial in s.trials] == [TrialState.FAILED]
        assert s.trials[0].observation.reason == "_MuteError"  # type: ignore[union-attr]


def test_what_is_no_space_or_no_function_cannot_be_made_tunable() -> None:
    for space in (3, None, ["x"], bowl):
        with pytest.raises(ConfigurationError, match="that is no space"):
            tunable(space)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="is no function"):
        tunable({"x": "1..3"})(3)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_function_is_tuned_and_its_errors_are_failed_trials() -> None:
    def function(x: int, mode: str) -> float:
        if mode == "fancy":
            raise ValueError("no such mode")
        return bowl(x, mode)

    with Study({**JOB, "stop": [{"use": "all_failed", "trials": 20}]}) as study:
        best = study.optimise(function)
        assert best is not None
        assert best.configuration["x"] == 3
        failed = [t for t in study.trials if t.state == TrialState.FAILED]
        assert len(failed) == 11
        assert failed[0].observation is not None
        assert failed[0].observation.reason == "ValueError: no such mode"


@pytest.mark.parametrize(("code", "said"), [(3, "3"), (0, "0"), (None, ""), ("no data", "'no data'")])
def test_a_function_that_exits_fails_its_trial_and_nothing_else(code: Any, said: str) -> None:
    def function(x: int, mode: str) -> float:
        if mode == "fancy":
            sys.exit(code)
        return float(x)

    with Study({**JOB, "searcher": "exhaustive"}) as study:
        best = study.optimise(function)
        assert best is not None
        assert best.configuration["x"] == 0
        failed = [t.observation.reason for t in study.trials if t.state == TrialState.FAILED and t.observation]
        assert failed == [f"it called sys.exit({said})"] * 11


def test_the_decorated_function_can_be_called_and_tuned() -> None:
    @tunable({"x": "0..10"}, objective={"maximise": "score"}, searcher="exhaustive")
    def parabola(x: int) -> None:
        tradewind.report(score=10.0 - (x - 4) ** 2)

    assert parabola(x=1) is None
    assert parabola.specification["name"] == "parabola"
    best = parabola.tune()
    assert best is not None
    assert best.configuration["x"] == 4
    assert best.observation is not None
    assert best.observation.objective == 10.0


@pytest.mark.slow
def test_the_run_time_of_a_function_can_be_the_objective() -> None:
    @tunable({"pause": [0.0, 0.5]}, objective="runtime", searcher="exhaustive")
    def wait(pause: float) -> None:
        time.sleep(pause)

    best = wait.tune(trials=2)
    assert best is not None
    assert best.configuration["pause"] == 0.0


def test_frames_have_one_row_a_trial(tmp_path: Path) -> None:
    with Study(JOB, store=f"sqlite:///{tmp_path / 'own.db'}") as study:
        study.optimise(bowl, trials=5)
        assert len(study.to_pandas()) == 5
        assert study.to_polars().height == 5
        frame = study.to_pandas()
        exported = set(flat_columns(study._store, study.row.id))
        assert exported < set(frame.columns) and exported < set(study.to_polars().columns)
        assert {"reason", "metric.cost"} <= exported
        names = [name.removeprefix("config.") for name in exported if name.startswith("config.")]
        assert names and all(frame[f"param.{name}"].equals(frame[f"config.{name}"]) for name in names)


def test_public_names_load_lazily_and_unknown_ones_are_refused() -> None:
    assert "Study" in dir(tradewind)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tradewind.nothing


@pytest.mark.slow
def test_a_study_that_is_worked_on_stays_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.engine.study._LEASE", 0.3)
    monkeypatch.setattr("tradewind.engine.study._RENEWED_AFTER", 0.1)
    with Study(JOB) as study:
        for _ in range(2):
            time.sleep(0.12)
            asked = study.ask()[0]
            time.sleep(0.12)
            study.tell(asked, runtime=1.0, metrics={"value": 1.0})
        with pytest.raises(StudyBusyError, match="is being run by"):
            study._store.hold(study.row.id, "elsewhere:1:2.0", 60.0)


def test_a_study_that_goes_on_is_stored_as_it_is_now() -> None:
    with Study({**JOB, "budget": {"trials": 1}}) as study:
        study.tell(study.ask()[0], runtime=1.0, metrics={"value": 1.0})
        store, number = study._store, study.row.id
        assert store.study(number).state == "finished"
    with Study({**JOB, "budget": {"trials": 1}}) as looked_at:
        assert looked_at._store.study(number).state == "finished"
    with Study({**JOB, "budget": {"trials": 6}, "searcher": "exhaustive"}) as again:
        asked = again.ask()[0]
        row = again._store.study(number)
        assert (row.state, row.reason) == ("open", "")
        assert (row.spec["budget"]["trials"], row.spec["searcher"]) == (6, "exhaustive")
        again.tell(asked, runtime=1.0, metrics={"value": 2.0})


def test_time_and_state_that_another_process_stored_after_the_study_was_found_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Study(JOB) as study:
        study.tell(study.ask()[0], runtime=1.0, metrics={"value": 1.0})
        number = study.row.id
    found = Study.__init__.__globals__["find_or_new_study"]

    def find(spec: Any, store: Any, **more: bool) -> Any:
        row = found(spec, store, **more)
        store.write(number, Change(study={"elapsed": 77.0}))
        return row

    monkeypatch.setattr("tradewind.engine.study.find_or_new_study", find)
    with Study(JOB) as again:
        assert again._machine.elapsed >= 77.0


def test_a_clock_that_is_ahead_for_a_moment_does_not_use_up_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = [0.0]
    monkeypatch.setattr(
        "tradewind.utils.clock._STEADY_CLOCK", SteadyClock(lambda: time.time() + ahead[0], time.monotonic)
    )
    with Study({**JOB, "budget": {"hours": 1}}) as study:
        first = study.ask()[0]
        ahead[0] = 5400.0
        study.tell(first, runtime=1.0, metrics={"value": 1.0})
        ahead[0] = 0.0
        assert study.ask(), study.finished


def test_what_is_enqueued_is_asked_for_first_in_its_order_also_after_a_crash(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    program = (
        "import os, sys, tradewind\n"
        "study = tradewind.Study(" + repr(JOB) + ", store=sys.argv[1])\n"
        "study.enqueue({'x': 7, 'mode': 'fancy'})\n"
        "study.enqueue({'x': 2})\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, store], check=False).returncode == -9
    with Study(JOB, store=store) as study:
        first, second, third = study.ask(3)
        assert dict(first.configuration) == {"x": 7, "mode": "fancy"}
        assert dict(second.configuration) == {"x": 2, "mode": "plain"}, "what was left open is filled in"
        assert [asked.why["stage"] for asked in (first, second)] == ["enqueued by the user"] * 2
        assert third.why["stage"] == "at random"
        for asked in (first, second, third):
            study.tell(asked, runtime=1.0, metrics={"value": bowl(**asked.configuration)})  # type: ignore[arg-type]
        study.enqueue({"x": 9})
        assert study.ask()[0].configuration["x"] == 9


def test_what_the_job_wants_tried_first_is_asked_for_once() -> None:
    job = {**JOB, "try_first": [{"x": 7}, {"x": 2}]}
    with Study(job) as study:
        assert [asked.configuration["x"] for asked in study.ask(2)] == [7, 2]
        study.tell(0, runtime=1.0, metrics={"value": 1.0})
    with Study(job) as study:
        assert [trial.configuration["x"] for trial in study.trials] == [7, 2]
        assert [asked.configuration["x"] for asked in study.ask()] == [2]
    with pytest.raises(SpecError, match=r"try_first.1: there is no parameter 'y'"):
        Study({**job, "name": "other", "try_first": [{"x": 7}, {"y": 2}]})


def test_the_configuration_of_today_is_tried_before_all() -> None:
    job = {**JOB, "try_first": [{"x": 7}], "baseline": {"x": "3"}}
    with Study(job) as study:
        assert [asked.configuration["x"] for asked in study.ask(2)] == [3, 7]
        assert study.spec.is_baseline({"x": 3, "mode": "plain"})
        assert not study.spec.is_baseline({"x": 7, "mode": "plain"})
    with pytest.raises(SpecError, match=r"baseline: there is no parameter 'y'"):
        Study({**job, "name": "other", "baseline": {"y": 2}})


def test_what_is_on_its_way_or_was_tried_is_not_enqueued_twice_and_said() -> None:
    with Study(JOB) as study:
        new = study.enqueue({"x": 4, "mode": "plain"})
        assert (new.number, new.state) == (0, TrialState.PENDING)
        with pytest.warns(UserWarning, match="mode=plain x=4 is on its way already, as trial 0"):
            assert study.enqueue({"x": "4"}) == new
        (asked,) = study.ask()
        study.tell(asked, runtime=1.0, metrics={"value": 1.0})
        with pytest.warns(UserWarning, match="mode=plain x=4 was tried already: trial 0 succeeded"):
            assert study.enqueue({"x": 4.0}).state is TrialState.SUCCEEDED
        assert len(study.trials) == 1


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        ({"x": 11}, "x=11 is not in the space (wanted 0 to 10)"),
        ({"x": [1]}, "x=[1] is not in the space (wanted a number)"),
        ({"y": 1}, "there is no parameter 'y' (known: x, mode)"),
        (5, "5 is no configuration (give the values by the names of their parameters: {'workers': 4})"),
    ],
)
def test_what_is_not_in_the_space_cannot_be_enqueued(configuration: Any, words: str) -> None:
    with Study(JOB) as study:
        with pytest.raises(ConfigurationError) as caught:
            study.enqueue(configuration)
        assert str(caught.value) == words
        assert study.trials == []


def test_the_budget_holds_for_what_is_enqueued() -> None:
    with Study({**JOB, "budget": {"trials": 2}}) as study:
        study.enqueue({"x": 1})
        study.enqueue({"x": 2})
        with pytest.raises(ConfigurationError, match="cannot be enqueued: the budget of 2 trials leaves no further"):
            study.enqueue({"x": 3})
        assert [asked.configuration["x"] for asked in study.ask(5)] == [1, 2]
        for number in (0, 1):
            study.tell(number, runtime=1.0, metrics={"value": 1.0})
        assert study.ask() == []
        with pytest.raises(ConfigurationError, match="cannot be enqueued: the budget of 2 trials is used up"):
            study.enqueue({"x": 3})


def test_so_many_failures_end_a_study_and_a_larger_number_goes_on() -> None:
    with Study({**JOB, "stop": {"failed": 2}}) as study:
        for _ in range(2):
            (asked,) = study.ask()
            study.tell(asked, runtime=1.0, state="failed", reason="boom")
        assert study.finished == "2 trials failed, the last one: boom"
    with Study({**JOB, "stop": {"failed": 2}}) as same:
        assert same.finished == "2 trials failed, the last one: boom"
    with Study({**JOB, "stop": {"failed": 3}}) as more:
        assert len(more.ask()) == 1


SEARCHERS = [
    "cherrypick", "coordinate_descent", "done", "exhaustive", "gp", "obol", "optuna", "random", "tradewind", "trimtuner"
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("searcher", SEARCHERS)
def test_every_searcher_goes_on_from_what_the_user_wanted(searcher: str) -> None:
    space = {"instance": {"provider": "local", "limit": 3}, "x": [1, 2, 3, 4]}
    job = {"name": "any", "space": space, "searcher": searcher, "budget": {"trials": 6}}
    with Study(job) as study:
        wanted = study.enqueue({"x": 3})
        told = []
        while given := study.ask():
            for asked in given:
                study.tell(asked, runtime=1.0 + float(asked.configuration["x"]))
                told.append((asked.configuration, asked.fidelity))
        assert told[0] == (wanted.configuration, 1.0)
        assert len(set(told)) == len(told) > 1
