"""Base class of the planners that learn."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tradewind.workflow.graph import Workflow
from tradewind.workflow.learning.learners import Learner
from tradewind.workflow.learning.training_folder import TrainingFolder, digest, open_learner
from tradewind.workflow.planner.base import Online, Planner
from tradewind.workflow.planner.list_scheduling import MachineArrays, is_plain
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule
from tradewind.workflow.simulator.reference import Director, simulate
from tradewind.workflow.simulator.world import World


class LearningPlanner(Planner, Online):
    """Learns from simulated runs before it plans.

    With a data folder, what was learned about a workflow and its machines is kept there and used again.

    Attributes:
        method: The name of its learner.
    """

    method: ClassVar[str]

    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """The best of the policy learned, and, where nothing deviates, of all runs that it was learned from.

        Raises:
            WorkflowError: A task fits on no machine, or what the data folder has cannot be used.
        """
        if not len(flow):
            return Schedule(np.zeros(0, dtype=np.int32), np.zeros(0), np.zeros(0))
        learner, best = self._learned(flow, platform)
        # By the readable simulator: it also knows files on the machines' own disks.
        found = simulate(flow, platform, learner.director(), World())
        plan = found if best is None or found.makespan <= best.makespan else best
        if not is_plain(flow, platform):
            return MachineArrays(flow, platform).follow(plan)
        return Schedule(plan.vm, plan.start, plan.finish)

    def director(self, flow: Workflow, platform: Platform) -> Director:
        """The policy learned, for one run.

        Raises:
            WorkflowError: A task fits on no machine, or what the data folder has cannot be used.
        """
        return self._learned(flow, platform)[0].director()

    def _learned(self, flow: Workflow, platform: Platform) -> tuple[Learner, Schedule | None]:
        """The learner after its episodes, and the best of them where they ran as a plan says."""
        given = self.settings.model_dump()
        learner = open_learner(self.method, flow, platform, given, self.seed)
        folder, best = None, None
        usable = learner.certain and platform.storage != "local"
        if self.data_folder is not None and given["episodes"]:
            path = self.data_folder / self.method / f"{digest(flow, platform)}-{learner.fingerprint}"
            folder = TrainingFolder(path, learner, given, resume=True)
            for episode in folder.recall():
                if usable and (best is None or episode.makespan < best.makespan):
                    best = episode.schedule
        while learner.episodes < given["episodes"]:
            episode = learner.step()
            if folder is not None:
                folder.keep(episode)
            if usable and (best is None or episode.makespan < best.makespan):
                best = episode.schedule
        return learner, best
