from __future__ import annotations

import contextlib
import csv
import itertools
import math
import threading
import tracemalloc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tradewind import plugins
from tradewind.errors import MissingProgramError, RecordError, SpecError
from tradewind.problem import (
    Billing,
    Budget,
    Configuration,
    Instance,
    JobParameters,
    Nodes,
    Objective,
    Observation,
    Offer,
    PastStudy,
    Proposal,
    Trial,
    TrialState,
)
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.searcher.paris import forest
from tradewind.searcher.paris.forest import TimeForest, choose_pairs, left_out_errors, screening_errors
from tradewind.searcher.paris.searcher import ParisSearcher
from tradewind.searcher.paris.workload_table import (
    TableMachine,
    WorkloadMeasurement,
    WorkloadTable,
    csv_measurements,
    machine_choices,
    machine_facts,
    machine_labels,
    machine_of,
    machines_by_name,
    past_measurements,
)
from tradewind.testing import problems
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive, evaluate, machine_parameters, make_problem

TABLE = Path(__file__).parents[1] / "data" / "paris_table.csv"
NODES = (1, 2, 4, 8)


def truth_of(
    work: float, serial: float, traffic: float, memory: float
) -> Callable[[Configuration, Offer], KnownOutcome]:
    """A job of the same kind as those of the table."""

    def truth(_configuration: Configuration, offer: Offer) -> KnownOutcome:
        speed = {"compute": 1.25, "general": 1.05, "memory": 1.0}[offer.category]
        seconds = 20 + work / speed * (serial + (1 - serial) / (offer.vcpu * offer.nodes))
        seconds += traffic * (offer.nodes - 1) ** 0.7
        return KnownOutcome(seconds * (1.6 if memory / offer.nodes > 0.9 * offer.memory_gib else 1.0))

    return truth


def paris_problem(truth: Any = None, types: int = 6, nodes: Sequence[int] = NODES, **given: Any) -> KnownProblem:
    given = {"deadline": 3600.0, **given}
    return make_problem(machine_parameters(types, nodes), truth or truth_of(16_000, 0.015, 18, 16), **given)


def searcher_of(problem: KnownProblem, **given: Any) -> ParisSearcher:
    settings = ParisSearcher.Settings(**{"table": TABLE, "pairs_tried": 2, "trees": 20, **given})
    return ParisSearcher(settings=settings, problem=problem, seed=1)


def searched(problem: KnownProblem, **given: Any) -> tuple[ParisSearcher, list[Trial]]:
    searcher = searcher_of(problem, **given)
    return searcher, drive(searcher, problem, 200)


def last_words(searcher: ParisSearcher) -> str:
    answer = searcher.ask(SearchState(proposed=99))
    assert isinstance(answer, NothingLeft)
    assert answer.final
    assert "\n" not in answer.reason
    return answer.reason


def past_of(problem: KnownProblem, jobs: int, profile: bool = False, noise: float = 0.0) -> tuple[PastStudy, ...]:
    """Studies of other jobs that ran on every machine."""
    studies = []
    for job in range(jobs):
        work = replace(problem, truth=truth_of(6000.0 * 1.6**job, 0.004 * 2**job, 6.0 * job, 5.0 * job), noise=noise)
        trials = []
        for i in range(len(problem.candidates)):
            trial = evaluate(work, Proposal(problem.candidates.configuration(i)), i)
            if profile:
                assert trial.observation is not None
                cores = trial.offer.vcpu * trial.offer.nodes
                counters = {"cpu_seconds": trial.observation.runtime * cores, "peak_memory_bytes": 1e9 * job}
                trial = replace(trial, observation=replace(trial.observation, profile=counters))
            trials.append(trial)
        studies.append(PastStudy(f"job{job}", JobParameters({"size": float(job)}), tuple(trials)))
    return tuple(studies)


# ---------------------------------------------------------------------- table


def test_a_csv_is_read_with_its_counters(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(
        "workload,instance,nodes,runtime,spill\nsort,c9.large,2,10.5,3\nsort,c9.large,2,11.5,\ngrep,x,1,5,1\n"
    )
    runs = list(csv_measurements(file))
    assert runs[0] == WorkloadMeasurement("sort", TableMachine("c9.large", 2), 10.5, {"spill": 3.0})
    table = WorkloadTable.of(runs, [TableMachine("c9.large", 2), TableMachine("c9.large", 4)])
    assert table.workloads == ["sort"]
    assert table.seconds[0, 0] == 11.0
    assert np.isnan(table.seconds[0, 1])
    assert table.counters["spill"][0, 0] == 3.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workload,instance,nodes\n", "no column 'runtime'"),
        ("workload,instance,nodes,runtime\na,b,two,5\n", "not a number"),
        ("workload,instance,nodes,runtime\na,b,2,fast\n", "not a number"),
        ("workload,instance,nodes,runtime\na,b\n", "the row has fewer values than the table has columns"),
        ("nodes,runtime,instance,workload\n1,5,x,a\n1,5\n", "the row has fewer values"),
        ("workload,instance,nodes,runtime\na,b,2,5,6\n", "the row has more values"),
        ("workload,instance,nodes,runtime\n,b,2,5\n", "the row has no workload"),
        ("workload,instance,nodes,runtime\na,b,2," + "5" * 200_000 + "\n", "the table is no CSV"),
    ],
)
def test_a_wrong_csv_is_one_line_with_file_and_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(RecordError, match=words) as error:
        list(csv_measurements(file))
    assert "t.csv:" in str(error.value)
    with pytest.raises(RecordError, match="cannot read the table"):
        list(csv_measurements(tmp_path / "none.csv"))


def test_machines_of_the_same_name_are_told_apart_by_provider(tmp_path: Path) -> None:
    """A row without a provider is of all that sell such a type."""
    file = tmp_path / "t.csv"
    file.write_text("workload,provider,instance,nodes,runtime\nw,one,m,1,10\nw,two,m,1,20\nv,,m,1,5\n")
    machines = [TableMachine("m", 1, "one"), TableMachine("m", 1, "two"), TableMachine("n", 1, "two")]
    table = WorkloadTable.of(list(csv_measurements(file)), machines)
    assert table.workloads == ["v", "w"]
    assert table.seconds[:, :2].tolist() == [[5.0, 5.0], [10.0, 20.0]]
    assert np.isnan(table.seconds[:, 2]).all()
    assert table.most_together == 2
    assert machine_labels(machines) == ["1xone/m", "1xtwo/m", "1xn"]
    assert machines_by_name(machines) == {"1xone/m": 0, "1xtwo/m": 1, "1xn": 2, "1xtwo/n": 2}


@pytest.mark.parametrize("measured", [(), (7, 2000, 2999)])
def test_a_table_of_few_machines_of_thousands_for_sale_takes_little_memory(measured: Sequence[int]) -> None:
    machines = [TableMachine(f"type{i}", 1, "cloud") for i in range(3000)]
    runs = [WorkloadMeasurement(f"job{job}", machines[i], 10.0 + i, {}) for i in measured for job in range(4)]
    table = WorkloadTable.of(runs, machines)
    tracemalloc.start()
    try:
        assert table.most_together == (4 if measured else 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 2**20  # a square of all machines takes 72 MB


@pytest.mark.slow
def test_the_same_type_of_two_providers_is_predicted_by_its_own_runs() -> None:
    """One provider's machines are three times as slow as the other's of the same name."""
    sold = problems.offers(4)
    both = {f"{o.instance_type}@{p}": replace(o, provider=p) for p in ("quick", "slow") for o in sold.values()}
    parameters = [Instance(name="instance", values=tuple(both), offers=both), Nodes(name="nodes", values=(1, 2, 4))]

    def twice(work: float) -> Callable[[Configuration, Offer], KnownOutcome]:
        base = truth_of(work, 0.015, 18, 16)
        return lambda c, o: KnownOutcome(base(c, o).runtime * (3.0 if o.provider == "slow" else 1.0))

    problem = make_problem(parameters, twice(16_000))
    past = []
    for job in range(5):
        work = replace(problem, truth=twice(5000.0 * 1.5**job))
        trials = [evaluate(work, Proposal(problem.candidates.configuration(i)), i) for i in range(24)]
        past.append(PastStudy(f"job{job}", JobParameters(), tuple(trials)))
    searcher, trials = searched(replace(problem, past=tuple(past)), table=None, verify=0)
    times = {(str(p.configuration["instance"]), int(p.configuration["nodes"])): p.time for p in searcher.predict_map()}
    for kind, nodes in itertools.product(sold, (1, 2, 4)):
        assert 2.0 < times[f"{kind}@slow", nodes] / times[f"{kind}@quick", nodes] < 4.5
    with pytest.raises(SpecError, match="or of several providers"):
        searcher_of(replace(problem, past=tuple(past)), table=None, references=("1xc9.large", "2xc9.large"))
    chosen = ("1xslow/c9.large", "1xquick/c9.large")
    other = searcher_of(replace(problem, past=tuple(past)), table=None, references=chosen)
    assert "1xslow/c9.large and 1xquick/c9.large" in other.references_words()


@pytest.mark.slow
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e300])
def test_counters_that_are_no_figures_are_left_out(value: float) -> None:
    problem = paris_problem(types=2)
    problem = replace(problem, past=past_of(problem, 4, profile=True))
    searcher = searcher_of(problem, table=None)
    answer = searcher.ask(SearchState(), 2)
    assert not isinstance(answer, NothingLeft)
    for number, proposal in enumerate(answer):
        trial = evaluate(problem, proposal, number)
        assert trial.observation is not None
        counters = {"cpu_seconds": value, "peak_memory_bytes": 2e9}
        searcher.tell(replace(trial, observation=replace(trial.observation, profile=counters)))
    assert searcher.predict_map()
    assert [names for _, names in searcher._forests] == [("peak_memory_bytes",)]
    runs = [WorkloadMeasurement("w", TableMachine("m", 1), 5.0, {"spill": value})]
    assert np.isnan(WorkloadTable.of(runs, [TableMachine("m", 1)]).counters["spill"]).all()


def test_pairs_are_chosen_once_though_several_ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table, facts, hourly = small_table()
    both, calls = threading.Barrier(2), []

    def slow(*_given: Any) -> list[Any]:
        calls.append(1)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # two that choose at the same time meet here
        return []

    monkeypatch.setattr(forest, "_chosen", {})
    monkeypatch.setattr(forest, "_choose", slow)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(choose_pairs, table, facts, hourly, pool=8, tried=2, least=3) for _ in range(2)]
        assert [one.result() for one in waiting] == [[], []]
    assert len(calls) == 1
    named_otherwise = replace(table, machines=[m._replace(provider="other") for m in table.machines])
    choose_pairs(named_otherwise, facts, hourly, pool=8, tried=2, least=3)
    assert len(calls) == 2


def test_earlier_studies_become_workloads_by_job_parameters_and_settings() -> None:
    problem = problems.table_problem(types=2, nodes=(1, 2), cliff="none")
    trials = [
        evaluate(problem, Proposal(problem.candidates.configuration(i)), i) for i in range(len(problem.candidates))
    ]
    failed = replace(trials[0], state=TrialState.FAILED)
    part = replace(trials[1], proposal=replace(trials[1].proposal, fidelity=0.1))
    study = PastStudy("etl", JobParameters({"size": 3.0}), (failed, part, *trials[2:]))
    runs = list(past_measurements([study], ("instance", "nodes")))
    assert len(runs) == len(trials) - 2
    assert {run.workload for run in runs} >= {"etl; size=3.0; codec=lz4, partitions=16"}
    assert len({run.workload for run in runs}) == 9
    assert {run.machine for run in runs} <= {machine_of(trial.offer) for trial in trials}
    assert next(past_measurements([replace(study, parameters=JobParameters({}, 0.1))], ())).workload.startswith(
        "etl; 0.1 of the"
    )


def test_names_of_other_studies_that_choose_machines_are_no_settings() -> None:
    offer = Offer("test", "c9.large", 2, 4, 0.1, nodes=2)
    values = Configuration({"vm": "c9.large", "vcpu": 2, "nodes": 2, "level": 3})
    seen = Observation(1.0, 1.0, 5.0, True)
    trial = Trial(0, Proposal(values), offer, TrialState.SUCCEEDED, "k", seen)
    (run,) = past_measurements([PastStudy("old", JobParameters(), (trial,))], ("instance",))
    assert run.workload == "old; level=3"


def test_descriptions_tell_machines_apart_and_leave_constants_out() -> None:
    candidates = paris_problem().candidates
    offers = [candidates.offer(rows[0]) for rows in machine_choices(candidates)]
    facts = machine_facts(offers)
    assert len({tuple(np.round(row, 9)) for row in facts}) == len(offers)
    assert (np.ptp(facts, axis=0) > 0).all()
    assert machine_facts(offers[:1]).shape == (1, 1)


# ---------------------------------------------------------------------- model


def small_table() -> tuple[WorkloadTable, Any, Any]:
    problem = paris_problem()
    rows = [rows[0] for rows in machine_choices(problem.candidates)]
    offers = [problem.candidates.offer(row) for row in rows]
    machines = [machine_of(offer) for offer in offers]
    return (
        WorkloadTable.of(list(csv_measurements(TABLE)), machines),
        machine_facts(offers),
        problem.candidates.hourly[rows],
    )


def test_the_quick_error_is_that_of_regressions_one_by_one() -> None:
    table, _, _ = small_table()
    for pair in [(0, 5), (3, 20)]:
        logs, expected = table.known, []
        for out in range(len(logs)):
            kept = [w for w in range(len(logs)) if w != out]
            f = logs[kept, pair[1]] - logs[kept, pair[0]]
            off = []
            for j in set(range(logs.shape[1])) - set(pair):
                y = logs[kept, j] - logs[kept, pair[0]]
                slope = ((f - f.mean()) * (y - y.mean())).sum() / (((f - f.mean()) ** 2).sum() + 0.1)
                guess = y.mean() + slope * (logs[out, pair[1]] - logs[out, pair[0]] - f.mean())
                off.append(abs(guess - (logs[out, j] - logs[out, pair[0]])))
            expected.append(np.mean(off))
        assert screening_errors(table, pair) == pytest.approx(expected)


def test_missing_cells_are_left_out_of_the_quick_error() -> None:
    table, _, _ = small_table()
    holes = table.seconds.copy()
    holes[0, 7] = holes[2, 9] = np.nan
    errors = screening_errors(replace(table, seconds=holes), (0, 5))
    assert np.isfinite(errors).all()
    assert len(errors) == len(table.workloads)
    holes[1, 0] = np.nan
    assert len(screening_errors(replace(table, seconds=holes), (0, 5))) == len(table.workloads) - 1


@pytest.mark.slow
def test_the_forest_learns_what_it_was_shown() -> None:
    table, facts, _ = small_table()
    forest = TimeForest.fit(table, facts, (0, 9), trees=60, seed=1)
    for w in range(len(table.workloads)):
        mean, late = forest.predict(facts, (float(table.known[w, 0]), float(table.known[w, 9])), {})
        assert np.abs(mean - table.known[w]).mean() < 0.12
        assert (late >= mean).all()


@pytest.mark.slow
def test_a_workload_that_was_left_out_is_predicted_better_than_by_the_mean() -> None:
    table, facts, _ = small_table()
    relative = table.known - table.known[:, [0]]
    plain = [
        np.abs(np.delete(relative, w, axis=0).mean(axis=0) - relative[w]).mean() for w in range(len(table.workloads))
    ]
    assert left_out_errors(table, facts, (0, 21)).mean() < np.mean(plain)


@pytest.mark.slow
def test_the_chosen_pair_is_no_worse_than_one_standard_error_above_the_best() -> None:
    table, facts, hourly = small_table()
    choices = choose_pairs(table, facts, hourly, pool=12, tried=6, least=3)
    compared = [choice for choice in choices if not choice.screened]
    errors = left_out_errors(table, facts, min(compared, key=lambda c: c.error).pair)
    limit = errors.mean() + errors.std(ddof=1) / np.sqrt(len(errors))
    assert len(compared) == 6
    assert choices[0].error <= limit + 1e-9
    assert len({choice.pair for choice in choices}) == len(choices) == 12 * 11 / 2
    again = choose_pairs(table, facts, hourly, pool=12, tried=6, least=3)
    assert again == choices


@pytest.mark.slow
def test_only_pairs_that_enough_workloads_ran_on_are_compared() -> None:
    table, facts, hourly = small_table()
    holes = table.seconds.copy()
    holes[:4, 3] = np.nan
    choices = choose_pairs(replace(table, seconds=holes), facts, hourly, pool=48, tried=2, least=3)
    assert all(3 not in choice.pair for choice in choices)


# ---------------------------------------------------------------------- searching


@pytest.mark.slow
def test_it_finds_a_configuration_near_the_optimum_with_five_runs() -> None:
    problem = paris_problem()
    searcher, trials = searched(problem)
    best = problem.optimum()
    assert best is not None
    assert len(trials) == 5
    assert [str(t.proposal.why["stage"]).split()[0] for t in trials[:2]] == ["reference", "reference"]
    found = min(t.observation.cost for t in trials if t.observation is not None and t.observation.feasible)
    assert found <= 1.1 * best[1]
    assert "the predicted best is" in last_words(searcher)


@pytest.mark.slow
def test_predictions_are_closer_than_interpolation_between_the_references() -> None:
    """PARIS compares itself with a line through two points; that line is in the number of cores here."""
    problem = paris_problem()
    searcher, trials = searched(problem, verify=0)
    one, two = trials[0], trials[1]
    cores = [t.offer.vcpu * t.offer.nodes for t in (one, two)]
    ours, line = [], []
    for point in searcher.predict_map():
        if point.trial in (0, 1):
            continue
        offer = problem.resolver.resolve(point.configuration)
        seconds = problem.truth(point.configuration, offer).runtime
        ours.append(abs(point.time - seconds) / seconds)
        assert one.observation is not None
        assert two.observation is not None
        times = sorted(zip(cores, (one.observation.runtime, two.observation.runtime), strict=True))
        slope = (times[1][1] - times[0][1]) / max(times[1][0] - times[0][0], 1e-9)
        line.append(abs(times[0][1] + slope * (offer.vcpu * offer.nodes - times[0][0]) - seconds) / seconds)
    assert np.mean(ours) < 0.5 * np.mean(line)


@pytest.mark.slow
def test_the_references_themselves_are_mapped_as_measured() -> None:
    searcher, trials = searched(paris_problem())
    points = {point.trial: point for point in searcher.predict_map() if point.trial is not None}
    for trial in trials[:2]:
        assert trial.observation is not None
        assert points[trial.number].time == points[trial.number].time_p90 == trial.observation.runtime
    assert all((p.time_p90 or 0) >= p.time and (p.cost_p90 or 0) >= p.cost for p in searcher.predict_map())
    assert len(searcher.predict_map()) == 24


@pytest.mark.slow
def test_caution_asks_the_ninetieth_percentile_to_meet_the_deadline() -> None:
    free, trials = searched(paris_problem(deadline=None), verify=0)
    apart = max(free.predict_map(), key=lambda point: (point.time_p90 or 0.0) / point.time)
    assert apart.time_p90 is not None
    deadline = (apart.time * apart.time_p90) ** 0.5
    for meet, judged in (("p90", "time_p90"), ("mean", "time")):
        searcher = searcher_of(paris_problem(deadline=deadline), verify=0, meet=meet)
        for trial in trials:
            searcher.tell(trial)
        points = {point.configuration: point for point in searcher.predict_map()}
        assert all(point.in_time == (getattr(point, judged) <= deadline) for point in points.values())
        assert points[apart.configuration].in_time == (meet == "mean")


@pytest.mark.slow
def test_the_least_runtime_is_looked_for_as_well() -> None:
    problem = paris_problem(objective=Objective("runtime"))
    _, trials = searched(problem)
    best = problem.optimum()
    assert best is not None
    assert min(t.observation.runtime for t in trials if t.observation is not None) <= 1.1 * best[1]


@pytest.mark.slow
def test_earlier_studies_are_a_table() -> None:
    problem = paris_problem()
    problem = replace(problem, past=past_of(problem, 4))
    searcher, trials = searched(problem, table=None)
    assert len(trials) == 5
    assert "over 4 workloads" in searcher.references_words()
    assert searcher.map_basis().startswith("References: ")


@pytest.mark.slow
def test_counters_of_the_references_are_used_where_both_have_them() -> None:
    problem = paris_problem()
    problem = replace(problem, past=past_of(problem, 4, profile=True))
    searcher = searcher_of(problem, table=None)
    answer = searcher.ask(SearchState(), 2)
    assert not isinstance(answer, NothingLeft)
    plain = searcher_of(problem, table=None)
    for number, proposal in enumerate(answer):
        trial = evaluate(problem, proposal, number)
        assert trial.observation is not None
        plain.tell(trial)
        counters = {"cpu_seconds": 5000.0, "peak_memory_bytes": 2e9}
        searcher.tell(replace(trial, observation=replace(trial.observation, profile=counters)))
    searcher.predict_map()
    plain.predict_map()
    assert [names for _, names in searcher._forests] == [("cpu_seconds", "peak_memory_bytes")]
    assert [names for _, names in plain._forests] == [()]


@pytest.mark.slow
def test_a_reference_that_fails_is_replaced() -> None:
    base = truth_of(16_000, 0.015, 18, 16)
    problem = paris_problem()
    first = searcher_of(problem).ask(SearchState(), 2)
    assert not isinstance(first, NothingLeft)
    bad = first[1].configuration
    broken = paris_problem(lambda c, o: KnownOutcome(30.0, failed="boom") if c == bad else base(c, o))
    searcher, trials = searched(broken, verify=0)
    assert sum(str(t.proposal.why["stage"]).startswith("reference") for t in trials) >= 3
    assert trials[-1].state == TrialState.SUCCEEDED
    assert all(point.configuration != bad or point.trial is not None for point in searcher.predict_map())


@pytest.mark.slow
def test_after_a_reference_that_was_cut_short_no_slower_one_is_tried() -> None:
    problem = paris_problem(deadline=1000.0)
    searcher = searcher_of(problem)
    trials = drive(searcher, problem, 200, abort=True)
    references = [t for t in trials if str(t.proposal.why["stage"]).startswith("reference")]
    short = [t for t in references if t.state == TrialState.ABORTED]
    assert short
    table, _, _ = small_table()
    place = {machine: i for i, machine in enumerate(table.machines)}
    order = {t.number: place[machine_of(t.offer)] for t in references}
    for trial in short:
        later = [order[t.number] for t in references if t.number > trial.number + 1]
        assert not set(later) & set(table.slower(order[trial.number]))
    assert any(t.observation is not None and t.observation.feasible for t in trials)


@pytest.mark.slow
def test_when_every_run_fails_that_is_said() -> None:
    searcher, trials = searched(paris_problem(lambda _c, _o: KnownOutcome(5.0, failed="boom"), types=2, nodes=(1, 2)))
    assert len(trials) <= 4
    assert "no pair of reference runs succeeded" in last_words(searcher)
    assert searcher.predict_map() == []


@pytest.mark.slow
def test_references_may_be_given() -> None:
    searcher, trials = searched(paris_problem(), references=("2xc9.xlarge", "4xr9.large"))
    assert [(t.offer.nodes, t.offer.instance_type) for t in trials[:2]] == [(2, "c9.xlarge"), (4, "r9.large")]
    assert "as the settings say" in searcher.references_words()
    with pytest.raises(SpecError, match="is no machine choice of the space"):
        searcher_of(paris_problem(), references=("2xc9.xlarge", "9xr9.large"))
    with pytest.raises(SpecError, match="fewer than 3 workloads"):
        searcher_of(paris_problem(), references=("2xc9.xlarge", "2xc9.xlarge"))


@pytest.mark.slow
def test_each_combination_of_settings_has_references_until_their_share_is_spent() -> None:
    problem = problems.table_problem(types=4, nodes=(1, 2, 4), cliff="none", deadline=None)
    searcher, trials = searched(problem)
    assert sum(str(t.proposal.why["stage"]).startswith("reference") for t in trials) == 18
    assert len(searcher.predict_map()) == len(problem.candidates)
    limited, few = searched(replace(problem, budget=Budget(trials=20)))
    assert sum(str(t.proposal.why["stage"]).startswith("reference") for t in few) == 10
    assert len(few) == 13
    assert len(limited.predict_map()) == 5 * 12


@pytest.mark.slow
def test_several_at_once_wait_for_the_references() -> None:
    problem = paris_problem()
    searcher = searcher_of(problem)
    assert {t.key for t in drive(searcher, problem, 99, parallel=4)} == {t.key for t in searched(problem)[1]}


@pytest.mark.slow
def test_what_it_expects_is_explained() -> None:
    problem = paris_problem()
    searcher, trials = searched(problem)
    said = searcher.explain(trials[-1].configuration)
    assert set(said) == {"expected_cost", "expected_time", "time_p90", "pair"}
    assert "predict a workload that was left out" in str(said["pair"])
    assert searcher_of(problem).explain(trials[-1].configuration) == {}
    assert {"stage", "left_out_error", "pair"} <= set(trials[0].proposal.why)


@pytest.mark.slow
def test_the_same_machines_at_another_price_are_predicted_as_well() -> None:
    """Spot capacity is as fast, and not in the table by itself; it is no second reference to the on-demand one."""
    sold = problems.offers(4)
    spot = {f"{n}-spot": replace(o, spot=True, price_per_hour=0.3 * o.price_per_hour) for n, o in sold.items()}
    both = {**sold, **spot}
    parameters = [Instance(name="instance", values=tuple(both), offers=both), Nodes(name="nodes", values=(1, 2, 4))]
    problem = make_problem(parameters, truth_of(16_000, 0.015, 18, 16))
    searcher, trials = searched(problem)
    assert len(searcher.predict_map()) == 24
    assert len({machine_of(trial.offer) for trial in trials[:2]}) == 2
    assert trials[2].offer.spot
    best = problem.optimum()
    assert best is not None
    assert min(t.observation.cost for t in trials if t.observation is not None) <= 1.1 * best[1]


# ---------------------------------------------------------------------- what it cannot do


def small_file(folder: Path, workloads: int) -> Path:
    with TABLE.open(newline="") as source, (folder / "small.csv").open("w", newline="") as target:
        rows = list(csv.DictReader(source))
        kept = sorted({row["workload"] for row in rows})[:workloads]
        writer = csv.DictWriter(target, ["workload", "instance", "nodes", "runtime"])
        writer.writeheader()
        writer.writerows(row for row in rows if row["workload"] in kept)
    return folder / "small.csv"


@pytest.mark.slow
def test_too_small_a_table_is_refused_in_one_line(tmp_path: Path) -> None:
    for given, found in (({"table": small_file(tmp_path, 2)}, 2), ({"table": None}, 0)):
        with pytest.raises(SpecError, match=f"its table has {found}") as refusal:
            searcher_of(paris_problem(), **given)
        assert "\n" not in str(refusal.value)
        assert refusal.value.hint
    assert len(searched(paris_problem(), table=small_file(tmp_path, 3))[1]) == 5


def test_runs_that_were_cut_short_are_counted_where_the_table_is_too_small() -> None:
    """By default runs of earlier searches end where they can no longer win, and to run more of them changes nothing."""
    problem = make_problem(machine_parameters(2, (1, 2)), lambda _c, o: KnownOutcome(100.0 / o.nodes), deadline=90.0)
    proposals = [Proposal(problem.candidates.configuration(i)) for i in range(4)]
    trials = tuple(evaluate(problem, one, i, abort_at_deadline=True) for i, one in enumerate(proposals))
    cut = sum(trial.state == TrialState.ABORTED for trial in trials)
    assert cut == 2
    part = replace(trials[0], proposal=replace(proposals[0], fidelity=0.1))
    elsewhere = replace(trials[0], offer=replace(trials[0].offer, instance_type="x"))
    past = [PastStudy(f"job{i}", JobParameters(), trials) for i in range(5)]
    past.append(PastStudy("other", JobParameters(), (part, elsewhere)))
    narrow = make_problem(machine_parameters(2, (1,)), lambda _c, _o: KnownOutcome(100.0))
    with pytest.raises(
        SpecError, match="its table has 0; 10 runs of earlier searches on these machines were cut"
    ) as refusal:
        searcher_of(replace(narrow, past=tuple(past)), table=None)
    assert (refusal.value.hint or "").startswith(
        "run the jobs that make the table with abort: false and --fresh, or give table:"
    )
    given = ("1xc9.large", "2xc9.large")
    with pytest.raises(SpecError, match="large; 10 runs of earlier") as refusal:
        searcher_of(replace(problem, past=tuple(past)), table=None, references=given)
    assert (
        refusal.value.hint
        == "run the jobs that make the table with abort: false and --fresh, or leave the references out"
    )
    with pytest.raises(SpecError, match="1 run of earlier searches on these machines was cut short and left out"):
        searcher_of(replace(narrow, past=(PastStudy("one", JobParameters(), trials[:1]),)), table=None)


def test_one_machine_at_two_prices_is_no_pair() -> None:
    offer = problems.offers(1)["c9.large"]
    both = {"a": offer, "b": replace(offer, spot=True, price_per_hour=0.01)}
    problem = make_problem(
        [Instance(name="instance", values=tuple(both), offers=both)], lambda _c, _o: KnownOutcome(9.0)
    )
    with pytest.raises(SpecError, match="its table has 0"):
        searcher_of(problem)


def test_a_table_of_other_machines_is_too_small(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("workload,instance,nodes,runtime\n" + "".join(f"w{i},x,{i},5\n" for i in range(9)))
    with pytest.raises(SpecError, match="its table has 0"):
        searcher_of(paris_problem(), table=tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (problems.flat_problem, "no parameter that does"),
        (lambda: problems.table_problem(objective=Objective("throughput", "maximise")), "maximise throughput"),
        (problems.continuous_problem, "no parameter that does"),
    ],
)
def test_what_it_cannot_do_is_refused_in_one_line(problem: Callable[[], KnownProblem], words: str) -> None:
    with pytest.raises(SpecError, match=words) as refusal:
        searcher_of(problem())
    assert "\n" not in str(refusal.value)


def test_too_many_settings_are_refused() -> None:
    with pytest.raises(SpecError, match="two reference runs for each of the 9 combinations"):
        searcher_of(problems.table_problem(), most_settings=8)


def test_a_missing_package_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "installed", lambda name: name != "quantile_forest")
    with pytest.raises(MissingProgramError, match=r"pip install 'tradewind\[forest\]'"):
        searcher_of(paris_problem())


def test_a_single_machine_choice_needs_no_table() -> None:
    searcher, trials = searched(problems.tiny_problem(), table=None)
    assert len(trials) == 1
    assert last_words(searcher) == "every configuration has been tried"
    assert searcher.map_basis() == ""


@pytest.mark.slow
def test_a_better_pair_that_could_not_be_paid_is_in_nobodys_way(tmp_path: Path) -> None:
    """The best pair holds a machine that the budget never pays: the pair that has run predicts."""

    def truth(_: Configuration, offer: Offer) -> KnownOutcome:
        return KnownOutcome(10 + 500 / (offer.vcpu * offer.nodes) ** 0.8)

    billing = Billing(minimum_seconds=600, granularity_seconds=1.0)
    problem = make_problem(machine_parameters(6, (1, 2, 4)), truth, dollars=0.11, deadline=None, billing=billing)
    lines = ["workload,instance,nodes,runtime"]
    for job in range(4):
        for place in range(len(problem.candidates)):
            offer = problem.candidates.offer(place)
            seconds = 50 + (5000 + 4000 * job) / (offer.vcpu * offer.nodes) ** (0.6 + 0.1 * job)
            lines.append(f"w{job},{offer.instance_type},{offer.nodes},{seconds:.1f}")
    table = tmp_path / "table.csv"
    table.write_text("\n".join(lines))
    given = {"table": str(table), "trees": 10, "reference_pool": 4, "pairs_tried": 2}
    searcher = plugins.create("searcher", "paris", given, problem=problem, seed=1)
    stages = [trial.proposal.why["stage"] for trial in drive(searcher, problem, 12)]
    assert stages == ["reference 1 of 2", "reference 2 of 2", "the predicted best"]
