"""``tradewind workflow learn``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import eventually

from tradewind.cli.app import run
from tradewind.workflow.files import read_plan
from tradewind.workflow.schedule import check
from tradewind.workflow.simulator.compiled import replay_plan

pytestmark = pytest.mark.slow

FLOW = "name: made\ntasks:\n" + "".join(
    f"  t{i}: {{activity: a{i % 3}, runtime: {1 + i * 7 % 5}"
    + (f", after: [t{i // 2}, t{i // 3}]" if i > 3 else "")
    + "}\n"
    for i in range(40)
)
VMS = "vms: [{kind: slow, count: 3}, {kind: fast, count: 2, speed: 3}]\n"
UNSURE = ("--noise", "0.2", "--unknown", "0.5")


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.chdir(tmp_path)
    Path("flow.yaml").write_text(FLOW)
    Path("vms.yaml").write_text(VMS)
    return ("workflow", "learn", "flow.yaml", "--vms", "vms.yaml", "--search", "0.1")


@pytest.mark.slow
def test_says_what_was_learned_and_that_a_search_plans_better(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--method", "q_learning", "--episodes", "12", "--out", "kept", "--png", "curve.png"]) == 0
    said = capsys.readouterr().out
    assert "Makespan of each of 12 episodes:" in said
    assert "lower bound" in said
    assert "serial time" in said
    assert "search, followed" in said
    assert "Where everything is known, " in said
    assert Path("curve.png").read_bytes().startswith(b"\x89PNG")
    plan = read_plan(Path("kept/plan.json"))
    check(plan.flow, plan.platform, plan.schedule)
    assert plan.planner == "q_learning"
    assert Path("kept/table.csv").read_text().startswith("machine,machine_state,workflow_state,action,q\n")


@pytest.mark.slow
def test_tests_on_worlds_that_it_has_not_met(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, *UNSURE, "--episodes", "20", "--worlds", "25", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["episodes"] == len(said["makespans"]) == 20
    assert said["worlds"] == 25
    rows = {row["name"]: row for row in said["rows"]}
    assert rows["adaptive, learned"]["against"]["high"] < 1.0
    assert rows["HEFT, followed"]["against"] is None
    assert said["best"]["makespan"] >= said["best"]["lower_bound"]
    assert [line[0] for line in said["table"]][:2] == ["weight", "deviation"]


def test_a_workflow_without_run_times_teaches_nothing(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("flow.yaml").write_text("name: bare\ntasks: {a: {command: 'true'}, b: {command: 'true'}}\n")
    assert run([*words, "--noise", "0.2"]) == 3
    assert "no task of workflow bare has a run time: there is nothing to learn (give tasks" in capsys.readouterr().err


def test_learns_from_what_real_runs_measured(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    Path("flow.yaml").write_text("name: real\ntasks: {a: {command: 'true', runtime: 10s}, b: {command: 'true'}}\n")
    row = {"kind": "slow", "machine": "slow-1", "speed": 1.0, "expected": 10.0, "runtime": 10.0, "transfer": 0.0}
    tasks = [
        {**row, "task": "a", "activity": "a", "seconds": 30.0},
        {**row, "task": "b", "activity": "b", "seconds": 6.0},
    ]
    Path("results.json").write_text(json.dumps({"format": "tradewind-results-1", "workflow": "real", "tasks": tasks}))
    line = [*words, "--method", "q_learning", "--episodes", "2", "--json"]
    found = []
    for more in ((), ("--measured", "results.json")):
        assert run([*line, *more]) == 0
        found.append(json.loads(capsys.readouterr().out)["best"]["serial"])
    assert found[0] in (10.0, 10.0 / 3)
    assert found[1] in [a + b for a in (30.0, 10.0) for b in (6.0, 2.0)]


CHAIN = """\
name: chain
tasks:
  p: {command: "true", runtime: 40s}
  q1: {command: sleep 0.1, activity: q, runtime: 1s}
  q2: {command: sleep 0.1, activity: q, runtime: 1s, after: [q1]}
  q3: {command: sleep 0.1, activity: q, runtime: 1s, after: [q2]}
  q4: {command: sleep 0.1, activity: q, runtime: 1s, after: [q3]}
"""


def test_goes_on_with_the_times_of_a_real_run(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """The file says that p is long; in truth it is the chain of q, which belongs on the fast machine."""
    Path("flow.yaml").write_text(CHAIN)
    Path("vms.yaml").write_text("vms: [{kind: slow}, {kind: fast, speed: 1.5}]\n")
    line = [*words, "--method", "q_learning", "--out", "kept"]

    def planned() -> dict[str, str]:
        plan = read_plan(Path("kept/plan.json"))
        machines = [plan.platform.vms[vm].kind for vm in plan.schedule.vm]
        return {task.id: kind for task, kind in zip(plan.flow.tasks, machines, strict=True)}

    assert run([*line, "--episodes", "30"]) == 0
    assert planned()["p"] == "fast"
    first = read_plan(Path("kept/plan.json"))
    assert run(["workflow", "run", "kept/plan.json", "--quiet", "--folder", "real"]) == 0
    capsys.readouterr()
    line += ["--resume", "--measured", "real"]
    assert run([*line, "--episodes", "30"]) == 3
    assert "kept has 30 episodes: none is left to learn with the measured run times" in capsys.readouterr().err
    assert run([*line, "--episodes", "60"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Run times as measured, from episode 31 on: p 40.0 s -> ")
    assert "q 4.0 s -> " in said
    assert " in sum (4 tasks)" in said
    assert "Makespan of each of 60 episodes, the first 30 with other run times:" in said
    assert planned() == {"p": "slow", "q1": "fast", "q2": "fast", "q3": "fast", "q4": "fast"}
    second = read_plan(Path("kept/plan.json"))
    assert second.schedule.makespan < replay_plan(second.flow, second.platform, first.schedule).makespan

    table = Path("kept/table.csv").read_text()
    assert run([*words, "--method", "q_learning", "--out", "kept", "--resume", "--episodes", "60", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["measured_since"] == 31, "without --measured, the folder goes on with what it last had"
    assert [(each["activity"], each["tasks"], each["before"]) for each in again["replaced"]] == [
        ("p", 1, 40.0),
        ("q", 4, 4.0),
    ]
    assert Path("kept/table.csv").read_text() == table


def test_goes_on_where_it_was(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    line = [*words, *UNSURE, "--json", "--out", "kept"]
    assert run([*line, "--episodes", "5"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert run([*line, "--episodes", "15", "--resume"]) == 0
    both = json.loads(capsys.readouterr().out)
    assert run([*words, *UNSURE, "--json", "--episodes", "15"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert both["makespans"][:5] == first["makespans"]
    assert both["makespans"] == whole["makespans"]
    assert both["table"] == whole["table"]


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_learned(words: tuple[str, ...], tmp_path: Path) -> None:
    assert run([*words, "--episodes", "1"]) == 0  # what it needs is compiled then
    command = [sys.executable, "-m", "tradewind", *words, "--episodes", "1000000", "--out", "kept"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        eventually((tmp_path / "kept/episodes/000005.json").exists)
        os.kill(process.pid, signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert "stopping after this episode" in errors
    assert "--resume goes on" in errors
    assert "Makespan of each of" in out
    assert (tmp_path / "kept/plan.json").exists()
    count = len(list((tmp_path / "kept/episodes").glob("0*.json")))
    assert f"interrupted after {count} episodes" in errors


def test_a_chart_that_cannot_be_drawn_is_refused_before_anything_is_learned(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run([*words, "--episodes", "2", "--out", "kept", "--png", "curve.png"]) != 0
    assert "pip install 'tradewind[plots]'" in capsys.readouterr().err
    assert not Path("kept").exists()
