"""A runner whose trials are plans: a workflow is planned on the machines of each trial, and nothing is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from tradewind import plugins
from tradewind.deployer.runner.simulated import SimulatedOutcome, SimulatedRunner
from tradewind.errors import InputError, WorkflowError
from tradewind.problem import Offer, RunRequest
from tradewind.utils.units import format_duration, parse_duration
from tradewind.workflow.advice.offers import MachineAssumptions
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.files import read_workflow
from tradewind.workflow.graph import Workflow
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
    """Settings of the workflow runner."""

    file: Path = Field(description="The workflow: DAX, WfFormat, Pegasus 5 or own YAML; .gz is unpacked")
    planner: str | dict[str, Any] = Field(
        "heft", description="The planner: a name, or {use: NAME, ...} with settings; tradewind plugins lists them"
    )
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
    lenient: bool = Field(False, description="Accept sizes and run times below zero")
    declared_edges: bool = Field(False, description="Keep declared edges only, without those that files imply")
    bound: bool = Field(True, description="Compute the lower bound of each makespan; false saves its time")
    seed: int = Field(0, description="Of the planner's chance")
    start: float | None = Field(None, description="First time on the clock, in seconds since 1970; now if empty")

    @field_validator("planner")
    @classmethod
    def _named(cls, given: str | dict[str, Any]) -> str | dict[str, Any]:
        if isinstance(given, dict) and not isinstance(given.get("use"), str):
            raise ValueError("name the planner with use: {use: search, seconds: 1}")
        return given


class WorkflowRunner(SimulatedRunner):
    """Plans a workflow on the machines of a trial and simulates it: which machines to take costs nothing to try.

    The offer's instance type and number of nodes are the machines; a run takes the makespan, counted from the order
    of the machines, and costs all of them for so long. Its metrics are those of
    `tradewind.workflow.schedule.ScheduleFigures`. The job's command is not run. The clock jumps.
    """

    name = "workflow"
    Settings = WorkflowRunnerSettings
    settings: WorkflowRunnerSettings

    def __init__(self, *, settings: WorkflowRunnerSettings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder, start=settings.start)
        len(self.flow)  # a wrong file, or a wrong planner, stops the search before its first trial
        _ = self.planner

    @cached_property
    def flow(self) -> Workflow:
        """The workflow.

        Raises:
            WorkflowError: Its file cannot be read, or has an error.
        """
        given = self.settings
        return read_workflow(given.file, lenient=given.lenient, declared_edges=given.declared_edges)

    @cached_property
    def planner(self) -> Planner:
        """The planner that is run on the machines of each trial.

        Raises:
            PluginError: There is no such planner.
            SpecError: One of its settings is wrong.
        """
        return make_planner(self.settings.planner, self.settings.seed, self.data_folder)

    @property
    def terms(self) -> MachineAssumptions:
        """Assumptions that turn offers into machines; the engine adds the cost."""
        given = self.settings
        return MachineAssumptions(given.speeds, given.slots, given.boot, given.storage, given.bandwidth, given.latency)

    def answer(self, request: RunRequest) -> SimulatedOutcome:
        """Plan and simulate; see `SimulatedRunner.answer`."""
        try:
            platform = self.terms.platform(request.offer, self.flow)
            schedule = simulate_planner(self.flow, platform, self.planner)
        except WorkflowError as error:
            return SimulatedOutcome(0.0, str(error))
        return SimulatedOutcome(schedule.makespan, metrics=self._metrics(platform, schedule))

    def _metrics(self, platform: Platform, schedule: Schedule) -> dict[str, float]:
        least = lower_bound(self.flow, platform) if self.settings.bound else 0.0
        found = figures(self.flow, platform, schedule, least)
        bound = {"lower_bound": found.lower_bound, "gap": found.gap} if self.settings.bound else {}
        return {
            "makespan": found.makespan,
            **bound,
            "serial": found.serial,
            "speedup": found.speedup,
            "utilisation": found.utilisation,
        }


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
