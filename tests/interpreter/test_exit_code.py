from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tradewind import plugins
from tradewind.engine.search_builder import accepted_exit_codes
from tradewind.errors import InterpretationError, SpecError
from tradewind.interpreter.base import AcceptsExitCodes, Interpreter
from tradewind.plugins import Settings
from tradewind.problem import RunOutput
from tradewind.problem.job_spec.spec import parse_spec
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Traceback\n  File\nValueError: no data\n\n", "the program exited with code 3: ValueError: no data$"),
        ("\x1b[31mred\x1b[0m\n", r"code 3: .*\[31mred"),
        ("x" * 300, "code 3: x{50,}[^x]x{50,}$"),
        ("\n \n", "the program exited with code 3$"),
        (None, "the program exited with code 3$"),
    ],
)
def test_the_last_line_of_the_standard_error_is_the_reason(tmp_path: Path, text: str | None, words: str) -> None:
    interpreter = plugins.create("interpreter", "exit_code", {"stderr": True}, base=tmp_path)
    assert interpreter.accepted >= {0, 1, 3, 255}
    output = make_output(tmp_path, {}, exit_code=3)
    output.stderr.unlink(missing_ok=True) if text is None else output.stderr.write_text(text)
    with pytest.raises(InterpretationError, match=words) as caught:
        interpreter.interpret(output, {})
    assert "\x1b" not in str(caught.value)
    assert interpreter.interpret(make_output(tmp_path, {}), {}) == {"exit_code": 0.0}


def test_settings_are_checked(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="did you mean 'allowed'"):
        plugins.create("interpreter", "exit_code", {"alowed": [0]}, base=tmp_path)
    with pytest.raises(SpecError, match="allowed"):
        plugins.create("interpreter", "exit_code", {"allowed": []}, base=tmp_path)


class Lenient(Interpreter, AcceptsExitCodes):
    """A part of another package that takes code 7 for success, and knows nothing of ``exit_code``."""

    accepted = frozenset({7})

    def interpret(self, output: RunOutput, metrics: Mapping[str, float]) -> Mapping[str, float]:
        return {"lenient": 1.0}


def test_any_interpreter_may_say_which_exit_codes_are_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = plugins.create

    def lenient(kind: str, name: str, *given: Any, **more: Any) -> Any:
        return (
            Lenient(settings=Settings(), base=tmp_path) if name == "json_lines" else create(kind, name, *given, **more)
        )

    def accepted(interpret: str) -> frozenset[int]:
        return accepted_exit_codes(
            parse_spec(f"name: x\njob: {{command: 'true'}}\nspace: {{x: [1]}}\n{interpret}", base=tmp_path)
        )

    assert accepted("") == {0}
    assert accepted("interpret: {use: exit_code, allowed: [0, 3]}") == {0, 3}
    assert accepted("interpret: json_lines") == frozenset()
    monkeypatch.setattr(plugins, "create", lenient)
    assert accepted("interpret: json_lines") == {7}
    assert accepted("interpret: [{use: exit_code, allowed: [3]}, json_lines]") == {3, 7}
