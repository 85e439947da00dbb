from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tradewind import plugins, runtime_api
from tradewind.errors import InterpretationError, SpecError
from tradewind.interpreter import json_lines
from tradewind.interpreter.json_lines import MOST_METRICS, read_learning_curves
from tradewind.interpreter.log_reader import LINE_LIMIT, Aggregate, MetricAggregate, json_line
from tradewind.testing.interpreters import make_output

CURVE = b'{"step": 1, "loss": 4, "net": {"acc": 0.5}}\n{"step": 2, "loss": 1, "net": {"acc": 0.25}, "_private": 3}\n'


def read(
    folder: Path, content: bytes, *, truncated: bool = False, name: str = "metrics.jsonl", **given: Any
) -> dict[str, float]:
    interpreter = plugins.create("interpreter", "json_lines", given, base=folder)
    return dict(interpreter.interpret(make_output(folder / "run", {name: content}, truncated=truncated), {}))


def reason(folder: Path, content: bytes, **given: Any) -> str:
    with pytest.raises(InterpretationError) as caught:
        read(folder, content, **given)
    return caught.value.reason


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, {"loss": 1.0, "net.acc": 0.25}),
        ({"aggregate": "mean"}, {"loss": 2.5, "net.acc": 0.375}),
        ({"metrics": "loss"}, {"loss": 1.0}),
        ({"metrics": ["net.acc", "loss"]}, {"net.acc": 0.25, "loss": 1.0}),
        ({"metrics": {"loss": "min", "net.acc": "max"}}, {"loss": 1.0, "net.acc": 0.5}),
        ({"metrics": {"loss": "count"}}, {"loss": 2.0}),
        ({"metrics": {"loss": "first", "net.acc": "sum"}}, {"loss": 4.0, "net.acc": 0.75}),
        ({"metrics": ["step"]}, {"step": 2.0}),
        ({"metrics": ["loss", "other"], "optional": True}, {"loss": 1.0}),
    ],
)
def test_which_values_count(tmp_path: Path, given: dict[str, Any], wanted: dict[str, float]) -> None:
    assert read(tmp_path, CURVE, **given) == wanted


def test_a_key_with_a_dot_is_found_as_it_is(tmp_path: Path) -> None:
    assert read(tmp_path, b'{"net.acc": 1}\n', metrics=["net.acc"]) == {"net.acc": 1.0}


def test_each_metric_has_its_own_last_value(tmp_path: Path) -> None:
    content = b'{"a": 1}\n{"b": 2}\n{"a": 3, "b": null}\n{"c": true, "note": "text", "list": [1]}\n'
    assert read(tmp_path, content) == {"a": 3.0, "b": 2.0, "c": 1.0}
    assert read(tmp_path, content, metrics=["a", "b"]) == {"a": 3.0, "b": 2.0}


def test_objects_among_the_lines_of_a_log(tmp_path: Path) -> None:
    log = b'start\n[1, 2]\n{"a": 1}\n{a: 2}\n  {"a": 3}  \r\nend {"a": 4}\n'
    assert read(tmp_path, log, name="stdout", file="stdout") == {"a": 3.0}


@pytest.mark.parametrize("aggregate", ["last", "mean", "first"])
def test_other_objects_of_a_log_may_have_text_under_the_same_key(tmp_path: Path, aggregate: str) -> None:
    log = b'{"level": "info", "loss": "so far"}\n{"loss": 0.5}\n{"level": "info", "loss": "done"}\n'
    chosen: dict[str, Any] = {"metrics": ["loss"], "aggregate": aggregate}
    assert read(tmp_path, log, name="stdout", file="stdout", **chosen) == {"loss": 0.5}
    assert reason(tmp_path / "metrics", log, **chosen) == "not-a-number"


@pytest.mark.parametrize("aggregate", ["last", "mean"])
def test_a_log_with_text_alone_under_a_key_is_an_error_that_quotes_it(tmp_path: Path, aggregate: str) -> None:
    log = b'{"loss": "0.5"}\n'
    chosen: dict[str, Any] = {"name": "stdout", "file": "stdout", "metrics": ["loss"], "aggregate": aggregate}
    with pytest.raises(InterpretationError, match=r'json_lines loss in stdout is "0.5"') as caught:
        read(tmp_path, log, **chosen)
    assert caught.value.reason == "not-a-number"
    assert read(tmp_path, log, **chosen, optional=True) == {}


def test_a_line_that_was_cut_short_is_passed_over(tmp_path: Path) -> None:
    assert read(tmp_path, b'{"a": 1}\n{"a": 2, "b"') == {"a": 1.0}
    assert read(tmp_path, b'{"a": 1}\n{"a": 2, "b"', metrics=["a"]) == {"a": 1.0}


@pytest.mark.parametrize("line", [b"hello", b"[1]", b"3", b'{"a" 1}', b'"a"'])
def test_other_lines_in_a_file_of_metrics_are_an_error(tmp_path: Path, line: bytes) -> None:
    assert reason(tmp_path, b'{"a": 1}\n' + line + b"\n") == "not-json"


DOCUMENT: dict[str, Any] = {"score": 1.5, "net": {"acc": 0.25, "epochs": [1, 2]}, "name": "run {1}"}


@pytest.mark.parametrize("text", [json.dumps(DOCUMENT, indent=2), json.dumps(DOCUMENT, indent=0) + "\n\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_a_file_that_is_one_object_over_several_lines(tmp_path: Path, text: str, start: str) -> None:
    content = (start + text).encode()
    given: dict[str, Any] = {"name": "outputs/r.json", "file": "r.json"}
    assert read(tmp_path, content, **given) == {"score": 1.5, "net.acc": 0.25}
    assert read(tmp_path, content.replace(b"\n", b"\r\n"), **given, metrics=["net.acc"]) == {"net.acc": 0.25}
    assert read(tmp_path, content, **given, metrics=["score"], aggregate="mean") == {"score": 1.5}
    assert reason(tmp_path, content, **given, metrics=["name"]) == "not-a-number"
    assert reason(tmp_path, content, **given, metrics=["other"]) == "no-match"


def test_what_is_no_single_object_either_says_how_to_write_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = json.dumps(DOCUMENT, indent=2).encode()
    for content in (whole[:-1], whole + b"\n" + whole, b'[\n{"a": 1}\n]\n', b"{\n" * 3000):
        with pytest.raises(InterpretationError, match="no JSON object") as caught:
            read(tmp_path, content + b"\n0\n")
        assert (caught.value.reason, caught.value.hint) == ("not-json", "write each record on one line")
    monkeypatch.setattr(json_lines, "LARGEST_DOCUMENT", len(whole) - 1)
    assert reason(tmp_path, whole) == "not-json"


def test_not_a_number_fails_or_is_skipped(tmp_path: Path) -> None:
    content = b'{"a": 1}\n{"a": NaN}\n'
    assert reason(tmp_path, content) == "not-a-number"
    assert reason(tmp_path, content, aggregate="mean") == "not-a-number"
    assert read(tmp_path, content, aggregate="first") == {"a": 1.0}
    assert read(tmp_path, content, not_a_number="skip") == {"a": 1.0}
    assert read(tmp_path, content, not_a_number="skip", metrics=["a"]) == {"a": 1.0}
    assert reason(tmp_path, b'{"a": -Infinity}\n') == "not-a-number"
    assert reason(tmp_path, b'{"a": 1' + b"0" * 400 + b"}\n") == "not-a-number"
    assert reason(tmp_path, b'{"a": "3"}\n', metrics=["a"]) == "not-a-number"
    assert read(tmp_path, b'{"a": NaN}\n{"a": 2}\n') == {"a": 2.0}


def test_reasons(tmp_path: Path) -> None:
    assert reason(tmp_path / "a", b"") == "empty"
    assert reason(tmp_path / "b", b"{}\n") == "no-match"
    assert reason(tmp_path / "c", b'{"b": 1}\n', metrics=["a"]) == "no-match"
    assert reason(tmp_path / "d", b"cut\n", name="stdout", file="stdout", truncated=True) == "truncated"
    assert reason(tmp_path / "e", b"", name="stderr") == "missing-file"
    assert reason(tmp_path / "f", b'{"a": "\xff", "b": 1}\n', errors="strict") == "not-utf8"
    assert reason(tmp_path / "g", b'{"a": "' + b"x" * LINE_LIMIT + b'", "b": 1}\n') == "too-large"
    many = json.dumps({f"m{i}": i for i in range(MOST_METRICS + 1)}).encode() + b"\n"
    assert reason(tmp_path / "h", many) == "too-large"
    assert read(tmp_path / "h", many, metrics=["m7"]) == {"m7": 7.0}


def test_optional_files_may_be_missing(tmp_path: Path) -> None:
    assert read(tmp_path / "a", b"", optional=True) == {}
    assert read(tmp_path / "b", b"", name="stderr", optional=True) == {}
    assert read(tmp_path / "c", b"{}\n", optional=True) == {}


def test_settings_are_checked(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="metrics"):
        read(tmp_path, CURVE, metrics={"loss": "median"})
    with pytest.raises(SpecError, match="no file of a run"):
        read(tmp_path, CURVE, file="../x")


def test_it_reads_what_the_kit_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = make_output(tmp_path / "run", {})
    monkeypatch.setenv("TRADEWIND_METRICS", str(output.metrics_file))
    for step in range(3):
        runtime_api.report(step=step, loss=10.0 / (step + 1))
    interpreter = plugins.create("interpreter", "json_lines", {}, base=tmp_path)
    assert interpreter.interpret(output, {}) == {"loss": pytest.approx(10 / 3)}
    assert read_learning_curves(output.metrics_file) == {
        "loss": [(0.0, 10.0), (1.0, 5.0), (2.0, pytest.approx(10 / 3))]
    }


def test_learning_curves(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_learning_curves(path) == {}
    path.write_bytes(CURVE + b'{"loss": NaN}\nnoise\n{"loss": 9, "text": "x"}\n{"lo')
    curves = read_learning_curves(path)
    assert curves["net.acc"] == [(1.0, 0.5), (2.0, 0.25)]
    assert [place for place, _ in curves["loss"]] == [1.0, 2.0, 3.0, 4.0]
    assert math.isnan(curves["loss"][2][1])
    assert read_learning_curves(path, limit=1)["net.acc"] == [(2.0, 0.25)]


def test_learning_curves_of_too_many_metrics_keep_the_first(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps({f"m{i}": i for i in range(MOST_METRICS + 5)}) + "\n" + "0\n")
    assert len(read_learning_curves(path)) == MOST_METRICS


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        '{"a": NaN, "a": 2}',
        "[1, 2]",
        "1",
        '{"a": 1} {"b": 2}',
        '{"a": 1},',
        '{"a": 1',
        "",
        '\ufeff{"a": 1}',
        '{"a": "\ud800"}',
        '{"a": 1e999}',
    ],
)
def test_a_line_of_json_says_what_the_library_says(text: str) -> None:
    def said(read_text: Callable[[str], Any]) -> str:
        try:
            return repr(read_text(text))
        except ValueError:
            return "no JSON"

    assert said(json_line) == said(json.loads)


def test_a_long_file_costs_one_tally_a_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[MetricAggregate] = []

    def make(how: Aggregate) -> MetricAggregate:
        made.append(MetricAggregate(how))
        return made[-1]

    monkeypatch.setattr(json_lines, "MetricAggregate", make)
    assert read(tmp_path, CURVE * 500) == {"loss": 1.0, "net.acc": 0.25}
    assert [tally.count for tally in made] == [1000, 1000]
