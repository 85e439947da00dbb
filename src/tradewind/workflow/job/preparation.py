"""Makes the workflow and the planner of a run: read, changed as the job says, and kept for further runs."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tradewind import plugins
from tradewind.errors import InputError, WorkflowError
from tradewind.problem import WorkflowJob
from tradewind.utils.suggestions import did_you_mean
from tradewind.utils.units import parse_memory
from tradewind.workflow.execution.results import measured_runtimes, read_results
from tradewind.workflow.files import read_workflow
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.planner.base import Planner

_MOST = 64
"""Workflows and planners that are kept; a search over more of them makes some again."""


class WorkflowPreparation:
    """Reads the workflows of runs and makes their planners; each is read and made once.

    Args:
        seed: Seed of the planners.
        data_folder: Below it planners may keep what they have learned.
    """

    def __init__(self, seed: int, data_folder: Path) -> None:
        self._seed, self._data_folder = seed, data_folder
        self._flows: dict[str, Workflow] = {}
        self._planners: dict[str, Planner] = {}

    def flow(self, job: WorkflowJob) -> Workflow:
        """The workflow of a run, its tasks changed as the job says.

        Raises:
            WorkflowError: Its file cannot be read or has an error, or a change is none that it can have.
        """
        key = json.dumps([*asdict(replace(job, planner={})).values()])
        if key not in self._flows:
            _make_room(self._flows)
            flow = read_workflow(Path(job.file), lenient=job.lenient, declared_edges=job.declared_edges)
            if job.measured:
                flow = measured_runtimes(flow, [read_results(Path(path)) for path in job.measured])
            self._flows[key] = with_task_changes(flow, job.tasks)
        return self._flows[key]

    def planner(self, job: WorkflowJob) -> Planner:
        """The planner of a run.

        Raises:
            PluginError: There is no such planner.
            SpecError: One of its settings is wrong.
        """
        key = json.dumps(dict(job.planner), sort_keys=True)
        if key not in self._planners:
            _make_room(self._planners)
            settings = {name: text if name == "use" else _value_of(text) for name, text in job.planner.items()}
            self._planners[key] = make_planner(settings, self._seed, self._data_folder)
        return self._planners[key]

    def check(self, job: WorkflowJob, *, simulated: bool) -> None:
        """See, before anything is run, that there are such a workflow and such a planner.

        Args:
            job: The workflow, its texts filled in.
            simulated: True where nothing but its run times says how long it takes.

        Raises:
            TradewindError: There are not.
        """
        flow = self.flow(job)
        self.planner(job)
        if simulated and not flow.runtimes.any():
            raise WorkflowError(
                f"the tasks of {job.file} have no run times, and a simulation takes no time",
                hint="give them, or run the workflow for real: deploy: {runner: workflow_local}",
            )


def _make_room(kept: dict[str, Any]) -> None:
    if len(kept) >= _MOST:
        del kept[next(iter(kept))]


def _value_of(text: str) -> Any:
    """A setting as YAML would read it: a number, true, false, or the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def make_planner(choice: str | Mapping[str, Any], seed: int, data_folder: Path) -> Planner:
    """Make a planner by its name, or by ``{use: name, ...}`` with settings.

    Args:
        choice: The name, or the mapping, as the user gave it.
        seed: Seed of its random choices.
        data_folder: Below it the planner may keep what it has learned.

    Raises:
        PluginError: There is no such planner.
        SpecError: One of its settings is wrong.
    """
    given = {"use": choice} if isinstance(choice, str) else dict(choice)
    name = str(given.pop("use"))
    planner: Planner = plugins.create("planner", name, given, seed=seed, data_folder=data_folder)
    return planner


def with_task_changes(flow: Workflow, changes: Mapping[str, Mapping[str, str]]) -> Workflow:
    """Change the tasks of a workflow.

    Args:
        flow: The workflow.
        changes: By activity, task or pattern of either: ``scale`` of the run time, ``cores`` and ``memory``, as text.

    Raises:
        WorkflowError: A name fits no task, or a value is none.
    """
    if not changes:
        return flow
    tasks = []
    for task in flow.tasks:
        name = next((each for each in changes if _fits(task, each)), None)
        tasks.append(task if name is None else _changed(task, name, changes[name]))
    for name in changes:
        if not any(_fits(task, name) for task in flow.tasks):
            known = sorted({task.activity for task in flow.tasks})
            hint = did_you_mean(name, known, "its activities are")
            raise WorkflowError(f"tasks {name}: no task of workflow {flow.name} is of that name", hint=hint)
    return replace(flow, tasks=tuple(tasks))


def _fits(task: Task, name: str) -> bool:
    return fnmatch.fnmatchcase(task.activity, name) or fnmatch.fnmatchcase(task.id, name)


def _changed(task: Task, name: str, change: Mapping[str, str]) -> Task:
    if "scale" in change:
        task = replace(task, runtime=task.runtime * _number(name, "scale", change["scale"], least=0.0))
    if "cores" in change:
        cores = _number(name, "cores", change["cores"], least=1.0)
        if not cores.is_integer():
            raise WorkflowError(f"tasks {name}: cores: {change['cores']!r} is no whole number")
        task = replace(task, cores=int(cores))
    if "memory" in change:
        try:
            task = replace(task, memory_bytes=parse_memory(change["memory"]))
        except InputError as error:
            raise WorkflowError(f"tasks {name}: memory: {error.message}", hint=error.hint) from None
    return task


def _number(name: str, key: str, text: str, *, least: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value < float("inf"):
        raise WorkflowError(f"tasks {name}: {key}: {text!r} is no number of at least {least:g}")
    return value
