"""The charts of workflows: which files of a request are ones, and what is made of them, whatever is in them."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.service.live_server import HELLO, move, principal
from tests.workflow.execution.test_results import FLOW, PLATFORM, RUN, plan

from tradewind.errors import NotFoundError, WorkflowError
from tradewind.problem import Configuration, Offer, Proposal, Run, RunState, Trial, TrialState
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context
from tradewind.service.workflows import draw_chart
from tradewind.store.base import Change, StudyRow
from tradewind.store.service.request_values import RequestState
from tradewind.workflow.execution.journal import read_history
from tradewind.workflow.execution.results import results_of
from tradewind.workflow.execution.run_folder import WorkflowRunFolder
from tradewind.workflow.execution.stored.store_journal import RunnerChoice, StoreJournal
from tradewind.workflow.files import plan_document, write_plan

JOURNAL = b"".join(json.dumps(record).encode() + b"\n" for record in RUN)
HALF = b"".join(json.dumps(record).encode() + b"\n" for record in RUN[:8])


@pytest.fixture
def ann(context: Context) -> Principal:
    context.accounts.add_user("ann", tenant="physics")
    return principal(context, "ann")


def make(context: Context, who: Principal, folder: Path, *, state: RequestState = "executing") -> int:
    """A request whose run is in a folder."""
    context.accounts.add_user("root", role="admin")
    context.applications.register(principal(context, "root"), HELLO, shared=True)
    row = context.requests.submit(who, {"application": "hello"})
    study = context.store.create_study(StudyRow(0, "w", "w", {}, 1.0, owner=f"tw-{folder.name}"))
    chosen = Configuration({})
    trial = Trial(0, Proposal(chosen), Offer("local", "c1", 1, 1, 0.1), TrialState.RUNNING, chosen.key, created=1.0)
    run = Run(f"r-{folder.name}", 0, state=RunState.EXECUTING, started=1.0, folder=str(folder))
    context.store.write(study.id, Change([trial], [run]))
    move(context.requests, row.id, state, study_id=study.id)
    return row.id


def put(folder: Path, **files: bytes) -> Path:
    """The folder of a run with a plan, and what its run has left so far."""
    (folder / "outputs/plan.run").mkdir(parents=True)
    write_plan(folder / "outputs/plan.json", plan())
    for name, text in files.items():
        (folder / "outputs/plan.run" / name.replace("_", ".")).write_bytes(text)
    return folder


def test_a_run_that_goes_on_shows_what_runs_now(context: Context, ann: Principal, tmp_path: Path) -> None:
    number = make(context, ann, put(tmp_path / "run", journal_jsonl=HALF))
    assert context.workflows.found(ann, number) == ["outputs/plan.run/journal.jsonl"]
    found = context.workflows.gantt(ann, number, "outputs/plan.run/journal.jsonl")
    assert (found["ending"], found["running"]) == ("running", ["b", "c"])
    tasks = {row[0]: row[1:] for row in found["tasks"]}
    assert {name: row[1] for name, row in tasks.items()} == {"a": "fast", "b": "fast", "c": "slow"}
    assert tasks["a"][4:7] == ["fast", 0.0, 6.0]
    assert tasks["b"][4:6] == ["fast", 6.0]
    assert tasks["b"][6] > 1e6, "it has run since 1970"
    assert [name for name, row in tasks.items() if row[7]] == ["a", "b"]
    planned, ran = (layer for layer in found["gantt"]["layers"] if layer["kind"] == "boxes")
    assert {planned["keys"][at] for at in planned["strong"]} == {0, 1}
    assert (planned["faint"], len(ran["rows"])) == (True, 3)


def test_a_run_that_was_ended_has_nothing_running(context: Context, ann: Principal, tmp_path: Path) -> None:
    number = make(context, ann, put(tmp_path / "run", journal_jsonl=HALF), state="cancelled")
    found = context.workflows.gantt(ann, number, "outputs/plan.run/journal.jsonl")
    assert (found["ending"], found["running"], found["gantt"]["x"]["high"]) == ("interrupted", [], 15.0)


def test_results_say_more_than_a_journal(context: Context, ann: Principal, tmp_path: Path) -> None:
    document = results_of(plan(), read_history(JOURNAL, "x"), engine="local", ending="done", now=200.0)
    text = json.dumps(document).encode()
    number = make(context, ann, put(tmp_path / "run", journal_jsonl=JOURNAL, results_json=text), state="done")
    assert context.workflows.found(ann, number) == ["outputs/plan.run/results.json"]
    found = context.workflows.gantt(ann, number, "outputs/plan.run/results.json")
    assert (found["ending"], found["running"], found["gantt"]["x"]["high"]) == ("done", [], 36.0)
    assert ["planned makespan", "15.00 s"] in found["figures"]
    assert {row[0] for row in found["tasks"] if row[8]} == {"a", "b"}
    assert [one["name"] for one in found["activities"]] == ["x", "y"]
    assert draw_chart(text, "results.json")["gantt"]["x"]["high"] == 36.0


def test_a_plan_that_was_not_run(context: Context, ann: Principal, tmp_path: Path) -> None:
    (tmp_path / "run/outputs").mkdir(parents=True)
    write_plan(tmp_path / "run/outputs/mine.json", plan())
    (tmp_path / "run/outputs/other.json").write_text("{}")
    number = make(context, ann, tmp_path / "run")
    assert context.workflows.found(ann, number) == ["outputs/mine.json"]
    found = context.workflows.gantt(ann, number, "outputs/mine.json")
    assert (found["ending"], found["gantt"]["x"]["high"]) == ("", 15.0)


def test_another_tenants_workflow_is_not_there(context: Context, ann: Principal, tmp_path: Path) -> None:
    number = make(context, ann, put(tmp_path / "run", journal_jsonl=HALF))
    bob = replace(ann, name="bob", tenant="biology")
    for path in ("outputs/plan.run/journal.jsonl", "../../etc/passwd", "outputs/nothing.json"):
        with pytest.raises(NotFoundError):
            context.workflows.gantt(bob, number, path)
    with pytest.raises(NotFoundError):
        context.workflows.gantt(ann, number, "../secret")


def broken(**changes: Any) -> bytes:
    """Results with something wrong in their first task."""
    document = results_of(plan(), read_history(JOURNAL, "x"), engine="local", ending="done", now=200.0)
    document["tasks"][0].update(changes)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[1",
        b"[" * 100_000,
        b"[]",
        b'{"format": "tradewind-results-1"}',
        b'{"format": "tradewind-plan-1"}',
        broken(cores=10**9),
        broken(cores=-1),
        broken(planned_start=float("nan")),
        broken(planned_start="soon"),
        broken(planned_vm="nowhere"),
        broken(activity=["a"]),
    ],
)
def test_whatever_is_in_a_file_the_answer_is_one_line(text: bytes) -> None:
    with pytest.raises(WorkflowError) as found:
        draw_chart(text, "results.json")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("text", [b"{}\n", b"nothing\n", b'{"e": "down", "at": 1}\n', b"[]\n", b'{"e": "start"}\n'])
def test_what_is_no_journal_is_refused_with_its_line(text: bytes) -> None:
    with pytest.raises(WorkflowError, match="no line of a run's journal") as found:
        read_history(b'{"e": "session", "at": 1}\n' + text, "journal.jsonl")
    assert found.value.line == 2


def test_a_line_that_is_being_written_has_not_happened() -> None:
    assert len(read_history(HALF[:-5], "journal.jsonl").attempts) == len(read_history(HALF, "x").attempts) - 1


def test_the_document_of_a_page_can_be_sent() -> None:
    found = draw_chart(json.dumps(plan_document(plan())).encode(), "plan.json")
    assert json.loads(json.dumps(found, allow_nan=False))["gantt"]["y"]["labels"][0][1] == PLATFORM.vms[0].name
    assert len(FLOW) == len(found["gantt"]["layers"][0]["rows"]) == len(found["tasks"])


def test_a_run_in_the_store_is_drawn_while_it_goes_on(context: Context, ann: Principal, tmp_path: Path) -> None:
    """One that was begun by command belongs to nobody's tenant: administrators see it."""
    folder, runner = WorkflowRunFolder(tmp_path / "plan.run"), RunnerChoice("process", {}, tmp_path)
    with closing(StoreJournal(context.url, plan(), folder, runner)) as journal:
        journal.write(*RUN[:8])
        (line,) = context.store.list_studies()
        found = context.workflows.stored(line.id)
        assert (found["ending"], found["running"], found["path"]) == ("running", ["b", "c"], plan().flow.name)
        assert [row[0] for row in found["tasks"] if row[0] == "a" and row[5]] == ["a"]
        journal.write(*RUN[8:], {"e": "stop", "at": 140.0, "ending": "done"})
        journal.finish("done", 1.0)
    found = context.workflows.stored(line.id)
    assert (found["ending"], found["running"]) == ("done", [])
    context.accounts.add_user("chief", role="admin")
    assert context.studies.get(principal(context, "chief"), line.id)["kind"] == "workflow"
    with pytest.raises(NotFoundError):
        context.studies.get(ann, line.id)
