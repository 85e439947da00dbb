"""Floor 1: the frozen types that all rooms speak in.

The names load when they are first used: a program that only lists offers does not pay for numpy and the job's schema.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tradewind.problem.columns.offer_features import Features
    from tradewind.problem.configuration import Configuration, Value, stable_hash
    from tradewind.problem.expression import Expression
    from tradewind.problem.job import Job
    from tradewind.problem.objective import (
        COST,
        OWN_METRICS,
        RUNTIME,
        UNINTERRUPTED_COST,
        UNINTERRUPTED_RUNTIME,
        Budget,
        Constraints,
        Direction,
        JobParameters,
        Objective,
        Threshold,
    )
    from tradewind.problem.offer import Billing, Interruptions, MachineParameters, Offer, OfferQuery, round_money
    from tradewind.problem.parameter import (
        ENUMERABLE,
        Categorical,
        Float,
        Instance,
        Integer,
        Nodes,
        Ordinal,
        Parameter,
    )
    from tradewind.problem.problem import Candidates, PastStudy, Problem, Resolver, StudyTerms
    from tradewind.problem.run import (
        LOCALHOST,
        CheckpointPlan,
        Fault,
        Gang,
        Handle,
        Limits,
        Load,
        Machine,
        MachineLease,
        Payer,
        Run,
        RunOutput,
        RunPreemption,
        RunRequest,
        RunState,
        RunStatus,
        TakenMachines,
        TenantShare,
        Usage,
        WorkflowJob,
    )
    from tradewind.problem.space import Codes, Space
    from tradewind.problem.trial import ENQUEUED, STOPPED_EARLY, Observation, Proposal, Trial, TrialState

_PLACES = {
    "Billing": "offer",
    "Budget": "objective",
    "COST": "objective",
    "Candidates": "problem",
    "Categorical": "parameter",
    "CheckpointPlan": "run",
    "Codes": "space",
    "Configuration": "configuration",
    "Constraints": "objective",
    "Direction": "objective",
    "ENQUEUED": "trial",
    "ENUMERABLE": "parameter",
    "Expression": "expression",
    "Fault": "run",
    "Gang": "run",
    "Features": "columns.offer_features",
    "Float": "parameter",
    "Handle": "run",
    "Instance": "parameter",
    "Integer": "parameter",
    "Interruptions": "offer",
    "Job": "job",
    "JobParameters": "objective",
    "LOCALHOST": "run",
    "Limits": "run",
    "Load": "run",
    "Machine": "run",
    "MachineLease": "run",
    "Payer": "run",
    "RunPreemption": "run",
    "MachineParameters": "offer",
    "Nodes": "parameter",
    "OWN_METRICS": "objective",
    "Objective": "objective",
    "Observation": "trial",
    "Offer": "offer",
    "OfferQuery": "offer",
    "Ordinal": "parameter",
    "Parameter": "parameter",
    "PastStudy": "problem",
    "Problem": "problem",
    "Proposal": "trial",
    "RUNTIME": "objective",
    "Resolver": "problem",
    "Run": "run",
    "RunOutput": "run",
    "RunRequest": "run",
    "RunState": "run",
    "RunStatus": "run",
    "STOPPED_EARLY": "trial",
    "Space": "space",
    "StudyTerms": "problem",
    "TakenMachines": "run",
    "TenantShare": "run",
    "Threshold": "objective",
    "Trial": "trial",
    "TrialState": "trial",
    "UNINTERRUPTED_COST": "objective",
    "UNINTERRUPTED_RUNTIME": "objective",
    "Usage": "run",
    "Value": "configuration",
    "WorkflowJob": "run",
    "round_money": "offer",
    "stable_hash": "configuration",
}

__all__ = [
    "COST",
    "ENQUEUED",
    "ENUMERABLE",
    "LOCALHOST",
    "OWN_METRICS",
    "RUNTIME",
    "STOPPED_EARLY",
    "UNINTERRUPTED_COST",
    "UNINTERRUPTED_RUNTIME",
    "Billing",
    "Budget",
    "Candidates",
    "Categorical",
    "CheckpointPlan",
    "Codes",
    "Configuration",
    "Constraints",
    "Direction",
    "Expression",
    "Fault",
    "Features",
    "Float",
    "Gang",
    "Handle",
    "Instance",
    "Integer",
    "Interruptions",
    "Job",
    "JobParameters",
    "Limits",
    "Load",
    "Machine",
    "MachineLease",
    "MachineParameters",
    "Nodes",
    "Objective",
    "Observation",
    "Offer",
    "OfferQuery",
    "Ordinal",
    "Parameter",
    "PastStudy",
    "Payer",
    "Problem",
    "Proposal",
    "Resolver",
    "Run",
    "RunOutput",
    "RunPreemption",
    "RunRequest",
    "RunState",
    "RunStatus",
    "Space",
    "StudyTerms",
    "TakenMachines",
    "TenantShare",
    "Threshold",
    "Trial",
    "TrialState",
    "Usage",
    "Value",
    "WorkflowJob",
    "round_money",
    "stable_hash",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'tradewind.problem' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"tradewind.problem.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
