"""What the pages of studies, clusters and machines have to show in tests: put into the database as it is."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from tests.service.web.sample_server import Stage
from tests.workflow.execution.test_results import plan, start

from tradewind.problem import Configuration, Observation, Offer, Proposal, Run, RunState, Trial, TrialState
from tradewind.service.context import Context
from tradewind.store.base import Change, StudyRow, this_process
from tradewind.store.clusters.cluster_store import JobRow
from tradewind.store.sql.schema import requests
from tradewind.workflow.execution.journal import JournalRecord, read_history
from tradewind.workflow.execution.results import results_of
from tradewind.workflow.files import write_plan

SPEC: dict[str, Any] = {
    "job": {
        "space": {},
        "objective": {"minimise": "cost"},
        "constraints": {"deadline": 1800.0},
        "budget": {"dollars": "$5000", "trials": 20000},
        "searcher": {"use": "gp"},
    }
}
STATES = (TrialState.SUCCEEDED, TrialState.FAILED, TrialState.ABORTED, TrialState.LOST)
CODECS = ("gzip", "lz4", "none", "zstd")
PAGE = 2500


@dataclass(frozen=True)
class Shelf:
    """What was put there.

    Attributes:
        large: A finished study with many trials.
        small: A study of 60 trials that a process of this machine holds: it is running.
        empty: A study without a trial.
        workflow: A request that has carried a workflow out.
    """

    large: int
    small: int
    empty: int
    workflow: int


def trial(number: int, rng: np.random.Generator, began: float) -> tuple[Trial, Run]:
    """A trial and its run: more machines are quicker, and cost more."""
    cpus, nodes = int(2 ** rng.integers(0, 6)), int(rng.integers(1, 9))
    offer = Offer("aws", f"c7i.{cpus}x", cpus, 2.0 * cpus, 0.045 * cpus, nodes=nodes)
    chosen = Configuration(
        {
            "codec": str(rng.choice(CODECS)),
            "fraction": round(float(rng.random()), 4),
            "instance": offer.instance_type,
            "nodes": nodes,
            "partitions": int(rng.integers(1, 400)),
        }
    )
    runtime = 9000.0 / (cpus * nodes) ** 0.7 * float(rng.lognormal(0, 0.2))
    cost = round(runtime / 3600 * offer.hourly, 9)
    state = STATES[int(rng.choice(4, p=[0.88, 0.06, 0.05, 0.01]))]
    good = state is TrialState.SUCCEEDED
    seen = Observation(
        cost if good or state is TrialState.ABORTED else None,
        cost,
        runtime,
        good and runtime <= 1800,
        state is TrialState.ABORTED,
        {"throughput": 1e6 / runtime},
        reason="" if good else "the program ended with exit code 137",
    )
    at = began + 10.0 * number
    lost = state is TrialState.LOST
    made = Trial(
        number, Proposal(chosen, why={"expected_cost": cost * 1.1, "stage": "after the start"}), offer, state,
        chosen.key, None if lost else seen, cost, 1, at, at, at + runtime,
    )  # fmt: skip
    ended = RunState.PREEMPTED if lost else RunState.DONE
    run = Run(
        f"tw-{began:.0f}-{number}", number, state=ended, cost=cost, runtime=runtime, started=at, ended=at + runtime
    )
    return made, run


def study(context: Context, name: str, count: int, *, ago: float, tenant: str = "physics", seed: int = 0) -> int:
    """A study with so many trials."""
    rng = np.random.default_rng(seed)
    row = context.store.create_study(StudyRow(0, name, name, SPEC, time.time() - ago, owner=f"tw-{name}"))
    for first in range(0, count, PAGE):
        made = [trial(number, rng, row.created) for number in range(first, min(count, first + PAGE))]
        context.store.write(row.id, Change([one for one, _ in made], [run for _, run in made]))
    if tenant:
        context.cluster.submit(
            JobRow(0, tenant, name, {}, study_id=row.id, state="done", reason="done", ended=time.time())
        )
    return row.id


def more(context: Context, study_id: int, number: int, cost: float = 0.001) -> None:
    """One more trial, better than all others."""
    made, run = trial(number, np.random.default_rng(99), time.time() - 5.0)
    offer = Offer("aws", "c7i.1x", 1, 2.0, 0.045)
    seen = Observation(cost, cost, 60.0, feasible=True)
    best = Trial(number, made.proposal, offer, TrialState.SUCCEEDED, f"best-{number}", seen, cost, 1, made.created,
                 made.created, time.time())  # fmt: skip
    context.store.write(study_id, Change([best], [run]))


def fill(scene: Stage, folder: Path, trials: int) -> Shelf:
    """Put everything there.

    Args:
        scene: The server.
        folder: For the files of a workflow.
        trials: Trials of the large study.
    """
    context = scene.context
    large = study(context, "terasort", trials, ago=2e5)
    context.store.write(large, Change(study={"state": "finished", "reason": "nothing better is to be expected"}))
    empty = study(context, "nothing yet", 0, ago=60.0, tenant="")
    small = study(context, "openfoam", 60, ago=900.0, seed=1)
    context.store.hold(small, this_process(), 3600.0)
    running = Run("tw-now", 0, attempt=2, state=RunState.EXECUTING, started=time.time() - 100, reserved=0.5)
    context.store.write(small, Change(runs=[running]))
    _cluster(context, small)
    return Shelf(large, small, empty, _workflow(scene, folder))


def _cluster(context: Context, study_id: int) -> None:
    tenants = {
        name: {"weight": weight, "share": share, "used": {"cpu": 64 * share, "memory": 200 * share},
               "usage": {"cpu": 3600.0 * hours}, "running": runs, "waiting": waits}
        for name, weight, share, hours, runs, waits in (
            ("physics", 2.0, 0.42, 812.5, 27, 14), ("biology", 1.0, 0.31, 402.0, 20, 9), ("history", 1.0, 0.0, 1, 0, 0))
    }  # fmt: skip
    jobs = [
        {"id": number, "tenant": tenant, "name": name, "state": "running", "submitted": time.time() - 900.0,
         "running": 3, "waiting": waits, "why": why, "trials": 60, "most": 100, "best": 0.14, "metric": "cost",
         "spent": 12.5, "study": study_id if tenant == "physics" else None}
        for number, tenant, name, waits, why in (
            (91, "physics", "openfoam", 4, "it has stopped improving and gives way"),
            (92, "biology", "blast", 0, ""))
    ]  # fmt: skip
    nodes = {
        f"n{i}": {"has": {"cpu": 16, "memory": 64.0}, "free": {"cpu": 4 * i, "memory": 10.0 * i}} for i in range(4)
    }
    snapshot = {"total": {"cpu": 64, "memory": 256.0}, "nodes": nodes, "tenants": tenants, "decisions": 1, "jobs": jobs}
    settings = {"engine": "slurm", "fairness": "drf", "priority": "gain"}
    token = context.cluster.hold("default", this_process(), 3600.0, settings)
    context.cluster.renew("default", token, 3600.0, snapshot)


def _workflow(scene: Stage, folder: Path) -> int:
    """Give a request that is done the files of a workflow's run."""
    place = folder / "outputs/plan.run"
    place.mkdir(parents=True)
    write_plan(folder / "outputs/plan.json", plan())
    lines: list[JournalRecord] = [
        {"e": "session", "at": 90.0},
        {"e": "up", "at": 99.0, "vm": "fast"},
        {"e": "began", "at": 100.0},
    ]
    for task, vm, begin, seconds in (("a", "fast", 100.0, 6.0), ("b", "fast", 106.0, 30.0), ("c", "slow", 106.0, 20.0)):
        ended = {"outcome": "done", "start": begin, "finish": begin + seconds, "seconds": seconds}
        lines += [start(task, begin, vm), {"e": "end", "at": begin + seconds, "task": task, "attempt": 1, **ended}]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    (place / "journal.jsonl").write_bytes(text)
    document = results_of(plan(), read_history(text, "journal.jsonl"), engine="local", ending="done", now=200.0)
    (place / "results.json").write_text(json.dumps(document))
    context, number = scene.context, scene.numbers["done"]
    mine = context.store.create_study(StudyRow(0, "its run", "w", {}, time.time(), owner="tw-its-run"))
    chosen = Configuration({})
    one = Trial(0, Proposal(chosen), Offer("local", "c1", 1, 1, 0.1), TrialState.SUCCEEDED, chosen.key, created=1.0)
    run = Run("tw-its-run-0", 0, state=RunState.DONE, started=1.0, ended=2.0, folder=str(folder))
    context.store.write(mine.id, Change([one], [run]))
    with context.database.write() as connection:
        connection.execute(sa.update(requests).where(requests.c.id == number).values(study_id=mine.id))
    return number
