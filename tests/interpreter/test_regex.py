from __future__ import annotations

import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import share

from tradewind import plugins
from tradewind.deployer.runner.log_limit import gap_line
from tradewind.errors import InterpretationError, SpecError
from tradewind.interpreter import log_reader
from tradewind.testing.interpreters import make_output


def read(
    folder: Path, content: bytes, *, truncated: bool = False, name: str = "stdout", **given: Any
) -> dict[str, float]:
    interpreter = plugins.create("interpreter", "regex", {"patterns": r"v=(?P<v>\S+)", **given}, base=folder)
    return dict(interpreter.interpret(make_output(folder / "run", {name: content}, truncated=truncated), {}))


def reason(folder: Path, content: bytes, **given: Any) -> str:
    with pytest.raises(InterpretationError) as caught:
        read(folder, content, **given)
    return caught.value.reason


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({}, 3.0),
        ({"match": "first"}, 1.0),
        ({"match": "all"}, 2.0),
        ({"match": "all", "aggregate": "min"}, 1.0),
        ({"match": "all", "aggregate": "max"}, 3.0),
        ({"match": "all", "aggregate": "sum"}, 6.0),
    ],
)
def test_which_match_counts(tmp_path: Path, given: dict[str, Any], value: float) -> None:
    assert read(tmp_path, b"v=1 v=2\nnothing\nv=3\nend", **given) == {"v": value}


@pytest.mark.parametrize(
    ("text", "given", "value"),
    [
        ("1e-3", {}, 0.001),
        ("+.5", {}, 0.5),
        ("97.5%", {}, 97.5),
        ("97.5%", {"percent": "share"}, 0.975),
        ("1,234.5", {"thousands": True}, 1234.5),
        ("1'234'567", {"thousands": True}, 1234567.0),
        ("2m30s", {"durations": True}, 150.0),
        ("1:02:03.5", {"durations": True}, 3723.5),
        ("2:03", {"durations": True}, 123.0),
        ("7", {"durations": True}, 7.0),
    ],
)
def test_numbers_as_programs_print_them(tmp_path: Path, text: str, given: dict[str, Any], value: float) -> None:
    assert read(tmp_path, f"v={text}\n".encode(), **given) == {"v": pytest.approx(value)}


@pytest.mark.parametrize("text", ["nan", "inf", "1e999", "1,234", "12,34", "2m30s", "1_000", "٣", "0x10", "%", "--1"])
def test_what_is_no_finite_number_is_said_so(tmp_path: Path, text: str) -> None:
    assert reason(tmp_path, f"v={text}\n".encode()) == "not-a-number"


def test_thousands_are_suggested_where_they_would_help(tmp_path: Path) -> None:
    with pytest.raises(
        InterpretationError, match=r"regex v in stdout: '1,234' is not a finite number .*thousands: true"
    ):
        read(tmp_path, b"v=1,234\n")


def test_several_patterns_and_groups_each_take_their_own_last_match(tmp_path: Path) -> None:
    log = b"a=1 b=2\nc=3\na=4\nc=x\n"
    found = read(tmp_path, log, patterns=[r"a=(?P<a>\d+)(?: b=(?P<b>\d+))?", r"c=(?P<c>\d+)"])
    assert found == {"a": 4.0, "b": 2.0, "c": 3.0}
    found = read(tmp_path, log, patterns=[r"a=(?P<a>\d+)(?: b=(?P<b>\d+))?", r"c=(?P<c>\d+)"], match="first")
    assert found == {"a": 1.0, "b": 2.0, "c": 3.0}


def test_a_match_lies_within_one_line(tmp_path: Path) -> None:
    assert read(tmp_path, b"v=\n7\nv=5\n\n", patterns=r"v=\s*(?P<v>\d+)") == {"v": 5.0}
    assert reason(tmp_path, b"v=\n7\n", patterns=r"v=\s*(?P<v>\d+)") == "no-match"
    assert read(tmp_path, b"v=8\nv=9\n", patterns=r"^v=(?P<v>[^;]+)$", match="first") == {"v": 8.0}
    assert read(tmp_path, b"10%\r20%\r30%\r\n", patterns=r"^(?P<v>\d+)%$") == {"v": 30.0}


def test_reasons(tmp_path: Path) -> None:
    assert reason(tmp_path / "a", b"") == "empty"
    assert reason(tmp_path / "b", b"", truncated=True) == "truncated"
    assert reason(tmp_path / "c", b"nothing\n") == "no-match"
    assert reason(tmp_path / "d", b"nothing\n", truncated=True) == "truncated"
    assert reason(tmp_path / "e", b"v=1\n", file="stderr") == "missing-file"
    assert reason(tmp_path / "f", b"v=1\n\xff\n", errors="strict") == "not-utf8"
    assert reason(tmp_path / "g", b"x" * (log_reader.LINE_LIMIT + 1) + b" v=1\n") == "too-large"


def test_bytes_that_are_not_utf8_do_no_harm_unless_asked(tmp_path: Path) -> None:
    assert read(tmp_path, b"caf\xe9\nv=1\xb0\nv=2\n") == {"v": 2.0}


def test_optional_metrics_may_be_missing(tmp_path: Path) -> None:
    assert read(tmp_path / "a", b"", optional=True) == {}
    assert read(tmp_path / "b", b"nothing\n", optional=True) == {}
    assert read(tmp_path / "c", b"v=1\n", optional=True, file="outputs/none.txt") == {}
    assert reason(tmp_path / "d", b"v=x\n", optional=True) == "not-a-number"


def test_a_file_below_outputs(tmp_path: Path) -> None:
    for name in ("outputs/deep/score.txt", "deep/score.txt"):
        assert read(tmp_path, b"v=1\n", name="outputs/deep/score.txt", file=name) == {"v": 1.0}


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("v=1\n")
    (tmp_path / "run" / "outputs").mkdir(parents=True)
    (tmp_path / "run" / "outputs" / "x").symlink_to(secret)
    with pytest.raises(InterpretationError, match="leads out"):
        read(tmp_path, b"", file="x")


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    (tmp_path / "log").touch()
    reader = log_reader.LogReader(tmp_path / "log", "stdout")
    with pytest.raises(InterpretationError, match="cannot be read: Permission denied"):
        list(reader.blocks())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"patterns": "v=("}, "cannot read the pattern"),
        ({"patterns": "v=(.*)"}, "names no metric"),
        ({"patterns": []}, "patterns"),
        ({"patterns": {"loss": "loss=(.*)"}}, r"write a list, \['loss=\(\?P<loss>\[0-9\.\]\+\)'\], no mapping"),
        ({"patterns": {"my loss": "(.*)"}}, r"\['name="),
        ({"patterns": ["(?P<a>1)", "(?P<a>2)"]}, "two patterns name the metric 'a'"),
        ({"file": "/etc/passwd"}, "no file of a run"),
        ({"file": "outputs/../../x"}, "no file of a run"),
        ({"match": "second"}, "match"),
        ({"machts": "all"}, "did you mean 'match'"),
    ],
)
def test_wrong_settings_are_one_clear_line(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        read(tmp_path, b"v=1\n", **given)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@settings(max_examples=share(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.binary(max_size=12) | st.just(b"0123456789abcdef"), max_size=12),
    end=st.sampled_from([b"", b"\n", b"\r\n"]),
)
def test_blocks_are_the_lines_of_the_file_whatever_the_block_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[bytes], end: bytes
) -> None:
    path = tmp_path / "log"
    content = b"\n".join(lines) + end
    path.write_bytes(content)
    monkeypatch.setattr(log_reader, "LINE_LIMIT", 13)
    plain = content.replace(b"\r", b"\n").split(b"\n")
    wanted = [line for line in plain if line and len(line) <= 13]
    for block in (1, 2, 3, 7, 13):
        monkeypatch.setattr(log_reader, "BLOCK", block)
        forwards = log_reader.LogReader(path, "log")
        read_lines = [line for part in forwards.blocks() for line in part.split(b"\n") if line]
        assert read_lines == wanted
        backwards = log_reader.LogReader(path, "log")
        parts = list(backwards.blocks(backwards=True))
        assert [line for part in reversed(parts) for line in part.split(b"\n") if line] == wanted
        assert forwards.skipped == backwards.skipped == sum(len(line) > 13 for line in plain)


def _fill(path: Path, size: int) -> None:
    line = b"2026-11-21T10:00:00 INFO worker-7 step 123456 done, nothing that anybody looks for\n"
    block = line * (4_000_000 // len(line))
    with path.open("wb") as file:
        file.write(b"v=1\n")
        for _ in range(size // len(block)):
            file.write(block)
        file.write(b"v=2\n")


@pytest.mark.parametrize(("match", "value"), [("first", 1.0), ("last", 2.0)])
def test_a_huge_log_is_not_read_further_than_needed(tmp_path: Path, match: str, value: float) -> None:
    output = make_output(tmp_path / "run", {})
    with output.stdout.open("wb") as file:  # a gigabyte on paper: a hole in the middle of the file
        file.write(b"v=1\n")
        file.seek(1 << 30)
        file.write(b"\nv=2\n")
    interpreter = plugins.create("interpreter", "regex", {"patterns": r"v=(?P<v>\d)", "match": match}, base=tmp_path)
    started = time.process_time()
    assert interpreter.interpret(output, {}) == {"v": value}
    assert time.process_time() - started < 0.5


@pytest.mark.thorough
@pytest.mark.slow
def test_a_gigabyte_is_read_in_little_memory(tmp_path: Path) -> None:
    output = make_output(tmp_path / "run", {})
    _fill(output.stdout, 1 << 30)
    given = {"patterns": r"v=(?P<v>\d)", "match": "all", "aggregate": "sum"}
    interpreter = plugins.create("interpreter", "regex", given, base=tmp_path)
    tracemalloc.start()
    try:
        assert interpreter.interpret(output, {}) == {"v": 3.0}
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
        output.stdout.unlink()


def test_the_line_about_a_gap_is_no_line_of_the_program(tmp_path: Path) -> None:
    content = b"loss 1\n" + gap_line(4711) + b"done\n"
    for match in ("first", "last", "all"):
        settings = {"patterns": r"^\D*(?P<v>\d+)", "match": match}
        assert read(tmp_path / match, content, truncated=True, **settings) == {"v": 1.0}
    assert read(tmp_path / "whole", content, patterns=r"\[(?P<v>\d+)") == {"v": 4711.0}, "it has printed that itself"
