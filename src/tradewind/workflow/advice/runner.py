"""A runner whose trials are plans: the job's workflow is planned on the machines of each trial, and nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tradewind import plugins
from tradewind.deployer.runner.base import RunsWorkflows
from tradewind.deployer.runner.simulated import SimulatedOutcome, SimulatedRunner
from tradewind.errors import InputError, PluginError, SpecError, WorkflowError
from tradewind.problem import Offer, RunRequest, WorkflowJob
from tradewind.utils.units import format_duration, parse_duration
from tradewind.workflow.advice.offers import MachineAssumptions
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Workflow
from tradewind.workflow.job.preparation import WorkflowPreparation
from tradewind.workflow.planner.base import Online, Planner
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule, check, figures
from tradewind.workflow.simulator.compiled import replay_plan
from tradewind.workflow.simulator.reference import simulate


def _seconds(value: Any) -> float:
    try:
        return parse_duration(value)
    except InputError as error:
        raise ValueError(str(error)) from None


Seconds = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=float | str)]
Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class WorkflowRunnerSettings(plugins.Settings):
    """Settings of the workflow runner: what is assumed of machines."""

    speeds: dict[str, Factor] = Field(
        default_factory=dict,
        description="Speed of one vCPU by instance type, family or pattern; 1 is what the run times are for",
    )
    slots: int | None = Field(None, ge=1, description="Tasks that a machine runs at a time; its vCPUs without it")
    boot: Seconds = Field(0.0, ge=0, description="Time from the order of a machine until it can run a task")
    storage: Literal["none", "shared", "local"] = Field(
        "none", description="What files cost: nothing, a reading from a common file system, or a fetch by each machine"
    )
    bandwidth: float = Field(15.0, gt=0, description="MB/s at which a machine reads files")
    latency: Seconds = Field(0.0, ge=0, description="Time for each file that is read")
    bound: bool = Field(True, description="Compute the lower bound of each makespan; false saves its time")
    seed: int = Field(0, description="Of the planner's chance")
    start: float | None = Field(None, description="First time on the clock, in seconds since 1970; now if empty")


class WorkflowRunner(SimulatedRunner, RunsWorkflows):
    """Plans a workflow on the machines of a trial and simulates it: which machines to take costs nothing to try.

    The offer's instance type and number of nodes are the machines; a run takes the makespan, counted from the order
    of the machines, and costs all of them for so long. Its metrics are those of
    `tradewind.workflow.schedule.ScheduleFigures`. The clock jumps.
    """

    name = "workflow"
    Settings = WorkflowRunnerSettings
    settings: WorkflowRunnerSettings

    def __init__(self, *, settings: WorkflowRunnerSettings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder, start=settings.start)
        self._preparation = WorkflowPreparation(settings.seed, data_folder)

    def check_workflow(self, workflow: WorkflowJob, offer: Offer) -> None:
        """See that the workflow and its planner are there; see `RunsWorkflows.check_workflow`."""
        self._preparation.check(workflow, simulated=True)

    @property
    def terms(self) -> MachineAssumptions:
        """Assumptions that turn offers into machines; the engine adds the cost."""
        given = self.settings
        return MachineAssumptions(given.speeds, given.slots, given.boot, given.storage, given.bandwidth, given.latency)

    def answer(self, request: RunRequest) -> SimulatedOutcome:
        """Plan and simulate; see `SimulatedRunner.answer`."""
        if request.workflow is None:
            return SimulatedOutcome(0.0, "the job has no workflow")
        try:
            flow = self._preparation.flow(request.workflow)
            platform = self.terms.platform(request.offer, flow)
            schedule = simulate_planner(flow, platform, self._preparation.planner(request.workflow))
        except (WorkflowError, PluginError, SpecError) as error:
            return SimulatedOutcome(0.0, str(error))
        return SimulatedOutcome(schedule.makespan, metrics=self._metrics(flow, platform, schedule))

    def _metrics(self, flow: Workflow, platform: Platform, schedule: Schedule) -> dict[str, float]:
        least = lower_bound(flow, platform) if self.settings.bound else 0.0
        found = figures(flow, platform, schedule, least)
        bound = {"lower_bound": found.lower_bound, "gap": found.gap} if self.settings.bound else {}
        return {
            "makespan": found.makespan,
            **bound,
            "serial": found.serial,
            "speedup": found.speedup,
            "utilisation": found.utilisation,
        }


def simulate_planner(flow: Workflow, platform: Platform, planner: Planner) -> Schedule:
    """Simulate a planner's decisions in a world where every task takes its expected time.

    Raises:
        WorkflowError: A task fits on no machine, or the plan breaks a rule.
    """
    if isinstance(planner, Online):
        return simulate(flow, platform, planner.director(flow, platform))
    schedule = replay_plan(flow, platform, planner.plan(flow, platform))
    check(flow, platform, schedule)
    return schedule


def offer_words(offers: Sequence[Offer]) -> str:
    """Write a set of machines in words: ``1 x c7i.2xlarge + 4 x c7i.large``."""
    return " + ".join(f"{offer.nodes} x {offer.instance_type}" for offer in offers)


def rounded_up_duration(seconds: float) -> str:
    """Write seconds as a duration, rounded up to whole seconds."""
    return format_duration(float(-(-seconds // 1)))
