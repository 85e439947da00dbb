"""What the deployer is asked to do for a trial."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tradewind.engine.deployment import for_tenant, run_request_factory
from tradewind.problem import Configuration, Limits, Offer, Proposal, Run, TenantShare, Trial, TrialState
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.store.base import StudyRow

JOB = "name: j\njob: {{command: [run]}}\nspace: {{x: 1..3}}\ndeploy: {deploy}\n"
DAY = 86400.0


@pytest.mark.parametrize(
    ("deploy", "wall", "seconds", "asked"),
    [
        ("{}", None, 7 * DAY, False),
        ("{}", 60.0, 60.0, True),
        ("{}", 30 * DAY, 7 * DAY, False),
        ("{longest: 4h}", None, 4 * 3600.0, True),
        ("{longest: 4h}", 60.0, 60.0, True),
        ("{longest: 7d}", None, 7 * DAY, True),
    ],
)
def test_a_time_limit_is_asked_for_or_only_a_guard(
    deploy: str, wall: float | None, seconds: float, asked: bool, tmp_path: Path
) -> None:
    spec = parse_spec(JOB.format(deploy=deploy), base=tmp_path)
    study = StudyRow(1, "j", "key", {}, 0.0, owner="owner")
    trial = Trial(0, Proposal(Configuration({"x": 1})), Offer("p", "t", 1, 1, 0.1), TrialState.RUNNING, "k")
    request = run_request_factory(spec, study, tmp_path, lambda: 100.0)(trial, Run("owner-00000-1", 0), wall)
    assert isinstance(request.limits, Limits)
    assert (request.limits.wall_seconds, request.limits.asked) == (seconds, asked)
    assert request.expires == 100.0 + seconds + 3600.0


def test_a_run_is_its_tenants_with_the_weight_of_then(tmp_path: Path) -> None:
    spec = parse_spec(JOB.format(deploy="{}"), base=tmp_path)
    study = StudyRow(1, "j", "key", {}, 0.0, owner="owner")
    trial = Trial(0, Proposal(Configuration({"x": 1})), Offer("p", "t", 1, 1, 0.1), TrialState.RUNNING, "k")
    weights = iter([2.0, 5.0])
    make = run_request_factory(spec, study, tmp_path, lambda: 100.0)
    make_for = for_tenant(make, "physics", lambda: next(weights))
    made = [factory(trial, Run("owner-00000-1", 0), None).tenant for factory in (make, make_for, make_for)]
    assert made == [None, TenantShare("physics", 2.0), TenantShare("physics", 5.0)]


def test_only_this_user_may_enter_the_folders_of_runs_and_checkpoints(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        for deploy in ("{}", "{checkpoint: 1m}"):
            spec = parse_spec(JOB.format(deploy=deploy), base=tmp_path)
            study = StudyRow(1, "j", "key", {}, 0.0, owner="owner")
            trial = Trial(0, Proposal(Configuration({"x": 1})), Offer("p", "t", 1, 1, 0.1), TrialState.RUNNING, "k")
            request = run_request_factory(spec, study, tmp_path, lambda: 100.0)(trial, Run("owner-00000-1", 0), None)
    finally:
        os.umask(before)
    assert request.checkpoint is not None
    for folder in (request.folder.parent, request.checkpoint.folder.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
