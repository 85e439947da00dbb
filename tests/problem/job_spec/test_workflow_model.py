"""A workflow in the place of a command: its short and long form, its defaults, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tradewind.errors import SpecError
from tradewind.problem import Configuration, Offer
from tradewind.problem.job_spec.spec import JobSpec, parse_spec
from tradewind.problem.template import render_workflow

_OFFER = Offer("local", "local.c2", 2, 2, 0.1, nodes=3)


def made(folder: Path, job: Any, space: Any = None, **more: Any) -> JobSpec:
    document = {"name": "flow", "job": job, "space": space or {"nodes": [1, 2]}, **more}
    return parse_spec(yaml.safe_dump(document), file="job.yaml", base=folder)


def test_a_file_alone_is_simulated_with_heft(tmp_path: Path) -> None:
    spec = made(tmp_path, {"workflow": "flow.yaml"})
    workflow = render_workflow(spec.job, Configuration({"nodes": 1}), _OFFER)
    assert workflow is not None
    assert workflow.file == str(tmp_path / "flow.yaml")
    assert workflow.planner == {"use": "heft"}
    assert spec.runner.name == "workflow"
    assert made(tmp_path, {"workflow": "flow.yaml"}, deploy={"retries": 1}).runner.name == "workflow"
    real = made(tmp_path, {"workflow": "flow.yaml"}, deploy={"runner": "workflow_local"})
    assert real.runner.name == "workflow_local"


def test_the_space_chooses_planner_file_and_changes_of_tasks(tmp_path: Path) -> None:
    space = {
        "planner": ["heft", "search"],
        "threads": [1, 4],
        "seconds": {"values": [1, 2], "when": {"planner": "search"}},
    }
    job = {
        "workflow": {
            "file": "flow-{{ size }}.yaml",
            "planner": {"use": "{{ planner }}", "seconds": "{% if seconds is defined %}{{ seconds }}{% endif %}"},
            "tasks": {"count*": {"cores": "{{ threads }}", "scale": "{{ 1 / threads }}", "memory": "{{ nodes }}GiB"}},
        },
        "parameters": {"size": 100},
    }
    spec = made(tmp_path, job, space)
    workflow = render_workflow(spec.job, Configuration({"planner": "heft", "threads": 4}), _OFFER)
    assert workflow is not None
    assert (workflow.file, workflow.planner) == (str(tmp_path / "flow-100.yaml"), {"use": "heft"})
    assert workflow.tasks == {"count*": {"cores": "4", "scale": "0.25", "memory": "3GiB"}}
    searched = render_workflow(spec.job, Configuration({"planner": "search", "threads": 1, "seconds": 2}), _OFFER)
    assert searched is not None
    assert searched.planner == {"use": "search", "seconds": "2"}
    short = made(tmp_path, {"workflow": "flow.yaml"}, space)
    assert short.job.workflow is not None
    assert short.job.workflow.planner == {"use": "{{ planner }}"}


def test_it_is_stored_and_read_again_and_is_part_of_the_problem(tmp_path: Path) -> None:
    spec = made(tmp_path, {"workflow": {"file": "flow.yaml", "planner": {"use": "search", "seconds": 1}}})
    again = JobSpec.from_json(spec.document())
    assert again.job == spec.job
    assert again.problem_key == spec.problem_key
    assert made(tmp_path, {"workflow": "flow.yaml"}).problem_key != spec.problem_key


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"workflow": "a.xml", "command": "true"}, "job: it has both a command and a workflow (keep one of them)"),
        ({"workflow": "a.xml", "image": "x"}, "job: a workflow has no image (its tasks are the programs that run)"),
        (
            {"workflow": "{{ level }}.xml"},
            "job.workflow: the template '{{ level }}.xml' names 'level', which is no ",
        ),
        ({"workflow": {"file": "a.xml", "tasks": {"x": {"cpus": 2}}}}, "unknown key 'cpus' in job.workflow.tasks.x"),
        ({"workflow": {"file": "a.xml", "planner": {"seconds": 1}}}, "job.workflow.planner: no planner is named"),
        ({"workflow": 3}, "job.workflow: wanted a mapping, got 3"),
        ({"workflow": {"planner": "heft"}}, "job.workflow.file is missing"),
        ({"workdir": "."}, "job.command is missing"),
    ],
)
def test_what_is_no_workflow_is_one_line(tmp_path: Path, job: Any, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        made(tmp_path, job)
    assert words in str(caught.value)
