"""Workflows of runs: changed as the job says, read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tradewind.errors import WorkflowError
from tradewind.problem import WorkflowJob
from tradewind.workflow.files import read_workflow
from tradewind.workflow.job.preparation import WorkflowPreparation, with_task_changes

_FLOW = """
tasks:
  split: {command: "true", runtime: 2}
  left: {command: "true", activity: sum, runtime: 30, after: [split]}
  right: {command: "true", activity: sum, runtime: 45, after: [split]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "flow.yaml"
    path.write_text(_FLOW)
    return path


def test_tasks_are_changed_by_activity_and_by_name_and_the_first_that_fits_counts(file: Path) -> None:
    changes = {"left": {"scale": "2"}, "s*m": {"scale": "0.5", "cores": "4", "memory": "1GiB"}}
    split, left, right = with_task_changes(read_workflow(file), changes).tasks
    assert (split.runtime, split.cores) == (2, 1)
    assert (left.runtime, left.cores) == (60, 1)
    assert (right.runtime, right.cores, right.memory_bytes) == (22.5, 4, 2**30)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sun": {"scale": "2"}}, "tasks sun: no task of workflow flow is of that name .did you mean 'sum'"),
        ({"sum": {"scale": "-1"}}, "tasks sum: scale: '-1' is no number of at least 0"),
        ({"sum": {"scale": "nan"}}, "tasks sum: scale: 'nan' is no number"),
        ({"sum": {"cores": "1.5"}}, "tasks sum: cores: '1.5' is no whole number"),
        ({"sum": {"cores": "0"}}, "tasks sum: cores: '0' is no number of at least 1"),
        ({"sum": {"memory": "much"}}, "tasks sum: memory: 'much'"),
    ],
)
def test_a_change_that_is_none_is_refused(file: Path, change: dict[str, dict[str, str]], words: str) -> None:
    with pytest.raises(WorkflowError, match=words):
        with_task_changes(read_workflow(file), change)


def test_each_workflow_is_read_and_each_planner_made_once(file: Path, tmp_path: Path) -> None:
    preparation = WorkflowPreparation(0, tmp_path)
    job = WorkflowJob(str(file), {"use": "search", "seconds": "0.5"})
    assert preparation.flow(job) is preparation.flow(WorkflowJob(str(file), {"use": "heft"}))
    assert preparation.flow(job) is not preparation.flow(WorkflowJob(str(file), {}, {"sum": {"scale": "2"}}))
    assert preparation.planner(job) is preparation.planner(WorkflowJob("other", dict(job.planner)))
