from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tradewind.cli.app import run
from tradewind.cli.job_file import STARTER
from tradewind.problem import Configuration, Offer
from tradewind.problem.job_spec.model import JobFile
from tradewind.problem.job_spec.spec import load_spec
from tradewind.problem.template import render


@pytest.mark.slow
def test_the_first_job_loads_and_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", str(tmp_path)]) == 0
    assert f"tradewind tune {tmp_path / 'job.yaml'}" in capsys.readouterr().out
    spec = load_spec(tmp_path / "job.yaml")
    assert spec.name == "compress"
    offer = Offer("local", "local.c1", 1, 1, 0.04)
    chosen = Configuration({"instance": "local.c1", "level": 1, "workers": 2})
    argv, _ = render(spec.job, chosen, offer, 1.0)
    metrics = tmp_path / "metrics.jsonl"
    subprocess.run(
        argv, check=True, cwd=spec.job.workdir, env={"TRADEWIND_METRICS": str(metrics), "PATH": "/usr/bin:/bin"}
    )
    ratio = json.loads(metrics.read_text())["ratio"]
    assert all(threshold.holds(ratio) for threshold in spec.constraints.thresholds)


def test_editors_find_the_schema_beside_it(tmp_path: Path) -> None:
    assert run(["init", str(tmp_path / "new" / "mine.yaml")]) == 0
    first = (tmp_path / "new" / "mine.yaml").read_text().splitlines()[0]
    place = first.removeprefix("# yaml-language-server: $schema=")
    assert json.loads((tmp_path / "new" / place).read_text())["title"] == "Tradewind job"


def test_a_file_that_is_there_is_kept_unless_forced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "job.yaml"
    target.write_text("mine")
    assert run(["init", str(target)]) == 3
    assert capsys.readouterr().err == f"tradewind: {target} is there already (--force replaces it)\n"
    assert target.read_text() == "mine"
    assert run(["init", str(target), "--force"]) == 0
    assert load_spec(target).name == "compress"


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x")
    assert run(["init", str(tmp_path / "file" / "job.yaml")]) == 3
    assert capsys.readouterr().err.startswith("tradewind: cannot write ")


def test_the_starter_shows_every_key() -> None:
    for key in JobFile.model_fields:
        assert f"\n{key}:" in STARTER or f"\n# {key}:" in STARTER, key
