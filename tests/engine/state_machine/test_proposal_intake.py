"""Proposals become trials, each once."""

from __future__ import annotations

from tests.engine.state_machine.test_search_machine import tuning

from tradewind.engine.state_machine.events import PricedProposal
from tradewind.engine.state_machine.trial_history import ProposalIntake, TrialHistory
from tradewind.problem import Proposal, TrialState


def priced(place: int, *, sold: bool = True, repeat: bool = False) -> PricedProposal:
    problem = tuning()
    configuration = problem.candidates.configuration(place)
    offer = problem.candidates.offer(place) if sold else None
    proposal = Proposal(configuration, repeat=repeat)
    return PricedProposal(proposal, offer, configuration.key, reason="" if sold else "nobody sells it")


def test_each_configuration_becomes_one_trial() -> None:
    history, intake = TrialHistory(tuning().objective), ProposalIntake()
    first, second = intake.take([priced(0), priced(1), priced(0)], history, 5.0)
    assert (first.number, second.number) == (0, 1)
    assert first.state == TrialState.PENDING
    assert first.created == 5.0
    assert history.pending == [first, second]
    assert intake.take([priced(1)], history, 6.0) == []
    [again] = intake.take([priced(1, repeat=True)], history, 7.0)
    assert again.number == 2


def test_what_nobody_sells_has_failed() -> None:
    history = TrialHistory(tuning().objective)
    unsold, sold = ProposalIntake().take([priced(0, sold=False), priced(1)], history, 5.0)
    assert unsold.state == TrialState.FAILED
    assert unsold.observation is not None
    assert unsold.observation.reason == "nobody sells it"
    assert (unsold.number, sold.number) == (0, 1)


def test_a_searcher_that_repeats_itself_is_stuck() -> None:
    history, intake = TrialHistory(tuning().objective), ProposalIntake()
    intake.take([priced(0)], history, 0.0)
    intake.take([priced(0)] * 19, history, 0.0)
    intake.take([priced(1)], history, 0.0)
    assert not intake.stuck
    intake.take([priced(0)] * 20, history, 0.0)
    assert intake.stuck
