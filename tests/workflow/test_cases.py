"""The small inputs of public reports, where they are: each folder is held to what is right for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.workflow.datasets import DATASETS

from tradewind import plugins
from tradewind.cli.app import run
from tradewind.workflow.files import open_platform, read_workflow
from tradewind.workflow.graph import Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.schedule import check

CASES = DATASETS.parent / "cases" / "workflow"
VMS = "vms: [{kind: one, count: 3}]\n"

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=f"the cases are not at {CASES}")


def folder(number: str) -> Path:
    """The folder of a case."""
    return next(CASES.glob(f"{number}-*"))


def makespan(case: Path, tmp_path: Path, machines: Path | None = None) -> float:
    """The makespan of HEFT's plan on the case's machines."""
    vms = machines or tmp_path / "vms.yaml"
    if machines is None:
        vms.write_text(VMS)
    flow = read_workflow(case)
    platform = open_platform(str(vms)).holding(flow)
    planner: Planner = plugins.create("planner", "heft", {})
    schedule = planner.plan(flow, platform)
    check(flow, platform, schedule)
    return schedule.makespan


def test_every_case_has_a_test() -> None:
    numbers = {path.name[:2] for path in CASES.iterdir() if path.is_dir()}
    assert numbers == {"01", "02", "03", "04", "05", "15", "16", "17", "18", "23", "24"}


@pytest.mark.parametrize("name", ["a.dax", "a.yml"])
def test_01_files_alone_make_a_chain(tmp_path: Path, name: str) -> None:
    assert makespan(folder("01") / name, tmp_path) == 300.0


@pytest.mark.parametrize("name", ["a.dax", "same.yml"])
def test_02_cores_and_memory_of_profiles(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path))
    case = folder("02")
    assert makespan(case / name, tmp_path, case / "vms4.yaml") == 400.0
    assert run(["workflow", "plan", str(case / name), "--vms", str(case / "vms2.yaml")]) == 3
    assert "task 'A' uses 4 cores, and no machine has as many" in capsys.readouterr().err


def test_03_sizes_of_metadata(tmp_path: Path) -> None:
    assert makespan(folder("03") / "a.dax", tmp_path, folder("03") / "vms.yaml") == pytest.approx(130.0)


def test_04_executables_and_checkpoints_are_no_data(tmp_path: Path) -> None:
    assert makespan(folder("04") / "a.dax", tmp_path, folder("03") / "vms.yaml") == pytest.approx(21.0)


def test_05_files_alone_make_a_join(tmp_path: Path) -> None:
    assert makespan(folder("05") / "a.json", tmp_path) == 200.0


def test_15_a_workflow_within_another_is_opened_or_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path))
    case = folder("15") / "outer.dax"
    assert makespan(case, tmp_path) == 5.0 + 500.0
    flow = read_workflow(case)
    assert [task.id for task in flow.tasks] == ["J1", "S/I1", "G"]
    assert flow.parents == ((), (0,), (1,))
    plan = str(tmp_path / "plan.json")
    assert run(["workflow", "plan", str(case), "--vms", str(tmp_path / "vms.yaml"), "--out", plan]) == 0
    assert "workflows of their own, each taken as one task: G" in capsys.readouterr().out
    for more in ([], ["--synthetic"]):
        assert run(["workflow", "run", plan, *more]) == 3
        assert "'G' (inner.dag) is a workflow of its own, whose file was not there" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "seconds"), [("a.dax", 105.0), ("b.dax", 100.0)])
def test_16_jobs_within_another_element_do_not_vanish(tmp_path: Path, name: str, seconds: float) -> None:
    assert {task.id for task in read_workflow(folder("16") / name).tasks} == {"P", "K1", "K2"}
    assert makespan(folder("16") / name, tmp_path) == seconds


def test_17_requests_of_htcondor(tmp_path: Path) -> None:
    flow = read_workflow(folder("17") / "a.yml")
    assert [(task.cores, task.memory_bytes) for task in flow.tasks] == [(4, 8 << 30)] * 2
    assert makespan(folder("17") / "a.yml", tmp_path, folder("02") / "vms4.yaml") == 200.0
    assert [task.memory_bytes for task in read_workflow(folder("17") / "b.yml").tasks] == [2 << 30]


def test_18_kinds_of_use(tmp_path: Path) -> None:
    first, second = (read_workflow(folder("18") / name) for name in ("a.yml", "b.yml"))
    assert (first.tasks[0].inputs, first.tasks[0].outputs, first.sizes) == (
        ("big",), ("f",), {"big": 9_000_000_000, "f": 12_000_000}
    )  # fmt: skip
    assert (second.tasks[0].inputs, second.tasks[0].optional) == (("opt",), ("opt",))
    assert makespan(folder("18") / "b.yml", tmp_path) == 1.0


def carried_out(case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Workflow, Path]:
    """Plan a case and run it; the workflow, and the folder of its files."""
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "home"))
    vms, plan, place = tmp_path / "vms.yaml", tmp_path / "plan.json", tmp_path / "run"
    vms.write_text(VMS)
    assert run(["workflow", "plan", str(case), "--vms", str(vms), "--out", str(plan)]) == 0
    assert run(["workflow", "run", str(plan), "--folder", str(place), "--quiet", "--gather", "0s"]) == 0
    results = json.loads((place / "results.json").read_text())
    assert results["ending"] == "done"
    return read_workflow(case), place / "files"


@pytest.mark.slow
def test_23_streams_are_carried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, files = carried_out(folder("23") / "a.yml", tmp_path, monkeypatch)
    lines = (files / "listing.txt").read_text().splitlines()
    assert int((files / "n.txt").read_text()) == len(lines) > 1


@pytest.mark.slow
def test_24_arguments_with_blanks_are_several_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow, files = carried_out(folder("24") / "a.json", tmp_path, monkeypatch)
    assert flow.tasks[0].command == ("dd", "if=/dev/zero", "of=out.txt", "bs=1", "count=2")
    assert (files / "out.txt").read_bytes() == b"\0\0"
