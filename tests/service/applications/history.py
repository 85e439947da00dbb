"""Requests that ended, as the worker leaves them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tradewind.engine.assemble import build_problem, new_study
from tradewind.problem import Configuration, Observation, Proposal, Trial, TrialState
from tradewind.service.context import Context
from tradewind.service.people import Principal
from tradewind.store.applications import ApplicationRow
from tradewind.store.base import Change
from tradewind.store.request_rows import Remark, RequestRow

Law = Callable[[Mapping[str, Any], Configuration], float]
"""Seconds of a run with some parameters on some configuration."""

DOCUMENT = """\
name: solver
job:
  command: [solver, "--size={{ size }}", "--steps={{ steps }}", "--threads={{ threads }}"]
space:
  instance: {provider: local}
  nodes: [1, 2, 4, 8]
  threads: [1, 2, 4]
objective: {minimise: cost}
constraints: {deadline: 300s}
application:
  title: Solver
  fields:
    size: {type: integer, min: 1, max: 100000, default: 100}
    steps: {type: integer, min: 1, max: 1000, default: 10}
"""


def law(given: Mapping[str, Any], configuration: Configuration) -> float:
    """A job that scales up to some nodes, and then talks more than it works."""
    nodes, threads = float(configuration["nodes"]), float(configuration["threads"])
    work = float(given["size"]) * float(given["steps"])
    return 1.0 + 0.01 * work / (nodes * threads**0.8) + 0.5 * nodes


def add_runs(
    context: Context,
    who: Principal,
    row: ApplicationRow,
    given: Sequence[Mapping[str, Any]],
    *,
    seconds: Law = law,
    noise: float = 0.02,
    seed: int = 0,
) -> list[RequestRow]:
    """A run of each of some parameters, on a random configuration, one study each."""
    rng = np.random.default_rng(seed)
    backend = context.backends.choose(who, row)
    found = []
    for parameters in given:
        spec = context.applications.spec(row, parameters, backend)
        problem = build_problem(spec, context.data_folder)
        configuration = problem.candidates.configuration(int(rng.integers(len(problem.candidates))))
        offer = problem.resolver.resolve(configuration)
        took = seconds(spec.job.parameters.values, configuration) * math.exp(noise * rng.standard_normal())
        cost = spec.billing.cost(took, offer.hourly)
        study = context.store.create_study(new_study(spec, name=f"{who.tenant}/{spec.name}"))
        observation = Observation(
            objective=cost if spec.objective.metric == "cost" else took,
            cost=cost,
            runtime=took,
            metrics={},
            feasible=spec.constraints.deadline is None or took <= spec.constraints.deadline,
        )
        now = time.time()
        trial = Trial(0, Proposal(configuration), offer, TrialState.SUCCEEDED, problem.trial_key(configuration))
        trial = replace(trial, observation=observation, spent=cost, created=now, started=now, ended=now + took)
        context.store.write(study.id, Change(trials=[trial]))
        document = {"application": row.reference, "parameters": dict(parameters)}
        request = RequestRow(0, who.tenant, who.user_id, "run", document, spec.name, application_id=row.id)
        request = replace(request, state="done", study_id=study.id)
        found.append(context.requests.store.add(request, Remark("done", "ended"))[0])
    return found
