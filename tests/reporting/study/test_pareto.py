"""Several objectives at once: the trials that no other beats in all of them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from tests.reporting.conftest import Build, make_trial
from typer.testing import CliRunner

from tradewind.cli.app import app
from tradewind.errors import InputError
from tradewind.problem import Objective, Trial, TrialState
from tradewind.reporting.study.charts import front_chart
from tradewind.reporting.study.data import StudyData
from tradewind.reporting.study.effects import parameter_effects
from tradewind.reporting.study.html import render_html
from tradewind.reporting.study.pareto import cost_time_front, front, front_document, non_dominated, read_also, sentence
from tradewind.reporting.study.png import write_pngs
from tradewind.reporting.study.terminal import print_report
from tradewind.store.base import Store
from tradewind.testing import problems
from tradewind.testing.problems import drive

BOTH = {"objective": {"minimise": "cost", "also": ["runtime"]}}


def some() -> list[Trial]:
    """Cheap and slow to dear and quick, with worse ones between them, and ones that do not count."""
    figures = [(1.0, 100.0), (2.0, 50.0), (2.5, 60.0), (3.0, 20.0), (3.0, 20.0), (9.0, 20.0)]
    trials = [make_trial(i, {"p": i}, cost, runtime=seconds) for i, (cost, seconds) in enumerate(figures)]
    trials.append(make_trial(6, {"p": 6}, 0.1, runtime=1.0, feasible=False))
    trials.append(make_trial(7, {"p": 7}, 0.1, runtime=1.0, state=TrialState.ABORTED))
    part = make_trial(8, {"p": 8}, 0.1, runtime=1.0)
    return [*trials, replace(part, proposal=replace(part.proposal, fidelity=0.1))]


def printed(data: StudyData) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    print_report(data, console)
    return console.export_text()


def test_by_hand() -> None:
    losses = np.array([[1, 5], [2, 2], [2, 2], [3, 3], [4, 1], [1, 6]], dtype=float)
    assert non_dominated(losses).tolist() == [0, 1, 4]
    assert non_dominated(np.zeros((0, 2))).tolist() == []


@pytest.mark.parametrize("columns", [2, 3])
def test_against_all_pairs(columns: int) -> None:
    losses = np.random.default_rng(columns).integers(0, 12, size=(300, columns)).astype(float)
    beaten = [
        any((other <= row).all() and ((other < row).any() or j < i) for j, other in enumerate(losses) if j != i)
        for i, row in enumerate(losses)
    ]
    assert sorted(non_dominated(losses).tolist()) == np.flatnonzero(~np.array(beaten)).tolist()


def test_only_feasible_whole_runs_count(store: Store, build: Build) -> None:
    data = StudyData.load(store, build(some(), spec=BOTH))
    found = front(data)
    assert [int(data.number[row]) for row in found.rows] == [0, 1, 3]
    assert found.values.tolist() == [[1.0, 100.0], [2.0, 50.0], [3.0, 20.0]]
    assert found.among == 6
    assert cost_time_front(data).tolist() == found.rows.tolist()
    assert "3 of 6 feasible trials" in sentence(found)


def test_a_single_trial_is_not_one_of_many(store: Store, build: Build) -> None:
    data = StudyData.load(store, build([make_trial(0, {"p": 0}, 1.0)], spec=BOTH))
    assert sentence(front(data)) == "The only feasible trial is the best in all objectives at once."


def test_a_metric_to_be_large(store: Store, build: Build) -> None:
    accuracy = [0.9, 0.8, None, 0.95]
    trials = [
        make_trial(i, {"p": i}, 1.0 + i, metrics={} if value is None else {"accuracy": value})
        for i, value in enumerate(accuracy)
    ]
    study = build(trials, spec={"objective": {"minimise": "cost", "also": [{"maximise": "accuracy"}]}})
    found = front(StudyData.load(store, study))
    assert found.values.tolist() == [[1.0, 0.9], [4.0, 0.95]]
    assert found.among == 3
    other = front(StudyData.load(store, study, read_also(["min:accuracy"])))
    assert other.values.tolist() == [[1.0, 0.9], [2.0, 0.8]]


@pytest.mark.thorough
@pytest.mark.slow
def test_the_report_shows_it_where_it_is_wanted(store: Store, build: Build, tmp_path: Path) -> None:
    plain, both = build(some()), build(some(), spec=BOTH)
    wanted = StudyData.load(store, both)
    unasked = StudyData.load(store, plain)
    assert "Trade-off" not in printed(unasked)
    text = printed(wanted)
    assert "Trade-off between cost and runtime" in text
    assert text.count("★ 0") == 2  # among the best, and first of the front
    page = render_html(wanted)
    assert "Trade-off between cost and runtime" in page
    assert page.count('"look": "front"') == 2  # on the map and on their own chart
    assert render_html(unasked).count('"look": "front"') == 1
    chart = front_chart(wanted, front(wanted))
    assert chart is not None
    assert [len(layer.rows) for layer in chart.layers if layer.look == "front"] == [3]
    assert (tmp_path / "a/trade-off.png") in write_pngs(wanted, tmp_path / "a")
    assert (tmp_path / "b/trade-off.png") not in write_pngs(unasked, tmp_path / "b")


def test_one_that_is_best_in_all(store: Store, build: Build) -> None:
    trials = [make_trial(i, {"p": i}, 1.0 + i, runtime=10.0 + i) for i in range(3)]
    data = StudyData.load(store, build(trials, spec=BOTH))
    assert front_chart(data, front(data)) is None
    assert "best in all" in sentence(front(data))
    empty = StudyData.load(store, build([], spec=BOTH))
    assert "No feasible trial" in sentence(front(empty))
    assert "Trade-off" in printed(empty)


def test_words_of_the_command_line() -> None:
    assert read_also(["runtime", "max:accuracy"]) == (Objective("runtime"), Objective("accuracy", "maximise"))
    for wrong in ("", "most:accuracy", "max:"):
        with pytest.raises(InputError, match="--also"):
            read_also([wrong])


@pytest.mark.slow
def test_the_command(tmp_path: Path, build: Build) -> None:
    build(some())
    store_url = f"sqlite:///{tmp_path / 'tw.db'}"
    answer = CliRunner().invoke(app, ["report", "--store", store_url, "--also", "runtime"])
    assert answer.exit_code == 0, answer.output
    assert "Trade-off between cost and runtime" in answer.output
    answer = CliRunner().invoke(app, ["report", "--store", store_url, "--json"])
    document = json.loads(answer.output)["pareto"]
    assert [one["trial"] for one in document["trials"]] == [0, 1, 3]
    assert document["objectives"] == [
        {"metric": "cost", "goal": "minimise"},
        {"metric": "runtime", "goal": "minimise"},
    ]


def ready(goal: str) -> Callable[[], problems.KnownProblem]:
    if goal == "cost":
        objective = Objective(also=(Objective("runtime"),))
        return lambda: problems.table_problem(cliff="slow", deadline=None, objective=objective)
    return lambda: replace(
        problems.training_problem(limit=None), objective=Objective("accuracy", "maximise", (Objective("cost"),))
    )


@pytest.mark.slow
@pytest.mark.parametrize("goal", ["cost", "accuracy"])
def test_ready_problems_searched_at_random(store: Store, build: Build, goal: str) -> None:
    """With every configuration tried, the front is the true one, and the single objective's best is on it."""
    from tradewind.plugins import create

    problem = ready(goal)()
    searcher = create("searcher", "random", {}, problem=problem, seed=1)
    trials = drive(searcher, problem, 500)
    words = {"minimise": problem.objective.metric} if goal == "cost" else {"maximise": "accuracy"}
    other = problem.objective.also[0].metric
    data = StudyData.load(store, build(trials, spec={"objective": {**words, "also": [other]}}))
    found = front(data)
    assert found.among == len(problem.candidates)
    assert data.best_row is not None
    assert data.objective[data.best_row] == found.values[0, 0]
    truth = [problems.evaluate(problem, t.proposal).observation for t in trials]
    sign = 1.0 if goal == "cost" else -1.0
    points = np.array([(sign * t.metrics[problem.objective.metric], t.metrics[other]) for t in truth if t is not None])
    expected = {tuple(points[i]) for i in non_dominated(points)}
    assert {(sign * a, b) for a, b in found.values.tolist()} == expected
    assert len(expected) > 2


def test_parts_of_the_input_explain_nothing(store: Store, build: Build) -> None:
    """A searcher of parts runs bad configurations on small parts: their costs must not make these look cheap."""
    whole = [make_trial(i, {"workers": 1 + i % 4}, 1.0 + i % 4) for i in range(16)]
    parts = [make_trial(16 + i, {"workers": 4}, 0.01 * (1 + i)) for i in range(16)]
    parts = [replace(t, proposal=replace(t.proposal, fidelity=0.1)) for t in parts]
    alone = parameter_effects(StudyData.load(store, build(whole)))
    mixed = parameter_effects(StudyData.load(store, build([*whole, *parts])))
    assert alone is not None
    assert mixed == alone


def test_the_document_is_json(store: Store, build: Build) -> None:
    data = StudyData.load(store, build(some(), spec=BOTH))
    assert json.loads(json.dumps(front_document(data, front(data))))["among"] == 6
