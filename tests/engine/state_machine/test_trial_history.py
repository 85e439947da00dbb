from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tradewind.engine.state_machine.trial_history import TrialHistory
from tradewind.problem import Constraints, Objective, Threshold, Trial, ranking
from tradewind.problem.ranking import ConfigurationRanking, MeasuredRun
from tradewind.reporting.study.data import StudyData
from tradewind.store.base import Change, Store
from tradewind.store.studies.sql_store import SqlSettings, SqlStore
from tradewind.testing.stores import study_row, trial


def tried(number: int, objective: float, runtime: float = 30.0, fidelity: float = 1.0, feasible: bool = True) -> Trial:
    made = trial(number, objective, feasible=feasible)
    assert made.observation is not None
    seen = replace(made.observation, runtime=runtime)
    return replace(made, observation=seen, proposal=replace(made.proposal, fidelity=fidelity))


def again(number: int, key: str, objective: float, runtime: float, feasible: bool = True) -> Trial:
    return replace(tried(number, objective, runtime, feasible=feasible), key=key)


def best_of(trials: Sequence[Trial], goal: Objective, deadline: float | None = None) -> int | None:
    history = TrialHistory(goal, Constraints(deadline))
    for one in trials:
        history.end(one)
    return history.best.number if history.best else None


@pytest.fixture
def store(tmp_path: object) -> Store:
    return SqlStore(settings=SqlSettings(), url=f"sqlite:///{tmp_path}/tradewind.db")


@pytest.mark.parametrize(
    ("goal", "best", "trials"),
    [
        ("minimise", 2, [tried(0, 0.5), tried(1, 0.75, runtime=1.0), tried(2, 0.25, runtime=90.0)]),
        ("maximise", 1, [tried(0, 0.5), tried(1, 0.75), tried(2, 0.25, runtime=1.0)]),
        ("minimise", 2, [tried(0, 0.5), tried(1, 0.5, runtime=31.0), tried(2, 0.5, runtime=29.0)]),
        ("maximise", 2, [tried(0, 0.5), tried(1, 0.5, runtime=31.0), tried(2, 0.5, runtime=29.0)]),
        ("minimise", 0, [tried(0, 0.5), tried(1, 0.5), tried(2, 0.75)]),
        ("minimise", 1, [tried(0, 0.1, fidelity=0.5), tried(1, 0.5), tried(2, 0.1, feasible=False)]),
        ("minimise", None, [tried(0, 0.1, fidelity=0.5), tried(1, 0.5, feasible=False)]),
    ],
)
def test_engine_store_and_report_agree_on_the_best(
    store: Store, goal: str, best: int | None, trials: list[Trial]
) -> None:
    objective = Objective("cost", "maximise" if goal == "maximise" else "minimise")
    for order in itertools.permutations(trials):  # in which order they ended makes no difference
        assert best_of(order, objective) == best
    for spec in ({"objective": {goal: "cost"}}, {"objective": {"metric": "cost", "goal": goal}}):
        study = store.create_study(study_row(spec=spec))
        store.write(study.id, Change(trials))
        summary = store.summaries([study.id])[0]
        assert (summary.best.number if summary.best else None) == best
        data = StudyData.load(store, study.id)
        assert (data.best.number if data.best else None) == best
    store.close()


@pytest.mark.parametrize(
    ("best", "trials"),
    [
        # The least run is a lucky one: its configuration usually costs 0.5. The usual run of the other stands for it.
        (
            3,
            [
                again(0, "a", 0.3, 10.0),
                again(1, "a", 0.7, 23.0),
                again(2, "b", 0.44, 15.0),
                again(3, "b", 0.4, 14.0),
                again(4, "b", 0.38, 13.0),
            ],
        ),
        # The cheaper one is usually late.
        (
            2,
            [
                again(0, "a", 0.3, 19.0),
                again(1, "a", 0.36, 23.0, feasible=False),
                again(2, "b", 0.4, 12.0),
                again(3, "a", 0.37, 24.0, feasible=False),
            ],
        ),
        # Runs repeat exactly: the least is the best, as ever.
        (2, [again(0, "a", 0.3, 10.0), again(1, "a", 0.3, 10.0), again(2, "b", 0.29, 19.9)]),
    ],
)
def test_they_agree_where_configurations_were_run_again(store: Store, best: int, trials: list[Trial]) -> None:
    for order in itertools.islice(itertools.permutations(trials), 0, None, 7):
        assert best_of(order, Objective(), deadline=20.0) == best
    spec = {"objective": {"metric": "cost", "goal": "minimise"}, "constraints": {"deadline": 20.0}}
    study = store.create_study(study_row(spec=spec))
    store.write(study.id, Change(trials))
    summary = store.summaries([study.id])[0]
    assert summary.best is not None
    assert summary.best.number == best
    data = StudyData.load(store, study.id)
    assert data.best is not None
    assert data.best.number == best


def test_repeated_runs_are_reckoned_with_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    seconds = rng.lognormal(4.0, 0.2, 120)
    trials = [again(n, f"k{n % 40}", s, s, feasible=s < 60.0) for n, s in enumerate(seconds.tolist())]
    measured = [one for one in (MeasuredRun.of(trial, Objective()) for trial in trials) if one is not None]
    expected = [
        ConfigurationRanking(measured[:n], Objective(), Constraints(60.0)).best_run for n in range(41, len(trials) + 1)
    ]
    told = ranking._run_statistics
    reckoned: list[int] = []

    def counting(runs: Sequence[MeasuredRun], limit: float, thresholds: Sequence[Threshold]) -> list[float]:
        reckoned.append(len(runs))
        return told(runs, limit, thresholds)

    monkeypatch.setattr(ranking, "_run_statistics", counting)
    history = TrialHistory(Objective(), Constraints(60.0))
    best = []
    for one in trials:
        history.end(one)
        best.append(history.best)
    assert [one and one.number for one in best[40:]] == [one and one.number for one in expected]
    assert len(reckoned) < len(trials)  # a configuration at each of its runs, and not all of them at each run
    reckoned.clear()
    history = TrialHistory(Objective(), Constraints(60.0))
    for one in trials:
        history.end(one)
    assert (history.best, len(reckoned)) == (best[-1], 40)  # who takes up a study asks once, at the end
