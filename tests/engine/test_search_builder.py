"""A search that is put together from a specification."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from tradewind import plugins
from tradewind.engine.deployment import build_deployer
from tradewind.engine.search_builder import (
    build_metrics_reader,
    build_problem,
    build_searcher,
    build_stopper,
    build_stopping_rules,
    find_or_create_study,
)
from tradewind.errors import SpecError
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.testing.interpreters import make_output
from tradewind.utils.paths import store_url

JOB = """\
name: j
job: {command: [run]}
space: {x: 1..3}
interpret: [{use: json_lines, file: stdout}]
"""


def test_what_a_program_calls_its_metrics_can_be_kept(tmp_path: Path) -> None:
    line = json.dumps({"score": 2, "a\ud800": 1, "b\x00": 3, "größe\U0001f600": 4}).encode()
    metrics = build_metrics_reader(parse_spec(JOB, base=tmp_path))(make_output(tmp_path, {"stdout": line + b"\n"}))
    given = {"score": 2.0, "a?": 1.0, "b\N{REPLACEMENT CHARACTER}": 3.0, "größe\U0001f600": 4.0}
    assert metrics == {"runtime": 12.0, "cost": 0.01, **given}


def test_a_study_that_another_process_has_just_made_is_the_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = parse_spec(JOB, base=tmp_path)
    with contextlib.closing(plugins.create("store", "sql", {}, url=store_url())) as store:
        made, new = find_or_create_study(spec, store)
        assert new
        monkeypatch.setattr(store, "find_studies", lambda *_: [])  # as it was a moment before the other one wrote
        assert find_or_create_study(spec, store) == (made, False)
        assert find_or_create_study(spec, store, fresh=True)[1]


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("stop: ''", "job.yaml:5: stop: there is no rule named ''"),
        ("stop:\n  failed: x", "job.yaml:5: stop: failed: trials: Input should be a valid integer"),
        ("early_stop: median", "job.yaml:5: early_stop: cost is no metric that a run reports"),
        ("searcher: paris", "job.yaml:5: the paris searcher chooses machines"),
        ("searcher:\n  use: gp\n  starts: [{x: 9}]", "job.yaml:7: searcher.starts"),
        ("deploy: {runner: {use: replay}}", "job.yaml:5: deploy.runner: give either file"),
    ],
)
def test_a_part_that_cannot_be_made_is_refused_with_its_line(more: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refused:
        spec = parse_spec(JOB + more, base=tmp_path)
        problem = build_problem(spec, tmp_path)
        build_stopping_rules(spec)
        build_stopper(spec, problem)
        build_searcher(spec, problem)
        build_deployer(spec, "owner", tmp_path)
    assert str(refused.value).startswith(line.replace("job.yaml", refused.value.file or "no file"))
