from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
import typer
from tests.cli.study.test_status import build
from tests.reporting.conftest import make_trial, some_trials

from tradewind.cli.study.report import report
from tradewind.errors import InputError, StudyNotFoundError

app = typer.Typer()
app.command()(report)


def run(*words: str) -> None:
    app(list(words), standalone_mode=False)


def test_the_terminal_report_of_the_newest_study(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    build([], name="old")
    build(some_trials(40))
    run()
    out = capsys.readouterr().out
    assert out.startswith("study zip (id 2)")
    assert "Why this configuration" in out
    assert "• Use codec=zlib" in out
    assert "⠀" in out


@pytest.mark.slow
def test_files_are_written_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(some_trials(20))
    run("zip", "--html", str(tmp_path / "r.html"), "--png", str(tmp_path / "png"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"wrote {tmp_path / 'r.html'}"
    assert len(lines) == 4
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_json_has_the_reasons_and_the_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(some_trials(40))
    run("zip", "--json", "--html", str(tmp_path / "r.html"))
    document = json.loads(capsys.readouterr().out)
    assert document["files"] == [str(tmp_path / "r.html")]
    assert document["why"][0].startswith("Use codec=zlib")
    assert document["effects"][0]["parameter"] == "codec"
    assert document["effects"][0]["words"].startswith("zlib instead of ")
    values = [point["objective"] for point in document["best_so_far"]]
    assert values == sorted(values, reverse=True)
    assert document["best"]["objective"] == values[-1]


def test_json_of_a_study_without_trials(capsys: pytest.CaptureFixture[str]) -> None:
    build([])
    run("zip", "--json")
    document = json.loads(capsys.readouterr().out)
    assert document["best"] is None
    assert document["effects"] == []
    assert document["best_so_far"] == []


@pytest.mark.slow
def test_the_browser_is_opened_only_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(typer, "launch", opened.append)
    build([make_trial(0, {"a": 1}, 0.1)])
    run("zip", "--html", str(tmp_path / "r.html"))
    assert opened == []
    run("zip", "--html", str(tmp_path / "r.html"), "--open")
    assert opened == [(tmp_path / "r.html").as_uri()]


def test_wrong_wishes_are_clear(tmp_path: Path) -> None:
    build([])
    with pytest.raises(InputError, match="--open needs a web page"):
        run("zip", "--open")
    with pytest.raises(InputError, match="cannot write"):
        run("zip", "--html", str(tmp_path / "missing" / "r.html"))
    with pytest.raises(StudyNotFoundError):
        run("nothing")


def test_a_report_that_cannot_be_written_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(some_trials())
    before = tmp_path / "r.html"
    before.write_text("the one before")
    written = Path.write_text

    def full(path: Path, text: str, **options: str) -> int:
        written(path, text[:10], **options)
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(InputError, match="No space left on device"):
        run("zip", "--html", str(before))
    assert before.read_text() == "the one before"
    assert list(tmp_path.glob(".r.html*")) == []
