from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tradewind import plugins
from tradewind.cli.job_file import STARTER
from tradewind.problem.job_spec.json_schema import json_schema
from tradewind.problem.job_spec.spec import JobSpec

SHIPPED = Path(__file__).parents[3] / "docs" / "schema" / "job.schema.json"
EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("**/job*.yaml"))


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema()


def wrong(schema: dict[str, Any], document: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(document)]


def job(**changes: Any) -> dict[str, Any]:
    return {"name": "demo", "job": {"command": "true"}, "space": {"level": [1, 2]}, **changes}


@pytest.mark.slow
def test_it_is_a_schema_without_loose_ends(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    text = json.dumps(schema)
    assert "x-tradewind" not in text
    for reference in {part.partition('"')[0] for part in text.split('"#/$defs/')[1:]}:
        assert reference in schema["$defs"]


@pytest.mark.slow
def test_every_key_is_explained(schema: dict[str, Any]) -> None:
    for name, definition in {"": schema, **schema["$defs"]}.items():
        if not name.endswith("Model") or name == "ChoiceModel":
            continue
        for key, value in definition["properties"].items():
            assert key == "type" or "description" in value or "$ref" in value, f"{name}.{key}"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"job": {"command": ["a", 1], "env": {"A": 1, "B": True}, "parameters": {"rows": 3, "kind": "x"}}},
        {"space": {"a": "1..9", "b": [1, "x", True], "c": 3, "d": {"values": [1], "when": {"b": ["x", 1]}}}},
        {"space": {"instance": {"vcpu": "1..4", "memory": 4, "spot": "any"}, "nodes": "1..4"}},
        {"space": {"instance": ["a"], "nodes": [1, 2]}},
        {"space": {"instance": "a", "nodes": {"high": 3}, "n": {"low": 1, "high": 3}}},
        {"space": {"x": "0..1 step 0.05", "y": {"type": "float", "low": 0, "high": 1, "step": 0.05}}},
        {"where": "level < 3"},
        {"where": ["level < 3"], "objective": "runtime"},
        {"objective": {"maximise": "x", "also": ["cost", {"minimise": "y"}]}},
        {"constraints": {"deadline": 30, "metrics": {"r": ">= 2", "s": {"at_least": 3}}}},
        {
            "budget": "$2",
            "searcher": "gp",
            "stop": ["x", {"use": "y", "value": 3}, {"failed": 5}],
            "interpret": "exit_code",
        },
        {"budget": {"dollars": "$2", "hours": "30m", "trials": 3}, "searcher": {"use": "random"}},
        {"deploy": {"runner": "process", "log_limit": "1MiB", "hooks": {"on_error": ["a", {"python": "a:b"}]}}},
        {"budget": None, "constraints": {"deadline": None}},
    ],
)
def test_all_forms_are_complete_in_the_schema_too(
    changes: dict[str, Any], schema: dict[str, Any], spec_of: Callable[..., JobSpec]
) -> None:
    assert spec_of(yaml.safe_dump(job(**changes), sort_keys=False))
    assert wrong(schema, {k: v for k, v in job(**changes).items() if v is not None}) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"budgte": 3},
        {"space": {"x": {"type": "integer", "low": 1, "high": 2, "stepp": 2}}},
        {"space": {"x": {"type": "float", "low": 1, "high": 2, "step": 0}}},
        {"job": {"command": "true", "fraction": 0}},
        {"space": {"block-size": [1]}},
        {"space": {}},
        {"searcher": "gpp"},
        {"searcher": {"use": "random", "speed": 3}},
        {"deploy": {"retries": -1}},
        {"deploy": {"hooks": {"before_lunch": "x"}}},
        {"parallel": "two"},
        {"job": {}},
    ],
)
def test_what_is_refused_is_refused_by_the_schema_too(changes: dict[str, Any], schema: dict[str, Any]) -> None:
    assert wrong(schema, job(**changes))


def test_the_starter_and_the_examples_are_valid(schema: dict[str, Any], spec_of: Callable[..., JobSpec]) -> None:
    for text in [STARTER, *(path.read_text() for path in EXAMPLES)]:
        assert wrong(schema, yaml.safe_load(text)) == []


def test_the_shipped_copy_is_current() -> None:
    assert json.loads(SHIPPED.read_text()) == json_schema(built_in_only=True), (
        "run: tradewind schema --built-in --out docs/schema/job.schema.json"
    )


class _OutsideSettings(plugins.Settings):
    warp: int = 3


class _Outside(plugins.Plugin):
    """A part of another package."""

    Settings = _OutsideSettings


@pytest.mark.slow
def test_a_searcher_of_another_package_is_completed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    load_all = plugins.load_all
    monkeypatch.setattr(
        plugins, "load_all", lambda kind: load_all(kind) | ({"outside": _Outside} if kind == "searcher" else {})
    )
    assert wrong(json_schema(), job(searcher={"use": "outside", "warp": 9})) == []
    assert wrong(json_schema(), job(searcher={"use": "outside", "wrap": 9}))
    assert wrong(json_schema(built_in_only=True), job(searcher="outside"))
