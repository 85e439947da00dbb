"""The example workflow is planned and run, shortened; its picture is right; the next plan knows the measured times."""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from pathlib import Path

import pytest

from tradewind.cli.app import run as cli
from tradewind.problem.job_spec.spec import load_spec
from tradewind.workflow.files import read_plan, read_workflow

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "workflow"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in EXAMPLE.glob("*.*"):
        shutil.copy(file, tmp_path)
    scene = json.loads((tmp_path / "scene.json").read_text())
    (tmp_path / "scene.json").write_text(json.dumps({**scene, "size": 12, "steps": 40}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_shape() -> None:
    flow = read_workflow(EXAMPLE / "workflow.yaml")
    assert len(flow) == 15
    assert flow.widths == (4, 4, 1, 4, 1, 1)


@pytest.mark.slow
def test_as_a_job_it_is_searched_over_machines_and_planners(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "home"))
    assert cli(["tune", "job.yaml", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["trials"]) == {"succeeded"}
    assert result["best"]["observation"]["runtime"] <= 66
    assert load_spec(folder / "local.yaml").runner.name == "workflow_local"


@pytest.mark.slow
def test_it_is_planned_run_and_planned_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planning = ["workflow", "plan", "workflow.yaml", "--vms", "vms.yaml"]
    assert cli([*planning, "--out", "plan.json"]) == 0
    assert cli(["workflow", "run", "plan.json", "--quiet"]) == 0
    assert "than planned." in capsys.readouterr().out
    picture = (folder / "plan.run/files/mosaic.png").read_bytes()
    assert struct.unpack(">II", picture[16:24]) == (24, 24)
    start = picture.index(b"IDAT") + 4
    raw = zlib.decompress(picture[start : picture.index(b"IEND") - 8])
    assert max(raw) == 255
    assert "24 x 24 pixels of 4 tiles" in (folder / "plan.run/files/report.txt").read_text()
    assert cli([*planning, "--measured", "plan.run", "--out", "better.json"]) == 0
    before, after = read_plan(folder / "plan.json"), read_plan(folder / "better.json")
    rows = json.loads((folder / "plan.run/results.json").read_text())["tasks"]
    tiles = sorted(row["seconds"] for row in rows if row["activity"] == "tile")
    assert after.flow.tasks[0].runtime == pytest.approx((tiles[1] + tiles[2]) / 2, rel=1e-3)
    assert before.flow.tasks[0].runtime == 1.0
