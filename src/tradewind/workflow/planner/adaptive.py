"""List scheduling that learns machine speeds during a run, as a planner."""

from __future__ import annotations

from tradewind.workflow.learning.learners import AdaptiveSettings
from tradewind.workflow.learning.learning_planner import LearningPlanner


class AdaptivePlanner(LearningPlanner):
    """HEFT's ranks; each task goes where it is expected to end first, by the speeds seen during the run.

    For machines whose speeds are unknown, drift or vary; where everything is as stated, a search plans better. The
    weights of its expectations were learned over simulated worlds, and can be learned anew for a workflow
    (``episodes``).
    """

    name = "adaptive"
    method = "adaptive"
    Settings = AdaptiveSettings
