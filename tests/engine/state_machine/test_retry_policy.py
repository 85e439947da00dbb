"""Runs that the infrastructure lost are tried again, so often."""

from __future__ import annotations

import pytest

from tradewind.engine.state_machine.retry_policy import RetryTracker
from tradewind.engine.state_machine.search_policy import SearchPolicy
from tradewind.problem import Fault, Offer, Run, RunState, Trial, TrialState

HERE = Offer("aws", "m5.large", 2, 8, 0.10, region="us-east-1")


def lost(trial: int = 0) -> Run:
    return Run(
        f"r{trial}", trial, state=RunState.FAILED, fault=Fault.INFRASTRUCTURE, cost=0.2, reason="no power", ended=9.0
    )


def trial(number: int = 0) -> Trial:
    return Trial(number, None, HERE, TrialState.RUNNING, "k")  # type: ignore[arg-type]


def test_a_trial_is_tried_again_so_often_those_of_earlier_sessions_counted() -> None:
    losses = RetryTracker(SearchPolicy("me", retries=2))
    losses.note(lost())
    assert losses.again(lost(), trial()) == trial()
    assert losses.again(lost(), trial()) is None
    assert losses.again(lost(1), trial(1)) == trial(1)


def test_what_is_lost_is_paid_and_teaches_nothing() -> None:
    gone = RetryTracker(SearchPolicy("me")).lost(lost(), trial())
    assert gone.state == TrialState.LOST
    assert gone.observation is not None
    assert (gone.observation.objective, gone.observation.cost, gone.ended) == (None, 0.2, 9.0)


def test_many_in_a_row_end_the_search() -> None:
    losses = RetryTracker(SearchPolicy("me"))
    for number in range(7):
        losses.lost(lost(number), trial(number))
    assert losses.why_over(lost()) == ("", "")
    losses.ended()
    for number in range(8):
        losses.lost(lost(number), trial(number))
    words = "8 trials in a row were lost, the last one: no power"
    assert losses.why_over(lost()) == (words, words)


@pytest.mark.parametrize("fault", [Fault.CREDENTIALS, Fault.PREREQUISITE])
def test_what_no_configuration_can_mend_is_tried_neither_again_nor_with_others(fault: Fault) -> None:
    losses = RetryTracker(SearchPolicy("me", retries=5))
    run = Run("r0", 0, state=RunState.FAILED, fault=fault, reason="the token has expired", ended=9.0)
    assert losses.again(run, trial()) is None
    assert losses.lost(run, trial()).state == TrialState.LOST
    reason = "the token has expired; the same command goes on once that is mended"
    assert losses.why_over(run) == (reason, "the token has expired")
