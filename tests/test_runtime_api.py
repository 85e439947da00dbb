from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tradewind import runtime_api


@pytest.fixture
def metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "metrics.jsonl"
    monkeypatch.setenv("TRADEWIND_METRICS", str(path))
    return path


def test_report_appends_one_line_of_json_for_each_call(metrics: Path) -> None:
    runtime_api.report(loss=2.5)
    runtime_api.report(3, loss=1, accuracy=np.float32(0.5))
    runtime_api.report(step=4, done=True)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert lines == [{"loss": 2.5}, {"step": 3, "loss": 1, "accuracy": 0.5}, {"step": 4, "done": True}]


def test_report_without_tradewind_does_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("TRADEWIND_METRICS", raising=False)
    monkeypatch.chdir(tmp_path)
    runtime_api.report(loss=2.5)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == [tmp_path / "home"] or not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", ["1.5", b"1", None, [1, 2], np.array([1.0, 2.0]), object()])
def test_report_refuses_what_is_no_number(metrics: Path, value: object) -> None:
    with pytest.raises(TypeError, match=r"report\(loss=.*is not a number"):
        runtime_api.report(loss=value)  # type: ignore[arg-type]
    assert not metrics.exists()


def test_report_says_when_the_file_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRADEWIND_METRICS", str(tmp_path / "missing" / "metrics.jsonl"))
    with pytest.raises(FileNotFoundError):
        runtime_api.report(loss=1)


def _report_often(worker: int) -> None:
    for step in range(200):
        runtime_api.report(step=step, worker=worker, filler=1234567890.123)


@pytest.mark.slow
def test_processes_may_report_at_once(metrics: Path) -> None:
    processes = [multiprocessing.get_context("fork").Process(target=_report_often, args=(i,)) for i in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert sorted((line["worker"], line["step"]) for line in lines) == [(i, s) for i in range(3) for s in range(200)]


def test_parameters_have_the_types_that_they_look_like(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "WORKERS": "4",
        "RATE": "1e-3",
        "SHARE": "-.5",
        "CODEC": "lzma",
        "FAST": "True",
        "SLOW": "false",
        "EMPTY": "",
        "NAN": "nan",
        "ODD": "1_000",
        "E": "e",
        "DASH": "1-2",
    }
    for name, text in given.items():
        monkeypatch.setenv(f"TRADEWIND_PARAM_{name}", text)
    found = runtime_api.parameters()
    assert found == {
        "workers": 4,
        "rate": 0.001,
        "share": -0.5,
        "codec": "lzma",
        "fast": True,
        "slow": False,
        "empty": "",
        "nan": "nan",
        "odd": "1_000",
        "e": "e",
        "dash": "1-2",
    }
    assert isinstance(found["workers"], int)


def test_parameters_are_empty_without_tradewind() -> None:
    assert runtime_api.parameters() == {}


def test_fraction_is_all_unless_given_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runtime_api.fraction() == 1.0
    monkeypatch.setenv("TRADEWIND_FRACTION", "0.25")
    assert runtime_api.fraction() == 0.25


def test_output_path_is_below_the_outputs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRADEWIND_OUTPUTS", str(tmp_path / "outputs"))
    path = runtime_api.output_path("a/b.txt")
    assert path == tmp_path / "outputs" / "a" / "b.txt"
    path.write_text("x")
    monkeypatch.delenv("TRADEWIND_OUTPUTS")
    monkeypatch.chdir(tmp_path)
    assert runtime_api.output_path("c.txt").resolve() == tmp_path / "c.txt"


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../../x"])
def test_output_path_refuses_to_lead_out(name: str) -> None:
    with pytest.raises(ValueError, match="folder of outputs"):
        runtime_api.output_path(name)


def test_the_kit_imports_next_to_nothing() -> None:
    script = (
        "import os, sys, tradewind; before = set(sys.modules); import tradewind.runtime_api; "
        "print(*sorted(m for m in set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", script], env=_path(), capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"tradewind.runtime_api"}


def _path() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(runtime_api.__file__).parents[1])}
