"""What a shell offers after a Tab."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tradewind.cli.app import run
from tradewind.cli.common import open_store
from tradewind.store.base import StudyRow
from tradewind.store.studies.study_names import study_names_starting_with
from tradewind.utils.paths import data_folder

Offered = Callable[..., list[str]]


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Offered:
    """What bash would offer for the words of a command line."""

    def ask(*words: str) -> list[str]:
        monkeypatch.setenv("_TRADEWIND_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(["tradewind", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        assert run([]) == 0
        return capsys.readouterr().out.split()

    return ask


def build(*names: str, url: str | None = None) -> None:
    with contextlib.closing(open_store(url)) as store:
        for name in names:
            store.create_study(StudyRow(0, name, "key", {}, 1000.0))


@pytest.mark.slow
def test_commands_and_names_are_offered(offered: Offered, tmp_path: Path) -> None:
    assert offered("sta") == ["status"]
    assert offered("cluster", "st") == ["start"]
    assert offered("status", "") == [], "there is no store yet"
    assert not data_folder().exists(), "to ask makes nothing"
    build("zip", "zip", "zoo%", "other")
    assert offered("status", "z") == ["zoo%", "zip"]
    for command in ("logs", "report", "export", "down"):
        assert offered(command, "ot") == ["other"]
    build("elsewhere", url=f"sqlite:///{tmp_path}/other.db")
    assert offered("status", "--store", f"sqlite:///{tmp_path}/other.db", "e") == ["elsewhere"]
    assert offered("tune", "job.yaml", "--searcher", "cher") == ["cherrypick"]
    assert offered("workflow", "plan", "--planner", "hef") == ["heft"]
    assert offered("plugins", "--kind", "run") == ["runner"]
    assert offered("plugins", "--kind", "runner", "s") == ["script", "slurm", "ssh"]
    assert offered("offers", "refresh", "aw") == ["aws"]


def test_a_store_that_cannot_be_read_offers_nothing(tmp_path: Path) -> None:
    (tmp_path / "none.db").write_text("this is no database, and it is long enough for one to be tried to be read")
    assert study_names_starting_with(f"sqlite:///{tmp_path}/none.db", "") == []
    assert study_names_starting_with("postgresql+psycopg://nowhere.invalid/x", "") == []


def test_names_come_without_what_makes_a_shell_wait() -> None:
    script = """
import sys
from tradewind.cli.completion import studies
from tradewind.store.studies.study_names import study_names_starting_with
study_names_starting_with("sqlite:////nowhere/x.db", "")
print([name for name in ("numpy", "sqlalchemy", "rich.console") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("shell", "mark"), [("bash", "complete -o default"), ("zsh", "#compdef"), ("fish", "complete --command")]
)
def test_the_script_of_the_shell_that_it_is_called_from(
    shell: str, mark: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Which one that is, Typer finds among the processes above; those of the tests may have none.
    monkeypatch.setattr("typer.completion._get_shell_name", lambda: shell)
    assert run(["--show-completion"]) == 0
    said = capsys.readouterr().out
    assert "_TRADEWIND_COMPLETE" in said
    assert mark in said
