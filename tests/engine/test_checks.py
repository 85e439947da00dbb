"""What is refused before a search begins."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from tradewind.engine.assemble import build_problem
from tradewind.engine.checks import check_limits, check_runner
from tradewind.engine.deploying import build_deployer
from tradewind.errors import SpecError
from tradewind.problem.spec import parse_spec

JOB = """\
name: j
job: {command: [run]}
space: {instance: {provider: aws, types: [m5.large, m5.xlarge]}}
deploy: {provisioner: simulated, runner: ssh}
"""


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ("", True),
        ("constraints: {deadline: 1h}", True),
        ("budget: {dollars: 1}", False),
        ("budget: {hours: 1}", False),
        ("budget: {trials: 3}", False),
        ("future_runs: 100", False),
    ],
)
def test_machines_that_cost_money_want_a_limit(tmp_path: Path, more: str, refused: bool) -> None:
    spec = parse_spec(JOB + more, base=tmp_path)
    deployer = build_deployer(spec, "tw-owner", tmp_path, None)
    with pytest.raises(SpecError, match="nothing limits the search") if refused else nullcontext():
        check_limits(spec, build_problem(spec, tmp_path), deployer)


def test_what_costs_nothing_wants_none(tmp_path: Path) -> None:
    for job in (
        JOB.replace("provisioner: simulated, runner: ssh", "provisioner: none, runner: ssh"),
        JOB.replace("provider: aws, types: [m5.large, m5.xlarge]", "provider: local"),
    ):
        spec = parse_spec(job, base=tmp_path)
        check_limits(spec, build_problem(spec, tmp_path), build_deployer(spec, "tw-owner", tmp_path, None))


@pytest.mark.parametrize("image", ["''", "' '"])
def test_an_empty_image_is_none(tmp_path: Path, image: str) -> None:
    given = f"{{command: [run], image: {image}}}"
    job = f"name: j\njob: {given}\nspace: {{n: [1, 2]}}\ndeploy: {{runner: docker}}\n"
    spec = parse_spec(job, base=tmp_path)
    with pytest.raises(SpecError, match=r"needs job\.image"):
        check_runner(spec, build_problem(spec, tmp_path))
