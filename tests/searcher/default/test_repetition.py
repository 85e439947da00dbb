"""Repetitions of the default searcher."""

from __future__ import annotations

import numpy as np
import pytest

from tradewind import plugins
from tradewind.problem import (
    Billing,
    Configuration,
    Constraints,
    Instance,
    Objective,
    Offer,
    Proposal,
    Threshold,
    Trial,
)
from tradewind.problem.ranking import ConfigurationRanking, MeasuredRun
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.searcher.default import TradewindSearcher
from tradewind.searcher.default.searcher import bill_elasticities, repetition_gains
from tradewind.testing import problems
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive, evaluate, pending


def standing(*losses: list[float], deadline: float | None = None) -> ConfigurationRanking:
    measured, number = [], 0
    for place, own in enumerate(losses):
        for loss in own:
            measured.append(MeasuredRun(number, str(place), loss, 100.0 * loss, True))
            number += 1
    return ConfigurationRanking(measured, Objective(), Constraints(deadline))


def gain(of: ConfigurationRanking) -> list[float]:
    found: list[float] = repetition_gains(of, of.times, np.ones(len(of.times))).tolist()
    return found


def searcher_of(problem: KnownProblem, **settings: object) -> TradewindSearcher:
    made = plugins.create("searcher", "tradewind", settings, problem=problem, seed=1)
    assert isinstance(made, TradewindSearcher)
    return made


def again(trials: list[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.proposal.repeat]


def test_near_rivals_are_worth_more_than_far_ones() -> None:
    found = gain(standing([1.0, 1.1], [1.07], [1.15], [3.0]))
    assert found[1] > found[2] > found[3] >= 0.0
    assert found[0] > found[2]


def test_the_gain_is_that_of_the_definition() -> None:
    """Against draws: what the better of two is expected to cost after one more run of the first."""
    of = standing([1.0, 1.2], [1.12])
    assert of.spread is not None
    rng = np.random.default_rng(0)
    step = of.spread * np.sqrt(1.0 / 2.0 - 1.0 / 3.0)
    after = np.minimum(1.1 * np.exp(step * rng.standard_normal(400_000)), 1.12).mean()
    assert gain(of)[0] == pytest.approx(1.1 - after, rel=0.05)


def test_it_falls_with_every_run() -> None:
    of = standing([1.0, 1.1], [1.06])
    values = [float(repetition_gains(of, np.array([n, 1.0]), np.ones(2))[0]) for n in (1.0, 2.0, 4.0, 8.0)]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.5 * values[0]


def test_alone_there_is_nothing_to_choose() -> None:
    assert gain(standing([1.0, 1.1])) == [0.0]


@pytest.mark.parametrize("spread", [None, 0.0, 0.05, 0.2])
@pytest.mark.parametrize(
    ("billing", "moved"),
    [
        (Billing(granularity_seconds=0.001), 1.0),
        (Billing(setup_seconds=100.0, granularity_seconds=0.001), 0.5),
        (Billing(minimum_seconds=600.0), 0.0),
        (Billing(granularity_seconds=3600.0), 0.0),
    ],
)
def test_a_bill_moves_with_time_as_far_as_it_is_billed(billing: Billing, moved: float, spread: float | None) -> None:
    found = bill_elasticities(billing, np.array([100.0]), np.array([36.0]), spread)
    assert found == pytest.approx([moved], abs=0.01)


@pytest.mark.slow
def test_where_runs_do_not_vary_one_repetition_is_all() -> None:
    problem = problems.flat_problem()
    trials = drive(searcher_of(problem), problem, 200)
    assert len(again(trials)) == 1
    assert len(trials) - len(again(trials)) == len(problem.candidates)


def test_what_would_be_cut_short_is_not_run_again() -> None:
    """A machine that is late and half as dear ran to its end once: a second run would be cut, and shows nothing."""
    sold = {name: Offer("t", name, 1, 1.0, price) for name, price in (("slow", 1.0), ("quick", 6.0), ("dear", 8.0))}
    seconds = {"slow": 240.0, "quick": 80.0, "dear": 80.0}
    problem = problems.make_problem(
        [Instance(name="type", values=tuple(sold), offers=sold)],
        lambda configuration, _offer: KnownOutcome(seconds[str(configuration["type"])]),
        deadline=100.0,
    )
    searcher = searcher_of(problem)
    for number in range(len(sold)):
        searcher.tell(evaluate(problem, Proposal(problem.candidates.configuration(number)), number))
    ran: list[Trial] = []
    while not isinstance(answer := searcher.ask(SearchState((), 3 + len(ran), None, 100)), NothingLeft):
        ran.append(evaluate(problem, answer[0], 3 + len(ran)))
        searcher.tell(ran[-1])
    assert [trial.configuration["type"] for trial in ran] == ["quick"]
    assert answer.final


@pytest.mark.thorough
@pytest.mark.slow
def test_where_they_vary_the_best_are_run_again() -> None:
    problem = problems.make_problem(
        problems.machine_parameters(8, (1, 2, 4)),
        lambda _c, offer: problems.KnownOutcome(3600.0 / (offer.vcpu * offer.nodes) ** 0.9),
        deadline=900.0,
        noise=0.1,
    )
    trials = drive(searcher_of(problem), problem, 60)
    repeated = again(trials)
    assert len(repeated) >= 3
    by_key = {key: sum(trial.key == key for trial in trials) for key in {trial.key for trial in repeated}}
    assert max(by_key.values()) <= 10
    value = {trial.key: problem.value(trial.configuration) for trial in trials}
    known = sorted(v for v in value.values() if v is not None)
    of_repeated = [v for trial in repeated if (v := value[trial.key]) is not None]
    # Money goes into telling the good ones apart, not into the others.
    assert known[-1] > 1.4 * known[0]
    assert sum(v <= 1.2 * known[0] for v in of_repeated) >= 0.8 * len(of_repeated)
    assert not again(drive(searcher_of(problem, repeats=1), problem, 60))


@pytest.mark.slow
def test_the_second_run_is_awaited_before_a_third() -> None:
    problem = problems.flat_problem()
    searcher = searcher_of(problem)
    trials = drive(searcher_of(problem, repeats=1), problem, 200)
    for trial in trials:
        searcher.tell(trial)
    answer = searcher.ask(SearchState(proposed=len(trials)))
    assert not isinstance(answer, NothingLeft)
    assert answer[0].repeat
    assert str(answer[0].why["stage"]) == "run 2 of this configuration"
    running = [pending(problem, answer[0], len(trials))]
    waiting = searcher.ask(SearchState(running, proposed=len(trials) + 1))
    assert isinstance(waiting, NothingLeft)
    assert not waiting.final


@pytest.mark.slow
def test_no_repetition_beyond_the_money() -> None:
    problem = problems.flat_problem()
    searcher = searcher_of(problem)
    for trial in drive(searcher_of(problem, repeats=1), problem, 200):
        searcher.tell(trial)
    assert not isinstance(searcher.ask(SearchState(proposed=60)), NothingLeft)
    assert isinstance(searcher.ask(SearchState(proposed=60, money_left=1e-9)), NothingLeft)


@pytest.mark.slow
def test_a_repetition_must_be_worth_its_money() -> None:
    few = problems.table_problem(noise=0.1, future_runs=1, cliff="none")
    trials = drive(searcher_of(few), few, 60)
    assert len(trials) < 60
    assert not again(trials)


def scored(scores: dict[str, list[float]]) -> KnownProblem:
    """A score to be maximised that is drawn anew in each run; the time never changes."""
    sold = {name: Offer("t", name, 1, 1.0, 1.0) for name in scores}
    rng = np.random.default_rng(3)

    def outcome(configuration: Configuration, _offer: Offer) -> KnownOutcome:
        low, high = scores[str(configuration["type"])]
        return KnownOutcome(100.0, metrics={"score": float(rng.uniform(low, high))})

    return problems.make_problem(
        [Instance(name="type", values=tuple(sold), offers=sold)],
        outcome,
        objective=Objective("score", "maximise"),
    )


def test_a_score_that_varies_is_measured_again_as_a_cost_is() -> None:
    problem = scored({"a": [95.0, 105.0], "b": [94.0, 104.0], "far": [10.0, 11.0]})
    trials = drive(searcher_of(problem), problem, 16)
    repeated = [str(trial.configuration["type"]) for trial in again(trials)]
    assert len(repeated) >= 3
    assert set(repeated) == {"a", "b"}, "what is far off is not worth another run"


def test_a_score_that_repeats_exactly_is_measured_twice_at_most() -> None:
    problem = scored({"a": [100.0, 100.0], "b": [99.9, 99.9], "c": [50.0, 50.0]})
    assert len(again(drive(searcher_of(problem), problem, 16))) <= 1


def test_a_bounded_metric_that_varies_is_worth_runs_too() -> None:
    """The scores are exact; whether the first has too many errors on average is not known from three runs."""
    bound = Constraints(thresholds=(Threshold("errors", at_most=10.0),))
    errors = {"a": [8.0, 11.0, 10.5], "b": [2.0, 2.0, 3.0]}
    measured = [
        MeasuredRun(3 * place + i, key, -100.0 + 20.0 * place, 60.0, value <= 10.0, figures=(value,))
        for place, (key, own) in enumerate(errors.items())
        for i, value in enumerate(own)
    ]
    of = ConfigurationRanking(measured, Objective("score", "maximise"), bound)
    assert of.worth_repeating
    found = repetition_gains(of, of.times, np.zeros(2))
    assert found[0] > 1.0
    assert found[0] > 10.0 * found[1]
