"""Trials that another tool has run, in a study of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tradewind import plugins
from tradewind.engine.records.foreign_trials import ForeignTrial, fitted_trials, foreign_records, match_names
from tradewind.engine.records.study_import import import_foreign_trials, is_foreign
from tradewind.engine.search_builder import build_problem, new_study
from tradewind.errors import InputError, RecordError
from tradewind.problem import Problem, TrialState
from tradewind.problem.job_spec.spec import JobSpec, parse_spec
from tradewind.reporting.study.data import StudyData
from tradewind.reporting.study.explanation import explain_choice
from tradewind.store.base import Store
from tradewind.utils.paths import store_url

JOB = """\
name: theirs
job: {command: [sh, -c, "echo {{ x }} {{ n }} {{ mode }}"]}
space:
  instance: {provider: local, vcpu: 1, limit: 1}
  x: -5.0..5.0
  n: 1..8
  mode: [a, b]
objective: {minimise: loss}
constraints: {metrics: {accuracy: '>= 0.4'}}
budget: {dollars: 0.01}
"""


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    return parse_spec(JOB, base=tmp_path)


@pytest.fixture
def problem(spec: JobSpec, tmp_path: Path) -> Problem:
    return build_problem(spec, tmp_path)


@pytest.fixture
def store() -> Store:
    made: Store = plugins.create("store", "sql", {}, url=store_url())
    return made


def test_each_becomes_what_it_was(problem: Problem) -> None:
    values = {"x": 1.5, "n": "4", "mode": "b"}
    good = {"loss": 2.0, "accuracy": 0.5}
    given = [
        ForeignTrial("r0", "one", values, "succeeded", good, runtime=3600.0, started=1e9, ended=1e9 + 3600),
        ForeignTrial("r1", "two", values, "succeeded", {"loss": 1.0, "accuracy": 0.1}, cost=7.0),
        ForeignTrial("r2", "three", values, "failed", reason="out of memory"),
        ForeignTrial("r3", "four", values, "aborted", {"loss": 9.0}),
        ForeignTrial("r4", "five", values, "succeeded", {"accuracy": 0.5}),
    ]
    records = list(foreign_records(problem, given))
    states = ["succeeded", "succeeded", "failed", "aborted", "failed"]
    assert [record["state"] for record in records] == states
    first, second = records[0]["observation"], records[1]["observation"]
    price = problem.candidates.offer(0).hourly if problem.space.enumerable else records[0]["offer"]["price_per_hour"]
    assert (first["objective"], first["runtime"], first["feasible"]) == (2.0, 3600.0, True)
    assert first["cost"] == pytest.approx(price)
    assert (second["feasible"], second["cost"]) == (False, 7.0)
    assert records[2]["observation"]["reason"] == "out of memory"
    assert "no metric 'loss'" in records[4]["observation"]["reason"]
    assert records[0]["configuration"]["n"] == 4, "as the job writes it"
    assert records[0]["configuration"]["instance"], "what leaves no choice need not be said"
    assert [record["spent"] for record in records] == [0.0] * 5, "the budget here did not pay for them"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"x": 9.0, "n": 1, "mode": "a"}, "trial 3: x=9"),
        ({"x": 1.0, "n": 1, "mode": "a", "lr": 2}, "trial 3: there is no parameter 'lr'"),
        ({"x": 1.0, "n": 1}, "trial 3: mode is missing"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_place(problem: Problem, values: dict[str, object], words: str) -> None:
    with pytest.raises(RecordError) as refused:
        list(foreign_records(problem, [ForeignTrial("r", "trial 3", values)]))
    assert words in str(refused.value)


def test_a_table_goes_into_a_study_once(spec: JobSpec, store: Store, tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text("x,n,mode,loss,accuracy,runtime,note\n1.5,4,b,2.0,0.5,60,first\n-1,2,a,,,30,\n")
    assert is_foreign(str(table))
    done = import_foreign_trials(str(table), store, tmp_path, new_study(spec))
    assert (done.made, done.trials.new) == (True, 2)
    trials = store.trials(done.trials.study.id)
    assert [trial.state for trial in trials] == [TrialState.SUCCEEDED, TrialState.FAILED]
    row = store.study(done.trials.study.id)
    again = import_foreign_trials(str(table), store, tmp_path, row)
    assert (again.made, again.trials.new, again.trials.known) == (False, 0, 2)
    table.write_text("x,n,mode,loss\n1.5,4,b,2.0\n1.5,400,b,2.0\n")
    with pytest.raises(RecordError, match=r"runs.csv: line 3: n='400' is not in the space"):
        import_foreign_trials(str(table), store, tmp_path, row)
    assert len(store.trials(row.id)) == 2, "all of them or none"


@pytest.mark.parametrize(
    ("aim", "columns", "cells", "seconds"),
    [
        ("runtime", "runtime", "90", 90.0),
        ("runtime", "started,ended", "1000,1045", 45.0),
        ("cost", "runtime", "90", 90.0),
        ("cost", "cost", "3", 0.0),
        ("loss", "loss", "3", 0.0),
    ],
)
def test_the_time_of_a_table_is_found(
    store: Store, tmp_path: Path, aim: str, columns: str, cells: str, seconds: float
) -> None:
    job = JOB.replace("minimise: loss", f"minimise: {aim}").replace(
        "constraints: {metrics: {accuracy: '>= 0.4'}}\n", ""
    )
    table = tmp_path / "runs.csv"
    table.write_text(f"x,n,mode,{columns}\n1.5,4,b,{cells}\n")
    done = import_foreign_trials(str(table), store, tmp_path, new_study(parse_spec(job, base=tmp_path)))
    seen = store.trials(done.trials.study.id)[0].observation
    assert seen is not None and seen.runtime == seconds
    assert [note.partition(":")[0] for note in done.notes] == ["1 trial without a run time"] * (seconds == 0.0)


@pytest.mark.parametrize(
    ("aim", "constraints"),
    [
        ("runtime", ""),
        ("cost", ""),
        ("loss", "constraints: {deadline: 1h}\n"),
        ("loss", "constraints: {metrics: {runtime: '<= 60'}}\n"),
        ("loss", "constraints: {metrics: {cost: '<= 1'}}\n"),
    ],
)
def test_a_table_without_the_time_that_the_job_asks_for_is_refused(
    store: Store, tmp_path: Path, aim: str, constraints: str
) -> None:
    job = JOB.replace("minimise: loss", f"minimise: {aim}")
    job = job.replace("constraints: {metrics: {accuracy: '>= 0.4'}}\n", constraints)
    table = tmp_path / "runs.csv"
    table.write_text("x,n,mode,seconds,loss\n1.5,4,b,90,2\n")
    with pytest.raises(RecordError, match="line 2: it has no run time"):
        import_foreign_trials(str(table), store, tmp_path, new_study(parse_spec(job, base=tmp_path)))
    assert not store.find_studies(), "nothing of it stays"


def test_results_of_ray_tune(spec: JobSpec, store: Store, tmp_path: Path) -> None:
    results = tmp_path / "results"
    for name, loss in (("t1", 3.0), ("t2", 1.0), ("t3", 2.0)):
        (results / name).mkdir(parents=True)
        lines = [
            {"loss": value, "accuracy": 0.9, "time_total_s": 12.5, "timestamp": 1.7e9, "trial_id": name, "pid": 7}
            | {"config": {"x": loss, "n": 2, "mode": "a"}}
            for value in (loss + 1, loss)
        ]
        (results / name / "result.json").write_text("\n".join(map(json.dumps, lines)) + '\n{"loss": 0')
    (results / "t3" / "error.txt").write_text("killed")
    assert is_foreign(str(results))
    done = import_foreign_trials(str(results), store, tmp_path, new_study(spec))
    trials = store.trials(done.trials.study.id)
    assert [trial.state.value for trial in trials] == ["succeeded", "succeeded", "failed"]
    seen = trials[1].observation
    assert seen is not None
    assert (seen.objective, seen.runtime, "pid" in seen.metrics) == (1.0, 12.5, False)


def _ray_trial(folder: Path, loss: float, **config: object) -> None:
    """A trial of Ray Tune as its version 2.5x writes it: a function's last result does not say that it is done."""
    folder.mkdir(parents=True)
    head = {"loss": loss, "accuracy": 0.9, "done": False, "trial_id": folder.name, "time_total_s": 12.5}
    document = {"n": 2, "mode": "a", **config}
    (folder / "params.json").write_text(json.dumps(document))
    (folder / "result.json").write_text(json.dumps({**head, "config": document}) + "\n")
    (folder / "progress.csv").write_text(",".join(head) + "\n" + ",".join(map(str, head.values())) + "\n7.0,0.")


@pytest.mark.parametrize("only", ["result.json", "progress.csv"])
def test_nested_and_unended_trials_of_ray_tune(tmp_path: Path, store: Store, only: str) -> None:
    job = JOB.replace("x: -5.0..5.0", "opt_lr: 0.0..1.0").replace("{{ x }}", "{{ opt_lr }}")
    experiment = tmp_path / "exp"
    for name, loss in (("5_01", 1.0), ("5_02", 2.0)):
        _ray_trial(experiment / name, loss, opt={"lr": loss / 4})
        for log in ("result.json", "progress.csv"):
            if log != only:
                (experiment / name / log).unlink()
    state = {"trial_data": [[json.dumps({"trial_id": "5_01", "status": "TERMINATED"}), "{}"]]}
    state["trial_data"] += [[json.dumps({"trial_id": "5_02", "status": "RUNNING"}), "{}"]]
    (experiment / "experiment_state-1.json").write_text(json.dumps(state))
    done = import_foreign_trials(str(experiment), store, tmp_path, new_study(parse_spec(job, base=tmp_path)))
    assert done.notes == [
        "called otherwise in the job: opt/lr is opt_lr",
        "had not ended, and left out: 5_02 (Ray Tune says RUNNING)",
    ]
    (trial,) = store.trials(done.trials.study.id)
    seen = trial.observation
    assert seen is not None
    assert (trial.configuration["opt_lr"], seen.objective, seen.runtime) == (0.25, 1.0, 12.5)
    assert "trial_id" not in seen.metrics
    again = import_foreign_trials(str(experiment / "5_01" / only), store, tmp_path, done.trials.study)
    assert (again.trials.new, again.trials.known) == (0, 1), "a trial's own file is that trial"


def test_an_id_with_an_underscore_is_no_metric(store: Store, spec: JobSpec, tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text("x,n,mode,loss,accuracy,trial_name\n1.5,4,b,2.0,0.5,5_01\n")
    done = import_foreign_trials(str(table), store, tmp_path, new_study(spec))
    seen = store.trials(done.trials.study.id)[0].observation
    assert seen is not None and "trial_name" not in seen.metrics


def test_names_of_a_job_for_those_of_other_tools() -> None:
    wanted = ["opt_lr", "learning_rate", "lambda_", "x", "X2"]
    assert match_names(["opt/lr", "Learning rate", "lambda", "x", "x2", "seed"], wanted) == {
        "opt/lr": "opt_lr",
        "Learning rate": "learning_rate",
        "lambda": "lambda_",
        "x": "x",
        "x2": "X2",
        "seed": "seed",
    }
    assert match_names(["a b", "a-b", "a_b"], ["a_b"]) == {"a b": "a b", "a-b": "a-b", "a_b": "a_b"}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("größe", "grosse"), ("Größe", "groesse"), ("größe", "groesse"), ("α", "alpha"), ("λ", "lambda_"), ("β1", "beta1"),
     ("ﬁlter", "filter"), ("naïve rate", "naive_rate"), ("µ", "mu"), ("Ångström/n", "angstrom_n"), ("στ", "sigmatau")],
)  # fmt: skip
def test_names_without_ascii(theirs: str, ours: str) -> None:
    assert match_names([theirs, "x"], [ours, "x"]) == {theirs: ours, "x": "x"}
    assert match_names([theirs], ["y"]) == {theirs: theirs}


def test_names_that_the_user_has_said() -> None:
    given = ["学習率", "größe", "rate", "x"]
    said = {"学習率": "rate", "rate": "y"}
    assert match_names(given, ["rate", "grosse", "y", "x"], said) == {
        "学習率": "rate", "größe": "grosse", "rate": "y", "x": "x",
    }  # fmt: skip
    with pytest.raises(RecordError, match="no trial has a parameter '学'"):
        list(fitted_trials([ForeignTrial("a", "one", {"学習率": 1})], ["rate"], {}, {"学": "rate"}))


def test_columns_that_the_user_has_named(store: Store, spec: JobSpec, tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text("学習率;größe;mode;loss;accuracy\n1.5;4;b;2.0;0.5\n")
    said = {"学習率": "x", "größe": "n"}
    done = import_foreign_trials(str(table), store, tmp_path, new_study(spec), said)
    chosen = store.trials(done.trials.study.id)[0].configuration
    assert (chosen["x"], chosen["n"]) == (1.5, 4)
    with pytest.raises(RecordError, match=r"its first line names no column '学' \(they are 学習率, größe, mode"):
        import_foreign_trials(str(table), store, tmp_path, new_study(spec), {"学": "x"})
    with pytest.raises(InputError, match=r"the job has no parameter 'rate' \(it has instance, x, n, mode\)"):
        import_foreign_trials(str(table), store, tmp_path, new_study(spec), {"学習率": "rate"})


def test_two_names_of_one_parameter_are_refused_where_a_trial_has_both(
    store: Store, spec: JobSpec, tmp_path: Path
) -> None:
    """In a study whose parameter was renamed at some time, each trial has one of them."""
    said = {"α": "x"}
    given = [ForeignTrial("a", "one", {"α": 1.0}), ForeignTrial("b", "two", {"x": 2.0})]
    assert [trial.values for trial in fitted_trials(given, ["x"], {}, said)] == [{"x": 1.0}, {"x": 2.0}]
    given = [ForeignTrial("a", "one", {"α": 1.0, "x": 3.0}), ForeignTrial("b", "two", {"α": 2.0, "x": 4.0})]
    with pytest.raises(RecordError, match="one: both 'α' and 'x' are x"):
        list(fitted_trials(given, ["x"], {}, said))
    table = tmp_path / "both.csv"
    table.write_text("α,x,n,mode,loss\n1.0,,4,a,2.0\n,2.0,5,b,3.0\n")
    row = import_foreign_trials(str(table), store, tmp_path, new_study(spec), said).trials.study
    assert [trial.configuration["x"] for trial in store.trials(row.id)] == [1.0, 2.0]
    table.write_text("α,x,n,mode,loss\n1.0,,4,a,2.0\n1.0,2.0,5,b,3.0\n")
    with pytest.raises(RecordError, match="line 3: two columns are x, with different values"):
        import_foreign_trials(str(table), store, tmp_path, new_study(spec), said)


def test_what_only_some_trials_have_is_not_the_same_in_all() -> None:
    given = [
        ForeignTrial("a", "one", {"x": 1, "momentum": 0.9, "seed": 3}),
        ForeignTrial("b", "two", {"x": 1, "seed": 3}),
        ForeignTrial("c", "three", {"x": 1}, "failed"),
    ]
    constants: dict[str, object] = {}
    fitted = list(fitted_trials(given, ["x"], constants))
    assert constants == {"seed": 3}
    assert [trial.values for trial in fitted] == [{"x": 1, "momentum": 0.9}, {"x": 1}, {"x": 1}]


def test_what_is_the_same_in_all_trials_need_not_be_in_the_space(store: Store, spec: JobSpec, tmp_path: Path) -> None:
    experiment = tmp_path / "exp"
    for name, seed in (("5_01", 1), ("5_02", 1)):
        _ray_trial(experiment / name, 1.0, x=0.5, epochs=10, data={"path": "/d" * 50, "shuffle": True}, seed=seed)
    done = import_foreign_trials(str(experiment), store, tmp_path, new_study(spec))
    (said,) = done.notes
    assert said == (
        "the same in all trials, no parameter of the job, and left out: epochs=10, "
        f"data/path={'/d' * 19}/…, data/shuffle=True, seed=1"
    )
    assert [set(trial.configuration) for trial in store.trials(done.trials.study.id)] == [
        {"instance", "x", "n", "mode"}
    ] * 2
    _ray_trial(experiment / "5_03", 1.0, x=0.5, epochs=20, data={"path": "/d" * 50, "shuffle": True}, seed=1)
    with pytest.raises(
        RecordError, match=r"5_01: there is no parameter 'epochs' \(known: instance, x, n, mode; --rename "
    ):
        import_foreign_trials(str(experiment), store, tmp_path, done.trials.study)


def test_a_source_without_a_trial_that_has_ended_makes_no_study(store: Store, spec: JobSpec, tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    for text, words in (("", "it has none at all"), ("1,2,a,3,running\n", "1 trial had not ended")):
        table.write_text(f"x,n,mode,loss,state\n{text}")
        with pytest.raises(RecordError, match=rf"it has no trial that has ended \({words}\)"):
            import_foreign_trials(str(table), store, tmp_path, new_study(spec))
    assert store.find_studies("theirs") == []


def test_a_study_of_imported_trials_says_so(store: Store, spec: JobSpec, tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text("x,n,mode,loss,accuracy\n1.5,2,a,3,0.5\n")
    made = import_foreign_trials(str(table), store, tmp_path, new_study(spec)).trials.study
    explained = explain_choice(StudyData.load(store, made.id))
    assert "Its trials were imported: tradewind tune goes on from them." in explained
    assert not any("interrupted" in sentence for sentence in explained)
