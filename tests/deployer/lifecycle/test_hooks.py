"""Hooks: what they may be, what they see, and what their failures mean."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import request_for, row

from tradewind.deployer.lifecycle.hooks import MOMENTS, Hooks
from tradewind.errors import DeployError, SpecError
from tradewind.problem import Machine, RunState


def test_moments_come_in_the_order_of_a_run() -> None:
    assert MOMENTS[:3] == ("before_booting", "after_booting", "before_bootstrapping")
    assert MOMENTS[-1] == "on_error"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"before_lunch": ["true"]}, "no moment 'before_lunch'"),
        ({"before_booting": {}}, "either a list of words"),
        ({"before_booting": {"command": ["true"], "python": "a:b"}}, "either a list of words"),
        ({"before_booting": "not a function"}, "pattern"),
        ({"before_booting": {"command": ["true"], "timeout": 0}}, "greater than 0"),
        ({"before_booting": 3}, "valid dictionary"),
    ],
)
def test_wrong_hooks_are_one_clear_error(given: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        Hooks.from_spec(given)


def test_no_hooks_are_false() -> None:
    assert not Hooks()
    assert not Hooks.from_spec({"on_error": []})
    hooks = Hooks.from_spec({"on_error": ["true"]})
    assert hooks
    assert hooks.has("on_error")
    assert not hooks.has("before_booting")


def test_a_command_sees_the_run(tmp_path: Path) -> None:
    script = "echo $TRADEWIND_STAGE $TRADEWIND_RUN_ID $TRADEWIND_MACHINES $TRADEWIND_PARAM_X; ls -d $TRADEWIND_FOLDER"
    request = request_for(tmp_path, ("true",))
    run = replace(row(), machines=(Machine("i-1", "10.0.0.1"), Machine("i-2")))
    Hooks.from_spec({"after_booting": [["sh", "-c", script], ["echo", "second"]]}).run("after_booting", run, request)
    expected = f"booting run-1 10.0.0.1,i-2 1\n{request.folder}\nsecond\n"
    assert (request.folder / "hooks.log").read_text() == expected


def test_a_python_function_is_called(tmp_path: Path) -> None:
    request = request_for(tmp_path, ("true",))
    (request.workdir / "mine.py").write_text(
        "class Box:\n    @staticmethod\n    def put(run):\n        print(run['TRADEWIND_STAGE'], sorted(run)[0])\n"
    )
    failed = replace(row(), state=RunState.EXECUTING, reason="boom")
    Hooks.from_spec({"on_error": "mine:Box.put"}).run("on_error", failed, request)
    assert (request.folder / "hooks.log").read_text() == "executing TRADEWIND_FOLDER\n"


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ({"command": ["sh", "-c", "exit 4"]}, "exit code 4"),
        ({"command": ["not-a-program"]}, "cannot be run: No such file"),
        ({"command": ["sh", "-c", "sleep 60 & sleep 60"], "timeout": 0.2}, r"longer than 0\.2 s"),
        ("json:no_such_function", "exit code 1"),
    ],
)
def test_a_failing_hook(tmp_path: Path, caplog: pytest.LogCaptureFixture, hook: Any, words: str) -> None:
    request = request_for(tmp_path, ("true",))
    began = time.monotonic()
    with pytest.raises(DeployError, match=words) as caught:
        Hooks.from_spec({"before_booting": hook}).run("before_booting", row(), request)
    assert caught.value.retryable
    assert time.monotonic() - began < 30
    with caplog.at_level(logging.WARNING, "tradewind.deployer"):
        Hooks.from_spec({"after_booting": hook}).run("after_booting", row(), request)
    assert "run-1" in caplog.text


def test_a_stopped_run_starts_no_more_hooks(tmp_path: Path) -> None:
    hooks = Hooks.from_spec({"before_booting": ["touch", "ran"]})
    request = request_for(tmp_path, ("true",))
    hooks.stop("run-1")
    with pytest.raises(DeployError, match="was stopped"):
        hooks.run("before_booting", row(), request)
    assert not (request.workdir / "ran").exists()
    hooks.run("before_booting", row("run-2"), request)
    assert (request.workdir / "ran").exists()
