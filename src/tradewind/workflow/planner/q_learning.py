"""Paper 3's scheduler as a planner."""

from __future__ import annotations

from tradewind.workflow.learning.learning_planner import LearningPlanner
from tradewind.workflow.learning.q_learning import QLearningSettings


class QLearningPlanner(LearningPlanner):
    """Q-learning over simulated runs, as paper 3 (WorkflowSim4RL) has it; longer plans than HEFT's are to be expected.

    Olimpio, Nascimento, Paes and de Oliveira, "WorkflowSim4RL: Aprendizado por Reforço Aplicado ao Escalonamento de
    Workflows Científicos em Nuvens". It is here to be compared with; ``adaptive`` is the method for work.
    """

    name = "q_learning"
    method = "q_learning"
    Settings = QLearningSettings
