"""A workflow whose tasks need GPUs, disk and memory: advice over a list with GPU machines, and its plan carried out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.engines.gpus import have_nvidia

from tradewind.cli.app import run
from tradewind.workflow.files import read_plan

SHOW = 'echo "$CUDA_VISIBLE_DEVICES"'
FLOW = {
    "name": "train",
    "tasks": {
        "prepare": {"command": ["sh", "-c", SHOW], "runtime": 300, "cores": 1, "memory": "64MiB", "disk": "60MiB"},
        "one": {"command": ["sh", "-c", SHOW], "runtime": 1200, "gpus": 1, "disk": "40MiB", "after": ["prepare"]},
        "two": {"command": ["sh", "-c", SHOW], "runtime": 1200, "gpus": 2, "disk": "40MiB", "after": ["prepare"]},
    },
}
PRICES = """\
API Name,Provider,CPU,Memory,Category,Price,GPUs,Accelerator,Disk GiB
plain,here,2,4,general,0.10,0,,100
tiny-disk,here,4,8,accelerated,0.20,4,L4,0.01
inferentia,here,4,8,accelerated,0.25,4,Inferentia,100
two-gpus,here,2,4,accelerated,0.80,2,L4,100
four-gpus,here,2,4,accelerated,1.50,4,L4,100
"""


def _advise(folder: Path, *words: str, prices: str = PRICES) -> int:
    (folder / "flow.yaml").write_text(json.dumps(FLOW))
    (folder / "prices.csv").write_text(prices)
    given = ["--csv", str(folder / "prices.csv"), "--refine", "0", "--boot", "0s", "--max-vms", "2", "--mix", "1"]
    return run(["workflow", "advise", str(folder / "flow.yaml"), *given, *words])


def _best(folder: Path, capsys: pytest.CaptureFixture[str], *words: str, prices: str = PRICES) -> dict[str, Any]:
    assert _advise(folder, *words, "--json", prices=prices) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_machines_with_gpus_are_looked_at_where_tasks_need_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither those without, nor other accelerators, nor those whose disk is too small; nobody asks for a category."""
    found = _best(tmp_path, capsys)
    assert {row["type"] for row in found["front"]} == {"two-gpus", "four-gpus"}
    assert found["best"]["type"] == "two-gpus"  # one after the other: 45 min at $0.80 are less than 25 at $1.50
    in_time = _best(tmp_path, capsys, "--deadline", "30m")
    assert (in_time["best"]["type"], in_time["best"]["count"]) == ("four-gpus", 1)
    assert not any("disk" in note for note in found["warnings"])


def test_a_disk_that_nobody_knows_is_told_once_and_refuses_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = "\n".join(line.rpartition(",")[0] for line in PRICES.splitlines()) + "\n"
    assert _advise(tmp_path, "--vms-out", str(tmp_path / "vms.yaml"), prices=unknown) == 0
    words = "task 'prepare' needs 60 MiB of disk, and nothing says how much tiny-disk has"
    said = " ".join(capsys.readouterr().out.split())
    assert said.count(words) == 1
    assert run(["workflow", "plan", str(tmp_path / "flow.yaml"), "--vms", str(tmp_path / "vms.yaml")]) == 0
    assert " ".join(capsys.readouterr().out.split()).count(words) == 1
    assert run(["workflow", "plan", str(tmp_path / "flow.yaml"), "--vms", "paper3:16"]) == 3
    assert "task 'one' uses 1 GPU, and no machine has any" in capsys.readouterr().err


@pytest.mark.slow
def test_the_plan_runs_with_the_devices_of_each_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    have_nvidia(monkeypatch, tmp_path, 4)
    plan = tmp_path / "plan.json"
    assert _advise(tmp_path, "--deadline", "30m", "--out", str(plan)) == 0
    assert {vm.kind: vm.gpus for vm in read_plan(plan).platform.vms} == {"four-gpus": 4}
    monkeypatch.chdir(tmp_path)
    assert run(["workflow", "run", str(plan)]) == 0, capsys.readouterr().err
    shown = {path.parts[-3]: path.read_text().strip() for path in tmp_path.rglob("tasks/*/1/stdout")}
    assert shown["prepare"] == ""
    devices = [shown[name].split(",") for name in ("one", "two")]
    assert [len(each) for each in devices] == [1, 2]
    assert all(device in "0123" for each in devices for device in each)


def test_a_workflow_without_run_times_is_refused_in_its_own_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not as a mistake in line 3 of a job that the user has never seen."""
    path = tmp_path / "flow.dag"
    path.write_text("JOB A a.sub\nJOB B b.sub\nPARENT A CHILD B\n")
    assert run(["workflow", "advise", str(path)]) == 3
    said = capsys.readouterr().err
    assert said.startswith(f"tradewind: {path}: no task has a run time, and machines are compared by these (")
    assert "job.workflow" not in said
