"""Any job YAML either runs dry or is refused in one line: never a traceback, a hang, or memory without end.

Documents are made from the JSON schema that editors use, and by changing the shipped examples, as values and as text.
``TRADEWIND_FUZZ=10000`` tries as many.
"""

from __future__ import annotations

import copy
import json
import os
import re
import resource
import shutil
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tradewind.cli.app import run
from tradewind.problem.job_spec.json_schema import json_schema

EXAMPLES = sorted(Path(__file__).parents[2].glob("examples/*/*.yaml"))
MANY = int(os.environ.get("TRADEWIND_FUZZ", "120"))

NUMBERS: list[Any] = [
    0, 1, 2, 3, 16, -1, 1.5, 0.1, -0.0, 1e-320, 1.7e308, -1.7e308, 2**31, 2**53 + 1, 2**63 - 1, 2**64, -(2**70), 10**30,
    float("inf"), float("-inf"), float("nan"),
]  # fmt: skip
TEXTS = [
    "", " ", "x", "a b", "1..9", "1..1e300", "0..1 log", "9..1", "1..5 step 2", "-5..5 log", "0.1..0.9",
    "1..1,000", "1,000",
    "1e3", "$2", "2h30m", "90s", "64MiB", "1e400", "nan", "level", "level > 3", "level < (", "1/0",
    "level ** 9 ** 9 ** 9",
    "instance.vcpu", "cost", "runtime", "minimise", "random", "gp", "local", "aws", "process", "ssh", "docker", "none",
    "{{ level }}", "{{", "{{ nothing }}", ">= 2.5", "<= x", "*", "**/*", "../..", "/", "~", "file:///etc",
    "s3://b/c", "s3://",
    "http://u:p@h/", "env:X", "keyring:a/b", "module:function", "nothing.py:f", "ü€漢", "\u202e", "\x07", "\x85",
    "'", '"', "\\", "|",
    "(" * 40, "[" * 40, "x" * 3000, "!!python/object:os.system x", "<<", "on", "yes", "2024-01-01", "1:30",
    "0x1F", "-", "#",
]  # fmt: skip
SCALARS = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(TEXTS), st.booleans(), st.none(), st.text(max_size=6))
KEYS = st.sampled_from(
    ["level", "instance", "nodes", "x", "use", "values", "low", "high", "when", "type", "A=B", "x-y", "<<", ""]
)


@cache
def schema() -> dict[str, Any]:
    return json_schema(built_in_only=True)


def _drawn(draw: st.DrawFn, wanted: dict[str, Any], depth: int) -> Any:
    """A value of a JSON schema, more or less: edges are left out on purpose, and some values are of no schema."""
    if depth > 7 or draw(st.integers(0, 24)) == 0:
        return draw(SCALARS)
    if "$ref" in wanted:
        return _drawn(draw, schema()["$defs"][wanted["$ref"].rpartition("/")[2]], depth)
    if "const" in wanted:
        return copy.deepcopy(wanted["const"])
    for choice in ("enum", "examples"):
        if choice in wanted and draw(st.integers(0, 3)):
            return copy.deepcopy(draw(st.sampled_from(wanted[choice])))  # what is drawn is changed later
    for several in ("anyOf", "oneOf"):
        if several in wanted:
            return _drawn(draw, draw(st.sampled_from(wanted[several])), depth + 1)
    kind = wanted.get("type")
    kind = draw(st.sampled_from(kind)) if isinstance(kind, list) else kind
    if kind == "object" or "properties" in wanted:
        return _mapping(draw, wanted, depth)
    if kind == "array":
        return [_drawn(draw, wanted.get("items") or {}, depth + 1) for _ in range(draw(st.integers(0, 3)))]
    if kind in ("integer", "number"):
        return draw(st.sampled_from(NUMBERS[: 9 if kind == "integer" else None]))
    return draw(st.booleans()) if kind == "boolean" else draw(SCALARS)


def _mapping(draw: st.DrawFn, wanted: dict[str, Any], depth: int) -> dict[str, Any]:
    found = {}
    for name, inner in wanted.get("properties", {}).items():
        if name in wanted.get("required", []) or draw(st.integers(0, 4)) == 0:
            found[name] = _drawn(draw, inner, depth + 1)
    more = wanted.get("additionalProperties")
    if isinstance(more, dict):
        for _ in range(draw(st.integers(0, 2))):
            found[draw(KEYS)] = _drawn(draw, more, depth + 1)
    return found


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(each for key, inner in items for each in _places(inner, (*place, key)))]


def _change(draw: st.DrawFn, document: Any) -> None:
    """Change one place of a document."""
    *path, last = draw(st.sampled_from(_places(document)[1:]))
    holder = document
    for key in path:
        holder = holder[key]
    match draw(st.integers(0, 6)):
        case 0:
            del holder[last]
        case 1 | 2:
            holder[last] = draw(SCALARS)
        case 3:
            holder[last] = [holder[last], draw(SCALARS)]
        case 4:
            holder[last] = {draw(KEYS): holder[last], draw(KEYS): draw(SCALARS)}
        case 5 if isinstance(holder, dict):
            holder[draw(KEYS)] = draw(SCALARS)
        case _:
            other = draw(st.sampled_from(_places(document)))
            value = document
            for key in other:
                if not isinstance(value, dict | list):
                    return
                value = value[key]
            holder[last] = copy.deepcopy(value)


@st.composite
def job_texts(draw: st.DrawFn) -> str:
    """The text of a job YAML, which may be wrong in any way."""
    small = {"name": "f", "job": {"command": "true {{ level }}"}, "space": {"level": "1..9"}}
    source = draw(st.integers(0, 2))
    if source == 0:
        document = _mapping(draw, schema(), 0)
        document |= {key: small[key] for key in draw(st.sets(st.sampled_from(sorted(small)), min_size=2))}
    else:
        path = draw(st.sampled_from(EXAMPLES))
        document = copy.deepcopy(small if source == 1 else yaml.safe_load(path.read_text()))
        if source == 1:
            for key in draw(st.sets(st.sampled_from(sorted(schema()["properties"])), max_size=3)):
                document[key] = _drawn(draw, schema()["properties"][key], 1)
        for _ in range(draw(st.integers(0, 3))):
            if isinstance(document, dict) and document:
                _change(draw, document)
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=draw(st.booleans()), default_flow_style=None)
    if draw(st.integers(0, 5)) == 0 and text:
        at, what = (
            draw(st.integers(0, len(text))),
            draw(st.sampled_from(["\t", ": ", "{", "&a ", "*a", "\x00", "- ", "\n", "<<: "])),
        )
        text = text[:at] + what + text[at + draw(st.integers(0, 3)) :]
    return text


def _check(text: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = folder / "job.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    capfd.readouterr()
    began = time.process_time()
    code = run(["tune", str(file), "--dry-run"])
    took = time.process_time() - began
    out, err = capfd.readouterr()
    assert took < 5, f"took {took:.1f} s"
    assert not list(folder.rglob("crashes")), err
    assert "Traceback" not in out + err
    lines = [line for line in err.splitlines() if not re.search(r":\d+: space.* is the number ", line)]
    if code == 0:
        assert out
    else:
        assert len(lines) == 1, f"{len(lines)} lines: {err}"
        assert lines[0].startswith("tradewind: "), lines[0]
        if code == 3:  # a wrong specification, or a file that it names: where
            assert str(folder) in lines[0], lines[0]


@pytest.mark.slow
def test_any_job_runs_dry_or_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "100")
    for path in EXAMPLES[0].parents[1].glob("*/*.csv"):
        shutil.copy(path, tmp_path)

    @settings(
        max_examples=MANY,
        deadline=None,
        derandomize=MANY <= 120,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(job_texts())
    def each(text: str) -> None:
        _check(text, tmp_path, capfd)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    each()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000  # KiB


def test_the_maker_of_documents_makes_good_ones_too() -> None:
    """Nearly half of the documents are mappings with a command: the tests go deeper than the first check."""
    good = 0

    @settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(job_texts())
    def each(text: str) -> None:
        nonlocal good
        try:
            document = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError):
            return
        good += isinstance(document, dict) and "job" in document and "space" in document
        json.dumps(document, default=str)

    each()
    assert good > 20
