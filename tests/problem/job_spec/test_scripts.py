"""A script of the user's own in place of a runner or a provisioner."""

from __future__ import annotations

from pathlib import Path

import pytest

from tradewind.errors import SpecError
from tradewind.problem.job_spec.spec import JobSpec, parse_spec

JOB = "name: own\njob: {command: 'true {{ x }}'}\nspace: {x: 1..9}\n"


def spec_of(deploy: str) -> JobSpec:
    return parse_spec(f"{JOB}deploy: {deploy}\n", base=Path("/tmp"))


@pytest.mark.parametrize("file", ["deploy.sh", "./deploy.sh", "/opt/bin/deploy", "~/deploy.py", "tools/deploy"])
def test_a_script_runs_jobs_and_makes_their_machines(file: str) -> None:
    spec = spec_of(f"{{runner: {file}}}")
    for part in (spec.runner, spec.provisioner):
        assert (part.name, dict(part.settings)) == ("script", {"program": file})
    assert JobSpec.from_json(spec.document()).provisioner == spec.provisioner


@pytest.mark.parametrize(
    ("deploy", "runner", "provisioner"),
    [
        ("{runner: ./a.sh, provisioner: ./b.sh}", {"program": "./a.sh"}, {"program": "./b.sh"}),
        ("{runner: {use: script, program: a.sh, grace: 9}}", {"program": "a.sh", "grace": 9}, {"program": "a.sh"}),
    ],
)
def test_both_may_be_named(deploy: str, runner: dict[str, object], provisioner: dict[str, object]) -> None:
    spec = spec_of(deploy)
    assert (dict(spec.runner.settings), dict(spec.provisioner.settings)) == (runner, provisioner)


def test_each_goes_alone() -> None:
    assert spec_of("{runner: ./a.sh, provisioner: none}").provisioner.name == "none"
    made = spec_of("{runner: ssh, provisioner: ./b.sh}")
    assert (made.runner.name, made.provisioner.name) == ("ssh", "script")


@pytest.mark.parametrize(
    ("deploy", "words"),
    [
        ("{runner: xyzzy}", "there is no runner named 'xyzzy' .*FILE.py:CLASS, a script ./FILE.sh"),
        ("{provisioner: deploy}", "there is no provisioner named 'deploy' .*a script ./FILE.sh"),
        ("{runner: {use: script, program: a.sh, grase: 9}}", "grase"),
    ],
)
def test_what_is_wrong_is_one_line(deploy: str, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        spec_of(deploy)
    assert "\n" not in str(caught.value)
