"""CherryPick, beyond the conformance suite."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tradewind import plugins
from tradewind.problem import Billing, Instance, Nodes, Offer, Ordinal, Problem, Proposal, Trial, TrialState
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.searcher.cherrypick import CherryPickSearcher
from tradewind.searcher.cherrypick.encoding import ClusterEncoding
from tradewind.searcher.cherrypick.posterior import _truncated_mean
from tradewind.searcher.cherrypick.sampled_process import SampledProcess, SampledProcessPriors, slice_sample
from tradewind.searcher.cherrypick.searcher import nearest_to_sobol
from tradewind.testing import problems
from tradewind.testing.problems import KnownProblem, drive, evaluate, make_problem, pending


def make(problem: Problem, seed: int = 0, **settings: Any) -> CherryPickSearcher:
    made = plugins.create("searcher", "cherrypick", settings, problem=problem, seed=seed)
    assert isinstance(made, CherryPickSearcher)
    return made


def told(problem: KnownProblem, count: int, **settings: Any) -> tuple[CherryPickSearcher, list[Trial]]:
    searcher = make(problem, 1, stop=False, **settings)
    return searcher, drive(searcher, problem, count)


# ---------------------------------------------------------------------- slice sampling and the process


@pytest.mark.slow
def test_slice_sampling_draws_from_the_density() -> None:
    """400 chains on a product of two beta densities end with its means, deviations and quantiles."""

    def density(points: Any) -> Any:
        return stats.beta(4, 2).logpdf(points[:, 0]) + stats.beta(1.5, 5).logpdf(points[:, 1])

    rng = np.random.default_rng(1)
    ends = slice_sample(density, rng.random((400, 2)), 40, rng)
    for column, wanted in zip(ends.T, (stats.beta(4, 2), stats.beta(1.5, 5)), strict=True):
        assert stats.kstest(column, wanted.cdf).pvalue > 0.01


def test_a_chain_that_starts_outside_the_bulk_reaches_it() -> None:
    ends = slice_sample(
        lambda p: -0.5 * ((p[:, 0] - 0.7) / 0.01) ** 2, np.full((50, 1), 0.05), 60, np.random.default_rng(2)
    )
    assert abs(float(ends.mean()) - 0.7) < 0.01
    assert 0.005 < float(ends.std()) < 0.02


def test_priors_are_those_of_the_paper() -> None:
    unit = np.random.default_rng(3).random((20_000, 4))
    noise, amplitude, length = SampledProcessPriors().values(unit)
    assert length.min() > 0
    assert length.max() < 2
    assert abs(float(length.mean()) - 1.0) < 0.02
    assert abs(float((0.5 * np.log(amplitude)).std()) - 1.0) < 0.02  # log-normal, 1
    # Horseshoe by its bound: the density falls as ln(1 + (0.1/x)²).
    low, high = (float(((noise > a) & (noise <= b)).mean()) for a, b in ((0.0, 0.1), (0.1, 0.2)))

    def mass(a: float, b: float) -> float:
        x = np.linspace(a, b, 200_001)[1:]
        return float(np.log1p((0.1 / x) ** 2).mean() * (b - a) / (0.1 * math.pi))

    assert abs(low - mass(0.0, 0.1)) < 0.02
    assert abs(high - mass(0.1, 0.2)) < 0.02


def test_the_likelihood_is_that_of_a_normal() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.random((9, 3)), rng.standard_normal(9)
    process = SampledProcess(x, y, np.random.default_rng(5), samples=3, burn_in=5)
    rows, columns = np.tril_indices(9, -1)
    unit = rng.random((6, 5))
    got = process._likelihood(unit, (x[rows] - x[columns]) ** 2, y)
    noise, amplitude, length = process.priors.values(unit)
    for i in range(6):
        r = math.sqrt(5) * np.sqrt((((x[:, None] - x[None]) / length[i]) ** 2).sum(axis=2))
        kernel = amplitude[i] * (1 + r + r * r / 3) * np.exp(-r) + 1.0 + noise[i] * np.eye(9)
        wanted = stats.multivariate_normal(np.zeros(9), kernel).logpdf(y) + 4.5 * math.log(2 * math.pi)
        assert got[i] == pytest.approx(wanted, rel=1e-5, abs=1e-5)


@pytest.mark.slow
def test_the_process_learns_a_function_and_knows_what_it_knows() -> None:
    rng = np.random.default_rng(6)
    x = rng.random((25, 2))
    process = SampledProcess(x, 5.0 + 3.0 * np.sin(4 * x[:, 0]), np.random.default_rng(7))
    near = rng.random((200, 2))
    mean, sd = process.predict(near)
    assert mean.shape == sd.shape == (10, 200)
    assert np.abs(mean.mean(axis=0) - 5.0 - 3.0 * np.sin(4 * near[:, 0])).mean() < 0.15
    assert float(process.predict(x)[1].mean()) < 0.5 * float(process.predict(near + 2.0)[1].mean())


def test_equal_observations_make_a_flat_process() -> None:
    process = SampledProcess(np.random.default_rng(1).random((5, 2)), np.full(5, 3.0), np.random.default_rng(2))
    mean, sd = process.predict(np.random.default_rng(3).random((4, 2)))
    assert np.allclose(mean, 3.0, atol=0.5)
    assert np.isfinite(sd).all()


def test_a_fantasized_point_is_less_uncertain_and_moves_nothing() -> None:
    rng = np.random.default_rng(8)
    process = SampledProcess(rng.random((8, 2)), rng.standard_normal(8), np.random.default_rng(9))
    point = np.array([[0.9, 0.1]])
    after = process.fantasize(point)
    assert (after.predict(point)[1] < process.predict(point)[1]).all()
    assert after.predict(point)[0].mean() == pytest.approx(process.predict(point)[0].mean(), abs=0.3)


# ---------------------------------------------------------------------- encoding and starts


def cluster_problem(facts: list[dict[str, Any]], nodes: tuple[int, ...] = (2, 4, 16)) -> KnownProblem:
    offers = {
        f"t{i}": Offer("test", f"t{i}", vcpu=2.0**i, memory_gib=2.0**i * 4, price_per_hour=0.1 * 2**i, facts=fact)
        for i, fact in enumerate(facts)
    }
    parameters = [
        Instance(name="instance", values=tuple(offers), offers=offers),
        Nodes(name="nodes", values=nodes),
        Ordinal(name="memory_share", values=(0.2, 0.4, 0.6)),
    ]
    return make_problem(parameters, lambda _c, o: problems.KnownOutcome(1000.0 / (o.vcpu * o.nodes) ** 0.7))


def test_features_are_machines_cores_speed_disks_and_settings() -> None:
    facts = [
        {"cpu_speed": "slow", "disk_count": 1, "disk_speed": "slow"},
        {"cpu_speed": "fast", "disk_count": 2, "disk_speed": "fast"},
        {"cpu_speed": "slow", "disk_count": 4, "disk_speed": "slow"},
    ]
    problem = cluster_problem(facts)
    encoding = ClusterEncoding(problem, problem.candidates)
    rows = encoding.of_candidates(problem.candidates)
    assert encoding.width == rows.shape[1] == 6  # machines, cores, speed, disks, disk speed, setting: memory is even
    first = encoding.of(problem.candidates.configuration(0), problem.candidates.offer(0))
    assert first is not None
    assert np.array_equal(first, rows[0])
    by_hand = {
        (i, n, s): [n_place, i / 2, float(i == 1), i / 2, float(i == 1), s_place]
        for i in range(3)
        for n, n_place in ((2, 0.0), (4, 0.5), (16, 1.0))
        for s, s_place in ((0.2, 0.0), (0.4, 0.5), (0.6, 1.0))
    }
    for j in range(len(problem.candidates)):
        c = problem.candidates.configuration(j)
        row = by_hand[int(str(c["instance"])[1]), int(c["nodes"]), float(c["memory_share"])]
        assert rows[j] == pytest.approx(row)


def test_machines_that_look_alike_keep_the_columns_of_the_space() -> None:
    offers = {
        name: Offer(cloud, name, vcpu=4, memory_gib=16, price_per_hour=0.2) for name, cloud in (("a", "x"), ("b", "y"))
    }
    problem = make_problem(
        [Instance(name="instance", values=("a", "b"), offers=offers)], lambda _c, _o: problems.KnownOutcome(60.0)
    )
    rows = ClusterEncoding(problem, problem.candidates).of_candidates(problem.candidates)
    assert len(np.unique(rows, axis=0)) == 2


def test_starts_are_three_of_a_scrambled_sequence_far_apart() -> None:
    problem = problems.table_problem()
    searcher = make(problem, 3)
    trials = drive(searcher, problem, 3)
    assert [t.proposal.why["stage"] for t in trials] == ["start"] * 3
    assert {t.configuration for t in drive(make(problem, 4), problem, 3)} != {t.configuration for t in trials}
    square = np.array([[i, j] for i in range(11) for j in range(11)]) / 10.0
    gaps = []
    for seed in range(20):
        chosen = square[nearest_to_sobol(square, 4, np.random.default_rng(seed))]
        gaps.append(min(float(np.hypot(*(a - b))) for i, a in enumerate(chosen) for b in chosen[:i]))
    assert np.mean(gaps) > 0.35  # four points at random: about 0.24
    assert len(nearest_to_sobol(square[:3], 64, np.random.default_rng(1))) == 3


def test_later_starts_wait_for_a_run_that_ends_well() -> None:
    """While every run fails there is nothing to model: the design goes on."""
    problem = problems.table_problem()
    searcher = make(problem, 1)
    for number in range(8):
        answer = searcher.ask(SearchState(proposed=number))
        assert not isinstance(answer, NothingLeft)
        assert answer[0].why["stage"] == "start"
        failed = evaluate(problem, answer[0], number)
        assert failed.observation is not None
        searcher.tell(replace(failed, state=TrialState.FAILED, observation=replace(failed.observation, feasible=False)))


@pytest.mark.slow
def test_a_large_space_where_every_run_fails_is_searched_beyond_the_design(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.searcher.candidate_pool.REFERENCE_SIZES", (8,))
    problem = replace(problems.huge_problem(), truth=lambda _c, _o: problems.KnownOutcome(60.0, failed="no"))
    trials = drive(make(problem, 1, pool=32), problem, 20)
    assert len({t.key for t in trials}) == 20
    assert {t.proposal.why["stage"] for t in trials} == {"start"}


def test_many_observations_are_conditioned_on_and_some_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.searcher.cherrypick.sampled_process._MOST_SAMPLED", 10)
    x = np.linspace(0.0, 1.0, 41)[:, None]
    process = SampledProcess(x, np.sin(6 * x[:, 0]), np.random.default_rng(1))
    assert np.abs(process.predict(x)[0].mean(axis=0) - np.sin(6 * x[:, 0])).max() < 0.15


# ---------------------------------------------------------------------- what it chooses


@pytest.mark.thorough
def test_it_finds_the_optimum_of_405_within_30_trials() -> None:
    problem = problems.table_problem(cliff="slow")
    optimum = problem.optimum()
    assert optimum is not None
    close = 0
    for seed in range(3):
        trials = drive(make(problem, seed, stop=False), problem, 30)
        values = [t.observation.objective for t in trials if t.observation and t.observation.feasible]
        close += min(v for v in values if v is not None) <= 1.1 * optimum[1]
    assert close >= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "billing",
    [
        Billing(setup_seconds=120),
        pytest.param(Billing(), marks=pytest.mark.thorough),
        pytest.param(Billing(minimum_seconds=60), marks=pytest.mark.thorough),
    ],
)
def test_the_deadline_is_read_off_the_model_of_the_bill(billing: Billing) -> None:
    """Runs in time are told from late ones, whatever is billed besides the run."""
    problem = problems.table_problem(cliff="slow", deadline=900.0, billing=billing)
    searcher, _ = told(problem, 30)
    right = total = 0
    for i in range(0, len(problem.candidates), 7):
        configuration = problem.candidates.configuration(i)
        chance = float(searcher.explain(configuration)["probability_feasible"])
        seen = evaluate(problem, Proposal(configuration)).observation
        assert seen is not None
        if abs(math.log(seen.runtime / 900.0)) > 0.3:
            total += 1
            right += (chance > 0.5) == seen.feasible
    assert right >= 0.85 * total


@pytest.mark.thorough
@pytest.mark.slow
def test_what_it_expects_is_near_what_happens() -> None:
    problem = problems.table_problem(cliff="slow")
    searcher, trials = told(problem, 30)
    inside = 0
    for i in range(0, 400, 10):
        why = searcher.explain(problem.candidates.configuration(i))
        assert 0 < float(why["cost_low"]) < float(why["expected_cost"]) < float(why["cost_high"])
        inside += float(why["cost_low"]) <= problem.bill(problem.candidates.configuration(i)) <= float(why["cost_high"])
    assert inside >= 28  # of 40; 36 are expected of a perfect model
    assert set(trials[-1].proposal.why) == {
        "stage",
        "expected_cost",
        "probability_feasible",
        "expected_spend",
        "expected_saving",
    }


# ---------------------------------------------------------------------- stopping


def stopped(problem: KnownProblem, seed: int, **settings: Any) -> tuple[int, NothingLeft]:
    searcher = make(problem, seed, **settings)
    trials = drive(searcher, problem, 60)
    answer = searcher.ask(SearchState(proposed=len(trials)))
    assert isinstance(answer, NothingLeft)
    return len(trials), answer


@pytest.mark.slow
def test_it_stops_where_little_can_be_gained_and_says_so() -> None:
    problem = problems.table_problem(cliff="slow")
    number, answer = stopped(problem, 1)
    assert 6 <= number < 60
    assert answer.final
    assert "stop rule" in answer.reason
    assert "below 10%" in answer.reason


@pytest.mark.thorough
def test_the_rule_waits_for_enough_runs_and_a_lower_bar_waits_longer() -> None:
    problem = problems.table_problem(cliff="slow")
    assert stopped(problem, 1, stop_runs=9)[0] >= 9
    assert stopped(problem, 1, stop_improvement=0.01)[0] > stopped(problem, 1, stop_improvement=0.1)[0]
    assert "ln cost" in stopped(problem, 1, stop_unit="ln_cost", stop_improvement=0.06)[1].reason
    assert len(drive(make(problem, 1, stop=False), problem, 25)) == 25


@pytest.mark.thorough
@pytest.mark.slow
def test_it_does_not_stop_before_anything_is_feasible() -> None:
    problem = problems.infeasible_problem()
    trials = drive(make(problem, 1), problem, 100)
    assert len(trials) == len(problem.candidates)


@pytest.mark.slow
def test_stopping_is_not_final_while_trials_run() -> None:
    problem = problems.table_problem(cliff="slow")
    searcher = make(problem, 1)
    trials = drive(searcher, problem, 60)
    free = next(
        problem.candidates.configuration(i)
        for i in range(405)
        if problem.candidates.key(i) not in {t.key for t in trials}
    )
    running = pending(problem, Proposal(free), len(trials))
    answer = searcher.ask(SearchState([running], proposed=len(trials) + 1))
    assert isinstance(answer, NothingLeft)
    assert not answer.final


# ---------------------------------------------------------------------- money and aborts


@pytest.mark.slow
def test_with_a_budget_it_leaves_out_what_the_money_may_not_pay() -> None:
    problem = problems.table_problem(cliff="slow")
    searcher, trials = told(problem, 12)
    filtered = make(problem, 1, stop=False, budget_confidence=0.9)
    for trial in trials:
        filtered.tell(trial)
    posterior = filtered._current_posterior()
    candidates, free = filtered.open_candidates(SearchState())
    money = float(np.quantile(posterior.judge(filtered._features[free], candidates.hourly[free], None).cost_high, 0.3))
    prediction = posterior.judge(filtered._features[free], candidates.hourly[free], money)
    assert 0 < (prediction.affords >= 0.9).sum() < len(free)
    answer = filtered.ask(SearchState(proposed=12, money_left=money))
    assert not isinstance(answer, NothingLeft)
    place = candidates.index(answer[0].configuration)
    assert prediction.affords[list(free).index(place)] >= 0.9
    nothing = filtered.ask(SearchState(proposed=12, money_left=0.01))
    assert isinstance(nothing, NothingLeft)
    assert "90% certainty" in nothing.reason
    assert not isinstance(searcher.ask(SearchState(proposed=12, money_left=0.01)), NothingLeft)


@pytest.mark.slow
def test_every_run_ends_unless_it_is_told_to_cut() -> None:
    problem = problems.table_problem(cliff="slow")
    whole, cut = told(problem, 8), told(problem, 8, abort=True)
    assert all(t.proposal.abort_cost is None and t.proposal.abort_time is None for t in whole[1])
    assert all(t.proposal.abort_time == 1800.0 for t in cut[1])
    assert cut[1][-1].proposal.abort_cost is not None


@pytest.mark.slow
def test_an_aborted_run_counts_as_more_than_its_bound() -> None:
    label = _truncated_mean(np.array([0.0, 0.0, 5.0]), np.array([1.0, 1.0, 1.0]), np.array([0.0, 40.0, 0.0]))
    assert label[0] == pytest.approx(math.sqrt(2 / math.pi))
    assert 40.0 < label[1] < 40.1
    assert label[2] == pytest.approx(5.0, abs=1e-3)
    problem = problems.table_problem(cliff="slow")
    searcher, trials = told(problem, 10)
    free = searcher.ask(SearchState(proposed=10))
    assert not isinstance(free, NothingLeft)
    configuration = free[0].configuration
    before = float(searcher.explain(configuration)["expected_cost"])
    done = evaluate(problem, replace(free[0], abort_cost=2.0 * problem.bill(configuration)), 10)
    assert done.observation is not None
    bound = replace(done.observation, cost=4.0 * before, censored=True, feasible=False)
    searcher.tell(replace(done, state=TrialState.ABORTED, observation=bound))
    assert float(searcher.explain(configuration)["expected_cost"]) > 2.0 * before
    assert len(trials) == 10


@pytest.mark.slow
def test_a_large_space_is_scored_on_a_pool() -> None:
    problem = problems.huge_problem()
    searcher = make(problem, 1, stop=False, pool=64)
    trials = drive(searcher, problem, 8)
    assert len({t.key for t in trials}) == 8
    assert trials[-1].proposal.why["stage"] == "search"
