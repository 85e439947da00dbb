"""A runner whose runs are whole workflows, carried out for real by processes of this machine."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tradewind import plugins
from tradewind.deployer.runner import resource_limits
from tradewind.deployer.runner.base import RunsWorkflows
from tradewind.deployer.runner.exit_reasons import timeout_reason
from tradewind.deployer.runner.process import ProcessData, ProcessRunner, ProcessSettings
from tradewind.deployer.runner.run_files import RunNotes, folder_error, read_document
from tradewind.errors import DeployError, WorkflowError
from tradewind.problem import Fault, Handle, Machine, Offer, RunRequest, RunState, RunStatus, WorkflowJob
from tradewind.utils.atomic_files import write_atomically
from tradewind.utils.units import count
from tradewind.workflow.job.local_run import BEGUN, ORDER, RESULT
from tradewind.workflow.job.preparation import WorkflowPreparation

_START_SECONDS = 60.0
"""Time beyond a run's wall time that its process may take to plan, and to get and give back its machines."""


class WorkflowLocalSettings(ProcessSettings):
    """Settings of the local workflow runner."""

    grace: float = Field(
        5.0, ge=0, le=60, description="Seconds between SIGTERM and SIGKILL at the wall time and when a run is cancelled"
    )
    speeds: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default_factory=dict,
        description="Speed of one vCPU by instance type, family or pattern, for the plan; 1 is what run times are for",
    )
    seed: int = Field(0, description="Of the planner's chance")
    inputs: Path | None = Field(
        None, description="Folder of the files that come from outside; that of the workflow's file without it"
    )
    isolate: bool = Field(False, description="A working folder for each task, with nothing but its inputs")
    retries: int = Field(2, ge=0, description="Times a task that failed is tried again")
    synthetic: bool = Field(False, description="Tasks without a command sleep for the time that they take by the plan")
    commands: bool = Field(True, description="false runs no program: all tasks sleep, as synthetic has it for some")
    scale: float = Field(
        1.0, gt=0, le=1000, description="Sleeping tasks take this share of their time: 0.01 plays an hour in 36 seconds"
    )


class WorkflowLocalRunner(ProcessRunner, RunsWorkflows):
    """Plans a workflow on slices of this machine and carries it out there, task by task, as `tradewind workflow run`.

    Each node of the offer is a process of this machine that runs as many tasks at a time as it has vCPUs. A run takes
    the makespan that was measured: from the moment when tasks could begin to the end of the last one. Tasks see the
    trial's parameters as other jobs do, in ``TRADEWIND_PARAM_*``.
    """

    name = "workflow_local"
    Settings = WorkflowLocalSettings
    settings: WorkflowLocalSettings

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self._folder = data_folder / self.name
        self._notes = RunNotes(self._folder, ".run")
        self._preparation = WorkflowPreparation(self.settings.seed, data_folder)

    def check_workflow(self, workflow: WorkflowJob, offer: Offer) -> None:
        """See that workflow and planner are there, and can be run on this machine; see `RunsWorkflows`."""
        from tradewind.workflow.execution.run_folder import check_commands, check_names, check_subworkflows

        sleeps = self.settings.synthetic or not self.settings.commands
        self._preparation.check(workflow, simulated=not self.settings.commands)
        flow = self._preparation.flow(workflow)
        if not sleeps:
            check_commands(flow)
        if self.settings.commands:
            check_subworkflows(flow)
            if self.settings.scale != 1.0 and any(task.command for task in flow.tasks):
                raise WorkflowError("scale is for tasks that only sleep", hint="commands: false runs no program")
        check_names(flow)
        wanted, here = offer.vcpu * offer.nodes, resource_limits.cpus_here()
        if wanted > here and self.settings.commands:
            raise WorkflowError(
                f"{count(offer.nodes, 'node')} of {offer.instance_type} have {wanted:g} CPUs, this machine has {here}",
                hint=f"where: nodes * instance.vcpu <= {here}",
            )

    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        """Start a process that carries the workflow out; see `Runner.submit`."""
        if request.workflow is None:
            raise DeployError("the job has no workflow", hint="job: {workflow: FILE}", retryable=False)
        folder = request.folder.absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / ORDER, json.dumps(self._document(request, request.workflow)))
        except OSError as error:
            raise folder_error(error, folder) from error
        wall = request.limits.wall_seconds
        limits = request.limits
        if wall is not None:
            # The process itself keeps the limit, which is one of the makespan.
            limits = replace(limits, wall_seconds=wall * max(1.0, self.settings.scale) + _START_SECONDS)
        argv = (sys.executable, "-m", "tradewind.workflow.job.local_run", str(folder))
        return super().submit(replace(request, argv=argv, limits=limits), machines)

    def _document(self, request: RunRequest, workflow: WorkflowJob) -> dict[str, object]:
        given = self.settings
        return {
            "workflow": asdict(workflow),
            "offer": request.offer.to_json(),
            "wall_seconds": request.limits.wall_seconds,
            "inputs": None if given.inputs is None else str(given.inputs),
            "data_folder": str(self.data_folder.absolute()),
            **given.model_dump(include={"speeds", "seed", "isolate", "retries", "synthetic", "commands", "scale"}),
        }

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        """The statuses of some runs, with the makespan as their run time; see `Runner.poll`."""
        found = super().poll(handles)
        folders = {handle.run_id: ProcessData.of(handle).place for handle in handles}
        return {name: _with_makespan(status, folders[name]) for name, status in found.items()}


def _with_makespan(status: RunStatus, folder: Path | None) -> RunStatus:
    if folder is None:
        return status
    result = read_document(folder / RESULT) if status.state.ended else None
    if result is not None:
        status = replace(status, runtime=result["makespan"])
        if result["timed_out"] and status.state is not RunState.DONE:
            reason = timeout_reason(result["makespan"])
            return replace(status, state=RunState.TIMED_OUT, reason=reason, fault=Fault.JOB)
        return replace(status, reason=result["reason"]) if status.state is RunState.FAILED else status
    begun = read_document(folder / BEGUN)
    if status.state.ended:
        # Without a result nobody knows when it ended: its tasks ran no longer than the process did.
        return status if begun else replace(status, runtime=0.0)
    return replace(status, runtime=0.0 if begun is None else max(0.0, time.time() - begun["at"]) / begun["scale"])
