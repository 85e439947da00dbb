"""Transfer of the default searcher from earlier jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from tradewind import plugins
from tradewind.problem import (
    Categorical,
    Configuration,
    JobParameters,
    Objective,
    Offer,
    Parameter,
    PastStudy,
    Problem,
    Proposal,
    Trial,
    TrialState,
)
from tradewind.searcher.base import SearchState
from tradewind.searcher.default import TradewindSearcher
from tradewind.searcher.default.transfer import PastJob, TransferPrior, TransferProcess, past_jobs
from tradewind.searcher.surrogate.features import FeatureMap
from tradewind.searcher.surrogate.gp import Array
from tradewind.testing import problems
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive, evaluate

pytestmark = pytest.mark.slow


def job(k: int) -> KnownProblem:
    """The k-th of a family of jobs: much the same use of cores and memory, on inputs of different sizes."""
    size, serial = 1.0 + 0.7 * k, 0.01 + 0.004 * k

    def truth(_configuration: Configuration, offer: Offer) -> KnownOutcome:
        cores = offer.vcpu * offer.nodes
        speed = {"compute": 1.2, "general": 1.0, "memory": 1.0}[offer.category]
        tight = 3.0 if offer.memory_gib * offer.nodes < 60.0 else 1.0
        return KnownOutcome(size * (8000.0 * tight / speed * (serial + (1 - serial) / cores) + 12.0 * offer.nodes))

    return problems.make_problem(problems.machine_parameters(12, (1, 2, 4, 8)), truth, deadline=size * 1200.0)


def study(
    problem: KnownProblem,
    name: str = "other",
    *,
    count: int = 48,
    seed: int = 0,
    values: Mapping[str, float | str] | None = None,
    change: Callable[[Trial], Trial] = lambda trial: trial,
) -> PastStudy:
    """So many whole runs of a job, at random."""
    order = np.random.default_rng(seed).permutation(len(problem.candidates))[:count]
    trials = (evaluate(problem, Proposal(problem.candidates.configuration(int(i))), n) for n, i in enumerate(order))
    return PastStudy(name, JobParameters(values or {}), tuple(change(trial) for trial in trials))


def with_runtime(trial: Trial, runtime: float) -> Trial:
    assert trial.observation is not None
    return replace(trial, observation=replace(trial.observation, runtime=runtime))


def shuffled(of: PastStudy, seed: int) -> PastStudy:
    """The same runs with each other's times."""
    times = [t.observation.runtime for t in of.trials if t.observation is not None]
    mixed = np.random.default_rng(seed).permutation(times)
    return replace(of, trials=tuple(with_runtime(t, float(s)) for t, s in zip(of.trials, mixed, strict=True)))


def family(count: int = 5) -> tuple[PastStudy, ...]:
    return tuple(study(job(k), f"job{k}", seed=k) for k in range(1, count + 1))


def make(problem: Problem, seed: int = 0) -> TradewindSearcher:
    made = plugins.create("searcher", "tradewind", {}, problem=problem, seed=seed)
    assert isinstance(made, TradewindSearcher)
    return made


def jobs_of(problem: Problem) -> list[PastJob]:
    features = FeatureMap(problem, problem.candidates)
    return past_jobs(problem, features, problem.candidates, features.of_candidates(problem.candidates))


def transfer_prior_of(problem: Problem) -> TransferPrior:
    """The prior from earlier jobs, also where the searcher would leave them alone."""
    return TransferPrior(jobs_of(problem), make(problem)._features, np.log(problem.candidates.hourly))


def proposals(problem: KnownProblem, count: int = 8) -> list[Proposal]:
    return [t.proposal for t in drive(make(problem), problem, count, abort=True)]


def money_to_good(problem: KnownProblem, seed: int = 0) -> float:
    """USD until a run is within 5 % of the best."""
    optimum = problem.optimum()
    assert optimum is not None

    def good(trial: Trial) -> bool:
        seen = trial.observation
        return bool(seen and seen.feasible and seen.objective and seen.objective <= 1.05 * optimum[1])

    trials = drive(make(problem, seed), problem, len(problem.candidates), abort=True, until=good)
    assert good(trials[-1])
    return sum(t.spent for t in trials)


# ---------------------------------------------------------------------- which runs count


def test_studies_of_one_job_are_one_job() -> None:
    problem = job(0)
    parts = [study(job(1), "one", count=4, seed=s, values={"size": 1}) for s in range(3)]
    (found,) = jobs_of(replace(problem, past=tuple(parts)))
    assert found.x.shape == (12, found.x.shape[1])
    other = replace(parts[2], parameters=JobParameters({"size": 2}))
    # Of the other one there are four runs: too few to say anything.
    assert [len(j.y) for j in jobs_of(replace(problem, past=(*parts[:2], other)))] == [8]


def test_times_are_taken_as_logarithms_at_the_rows_of_the_candidates() -> None:
    problem = replace(job(0), past=(study(job(1)),))
    (found,) = jobs_of(problem)
    features = FeatureMap(problem, problem.candidates)
    for trial, row, y in zip(problem.past[0].trials, found.x, found.y, strict=True):
        assert trial.observation is not None
        wanted = features.of(trial.configuration, trial.offer)
        assert wanted is not None
        assert np.allclose(row, wanted)
        assert y == pytest.approx(math.log(trial.observation.runtime))


def test_runs_on_machines_of_elsewhere_change_nothing() -> None:
    problem = job(0)

    def elsewhere(trial: Trial) -> Trial:
        return replace(trial, offer=replace(trial.offer, provider="else"))

    foreign = replace(problem, past=(study(job(1), change=elsewhere),))
    assert jobs_of(foreign) == []
    assert proposals(foreign) == proposals(problem)


def test_runs_of_another_program_count_for_their_machines() -> None:
    """The past runs have none of this job's settings: they stand for the mean of all candidates on their machines."""
    parameters: list[Parameter] = [
        *problems.machine_parameters(4, (1, 2)),
        Categorical(name="codec", values=("a", "b", "c")),
    ]
    problem = problems.make_problem(parameters, lambda _c, o: KnownOutcome(100.0 / o.nodes), deadline=600.0)
    other = problems.make_problem(problems.machine_parameters(4, (1, 2)), lambda _c, o: KnownOutcome(90.0 / o.nodes))
    problem = replace(problem, past=(study(other),))
    (found,) = jobs_of(problem)
    features = FeatureMap(problem, problem.candidates)
    rows = features.of_candidates(problem.candidates)
    for trial, row in zip(problem.past[0].trials, found.x, strict=True):
        same = [i for i in range(len(problem.candidates)) if problem.candidates.offer(i).key == trial.offer.key]
        assert len(same) == 3
        assert np.allclose(row, rows[same].mean(axis=0))


@pytest.mark.parametrize("what", ["failed", "aborted", "part", "timeless", "endless", "unseen"])
def test_runs_that_do_not_tell_a_whole_time_are_left_out(what: str) -> None:
    def change(trial: Trial) -> Trial:
        return {
            "failed": lambda: replace(trial, state=TrialState.FAILED),
            "aborted": lambda: replace(trial, state=TrialState.ABORTED),
            "part": lambda: replace(trial, proposal=replace(trial.proposal, fidelity=0.5)),
            "timeless": lambda: with_runtime(trial, 0.0),
            "endless": lambda: with_runtime(trial, math.inf),
            "unseen": lambda: replace(trial, observation=None),
        }[what]()

    problem = job(0)
    spoilt = replace(problem, past=(study(job(1), change=change),))
    assert jobs_of(spoilt) == []
    assert proposals(spoilt, 4) == proposals(problem, 4)


def test_few_different_runs_say_nothing() -> None:
    runs = study(job(1), count=4)
    again = replace(runs, trials=runs.trials * 5)
    assert jobs_of(replace(job(0), past=(again,))) == []
    assert len(jobs_of(replace(job(0), past=(study(job(1), count=5),)))) == 1


def test_the_latest_jobs_and_runs_count_where_there_are_many() -> None:
    runs = study(job(1), count=6)
    many = [
        replace(runs, name=f"job{k}", trials=tuple(with_runtime(t, 10.0 + k) for t in runs.trials)) for k in range(20)
    ]
    found = jobs_of(replace(job(0), past=tuple(many)))
    assert [round(math.exp(j.y[0])) for j in found] == list(range(14, 30))
    # Jobs of other machines do not push them out, and a job is as late as its last study.
    foreign = replace(runs, trials=tuple(replace(t, offer=replace(t.offer, provider="x")) for t in runs.trials))
    late = [replace(foreign, name=f"foreign{k}") for k in range(30)]
    found = jobs_of(replace(job(0), past=(*many, *late, many[0])))
    assert [round(math.exp(j.y[0])) for j in found] == [*range(15, 30), 10]
    assert len(found[-1].y) == 12
    long = replace(runs, trials=runs.trials * 50)
    assert len(jobs_of(replace(job(0), past=(long,)))[0].y) == 200


# ---------------------------------------------------------------------- the prior


def test_alike_jobs_are_trusted_and_shuffled_ones_are_not() -> None:
    alike = family()
    mixed = tuple(shuffled(s, k) for k, s in enumerate(alike))
    assert transfer_prior_of(replace(job(0), past=alike)).trust == pytest.approx(6 / 7)
    assert transfer_prior_of(replace(job(0), past=mixed)).trust <= 0.5


def test_scales_tell_alike_jobs_from_shuffled_ones() -> None:
    alike = family()
    mixed = tuple(shuffled(s, k) for k, s in enumerate(alike))
    close = transfer_prior_of(replace(job(0), past=alike)).scales
    apart = transfer_prior_of(replace(job(0), past=mixed)).scales
    assert math.hypot(*close) < 0.25
    assert math.hypot(*apart) > 2 * math.hypot(*close)


def test_the_common_pattern_is_that_of_the_family() -> None:
    problem = replace(job(0), past=family())
    transfer_prior = transfer_prior_of(problem)
    centre, away = transfer_prior.at(transfer_prior.rows)
    truth = np.log([problem.truth(c, o).runtime for c, o in pairs(problem)])
    off = (centre - centre.mean()) - (truth - truth.mean())
    assert np.sqrt((off**2).mean()) < 0.2
    assert away.shape == (len(truth), 5)


def pairs(problem: KnownProblem) -> list[tuple[Configuration, Offer]]:
    table = problem.candidates
    return [(table.configuration(i), table.offer(i)) for i in range(len(table))]


def test_one_job_out_of_line_does_not_move_the_pattern() -> None:
    alike = family()
    odd = replace(alike[0], trials=shuffled(alike[0], 1).trials, name="odd")
    with_it = transfer_prior_of(replace(job(0), past=(*alike, odd)))
    without = transfer_prior_of(replace(job(0), past=alike))
    a, b = with_it.at(with_it.rows)[0], without.at(without.rows)[0]
    assert np.sqrt(((a - a.mean() - b + b.mean()) ** 2).mean()) < 0.2


def test_what_is_asked_twice_is_answered_alike() -> None:
    transfer_prior = transfer_prior_of(replace(job(0), past=family(3)))
    rows = transfer_prior.rows
    first = transfer_prior.at(rows[:6])
    again = transfer_prior.at(np.vstack([rows[3:9], rows[3:4]]))
    assert (first[0][3:] == again[0][:3]).all()
    assert (first[1][3:] == again[1][:3]).all()
    assert again[0][0] == again[0][-1]
    fresh = transfer_prior_of(replace(job(0), past=family(3))).at(rows)
    assert np.allclose(fresh[0][:6], first[0], atol=1e-9)
    assert np.allclose(fresh[1][:6], first[1], atol=1e-9)


def test_a_single_job_is_the_pattern_itself() -> None:
    problem = replace(job(0), past=family(1))
    transfer_prior = transfer_prior_of(problem)
    centre, away = transfer_prior.at(transfer_prior.rows)
    assert (away == 0).all()
    truth = np.log([job(1).truth(c, o).runtime for c, o in pairs(problem)])
    assert np.corrcoef(centre, truth)[0, 1] > 0.97
    assert 0.5 < transfer_prior.trust < 0.6
    assert transfer_prior.scales == (0.3, 0.1)
    assert money_to_good(problem) <= money_to_good(job(0))


def elsewhere(of: PastStudy, every: int) -> PastStudy:
    """The same runs, every so many of them on a machine that this problem has not."""
    moved = (
        replace(t, offer=replace(t.offer, instance_type="another")) if i % every == 0 else t
        for i, t in enumerate(of.trials)
    )
    return replace(of, trials=tuple(moved))


def test_jobs_that_ran_mostly_on_other_machines_are_trusted_less() -> None:
    own = study(job(1), count=20)
    half = elsewhere(own, 2)
    assert [j.share for j in jobs_of(replace(job(0), past=(own,)))] == [1.0]
    assert [(len(j.y), j.share) for j in jobs_of(replace(job(0), past=(half,)))] == [(10, 0.5)]
    whole, part = (transfer_prior_of(replace(job(0), past=(one,))) for one in (own, half))
    assert part.trust == pytest.approx(0.5 * whole.trust)
    # The whole one chooses what to begin with; half of one does not.
    first = proposals(job(0), 1)
    assert proposals(replace(job(0), past=(half,)), 1) == first
    assert proposals(replace(job(0), past=(own,)), 1) != first
    several = tuple(elsewhere(one, 2) if k < 2 else one for k, one in enumerate(family(4)))
    alike, mixed = (transfer_prior_of(replace(job(0), past=past)) for past in (family(4), several))
    assert mixed.trust <= 0.76 * alike.trust


@pytest.mark.parametrize("make_one", [problems.continuous_problem, problems.huge_problem])
def test_a_large_space_is_not_listed_to_tell_whose_machines_they_are(make_one: Callable[[], KnownProblem]) -> None:
    problem = make_one()
    drawn = problem.space.sample(np.random.default_rng(0), 12)
    trials = tuple(evaluate(problem, Proposal(each), n) for n, each in enumerate(drawn))
    with_past = replace(problem, past=(PastStudy("other", JobParameters(), trials),))
    searcher = make(with_past)
    assert searcher._transfer_prior is not None
    assert [job.share for job in searcher._transfer_prior.jobs] == [1.0]
    assert drive(searcher, with_past, 3, abort=True)
    assert "candidates" not in vars(with_past)


# ---------------------------------------------------------------------- the process


def learned(level: float | None = 5.0, level_sd: float = 0.5) -> tuple[TransferProcess, TransferPrior]:
    transfer_prior = transfer_prior_of(replace(job(0), past=family()))
    return TransferProcess(transfer_prior, np.zeros(transfer_prior.rows.shape[1]), level, level_sd), transfer_prior


def test_the_learned_process_predicts_before_any_run() -> None:
    process, transfer_prior = learned()
    centre, away = transfer_prior.at(transfer_prior.rows)
    mean, variance = process.predict(transfer_prior.rows)
    assert np.allclose(mean, centre + 5.0)
    assert np.allclose(variance, transfer_prior.scales[0] ** 2 + 0.25 + (away**2).sum(axis=1))


def test_after_one_run_it_knows_the_others() -> None:
    process, transfer_prior = learned(level_sd=3.0)
    problem = job(0)
    truth = np.log([problem.truth(c, o).runtime for c, o in pairs(problem)])
    process.fit(transfer_prior.rows[[7]], truth[[7]])
    mean, variance = process.predict(transfer_prior.rows)
    assert np.sqrt(((mean - truth) ** 2).mean()) < 0.35
    assert (variance < learned(level_sd=3.0)[0].predict(transfer_prior.rows)[1]).all()


@pytest.mark.parametrize("level", [None, 5.0])
@pytest.mark.parametrize("runs", [0, 1, 4])
def test_fantasies_leave_the_mean_and_keep_the_kind(level: float | None, runs: int) -> None:
    process, transfer_prior = learned(level)
    rows: Array = transfer_prior.rows
    if runs:
        process.fit(rows[:runs], np.linspace(5.0, 6.0, runs))
    other = process.fantasize(rows[10:13])
    assert isinstance(other, TransferProcess)
    assert np.allclose(other.predict(rows[10:13])[0], process.predict(rows[10:13])[0], atol=0.02)
    assert (other.predict(rows[10:13])[1] < process.predict(rows[10:13])[1]).all()
    assert process.fantasize(rows[:0]) is process


# ---------------------------------------------------------------------- the search


@pytest.mark.thorough
def test_alike_jobs_choose_the_first_run_and_halve_the_money() -> None:
    problem = job(0)
    warm = replace(problem, past=family())
    first = proposals(warm, 1)[0]
    assert first.why["stage"] == "search for a feasible one"
    assert first.configuration != proposals(problem, 1)[0].configuration
    assert money_to_good(warm) <= 0.5 * money_to_good(problem)


@pytest.mark.thorough
def test_a_past_that_says_nothing_costs_little() -> None:
    for cold in (job(0), job(3)):
        mixed = tuple(shuffled(s, 10 + k) for k, s in enumerate(family()))
        assert money_to_good(replace(cold, past=mixed)) <= 1.5 * money_to_good(cold)


@pytest.mark.parametrize("deadline", [True, False])
def test_first_runs_beside_each_other(deadline: bool) -> None:
    """Several proposals before any run has ended, and with runs under way."""
    problem = replace(job(0), past=family(3))
    if not deadline:
        problem = replace(problem, constraints=replace(problem.constraints, deadline=None))
    answer = make(problem).ask(SearchState(), 4)
    assert isinstance(answer, list)
    assert len({p.configuration.key for p in answer}) == 4
    assert len(drive(make(problem), problem, 12, parallel=4)) == 12


@pytest.mark.parametrize("metric", ["cost", "runtime"])
def test_without_a_deadline_earlier_jobs_say_how_long_runs_take(metric: str) -> None:
    problem = job(0)
    endless = replace(problem.constraints, deadline=None)
    problem = replace(problem, constraints=endless, objective=Objective(metric), past=family())
    says = [make(problem).explain(problem.candidates.configuration(i)) for i in (0, 20, 40)]
    for i, said in zip((0, 20, 40), says, strict=True):
        bill = problem.bill(problem.candidates.configuration(i))
        assert bill / 8 < float(said["expected_cost"]) < bill * 8
        assert float(said["cost_low"]) < bill < float(said["cost_high"])


@pytest.mark.parametrize("objective", [Objective("runtime"), Objective("throughput", "maximise")])
def test_other_objectives_learn_too(objective: Objective) -> None:
    problem = problems.table_problem(types=3, nodes=(1, 2, 4), objective=objective, cliff="slow")
    past = tuple(study(problem, f"job{k}", count=40, seed=k) for k in range(3))
    warm = replace(problem, past=past)
    trials = drive(make(warm), warm, 10)
    assert len({t.key for t in trials}) == 10
    assert "probability_feasible" in trials[0].proposal.why


def test_the_same_past_gives_the_same_search() -> None:
    warm = replace(job(0), past=family(3))
    assert proposals(warm) == proposals(warm)
