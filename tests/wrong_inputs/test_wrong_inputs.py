"""Every wrong input is answered with one clear line and its exit code; nothing is lost and nothing is left behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest
from tests.wrong_inputs.cases import CASES
from tests.wrong_inputs.preparations import PREPARATIONS, Setup, World
from tests.wrong_inputs.table import JOB, Case

from tradewind.cli.app import run

MAIN = "import sys; from tradewind.cli.app import run; sys.exit(run(sys.argv[1:]))"


@pytest.fixture(scope="session")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a study of two trials."""
    folder = tmp_path_factory.mktemp("searched")
    (folder / "job.yaml").write_text(JOB)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRADEWIND_HOME", str(folder / "home"))
        patch.chdir(folder)
        assert run(["tune", "job.yaml", "--quiet"]) == 0
    return folder / "home"


def _marks(case: Case) -> list[pytest.MarkDecorator]:
    """Slow are also the cases that start a process, and those that carry out a workflow."""
    return [pytest.mark.slow] if case.slow or case.process or case.words[:2] == ("workflow", "run") else []


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id, marks=_marks(case)) for case in CASES])
def test_one_clear_line(
    case: Case,
    tmp_path: Path,
    searched: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    if case.process:  # asked for here: all cases would be slow if each of them had the fixture
        request.getfixturevalue("quick")
    others = set(psutil.pids())
    folder = tmp_path / "job"
    folder.mkdir()
    world = World(folder, tmp_path / "home", searched)
    for name, content in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    monkeypatch.chdir(folder)
    with PREPARATIONS[case.prepare](world) if case.prepare else nullcontext(Setup()) as setup:
        for name, value in {**case.env, **setup.env}.items():
            monkeypatch.setenv(name, value)
        before = _listing(folder)
        capfd.readouterr()
        words = [*case.words, *setup.more]
        code = _process(_program(setup, request), words, setup) if case.process else run(words)
        out, err = capfd.readouterr()
        lines = [line for line in err.splitlines() if line and line != case.notice]
        assert code == case.code, f"exit code {code}: {err or out}"
        assert len(lines) == 1, f"{len(lines)} lines instead of one:\n{err}"
        said = lines[0].replace(str(tmp_path), "/…")
        assert re.fullmatch(_pattern(case.says), said), said
        assert "Traceback" not in out
        assert not list(tmp_path.rglob("crashes"))
        after = _listing(folder)
        assert {name: after.get(name) for name in before} == before, "a file of the user was changed"
        assert not [name for name in after if name.endswith((".part", ".tmp"))]
    assert not _left_behind(tmp_path, others)


@pytest.mark.slow
def test_closed_pipe_is_no_error(searched: Path) -> None:
    """``tradewind offers | head -1`` ends without a word."""
    command = f"{sys.executable} -c '{MAIN}' offers --provider aws; echo $? >&2"
    shell = subprocess.run(
        ["bash", "-c", f"({command}) | head -1"], capture_output=True, text=True, timeout=60, check=True
    )
    assert len(shell.stdout.splitlines()) == 1
    assert shell.stderr == "0\n"


@pytest.mark.slow
def test_cases_differ() -> None:
    assert len({case.id for case in CASES}) == len(CASES)
    assert len({case.did for case in CASES}) == len(CASES)
    assert {case.prepare for case in CASES} - {""} == set(PREPARATIONS)


def _pattern(says: str) -> str:
    return "tradewind: " + re.escape(says).replace("…", ".+")


def _program(setup: Setup, request: pytest.FixtureRequest) -> list[str | Path]:
    return [sys.executable, "-c", MAIN] if setup.anew else [request.getfixturevalue("quick")]


def _process(program: list[str | Path], words: list[str], setup: Setup) -> int:
    before = {"TRADEWIND_TESTS_BEFORE": setup.before}
    with subprocess.Popen([*program, *words], text=True, env={**os.environ, **before}) as process:
        if setup.during is not None:
            setup.during(process)
        return process.wait(timeout=60)


def _listing(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _left_behind(folder: Path, others: set[int]) -> list[str]:
    """Processes that still work below the folder, after a moment in which they may end; never one of the others."""
    deadline = time.monotonic() + 3.0
    while True:
        # To look into every process of the machine takes longer than most of the cases.
        new = (pid for pid in psutil.pids() if pid not in others)
        found = [process for pid in new if (process := _process_of(pid)) is not None and _below(process, folder)]
        if not found or time.monotonic() > deadline:
            return [" ".join(process.cmdline()) for process in found]
        time.sleep(0.05)


def _process_of(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _below(process: psutil.Process, folder: Path) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return process.cwd().startswith(str(folder)) or str(folder) in process.environ().get("TRADEWIND_HOME", "")
    except psutil.Error:
        return False
