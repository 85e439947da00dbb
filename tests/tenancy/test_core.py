"""What a Core does by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.tenancy.world import World

from tradewind.deployer.runner.process import ProcessRunner
from tradewind.engine.search_builder import study_document
from tradewind.engine.state_machine.events import StopSearch
from tradewind.problem import Handle, Limits, Machine, Observation, Offer, Run, RunRequest, RunStatus, Trial, TrialState
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.store.clusters.cluster_store import JobRow
from tradewind.tenancy.core import CoreInbox, CoreSettings, failure_of, run_core, with_demand_limits
from tradewind.tenancy.messages import CoreEndedMessage, EndOrder, GrantOrder, MessageBatch, RunRequestMessage
from tradewind.testing.stores import trial


@pytest.mark.parametrize(
    ("demand", "cpus", "memory"),
    [
        ({}, 8.0, 16 * 2**30),
        ({"cpu": 4.0}, 2.0, 16 * 2**30),
        ({"memory": 1.0, "licence": 1.0}, 8.0, 2**29),
        ({"cpu": 0.0}, 8.0, 16 * 2**30),
    ],
)
def test_what_an_owner_says_of_a_run_is_shared_by_its_nodes(
    demand: Mapping[str, float], cpus: float, memory: int
) -> None:
    offer = Offer("local", "two", 8.0, 16.0, 0.0, nodes=2)

    def make(trial: Trial, run: Run, wall_seconds: float | None) -> RunRequest:
        limits = Limits(8.0, 16 * 2**30, wall_seconds, 1000)
        return RunRequest(run.run_id, "tw", 0.0, ("true",), Path(), Path(), offer, trial.configuration, limits=limits)

    job = JobRow(1, "A", "wide", {}, {"demand": demand})
    made = with_demand_limits(make, job)(trial(0, 1.0), Run("r", 0, 1), 60.0)
    assert made.limits == Limits(cpus, memory, 60.0, 1000)
    assert made.offer == offer


def test_the_owner_says_how_many_gpus_a_run_has() -> None:
    offer = Offer("local", "two", 8.0, 16.0, 0.0, gpus=4)

    def make(trial: Trial, run: Run, wall_seconds: float | None) -> RunRequest:
        return RunRequest(run.run_id, "tw", 0.0, ("true",), Path(), Path(), offer, trial.configuration)

    for demand, gpus in (({"gpu": 0.5}, 0.5), ({"gpu": 0.0}, 0.0), ({"cpu": 1.0}, None)):
        job = JobRow(1, "A", "wide", {}, {"demand": demand})
        made = with_demand_limits(make, job)(trial(0, 1.0), Run("r", 0, 1), 1.0)
        assert made.limits.gpus == gpus


class _Inbox(CoreInbox):
    """Ends the search at its first wait for an answer, and keeps what it had said by then."""

    def __init__(self, said: list[Any]) -> None:
        super().__init__()
        self._said = said
        self.by_then: list[Any] = []
        self._over = False

    def get(self, seconds: float = 0.0) -> EndOrder | None:
        if self._over:
            return None
        self.by_then, self._over = list(self._said), True
        return EndOrder("left")


class _Outbox:
    def __init__(self) -> None:
        self.said: list[Any] = []

    def put(self, item: Any) -> None:
        self.said += item.messages if isinstance(item, MessageBatch) else [item]


@pytest.mark.slow
def test_a_core_asks_before_it_waits_for_the_answer(tmp_path: Path) -> None:
    """It kept its first request back for the quarter of a second that it waits at a time."""
    world = World(tmp_path)
    job = """
name: quick
job: {command: ["true"]}
space: {x: 1..9}
offers: {provider: local, vcpu: 1, memory: 1}
searcher: random
budget: {trials: 2}
"""
    with closing(world.store), closing(world.studies):
        row = world.store.submit(JobRow(0, "A", "quick", study_document(parse_spec(job, base=world.work)), {}))
        outbox = _Outbox()
        inbox = _Inbox(outbox.said)
        run_core(CoreSettings(row, world.url, tmp_path, {"use": "process"}), inbox, outbox)
    assert [type(each) for each in inbox.by_then if isinstance(each, RunRequestMessage)] == [RunRequestMessage]
    assert isinstance(outbox.said[-1], CoreEndedMessage)


class _Grants:
    """An outbox that grants each request at once, but those after the first only when some seconds are over."""

    def __init__(self, inbox: CoreInbox, seconds: float) -> None:
        self._inbox, self._seconds = inbox, seconds
        self.asked = 0

    def put(self, item: Any) -> None:
        for each in item.messages if isinstance(item, MessageBatch) else [item]:
            if isinstance(each, RunRequestMessage):
                self.asked += 1
                grant = partial(self._inbox.put, GrantOrder(each.request))
                threading.Timer(self._seconds if self.asked > 1 else 0.0, grant).start()


@pytest.mark.slow
def test_a_core_with_runs_sleeps_until_something_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looked a hundred times a second whether there was an order, and asked its engine as often."""
    polls: list[float] = []
    starts: list[float] = []
    poll, submit = ProcessRunner.poll, ProcessRunner.submit

    def counted(self: ProcessRunner, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        polls.append(time.monotonic())
        return poll(self, handles)

    def noted(self: ProcessRunner, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        starts.append(time.monotonic())
        return submit(self, request, machines)

    monkeypatch.setattr(ProcessRunner, "poll", counted)
    monkeypatch.setattr(ProcessRunner, "submit", noted)
    monkeypatch.setattr("tradewind.engine.search._PATIENCE", 60.0)  # only what comes can end a wait
    world = World(tmp_path)
    job = """
name: long
job: {command: [sleep, "2"]}
space: {x: 1..9}
offers: {provider: local, vcpu: 1, memory: 1}
searcher: random
parallel: 2
budget: {trials: 2}
"""
    with closing(world.store), closing(world.studies):
        row = world.store.submit(JobRow(0, "A", "long", study_document(parse_spec(job, base=world.work)), {}))
        inbox = CoreInbox()
        run_core(CoreSettings(row, world.url, tmp_path, {"use": "process"}), inbox, _Grants(inbox, 1.0))
    assert len(starts) == 2
    assert starts[1] - starts[0] < 2.0, "the second grant came while the first run was at work"
    assert len(polls) < 40


def _ended(number: int, state: TrialState, reason: str) -> Trial:
    return replace(trial(number, 1.0), state=state, observation=Observation(None, 0.0, 1.0, False, reason=reason))


FAILED, CUT, LOST = TrialState.FAILED, TrialState.ABORTED, TrialState.LOST


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ([(FAILED, "code 3"), (FAILED, "code 4"), (FAILED, "code 3")], "all of 3 trials failed: code 3"),
        ([(FAILED, "code 3")], "its only trial failed: code 3"),
        ([(CUT, "too long"), (CUT, "too long")], "none of 2 trials ran to its end: too long"),
        ([(CUT, "too long"), (LOST, "no power"), (FAILED, "no power")], "none of 3 trials ran to its end: no power"),
        ([(LOST, "no power")], "its only trial did not run to its end: no power"),
        ([], "the budget pays no run"),
        ([(FAILED, "code 3"), (TrialState.SUCCEEDED, "")], ""),
    ],
)
def test_a_search_without_a_single_result_has_failed(ends: list[tuple[TrialState, str]], words: str) -> None:
    trials = [_ended(number, state, reason) for number, (state, reason) in enumerate(ends)]
    assert failure_of(trials, StopSearch("the budget pays no run")) == words


def test_a_search_that_cannot_go_on_until_something_is_mended_has_failed() -> None:
    trials = [_ended(0, TrialState.SUCCEEDED, "")]
    stop = StopSearch("no input; the same command goes on once that is mended", trouble="no input")
    assert failure_of(trials, stop) == "no input"
