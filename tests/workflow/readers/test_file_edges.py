"""Edges that files imply: a task that reads what another writes waits for it, in every format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.workflow.datasets import dax, needs_datasets

from tradewind.errors import WorkflowError
from tradewind.workflow.files import Plan, read_workflow, write_plan
from tradewind.workflow.graph import Workflow
from tradewind.workflow.planner.heft import HeftPlanner
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.simulator.compiled import replay_plan

HEFT = HeftPlanner(settings=HeftPlanner.Settings())

Uses = dict[str, tuple[str, str, str]]
"""Of each task the files that it reads, those that it writes, and the tasks that it waits for, with blanks between."""

CHAIN: Uses = {"A": ("", "x", ""), "B": ("x", "y", ""), "C": ("y", "", "")}


def as_dax(uses: Uses) -> str:
    lines = ['<adag version="3.6" name="w">']
    for task, (reads, writes, _) in uses.items():
        lines.append(f'<job id="{task}" name="p"><profile namespace="pegasus" key="runtime">100</profile>')
        lines += [f'<uses name="{name}" link="input" size="1"/>' for name in reads.split()]
        lines += [f'<uses name="{name}" link="output" size="1"/>' for name in writes.split()]
        lines.append("</job>")
    for task, (_, _, after) in uses.items():
        lines.append(f'<child ref="{task}">' + "".join(f'<parent ref="{one}"/>' for one in after.split()) + "</child>")
    return "\n".join([*lines, "</adag>"])


def as_pegasus(uses: Uses) -> str:
    jobs = [
        {
            "type": "job",
            "id": task,
            "name": "p",
            "arguments": [],
            "uses": [{"lfn": name, "type": "input"} for name in reads.split()]
            + [{"lfn": name, "type": "output"} for name in writes.split()],
            "profiles": {"pegasus": {"runtime": "100"}},
        }
        for task, (reads, writes, _) in uses.items()
    ]
    edges = [{"id": one, "children": [task]} for task, (_, _, after) in uses.items() for one in after.split()]
    return json.dumps({"pegasus": "5.0", "name": "w", "jobs": jobs, "jobDependencies": edges})


def as_old_wfformat(uses: Uses) -> str:
    tasks = [
        {
            "name": task,
            "runtime": 100,
            "parents": after.split(),
            "files": [{"link": "input", "name": name} for name in reads.split()]
            + [{"link": "output", "name": name} for name in writes.split()],
        }
        for task, (reads, writes, after) in uses.items()
    ]
    return json.dumps({"name": "w", "schemaVersion": "1.3", "workflow": {"tasks": tasks}})


def as_wfformat(uses: Uses) -> str:
    tasks = [
        {"name": task, "id": task, "parents": after.split(), "inputFiles": reads.split(), "outputFiles": writes.split()}
        for task, (reads, writes, after) in uses.items()
    ]
    runs = [{"id": task, "runtimeInSeconds": 100} for task in uses]
    flow = {"specification": {"tasks": tasks, "files": []}, "execution": {"tasks": runs}}
    return json.dumps({"name": "w", "schemaVersion": "1.5", "workflow": flow})


def as_own(uses: Uses) -> str:
    tasks = {
        task: {"runtime": 100, "inputs": reads.split(), "outputs": writes.split(), "after": after.split()}
        for task, (reads, writes, after) in uses.items()
    }
    return json.dumps({"name": "w", "tasks": tasks})


FORMATS = {"w.dax": as_dax, "w.yml": as_pegasus, "old.json": as_old_wfformat, "w.json": as_wfformat, "w.yaml": as_own}


def read(folder: Path, name: str, uses: Uses, *, declared: bool = False) -> Workflow:
    path = folder / name
    path.write_text(FORMATS[name](uses))
    return read_workflow(path, declared_edges=declared)


@pytest.mark.parametrize("name", FORMATS)
def test_a_chain_that_only_files_tell(tmp_path: Path, name: str) -> None:
    flow = read(tmp_path, name, CHAIN)
    assert flow.parents == ((), (0,), (1,))
    platform = Platform(tuple(Vm(f"one-{i}") for i in range(3)))
    assert replay_plan(flow, platform, HEFT.plan(flow, platform)).makespan == 300.0


@pytest.mark.parametrize("name", FORMATS)
def test_declared_edges_alone(tmp_path: Path, name: str) -> None:
    flow = read(tmp_path, name, {**CHAIN, "C": ("y", "", "A")}, declared=True)
    assert flow.parents == ((), (), (0,))
    said = "files read by tasks that do not wait for the one that writes them: x by B, y by C"
    assert said in flow.warnings


@pytest.mark.parametrize("name", FORMATS)
def test_a_cycle_that_files_close_is_refused_with_its_tasks_and_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(WorkflowError, match="in a circle: ") as caught:
        read(tmp_path, name, {"A": ("late", "x", ""), "B": ("", "late", "A")})
    assert "A (reads 'late')" in str(caught.value)
    assert "--declared-edges" in str(caught.value)
    assert read(tmp_path, name, {"A": ("late", "x", ""), "B": ("", "late", "A")}, declared=True).parents == ((), (0,))


@pytest.mark.parametrize("name", ["w.dax", "w.yml", "old.json", "w.json"])
def test_tasks_that_wait_by_way_of_others_get_no_edge(tmp_path: Path, name: str) -> None:
    assert read(tmp_path, name, {"A": ("", "x", ""), "B": ("", "", "A"), "C": ("x", "", "B")}).parents == (
        (),
        (0,),
        (1,),
    )


@pytest.mark.parametrize("name", ["w.dax", "w.yml", "old.json", "w.json"])
def test_versions_of_a_file(tmp_path: Path, name: str) -> None:
    # B has the version of A, C writes a later one; D waits for neither, and so for both.
    uses: Uses = {"A": ("", "x", ""), "B": ("x", "", "A"), "C": ("", "x", "B"), "D": ("x", "", "")}
    assert read(tmp_path, name, uses).parents == ((), (0,), (1,), (0, 2))
    # A reads what lies there from outside before C and D write it, one after the other.
    uses = {"A": ("x", "", ""), "C": ("", "x", "A"), "D": ("x", "x", "C")}
    assert read(tmp_path, name, {**uses, "D": ("", "x", "C")}).parents == ((), (0,), (1,))
    # Two that change a file in place have to say which one is first.
    with pytest.raises(WorkflowError, match="in a circle: "):
        read(tmp_path, name, {"A": ("x", "x", ""), "B": ("x", "x", "")})
    assert read(tmp_path, name, {"A": ("x", "x", ""), "B": ("x", "x", "A")}).parents == ((), (0,))


def test_more_writers_and_readers_than_are_dependencies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.workflow.readers.file_edges._MOST", 5)
    uses: Uses = {**{f"w{i}": ("", "log", "") for i in range(3)}, **{f"r{i}": ("log", "", "") for i in range(3)}}
    with pytest.raises(WorkflowError, match=r"imply more than 5 edges, many of them 'log'.*--declared-edges"):
        read(tmp_path, "w.json", uses)
    assert read(tmp_path, "w.json", uses, declared=True).edges == 0


def test_more_tasks_than_one_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.workflow.graph._BLOCK", 2)
    uses: Uses = {f"t{i}": (f"f{i - 3}" if i > 2 else "", f"f{i}", f"t{i - 1}" if i % 2 else "") for i in range(9)}
    assert read(tmp_path, "w.json", uses).parents == ((), (0,), (), (0, 2), (1,), (2, 4), (3,), (4, 6), (5,))


def test_a_plan_keeps_the_edges_that_it_has(tmp_path: Path) -> None:
    platform = Platform((Vm("one"),))
    for declared in (True, False):
        flow = read(tmp_path, "w.dax", CHAIN, declared=declared)
        plan = Plan(flow, platform, replay_plan(flow, platform, HEFT.plan(flow, platform)), "heft")
        write_plan(tmp_path / "plan.json", plan)
        for again in (True, False):
            assert read_workflow(tmp_path / "plan.json", declared_edges=again).parents == flow.parents


def test_warnings_name_some_and_say_how_many_more_there_are(tmp_path: Path) -> None:
    (five,) = read(tmp_path, "w.json", {f"t{i}": ("", f"f{i}", "") for i in range(5)}).warnings
    assert five == "files without a size, which count as empty: f0, f1, f2, f3, f4"
    (many,) = read(tmp_path, "w.json", {f"t{i}": ("", f"f{i}", "") for i in range(1204)}).warnings
    assert many == "files without a size, which count as empty: f0, f1, f10, f100 and 1,200 more"


@pytest.mark.parametrize("name", FORMATS)
def test_workflowsim_reads_declared_edges_alone(tmp_path: Path, name: str) -> None:
    read(tmp_path, name, CHAIN)
    flow = read_workflow(tmp_path / name, workflowsim=True)
    assert flow.edges == (2 if name == "w.yaml" else 0)  # the files of Tradewind's own YAML are how edges are declared


@needs_datasets
def test_graphs_that_declare_all_gain_nothing() -> None:
    # Several tasks write some of their files; who reads one has declared whose.
    flow = dax("Sipht_100")
    assert any(each.startswith("files written by several tasks: ") for each in flow.warnings)
    assert flow.edges == 109
