"""``tradewind workflow run`` as a process: killed, interrupted, and given wrongly."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.store.conftest import _server as _server
from tests.store.conftest import postgresql_url as postgresql_url
from tests.waiting import eventually
from tests.workflow.execution.plans import Command, agents, chunks, counted, flow_of, history, plan_of, records, sh

from tradewind.cli.app import run as cli
from tradewind.workflow.files import write_plan
from tradewind.workflow.graph import Task, Workflow


def test_it_shows_progress_and_compares_with_the_plan(tmp_path: Path, quick: Path) -> None:
    command = Command(plan_of(flow_of(*chunks(4, 0.2)), price_per_hour=1.0), tmp_path, program=quick)
    done = command.finish()
    assert done.returncode == 0, done.stderr
    assert "waiting for machines" in done.stdout
    assert re.search(
        r"[1-4] of 5 tasks done, \d running, (2 of 2 machines|1 of 2 machines \(1 given back\)), "
        r"[$\d.¢]+ this run so far, .* left by the plan",
        done.stdout,
    )
    assert re.search(r"^makespan +0\.\d+ s +\d+\.\d+ s$", done.stdout, re.MULTILINE)
    assert "than planned." in done.stdout
    results = json.loads((command.run / "results.json").read_text())
    held = re.search(r"^as machines were held +\$?([\d.]+)¢?$", done.stdout, re.MULTILINE)
    assert held is not None
    cents = 100.0 if held[0].endswith("¢") else 1.0
    assert float(held[1]) == pytest.approx(cents * results["kept_cost"], rel=0.02)
    assert results["kept_cost"] >= results["actual"]["cost"] > 0


@pytest.mark.slow
def test_inputs_are_those_beside_the_workflow_wherever_the_plan_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("source", "elsewhere", "plans"):
        (tmp_path / name).mkdir()
    (tmp_path / "source/x").write_text("right")
    (tmp_path / "elsewhere/x").write_text("other")
    (tmp_path / "source/flow.yaml").write_text(
        "name: flow\ntasks: {a: {command: 'cp x y', runtime: 1, inputs: [x], outputs: [y]}}\n"
    )
    (tmp_path / "vms.yaml").write_text("vms: [{name: box}]\n")
    monkeypatch.chdir(tmp_path)
    words = ["--vms", "vms.yaml"]
    assert cli(["workflow", "plan", "source/flow.yaml", *words, "--out", "plans/plan.json"]) == 0
    assert cli(["workflow", "plan", "plans/plan.json", *words, "--out", "again.json"]) == 0, "a plan is a workflow, too"
    for plan, more, text in (
        ("plans/plan.json", [], "right"),
        ("again.json", [], "right"),
        ("again.json", ["--inputs", "elsewhere", "--fresh"], "other"),
    ):
        assert cli(["workflow", "run", plan, "--quiet", *more]) == 0
        assert Path(plan).with_suffix(".run").joinpath("files/y").read_text() == text


def test_json_is_the_results_and_nothing_else(tmp_path: Path, quick: Path) -> None:
    command = Command(plan_of(flow_of(sh("a", "true")), vms=1), tmp_path, "--json", program=quick)
    done = command.finish()
    assert json.loads(done.stdout) == json.loads((command.run / "results.json").read_text())


def test_the_programs_of_a_workflow_that_ran_elsewhere_are_not_run(tmp_path: Path, quick: Path) -> None:
    there = Task("there", "there", 2.0, (), ("/elsewhere/out",), command=("touch", str(tmp_path / "ran")))
    flow = Workflow("w", (there, Task("next", "next", 3.0, ("/elsewhere/out",), command=("false",))), ((), (0,)))
    command = Command(plan_of(flow, vms=1), tmp_path, "--no-commands", "--scale", "0.1", program=quick)
    done = command.finish()
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()
    results = json.loads((command.run / "results.json").read_text())
    assert results["ending"] == "done"
    assert results["actual"]["makespan"] >= 5.0


@pytest.mark.thorough
def test_a_chart_of_planned_and_actual_times(tmp_path: Path, quick: Path) -> None:
    command = Command(
        plan_of(flow_of(*chunks(2, 0.1))), tmp_path, "--gantt", "g.html", "--gantt", "g.png", program=quick
    )
    done = command.finish()
    assert done.returncode == 0, done.stderr
    assert "work0" in (tmp_path / "g.html").read_text()
    assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_ctrl_c_ends_everything_and_the_same_command_goes_on(tmp_path: Path, quick: Path) -> None:
    command = Command(plan_of(flow_of(*chunks(4, 0.5))), tmp_path, program=quick)
    process = command.start()
    eventually(lambda: counted(command.run)["work0"])
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "stopping: running tasks are ended (once more to stop at once)" in err
    assert "interrupted (the same command goes on)" in err
    assert not agents(command.run)
    assert command.finish().returncode == 0
    assert counted(command.run)["join"] == 1


@pytest.mark.slow
def test_a_killed_controller_finds_its_running_tasks_again(tmp_path: Path, quick: Path) -> None:
    command = Command(plan_of(flow_of(*chunks(2, 2.0))), tmp_path, program=quick)
    process = command.start()
    eventually(lambda: len(counted(command.run)) == 2)
    process.kill()
    process.communicate()
    served = {each.pid for each in agents(command.run)}
    assert len(served) == 2
    done = command.finish()
    assert done.returncode == 0, done.stderr
    assert counted(command.run) == {"work0": 1, "work1": 1, "join": 1}
    past = history(command.run)
    assert past.pilots == {"vm-1": 1, "vm-2": 1}  # the same machines
    assert past.sessions == 2


@pytest.mark.thorough
@pytest.mark.slow
def test_what_ended_while_nobody_looked_is_not_run_again(tmp_path: Path, quick: Path) -> None:
    command = Command(plan_of(flow_of(*chunks(2, 0.6))), tmp_path, "--linger", "0.2s", program=quick)
    process = command.start()
    eventually(lambda: len(counted(command.run)) == 2)
    process.kill()
    process.communicate()
    eventually(lambda: not agents(command.run))  # they have ended their tasks, and have not waited any longer
    assert command.finish().returncode == 0
    assert counted(command.run) == {"work0": 1, "work1": 1, "join": 1}


def killed(process: subprocess.Popen[str], folder: Path, count: int, seconds: float) -> bool:
    """Kill a command some time after it has written so many records into its journal; False if it ends before."""
    enough = len(records(folder)) + count
    eventually(lambda: process.poll() is not None or len(records(folder)) >= enough, 60)
    time.sleep(seconds)
    alive = process.poll() is None
    process.kill()
    process.communicate()
    return alive


@pytest.fixture
def journal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of a command for each place of the journal; the environment names the store."""
    if request.param == "postgresql":
        monkeypatch.setenv("TRADEWIND_STORE", request.getfixturevalue("postgresql_url"))
    return ["--no-store"] if request.param == "folder" else []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("journal", ["folder", "sqlite"], indirect=True)
def test_killed_again_and_again_at_any_moment_nothing_is_lost_or_run_twice(
    tmp_path: Path, quick: Path, journal: list[str]
) -> None:
    chance = random.Random(7)
    plan = plan_of(flow_of(*chunks(14, 0.15)))
    command = Command(plan, tmp_path, *journal, program=quick)
    kills = 0
    for _ in range(60):
        process = command.start()
        kills += killed(process, command.run, chance.randint(1, 14), chance.uniform(0, 0.05))
        if process.returncode == 0:
            break
    assert process.returncode == 0
    assert kills >= 3
    expected = {task.id: 1 for task in plan.flow.tasks}
    assert counted(command.run) == expected
    assert (command.run / "files/total").read_text().split() == [str(n) for n in range(14)]


@pytest.mark.slow
def test_a_torn_journal_is_mended(tmp_path: Path, quick: Path) -> None:
    command = Command(plan_of(flow_of(*chunks(2, 0.1))), tmp_path, "--no-store", program=quick)
    assert command.finish().returncode == 0
    journal = command.run / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if '"end"' in line)
    journal.write_text("".join(lines[:last]) + lines[last][:40])
    done = command.finish()
    assert done.returncode == 0, done.stderr
    assert counted(command.run) == {"work0": 1, "work1": 1, "join": 1}  # join had left a note of its end


def test_the_lot_with_wrong_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_plan(tmp_path / "plan.json", plan_of(flow_of(sh("a", "true")), vms=1))
    write_plan(tmp_path / "bare.json", plan_of(Workflow("w", (Task("a", "a", 1.0),), ((),)), vms=1))
    cases = {
        ("no.json",): (3, "there is no file no.json"),
        ("plan.json", "--on", "moon"): (13, "there is no runner named 'moon'"),
        ("plan.json", "--on", "replay"): (
            13,
            "'replay' cannot carry out a plan: replay runs nothing for real (use docker, htcondor, kubernetes, local",
        ),
        ("plan.json", "--set", "x"): (3, "--set 'x' is not NAME=VALUE"),
        ("plan.json", "--set", "grade=1"): (3, "runner process: unknown setting 'grade' (did you mean 'grace'?)"),
        ("plan.json", "--scale", "0"): (3, "--scale 0 is no share of a time"),
        ("plan.json", "--scale", "0.5"): (3, "--scale is for tasks that only sleep"),
        ("plan.json", "--planner", "heftt"): (13, "there is no planner named 'heftt' (did you mean 'heft'?)"),
        ("plan.json", "--gantt", "x.pdf"): (3, "--gantt x.pdf: it is neither .html nor .png"),
        ("plan.json", "--gantt", "no/x.png"): (3, "--gantt no/x.png: there is no folder no"),
        ("plan.json", "--wall", "soon"): (3, "soon"),
        ("bare.json",): (3, "no command for 1 of 1 task, the first is 'a'"),
        ("plan.json", "--folder", "plan.json/x"): (
            3,
            f"cannot make the folder {tmp_path}/plan.json/x: Not a directory",
        ),
    }
    for words, (code, says) in cases.items():
        assert cli(["workflow", "run", *words]) == code, words
        assert says in capsys.readouterr().err, words


def test_a_failed_task_says_where_its_words_are(tmp_path: Path, quick: Path) -> None:
    command = Command(
        plan_of(flow_of(sh("bad", "echo no >&2; exit 2", writes="x"), sh("c", "true", after="x"))),
        tmp_path,
        "--retries",
        "0",
        program=quick,
    )
    done = command.finish()
    assert done.returncode == 7
    said = re.search(
        r"task 'bad' failed 1 time: it exited with code 2; 1 that need them were not run \(see (\S+);", done.stderr
    )
    assert said, done.stderr
    assert Path(said[1]).read_text() == "no\n"


def test_it_needs_no_terminal_and_no_home(tmp_path: Path, quick: Path) -> None:
    command = Command(
        plan_of(flow_of(sh("a", "true")), vms=1), tmp_path, "--quiet", env={"HOME": "/nonexistent"}, program=quick
    )
    done = command.finish()
    assert done.returncode == 0, done.stderr
    assert time.time() - (command.run / "results.json").stat().st_mtime < 60


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("journal", ["sqlite", "postgresql"], indirect=True)
def test_killed_after_each_record_of_the_journal_nothing_is_lost_or_run_twice(
    tmp_path: Path, quick: Path, journal: list[str]
) -> None:
    """Two chains, whose tasks are all begun by their machines: each session is killed after one more record."""
    links = [
        sh(f"{name}{n}", f"echo {name}{n} >> log; sleep 0.05; echo {name}{n} > out.{name}{n}", runtime=0.05,
           after=f"out.{name}{n - 1}" if n else "", writes=f"out.{name}{n}", activity="link")
        for n in range(6) for name in "ab"
    ]  # fmt: skip
    plan = plan_of(flow_of(*links))
    command = Command(plan, tmp_path, *journal, program=quick)
    for count in range(1, 40):
        process = command.start()
        killed(process, command.run, count % 9 + 1, 0.0)
        if process.returncode == 0:
            break
    assert process.returncode == 0
    written = records(command.run)
    assert sum(each["e"] == "session" for each in written) >= 5
    assert {each["task"] for each in written if each["e"] == "arm"} >= {"a3", "b3"}
    assert counted(command.run) == {task.id: 1 for task in plan.flow.tasks}
    began = [(each["task"], each["attempt"]) for each in written if each["e"] == "start"]
    assert len(began) == len(set(began)) == 12
    for name in "ab":
        names = [line for line in (command.run / "files/log").read_text().split() if line[0] == name]
        assert names == [f"{name}{n}" for n in range(6)]
