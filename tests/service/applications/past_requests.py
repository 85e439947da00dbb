"""Requests that ended, as the worker leaves them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from typing import Any

import numpy as np
import sqlalchemy as sa

from tradewind.engine.search_builder import build_problem, new_study
from tradewind.problem import Configuration, Observation, Proposal, Trial, TrialState
from tradewind.service.accounts.identity import Principal
from tradewind.service.applications.validation import stored_application
from tradewind.service.context import Context
from tradewind.store.service.applications import ApplicationRow
from tradewind.store.service.request_queries import REQUEST_FIELDS, column_values
from tradewind.store.service.requests import RequestRow
from tradewind.store.sql.schema import requests, studies, trials
from tradewind.store.studies import rows

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
    return 1.0 + 0.01 * work / (nodes * math.pow(threads, 0.8)) + 0.5 * nodes


def add_runs(
    context: Context,
    who: Principal,
    row: ApplicationRow,
    given: Sequence[Mapping[str, Any]],
    *,
    seconds: Law = law,
    metric: Law | None = None,
    noise: float = 0.02,
    seed: int = 0,
    on: Configuration | None = None,
) -> None:
    """A run of each of some parameters, on one or a random configuration, one study each, in one transaction."""
    rng = np.random.default_rng(seed)
    spec = context.applications.spec(row, {}, context.backends.choose(who, row))
    problem = build_problem(spec, context.data_folder)
    study = new_study(spec, name=f"{who.tenant}/{spec.name}")
    now = time.time()
    with context.database.write() as connection:
        first = connection.execute(sa.select(sa.func.coalesce(sa.func.max(studies.c.id), 0))).scalar() or 0
        for number, parameters in enumerate(given, first + 1):
            values = {**stored_application(row).spec.job.parameters.values, **parameters}
            configuration = on or problem.candidates.configuration(int(rng.integers(len(problem.candidates))))
            offer = problem.resolver.resolve(configuration)
            took = seconds(values, configuration) * math.exp(noise * rng.standard_normal())
            cost = spec.billing.cost(took, offer.hourly)
            deadline = spec.constraints.deadline
            judged = metric(values, configuration) if metric else cost if spec.objective.metric == "cost" else took
            observation = Observation(
                objective=judged,
                cost=cost,
                runtime=took,
                metrics={spec.objective.metric: judged} if metric else {},
                feasible=deadline is None or took <= deadline,
            )
            trial = Trial(0, Proposal(configuration), offer, TrialState.SUCCEEDED, problem.trial_key(configuration))
            trial = replace(trial, observation=observation, spent=cost, created=now, started=now, ended=now + took)
            document = {"application": row.reference, "parameters": dict(parameters)}
            request = RequestRow(0, who.tenant, who.user_id, "run", document, spec.name, application_id=row.id)
            request = replace(request, state="done", study_id=number, created=now, updated=now)
            fields = {f.name: getattr(study, f.name) for f in dataclass_fields(study) if f.name != "id"}
            connection.execute(sa.insert(studies).values({**rows.study_values(fields), "id": number}))
            connection.execute(sa.insert(trials).values(rows.trial_values(number, trial)))
            values = {name: getattr(request, name) for name in REQUEST_FIELDS if name != "id"}
            connection.execute(sa.insert(requests).values(column_values(values)))
