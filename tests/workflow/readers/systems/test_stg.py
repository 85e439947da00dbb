"""Task graphs of the Standard Task Graph Set, with and without their dummy tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workflow.datasets import DATASETS, needs_datasets

from tradewind.errors import WorkflowError
from tradewind.workflow.files import read_workflow

TEXT = """\
          3
          0          0          0
          1          4          1          0
          2          0          1          0
          3          5          2          1          2
          4          0          1          3
# Tasks: 3
# comment 1 2 3
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "x.stg"
    path.write_text(text)
    return path


def test_tasks_times_and_edges(tmp_path: Path) -> None:
    flow = read_workflow(written(tmp_path, TEXT))
    assert [(task.id, task.runtime) for task in flow.tasks] == [("t1", 4.0), ("t2", 0.0), ("t3", 5.0)]
    assert flow.parents == ((), (), (0, 1))
    assert flow.warnings == ("dummy tasks at the beginning and the end, which are left out: t0, t4",)


def test_tasks_of_no_time_that_the_first_line_counts_are_no_dummies(tmp_path: Path) -> None:
    flow = read_workflow(written(tmp_path, "2 16\n1 0 0\n2 0 1 1\n"))
    assert (len(flow), flow.edges, flow.warnings) == (2, 1, ())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEXT.replace("3\n", "7\n", 1), "x.stg:6: there are 5 tasks in it, and its first line says 7"),
        (TEXT.replace("2          1          2", "3          1          2"), "x.stg:5: a row of STG is not"),
        (TEXT.replace("5          2", "five          2"), "x.stg:5: a row of STG has '3          five"),
        ("2\n1 3 0\n2 4 1 7\n", "x.stg:3: an edge names task 't7', which is not there"),
        ("2\n1 3 1 2\n2 4 1 1\n", "in a circle"),
        ("2\n1 3 0\n2 4 1 1 10\n", "costs of communication are not supported"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        read_workflow(written(tmp_path, text))
    assert words in str(caught.value)


@needs_datasets
@pytest.mark.parametrize(
    ("name", "tasks", "count"), [("rand0000.stg", 50, 96), ("proto151.stg", 80, 296), ("sample00.stg", 8, 9)]
)
def test_real_files(name: str, tasks: int, count: int) -> None:
    flow = read_workflow(DATASETS / "formats/stg" / name)
    assert (len(flow), flow.edges) == (tasks, count)
