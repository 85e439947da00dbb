from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, minimize

from tradewind.errors import SpecError
from tradewind.problem import Billing, Budget, Configuration, Objective, Offer, TrialState
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.searcher.ernest.design import ExperimentDesign, TrainingPoint, a_criterion, a_optimal
from tradewind.searcher.ernest.model import ErnestModel, independent_columns, model_terms
from tradewind.searcher.ernest.searcher import ErnestSearcher
from tradewind.testing import problems
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive, machine_parameters, make_problem
from tradewind.testing.searchers import ended_trial

SHARES = [round(float(s), 6) for s in np.linspace(0.016, 0.125, 20)]


def searcher_of(problem: KnownProblem, **given: Any) -> ErnestSearcher:
    return ErnestSearcher(settings=ErnestSearcher.Settings(**given), problem=problem, seed=1)


def scaling(_configuration: Configuration, offer: Offer, share: float) -> float:
    """A job that follows Ernest's model exactly, faster in the c family."""
    speed = {"compute": 1.3, "general": 1.1, "memory": 1.0}[offer.category] * offer.vcpu
    return 10.0 + share * 9000.0 / (speed * offer.nodes) + 1.5 * offer.nodes + 4.0 * math.log(offer.nodes)


def ernest_problem(**given: Any) -> KnownProblem:
    truth = given.pop("truth", lambda c, o: KnownOutcome(scaling(c, o, 1.0)))
    parameters = machine_parameters(given.pop("types", 3), given.pop("nodes", (1, 2, 4, 8, 16)))
    return make_problem(parameters, truth, **{"scaling": scaling, "deadline": 900.0, **given})


def whole(problem: KnownProblem, **given: Any) -> tuple[ErnestSearcher, list[Any], list[Any]]:
    """A finished search: the searcher, its training runs and its whole runs."""
    searcher = searcher_of(problem, **given)
    trials = drive(searcher, problem, 300)
    train = [trial for trial in trials if trial.proposal.fidelity < 1.0]
    return searcher, train, [trial for trial in trials if trial.proposal.fidelity == 1.0]


def last_words(searcher: ErnestSearcher, count: int = 300) -> str:
    answer = searcher.ask(SearchState(proposed=count))
    assert isinstance(answer, NothingLeft)
    assert answer.final
    assert "\n" not in answer.reason
    return answer.reason


# ---------------------------------------------------------------------- model


@given(st.lists(st.floats(0.0, 50.0), min_size=4, max_size=4))
@settings(deadline=None, max_examples=30)
def test_a_model_of_that_form_is_found_again(theta: Sequence[float]) -> None:
    share, machines = np.array([0.02, 0.1, 0.05, 0.12, 0.03, 0.08]), np.array([1.0, 2, 4, 8, 16, 16])
    seconds = model_terms(share, machines) @ np.array(theta)
    model = ErnestModel.fit(share, machines, seconds)
    assert model.predict(share, machines) == pytest.approx(seconds, abs=1e-6)


def test_no_coefficient_is_negative() -> None:
    """Times that rise with the share's inverse would need a negative one."""
    model = ErnestModel.fit(np.array([0.1, 0.2, 0.4, 0.8]), np.array([1, 2, 4, 8]), np.array([9.0, 7.0, 4.0, 1.0]))
    assert (model.theta >= 0).all()


def test_equal_machine_counts_tell_no_machine_terms() -> None:
    table = model_terms(np.array([0.1, 0.2, 0.3]), np.array([1, 1, 1]))
    assert independent_columns(table) == [0, 1]
    assert independent_columns(model_terms(np.array([0.1, 0.2, 0.1, 0.2]), np.array([2, 2, 4, 4]))) == [0, 1, 2]


def test_a_model_is_written_in_words() -> None:
    assert str(ErnestModel(np.array([2.0, 100.0, 0.0, 1.5]))) == "2 + 100·s/m + 1.5·ln m"
    assert str(ErnestModel(np.zeros(4))) == "0"


# ---------------------------------------------------------------------- design


def frank_wolfe(columns: Any, costs: Any, budget: float, steps: int = 500) -> float:
    """The objective that an independent solver reaches; its oracle is a fractional knapsack."""
    weights = np.full(len(costs), min(0.5, 0.5 * budget / costs.sum()))
    for _ in range(steps):
        inverse = np.linalg.inv(columns.T @ (columns * weights[:, None]))
        gain = ((columns @ inverse) ** 2).sum(axis=1)
        corner, left = np.zeros(len(costs)), budget
        for i in np.argsort(-gain / costs):
            corner[i] = min(1.0, left / costs[i])
            left -= corner[i] * costs[i]
            if left <= 0:
                break
        along = corner - weights
        low, high = 0.0, 1.0
        for _ in range(30):
            a, b = low + (high - low) / 3, high - (high - low) / 3
            if a_criterion(columns, weights + a * along) < a_criterion(columns, weights + b * along):
                high = b
            else:
                low = a
        weights = weights + low * along
    return a_criterion(columns, weights)


def normalised(nodes: Sequence[int]) -> tuple[Any, Any]:
    points = ExperimentDesign(SHARES).candidates(nodes, 4)
    table = model_terms(np.array([p.share for p in points]), np.array([p.nodes for p in points]))
    kept = independent_columns(table)
    costs = np.array([p.share / SHARES[0] / p.nodes for p in points])
    return table[:, kept] / table[:, kept].mean(axis=0), costs


@pytest.mark.slow
@pytest.mark.parametrize(
    "nodes",
    # SLSQP is compared with on other nodes.
    [pytest.param(few, marks=pytest.mark.thorough) for few in ((4, 6, 8, 12, 24), (1, 2))] + [(1, 2, 4, 8, 16)],
)
def test_the_design_is_as_good_as_that_of_frank_wolfe(nodes: Sequence[int]) -> None:
    """The value is compared and not the chosen set: the optimum is not unique."""
    columns, costs = normalised(nodes)
    weights = a_optimal(columns, costs, 10.0)
    ours = a_criterion(columns, weights)
    assert float(weights.min()) >= 0
    assert float(weights.max()) <= 1
    assert float(costs @ weights) <= 10.0 + 1e-9
    theirs = frank_wolfe(columns, costs, 10.0)
    assert ours <= theirs * (1 + 1e-6)
    assert ours == pytest.approx(theirs, rel=2e-3)


@pytest.mark.slow
def test_the_design_is_as_good_as_that_of_slsqp() -> None:
    columns, costs = normalised((1, 2, 8))

    def value(weights: Any) -> float:
        return float(np.trace(np.linalg.inv(columns.T @ (columns * weights[:, None]))))

    def slope(weights: Any) -> Any:
        return -((columns @ np.linalg.inv(columns.T @ (columns * weights[:, None]))) ** 2).sum(axis=1)

    start = np.full(len(costs), min(0.5, 5.0 / costs.sum()))
    bound = LinearConstraint(costs, ub=10.0)
    found = minimize(
        value, start, jac=slope, bounds=Bounds(0, 1), constraints=bound, method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-10},
    )  # fmt: skip
    assert a_criterion(columns, a_optimal(columns, costs, 10.0)) == pytest.approx(found.fun, rel=1e-5)


def test_the_design_is_as_good_as_that_of_cvxpy() -> None:
    cvxpy = pytest.importorskip("cvxpy", reason="cvxpy is not installed; SLSQP and Frank-Wolfe are compared with")
    columns, costs = normalised((1, 2, 4, 8, 16))
    weights = cvxpy.Variable(len(costs))
    information = columns.T @ cvxpy.diag(weights) @ columns
    value = sum(cvxpy.matrix_frac(row, information) for row in np.eye(columns.shape[1]))
    problem = cvxpy.Problem(cvxpy.Minimize(value), [weights >= 0, weights <= 1, costs @ weights <= 10.0])
    problem.solve()
    assert a_criterion(columns, a_optimal(columns, costs, 10.0)) == pytest.approx(problem.value, rel=1e-4)


def test_a_budget_that_pays_all_takes_all() -> None:
    columns, costs = normalised((1, 2))
    assert (a_optimal(columns, costs, float(costs.sum())) == 1).all()


@pytest.mark.parametrize("nodes", [(1,), (64,), (1, 2), (1, 2, 4, 8, 16), tuple(range(1, 17))])
def test_the_chosen_runs_tell_the_terms_and_show_the_effect_of_the_share(nodes: Sequence[int]) -> None:
    chosen = ExperimentDesign(SHARES).choose(nodes, 4)
    assert len(set(chosen)) == len(chosen) <= 11
    table = model_terms(np.array([p.share for p in chosen]), np.array([p.nodes for p in chosen]))
    assert len(independent_columns(table)) == min(4, len(nodes) + 1)
    by_nodes = [sorted(p.share for p in chosen if p.nodes == count) for count in nodes]
    assert any(len(shares) > 1 and shares[-1] >= 1.5 * shares[0] for shares in by_nodes)


def test_training_costs_what_the_design_may_cost() -> None:
    chosen = ExperimentDesign(SHARES, budget=10.0).choose((1, 2, 4, 8, 16), 4)
    assert sum(p.share / SHARES[0] / p.nodes for p in chosen) <= 10.0 + 0.125 / SHARES[0]


def test_every_core_gets_a_partition() -> None:
    design = ExperimentDesign(SHARES, partitions=400)
    points = design.candidates((1, 2, 4, 8, 16), 4)
    assert points
    assert all(round(p.share * 400) >= 4 * p.nodes for p in points)
    assert max(p.nodes for p in points) == 8  # an eighth of the input is 50 partitions, 16 nodes have 64 cores
    assert design.choose((64,), 4) == []
    assert all(isinstance(point, TrainingPoint) for point in design.choose((1, 2, 4), 4))


# ---------------------------------------------------------------------- searching


@pytest.mark.slow
def test_it_finds_the_optimum_of_a_job_that_follows_the_model() -> None:
    problem = ernest_problem(types=9)
    searcher, train, runs = whole(problem, verify=0)
    best = problem.optimum()
    assert best is not None
    assert [trial.configuration for trial in runs] == [best[0]]
    assert {trial.configuration["instance"] for trial in train} == set(problems.offers(9))
    predicted = {point.configuration: point for point in searcher.predict_map()}
    for i in range(len(problem.candidates)):
        configuration = problem.candidates.configuration(i)
        truth = scaling(configuration, problem.candidates.offer(i), 1.0)
        assert predicted[configuration].time == pytest.approx(truth, rel=1e-4)


def test_training_runs_are_small_parts_and_cost_little() -> None:
    problem = ernest_problem()
    _, train, _ = whole(problem)
    assert all(0.016 <= trial.proposal.fidelity <= 0.125 for trial in train)
    assert all(trial.proposal.why["fraction"] == trial.proposal.fidelity for trial in train)
    everything = sum(problem.bill(problem.candidates.configuration(i)) for i in range(len(problem.candidates)))
    assert sum(trial.spent for trial in train) < 0.25 * everything


@pytest.mark.slow
def test_with_noise_it_is_near_the_optimum() -> None:
    problem = ernest_problem(types=9, noise=0.05)
    best = problem.optimum()
    assert best is not None
    _, _, runs = whole(problem)
    found = min(trial.observation.cost for trial in runs if trial.observation.feasible)
    assert found <= 1.15 * best[1]


@pytest.mark.slow
def test_it_checks_as_many_as_it_is_told() -> None:
    for verify in (0, 1, 4):
        searcher, _, runs = whole(ernest_problem(), verify=verify)
        assert len(runs) == 1 + verify
        expected = [trial.proposal.why["expected_cost"] for trial in runs]
        assert all(a <= 1.01 * b for a, b in pairwise(expected))
        assert "the predicted best is" in last_words(searcher)


def test_the_least_runtime_is_looked_for_as_well() -> None:
    problem = ernest_problem(objective=Objective("runtime"), deadline=None)
    _, _, runs = whole(problem, verify=0)
    best = problem.optimum()
    assert best is not None
    assert runs[0].configuration == best[0]


def test_a_deadline_that_nothing_meets_is_said_and_the_nearest_is_tried() -> None:
    problem = ernest_problem(deadline=5.0)
    searcher, _, runs = whole(problem, verify=1)
    fastest = min(range(len(problem.candidates)), key=lambda i: problem.truth(
        problem.candidates.configuration(i), problem.candidates.offer(i)).runtime)  # fmt: skip
    assert runs[0].configuration == problem.candidates.configuration(fastest)
    assert len(runs) == 2
    assert "no configuration is predicted to meet the deadline" in last_words(searcher)


@pytest.mark.slow
def test_runs_go_on_until_one_is_feasible() -> None:
    """The predicted best ones fail on the whole input: their memory does not hold it."""

    def truth(configuration: Configuration, offer: Offer) -> KnownOutcome:
        failed = "out of memory" if offer.memory_gib * offer.nodes < 60 else ""
        return KnownOutcome(scaling(configuration, offer, 1.0), failed=failed)

    problem = ernest_problem(truth=truth)
    searcher = searcher_of(problem, verify=0)
    trials = []
    for number in range(300):
        answer = searcher.ask(SearchState(proposed=number))
        if isinstance(answer, NothingLeft):
            break
        harmless = replace(problem, truth=lambda _c, _o: KnownOutcome(1.0))
        trial = problems.evaluate(problem if answer[0].fidelity == 1.0 else harmless, answer[0], number)
        searcher.tell(trial)
        trials.append(trial)
    runs = [trial for trial in trials if trial.proposal.fidelity == 1.0]
    assert [trial.state for trial in runs[:-1]] == [TrialState.FAILED] * (len(runs) - 1)
    assert len(runs) > 1
    assert runs[-1].state == TrialState.SUCCEEDED


def test_a_job_that_ignores_the_share_is_noticed_and_named() -> None:
    problem = ernest_problem(scaling=lambda c, o, _share: scaling(c, o, 1.0))
    searcher, train, runs = whole(problem)
    assert runs == []
    assert len(train) <= 24  # two of the three types
    words = last_words(searcher)
    assert "the job seems to ignore the share of the input" in words
    assert "{{ fraction }}" in words


def test_one_type_whose_times_do_not_fall_stops_nothing() -> None:
    def partly(configuration: Configuration, offer: Offer, share: float) -> float:
        return scaling(configuration, offer, 1.0 if offer.category == "general" else share)

    _, _, runs = whole(ernest_problem(scaling=partly))
    assert len(runs) == 3


@pytest.mark.slow
def test_each_combination_of_settings_has_a_model() -> None:
    problem = problems.table_problem(types=2, cliff="none")
    searcher, train, runs = whole(problem)
    assert {(t.configuration["codec"], t.configuration["partitions"]) for t in train} == {
        (codec, partitions) for codec in ("none", "lz4", "zstd") for partitions in (16, 64, 256)
    }
    assert len(searcher.predict_map()) == len(problem.candidates)
    assert len(runs) == 3


@pytest.mark.slow
def test_types_are_chosen_by_name_or_by_number() -> None:
    _, train, _ = whole(ernest_problem(types=9), types=("m9.large", "r9.large"))
    assert {trial.configuration["instance"] for trial in train} == {"m9.large", "r9.large"}
    _, train, _ = whole(ernest_problem(types=9), most_types=2)
    assert {trial.configuration["instance"] for trial in train} == {"c9.large", "c9.xlarge"}  # equal price per core


def test_cores_may_count_as_machines() -> None:
    _, _, runs = whole(ernest_problem(), machines="cores")
    assert len(runs) == 3


@pytest.mark.slow
def test_training_stops_at_its_share_of_the_budget() -> None:
    _, train, _ = whole(ernest_problem(types=9))
    bill = sum(trial.spent for trial in train)
    _, some, runs = whole(ernest_problem(types=9, dollars=bill / 2), training_share=0.5)
    first = {trial.configuration["instance"] for trial in some}
    assert 1 <= len(first) < 9
    assert runs
    problem = ernest_problem(types=9)
    _, few, runs = whole(replace(problem, budget=Budget(trials=30)), training_share=0.4)
    assert len({trial.configuration["instance"] for trial in few}) < 9
    assert runs


@pytest.mark.slow
def test_a_small_budget_is_not_spent_on_training_alone() -> None:
    design = len(whole(ernest_problem(types=1))[1])
    problem = replace(ernest_problem(), budget=Budget(trials=design))
    _, train, runs = whole(problem)
    assert len({trial.configuration["instance"] for trial in train}) == 1
    assert 3 <= len(train) < design
    assert runs, "the type had a model after half of the trials"


@pytest.mark.slow
def test_a_whole_run_of_the_choice_is_kept_back() -> None:
    """A model takes 0.3 times the best run's cost, and all training of the first type 1.1 times."""
    best = ernest_problem().optimum()
    assert best is not None
    for times, parallel in itertools.product((1.5, 2.0, 5.0), (1, 3)):
        problem = ernest_problem(dollars=times * best[1])
        searcher = searcher_of(problem, training_share=1.0)
        trials = drive(searcher, problem, 300, parallel)
        runs = [trial for trial in trials if trial.proposal.fidelity == 1.0]
        assert runs[0].configuration == best[0]
        assert all(trial.observation is not None and trial.observation.feasible for trial in runs)


def test_money_for_training_and_no_run_is_said() -> None:
    """What a run is predicted to cost is not begun with less, and training takes no more than the model needs."""
    best = ernest_problem().optimum()
    assert best is not None
    problem = ernest_problem(dollars=1.25 * best[1])
    searcher = searcher_of(problem)
    trials = drive(searcher, problem, 300)
    assert len(trials) == 4
    assert all(trial.proposal.fidelity < 1.0 for trial in trials)
    left = 1.25 * best[1] - sum(trial.spent for trial in trials)
    answer = searcher.ask(SearchState(proposed=4, money_left=left))
    assert isinstance(answer, NothingLeft)
    assert "instance=c9.large, nodes=4 (predicted $0.0838, 14m 47s)" in answer.reason
    assert "left pay no further predicted run" in answer.reason


def test_money_that_ends_before_there_is_a_model_is_said() -> None:
    problem = ernest_problem(dollars=0.02)
    searcher = searcher_of(problem)
    trials = drive(searcher, problem, 300)
    answer = searcher.ask(SearchState(proposed=len(trials), money_left=0.0))
    assert isinstance(answer, NothingLeft)
    assert "no instance type has enough training runs for a model" in answer.reason
    assert "of the $0.0200 of the budget" in answer.reason
    assert "every configuration has been tried" not in answer.reason


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_trials_for_no_whole_run_are_not_begun(share: float) -> None:
    for trials in (1, 4):
        problem = replace(ernest_problem(), budget=Budget(trials=trials))
        searcher, train, runs = whole(problem, training_share=share)
        assert not train
        assert not runs
        answer = searcher.ask(SearchState(trials_left=trials))
        assert isinstance(answer, NothingLeft)
        said = "1 trial" if trials == 1 else "4 trials"
        assert answer.reason == f"the budget has {said}, and a model takes 4 training runs and a whole run"
    _, train, runs = whole(replace(ernest_problem(), budget=Budget(trials=5)), training_share=share)
    assert (len(train), len(runs)) == (4, 1)


def test_a_part_that_failed_is_replaced_where_money_is_short() -> None:
    """Other parts than those that a model would need at first lead to one as well."""
    problem = ernest_problem(types=1, dollars=1.0)
    searcher = searcher_of(problem)
    shares = []
    for number in range(6):
        answer = searcher.ask(SearchState(proposed=number, money_left=1.0))
        assert not isinstance(answer, NothingLeft)
        shares.append(answer[0].fidelity)
        trial = problems.evaluate(problem, answer[0], number)
        searcher.tell(ended_trial(problem, answer[0], number, TrialState.FAILED) if number == 1 else trial)
    assert searcher.predict_map()
    assert len(shares) == 6


def test_several_checks_at_once_are_paid_together() -> None:
    problem = ernest_problem()
    searcher = searcher_of(problem)
    trials = drive(searcher, problem, 300, until=lambda trial: trial.proposal.fidelity == 1.0)
    for money, many in ((0.2, 2), (0.35, 2), (0.09, 1)):
        answer = searcher.ask(SearchState(proposed=len(trials), money_left=money), 3)
        assert not isinstance(answer, NothingLeft)
        assert len(answer) <= many
        assert sum(float(proposal.why["expected_cost"]) for proposal in answer) <= money


@pytest.mark.slow
def test_money_that_pays_no_predicted_run_is_said() -> None:
    problem = ernest_problem()
    searcher = searcher_of(problem)
    trials = drive(searcher, problem, 300, until=lambda trial: trial.proposal.fidelity == 1.0)
    answer = searcher.ask(SearchState(proposed=len(trials), money_left=0.001))
    assert isinstance(answer, NothingLeft)
    assert "left pay no further predicted run" in answer.reason


@pytest.mark.slow
def test_several_at_once_wait_for_the_training() -> None:
    problem = ernest_problem()
    alone, together = searcher_of(problem), searcher_of(problem)
    one = {t.key for t in drive(alone, problem, 300)}
    many = {t.key for t in drive(together, problem, 300, parallel=5)}
    assert one == many


@pytest.mark.slow
@pytest.mark.parametrize("state", [TrialState.FAILED, TrialState.ABORTED])
def test_when_no_training_run_ends_well_that_is_said(state: TrialState) -> None:
    problem = ernest_problem(types=2)
    searcher = searcher_of(problem)
    for number in range(100):
        answer = searcher.ask(SearchState(proposed=number))
        if isinstance(answer, NothingLeft):
            break
        searcher.tell(ended_trial(problem, answer[0], number, state))
    assert "no instance type has enough training runs for a model" in last_words(searcher)
    assert searcher.predict_map() == []
    assert searcher.map_basis().startswith("Models: 0")


@pytest.mark.slow
def test_a_minimum_of_the_bill_counts_in_the_prediction() -> None:
    billing = Billing(minimum_seconds=3600.0, granularity_seconds=1.0)
    problem = ernest_problem(billing=billing)
    searcher, _, _ = whole(problem)
    for point in searcher.predict_map():
        hourly = problem.resolver.resolve(point.configuration).hourly
        assert point.cost == pytest.approx(max(1.0, point.time / 3600.0) * hourly, rel=1e-3)


@pytest.mark.slow
def test_what_it_expects_is_explained() -> None:
    problem = ernest_problem()
    searcher, _, runs = whole(problem)
    said = searcher.explain(runs[0].configuration)
    assert set(said) == {"expected_cost", "expected_time", "model"}
    assert "s/m" in str(said["model"])
    assert searcher_of(problem).explain(runs[0].configuration) == {}


@pytest.mark.parametrize(
    ("problem", "given", "words"),
    [
        (problems.flat_problem, {}, "no nodes parameter"),
        (problems.continuous_problem, {}, "no nodes parameter"),
        (lambda: problems.table_problem(objective=Objective("throughput", "maximise")), {}, "maximise throughput"),
        (problems.table_problem, {"most_settings": 4}, "9 combinations of partitions, codec"),
        (problems.table_problem, {"least_fraction": 0.2}, "least_fraction must be below largest_fraction"),
    ],
)
def test_what_it_cannot_do_is_refused_in_one_line(problem: Any, given: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words) as refusal:
        searcher_of(problem(), **given)
    assert "\n" not in str(refusal.value)


def test_partitions_too_few_and_unknown_types_are_refused() -> None:
    with pytest.raises(SpecError, match="gives every core one"):
        searcher_of(ernest_problem(), partitions=3).ask(SearchState())
    with pytest.raises(SpecError, match="no configuration has an instance type of z9"):
        searcher_of(ernest_problem(), types=("z9",)).ask(SearchState())


def test_one_configuration_is_trained_and_tried() -> None:
    _, train, runs = whole(problems.tiny_problem())
    assert train
    assert len(runs) == 1


@pytest.mark.slow
def test_a_thousand_machine_choices_take_seconds() -> None:
    problem = ernest_problem(types=12, nodes=tuple(range(1, 65)))
    started = time.process_time()
    answer = searcher_of(problem).ask(SearchState(), 4)
    assert time.process_time() - started < 5.0
    assert not isinstance(answer, NothingLeft)
    assert len(answer) == 4
