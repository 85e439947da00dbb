from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tradewind import Study, plugins
from tradewind.engine.search_builder import build_search, find_or_create_study
from tradewind.engine.state_machine.snapshot import SearchSnapshot
from tradewind.errors import SpecError
from tradewind.problem import TrialState
from tradewind.problem.job_spec.spec import JobSpec, parse_spec
from tradewind.reporting.study.data import StudyData
from tradewind.reporting.study.explanation import early_stopping_savings, early_stopping_sentence, explain_choice
from tradewind.store.base import Store
from tradewind.utils.paths import data_folder, store_url

PROGRAM = """
pause=0.1
for step in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
  sleep $pause
  echo "{\\"step\\": $step, \\"loss\\": $1}" >> "${2:-$TRADEWIND_METRICS}"
  if [ "$1" -gt 3 ]; then pause=2; fi
done
"""
"""A bad run takes half a minute unless it is stopped: on a machine that stands still for a second, it is, too."""
UNSTOPPED = 0.1 + 15 * 2
"""Seconds that a bad run takes then, at least."""

JOB = """
name: given-up
job: {command: [sh, program.sh, "{{ level }}"]}
space:
  instance: {provider: local, vcpu: 1, limit: 1}
  level: [3, 2, 9, 1, 8, 7]
objective: {minimise: loss}
parallel: 2
searcher: {use: exhaustive, order: declared}
early_stop: {use: median, trials: 2, every: 0.05}
deploy: {billing: {granularity: 1ms}}
interpret: [exit_code, {use: json_lines, metrics: [loss]}]
"""


@pytest.fixture
def store() -> Any:
    opened: Store = plugins.create("store", "sql", {}, url=store_url())
    yield opened
    opened.close()


def searched(tmp_path: Path, store: Store, text: str = JOB, seen: list[SearchSnapshot] | None = None) -> int:
    (tmp_path / "program.sh").write_text(PROGRAM)
    spec = parse_spec(text, file="job.yaml", base=tmp_path)
    study, _ = find_or_create_study(spec, store)
    build_search(spec, study, store, data_folder(), observer=None if seen is None else seen.append).run()
    return study.id


def check(store: Store, study_id: int) -> None:
    trials = store.trials(study_id)
    states = {trial.configuration["level"]: trial.state for trial in trials}
    bad = {9, 8, 7}
    assert {level for level, state in states.items() if state == TrialState.ABORTED} == bad
    for trial in trials:
        seen = trial.observation
        assert seen is not None
        assert trial.stopped_early is (trial.configuration["level"] in bad)
        assert trial.spent == pytest.approx(seen.cost)
        if trial.stopped_early:
            assert seen.metrics["loss"] == trial.configuration["level"]
            assert 1 <= seen.metrics["step"] < 16
            assert seen.runtime < UNSTOPPED
    assert all(run.state.ended for run in store.runs(study_id))


@pytest.mark.slow
def test_bad_trials_of_real_processes_are_stopped_and_it_is_said_what_that_saved(tmp_path: Path, store: Store) -> None:
    seen: list[SearchSnapshot] = []
    study_id = searched(tmp_path, store, seen=seen)
    check(store, study_id)
    data = StudyData.load(store, study_id)
    number, dollars = early_stopping_savings(data)
    assert number == 3
    assert 0 < dollars < data.summary.spent
    assert early_stopping_sentence(data).startswith("3 trials were stopped early, which saved about ")
    assert early_stopping_sentence(data) in explain_choice(data)
    assert not any("at a cap" in sentence for sentence in explain_choice(data))
    assert seen[-1].notes["early"].startswith("3 stopped, about ")
    shown = subprocess.run(
        [sys.executable, "-m", "tradewind", "status", "given-up", "--json"], capture_output=True, text=True, timeout=60
    )
    assert json.loads(shown.stdout)["stopped_early"] == {"trials": 3, "saved": pytest.approx(dollars)}


@pytest.mark.thorough
@pytest.mark.slow
def test_a_program_that_prints_is_watched_by_a_pattern(tmp_path: Path, store: Store) -> None:
    text = JOB.replace('"{{ level }}"]', '"{{ level }}", /dev/stdout]').replace(
        "every: 0.05", "every: 0.05, file: stdout, pattern: 'step.: (?P<step>[0-9]+).*loss.: (?P<value>[0-9.]+)'"
    )
    check(store, searched(tmp_path, store, text.replace("metrics: [loss]", "metrics: [loss], file: stdout")))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            ("early_stop: {use: median, ", "early_stop: {use: medain, "),
            "no stopper named 'medain' (did you mean",
        ),
        (("trials: 2,", "trails: 2,"), "early_stop"),
        (("minimise: loss", "minimise: cost"), "early_stop: cost is no metric that a run reports while it runs"),
        (("trials: 2,", "metric: other,"), "early_stop: nothing says whether other is to be small or large"),
        (("deploy: {", "deploy: {runner: {use: replay, file: runs.csv}, "), "early_stop: the replay runner tells"),
    ],
)
def test_what_cannot_be_is_said_in_one_line_with_its_place(
    tmp_path: Path, store: Store, change: tuple[str, str], expected: str
) -> None:
    (tmp_path / "runs.csv").write_text("level,runtime\n1,1\n")
    assert change[0] in JOB
    with pytest.raises(SpecError) as caught:
        searched(tmp_path, store, JOB.replace(*change))
    message = str(caught.value)
    assert expected in message
    assert "\n" not in message
    assert caught.value.line is not None


def test_a_function_cannot_be_stopped_and_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="nobody watches a function"):
        Study({"name": "f", "space": {"x": "1..3"}, "objective": {"minimise": "v"}, "early_stop": "median"})


def test_the_policy_belongs_to_the_search_and_not_to_the_problem(tmp_path: Path) -> None:
    plain: JobSpec = parse_spec(JOB.replace("early_stop", "# early_stop"), base=tmp_path)
    assert parse_spec(JOB, base=tmp_path).problem_key == plain.problem_key
    assert plain.early_stop is None
