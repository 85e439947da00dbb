"""Ernest notices a job that ignores the share of the input, and takes none for one that only starts up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tradewind.problem import Configuration, Offer, Trial
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.searcher.ernest.input_scaling_check import InputScaling, TimedRun, check_input_scaling
from tradewind.searcher.ernest.searcher import ErnestSearcher
from tradewind.testing.problems import KnownOutcome, KnownProblem, evaluate, machine_parameters, make_problem

Time = Callable[[Configuration, Offer, float], float]

MONEY = 100.0


def searched(time: Time, *, types: int = 2, deadline: float) -> tuple[list[Trial], str]:
    """A search for a few dollars whose runs are cut at the deadline of the whole: its trials, and its last words."""
    problem: KnownProblem = make_problem(
        machine_parameters(types, (1, 2, 4, 8)),
        lambda c, o: KnownOutcome(time(c, o, 1.0)),
        scaling=time,
        deadline=deadline,
        dollars=MONEY,
    )
    searcher = ErnestSearcher(settings=ErnestSearcher.Settings(), problem=problem)
    trials: list[Trial] = []
    left = MONEY
    while not isinstance(answer := searcher.ask(SearchState([], len(trials), left)), NothingLeft):
        trials.append(evaluate(problem, answer[0], len(trials), abort_at_deadline=True))
        searcher.tell(trials[-1])
        left -= trials[-1].spent
        assert len(trials) < 200
    assert answer.final
    assert "\n" not in answer.reason
    return trials, answer.reason


def deaf(_configuration: Configuration, offer: Offer, _share: float) -> float:
    """A job that works on the whole input whatever its share is."""
    return 20.0 + {"compute": 1000.0, "general": 500.0, "memory": 800.0}[offer.category] / offer.nodes


def slow_start(work: float) -> Time:
    """A job whose start takes the rest of 100 s on 1.6 % of the input and eight cores."""

    def time(_configuration: Configuration, offer: Offer, share: float) -> float:
        return 100.0 - work + work * (share / 0.016) * 8.0 / (offer.vcpu * offer.nodes)

    return time


# ---------------------------------------------------------------------- the rule


def test_shares_that_differ_much_are_compared_whatever_else_is_known() -> None:
    runs = [TimedRun(0.016, 4, 100.0), TimedRun(0.05, 4, 103.0)]
    assert check_input_scaling(runs, "c5.large") == InputScaling(
        "on 4 x c5.large, 1.60% took 1m 40s and 5.00% took 1m 43s"
    )
    assert check_input_scaling([runs[0], TimedRun(0.05, 4, 106.0)], "c5.large") == InputScaling("")
    assert check_input_scaling([runs[0], TimedRun(0.05, 8, 106.0)], "c5.large") is None


def test_shares_that_hardly_differ_tell_only_where_machines_divide_the_work() -> None:
    near = [TimedRun(0.016, 8, 145.0), TimedRun(0.0217, 8, 145.0)]
    assert check_input_scaling(near, "c5.large") is None
    assert check_input_scaling([*near, TimedRun(0.016, 4, 150.0)], "c5.large") is None
    input_scaling = check_input_scaling([*near, TimedRun(0.016, 4, 270.0)], "c5.large")
    assert input_scaling is not None
    assert input_scaling.sure
    assert input_scaling.words == (
        "on 8 x c5.large, 1.60% took 2m 25s and 2.17% took 2m 25s, while 1.60% on 4 of them took 4m 30s"
    )
    assert check_input_scaling([near[0], TimedRun(0.0217, 8, 180.0), TimedRun(0.016, 4, 270.0)], "c5.large") is None
    input_scaling = check_input_scaling([*near, TimedRun(0.0217, 16, 82.0)], "c5.large")
    assert input_scaling is not None
    assert input_scaling.words.endswith("while 2.17% on 16 of them took 1m 22s")


def test_a_run_that_was_cut_short_took_at_least_so_long() -> None:
    near = [TimedRun(0.016, 8, 100.0), TimedRun(0.0217, 8, 100.0)]
    input_scaling = check_input_scaling([*near, TimedRun(0.0217, 4, 180.0, cut=True)], "c5.large")
    assert input_scaling is not None
    assert input_scaling.sure
    assert input_scaling.words.endswith("while 2.17% on 4 of them took more than 3m 00s")
    assert check_input_scaling([*near, TimedRun(0.016, 4, 105.0, cut=True)], "c5.large") is None, (
        "it may have taken no longer"
    )
    assert (
        check_input_scaling([near[0], TimedRun(0.0217, 8, 100.0, cut=True), TimedRun(0.016, 4, 180.0)], "c5.large")
        is None
    )
    flat = [TimedRun(0.016, 8, 100.0), TimedRun(0.025, 8, 101.0)]
    assert check_input_scaling([*flat, TimedRun(0.1, 8, 120.0, cut=True)], "c5.large") == InputScaling(""), (
        "the larger share took longer"
    )


def test_the_start_of_a_job_is_not_taken_for_work() -> None:
    """Runs that follow the model exactly are never called unmoved for shares that hardly differ."""
    for work in (1.0, 5.0, 10.0, 20.0, 50.0, 100.0):
        runs = [
            TimedRun(share, nodes, 100.0 - work + work * share / 0.016 * 8 / nodes + overhead * nodes)
            for nodes in (1, 2, 4, 8)
            for share in (0.016, 0.0217)
            for overhead in (0.0, 1.0)
        ]
        assert check_input_scaling(runs, "c5.large") is None


# ---------------------------------------------------------------------- searches


@pytest.mark.parametrize("deadline", [180.0, 420.0, 5000.0])
def test_a_job_that_ignores_the_share_is_noticed_where_runs_are_cut_at_the_deadline(deadline: float) -> None:
    """With 180 and 420 s those on few machines are cut short: one type has two shares that hardly differ, or none."""
    trials, words = searched(deaf, deadline=deadline)
    assert words.startswith("the job seems to ignore the share of the input: on ")
    assert "{{ fraction }}" in words
    assert all(trial.proposal.fidelity < 1.0 for trial in trials)


def test_one_type_is_enough_where_it_is_sure_and_no_other_is_seen() -> None:
    def time(configuration: Configuration, offer: Offer, share: float) -> float:
        return deaf(configuration, offer, share) if offer.category == "compute" else 1e6

    trials, words = searched(time, deadline=5000.0)
    assert "the job seems to ignore the share of the input" in words
    assert "least_fraction" not in words, "it is no start that takes all the time"
    assert all(trial.proposal.fidelity < 1.0 for trial in trials)


@pytest.mark.parametrize("deadline", [97.0, 104.0, 130.0, 200.0, 2000.0])
@pytest.mark.parametrize("work", [10.0, 20.0])
def test_a_job_that_starts_slowly_goes_on(work: float, deadline: float) -> None:
    """80 or 90 % of the time of its smallest run is start-up."""
    for types in (1, 2):
        _, words = searched(slow_start(work), types=types, deadline=deadline)
        assert "ignore the share" not in words


def test_a_job_that_only_starts_up_is_named_with_what_to_do_as_before() -> None:
    _, words = searched(slow_start(1.0), deadline=2000.0)
    assert "the job seems to ignore the share of the input" in words
    assert words.endswith("or raise least_fraction where the start of the job takes all the time")


def test_shares_that_all_reach_the_deadline_are_named() -> None:
    def time(_configuration: Configuration, _offer: Offer, share: float) -> float:
        return 50.0 + 1000.0 * share

    _, words = searched(time, deadline=40.0)
    assert "no instance type has enough training runs for a model: of " in words
    assert words.endswith(
        "; even 1.60% of the input reached the deadline of the whole: see that the command heeds {{ fraction }} "
        "(or TRADEWIND_FRACTION), or allow more time"
    )
