"""Any sequence of calls of two workers on one study keeps its promises."""

from __future__ import annotations

import tempfile
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.engine.ask_tell.crowd import OneOfACrowd

from tradewind import Asked
from tradewind.engine.ask_tell.shared_study import SharedStudy
from tradewind.store.base import store_at

WHO = st.integers(0, 1)


class SharedCalls(RuleBasedStateMachine):
    """Calls two workers in any order and keeps its own account of who has which trial."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="tradewind-")
        self.url = f"sqlite:///{Path(self.folder.name) / 'tradewind.db'}"
        self.workers: list[SharedStudy] = []
        self.held: list[dict[int, Asked]] = [{}, {}]
        self.ended: dict[int, float | None] = {}
        self.paid = 0.0

    @initialize(
        searcher=st.sampled_from(["random", "exhaustive", "coordinate_descent"]),
        budget=st.sampled_from([{"trials": 6}, {"trials": 9, "dollars": 4.0}, {}]),
        stop=st.sampled_from([[], [{"use": "target", "value": 0.0}]]),
        kind=st.sampled_from([SharedStudy, OneOfACrowd]),
    )
    def open(self, searcher: str, budget: dict[str, Any], stop: list[Any], kind: type[SharedStudy]) -> None:
        self.kind = kind
        self.job: dict[str, Any] = {
            "name": "any",
            "space": {"x": "0..4", "mode": ["a", "b"]},
            "objective": {"minimise": "value"},
            "searcher": searcher,
            "budget": budget,
            "stop": stop,
        }
        self.workers = [kind(self.url, self.job) for _ in range(2)]

    def teardown(self) -> None:
        for worker in self.workers:
            worker.close()
        self.folder.cleanup()

    @rule(who=WHO, count=st.integers(1, 3))
    def ask(self, who: int, count: int) -> None:
        given = self.workers[who].ask(count)
        assert len(given) <= count
        for asked in given:
            assert asked.number not in self.held[0] | self.held[1], "somebody has it"
            assert asked.number not in self.ended
            self.held[who][asked.number] = asked

    @rule(who=WHO, state=st.sampled_from(["succeeded", "failed", "lost"]), cost=st.sampled_from([0.0, 0.25, 1.0]))
    def tell(self, who: int, state: Any, cost: float) -> None:
        if not self.held[who]:
            return
        number, asked = self.held[who].popitem()
        value = float(number % 3)
        metrics = {"value": value} if state == "succeeded" else None
        trial = self.workers[who].tell(asked, runtime=1.0, cost=cost, state=state, metrics=metrics)
        self.paid += cost
        if trial.state.ended:
            self.ended[number] = value if state == "succeeded" else None
        else:
            assert state == "lost"

    @rule(who=WHO)
    def give_back(self, who: int) -> None:
        self.workers[who].give_back(list(self.held[who].values()))
        self.held[who].clear()

    @rule(who=WHO)
    def die_and_come_again(self, who: int) -> None:
        """Its trials are free then; it has said nothing of them."""
        self.workers[who].close()
        self.held[who].clear()
        self.workers[who] = self.kind(self.url, self.job)

    @rule(who=WHO, x=st.integers(0, 4))
    def enqueue(self, who: int, x: int) -> None:
        worker = self.workers[who]
        worker.trials  # noqa: B018  (what the other did is known then)
        if worker._machine.why_closed is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                worker.enqueue({"x": x, "mode": "a"})

    @invariant()
    def all_know_the_same(self) -> None:
        if not self.workers:
            return
        with closing(store_at(self.url)) as store:
            stored = store.trials(self.workers[0].row.id)
        assert {trial.number for trial in stored if trial.state.ended} == set(self.ended)
        assert sum(trial.spent for trial in stored) == pytest.approx(self.paid)
        limit = self.job["budget"].get("trials")
        assert limit is None or len(stored) <= limit
        for worker in self.workers:
            known = [trial for trial in worker.trials if trial.state.value != "pending"]
            if worker.finished is None:
                assert known == [trial for trial in stored if trial.state.value != "pending"]
                assert worker.spent == pytest.approx(self.paid)


SharedCalls.TestCase.settings = settings(
    max_examples=6, stateful_step_count=14, deadline=None, suppress_health_check=list(HealthCheck)
)
TestSharedCalls = pytest.mark.slow(SharedCalls.TestCase)
