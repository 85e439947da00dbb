"""Rules that end a search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tradewind.engine.stopping import Progress, make_rules
from tradewind.problem import Configuration, Objective, Observation, Offer, Proposal, Trial, TrialState

OFFER = Offer("local", "x", 1, 1, 1.0)


def ended(number: int, cost: float, fidelity: float = 1.0) -> Trial:
    proposal = Proposal(Configuration({"x": number}), fidelity=fidelity)
    seen = Observation(cost, cost, cost * 3600, feasible=True)
    return Trial(number, proposal, OFFER, TrialState.SUCCEEDED, str(number), seen)


def said(those: list[Trial], **settings: object) -> str | None:
    rules = make_rules([("no_improvement", settings)])
    progress = Progress(Objective(), those, those[-1], 1.0)
    return next((reason for rule in rules if (reason := rule(progress))), None)


def test_runs_on_a_part_of_the_input_are_no_best_that_the_others_must_beat() -> None:
    whole = [ended(n, 2.0 - 0.1 * n) for n in range(1, 16)]
    assert said([ended(0, 0.1, 0.1), *whole]) is None
    assert said(whole) is None


def test_runs_on_a_part_of_the_input_are_no_trials_in_vain_either() -> None:
    parts = [ended(n, 0.5 + 0.1 * n, 0.1) for n in range(1, 6)]
    assert said([ended(0, 2.0), *parts], trials=3) is None
    assert said([ended(0, 2.0), *parts, *(ended(n, 2.0) for n in (6, 7, 8))], trials=3) == (
        "3 trials in a row improved nothing"
    )


class CountedTrials(list[Trial]):
    """Trials that count how many of them were read."""

    read = 0

    def __iter__(self) -> Iterator[Trial]:
        self.read += len(self)
        return super().__iter__()

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.read += len(found) if isinstance(place, slice) else 1
        return found


def test_a_rule_that_is_asked_at_each_trial_of_a_long_search_reads_each_of_them_once() -> None:
    rule = make_rules([("no_improvement", {"trials": 400})])[-1]
    trials = CountedTrials()
    for number in range(1000):
        trials.append(ended(number, 1.0 if number == 700 else 2.0))
        stops = rule(Progress(Objective(), trials, None, 1.0)) is not None
        assert stops == (400 <= number < 700)
    assert trials.read == 1000
