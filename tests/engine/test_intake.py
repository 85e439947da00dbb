"""Proposals become trials, each once."""

from __future__ import annotations

from tests.engine.test_state import tuning

from tradewind.engine.book import TrialBook
from tradewind.engine.events import Priced
from tradewind.engine.intake import Intake
from tradewind.problem import Proposal, TrialState


def priced(place: int, *, sold: bool = True, repeat: bool = False) -> Priced:
    problem = tuning()
    configuration = problem.candidates.configuration(place)
    offer = problem.candidates.offer(place) if sold else None
    proposal = Proposal(configuration, repeat=repeat)
    return Priced(proposal, offer, configuration.key, reason="" if sold else "nobody sells it")


def test_each_configuration_becomes_one_trial() -> None:
    book, intake = TrialBook(tuning().objective), Intake()
    first, second = intake.take([priced(0), priced(1), priced(0)], book, 5.0)
    assert (first.number, second.number) == (0, 1)
    assert first.state == TrialState.PENDING
    assert first.created == 5.0
    assert book.pending == [first, second]
    assert intake.take([priced(1)], book, 6.0) == []
    [again] = intake.take([priced(1, repeat=True)], book, 7.0)
    assert again.number == 2


def test_what_nobody_sells_has_failed() -> None:
    book = TrialBook(tuning().objective)
    unsold, sold = Intake().take([priced(0, sold=False), priced(1)], book, 5.0)
    assert unsold.state == TrialState.FAILED
    assert unsold.observation is not None
    assert unsold.observation.reason == "nobody sells it"
    assert (unsold.number, sold.number) == (0, 1)


def test_a_searcher_that_repeats_itself_is_stuck() -> None:
    book, intake = TrialBook(tuning().objective), Intake()
    intake.take([priced(0)], book, 0.0)
    intake.take([priced(0)] * 19, book, 0.0)
    intake.take([priced(1)], book, 0.0)
    assert not intake.stuck
    intake.take([priced(0)] * 20, book, 0.0)
    assert intake.stuck
