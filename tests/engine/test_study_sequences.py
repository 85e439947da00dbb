"""Any sequence of calls of a study keeps its promises, also with threads, a full disk and a failing searcher."""

from __future__ import annotations

import tempfile
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tradewind import Asked, Study
from tradewind.errors import ConfigurationError, StoreError

COSTS = st.sampled_from([0.0, 0.25, 0.5, 1.0])


class StudyCalls(RuleBasedStateMachine):
    """Calls a study in any order and keeps its own account of it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="tradewind-")
        self.ended: dict[int, float | None] = {}  # by trial: the objective that was told first, None for a failure
        self.paid = 0.0
        self.study: Study
        self.job: dict[str, Any]

    @initialize(
        searcher=st.sampled_from(["random", "exhaustive", "coordinate_descent", "tradewind"]),
        budget=st.sampled_from([{"trials": 6}, {"trials": 12, "dollars": 4.0}, {}]),
    )
    def open(self, searcher: str, budget: dict[str, Any]) -> None:
        self.job = {
            "name": "any",
            "space": {"x": "0..4", "mode": ["a", "b"]},
            "objective": {"minimise": "value"},
            "searcher": searcher,
            "budget": budget,
        }
        self._open()

    def _open(self) -> None:
        self.study = Study(self.job, store=f"sqlite:///{Path(self.folder.name) / 'tradewind.db'}")

    def teardown(self) -> None:
        if hasattr(self, "study"):
            self.study.close()
        self.folder.cleanup()

    # ------------------------------------------------------------------ calls

    def _tell(self, asked: Asked | int, *, cost: float, state: str = "succeeded") -> None:
        number = asked if isinstance(asked, int) else asked.number
        value = float(number % 3)
        self.study.tell(
            asked,
            runtime=1.0,
            cost=cost,
            state=state,  # type: ignore[arg-type]
            metrics={"value": value} if state == "succeeded" else None,
        )
        self.paid += cost
        if state != "lost":
            assert number not in self.ended
            self.ended[number] = value if state == "succeeded" else None

    @rule(count=st.integers(1, 3))
    def ask(self, count: int) -> None:
        pending = {asked.number for asked in self.study.pending}
        given = self.study.ask(count)
        numbers = {asked.number for asked in given}
        assert len(numbers) == len(given) <= count
        assert not numbers & pending, "a trial that somebody has already"
        assert not numbers & self.ended.keys(), "a trial that has ended"
        assert given or pending or self.study.finished, "silent without a reason"

    @precondition(lambda self: self.study.pending)
    @rule(which=st.integers(0, 5), cost=COSTS, state=st.sampled_from(["succeeded", "failed", "aborted", "lost"]))
    def tell(self, which: int, cost: float, state: str) -> None:
        pending = self.study.pending
        self._tell(pending[which % len(pending)], cost=cost, state=state)

    @precondition(lambda self: self.ended)
    @rule(which=st.integers(0, 20))
    def tell_again(self, which: int) -> None:
        number = sorted(self.ended)[which % len(self.ended)]
        with pytest.raises(ConfigurationError, match="told already"):
            self.study.tell(number, runtime=1.0, cost=9.0, metrics={"value": -1.0})

    @rule(wrong=st.sampled_from([None, "2", 1.5, True, -1, 10**6, object(), float("nan")]))
    def call_wrongly(self, wrong: Any) -> None:
        with pytest.raises(ConfigurationError):
            self.study.tell(wrong, runtime=1.0)
        if not isinstance(wrong, int) or isinstance(wrong, bool) or wrong < 1:
            with pytest.raises(ConfigurationError):
                self.study.ask(wrong)

    @rule(x=st.integers(0, 4), mode=st.sampled_from(["a", "b", None]))
    def enqueue(self, x: int, mode: str | None) -> None:
        before = {trial.number for trial in self.study.trials}
        wanted: dict[str, Any] = {"x": x} if mode is None else {"x": x, "mode": mode}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # it is on its way, or was tried
                trial = self.study.enqueue(wanted)
        except ConfigurationError:
            assert (
                self.study.finished or len(before) >= self.job["budget"].get("trials", 10) or "dollars" in str(self.job)
            )
            return
        assert trial.configuration["x"] == x
        assert trial.number in before or trial.number == max(before, default=-1) + 1

    @rule(wrong=st.sampled_from([None, 3, "x=1", {"z": 1}, {"x": 9}, {"x": None}, {1: 2}, {"mode": ["a"]}]))
    def enqueue_wrongly(self, wrong: Any) -> None:
        with pytest.raises(ConfigurationError):
            self.study.enqueue(wrong)

    @precondition(lambda self: self.study.pending)
    @rule(count=st.integers(1, 3))
    def give_back(self, count: int) -> None:
        back = self.study.pending[:count]
        self.study.give_back(back)
        again = self.study.ask(len(back))
        assert {asked.number for asked in again} == {asked.number for asked in back}

    @precondition(lambda self: self.study.pending)
    @rule(cost=COSTS)
    def tell_with_a_full_disk(self, cost: float) -> None:
        asked, write = self.study.pending[0], self.study._store.write

        def full(*change: Any) -> None:
            raise StoreError("the disk is full")

        self.study._store.write = full  # type: ignore[method-assign, assignment]
        try:
            with suppress(StoreError):
                self.study.tell(asked, runtime=1.0, cost=cost, metrics={"value": float(asked.number % 3)})
        finally:
            self.study._store.write = write  # type: ignore[method-assign]
        self._tell(asked, cost=cost)  # a call that raised can be repeated

    @rule(method=st.sampled_from(["ask", "tell"]), error=st.sampled_from([KeyboardInterrupt, RuntimeError]))
    def call_with_a_failing_searcher(self, method: str, error: type[BaseException]) -> None:
        searcher = self.study._searcher

        def failing(*given: Any) -> Any:
            raise error

        setattr(searcher, method, failing)
        try:
            pending = self.study.pending
            with suppress(error):
                if method == "ask" or not pending:
                    self.study.give_back(self.study.ask())
                else:
                    self.study.tell(pending[0], runtime=1.0, cost=0.5, metrics={"value": float(pending[0].number % 3)})
        finally:
            delattr(searcher, method)
        if method == "tell" and pending:
            self._tell(pending[0], cost=0.5)

    @rule(threads=st.integers(2, 4))
    def several_threads(self, threads: int) -> None:
        lock, errors = threading.Lock(), []

        def work() -> None:
            try:
                for asked in self.study.ask():
                    with lock:
                        assert asked.number not in self.ended
                    self.study.tell(asked, runtime=1.0, cost=0.25, metrics={"value": float(asked.number % 3)})
                    with lock:
                        self.ended[asked.number] = float(asked.number % 3)
                        self.paid += 0.25
            except BaseException as error:
                errors.append(error)

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert errors == []

    @rule()
    def open_again(self) -> None:
        self.study.close()
        with pytest.raises(ConfigurationError, match="was closed"):
            self.study.ask()
        self._open()

    # ------------------------------------------------------------------ promises

    @invariant()
    def the_account_is_right(self) -> None:
        if not hasattr(self, "study"):
            return
        assert self.study.spent == pytest.approx(self.paid)
        found = {
            trial.number: trial.observation.objective if trial.observation and trial.state.informs else None
            for trial in self.study.trials
            if trial.state.ended
        }
        assert found.keys() == self.ended.keys()
        for number, value in self.ended.items():
            if value is not None:
                assert found[number] == value
        stored = {trial.number for trial in self.study._store.trials(self.study.row.id) if trial.state.ended}
        assert stored == self.ended.keys()
        assert sum(run.cost for run in self.study._store.runs(self.study.row.id)) == pytest.approx(self.paid)


StudyCalls.TestCase.settings = settings(
    max_examples=8,
    stateful_step_count=14,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestStudyCalls = pytest.mark.slow(StudyCalls.TestCase)
