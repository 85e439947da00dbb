from __future__ import annotations

from pathlib import Path

import pytest

from tradewind import plugins
from tradewind.errors import InterpretationError, SpecError
from tradewind.testing.interpreters import make_output


def test_an_exit_code_that_is_not_allowed_makes_the_trial_fail(tmp_path: Path) -> None:
    interpreter = plugins.create("interpreter", "exit_code", {"allowed": [0, 2]}, base=tmp_path)
    assert interpreter.interpret(make_output(tmp_path, {}, exit_code=2), {}) == {"exit_code": 2.0}
    for code in (1, -9, None):
        with pytest.raises(InterpretationError) as caught:
            interpreter.interpret(make_output(tmp_path, {}, exit_code=code), {})
        assert caught.value.reason == "exit-code"


def test_zero_is_the_only_code_allowed_by_default(tmp_path: Path) -> None:
    interpreter = plugins.create("interpreter", "exit_code", {}, base=tmp_path)
    assert interpreter.interpret(make_output(tmp_path, {}), {}) == {"exit_code": 0.0}
    with pytest.raises(InterpretationError, match="exit code 3, allowed: 0"):
        interpreter.interpret(make_output(tmp_path, {}, exit_code=3), {})


def test_settings_are_checked(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="did you mean 'allowed'"):
        plugins.create("interpreter", "exit_code", {"alowed": [0]}, base=tmp_path)
    with pytest.raises(SpecError, match="allowed"):
        plugins.create("interpreter", "exit_code", {"allowed": []}, base=tmp_path)
