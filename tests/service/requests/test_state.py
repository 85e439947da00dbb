"""Who is next, which stage a request is in, and how it ends: pure functions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import QuotaError
from tradewind.problem import Configuration, Fault, Observation, Offer, Proposal, Run, RunState, Trial, TrialState
from tradewind.service.requests.state import (
    StageEntry,
    StageTracker,
    budget_share,
    check_money,
    describe_trial,
    outcome_of_run,
    outcome_of_search,
    request_allowance,
    trial_facts,
)
from tradewind.store.service.request_values import TenantQueueState

OFFER = Offer("local", "local.c1", 1.0, 1.0, 0.045)


def trial(state: TrialState, reason: str = "", *, feasible: bool = True) -> Trial:
    seen = Observation(0.5, 0.5, 12.0, feasible=feasible, reason=reason)
    return Trial(3, Proposal(Configuration({"nodes": 2})), OFFER, state, "k", seen, spent=0.5)


def run(state: RunState, fault: Fault | None = None, code: int | None = None) -> Run:
    return Run("tw-1-00003-1", 3, state=state, fault=fault, exit_code=code)


# ---------------------------------------------------------------------- money


def test_without_a_quota_a_request_may_cost_what_it_asks_for() -> None:
    assert request_allowance(TenantQueueState("a", 1)) == (0.0, "")
    assert request_allowance(TenantQueueState("a", 1, {"dollars": 2.0})) == (2.0, "")


def test_a_quota_of_money_is_shared_by_those_that_name_no_limit() -> None:
    assert request_allowance(TenantQueueState("a", 1, quota={"dollars": 8.0})) == (4.0, "")
    assert request_allowance(TenantQueueState("a", 1, quota={"dollars": 8.0}, spent=6.0)) == (1.0, "")
    # What an earlier attempt has cost is among what was spent, and in what it may cost in all.
    assert request_allowance(TenantQueueState("a", 1, cost=2.0, quota={"dollars": 8.0}, spent=6.0)) == (3.0, "")


def test_a_request_waits_for_money_with_a_reason() -> None:
    assert request_allowance(TenantQueueState("a", 1, quota={"dollars": 5.0}, spent=5.0))[1] == (
        "the quota of $5.00 of a is used up or set aside"
    )
    assert request_allowance(TenantQueueState("a", 1, {"dollars": 3.0}, quota={"dollars": 5.0}, spent=2.5))[1] == (
        "it may cost $3.00, and $2.50 are left of the quota of a"
    )
    assert request_allowance(TenantQueueState("a", 1, {"dollars": 2.5}, quota={"dollars": 5.0}, spent=2.5)) == (2.5, "")


def test_a_search_without_a_budget_is_named_as_what_stops_requests() -> None:
    line = TenantQueueState("a", 1, quota={"dollars": 5.0}, spent=math.inf)
    dollars, why = request_allowance(line)
    assert (dollars, why) == (
        0.0,
        "nothing can be set aside of the quota of $5.00 of a: one of its searches on clusters, which is not over, has "
        "no budget",
    )
    for asked in (0.0, 1.0):
        with pytest.raises(QuotaError, match="which is not over, has no budget") as caught:
            check_money(line, asked)
        assert "tradewind cancel" in str(caught.value.hint)
    assert request_allowance(TenantQueueState("a", 1, {"dollars": 1.0}, spent=math.inf)) == (1.0, ""), (
        "without a quota it does not matter"
    )


def test_a_request_waits_for_others_of_its_tenant_with_a_reason() -> None:
    dollars, why = request_allowance(TenantQueueState("a", 1, quota={"requests": 2}, running=2))
    assert dollars == 0.0
    assert why == "a has 2 requests carried out at present, as many as its quota allows"
    assert request_allowance(TenantQueueState("a", 1, quota={"requests": 2}, running=1)) == (0.0, "")


@pytest.mark.slow
@given(
    quota=st.floats(0.01, 1e4),
    spent=st.floats(0, 1e4),
    cost=st.floats(0, 1e3),
    asked=st.one_of(st.just(0.0), st.floats(0.01, 1e4)),
)
def test_nobody_may_cost_more_than_is_left(quota: float, spent: float, cost: float, asked: float) -> None:
    spent = max(spent, cost)
    most, why = request_allowance(
        TenantQueueState("a", 1, {"dollars": asked} if asked else {}, cost, quota={"dollars": quota}, spent=spent)
    )
    if why:
        assert most == 0.0
    else:
        assert most - cost <= quota - spent + 1e-9
        assert most > 0


# ---------------------------------------------------------------------- stages

STAGES = ["booting", "bootstrapping", "submitting", "executing", "collecting"]


def test_each_stage_is_told_once_with_its_time() -> None:
    course = StageTracker("pending")
    remarks = [remark for n, stage in enumerate(STAGES) for remark in course.take(StageEntry("r-1", stage, float(n)))]
    assert [(remark.stage, remark.at, remark.details) for remark in remarks] == [
        (stage, float(n), {"run": "r-1"}) for n, stage in enumerate(STAGES)
    ]
    assert course.state == "collecting"
    assert course.take(StageEntry("r-1", "executing", 9.0)) == []


def test_what_an_earlier_process_told_is_not_told_again() -> None:
    course = StageTracker("executing", ["r-1"])
    assert course.take(StageEntry("r-1", "executing", 1.0)) == []
    assert [remark.stage for remark in course.take(StageEntry("r-1", "collecting", 2.0))] == ["collecting"]


def test_another_attempt_goes_through_the_stages_once_more() -> None:
    course = StageTracker("executing", ["r-1"])
    again = [remark for stage in STAGES for remark in course.take(StageEntry("r-2", stage, 1.0))]
    assert [remark.stage for remark in again] == STAGES
    assert again[0].text.endswith("once more")
    assert not again[1].text.endswith("once more")


# ---------------------------------------------------------------------- ends


@pytest.mark.parametrize(
    ("state", "run_state", "fault", "code", "reason", "ended", "hint"),
    [
        (TrialState.SUCCEEDED, RunState.DONE, None, 0, "", "done", ""),
        (TrialState.ABORTED, RunState.TIMED_OUT, Fault.JOB, None, "its time limit", "timed_out", "more time"),
        (TrialState.LOST, RunState.PREEMPTED, Fault.INFRASTRUCTURE, None, "gone", "preempted", "retry"),
        (TrialState.LOST, RunState.FAILED, Fault.INFRASTRUCTURE, None, "no machines", "failed", "retry"),
        (TrialState.FAILED, RunState.FAILED, Fault.JOB, 1, "the program exited", "failed", "stderr"),
        (TrialState.FAILED, RunState.FAILED, Fault.JOB, -9, "out of memory: ...", "failed", "more memory"),
        (
            TrialState.FAILED,
            RunState.FAILED,
            Fault.JOB,
            127,
            "there is no program",
            "failed",
            "do not have this program",
        ),
        (TrialState.FAILED, RunState.DONE, None, 0, "the output has no metric", "failed", "its log shows"),
    ],
)
def test_a_run_s_end_is_the_request_s(
    state: TrialState, run_state: RunState, fault: Fault | None, code: int | None, reason: str, ended: str, hint: str
) -> None:
    found = outcome_of_run(trial(state, reason), run(run_state, fault, code))
    assert (found.state, found.problem) == (ended, reason)
    assert hint in found.hint


def test_a_run_that_broke_a_bound_has_ended_all_the_same() -> None:
    found = outcome_of_run(trial(TrialState.SUCCEEDED, "runtime 12 > 10", feasible=False), run(RunState.DONE))
    assert found.state == "done"
    assert found.problem == "it ran, but broke a bound: runtime 12 > 10"


def test_a_search_ends_with_what_it_found() -> None:
    assert outcome_of_search("the budget is used up", 5, found=True).state == "done"
    nothing = outcome_of_search("the budget of $0.01 does not pay a single run", 0, found=False)
    assert (nothing.state, "larger budget" in nothing.hint) == ("failed", True)
    assert outcome_of_search("the budget is used up", 5, found=False).problem.startswith(
        "none of 5 trials kept every bound"
    )


# ---------------------------------------------------------------------- figures


def test_trials_are_told_in_one_line_and_as_facts() -> None:
    assert describe_trial(trial(TrialState.SUCCEEDED)) == "trial 3 succeeded: nodes=2 (12.0 s, $0.500)"
    assert describe_trial(trial(TrialState.SUCCEEDED), "cost") == describe_trial(trial(TrialState.SUCCEEDED))
    assert "nodes=2 (rate " in describe_trial(trial(TrialState.SUCCEEDED), "rate")
    facts = trial_facts(trial(TrialState.FAILED, "why"))
    assert facts is not None
    assert (facts["trial"], facts["runtime"], facts["configuration"]) == (3, 12.0, {"nodes": 2})
    assert trial_facts(None) is None


def test_the_share_of_a_budget_is_the_largest_one() -> None:
    assert budget_share(1.0, {"dollars": 4.0, "hours": None, "trials": None}, 3, 60.0) == 0.25
    assert budget_share(1.0, {"dollars": 4.0, "hours": 1.0, "trials": 4}, 3, 60.0) == 0.75
    assert budget_share(9.0, {"dollars": 4.0}, 3, 60.0) == 1.0
    assert budget_share(1.0, {}, 3, 60.0) is None
