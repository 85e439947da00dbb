"""Retry of searches whose study is finished: it is looked at anew whether there is more to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.service.requests.request_world import working, world

from tradewind.deployer.provisioner.simulated import SimulatedProvisioner


@pytest.mark.slow
def test_a_search_that_ended_because_everything_was_lost_goes_on_when_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [True]
    monkeypatch.setattr(SimulatedProvisioner, "_chance", lambda *_: 0.0 if broken[0] else 1.0)
    with world(tmp_path) as there, working(there.context):
        deploy = {"runner": "process", "provisioner": {"use": "simulated", "boot": 0, "failures": 0.5}, "retries": 0}
        there.context.backends.set(there.root, "cloud", {"deploy": deploy, "offers": {"provider": "local"}})
        row = there.submit(backend="cloud", search={"budget": {"trials": 10}, "searcher": "random"})
        ended = there.ended(row)
        assert (ended.state, ended.progress["trials"], there.begun()) == ("failed", 8, [])
        assert "8 trials in a row were lost" in ended.problem
        broken[0] = False
        there.context.requests.retry(there.ann, row.id)
        again = there.ended(row)
    assert (again.state, again.study_id) == ("done", ended.study_id)
    assert again.progress["trials"] > 8
    assert again.started is not None
    assert ended.ended is not None
    assert again.started >= ended.ended
    assert there.begun()
    assert "again" not in again.plan
    assert again.cost > ended.cost


@pytest.mark.slow
def test_a_search_whose_budget_is_used_up_ends_as_it_did(tmp_path: Path) -> None:
    with world(tmp_path) as there, working(there.context):
        row = there.submit(parameters={"code": 3}, search={"budget": {"trials": 2}})
        ended = there.ended(row)
        assert ended.problem == "none of 2 trials kept every bound: the budget of 2 trials is used up"
        there.context.requests.retry(there.ann, row.id)
        assert there.get(row).started is None, "the days in between are no time that it took"
        again = there.ended(row)
        assert len(there.begun()) == 2
    assert (again.state, again.problem, again.cost) == (ended.state, ended.problem, ended.cost)
