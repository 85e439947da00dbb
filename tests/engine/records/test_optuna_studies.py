"""Optuna studies, in and out; with the real Optuna."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tradewind import plugins
from tradewind.engine.records.foreign_trials import ForeignTrial, foreign_records
from tradewind.engine.records.optuna_export import write_optuna_study
from tradewind.engine.records.optuna_studies import read_optuna_trials
from tradewind.engine.records.study_import import import_foreign_trials
from tradewind.engine.search_builder import build_problem, new_study
from tradewind.errors import RecordError
from tradewind.problem import Objective, Problem, TrialState
from tradewind.problem.job_spec.spec import JobSpec, parse_spec
from tradewind.store.base import Store
from tradewind.utils.paths import store_url

optuna = pytest.importorskip("optuna", reason="OPTUNA IS NOT INSTALLED: pip install 'tradewind[optuna]'")
pytestmark = pytest.mark.slow

JOB = """\
name: mine
job: {command: [sh, -c, "echo {{ x }} {{ n }} {{ mode }} {{ rate }}"]}
space: {x: -5.0..5.0, n: 2..8 step 3, mode: [a, 1, true], rate: 0.0..1.0 step 0.25}
objective: {minimise: loss}
"""


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    return parse_spec(JOB, base=tmp_path)


@pytest.fixture
def problem(spec: JobSpec, tmp_path: Path) -> Problem:
    return build_problem(spec, tmp_path)


def searched(storage: Any, name: str = "mine") -> Any:
    def objective(trial: Any) -> float:
        x, n = trial.suggest_float("x", -5, 5), trial.suggest_int("n", 2, 8, step=3)
        trial.suggest_categorical("mode", ["a", 1, True])
        trial.suggest_float("rate", 0, 1, step=0.25)
        trial.set_user_attr("accuracy", 0.5)
        if trial.number == 1:
            raise ValueError
        if trial.number == 2:
            trial.report(7.0, 3)
            raise optuna.TrialPruned
        return float(x * x + n)

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.RandomSampler(seed=1)
    study = optuna.create_study(storage=storage, study_name=name, sampler=sampler)
    study.optimize(objective, n_trials=5, catch=(ValueError,))
    study.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.WAITING))
    return study


@pytest.mark.parametrize("ending", ["db", "log"])
def test_there_and_back_again(ending: str, spec: JobSpec, problem: Problem, tmp_path: Path) -> None:
    file = tmp_path / "optuna.db"
    theirs = searched(f"sqlite:///{file}")
    store: Store = plugins.create("store", "sql", {}, url=store_url())
    done = import_foreign_trials(f"sqlite:///{file}#mine", store, tmp_path, new_study(spec))
    assert (done.trials.new, done.trials.unfinished) == (5, 1)
    again = import_foreign_trials(str(file), store, tmp_path, store.study(done.trials.study.id))
    assert (again.trials.new, again.trials.known) == (0, 5)
    trials = store.trials(done.trials.study.id)
    assert [trial.state.value for trial in trials] == ["succeeded", "failed", "aborted", "succeeded", "succeeded"]
    out = tmp_path / f"back.{ending}"
    written = write_optuna_study(str(out), "back", problem, trials)
    assert (written.written, written.left, written.notes) == (5, [], [])
    ours = list(read_optuna_trials(str(out), problem.objective))
    assert len(ours) == 5
    storage: Any = f"sqlite:///{out}"
    if ending == "log":
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(out)))
    back = optuna.load_study(study_name="back", storage=storage)
    for one, other in zip(theirs.trials, back.trials, strict=False):
        assert (one.params, one.values, one.state) == (other.params, other.values, other.state)
        assert one.intermediate_values == other.intermediate_values
        assert other.user_attrs["accuracy"] == 0.5
        assert abs((one.datetime_complete - other.datetime_complete).total_seconds()) < 0.01
    back.sampler = optuna.samplers.TPESampler(seed=1)
    assert set(back.ask(theirs.trials[0].distributions).params) == {"x", "n", "mode", "rate"}, "it can go on there"


def test_names_without_ascii_are_mapped_and_come_back(tmp_path: Path) -> None:
    """The variables of a run's environment, which have parameters' names, are plain on all engines."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    theirs = optuna.create_study(storage=f"sqlite:///{tmp_path}/o.db", study_name="größe 学")
    for number in range(3):
        given = {"größe": 0.5, "学習率": number, "opt/lr": "a", "x": 1}
        kinds = {
            "größe": optuna.distributions.FloatDistribution(0, 1),
            "学習率": optuna.distributions.IntDistribution(0, 5),
            "opt/lr": optuna.distributions.CategoricalDistribution(["a", "b"]),
            "x": optuna.distributions.IntDistribution(1, 3),
        }
        theirs.add_trial(optuna.trial.create_trial(params=given, distributions=kinds, value=float(number)))
    job = """\
name: plain
job: {command: [sh, -c, "echo {{ grosse }} {{ rate }} {{ opt_lr }} {{ x }}"]}
space: {grosse: 0.0..1.0, rate: 0..5, opt_lr: [a, b], x: 1..3}
objective: {minimise: loss}
"""
    spec = parse_spec(job, base=tmp_path)
    store: Store = plugins.create("store", "sql", {}, url=store_url())
    with pytest.raises(RecordError, match=r"no parameter '学習率' .*--rename NAME=PARAMETER says which one it is"):
        import_foreign_trials(f"{tmp_path}/o.db", store, tmp_path, new_study(spec))
    done = import_foreign_trials(f"{tmp_path}/o.db", store, tmp_path, new_study(spec), {"学習率": "rate"})
    assert done.notes[0] == "called otherwise in the job: größe is grosse, 学習率 is rate, opt/lr is opt_lr"
    trials = store.trials(done.trials.study.id)
    assert [trial.configuration["rate"] for trial in trials] == [0, 1, 2]
    for ending in ("db", "log"):
        out = write_optuna_study(f"{tmp_path}/back.{ending}", "back", build_problem(spec, tmp_path), trials)
        (note,) = out.notes
        assert note == (
            "parameters are called as where they came from: grosse is größe, rate is 学習率, opt_lr is opt/lr"
        )
    back = optuna.load_study(study_name="back", storage=f"sqlite:///{tmp_path}/back.db")
    assert [trial.params for trial in back.trials] == [trial.params for trial in theirs.trials]
    assert [trial.distributions for trial in back.trials] == [trial.distributions for trial in theirs.trials]
    again = import_foreign_trials(f"{tmp_path}/back.log", store, tmp_path, new_study(spec), {"学習率": "rate"})
    assert again.trials.new == 3


def test_a_name_that_two_parameters_had_is_not_written_for_both(
    spec: JobSpec, problem: Problem, tmp_path: Path
) -> None:
    """Two studies that were imported had it for different ones; each value is written."""
    store: Store = plugins.create("store", "sql", {}, url=store_url())
    given = [ForeignTrial(f"r{i}", str(i), {"x": 0.5, "rate": 0.25, "n": 2, "mode": "a"}, "succeeded", {"loss": 1.0},
                          names={ours: "α"}) for i, ours in enumerate(("x", "rate"))]  # fmt: skip
    row = store.import_records(new_study(spec), foreign_records(problem, given)).study
    out = write_optuna_study(f"{tmp_path}/back.db", "back", problem, store.trials(row.id))
    assert out.notes == []
    back = optuna.load_study(study_name="back", storage=f"sqlite:///{tmp_path}/back.db")
    assert [set(trial.params) for trial in back.trials] == [{"x", "n", "mode", "rate"}] * 2


def test_studies_of_one_name_from_two_databases_are_told_apart(spec: JobSpec, problem: Problem, tmp_path: Path) -> None:
    """Their trials have the same numbers, and of the second study also the same parameters; none is lost."""
    files = [tmp_path / f"{name}.db" for name in ("one", "two", "three")]
    for file in files:
        searched(f"sqlite:///{file}")
    store: Store = plugins.create("store", "sql", {}, url=store_url())
    row = import_foreign_trials(str(files[0]), store, tmp_path, new_study(spec)).trials.study
    counts = []
    for file in (*files, files[1]):
        taken = import_foreign_trials(str(file), store, tmp_path, store.study(row.id)).trials
        counts.append((taken.new, taken.known))
    assert counts == [(0, 5), (5, 0), (5, 0), (0, 5)]
    assert len(store.trials(row.id)) == 15
    copy = tmp_path / "copy.db"
    copy.write_bytes(files[0].read_bytes())
    assert import_foreign_trials(str(copy), store, tmp_path, store.study(row.id)).trials.known == 5


def test_none_and_trials_that_have_not_ended(tmp_path: Path) -> None:
    """None is the word here and None again there; who has not ended is left out by number."""
    choices = [None, "x", 1, True]
    distributions = {"mode": optuna.distributions.CategoricalDistribution(choices)}
    file = tmp_path / "optuna.log"
    journal = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(file)))
    study = optuna.create_study(storage=journal, study_name="mine")
    for mode in choices:
        made = optuna.trial.create_trial(params={"mode": mode}, distributions=distributions, value=1.0)
        study.add_trial(made)
    study.ask(distributions)
    study.enqueue_trial({"mode": "x"})
    job = JOB.replace("x: -5.0..5.0, n: 2..8 step 3, mode: [a, 1, true], rate: 0.0..1.0 step 0.25", "mode: {}")
    job = job.replace("echo {{ x }} {{ n }} {{ mode }} {{ rate }}", "echo {{ mode }}")
    words = parse_spec(job.replace("mode: {}", "mode: [None, x, 1, true]"), base=tmp_path)
    store: Store = plugins.create("store", "sql", {}, url=store_url())
    done = import_foreign_trials(str(file), store, tmp_path, new_study(words))
    assert (done.trials.new, done.trials.unfinished) == (4, 2)
    assert done.notes == [
        "had not ended, and left out: trial 4 (Optuna says RUNNING), trial 5 (Optuna says WAITING)",
        "mode is None in 1 trial: the job has the word None for it",
    ]
    trials = store.trials(done.trials.study.id)
    assert trials[0].configuration["mode"] == "None"
    running = replace(trials[1], number=9, state=TrialState.RUNNING, observation=None)
    out = tmp_path / "back.log"
    exported = write_optuna_study(str(out), "back", build_problem(words, tmp_path), [*trials, running])
    assert (exported.written, exported.left) == (4, [9])
    journal = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(out)))
    back = optuna.load_study(study_name="back", storage=journal).trials
    assert [(one.params, one.distributions) for one in back] == [({"mode": mode}, distributions) for mode in choices]
    without = parse_spec(job.replace("mode: {}", "mode: [x, 1, true]"), base=tmp_path)
    with pytest.raises(RecordError, match=r"trial 0: mode=None is not in the space .*for None list the word None\)"):
        import_foreign_trials(str(file), store, tmp_path, new_study(without))


def test_the_word_none_of_a_study_of_ours_stays_a_word(tmp_path: Path) -> None:
    problem = build_problem(parse_spec(JOB.replace("a, 1", "None, 1"), base=tmp_path), tmp_path)
    given = ForeignTrial("r", "line 2", {"x": 1.0, "n": 2, "mode": "None", "rate": 0.5}, metrics={"loss": 1.0})
    store: Store = plugins.create("store", "sql", {}, url=store_url())
    row = new_study(parse_spec(JOB.replace("a, 1", "None, 1"), base=tmp_path))
    study = store.import_records(row, foreign_records(problem, [given])).study
    write_optuna_study(str(tmp_path / "o.log"), "back", problem, store.trials(study.id))
    journal = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "o.log")))
    assert optuna.load_study(study_name="back", storage=journal).trials[0].params["mode"] == "None"


def test_what_cannot_be_read_is_said_in_a_line(tmp_path: Path) -> None:
    loss = Objective("loss", "minimise")
    file = tmp_path / "optuna.db"
    with pytest.raises(RecordError, match="there is no such file"):
        list(read_optuna_trials(str(file), loss))
    searched(f"sqlite:///{file}")
    with pytest.raises(RecordError, match="is to minimize its value, and the job to maximize loss"):
        list(read_optuna_trials(str(file), Objective("loss", "maximise")))
    with pytest.raises(RecordError, match=r"it has no study 'other' \(it has mine\)"):
        list(read_optuna_trials(f"{file}#other", loss))
    optuna.create_study(storage=f"sqlite:///{file}", study_name="two", directions=["minimize", "minimize"])
    with pytest.raises(RecordError, match=r"it has 2 studies: mine, two \(choose one: .*optuna.db#NAME\)"):
        list(read_optuna_trials(str(file), loss))
    with pytest.raises(RecordError, match="the study 'two' has 2 objectives, and the job 1: loss"):
        list(read_optuna_trials(f"{file}#two", loss))
    file.write_text("nonsense")
    with pytest.raises(RecordError, match="the database cannot be read: file is not a database"):
        list(read_optuna_trials(str(file), loss))


def _round_trip(study: Any, job: str, tmp_path: Path) -> tuple[list[Any], list[str]]:
    """The trials of a study that was imported and exported again, and what was said of them."""
    store: Store = plugins.create("store", "sql", {}, url=store_url())
    words = parse_spec(job, base=tmp_path)
    done = import_foreign_trials(str(tmp_path / "optuna.log"), store, tmp_path, new_study(words))
    taken = done.trials.study.id
    out = tmp_path / "back.log"
    write_optuna_study(str(out), "b", build_problem(words, tmp_path), store.trials(taken), store.runs(taken))
    journal = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(out)))
    back = optuna.load_study(study_name="b", storage=journal)
    assert back.directions == study.directions
    return back.trials, done.notes


def _study(tmp_path: Path, **options: Any) -> Any:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    journal = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "optuna.log")))
    return optuna.create_study(storage=journal, sampler=optuna.samplers.RandomSampler(seed=1), **options)


def test_numbers_with_steps_come_back_to_the_last_digit(tmp_path: Path) -> None:
    study = _study(tmp_path)
    for _ in range(40):
        trial = study.ask()
        trial.suggest_float("a", 0, 1, step=0.1)
        trial.suggest_float("b", -0.3, 2.5, step=0.7)
        trial.suggest_int("n", -3, 13, step=4)
        study.tell(trial, 1.0)
    job = "name: mine\njob: {command: [sh, -c, 'echo {{ a }} {{ b }} {{ n }}']}\nobjective: {minimise: loss}\n"
    job += "space: {a: 0.0..1.0 step 0.1, b: -0.3..2.5 step 0.7, n: -3..13 step 4}\n"
    back, _ = _round_trip(study, job, tmp_path)
    assert [trial.params for trial in back] == [trial.params for trial in study.trials]
    assert len({trial.params["b"] for trial in back}) == 5


TWO = """\
name: mine
job: {command: [sh, -c, "echo {{ x }}"]}
space: {x: -5.0..5.0}
objective: {minimise: loss, also: [{maximise: accuracy}]}
constraints: {metrics: {constraint_0: '<= 0', constraint_1: '<= 0'}}
"""


def test_several_objectives_and_constraints_come_back(tmp_path: Path) -> None:
    study = _study(tmp_path, directions=["minimize", "maximize"])
    for at in range(4):
        trial = study.ask({"x": optuna.distributions.FloatDistribution(-5, 5)})
        study._storage.set_trial_system_attr(trial._trial_id, "constraints", [-1.0, at - 2.0])
        study.tell(trial, [1.5, at] if at < 3 else [float("inf"), 0.5])
    back, notes = _round_trip(study, TWO, tmp_path)
    assert [(one.params, one.values, one.state) for one in back] == [
        (one.params, one.values, one.state) for one in study.trials
    ]
    assert [one.system_attrs for one in back[:3]] == [one.system_attrs for one in study.trials[:3]]
    assert [one.user_attrs["feasible"] for one in back[:3]] == [True, True, True]
    assert notes == []


def test_a_goal_of_another_direction_is_named(tmp_path: Path) -> None:
    study = _study(tmp_path, directions=["maximize", "minimize"])
    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        study.set_metric_names(["accuracy", "loss"])
    trial = study.ask({"x": optuna.distributions.FloatDistribution(-5, 5)})
    study.tell(trial, [0.9, 3.0])
    problem = build_problem(parse_spec(TWO, base=tmp_path), tmp_path)
    (found,) = read_optuna_trials(str(tmp_path / "optuna.log"), problem.objective)
    assert found.metrics == {"accuracy": 0.9, "loss": 3.0}, "by their names"
    other = build_problem(parse_spec(TWO.replace("accuracy", "speed"), base=tmp_path), tmp_path)
    with pytest.raises(RecordError, match="is to maximize its value 0, and the job to minimize loss"):
        list(read_optuna_trials(str(tmp_path / "optuna.log"), other.objective))


def test_broken_constraints_that_the_job_does_not_have_are_said(tmp_path: Path) -> None:
    study = _study(tmp_path)
    trial = study.ask({"x": optuna.distributions.FloatDistribution(-5, 5)})
    study._storage.set_trial_system_attr(trial._trial_id, "constraints", [0.5])
    study.tell(trial, 1.0)
    job = "name: mine\njob: {command: [sh, -c, 'echo {{ x }}']}\nspace: {x: -5.0..5.0}\nobjective: {minimise: loss}\n"
    _, notes = _round_trip(study, job, tmp_path)
    assert any("1 trial broke constraints of the study, which the job does not have" in note for note in notes)
