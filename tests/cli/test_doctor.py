from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.engines.gpus import have_nvidia

from tradewind import plugins
from tradewind.cli import doctor
from tradewind.cli.app import run
from tradewind.cli.doctor import Check, run_checks
from tradewind.errors import MissingProgramError
from tradewind.plugins import BrokenPlugin
from tradewind.utils import dependencies
from tradewind.utils.paths import data_folder


def _found(what: str) -> Check:
    (check,) = [check for check in run_checks() if check.what == what]
    return check


def test_this_machine_is_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    captured = capsys.readouterr()
    for what in ("Python", "CPUs", "memory", "process limits", "data folder", "disk", "store", "clock", "matplotlib"):
        assert what in captured.out
    assert captured.err == ""
    assert not data_folder().exists(), "looking must not make the data folder"


def test_gpus_are_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    have_nvidia(monkeypatch, tmp_path)
    assert (_found("GPUs").word, _found("GPUs").found) == ("ok", "2 × NVIDIA H100 80GB HBM3 (79.6 GiB)")
    have_nvidia(monkeypatch, tmp_path, 0)
    assert (_found("GPUs").word, _found("GPUs").found) == ("optional", "none")
    assert "nvidia-smi" in _found("GPUs").hint


def test_json_has_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is True
    assert {check["state"] for check in document["checks"]} <= {"ok", "optional"}
    assert all(check["found"] for check in document["checks"])


def test_missing_things_end_with_code_9_and_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "_process_files", lambda: False)
    assert run(["doctor"]) == MissingProgramError.exit_code == 9
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and "process limits" in captured.err
    assert "mount it" in captured.out

    assert run(["doctor", "--json"]) == 9
    assert json.loads(capsys.readouterr().out)["ok"] is False


@pytest.mark.parametrize(
    ("what", "spoil"),
    [
        ("Python", lambda m: m.setattr(sys, "version_info", (3, 10, 0))),
        ("platform", lambda m: m.setattr(sys, "platform", "win32")),
        ("clock", lambda m: m.setattr(time, "time", lambda: 86_400.0)),
        ("disk", lambda m: m.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5 * 2**20))),
        ("store", lambda m: m.setenv("TRADEWIND_STORE", "nonsense")),
        ("process limits", lambda m: m.delattr(os, "sched_setaffinity")),
    ],
)
def test_what_is_wrong_is_noticed_with_a_hint(
    what: str, spoil: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _found(what).ok
    spoil(monkeypatch)
    check = _found(what)
    monkeypatch.undo()
    assert (check.word, check.needed) == ("missing", True)
    assert check.hint


def test_little_memory_is_a_warning_only(monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2**20, total=2**30))
    check = _found("memory")
    assert check.word == "optional" and check.found == "1 MiB free of 1 GiB"


def test_data_folder_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("TRADEWIND_HOME", str(file))
    assert _found("data folder").found == f"{file} is not a folder"


def test_data_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    check = _found("data folder")
    assert not check.ok and check.found.endswith("cannot be written: Read-only file system")
    assert "TRADEWIND_HOME" in check.hint


def test_data_folder_that_is_there_is_left_as_it_is() -> None:
    data_folder().mkdir(parents=True)
    assert _found("data folder").found == str(data_folder())
    assert list(data_folder().iterdir()) == []


def test_store_that_is_there_opens() -> None:
    from tradewind.cli.common import open_store

    data_folder().mkdir(parents=True)
    open_store().close()
    check = _found("store")
    assert check.ok and check.found.endswith("tradewind.db")


def test_store_that_is_no_store() -> None:
    data_folder().mkdir(parents=True)
    (data_folder() / "tradewind.db").write_text("something else, and long enough not to be taken for an empty file")
    check = _found("store")
    assert check.word == "missing" and check.found and check.hint


@pytest.mark.slow
def test_password_of_the_store_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_STORE", "postgresql+psycopg://me:hush-hush@127.0.0.1:9/nowhere")
    assert run(["doctor"]) == 9
    captured = capsys.readouterr()
    assert "hush-hush" not in captured.out + captured.err


def test_optional_packages_are_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    for package, extra in doctor.EXTRAS.items():
        check = _found(package)
        assert check.word == "optional" and f"tradewind[{extra}]" in check.hint


class _Part:
    """A part with a hook."""

    answer: Any = ()

    @classmethod
    def doctor(cls) -> Any:
        if isinstance(cls.answer, Exception):
            raise cls.answer
        return cls.answer


def test_parts_say_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Part, "answer", [("sbatch", False, "install Slurm"), ("scontrol", True, "unused")])
    missing, there = doctor._ask_part(_Part, "runner slurm")
    assert (missing.what, missing.word, missing.hint) == ("runner slurm: sbatch", "optional", "install Slurm")
    assert (there.word, there.hint) == ("ok", "")


def test_part_whose_hook_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Part, "answer", ValueError("boo"))
    (check,) = doctor._ask_part(_Part, "runner odd")
    assert check.word == "optional" and check.found == "its doctor() raised ValueError: boo"


def test_part_without_a_hook_needs_nothing() -> None:
    assert list(doctor._ask_part(object, "runner plain")) == []


@pytest.mark.parametrize(("package", "word"), [("tradewind", "missing"), ("outside", "optional")])
def test_own_parts_must_load_and_others_should(package: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "broken", lambda: [BrokenPlugin("store", "sql", "it is [broken]")])
    monkeypatch.setattr(plugins, "origin", lambda kind, name: (package, "1"))
    check = _found("store sql")
    assert (check.word, check.found) == (word, "it is [broken]")
    assert package in check.hint


def test_square_brackets_are_no_markup(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "run_checks", lambda: [Check("it", True, "has [red]brackets[/red]")])
    assert run(["doctor"]) == 0
    assert "has [red]brackets[/red]" in capsys.readouterr().out


def test_in_80_columns_names_are_in_one_piece(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "there is no such program anywhere, " * 3
    checks = [Check("provisioner opennebula", False, long, needed=False, hint=long), Check("store", True, "fine")]
    monkeypatch.setattr(doctor, "run_checks", lambda: checks)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "provisioner opennebula" in out and "\x1b" in out
    assert len(out.splitlines()) > 5


def test_each_backend_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    from tradewind.deployer.provisioner.simulated import SimulatedProvisioner
    from tradewind.deployer.runner.process import ProcessRunner

    assert (_found("runner process").ok, _found("runner process").found) == (True, "can be used")
    lacking = classmethod(lambda cls: "there is no oned program: apt-get install opennebula")
    monkeypatch.setattr(ProcessRunner, "missing", lacking)
    check = _found("runner process")
    assert (check.word, check.found, check.hint) == (
        "optional",
        "there is no oned program",
        "apt-get install opennebula",
    )

    def broken(cls: type) -> str:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(SimulatedProvisioner, "missing", classmethod(broken))
    assert "missing() raised ZeroDivisionError: oops" in _found("provisioner simulated").found
    wanted = [f"{kind} {name}" for kind in doctor.BACKENDS for name in plugins.names(kind)]
    assert set(wanted) <= {check.what for check in run_checks()}


def test_a_part_of_another_kind_is_shown_when_it_needs_or_lacks_something(monkeypatch: pytest.MonkeyPatch) -> None:
    from tradewind.searcher.random import RandomSearcher

    assert _found("searcher optuna").found == "can be used"
    assert "searcher random" not in {check.what for check in run_checks()}
    monkeypatch.setattr(RandomSearcher, "missing", classmethod(lambda cls: "there are no dice: buy some"))
    assert (_found("searcher random").found, _found("searcher random").hint) == ("there are no dice", "buy some")


def test_every_extra_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever extra is added to the package, `doctor` has to say how to get it."""

    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    for module in (plugins, dependencies):
        monkeypatch.setattr(module, "installed", lambda name: False)
    hints = " ".join(check.hint for check in run_checks())
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"]) - {"test", "dev", "site"}
    assert {extra for extra in extras if f"pip install 'tradewind[{extra}]'" not in hints} == set()
