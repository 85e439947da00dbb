"""TrimTuner, beyond the conformance suite: its process, its trees, its information gain, and what it finds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.effort import share
from tests.searcher.gradients import check_gradient

from tradewind import plugins
from tradewind.errors import SpecError
from tradewind.problem import Billing, Budget, Objective, Problem, Proposal, Threshold, Trial, TrialState
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.searcher.trimtuner.entropy_search import entropy, information_gain
from tradewind.searcher.trimtuner.extra_trees import ExtraTrees
from tradewind.searcher.trimtuner.fidelity_models import FullInputPrediction
from tradewind.searcher.trimtuner.fidelity_process import FidelityProcess
from tradewind.searcher.trimtuner.searcher import TrimTunerSearcher, constrained_value
from tradewind.testing import problems
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive, evaluate, pending


def make(problem: Problem, seed: int = 0, **settings: Any) -> TrimTunerSearcher:
    made = plugins.create("searcher", "trimtuner", settings, problem=problem, seed=seed)
    assert isinstance(made, TrimTunerSearcher)
    return made


def one(answer: list[Proposal] | NothingLeft) -> Proposal:
    assert not isinstance(answer, NothingLeft), answer
    return answer[0]


def whole(trials: list[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.proposal.fidelity == 1.0]


def table(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points, with levels in the last column, and values that fall with the level."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.random((n, d)), rng.choice([0.0, 0.4, 1.0], size=n)])
    return x, np.sin(4.0 * x[:, 0]) - 0.5 * x[:, -1] * (1.0 + x[:, 0])


# ---------------------------------------------------------------------- the process


def test_gradient_of_the_loss() -> None:
    x, y = table(14, 2, 1)
    targets = (y - y.mean()) / y.std()
    check_gradient(FidelityProcess(), x, targets, np.zeros(14), spread=0.4, tolerance=1e-3)


def test_its_kernel_is_a_covariance() -> None:
    x, y = table(40, 3, 2)
    process = FidelityProcess().fit(x, y)
    _, covariance = process.joint(x)
    assert np.linalg.eigvalsh(process.prior(x)[1]).min() > -1e-8
    assert np.allclose(np.diag(covariance), process.predict(x)[1], atol=1e-8)


def test_small_parts_tell_about_the_whole() -> None:
    """With the whole seen at two points, and parts at many, the whole is known better than from the two."""
    rng = np.random.default_rng(3)
    spots = rng.random((20, 1))
    parts = np.column_stack([spots, np.ones(20)])
    two = np.column_stack([[[0.1], [0.9]], np.zeros(2)])

    def truth(x: np.ndarray) -> np.ndarray:
        values: np.ndarray = np.sin(5.0 * x[:, 0]) - 0.4 * x[:, -1]
        return values

    grid = np.column_stack([np.linspace(0, 1, 21), np.zeros(21)])
    x = np.vstack([two, parts])
    both = FidelityProcess().fit(x, truth(x)).predict(grid)[0]
    alone = FidelityProcess().fit(two, truth(two)).predict(grid)[0]
    assert np.abs(both - truth(grid)).mean() < 0.1 < np.abs(alone - truth(grid)).mean()


def test_units_do_not_matter() -> None:
    x, y = table(15, 2, 4)
    grid, _ = table(9, 2, 5)
    mean, variance = FidelityProcess().fit(x, y).predict(grid)
    other, more = FidelityProcess().fit(x, 100.0 + 1000.0 * y).predict(grid)
    assert np.allclose(other, 100.0 + 1000.0 * mean, rtol=1e-4)
    assert np.allclose(more, 1e6 * variance, rtol=1e-3)


def test_one_observation_is_enough() -> None:
    mean, variance = FidelityProcess().fit(np.array([[0.5, 1.0]]), np.array([2.0])).predict(np.array([[0.5, 1.0]]))
    assert mean[0] == pytest.approx(2.0, abs=0.1)
    assert variance[0] > 0


# ---------------------------------------------------------------------- the trees


def test_trees_learn_steps_and_repeat_exactly() -> None:
    x, _ = table(60, 2, 6)
    y = np.where(x[:, 0] > 0.5, 1.0, 0.0)
    first, second = (ExtraTrees(x, y, seed=1) for _ in range(2))
    grid, _ = table(30, 2, 7)
    assert (first.predict(grid)[0] == second.predict(grid)[0]).all()
    clear = np.abs(grid[:, 0] - 0.5) > 0.15
    assert np.abs(first.predict(grid)[0] - (grid[:, 0] > 0.5))[clear].mean() < 0.2
    assert (first.predict(grid)[1] > 0).all()


def test_an_observation_moves_only_its_own_leaf() -> None:
    x, y = table(30, 2, 8)
    trees = ExtraTrees(x, y, seed=2)
    answers = next(iter(trees.after(x, x[:1], np.array([[y[0] + 10.0]]))))
    assert answers.shape == (1, 10, 30)
    moved = answers[0] != trees.table(x)
    for tree, changed in zip(trees.trees, moved, strict=True):
        leaves = tree.leaves(x)
        assert (changed == (leaves == leaves[0])).all()


def test_trees_of_equal_values_are_one_leaf() -> None:
    x, _ = table(10, 2, 9)
    mean, variance = ExtraTrees(x, np.full(10, 3.0), seed=1).predict(x)
    assert (mean == 3.0).all()
    assert (variance > 0).all()


# ---------------------------------------------------------------------- information gain


def test_entropy_of_the_best() -> None:
    samples = np.array([[[0.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    assert entropy(samples) == pytest.approx([0.0, math.log(2.0)])


@pytest.mark.parametrize("kind", ["gp", "trees"])
def test_what_was_seen_tells_less_than_what_was_not(kind: str) -> None:
    x = np.array([[0.0, 0.0], [0.05, 0.0], [0.1, 0.0], [0.2, 0.0]])
    y = np.array([0.0, 0.02, 0.01, 0.03])
    model = FidelityProcess().fit(x, y) if kind == "gp" else ExtraTrees(x, y, seed=1)
    targets = np.array([[0.0, 0.0], [0.1, 0.0], [0.6, 0.0], [0.9, 0.0]])
    tried = np.array([[0.0, 0.0], [0.6, 0.0], [0.6, 1.0]])
    gain = information_gain(model, targets, tried, lambda said: said, np.random.default_rng(1))
    assert gain.shape == (3,)
    assert (gain >= 0).all()
    if kind == "gp":
        assert gain[1] > 2.0 * gain[0]
        assert gain[1] > gain[2]  # the whole tells more about itself than a small part does


def test_constrained_value_by_hand() -> None:
    zeros = np.zeros(3)
    found = constrained_value(
        FullInputPrediction(np.array([-0.9, -0.5, -0.1]), zeros, np.array([0.5, 1.0, 1.0]), zeros, zeros)
    )
    assert found == pytest.approx([0.505, 0.51, 0.01])


# ---------------------------------------------------------------------- what it proposes


def test_it_starts_with_all_parts_of_one_configuration() -> None:
    problem = problems.training_problem()
    trials = drive(make(problem, 3), problem, 5)[:4]
    assert len({trial.configuration for trial in trials}) == 1
    assert [trial.proposal.fidelity for trial in trials] == [1 / 60, 1 / 10, 1 / 4, 1 / 2]
    trials = drive(make(problem, 3, fractions=[0.5, 0.2]), problem, 3)
    assert [t.proposal.fidelity for t in trials] == [0.2, 0.5, 1.0]


def test_a_start_that_is_too_dear_on_a_part_is_not_run_on_more() -> None:
    """A tenth that costs more than the whole may cost settles that configuration: others are started instead."""
    for problem in (problems.training_problem(limit=0.004), problems.training_problem()):
        trials = drive(make(problem, 3), problem, 5)[:4]
        dear = problem.constraints.thresholds[0].at_most == 0.004
        shares = [1 / 60, 1 / 10, 1 / 60, 1 / 60] if dear else [1 / 60, 1 / 10, 1 / 4, 1 / 2]
        assert [trial.proposal.fidelity for trial in trials] == shares
        assert len({trial.configuration for trial in trials}) == (3 if dear else 1)


@pytest.mark.slow
@pytest.mark.parametrize("surrogate", ["gp", pytest.param("trees", marks=pytest.mark.thorough)])
def test_it_runs_parts_and_concludes_on_the_whole(surrogate: str) -> None:
    problem = problems.training_problem()
    searcher = make(problem, 1, surrogate=surrogate)
    trials = drive(searcher, problem, 30)
    parts = [t for t in trials if t.proposal.fidelity < 1.0]
    assert len(parts) > len(whole(trials)) > 0
    assert all({"fraction", "expected_spend", "stage"} <= set(t.proposal.why) for t in parts[4:])
    assert sum(t.spent for t in parts) < 4.5 * sum(t.spent for t in whole(trials))


@pytest.mark.thorough
def test_it_finds_a_good_one_for_less_than_chance() -> None:
    problem = problems.training_problem()
    optimum = problem.optimum()
    assert optimum is not None

    def good(trial: Trial) -> bool:
        seen = trial.observation
        right = seen is not None and seen.feasible and trial.proposal.fidelity == 1.0
        return right and seen is not None and seen.objective is not None and seen.objective >= 0.97 * optimum[1]

    money = {"trimtuner": 0.0, "random": 0.0}
    for seed in range(4):
        for name in money:
            searcher = plugins.create("searcher", name, {}, problem=problem, seed=seed)
            trials = drive(searcher, problem, 288, until=good)
            money[name] += sum(t.spent for t in trials)
    assert money["trimtuner"] < 0.7 * money["random"]


@pytest.mark.thorough
def test_the_least_cost_with_parts() -> None:
    """Where cost is the objective, it is read off the model of time; an accuracy may be a bound."""
    problem = problems.training_problem(goal="cost")
    optimum = problem.optimum()
    assert optimum is not None
    searcher = make(problem, 1)
    trials = drive(searcher, problem, 45)
    found = [t.observation.objective for t in whole(trials) if t.observation and t.observation.feasible]
    assert min(v for v in found if v is not None) <= 1.3 * optimum[1]


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["runtime", pytest.param("cost", marks=pytest.mark.thorough)])
def test_objectives_of_time_with_setup_and_a_minimum(metric: str) -> None:
    billing = Billing(setup_seconds=30.0, minimum_seconds=60.0, granularity_seconds=1.0)
    problem = problems.table_problem(objective=Objective(metric), billing=billing, cliff="slow")
    trials = drive(make(problem, 1), problem, 15)
    assert whole(trials)


@pytest.mark.thorough
@pytest.mark.slow
def test_before_the_money_is_gone_the_recommended_one_is_run_as_a_whole() -> None:
    plain = problems.training_problem()
    every = [plain.bill(plain.candidates.configuration(i)) for i in range(len(plain.candidates))]
    for seed in range(share(3, 1)):
        problem = replace(plain, budget=replace(plain.budget, dollars=2.5 * float(np.median(every))))
        searcher = make(problem, seed, parts_per_whole=50.0)
        trials = drive(searcher, problem, 200)
        assert sum(t.spent for t in trials) <= 2.5 * float(np.median(every)) + 1e-9
        ended = [t for t in whole(trials) if t.state == TrialState.SUCCEEDED]
        assert ended
        assert "before the money is gone" in str(ended[0].proposal.why["stage"])


@pytest.mark.slow
def test_the_last_trial_is_on_the_whole() -> None:
    problem = problems.training_problem()
    searcher = make(problem, 1, parts_per_whole=50.0)
    for trial in drive(make(problem, 1, parts_per_whole=50.0), problem, 6):
        searcher.tell(trial)
    assert one(searcher.ask(SearchState(proposed=6, trials_left=1))).fidelity == 1.0
    assert one(searcher.ask(SearchState(proposed=6, trials_left=9))).fidelity < 1.0


@pytest.mark.parametrize("trials", [1, 2, 4])
@pytest.mark.parametrize("parallel", [1, 3])
def test_few_trials_end_with_a_whole_run(trials: int, parallel: int) -> None:
    """One of them is kept for it, and it waits for the parts; more would be a start without a result."""
    problem = replace(problems.training_problem(), budget=Budget(trials=trials))
    ended = drive(make(problem, 1), problem, trials, parallel)
    assert [t.proposal.fidelity for t in ended] == [*[1 / 60, 1 / 10, 1 / 4][: trials - 1], 1.0]


def test_the_last_trial_is_whole_though_nothing_is_known() -> None:
    """Where every part failed, a configuration is run that has not."""
    problem = problems.training_problem()
    searcher = make(problem, 1)
    fails = replace(problem, of_part=lambda _c, _o, _s: KnownOutcome(1.0, failed="no data"))
    tried = [one(searcher.ask(SearchState(proposed=0, trials_left=2)))]
    searcher.tell(evaluate(fails, tried[0]))
    last = one(searcher.ask(SearchState(proposed=1, trials_left=1)))
    assert last.fidelity == 1.0
    assert last.configuration != tried[0].configuration


@pytest.mark.parametrize("parallel", [1, 3])
def test_the_start_leaves_money_for_a_whole_run(parallel: int) -> None:
    """The four parts of the start cost 0.87 of a whole run; with money for one and a half there is a whole run."""
    plain = problems.training_problem()
    every = [plain.bill(plain.candidates.configuration(i)) for i in range(len(plain.candidates))]
    problem = replace(plain, budget=Budget(dollars=1.6 * float(np.median(every))))
    trials = drive(make(problem, 1), problem, 12, parallel)
    assert [t for t in whole(trials) if t.state == TrialState.SUCCEEDED]
    assert [t for t in trials if t.proposal.fidelity < 1.0]


def test_money_for_many_whole_runs_starts_with_all_parts() -> None:
    plain = problems.training_problem(dollars=50.0)
    trials = drive(make(plain, 3), plain, 5)[:4]
    assert [trial.proposal.fidelity for trial in trials] == [1 / 60, 1 / 10, 1 / 4, 1 / 2]


@pytest.mark.thorough
@pytest.mark.slow
def test_a_configuration_that_ran_as_a_whole_is_run_in_parts_no_more() -> None:
    problem = problems.training_problem()
    trials = drive(make(problem, 2, parts_per_whole=0.2), problem, 40)
    done: set[str] = set()
    for trial in trials:
        assert trial.configuration.key not in done
        if trial.proposal.fidelity == 1.0:
            done.add(trial.configuration.key)


def test_a_run_that_is_pending_is_fantasized() -> None:
    problem = problems.training_problem()
    searcher = make(problem, 1)
    for trial in drive(make(problem, 1), problem, 8):
        searcher.tell(trial)
    first = one(searcher.ask(SearchState(proposed=8)))
    running = [pending(problem, first, 8)]
    second = one(searcher.ask(SearchState(running, proposed=9)))
    assert (second.configuration, second.fidelity) != (first.configuration, first.fidelity)


@pytest.mark.slow
def test_aborted_runs_are_lower_bounds() -> None:
    """A configuration that was cut short at a time is predicted to be slower than if it had ended there."""
    problem = problems.training_problem()
    cut, ended = make(problem, 1), make(problem, 1)
    trials = drive(make(problem, 1), problem, 7)
    for trial in trials[:-1]:
        cut.tell(trial)
        ended.tell(trial)
    last = evaluate(problem, trials[-1].proposal, 6)
    assert last.observation is not None
    ended.tell(last)
    seen = replace(last.observation, objective=None, feasible=False, censored=True, metrics={})
    cut.tell(replace(last, state=TrialState.ABORTED, observation=seen))
    configuration = last.configuration
    assert float(cut.explain(configuration)["expected_cost"]) > float(ended.explain(configuration)["expected_cost"])


# ---------------------------------------------------------------------- predictions


def informed(problem: KnownProblem, count: int = 25) -> TrimTunerSearcher:
    searcher = make(problem, 1)
    drive(searcher, problem, count)
    return searcher


@pytest.mark.slow
def test_it_explains_and_recommends() -> None:
    problem = problems.training_problem()
    assert make(problem).recommended() is None
    assert make(problem).explain(problem.candidates.configuration(0)) == {}
    searcher = informed(problem)
    advice = searcher.recommended()
    assert advice is not None
    said = searcher.explain(advice)
    assert float(said["probability_feasible"]) >= 0.8
    assert float(said["expected_cost"]) == pytest.approx(problem.bill(advice), rel=0.25)
    value = problem.value(advice)
    assert value is not None
    assert float(said["expected_accuracy"]) == pytest.approx(value, abs=0.1)


@pytest.mark.slow
def test_cost_bounds_are_read_off_the_time() -> None:
    """A limit that every run keeps, one that none keeps, and a least cost that none reaches."""
    for bound, low, high in (
        (Threshold("cost", at_most=50.0), 0.95, 1.0),
        (Threshold("cost", at_most=1e-4), 0.0, 0.05),
        (Threshold("runtime", at_least=1e7), 0.0, 0.05),
    ):
        plain = problems.training_problem(limit=None)
        problem = replace(plain, constraints=replace(plain.constraints, thresholds=(bound,)))
        searcher = informed(problem, 12)
        chance = float(searcher.explain(problem.candidates.configuration(5))["probability_feasible"])
        assert low <= chance <= high


def test_wrong_fractions_are_refused() -> None:
    for wrong in ([], [0.0, 1.0], [1.5], [-0.1]):
        with pytest.raises(SpecError):
            make(problems.training_problem(), fractions=wrong)


@pytest.mark.slow
def test_without_parts_it_searches_on_the_whole() -> None:
    problem = problems.training_problem()
    trials = drive(make(problem, 1, fractions=[1.0]), problem, 10)
    assert len(whole(trials)) == 10
