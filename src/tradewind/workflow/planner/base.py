"""The contract of a planner of workflows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from tradewind.plugins import Capability, Plugin, Settings
from tradewind.workflow.graph import Workflow
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule
from tradewind.workflow.simulator.reference import Director


class Online(Capability):
    """Planner that decides as the run goes on, from what has really happened: late tasks change where others go."""

    def director(self, flow: Workflow, platform: Platform) -> Director:
        """Make the director that decides during one run of a workflow, simulated or real.

        Args:
            flow: The workflow.
            platform: The machines that its tasks run on.

        Raises:
            WorkflowError: A task fits on no machine.
        """
        raise NotImplementedError


class Planner(Plugin, ABC):
    """Decides which machine runs which task of a workflow, in which order.

    Args:
        settings: Settings of the planner.
        seed: Seed of its random choices, if it makes any.
        data_folder: Below it the planner may keep what it has learned.

    Attributes:
        said: Remark about its last plan, in a few words (``proven optimal``); empty if none.
    """

    def __init__(self, *, settings: Settings, seed: int = 0, data_folder: Path | None = None) -> None:
        self.settings = settings
        self.seed = seed
        self.data_folder = data_folder
        self.said = ""

    @abstractmethod
    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """Plan a workflow, as if every task took its expected time.

        Raises:
            WorkflowError: A task fits on no machine.
        """
