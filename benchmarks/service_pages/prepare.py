"""Fills a store for the measurement of pages: a study of 10,000 trials, 1,000 requests of 20 users, 40 other studies.

python benchmarks/service_pages/prepare.py FOLDER [TRIALS [REQUESTS]]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from tradewind.problem import Configuration, Observation, Offer, Proposal, Run, RunState, Trial, TrialState
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context, open_context
from tradewind.service.settings import ServiceSettings
from tradewind.store.base import Change, StudyRow, this_process
from tradewind.store.clusters.cluster_store import JobRow
from tradewind.store.service.request_values import OPEN, NewRequestEvent, RequestRow

PASSWORD = "correct horse battery"
SPEC = {
    "job": {
        "space": {},
        "objective": {"minimise": "cost"},
        "constraints": {"deadline": 1800.0},
        "budget": {"dollars": "$5000", "trials": 20000},
        "searcher": {"use": "gp"},
    }
}
STATES = (TrialState.SUCCEEDED, TrialState.FAILED, TrialState.ABORTED)
CODECS = ("gzip", "lz4", "none", "zstd")
ENDINGS = ("done", "done", "done", "failed", "timed_out", "cancelled", "preempted")
PAGE = 2500

APPLICATION = """\
name: plate
job: {command: "true"}
space: {instance: {types: [local.c1]}}
application:
  title: Heat in a plate
  description: Solves the heat equation on a square plate.
  fields:
    size: {type: integer, title: Points across, default: 200, min: 10, max: 4000}
"""


def one(number: int, rng: np.random.Generator, began: float) -> tuple[Trial, Run]:
    """A trial and its run."""
    cpus, nodes = int(2 ** rng.integers(0, 6)), int(rng.integers(1, 9))
    offer = Offer("aws", f"c7i.{cpus}x", cpus, 2.0 * cpus, 0.045 * cpus, nodes=nodes)
    settings = {
        "instance": offer.instance_type,
        "nodes": nodes,
        "partitions": int(rng.integers(1, 400)),
        "codec": str(rng.choice(CODECS)),
        "fraction": round(float(rng.random()), 4),
    }
    runtime = 9000.0 / (cpus * nodes) ** 0.7 * float(rng.lognormal(0, 0.2))
    cost = round(runtime / 3600 * offer.hourly, 9)
    state = STATES[int(rng.choice(3, p=[0.9, 0.05, 0.05]))]
    good = state is TrialState.SUCCEEDED
    reason = "" if good else "the program ended with exit code 137"
    objective = None if state is TrialState.FAILED else cost
    seen = Observation(objective, cost, runtime, good and runtime <= 1800, state is TrialState.ABORTED, reason=reason)
    at, chosen = began + number, Configuration(settings)
    trial = Trial(number, Proposal(chosen), offer, state, chosen.key, seen, cost, 1, at, at, at + runtime)
    name = f"tw-{began:.3f}-{number}"
    return trial, Run(name, number, state=RunState.DONE, cost=cost, runtime=runtime, started=at, ended=at + runtime)


def study(context: Context, name: str, count: int, rng: np.random.Generator) -> int:
    """A finished study of the tenant ``physics``."""
    began = time.time() - 1e5 - 1e3 * float(rng.random())
    row = context.store.create_study(StudyRow(0, name, name, SPEC, began, owner=f"tw-{name}"))
    for first in range(0, count, PAGE):
        made = [one(number, rng, began) for number in range(first, min(count, first + PAGE))]
        context.store.write(row.id, Change([trial for trial, _ in made], [run for _, run in made]))
    context.store.write(row.id, Change(study={"state": "finished", "reason": "the budget is spent", "elapsed": 9e3}))
    context.cluster.submit(JobRow(0, "physics", name, {}, study_id=row.id, state="done", reason="done"))
    return row.id


def requests(context: Context, people: list[Principal], count: int, rng: np.random.Generator) -> None:
    """Requests that are over, but for some."""
    application = context.applications.get(people[0], "plate")
    for number in range(count):
        who = people[number % len(people)]
        at = time.time() - 60.0 * (count - number)
        document = {"application": application.reference, "parameters": {"size": 100 + number}}
        row = RequestRow(0, who.tenant, who.user_id, "run", document, f"plate {number}", application_id=application.id)
        stored, _ = context.requests.store.add(row, NewRequestEvent("pending", f"asked for by {who.name}", at=at))
        state = "executing" if number % 50 == 0 else str(rng.choice(ENDINGS))
        over = {} if state == "executing" else {"ended": at + 55.0}
        facts = {"state": state, "started": at + 2.0, "cost": round(float(rng.random()), 4), **over}
        context.requests.store.change_free(stored.id, OPEN, facts, NewRequestEvent(state, f"it is {state}"))


def cluster(context: Context) -> None:
    """A cluster with ten tenants and a hundred searches."""
    total = {"cpu": 512.0, "memory": 2048.0}
    nodes = {f"n{i}": {"has": {"cpu": 16.0, "memory": 64.0}, "free": {"cpu": 2.0, "memory": 9.0}} for i in range(32)}
    usual = {"weight": 1.0, "share": 0.08, "used": {"cpu": 41.0}, "usage": {"cpu": 3.6e6}, "running": 9, "waiting": 3}
    tenants = {f"tenant{number}": usual for number in range(9)} | {"physics": {**usual, "weight": 2.0, "share": 0.2}}
    search = {
        "state": "running",
        "submitted": time.time() - 900.0,
        "running": 1,
        "waiting": 2,
        "trials": 60,
        "most": 200,
    }
    search |= {"best": 0.1, "metric": "cost", "spent": 3.0, "why": "others are due before it, or no node has room"}
    jobs = [
        {**search, "id": number, "tenant": "physics" if number % 2 else "tenant1", "name": f"search {number}"}
        for number in range(100)
    ]
    token = context.cluster.hold("default", this_process(), 86400.0, {"engine": "slurm", "fairness": "drf"})
    snapshot = {"total": total, "nodes": nodes, "tenants": tenants, "decisions": 1, "jobs": jobs}
    context.cluster.renew("default", token, 86400.0, snapshot)


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    trials = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 1_000
    folder.mkdir(parents=True, exist_ok=True)
    context = open_context(ServiceSettings(), f"sqlite:///{folder / 'tradewind.db'}", folder)
    rng = np.random.default_rng(0)
    people = []
    for number in range(20):
        name = "ann" if number == 0 else f"user{number:02d}"
        row = context.accounts.add_user(name, tenant="physics", password=PASSWORD if number == 0 else None)
        people.append(Principal(row.id, row.name, "user", row.tenant))
    root = context.accounts.add_user("root", role="admin", password=PASSWORD)
    context.applications.register(Principal(root.id, "root", "admin", root.tenant), APPLICATION, shared=True)
    large = study(context, "terasort", trials, rng)
    for number in range(40):
        study(context, f"study {number}", 60, rng)
    requests(context, people, count, rng)
    cluster(context)
    context.close()
    print(f"study {large} has {trials:,} trials; {count:,} requests; {folder / 'tradewind.db'}")


if __name__ == "__main__":
    main()
