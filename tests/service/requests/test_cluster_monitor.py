"""Requests whose searches are on a shared cluster: nothing is noted as done before it is, and each of them ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.service.requests.request_world import World, clusters, working, world
from tests.waiting import eventually

from tradewind.cli.app import run
from tradewind.engine.search_builder import new_study
from tradewind.errors import InputError, StoreError
from tradewind.problem import Configuration, Observation, Offer, Proposal, Run, RunState, Trial, TrialState
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.service.requests.cluster_monitor import ClusterRequestMonitor
from tradewind.service.requests.turns import RequestTurns
from tradewind.service.web.request_view import view_request
from tradewind.store.base import Change, StudyRow, this_process
from tradewind.store.clusters.cluster_store import ClusterStore, JobRow, TenantRow
from tradewind.store.service.claims import ClaimStore
from tradewind.store.service.requests import RequestRow

pytestmark = pytest.mark.slow

OFFER = Offer("local", "local.c1", 1.0, 1.0, 0.045)


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as found:
        yield found


def followed(there: World, row: RequestRow) -> ClusterRequestMonitor:
    """A request in the hands of this process, as the worker has it."""
    context = there.context
    claims = context.requests.claims
    claim = claims.claim(this_process(), 60.0, RequestTurns(1).choose, room=False)
    assert claim is not None
    assert claim.row.id == row.id
    return ClusterRequestMonitor(claim, claims, context.store, context.cluster, context.requests.planner)


def asked(there: World, cluster: str = "lab") -> RequestRow:
    """A search for a cluster that is asked for."""
    return there.submit(search={"budget": {"trials": 2}}, cluster=cluster)


def job_of(there: World, row: RequestRow) -> int:
    """Its search in the queue."""
    number = there.get(row).cluster_job
    assert number is not None
    return number


def begun(there: World, row: RequestRow, cost: float, *, running: bool = False, runner: str = "") -> StudyRow:
    """The study of a search that the cluster has begun, with one trial of this cost."""
    store, job = there.context.store, there.context.cluster.job(job_of(there, row))
    wanted = new_study(JobSpec.from_json(job.spec))
    if runner:
        wanted.spec["job"]["deploy"]["runner"] = {"use": runner}
    study = store.create_study(wanted)
    there.context.cluster.change_job(job.id, study_id=study.id, state="running", started=1.0)
    proposal = Proposal(Configuration({"instance": "local.c1"}))
    seen = None if running else Observation(cost, cost, 12.0, feasible=True)
    state = TrialState.RUNNING if running else TrialState.SUCCEEDED
    row_of_run = Run(f"{study.owner}-0-1", 0, state=RunState.EXECUTING if running else RunState.DONE, cost=cost)
    trial = Trial(0, proposal, OFFER, state, "k", seen, attempts=1, spent=cost)
    token = store.hold(study.id, this_process(), 60.0)
    store.write(study.id, Change([trial], [row_of_run], {}), token)
    store.release(study.id, token)
    return study


class Once:
    """A method that raises once, and is itself afterwards.

    Args:
        patch: Puts it into its place.
        owner: Its class.
        name: Its name.
    """

    def __init__(self, patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.calls = 0
        original = getattr(owner, name)

        def method(this: Any, *given: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == 1:
                raise StoreError("the database is away")
            return original(this, *given, **named)

        patch.setattr(owner, name, method)


def test_a_wish_that_could_not_be_written_is_written_at_the_next_look(
    there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clusters(there, lab={}):
        row = asked(there)
        cluster_monitor = followed(there, row)
        cluster_monitor.look("run")
        once = Once(monkeypatch, ClusterStore, "want")
        with pytest.raises(StoreError):
            cluster_monitor.look("cancel")
        assert there.context.cluster.job(job_of(there, row)).wanted == "run"
        cluster_monitor.look("cancel")
        cluster_monitor.look("cancel")
        assert (once.calls, there.context.cluster.job(job_of(there, row)).wanted) == (2, "cancel")


def test_what_could_not_be_written_of_a_search_is_written_at_the_next_look(
    there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clusters(there, lab={}):
        row = asked(there)
        cluster_monitor = followed(there, row)
        cluster_monitor.look("run")
        study = begun(there, row, 0.25)
        Once(monkeypatch, ClaimStore, "change")
        with pytest.raises(StoreError):
            cluster_monitor.look("run")
        cluster_monitor.look("run")
        now = there.get(row)
        assert (now.study_id, now.state, now.cost, now.progress["trials"]) == (study.id, "executing", 0.25, 1)
        texts = [event.text for event in there.context.requests.events(there.ann, row.id)]
        assert len([text for text in texts if text.startswith("trial 0 succeeded")]) == 1


def test_what_the_best_trial_is_best_in_is_told_with_it(there: World) -> None:
    with clusters(there, lab={}):
        row = there.submit(search={"budget": {"trials": 2}, "objective": "runtime"}, cluster="lab")
        cluster_monitor = followed(there, row)
        cluster_monitor.look("run")
        begun(there, row, 254.0)
        cluster_monitor.look("run")
        now = there.get(row)
    assert (now.progress["metric"], now.progress["goal"]) == ("runtime", "minimise")
    best = view_request(now).best
    assert best is not None
    assert best.words == "4m 14s"


def test_trials_that_still_run_are_counted_and_told_of_once_each_has_ended(there: World) -> None:
    with clusters(there, lab={}):
        row = asked(there)
        first = followed(there, row)
        first.look("run")
        begun(there, row, 0.25, running=True)
        first.look("run")
        now = there.get(row)
        assert (now.progress["trials"], now.progress["told"]) == (1, 0)


def test_the_cost_of_the_last_trial_is_not_lost_with_the_last_write(
    there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clusters(there, lab={}):
        row = asked(there)
        cluster_monitor = followed(there, row)
        cluster_monitor.look("run")
        begun(there, row, 0.25)
        there.context.cluster.change_job(job_of(there, row), state="done", reason="enough", ended=2.0)
        Once(monkeypatch, ClaimStore, "change")
        with pytest.raises(StoreError):
            cluster_monitor.look("run")
        cluster_monitor.look("run")
        ended = there.get(row)
    assert cluster_monitor.over
    assert (ended.state, ended.cost, ended.reserved, ended.progress["trials"]) == ("done", 0.25, 0.0, 1)


def test_a_search_that_ends_while_it_is_cancelled_has_ended_well(there: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def want(self: ClusterStore, number: int, wanted: str) -> None:
        self.change_job(number, state="done", reason="enough", ended=2.0)
        raise InputError(f"search {number} is over: done")

    with clusters(there, lab={}):
        row = asked(there)
        cluster_monitor = followed(there, row)
        cluster_monitor.look("run")
        begun(there, row, 0.25)
        monkeypatch.setattr(ClusterStore, "want", want)
        cluster_monitor.look("cancel")
        ended = there.get(row)
    assert (ended.state, ended.problem, ended.hint) == ("done", "", "enough")


def test_the_hand_over_is_told_with_it_or_not_at_all(there: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with clusters(there, lab={}):
        row = asked(there)
        cluster_monitor = followed(there, row)
        Once(monkeypatch, ClaimStore, "change")
        with pytest.raises(StoreError):
            cluster_monitor.look("run")
        cluster_monitor.look("run")
        now = there.get(row)
        assert now.started is not None
        texts = [event.text for event in there.context.requests.events(there.ann, row.id)]
        assert f"handed over to the cluster lab as search {now.cluster_job}" in texts
        job = there.context.cluster.job(job_of(there, row))
        assert (job.cluster, len(there.context.cluster.jobs())) == ("lab", 1)


@pytest.mark.parametrize("wish", ["cancel", "delete"])
def test_a_request_for_a_cluster_that_was_stopped_for_good_ends(there: World, wish: str) -> None:
    there.context.cluster.set_tenant(TenantRow("physics", quota={"dollars": 8.0}))
    functions = there.context.requests
    with clusters(there, lab={}):
        pass
    with clusters(there, other={}), working(there.context):  # another one does not take what is for this one
        row = asked(there)
        eventually(lambda: there.get(row).progress.get("waiting") == "the cluster lab is not running")
        assert there.get(row).reserved > 0
        if wish == "delete":
            functions.delete(there.ann, row.id)
            eventually(lambda: row.id not in {one.id for one in functions.list(there.ann)})
        else:
            functions.cancel(there.ann, row.id)
            ended = there.ended(row)
            assert (ended.state, ended.problem, ended.reserved) == ("cancelled", "cancelled by its owner", 0.0)
        (job,) = there.context.cluster.jobs()
        assert (job.state, job.wanted) == ("cancelled", "cancel")
    assert functions.claims.queue_state("physics").spent == 0.0


def test_a_search_that_cannot_be_followed_is_cancelled(there: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would pay for what it spends: its request has ended."""
    with clusters(there, lab={}):
        row = asked(there)
        cluster_monitor = followed(there, row)
        cluster_monitor.look("run")
        monkeypatch.setattr(cluster_monitor, "_see", refuse)
        cluster_monitor.look("run")
    assert cluster_monitor.over
    assert there.get(row).problem == "it cannot be read"
    (job,) = there.context.cluster.jobs()
    assert job.wanted == "cancel"


def refuse(job: JobRow) -> None:
    raise InputError("it cannot be read")


def test_what_still_runs_on_a_cluster_that_nobody_runs_is_not_forgotten(there: World) -> None:
    row = None
    with clusters(there, lab={}):
        row = asked(there)
        cluster_monitor = followed(there, row)
        cluster_monitor.look("run")
        study = begun(there, row, 0.25, running=True)
    cluster_monitor.look("cancel")
    assert not cluster_monitor.over
    words = "the cluster lab is not running: what the search has left is ended when it is started"
    assert there.get(row).progress["waiting"] == words
    store = there.context.store
    (left,) = store.runs(study.id)
    token = store.hold(study.id, this_process(), 60.0)
    ended = Run(left.run_id, 0, state=RunState.CANCELLED, cost=0.5)
    store.write(study.id, Change([], [ended], {}), token)
    store.release(study.id, token)
    cluster_monitor.look("cancel")
    assert (there.get(row).state, there.get(row).cost) == ("cancelled", 0.5)


def test_retry_hands_a_search_over_once_more_with_its_study(there: World) -> None:
    with clusters(there, lab={}):
        row = asked(there)
        cluster_monitor = followed(there, row)
        cluster_monitor.look("run")
        study = begun(there, row, 0.25)
        first = job_of(there, row)
        there.context.cluster.change_job(first, state="failed", reason="its Core crashed", ended=2.0)
        cluster_monitor.look("run")
        failed = there.get(row)
        assert (failed.state, failed.problem) == ("failed", "its Core crashed")
        again = there.context.requests.retry(there.ann, row.id)
        assert (again.state, again.cluster_job, again.study_id) == ("pending", None, study.id)
        cluster_monitor = followed(there, row)
        cluster_monitor.look("run")
        job = there.context.cluster.job(job_of(there, row))
        assert job.id != first
        assert (job.state, job.study_id, job.cluster) == ("queued", study.id, "lab")
        now = there.get(row)
        assert (now.state, now.problem, now.cost, now.progress["trials"]) == ("pending", "", 0.25, 1)
        assert now.progress["waiting"] == "in the queue"
        there.context.cluster.change_job(job.id, state="done", reason="enough", ended=3.0)
        cluster_monitor.look("run")
        texts = [event.text for event in there.context.requests.events(there.ann, row.id)]
    assert there.get(row).state == "done"
    assert len([text for text in texts if text.startswith("trial 0 succeeded")]) == 1


def test_a_cluster_goes_on_with_a_study_that_it_is_given_once_more(
    there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(there.home))
    monkeypatch.setenv("TRADEWIND_STORE", there.url)
    with clusters(there, lab={}):
        row = there.submit(search={"budget": {"trials": 1}, "searcher": "exhaustive"}, cluster="lab")
        cluster_monitor = followed(there, row)
        cluster_monitor.look("run")
    words = ["cluster", "start", "--name", "lab", "--until-empty"]
    assert run(words) == 0
    there.context.cluster.change_job(job_of(there, row), state="failed", reason="its node was lost")
    cluster_monitor.look("run")
    failed = there.get(row)
    assert (failed.state, failed.progress["trials"], len(there.begun())) == ("failed", 1, 1)
    there.context.requests.retry(there.ann, row.id)
    cluster_monitor = followed(there, row)
    cluster_monitor.look("run")
    assert run(words) == 0
    cluster_monitor.look("run")
    ended = there.get(row)
    assert (ended.state, ended.hint, ended.study_id) == ("done", "the budget of 1 trial is used up", failed.study_id)
    assert len(there.begun()) == 1  # what was measured is not measured again


def test_simulated_runs_cost_a_request_nothing(there: World) -> None:
    with clusters(there, lab={}):
        row = asked(there)
        cluster_monitor = followed(there, row)
        cluster_monitor.look("run")
        begun(there, row, 0.25, runner="workflow")
        cluster_monitor.look("run")
        found = there.get(row)
        assert (found.progress["spent"], found.progress["simulated"], found.cost) == (0.25, True, 0.0)
