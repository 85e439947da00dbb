"""What a searcher's model says of a run, on its way from the searcher to the priority."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.tenancy.allocators import asks, cluster, policy, started
from tests.tenancy.world import World

from tradewind.engine.search_builder import study_document
from tradewind.problem import Configuration
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.searcher.base import RunPrediction
from tradewind.searcher.gp import GpSearcher
from tradewind.store.clusters.cluster_store import JobRow
from tradewind.tenancy import events as ev
from tradewind.tenancy.core import CoreInbox, CoreSettings, run_core
from tradewind.tenancy.messages import CoreEndedMessage, GrantOrder, MessageBatch, ResultMessage, RunRequestMessage
from tradewind.tenancy.priority.expected_gain import GainPriority
from tradewind.tenancy.resources import ResourceKinds
from tradewind.tenancy.shared_cluster import allocator_events_of
from tradewind.tenancy.views import valid_chance, valid_seconds

ONE = {"cpu": 1.0}


# ---------------------------------------------------------------------- the allocator


def test_promises_are_of_runs_with_a_result_and_of_those_that_run() -> None:
    allocator = cluster({"n": {"cpu": 2}}, ["A"])
    said = [ev.RequestMade("j", f"j{i}", ONE, chance, 10.0) for i, chance in enumerate((0.25, 0.5, None, 0.125))]
    assert started(allocator.handle_all([ev.JobSubmitted("j", "A"), *said], 0.0)) == ["j0", "j1"]
    view = allocator.jobs["j"].view
    assert (view.promised, view.promises) == (0.75, 2)
    assert (view.chance, view.expected) == (None, 10.0), "of the next one that waits"
    allocator.handle_all([ev.RequestEnded("j0"), ev.ResultReported("j", 1.0, 5.0, chance=0.25)], 5.0)
    assert (view.promised, view.promises, view.chance) == (0.75, 2, 0.125)
    # A run that is gone without a result has promised nothing.
    allocator.handle(ev.RequestEnded("j1"), 6.0)
    assert (view.promised, view.promises) == (0.375, 2)
    allocator.handle(ev.ResultsReset("j"), 7.0)
    assert (view.promised, view.promises) == (0.125, 1), "what runs has been promised all the same"
    allocator.handle_all([ev.RequestEnded("j2"), ev.RequestEnded("j3")], 8.0)
    assert (view.promised, view.promises) == (0.0, 0)


@pytest.mark.parametrize("said", [math.nan, math.inf, -0.1, 1.5, -math.inf, None])
def test_what_is_no_probability_counts_as_not_said(said: float | None) -> None:
    allocator = cluster({"n": {"cpu": 1}}, ["A"], policy(priority=GainPriority))
    events = [ev.RequestMade("j", f"j{i}", ONE, said, said) for i in range(2)]
    allocator.handle_all([ev.JobSubmitted("j", "A"), *events], 0.0)
    allocator.handle_all([ev.RequestEnded("j0"), ev.ResultReported("j", 1.0, 5.0, chance=said)], 5.0)
    view = allocator.jobs["j"].view
    assert (view.promised, view.promises, view.chance) == (0.0, 0, None)
    assert view.expected == (1.5 if said == 1.5 else None)
    assert valid_chance(said) is None
    assert valid_seconds(0.0) is None


def test_a_search_whose_model_promises_more_goes_first() -> None:
    allocator = cluster({"n": {"cpu": 1}}, ["A"], policy(priority=GainPriority))
    allocator.handle_all([ev.JobSubmitted(name, "A") for name in "ab"], 0.0)
    says: list[ev.AllocatorEvent] = [ev.RequestMade("b", f"b{i}", ONE, 0.2, 9.0) for i in range(3)]
    assert started(allocator.handle_all([*asks("a", 3, ONE), *says], 0.0)) == ["a0"]
    assert started(allocator.handle_all([ev.RequestEnded("a0"), ev.ResultReported("a", 1.0, 9.0)], 9.0)) == ["b0"]
    told = ev.ResultReported("b", 1.0, 9.0, chance=0.2)
    assert started(allocator.handle_all([ev.RequestEnded("b0"), told], 18.0)) == ["b1"], "31 / 1.2 against 31"


# ---------------------------------------------------------------------- messages


def test_messages_without_it_are_those_of_before() -> None:
    kinds = ResourceKinds()
    assert allocator_events_of(RunRequestMessage(1, "1/0/1", ONE), kinds) == [ev.RequestMade("1", "1/0/1", ONE)]
    assert allocator_events_of(RunRequestMessage(1, "1/0/1", ONE, 0.3, 7.0), kinds) == [
        ev.RequestMade("1", "1/0/1", ONE, 0.3, 7.0)
    ]
    assert allocator_events_of(ResultMessage(1, 2.0, 3.0), kinds) == [ev.ResultReported("1", 2.0, 3.0)]
    assert allocator_events_of(ResultMessage(1, 2.0, 3.0, ONE, 0.3), kinds) == [
        ev.ResultReported("1", 2.0, 3.0, ONE, 0.3)
    ]


# ---------------------------------------------------------------------- a Core

JOB = """
name: predicts
job: {command: ["sh", "-c", "echo loss {{ x }}.5"]}
space: {x: 1..9}
offers: {provider: local, vcpu: 1, memory: 1}
objective: {minimise: loss}
interpret: [{use: regex, patterns: 'loss (?P<loss>[0-9.]+)'}]
budget: {trials: 6}
searcher: SEARCHER
"""


class _Grants:
    """Grants each request at once, and keeps what was said."""

    def __init__(self, inbox: CoreInbox) -> None:
        self._inbox = inbox
        self.said: list[Any] = []

    def put(self, item: Any) -> None:
        for each in item.messages if isinstance(item, MessageBatch) else [item]:
            self.said.append(each)
            if isinstance(each, RunRequestMessage):
                self._inbox.put(GrantOrder(each.request))


def run(folder: Path, searcher: str, options: Mapping[str, Any]) -> tuple[list[RunRequestMessage], list[ResultMessage]]:
    """What a Core says of a search that runs to its end."""
    world = World(folder)
    with closing(world.store), closing(world.studies):
        spec = parse_spec(JOB.replace("SEARCHER", searcher), base=world.work)
        row = world.store.submit(JobRow(0, "A", "predicts", study_document(spec), dict(options)))
        inbox = CoreInbox()
        outbox = _Grants(inbox)
        run_core(CoreSettings(row, world.url, folder, {"use": "process"}), inbox, outbox)
    over = outbox.said[-1]
    assert isinstance(over, CoreEndedMessage)
    assert over.state == "done", over.reason
    return [e for e in outbox.said if isinstance(e, RunRequestMessage)], [
        e for e in outbox.said if isinstance(e, ResultMessage)
    ]


@pytest.mark.slow
def test_a_core_reports_what_its_searcher_predicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets: list[float | None] = []
    predict_run = GpSearcher.predict_run

    def noted(self: GpSearcher, configuration: Configuration, target: float | None = None) -> RunPrediction | None:
        targets.append(target)
        return predict_run(self, configuration, target)

    monkeypatch.setattr(GpSearcher, "predict_run", noted)
    wants, learned = run(tmp_path, "{use: gp, starts: 2}", {"target": 0.5})  # no value is that small
    assert set(targets) == {0.5}
    assert (wants[0].chance, wants[0].seconds) == (None, None), "before its first result the model knows nothing"
    assert all(each.chance is not None and 0.0 <= each.chance <= 1.0 for each in wants[1:])
    assert all(each.seconds is not None and each.seconds > 0 for each in wants[1:])
    assert [each.chance for each in learned] == [each.chance for each in wants]


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["raises", "nonsense"])
def test_a_searcher_that_cannot_say_it_ends_no_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    def predict_run(self: GpSearcher, configuration: Configuration, target: float | None = None) -> Any:
        if broken == "raises":
            raise ZeroDivisionError("of a third party")
        return "soon"

    monkeypatch.setattr(GpSearcher, "predict_run", predict_run)
    wants, learned = run(tmp_path, "gp", {})
    assert len(learned) == 6
    assert {(each.chance, each.seconds) for each in wants} == {(None, None)}
    assert "could not say" in caplog.text


@pytest.mark.slow
def test_a_searcher_without_a_model_says_nothing(tmp_path: Path) -> None:
    wants, learned = run(tmp_path, "random", {"target": 0.5})
    assert {(each.chance, each.seconds) for each in wants} == {(None, None)}
    assert {each.chance for each in learned} == {None}
