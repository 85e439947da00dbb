"""Output that cannot show, or not take, all that there is to say."""

from __future__ import annotations

import errno
import io
import json
import os
import sys

import pytest
import typer

from tradewind.cli import app as app_module
from tradewind.cli import output
from tradewind.cli.app import run
from tradewind.cli.common import emit_json
from tradewind.utils.paths import data_folder


@pytest.fixture
def saying(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A command line whose only command prints what the test puts into the list."""
    wanted: list[object] = []
    small = typer.Typer(pretty_exceptions_enable=False)

    @small.command()
    def say() -> None:
        one = wanted[0]
        emit_json(one) if isinstance(one, dict) else print(one)
        sys.stdout.flush()

    monkeypatch.setattr(app_module, "app", small)
    return wanted


class _Full(io.RawIOBase):
    def __init__(self, number: int) -> None:
        self.number = number

    def writable(self) -> bool:
        return True

    def write(self, _data: object) -> int:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_terminal_without_the_characters_gets_question_marks_and_json_escapes(
    encoding: str, saying: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for wanted, shown in (("\u2605 best \u2265 1", b"* best ? 1\n"), ({"name": "\u2605"}, b'{"name": "\\u2605"}\n')):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
        saying[:] = [wanted]
        assert run([]) == 0
        assert raw.getvalue() == shown


def test_json_in_utf_8_keeps_its_characters(saying: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    saying[:] = [{"name": "\u2605"}]
    assert run([]) == 0
    out = capsys.readouterr().out
    assert "\u2605" in out and json.loads(out) == {"name": "\u2605"}


@pytest.mark.parametrize(("number", "words"), [(errno.ENOSPC, "no space left on device"), (errno.EIO, "input/output")])
@pytest.mark.parametrize("long", [False, True])
def test_output_that_cannot_be_written_is_one_line(
    number: int,
    words: str,
    long: bool,
    saying: list[object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whether a command notices it, or only the flush at its end."""
    stream = io.TextIOWrapper(io.BufferedWriter(_Full(number)), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", stream)
    saying[:] = ["x" * (100_000 if long else 10)]
    assert run([]) == 3
    err = capsys.readouterr().err
    assert f"the output could not be written: {words}" in err and err.count("\n") == 1
    assert not (data_folder() / "crashes").exists()
    monkeypatch.undo()
    stream.buffer.raw.number = 0


def test_what_is_very_long_in_an_error_loses_its_middle() -> None:
    word = "a" * 3000 + "z"
    for text in (f"there is no study '{word}' (known: b)", f"there is no study {word} (known: b)"):
        said = output.one_line(text)
        assert said.startswith("there is no study ")
        assert said.endswith("z (known: b)" if "'" not in text else "z' (known: b)")
        assert said.count("…") == 1
        assert 200 <= max(map(len, said.split())) <= 202
    assert output.one_line(f"'{'two words ' * 300}' is none").count("…") == 1
    for before in ("key ", "key=", "[", "(", "a, "):
        assert output.one_line(f"{before}'{'two words ' * 300}' is none").count("…") == 1
    path = "/" + "/".join(["folder"] * 28)
    assert output.one_line(f"cannot read\n{path}") == f"cannot read {path}"


def test_what_stands_between_two_quoted_names_is_no_name() -> None:
    known = ", ".join(f"key{number}" for number in range(60))
    for text in (
        f"unknown key 'foo' in job: known keys: {known}; did you mean 'key1'?",
        f"the job's keys are {known}, and no others' are",
    ):
        assert output.one_line(text) == text


def test_what_a_terminal_does_not_have_is_drawn_with_what_it_has(
    saying: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bars of question marks are no bars."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    saying.append("██░░ 1 × Zürich…")
    assert run([]) == 0
    assert raw.getvalue() == b"##-- 1 x Z?rich~\n"
