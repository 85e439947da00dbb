"""Programs and images for another processor architecture: how they are recognised, and what is said of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.deployer.helpers import FOREIGN, OFFER, deployer_over, drive, foreign_program, request_for, row

from tradewind.deployer.runner.architectures import (
    architecture_here,
    architecture_of,
    failed_for_architecture,
    may_be_emulated,
    program_architecture,
    runs_on,
    wrong_architecture,
)
from tradewind.problem import Fault, RunState

_CLOUD = replace(OFFER, provider="aws", instance_type="c7g.large", arch="arm64")


def test_architectures_have_one_name() -> None:
    assert [architecture_of(name) for name in ("amd64", "AArch64", "386", "armv7l", "s390x", "")] == [
        "x86_64", "arm64", "x86", "arm", "s390x", "",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "machine", "runs"),
    [
        ("x86_64", "x86_64", True),
        ("x86", "x86_64", True),
        ("arm", "arm64", True),
        ("x86_64", "x86", False),
        ("arm64", "x86_64", False),
        ("", "x86_64", True),
        ("arm64", "", True),
    ],
)
def test_only_what_certainly_does_not_run_is_foreign(program: str, machine: str, runs: bool) -> None:
    assert runs_on(program, machine) is runs


def test_a_program_says_what_it_is_compiled_for(tmp_path: Path) -> None:
    for name in ("arm64", "x86_64", "x86", "riscv64", "ppc64le"):
        assert program_architecture(foreign_program(tmp_path / "prog", name)) == name
    (tmp_path / "script").write_text("#!/bin/sh\necho a script that is longer than the head of a program")
    assert program_architecture(tmp_path / "script") == ""
    assert program_architecture(tmp_path / "none") is None
    assert program_architecture(Path("/bin/sh")) == architecture_here()


def test_the_kernel_is_asked_whether_it_emulates(tmp_path: Path) -> None:
    emulated = True
    try:
        subprocess.run([foreign_program(tmp_path / "prog")], check=False, capture_output=True)
    except OSError:
        emulated = False
    assert may_be_emulated(FOREIGN) is emulated
    assert may_be_emulated("no such processor")


def test_the_reason_names_both_as_far_as_they_are_known() -> None:
    assert wrong_architecture("./a", "arm64", "x86_64", "c7g.large") == (
        "./a is for another processor architecture (x86_64) than the machine's (arm64, c7g.large)"
    )
    assert wrong_architecture("./a", "", "") == "./a is for another processor architecture than the machine's"
    # An offer said what its machine is not.
    assert "(x86_64) than the machine's (lab)" in wrong_architecture("./a", "x86_64", "x86_64", "lab")


@pytest.mark.parametrize(
    ("code", "stderr", "what"),
    [
        (126, "bash: line 1: ./prog: cannot execute binary file: Exec format error", "./prog"),
        (126, "run.sh: 3: ./prog: Exec format error\nand then it cleaned up", "./prog"),
        (127, "env: can't execute './prog': Exec format error", "./prog"),
        (126, "bash: /work/prog: Success", "./prog"),
        (127, "./prog: 1: \x7fELF\x02\x01: not found", "./prog"),
        (2, './prog: 1: \x7fELF\x02\x01: not found\n./prog: 2: Syntax error: ")" unexpected', "./prog"),
        (8, "slurmstepd: error: execve(): /usr/bin/tool: Exec format error\nsrun: error: n1: task 0", "/usr/bin/tool"),
        (1, "OSError: [Errno 8] Exec format error: './prog'", "./prog"),
    ],
)
def test_a_run_that_failed_for_its_architecture_is_recognised(
    tmp_path: Path, code: int, stderr: str, what: str
) -> None:
    request = request_for(tmp_path, ("./prog",), offer=_CLOUD)
    foreign_program(request.workdir / "prog", "x86_64")
    request.folder.mkdir(parents=True)
    (request.folder / "stderr").write_text(f"it began\n{stderr}\n")
    reason = failed_for_architecture(code, request)
    assert reason.startswith(f"{what} is for another processor architecture")
    assert "arm64, c7g.large" in reason


@pytest.mark.parametrize("code", [1, 126, 127, 255])
@pytest.mark.parametrize("words", ["exec /bin/sh: exec format error", "exec user process caused: exec format error"])
def test_what_an_engine_says_is_about_the_image(tmp_path: Path, code: int, words: str) -> None:
    request = request_for(tmp_path, ("sh", "-c", "true"), offer=_CLOUD, image="lab/solver:1")
    request.folder.mkdir(parents=True)
    (request.folder / "stderr").write_text(words)
    assert failed_for_architecture(code, request) == (
        "the image lab/solver:1 is for another processor architecture than the machine's (arm64, c7g.large): "
        "Exec format error"
    )


@pytest.mark.parametrize(
    ("code", "stderr"),
    [
        (0, "warning: ./prog: Exec format error, trying another"),
        (-9, "./prog: Exec format error"),
        (None, "./prog: Exec format error"),
        (1, "plugin a: Exec format error, skipped\nValueError: no data"),
        (3, "\x7fELF is no picture"),
        (126, "sh: 1: ./prog: Permission denied"),
        (127, "sh: 1: nothing: not found"),
        (126, "env: ./script: Exec format error"),
        (126, ""),
    ],
)
def test_other_failures_are_what_they_are(tmp_path: Path, code: int | None, stderr: str) -> None:
    request = request_for(tmp_path, ("sh", "-c", "./prog"), offer=_CLOUD)
    (request.workdir / "script").write_text("echo a script without a first line that says what reads it\n")
    request.folder.mkdir(parents=True)
    (request.folder / "stderr").write_text(stderr)
    assert failed_for_architecture(code, request) == ""
    (request.folder / "stderr").unlink()
    assert failed_for_architecture(code, request) == ""


_STARTERS = ["dash -c ./prog", "bash -c ./prog", "env ./prog", "setsid -w ./prog", "./prog"]


@pytest.mark.parametrize("command", [each for each in _STARTERS if shutil.which(each.split()[0]) or "/" in each])
@pytest.mark.skipif(may_be_emulated(FOREIGN), reason="this machine emulates it")
def test_a_run_of_a_program_for_another_machine_is_the_architectures_fault(tmp_path: Path, command: str) -> None:
    words = command.split(" ", 2)
    request = request_for(tmp_path, words, offer=replace(OFFER, arch=architecture_here()))
    foreign_program(request.workdir / "prog")
    deployer = deployer_over(tmp_path)
    deployer.launch(row(), request)
    last = drive(deployer)[-1]
    deployer.close()
    assert (last.state, last.fault) == (RunState.FAILED, Fault.ARCHITECTURE)
    assert f"./prog is for another processor architecture ({FOREIGN})" in last.reason or words[0] != "./prog"
    assert architecture_here() in last.reason


def test_the_first_program_of_the_search_path_counts(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    foreign_program(tmp_path / "bin/tool")
    search_path = f"{tmp_path}/bin:{os.environ['PATH']}"
    request = request_for(
        tmp_path, ("tool",), env={"PATH": search_path}, offer=replace(OFFER, arch=architecture_here())
    )
    deployer = deployer_over(tmp_path)
    deployer.launch(row(), request)
    last = drive(deployer)[-1]
    deployer.close()
    assert (last.fault, last.exit_code) == (Fault.ARCHITECTURE, 126)
    assert "tool is for another processor architecture" in last.reason
