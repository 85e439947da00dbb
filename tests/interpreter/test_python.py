from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tradewind import plugins
from tradewind.errors import InterpretationError, SpecError
from tradewind.testing.interpreters import make_output

FILE = """\
import os
from dataclasses import dataclass

import a_neighbour_of_the_user_file as neighbour


@dataclass
class Note:
    text: str


def good(output, metrics):
    print("hello from the user")
    return {"score": metrics["runtime"] * neighbour.FACTOR, "size": len(output.stdout.read_bytes())}


def one(output):
    return {"code": output.exit_code}


def divide(output, metrics):
    return {"x": 1 / 0}


def deep(output, metrics):
    return neighbour.fail()


def leave(output, metrics):
    raise SystemExit(3)


def words(output, metrics):
    return {"x": "3"}


def missing(output, metrics):
    return {"x": None}


def numbered(output, metrics):
    return {1: 2.0}


def infinite(output, metrics):
    return {"x": float("inf")}


def nothing(output, metrics):
    return None


def typed(output, metrics):
    from tradewind.errors import InterpretationError
    raise InterpretationError("no-match", "there is no score")


def meddling(output, metrics):
    import sys
    sys.path.append("/nowhere")
    metrics["runtime"] = 0
    return {}


constant = 3
"""
NEIGHBOUR = "FACTOR = 2\n\n\ndef fail():\n    raise KeyError('score')\n"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "user.py").write_text(FILE)
    (tmp_path / "job" / "a_neighbour_of_the_user_file.py").write_text(NEIGHBOUR)
    (tmp_path / "job" / "broken.py").write_text("def f(:\n    pass\n")
    (tmp_path / "job" / "failing.py").write_text("x = 1\nraise ValueError('at import')\n")
    return tmp_path / "job"


def call(base: Path, function: str, metrics: dict[str, float] | None = None) -> dict[str, float]:
    interpreter = plugins.create("interpreter", "python", {"function": function}, base=base)
    output = make_output(base.parent / "run", {"stdout": b"12345"})
    return dict(interpreter.interpret(output, {"runtime": 12.0} if metrics is None else metrics))


def test_a_function_in_a_file(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = list(sys.path)
    assert call(base, "user.py:good") == {"score": 24.0, "size": 5.0}
    assert call(base, f"{base}/user.py:one") == {"code": 0.0}
    assert sys.path == before
    out, err = capsys.readouterr()
    assert (out, err) == ("", "hello from the user\n")


def test_a_function_in_a_module(base: Path) -> None:
    (base / "a_module_beside_the_job.py").write_text("def f(output, metrics):\n    return {'x': 1}\n")
    assert call(base, "a_module_beside_the_job:f") == {"x": 1.0}


def test_a_changed_file_is_read_again(base: Path) -> None:
    (base / "changing.py").write_text("def f(output):\n    return {'x': 1}\n")
    assert call(base, "changing.py:f") == {"x": 1.0}
    (base / "changing.py").write_text("def f(output):\n    return {'x': 2, 'y': 3}\n")
    assert call(base, "changing.py:f") == {"x": 2.0, "y": 3.0}


def test_it_cannot_change_the_search_path_nor_the_metrics(base: Path) -> None:
    before = list(sys.path)
    metrics = {"runtime": 12.0}
    assert call(base, "user.py:meddling", metrics) == {}
    assert sys.path == before
    assert metrics == {"runtime": 12.0}


@pytest.mark.parametrize(
    ("function", "reason", "words"),
    [
        ("user.py:divide", "user-code", r"user\.py:22: ZeroDivisionError: division by zero"),
        ("user.py:deep", "user-code", r"user\.py:26: KeyError: 'score'"),
        ("user.py:leave", "user-code", r"user\.py:30: SystemExit: 3"),
        ("user.py:words", "not-a-number", "'x': '3'"),
        ("user.py:missing", "not-a-number", "'x': None"),
        ("user.py:numbered", "not-a-number", "1: 2.0"),
        ("user.py:infinite", "not-a-number", "inf"),
        ("user.py:nothing", "user-code", "returned NoneType, not a mapping"),
        ("user.py:typed", "no-match", "there is no score"),
        ("user.py:constant", "user-code", "there is no function constant"),
        ("user.py:absent", "user-code", "there is no function absent"),
        ("none.py:f", "user-code", "there is no file"),
        ("broken.py:f", "user-code", r"broken\.py:1: SyntaxError"),
        ("failing.py:f", "user-code", r"failing\.py:2: ValueError: at import"),
        ("no_such_module_anywhere:f", "user-code", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
    ],
)
def test_what_goes_wrong_is_one_line_with_its_place(base: Path, function: str, reason: str, words: str) -> None:
    before = list(sys.path)
    with pytest.raises(InterpretationError, match=words) as caught:
        call(base, function)
    assert caught.value.reason == reason
    assert "\n" not in str(caught.value)
    assert sys.path == before


def test_builtins_without_a_signature_take_the_output_only(base: Path) -> None:
    with pytest.raises(InterpretationError, match="python builtins:dict"):
        call(base, "builtins:dict")


@pytest.mark.parametrize("function", ["", "user.py", "user.py:", ":f", "user.py:not a name"])
def test_references_are_checked(base: Path, function: Any) -> None:
    with pytest.raises(SpecError, match="names no function"):
        call(base, function)
