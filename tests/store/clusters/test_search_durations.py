"""How long earlier searches of a cluster took, in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from tradewind import plugins
from tradewind.problem import Configuration, Observation, Offer, Proposal, Trial, TrialState
from tradewind.store.base import Change, Store, StudyRow
from tradewind.store.clusters.cluster_store import ClusterStore, JobRow, SearchDuration


@pytest.fixture(params=["sqlite_url", "postgresql_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def clusters(url: str) -> Iterator[ClusterStore]:
    with closing(ClusterStore(url)) as opened:
        yield opened


@pytest.fixture
def studies(url: str) -> Iterator[Store]:
    with closing(plugins.create("store", "sql", {}, url=url)) as opened:
        yield opened


def row(name: str = "train", target: float | None = 0.5, tenant: str = "A", **inner: Any) -> JobRow:
    usual = {"searcher": {"use": "random"}, "space": {"x": 1}, "budget": {"trials": 40}, "job": {"command": ["train"]}}
    spec = {"job": {**usual, **inner}, "parallel": 1}
    return JobRow(0, tenant, name, spec, {"target": target})


def over(clusters: ClusterStore, studies: Store, job: JobRow, *seconds: float, state: str = "done") -> JobRow:
    """A search that has got results after so many seconds each, and has one more trial without any."""
    study = studies.create_study(StudyRow(0, f"{job.tenant}/{job.name}", "k", {}, 1.0, owner="tw-1")).id
    trials = []
    for number, took in enumerate([*seconds, None]):
        chosen = Configuration({"x": number})
        offer = Offer("aws", "c5.large", 2, 4, 0.5)
        seen = None if took is None else Observation(1.0, feasible=True, cost=0.1, runtime=took)
        done = TrialState.LOST if took is None else TrialState.SUCCEEDED
        trials.append(Trial(number, Proposal(chosen), offer, done, chosen.key, observation=seen))
    studies.write(study, Change(trials))
    kept = clusters.submit(replace(job, study_id=study))
    return clusters.change_job(kept.id, state=state)


@pytest.mark.slow
def test_those_like_it_count_that_came_to_their_end(clusters: ClusterStore, studies: Store) -> None:
    over(clusters, studies, row(), 10.0, 20.0)
    over(clusters, studies, row(), 5.0)
    over(clusters, studies, row(), 1.0, state="cancelled")
    over(clusters, studies, row())
    asked = clusters.submit(row())
    assert clusters.durations(asked) == [SearchDuration(1, 5.0), SearchDuration(2, 30.0)], (
        "the newest first; one had no result"
    )
    assert clusters.durations(asked, most=2) == [SearchDuration(1, 5.0)], "of the two newest"


OTHERS = [
    row(name="test"),
    row(tenant="B"),
    row(target=0.4),
    row(searcher={"use": "gp"}),
    row(space={"x": 2}),
    row(budget={"trials": 41}),
    row(stop=[{"use": "target", "value": 3}]),
    row(objective={"minimise": "loss"}),
    row(constraints={"deadline": 3}),
    row(budget={"trials": 40, "dollars": 1.0}),
    row(where=["x > 3"]),
    row(offers={"vcpu": [1, 2]}),
    row(job={"command": ["other"]}),
    row(job={"command": ["train"], "parameters": {"size": 4000}}),
]
"""Searches that differ from the first one, in one thing each."""


@pytest.mark.slow
def test_others_do_not(clusters: ClusterStore, studies: Store) -> None:
    for other in OTHERS:
        over(clusters, studies, other, 10.0, 20.0)
    assert clusters.durations(clusters.submit(row())) == []
    for other in OTHERS:
        assert clusters.durations(clusters.submit(other)) == [SearchDuration(2, 30.0)], other


@pytest.mark.slow
def test_how_it_is_run_is_no_difference(clusters: ClusterStore, studies: Store) -> None:
    over(clusters, studies, row(parallel=4, seed=7, deploy={"retries": 1}), 10.0)
    assert clusters.durations(clusters.submit(row())) == [SearchDuration(1, 10.0)]
