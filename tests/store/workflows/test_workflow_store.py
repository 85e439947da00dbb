"""Plans and journals of workflow runs, in both databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tradewind.errors import StudyBusyError, StudyNotFoundError
from tradewind.store.base import Store, StudyRow, this_process
from tradewind.store.workflows.workflow_store import WorkflowStore
from tradewind.testing.stores import ELSEWHERE, study_row


def record(kind: str, at: float = 1.5, **more: Any) -> dict[str, Any]:
    return {"at": at, "e": kind, **more}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def rows(url: str) -> Iterator[WorkflowStore]:
    with closing(WorkflowStore(url)) as found:
        yield found


@pytest.fixture
def studies(url: str, open_store: Any) -> Store:
    found: Store = open_store(url)
    return found


@pytest.fixture
def run(rows: WorkflowStore) -> StudyRow:
    return rows.create_run(study_row(kind="workflow"), "/runs/größer", '{"format": "x"}')


def test_a_run_comes_back_as_it_was(rows: WorkflowStore, studies: Store, run: StudyRow) -> None:
    assert rows.run(run.id).plan == '{"format": "x"}'
    assert rows.run(run.id).folder == "/runs/größer"
    assert studies.study(run.id) == run
    assert run.kind == "workflow"
    assert [line.kind for line in studies.list_studies()] == ["workflow"]
    search = studies.create_study(study_row("search"))
    assert search.kind == "search"
    with pytest.raises(StudyNotFoundError, match="no run of a workflow"):
        rows.run(search.id)


def test_no_search_learns_from_a_run(studies: Store, run: StudyRow) -> None:
    search = studies.create_study(study_row(run.name))
    assert [each.study for each in studies.earlier_studies("", limit=10)] == [search]


@pytest.mark.parametrize("lasting", [False, True])
def test_records_come_back_in_order_whatever_is_in_them(
    rows: WorkflowStore, studies: Store, run: StudyRow, lasting: bool
) -> None:
    token = studies.hold(run.id, this_process(), 60)
    first = [record("run", 1.25, run="tw1"), record("start", task="zwölf\0\ud800", attempt=1, vm="m\0")]
    then = [record("end", task="zwölf\0\ud800", attempt=1, outcome="failed", reason='"outcome": "done"\0')]
    rows.append(run.id, token, 0, first, lasting=lasting)
    rows.append(run.id, token, 2, then, lasting=lasting)
    assert rows.records(run.id) == [*first, *then]
    assert rows.records(run.id, since=2) == then
    rows.sync()


def test_who_does_not_hold_the_run_writes_nothing(rows: WorkflowStore, studies: Store, run: StudyRow) -> None:
    token = studies.hold(run.id, this_process(), 60)
    rows.append(run.id, token, 0, [record("run")], lasting=False)
    studies.hold(run.id, ELSEWHERE, 60, force=True)
    for lasting in (False, True):
        with pytest.raises(StudyBusyError, match=r"no longer carries out job \(study 1\): process another-host"):
            rows.append(run.id, token, 1, [record("session")], lasting=lasting)
    assert len(rows.records(run.id)) == 1


def test_tasks_are_done_whose_newest_end_says_so(rows: WorkflowStore, studies: Store, run: StudyRow) -> None:
    other = rows.create_run(study_row(kind="workflow"), "/b", "{}")
    token = studies.hold(run.id, this_process(), 60)

    def end(task: str, outcome: str) -> dict[str, Any]:
        return record("end", task=task, attempt=1, outcome=outcome)

    ends = [
        end("a", "failed"),
        end("a", "done"),
        end("b", "done"),
        end("b", "gone"),
        end("c", "done"),
        end("d", "lost"),
    ]
    rows.append(run.id, token, 0, ends, lasting=False)
    assert rows.task_counts([run.id, other.id]) == {run.id: 2}
    assert rows.task_counts([]) == {}


def test_what_was_written_is_there_for_another_connection_at_once(
    url: str, rows: WorkflowStore, studies: Store, run: StudyRow
) -> None:
    token = studies.hold(run.id, this_process(), 60)
    with ExitStack() as stack:
        other = stack.enter_context(closing(WorkflowStore(url)))
        for number in range(5):
            rows.append(run.id, token, number, [record("start", task=f"t{number}", attempt=1)], lasting=False)
            assert len(other.records(run.id)) == number + 1
