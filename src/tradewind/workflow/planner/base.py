"""The contract of a planner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from tradewind.plugins import Capability, Plugin, Settings
from tradewind.workflow.graph import Workflow
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule
from tradewind.workflow.simulator.reference import Director


class Online(Capability):
    """It decides as the run goes on, from what has really happened: late tasks change where others go."""

    def director(self, flow: Workflow, platform: Platform) -> Director:
        """Who decides during one run of a workflow, simulated or real.

        Args:
            flow: The workflow.
            platform: Its machines.

        Raises:
            WorkflowError: A task fits on no machine.
        """
        raise NotImplementedError


class Planner(Plugin, ABC):
    """Decides which machine runs which task of a workflow, in which order.

    Args:
        settings: Its settings.
        seed: Of its chance, if it has any.
        data_folder: Below it the planner may keep what it has learned.

    Attributes:
        said: What it has to say of its last plan, in a few words (``proven optimal``); empty if nothing.
    """

    def __init__(self, *, settings: Settings, seed: int = 0, data_folder: Path | None = None) -> None:
        self.settings = settings
        self.seed = seed
        self.data_folder = data_folder
        self.said = ""

    @abstractmethod
    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """The schedule of a workflow, as if every task took what it should take.

        Raises:
            WorkflowError: A task fits on no machine.
        """
