"""A search on machines that a script of the user's own makes, from the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.deployer.helpers import example_script

from tradewind.cli.app import run

pytestmark = pytest.mark.slow

JOB = """
name: own
job: {command: "sh -c 'COMMAND'"}
space:
  instance: {provider: csv}
  batch: [1, 2]
catalogues: {csv: {path: prices.csv}}
searcher: exhaustive
budget: {dollars: 20, trials: 3}
deploy: {runner: ./deploy.sh, retries: 0}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    example_script(tmp_path)
    (tmp_path / "prices.csv").write_text(
        "API Name,Provider,CPU,Memory,Category,Price\nsmall,lab,1,2,general,0.5\nlarge,lab,4,8,general,2\n"
    )
    monkeypatch.setenv("MACHINES", str(tmp_path / "machines"))
    return tmp_path


def job(folder: Path, command: str) -> str:
    file = folder / "job.yaml"
    file.write_text(JOB.replace("COMMAND", command))
    return str(file)


def there(folder: Path) -> list[str]:
    return [path.name for path in (folder / "machines").glob("*")]


def test_a_search_gives_every_machine_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", job(folder, "true {{ batch }}")]) == 0
    out = capsys.readouterr().out
    assert "Use small of lab with batch=" in out
    assert (folder / "machines").is_dir() and there(folder) == []


def test_a_job_that_fails_leaves_no_machine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", job(folder, "exit 3")]) == 6
    assert "the program exited with code 3" in capsys.readouterr().out
    assert there(folder) == []


def test_a_setting_that_is_wrong_ends_the_search_at_the_first_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = folder / "deploy.sh"
    text = script.read_text().replace("    echo '{}' ;;", "    echo no such queue >&2; exit 78 ;;")
    script.write_text(text)
    assert run(["tune", job(folder, "true")]) == 3
    captured = capsys.readouterr()
    assert captured.out.count("trial ") - captured.out.count("ended trial") == 1
    assert "no such queue; the same command goes on once that is mended" in captured.err
    assert there(folder) == []


def test_after_a_kill_the_machines_are_given_back(folder: Path) -> None:
    file = job(folder, "sleep 300")
    words = [sys.executable, "-m", "tradewind"]
    process = subprocess.Popen([*words, "tune", file, "--quiet"], start_new_session=True)
    until = time.monotonic() + 60
    while not there(folder) and time.monotonic() < until:
        time.sleep(0.05)
    [run_id] = there(folder)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert there(folder) == [run_id], "the run goes on, and somebody goes on with it or ends it"
    assert run(["down", "own", "--yes"]) == 0
    assert there(folder) == []
