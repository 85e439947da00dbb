"""A run of a workflow in the store, as the commands for studies show it, hand it on and end it."""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.waiting import eventually
from tests.workflow.execution.plans import Command, agents, carry, chunks, counted, flow_of, plan_of, sh

from tradewind.cli.app import run as cli
from tradewind.store.base import store_at
from tradewind.utils.paths import store_url
from tradewind.workflow.execution.run_folder import WorkflowRunFolder
from tradewind.workflow.execution.stored.store_journal import RunnerChoice, StoreJournal


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Address of a store, and folder of a run in it: one task is well, one fails, and a third needs that one."""
    folder = tmp_path_factory.mktemp("run") / "plan.run"
    plan = plan_of(
        flow_of(
            sh("well", "echo out of well; echo err of well >&2"),
            sh("bad", "echo it is bad >&2; exit 3", writes="x"),
            sh("after", "cat x", after="x"),
        ),
        price_per_hour=36.0,
    )
    url = f"sqlite:///{folder.parent}/store.db"
    choice = RunnerChoice("process", {}, folder / "machines/.runner")
    carry(plan, folder, journal=StoreJournal(url, plan, WorkflowRunFolder(folder), choice))
    return url, folder


@pytest.fixture
def run(finished: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of that run; the store is the user's."""
    monkeypatch.setenv("TRADEWIND_STORE", finished[0])
    return finished[1]


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert cli([*words]) == code
    found = capsys.readouterr()
    return found.out if code == 0 else found.err


def test_it_is_among_the_studies(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = said(capsys, "status").splitlines()[1].split()
    assert line[:6] == ["1", "test", "finished", "1", "of", "3"]
    (found,) = json.loads(said(capsys, "status", "--json"))
    assert (found["kind"], found["state"], found["tasks_done"]) == ("workflow", "finished", 1)


def test_its_tasks_and_machines(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "status", "test")
    assert "stopped: tasks failed" in text
    assert f"tasks: 1 done, 1 failed, 1 waiting; on process, in {run}" in text
    assert "it exited with code 3" in text
    assert "and 1 more: tradewind status test --all" in text
    assert "after" in said(capsys, "status", "1", "--all")
    found = json.loads(said(capsys, "status", "test", "--json"))
    assert {row["task"]: (row["state"], row["attempts"]) for row in found["tasks"]} == {
        "well": ("done", 1), "bad": ("failed", 3), "after": ("waiting", 0),
    }  # fmt: skip
    assert (found["tasks_total"], found["tasks_done"], found["ending"]) == (3, 1, "failed")
    assert sum(row["spent"] for row in found["machines"]) == pytest.approx(found["spent"])
    assert found["spent"] > 0


@pytest.mark.parametrize(
    ("words", "text"),
    [(("well",), "out of well\n"), (("well", "--stderr"), "err of well\n"), (("bad", "--stderr"), "it is bad\n")],
)
def test_what_a_task_printed(run: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], text: str) -> None:
    assert said(capsys, "logs", "test", *words) == text
    assert said(capsys, "logs", "test", *words, "--follow") == text
    found = json.loads(said(capsys, "logs", "test", *words, "--json"))
    assert Path(found["path"]).read_text() == text


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("logs", "test", "wel"), "there is no task 'wel' in run test (did you mean 'well'?)"),
        (("logs", "test", "after"), "task 'after' has not been begun (tradewind status shows how far the run is)"),
        (("status", "tset"), "there is no study 'tset' (did you mean 'test'?)"),
        (("report", "test", "--map"), "--map is for searches, and test is a run of a workflow (leave it out)"),
        (("export", "test", "--with-logs", "--format", "records"),
         "--with-logs: test is a run of a workflow, whose records have no logs (tradewind logs prints them; "
         "they are in the run's folder)"),
        (("export", "test", "-o", "x.db"),
         "test is a run of a workflow, which Optuna has no place for (say --format csv)"),
        (("interpret", "test"),
         "test (study 1) is a run of a workflow, not a search (tradewind status, logs, report, export, down and reap "
         "take one)"),
    ],
)  # fmt: skip
def test_wrong_words_are_refused_in_a_line(
    run: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], line: str
) -> None:
    assert cli([*words]) != 0
    assert capsys.readouterr().err == f"tradewind: {line}\n"


def test_a_log_whose_folder_is_gone(
    run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(capsys, "export", "test", "--format", "records", "-o", str(tmp_path / "r.jsonl"))
    text = (tmp_path / "r.jsonl").read_text().replace(str(run), "/nowhere")
    (tmp_path / "r.jsonl").write_text(text)
    monkeypatch.setenv("TRADEWIND_STORE", f"sqlite:///{tmp_path}/other.db")
    said(capsys, "import", str(tmp_path / "r.jsonl"))
    assert "the run's folder /nowhere is gone" in said(capsys, "logs", "test", "well", code=3)


def test_the_report_draws_the_plan_and_the_run(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = said(capsys, "report")
    assert text.startswith("test (run 1): failed, 1 of 3 tasks done on process\nplanned by heft; machines have cost $")
    assert text.count(" planned |") == text.count(" actual  |") == 2
    assert "task bad: it exited with code 3" in text
    html, pictures = tmp_path / "r.html", tmp_path / "pictures"
    assert str(html) in said(capsys, "report", "test", "--html", str(html), "--png", str(pictures))
    assert "planned and run on process" in html.read_text()
    assert (pictures / "gantt.png").stat().st_size > 1000
    found = json.loads(said(capsys, "report", "test", "--json"))
    assert (found["format"], found["ending"], found["study"]) == ("tradewind-results-1", "failed", "test")


def test_it_is_exported_and_taken_in_again(
    run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = list(csv.DictReader(said(capsys, "export", "test").splitlines()))
    assert [(row["task"], row["state"]) for row in rows] == [("well", "done"), ("bad", "failed"), ("after", "waiting")]
    assert len(json.loads(said(capsys, "export", "test", "--json"))) == 3
    said(capsys, "export", "test", "-o", str(tmp_path / "tasks.parquet"))
    file = str(tmp_path / "run.jsonl")
    assert said(capsys, "export", "test", "--format", "records", "-o", file) == f"wrote 3 tasks to {file}\n"
    assert said(capsys, "import", file) == "the run test is there already (id 1)\n"
    before = json.loads(said(capsys, "report", "test", "--json"))
    monkeypatch.setenv("TRADEWIND_STORE", f"sqlite:///{tmp_path}/other.db")
    assert said(capsys, "import", file).startswith("took the run test (id 1) with ")
    after = json.loads(said(capsys, "report", "test", "--json"))
    assert after == before
    assert "imported: the store that it came from goes on with it" in said(capsys, "status", "test")
    assert "nothing runs" in said(capsys, "down", "test", "--yes")
    again = str(tmp_path / "again.jsonl")
    said(capsys, "export", "test", "--format", "records", "-o", again)
    assert Path(again).read_text() == Path(file).read_text()


def damaged(text: str) -> Iterator[tuple[str, str]]:
    lines = text.splitlines(keepends=True)
    yield "".join([lines[0], "{\n", *lines[1:]]), "run.jsonl:2: it is no JSON"
    yield "".join([lines[0], "[]\n"]), "run.jsonl:2: it is no record of a workflow's run"
    yield text.replace('"workflow_record": 1', '"workflow_record": 9', 1), "run.jsonl:1: it is a record of version 9, "
    yield text.replace('"study"', '"stduy"', 1), "run.jsonl:1: its first record is not that of a workflow's run"
    yield (
        text.replace('"created": ', '"created": "x', 1).replace(', "state"', '", "state"', 1),
        "run.jsonl:1: its first",
    )
    yield text.replace('"graph"', '"grahp"', 1), "run.jsonl:1: its plan cannot be read: "
    yield (
        "".join(lines[:1]) + '{"workflow_record": 1, "journal": {"e": "up"}}\n',
        "run.jsonl:2: it is no record of a run's",
    )
    yield (
        "".join(lines[:1]) + '{"workflow_record": 1, "machine": {"record": 2}}\n',
        "run.jsonl: of its machines, record 1",
    )


def test_a_damaged_file_is_refused_with_its_place(
    run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = said(capsys, "export", "test", "--format", "records")
    monkeypatch.setenv("TRADEWIND_STORE", f"sqlite:///{tmp_path}/other.db")
    monkeypatch.chdir(tmp_path)
    for wrong, line in damaged(text):
        (tmp_path / "run.jsonl").write_text(wrong)
        err = said(capsys, "import", "run.jsonl", code=3)
        assert err.startswith(f"tradewind: {line}"), err
        assert err.count("\n") == 1
    with closing(store_at(store_url())) as store:
        assert store.list_studies() == []


@pytest.mark.slow
def test_a_killed_run_is_shown_is_found_and_is_ended(
    tmp_path: Path, quick: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = [sh(f"t{n}", f"echo t{n} >> log; test $TRADEWIND_ATTEMPT -gt 1 || sleep 100") for n in (1, 2)]
    command = Command(plan_of(flow_of(*tasks), price_per_hour=36.0), tmp_path, program=quick)
    process = command.start()
    eventually(lambda: len(counted(command.run)) == 2)
    assert "running in process" in said(capsys, "status", "test")
    assert "is being run by process" in said(capsys, "down", "test", "--yes", code=12)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(agents(command.run)) == 2
    text = said(capsys, "status", "test")
    assert "its process is gone: the command that began it goes on with it" in text
    found = json.loads(said(capsys, "reap", "--dry-run", "--json"))
    with closing(store_at(store_url())) as store:
        ids = {each.run_id for each in store.runs(1)}
    assert sum(each["run"] in ids for each in found["kept"]) == 2, "agents of other runs may be on this machine too"
    text = said(capsys, "down", "test", "--yes")
    assert re.match(r"test \(1\): 2 runs ended, (\$0\.\d+|0\.\d+¢) total", text), text
    eventually(lambda: not agents(command.run))
    with closing(store_at(store_url())) as store:
        assert all(each.state.ended and each.cost > 0 for each in store.runs(1))
        assert store.summaries([1])[0].reserved == 0.0
    assert "nothing runs" in said(capsys, "down", "test", "--yes")
    assert command.finish().returncode == 0
    assert counted(command.run) == {"t1": 2, "t2": 2}
    shutil.rmtree(command.run)
    assert "nothing runs" in said(capsys, "down", "test", "--yes")


@pytest.mark.thorough
@pytest.mark.slow
def test_it_is_taken_from_the_process_that_carries_it_out(
    tmp_path: Path, quick: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(plan_of(flow_of(*chunks(2, 30.0))), tmp_path, program=quick)
    process = command.start()
    eventually(lambda: len(counted(command.run)) == 2)
    assert said(capsys, "down", "test", "--yes", "--force").startswith("test (1): 2 runs ended")
    _, err = process.communicate(timeout=20)
    assert process.returncode == 12, err
    assert "this process no longer" in err
    assert err.count("\n") == 1
    eventually(lambda: not agents(command.run))
