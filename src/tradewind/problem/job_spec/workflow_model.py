"""The part of a job YAML that names a workflow instead of a command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tradewind.problem.job_spec.values import SchemaForms, StrictModel, Text, validation_error
from tradewind.problem.run import WorkflowJob
from tradewind.problem.yaml_source import KeyPath

WORKFLOW_COMMAND = ["tradewind", "workflow", "run"]
"""The command of a job that names a workflow, for whoever shows it; its runner does not start it."""

WORKFLOW_RUNNER = "workflow"
"""The runner of such a job where the YAML names none: it simulates."""

_PLANNER = "planner"
"""The parameter of a space that chooses the planner."""

_TEXT: dict[str, Any] = {"type": "string"}
_WITHOUT = ("load", "image", "ports")
"""Keys of a job that say how its command is run."""


class TaskChangeModel(StrictModel):
    """Changes of some tasks of a workflow; what is left out stays as the workflow's file has it."""

    scale: Text | None = Field(None, description="Factor of their run times: '{{ 1 / threads }}'.")
    cores: Text | None = Field(None, description="Cores that each of them uses: '{{ threads }}'.")
    memory: Text | None = Field(None, description="Memory that each of them needs: '{{ gib }}GiB'.")


def _planner(value: Any) -> Any:
    given = {"use": value} if isinstance(value, str) else value
    if isinstance(given, Mapping) and not isinstance(given.get("use"), str):
        raise validation_error("no planner is named", "write use: {use: search, seconds: 1}")
    return given


class WorkflowModel(StrictModel):
    """A workflow that each trial plans on its machines and runs as a whole."""

    file: str = Field(min_length=1, description="Its file, of any format that is read, seen from workdir; a template.")
    planner: Annotated[dict[str, Text], BeforeValidator(_planner), SchemaForms(_TEXT)] | None = Field(
        None,
        description="The planner: a name, or {use: NAME, ...} with settings; templates. Without it the parameter "
        "planner of the space, or heft.",
    )
    tasks: dict[str, TaskChangeModel] = Field(
        {}, description="Changes of tasks, by activity or task; * and ? are wildcards, the first that fits counts."
    )
    lenient: bool = Field(False, description="Accept sizes and run times below zero.")
    declared_edges: bool = Field(False, description="Keep declared edges only, without those that files imply.")
    measured: list[Text] = Field(
        [],
        description="Runs whose measured run times are taken, as workflow plan --measured does: their results.json or "
        "folders, seen from workdir; templates.",
    )


def _entry(value: Any) -> Any:
    return {"file": value} if isinstance(value, str) else value


WorkflowEntry = Annotated[WorkflowModel, BeforeValidator(_entry), SchemaForms(_TEXT)]
"""A workflow by its file, or with its settings."""


def workflow_instead_of_command(value: Any) -> Any:
    """Check that a job names a command or a workflow, not both, and give the latter its command."""
    if not isinstance(value, Mapping) or value.get("workflow") is None:
        return value
    if value.get("command", WORKFLOW_COMMAND) != WORKFLOW_COMMAND:
        raise validation_error("it has both a command and a workflow", "keep one of them")
    for key in _WITHOUT:
        if value.get(key):
            raise validation_error(f"a workflow has no {key}", "its tasks are the programs that run")
    return {**value, "command": WORKFLOW_COMMAND}


def simulated_by_default(value: Any) -> Any:
    """Let the runner that simulates run a job with a workflow, where the YAML names no runner."""
    job = value.get("job") if isinstance(value, Mapping) else None
    if not isinstance(job, Mapping) or job.get("workflow") is None:
        return value
    deploy = {} if value.get("deploy") is None else value["deploy"]
    if not isinstance(deploy, Mapping) or deploy.get("runner") is not None:
        return value
    return {**value, "deploy": {**deploy, "runner": WORKFLOW_RUNNER}}


def workflow_job(model: WorkflowModel | None, space: Mapping[str, Any]) -> WorkflowJob | None:
    """The workflow of a job, or None; without a planner it is that of the space's parameter of this name, or heft."""
    if model is None:
        return None
    planner = model.planner or {"use": "{{ planner }}" if _PLANNER in space else "heft"}
    tasks = {name: change.model_dump(exclude_none=True) for name, change in model.tasks.items()}
    return WorkflowJob(model.file, planner, tasks, model.lenient, model.declared_edges, tuple(model.measured))


def workflow_templates(job: WorkflowJob | None) -> Iterator[tuple[KeyPath, str]]:
    """All templates of a job's workflow, with their places in the YAML."""
    if job is None:
        return
    yield ("job", "workflow", "file"), job.file
    yield from ((("job", "workflow", "measured", i), text) for i, text in enumerate(job.measured))
    yield from ((("job", "workflow", "planner", name), text) for name, text in job.planner.items())
    for tasks, changes in job.tasks.items():
        yield from ((("job", "workflow", "tasks", tasks, name), text) for name, text in changes.items())
