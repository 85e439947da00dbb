"""The conformance suite, over every installed interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tradewind import plugins
from tradewind.interpreter.base import Interpreter
from tradewind.testing.interpreters import InterpreterConformance, Sample

USER_FILE = """
def score(output, metrics):
    return {"score": 2 * metrics["runtime"]}
"""

CASES: dict[str, tuple[dict[str, Any], Sample]] = {
    "exit_code": ({"allowed": [0, 3]}, Sample({}, {"exit_code": 3.0}, exit_code=3)),
    "regex": (
        {"patterns": r"score: (?P<score>\S+)"},
        Sample({"stdout": b"score: 1\nscore: 7.5e-1\nbye\n"}, {"score": 0.75}),
    ),
    "json_lines": (
        {},
        Sample({"metrics.jsonl": b'{"step": 0, "loss": 2}\n{"step": 1, "loss": 1}\n'}, {"loss": 1.0}),
    ),
    "price_ratio": (
        {"metric": "score"},
        Sample({}, {"score_per_hourly": 50.0}, given={"score": 10.0}),
    ),
    "python": ({"function": "user.py:score"}, Sample({}, {"score": 24.0})),
}


@pytest.mark.parametrize("name", plugins.names("interpreter"))
def test_every_installed_interpreter_has_a_sample_here(name: str) -> None:
    assert name in CASES or not plugins.load("interpreter", name).__module__.startswith("tradewind.")


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_part_describes_itself_and_its_settings(name: str) -> None:
    part = plugins.load("interpreter", name)
    assert part.summary()
    schema = part.Settings.model_json_schema()
    assert all("description" in setting for setting in schema.get("properties", {}).values())


class TestInstalled(InterpreterConformance):
    @pytest.fixture(params=sorted(CASES))
    def case(self, request: pytest.FixtureRequest) -> str:
        name: str = request.param
        return name

    @pytest.fixture
    def interpreter(self, case: str, tmp_path: Path) -> Interpreter:
        (tmp_path / "user.py").write_text(USER_FILE)
        made: Interpreter = plugins.create("interpreter", case, CASES[case][0], base=tmp_path)
        return made

    @pytest.fixture
    def sample(self, case: str) -> Sample:
        return CASES[case][1]


class TestJsonLinesInALog(InterpreterConformance):
    @pytest.fixture(params=[{}, {"metrics": ["net.loss"]}, {"metrics": {"net.loss": "last"}, "errors": "strict"}])
    def interpreter(self, request: pytest.FixtureRequest, tmp_path: Path) -> Interpreter:
        made: Interpreter = plugins.create(
            "interpreter", "json_lines", {"file": "stdout", **request.param}, base=tmp_path
        )
        return made

    @pytest.fixture
    def sample(self) -> Sample:
        return Sample(
            {"stdout": b'hello\n{"net": {"loss": 3}}\n{"net": {"loss": 1.5}}\n{ not JSON\n'}, {"net.loss": 1.5}
        )


class TestRegexInAnOutput(InterpreterConformance):
    @pytest.fixture(params=["first", "all"])
    def interpreter(self, request: pytest.FixtureRequest, tmp_path: Path) -> Interpreter:
        given = {"patterns": [r"^a=(?P<a>.+)$"], "file": "outputs/x.txt", "match": request.param, "errors": "strict"}
        made: Interpreter = plugins.create("interpreter", "regex", given, base=tmp_path)
        return made

    @pytest.fixture
    def sample(self) -> Sample:
        return Sample({"outputs/x.txt": b"a=4\r\n"}, {"a": 4.0})
