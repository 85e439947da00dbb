"""Floor 1: the frozen types that all rooms speak in."""

from tradewind.problem.candidates import Candidates
from tradewind.problem.configuration import Configuration, Value, stable_hash
from tradewind.problem.expression import Expression
from tradewind.problem.features import Features
from tradewind.problem.job import Job
from tradewind.problem.objective import (
    COST,
    RUNTIME,
    Budget,
    Constraints,
    Direction,
    JobParameters,
    Objective,
    Threshold,
)
from tradewind.problem.offer import Billing, Offer, round_money
from tradewind.problem.parameter import ENUMERABLE, Categorical, Float, Instance, Integer, Nodes, Ordinal, Parameter
from tradewind.problem.past import PastStudy
from tradewind.problem.problem import Problem, Resolver, StudyTerms
from tradewind.problem.query import OfferQuery
from tradewind.problem.run import (
    LOCALHOST,
    Fault,
    Handle,
    Limits,
    Load,
    Machine,
    Run,
    RunOutput,
    RunRequest,
    RunState,
    RunStatus,
    Usage,
)
from tradewind.problem.space import Codes, Space
from tradewind.problem.trial import STOPPED_EARLY, Observation, Proposal, Trial, TrialState

__all__ = [
    "COST",
    "ENUMERABLE",
    "LOCALHOST",
    "RUNTIME",
    "STOPPED_EARLY",
    "Billing",
    "Budget",
    "Candidates",
    "Categorical",
    "Codes",
    "Configuration",
    "Constraints",
    "Direction",
    "Expression",
    "Fault",
    "Features",
    "Float",
    "Handle",
    "Instance",
    "Integer",
    "Job",
    "JobParameters",
    "Limits",
    "Load",
    "Machine",
    "Nodes",
    "Objective",
    "Observation",
    "Offer",
    "OfferQuery",
    "Ordinal",
    "Parameter",
    "PastStudy",
    "Problem",
    "Proposal",
    "Resolver",
    "Run",
    "RunOutput",
    "RunRequest",
    "RunState",
    "RunStatus",
    "Space",
    "StudyTerms",
    "Threshold",
    "Trial",
    "TrialState",
    "Usage",
    "Value",
    "round_money",
    "stable_hash",
]
