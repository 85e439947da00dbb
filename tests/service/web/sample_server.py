"""A server with a worker, people, applications and requests in every state, for tests in a real browser."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from tests.service.live_server import principal, served

from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context, open_context
from tradewind.service.requests.worker import RequestWorker
from tradewind.service.settings import ServiceSettings
from tradewind.store import codec
from tradewind.store.service.request_values import ACTIVE, NewRequestEvent, RequestRow, RequestState
from tradewind.store.sql.leases import REQUEST_LEASES
from tradewind.store.sql.schema import request_events, requests

PASSWORD = "correct horse battery"

PLATE = """\
name: plate
job:
  command: python3 plate.py {{ size }} {{ steps }} {{ seconds }} {{ code }}
space:
  instance: {types: [local.c1, local.g1]}
  threads: {type: integer, low: 1, high: 4}
objective: {minimise: cost}
constraints: {deadline: 20m}
deploy: {billing: {granularity: 1ms}}
application:
  title: Heat in a plate
  description: Solves the heat equation on a square plate, and writes what it found.
  fields:
    size:
      {type: integer, title: Points across, help: So many squared., default: 200, min: 10, max: 4000, unit: points}
    steps: {type: integer, title: Time steps, default: 3, min: 1, max: 1000}
    solver: {type: choice, title: Solver, choices: [explicit, implicit], default: explicit}
    tolerance: {type: number, title: Tolerance, default: 0.001, min: 0.0001, max: 1, when: {solver: [implicit]}}
    label: {type: text, title: Label, default: '', help: Stands in the head of the output.}
    pictures: {type: boolean, title: Write pictures, default: false}
    start: {type: file, title: Temperatures to start from, required: false, suffix: .csv, max: 1}
    seconds: {type: number, title: Seconds, default: 0, min: 0, max: 60}
    code: {type: integer, title: Exit code, default: 0, min: 0, max: 100}
  files:
    plate.py: |
      import os, sys, time
      size, steps, seconds, code = sys.argv[1:]
      for step in range(int(steps)):
          print("plate", size, "step", step + 1, flush=True)
      time.sleep(float(seconds))
      if int(code):
          print("the grid does not fit into memory", file=sys.stderr)
          sys.exit(int(code))
      with open(os.path.join(os.environ["TRADEWIND_OUTPUTS"], "heat.csv"), "w") as out:
          out.write("1,2,3\\n")
"""
"""An application with a field of every type, which takes as long and ends as its form says."""

GREET = """\
name: greet
job:
  command: [echo, "{{ greeting }}"]
space:
  instance: {types: [local.c1]}
application:
  title: Greeting
  fields:
    greeting: {type: text, title: What it says, default: hello, data: [command.1]}
"""


@dataclass(frozen=True)
class Stage:
    """A server that answers.

    Attributes:
        context: What its parts share.
        url: Its address.
        ann: A user of ``physics``, with requests in every state.
        numbers: Numbers of those requests, by state.
    """

    context: Context
    url: str
    ann: Principal
    numbers: dict[str, int]

    def submit(self, **document: Any) -> RequestRow:
        """Ask for a run of the plate on the smallest machine."""
        given = {"application": "plate", "configuration": {"instance": "local.c1", "threads": 1}, **document}
        return self.context.requests.submit(self.ann, given)

    def wait(self, number: int, state: str, seconds: float = 20.0) -> RequestRow:
        """A request once it is in a state."""
        deadline = time.monotonic() + seconds
        while (row := self.context.requests.get(self.ann, number)).state != state:
            assert time.monotonic() < deadline, f"request {number} is {row.state} ({row.problem}), not {state}"
            assert not row.over, f"request {number} is {row.state} ({row.problem}), not {state}"
            time.sleep(0.05)
        return row


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Such a server, until the block ends."""
    settings = ServiceSettings(event_seconds=0.1)
    context = open_context(settings, f"sqlite:///{folder}/service.db", folder / "home")
    stop = threading.Event()
    worker = threading.Thread(target=RequestWorker(context).run, args=(stop, 2.0), daemon=True)
    try:
        people(context)
        ann = principal(context, "ann")
        numbers = {state: put(context, ann, **facts) for state, facts in STATES.items()}
        worker.start()
        with served(context) as url:
            yield Stage(context, url, ann, numbers)
    finally:
        stop.set()
        worker.join(20.0)
        context.close()


def people(context: Context) -> None:
    """Users of two tenants, one of whom has asked for nothing yet, and two applications that all see."""
    users = (
        ("ann", "user", "physics"),
        ("bob", "user", "biology"),
        ("eve", "user", "physics"),
        ("root", "admin", "root"),
    )
    for name, role, tenant in users:
        address = f"{name}@example.org"
        context.accounts.add_user(name, role=role, tenant=tenant, email=address, password=PASSWORD)  # type: ignore[arg-type]
    root = principal(context, "root")
    context.applications.register(root, PLATE, shared=True)
    context.applications.register(root, GREET, shared=True)


_MACHINES = {"offer": "aws/us-east-1/c5.xlargex2", "run": "r1"}
_PLAN = {
    "backend": "local",
    "configuration": {"instance": "c5.xlarge", "threads": 4},
    "predicted": {"runtime": 320.0, "runtime_low": 250.0, "runtime_high": 400.0, "cost": 0.02},
}
_BEST = {
    "objective": 0.0281,
    "trial": 9,
    "offer": "aws/us-east-1/c5.xlargex2",
    "configuration": {"instance": "c5.xlarge", "threads": 4},
}

STATES: dict[str, dict[str, Any]] = {
    "done": {"name": "coarse grid", "state": "done", "cost": 0.0214, "progress": _MACHINES, "plan": _PLAN},
    "failed": {
        "name": "fine grid",
        "state": "failed",
        "cost": 0.0071,
        "progress": _MACHINES,
        "problem": "the program ended with exit code 1: cannot allocate 12.4 GiB of memory",
        "hint": "resubmit it with more memory",
    },
    "timed_out": {"name": "finest grid", "state": "timed_out", "problem": "it took longer than 20m 00s"},
    "preempted": {"name": "on spot machines", "state": "preempted", "problem": "the machines were taken back"},
    "cancelled": {"name": "never mind", "state": "cancelled", "problem": "cancelled by ann"},
    "search": {
        "name": "search over threads",
        "state": "executing",
        "kind": "search",
        "cost": 1.31,
        "plan": {"dollars": 1.5},
        "progress": {
            "trials": 14,
            "states": {"succeeded": 11, "failed": 2, "aborted": 1},
            "best": _BEST,
            "metric": "cost",
            "budget": {"dollars": 1.5, "hours": 0.5},
        },
    },
    "executing": {
        "name": "plate for the paper",
        "state": "executing",
        "cost": 0.0118,
        "progress": {**_MACHINES, "cost": 0.0118},
        "plan": _PLAN,
    },
}
"""Requests that nobody carries out: they stay as they are."""


def put(
    context: Context,
    who: Principal,
    *,
    name: str,
    state: RequestState,
    kind: Any = "run",
    cost: float = 0.0,
    ago: float = 600.0,
    took: float = 300.0,
    size: int = 200,
    **fields: Any,
) -> int:
    """Put a request into the database as one that a worker has brought so far."""
    application = context.applications.get(who, "plate")
    began = time.time() - ago
    document = {"application": application.reference, "parameters": {"size": size}, "name": name}
    row = RequestRow(0, who.tenant, who.user_id, kind, document, name, application_id=application.id, created=began)
    stored, _ = context.requests.store.add(row, NewRequestEvent("pending", f"asked for by {who.name}", at=began))
    over = state not in ("pending", "executing")
    way: list[RequestState] = ["executing"] if kind == "search" else list(ACTIVE)
    way = way[: way.index(state) + 1] if state in way else way if state == "done" else way[:4]
    events = [
        {"request_id": stored.id, "at": began + 2 + took * index / len(way), "stage": stage, "text": f"{stage} now"}
        for index, stage in enumerate(way)
    ]
    if over:
        events.append({"request_id": stored.id, "at": began + took, "stage": state, "text": fields.get("problem", "")})
    documents = {key: codec.dumps(value) for key, value in fields.items() if key in ("progress", "plan")}
    words = {key: value for key, value in fields.items() if key in ("problem", "hint")}
    values = {"state": state, "cost": cost, "started": began + 2, "ended": began + took if over else None}
    with context.database.write() as connection:
        connection.execute(sa.insert(request_events), [{**event, "details": "{}"} for event in events])
        mine = requests.c.id == stored.id
        connection.execute(sa.update(requests).where(mine).values(values | documents | words))
        if not over:
            REQUEST_LEASES.take(connection, stored.id, "elsewhere", 1e6)
    return stored.id
