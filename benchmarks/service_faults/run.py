"""Kills servers and workers with SIGKILL while they carry requests out, and counts what that has cost.

    python benchmarks/service_faults/run.py --requests 100 --kills 12

Two servers share one PostgreSQL. Requests come in over REST, with keys; meanwhile the worker of one server, a server,
or both at once are killed at random moments, and what was killed is started again. At the end the rows are compared
with what the programs themselves have noted. Each round is a line in results.csv.
"""

from __future__ import annotations

import argparse
import csv
import random
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from servers import Server, left, postgresql

RESULTS = Path(__file__).parent / "results.csv"
APPLICATION = """
name: note
job:
  command:
    - sh
    - -c
    - 'echo began $TRADEWIND_RUN_ID >> {journal}; sleep {{{{ seconds }}}}; echo ended $TRADEWIND_RUN_ID >> {journal}'
space:
  instance: {{types: [local.c1]}}
deploy: {{billing: {{granularity: 1ms}}}}
application:
  fields:
    seconds: {{type: number, default: 0}}
"""
KINDS = ("worker", "server", "both")
_PATIENCE = 900.0


@dataclass
class Findings:
    """What is wrong at the end; all 0 when nothing is.

    Attributes:
        unfinished: Requests that have not ended well.
        lost: Requests whose program did not come to its end.
        twice: Runs whose program began more than once.
        repeated: Requests with more runs than one: the infrastructure's fault, paid as such.
        ended_twice: Requests with two ends among their events.
        money: Requests that cost another sum than their runs.
        doubled: Requests that there are too many of: a key that made two.
        processes: Processes that are left.
        held: Requests that somebody still holds.
    """

    unfinished: int = 0
    lost: int = 0
    twice: int = 0
    repeated: int = 0
    ended_twice: int = 0
    money: int = 0
    doubled: int = 0
    processes: int = 0
    held: int = 0


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(servers: Sequence[Server], tokens: Sequence[str], requests: int, seconds: float, waits: list[float]) -> None:
    """Ask for runs over REST, of both servers in turn; a call that fails is tried at the other one, with its key."""
    from tradewind.client import Client
    from tradewind.errors import TradewindError

    clients = [[Client(server.url, token, tries=1, timeout=10.0) for server in servers] for token in tokens]
    for number in range(requests):
        began = time.monotonic()
        for attempt in range(1000):
            client = clients[number % len(clients)][(number + attempt) % len(servers)]
            try:
                client.submit(application="note", parameters={"seconds": seconds}, key=f"key-{number}")
                break
            except TradewindError:
                time.sleep(0.1)
        waits.append(time.monotonic() - began)
    for listed in clients:
        for client in listed:
            client.close()


def verify(context: Any, home: Path, journal: Path, requests: int) -> Findings:
    """Compare the rows with what the programs have noted."""
    from tradewind.service.accounts.identity import Principal

    root = Principal(0, "root", "admin", "root")
    rows, before = [], None
    while page := context.requests.list(root, limit=500, before=before):
        rows += page
        before = page[-1].id
    lines = [line.split() for line in journal.read_text().splitlines()] if journal.exists() else []
    began = Counter(run for what, run in lines if what == "began")
    ended = {run for what, run in lines if what == "ended"}
    found = Findings(doubled=len(rows) - requests)
    found.twice = sum(count > 1 for count in began.values())
    for row in rows:
        runs = context.store.runs(row.study_id) if row.study_id is not None else []
        found.unfinished += row.state != "done"
        found.lost += not any(run.run_id in ended for run in runs)
        found.repeated += len(runs) > 1
        for run in runs[:-1]:
            print(f"request {row.id}: {run.run_id} {run.state.value}: {run.reason}", flush=True)
        found.money += abs(row.cost - sum(run.cost for run in runs)) > 1e-9 or row.cost <= 0
        found.held += row.hold_holder is not None
        ends = [event for event in context.requests.events(root, row.id) if event.stage == "done"]
        found.ended_twice += len(ends) != 1
    found.processes = len(left(home))
    return found


def one_round(requests: int, kills: int, seconds: float, seed: int, *, sqlite: bool) -> dict[str, Any]:
    """Carry requests out while servers are killed.

    Args:
        requests: So many.
        kills: How often something is killed.
        seconds: How long each program takes.
        seed: Of the moments.
        sqlite: One SQLite file for both servers instead of PostgreSQL.
    """
    folder = Path(tempfile.mkdtemp(prefix="tw-faults-"))
    home, journal = folder / "home", folder / "journal"
    chance = random.Random(seed)
    home.mkdir()
    try:
        if sqlite:
            return _round(f"sqlite:///{folder}/s.db", home, journal, requests, kills, seconds, chance)
        with postgresql() as url:
            return _round(url, home, journal, requests, kills, seconds, chance)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _round(
    url: str, home: Path, journal: Path, requests: int, kills: int, seconds: float, chance: random.Random
) -> dict[str, Any]:
    from tradewind.service.accounts.identity import Principal
    from tradewind.service.context import open_context
    from tradewind.service.settings import ServiceSettings
    from tradewind.store.service.requests import ENDED

    context = open_context(ServiceSettings(), url, home)
    users = [
        context.accounts.add_user(name, tenant=tenant) for name, tenant in (("ann", "physics"), ("bob", "biology"))
    ]
    tokens = [context.accounts.make_token(user.id, "benchmark") for user in users]
    admin = context.accounts.add_user("root", role="admin")
    root = Principal(admin.id, "root", "admin", "root")
    context.applications.register(root, APPLICATION.format(journal=journal), shared=True)
    servers = [Server(name, url, home, free_port(), 4) for name in ("one", "two")]
    waits: list[float] = []
    done: Counter[str] = Counter()
    try:
        for server in servers:
            server.start()
        asking = threading.Thread(target=ask, args=(servers, tokens, requests, seconds, waits), daemon=True)
        began = time.monotonic()
        asking.start()
        over, due = 0, began + chance.uniform(1.0, 3.0)
        while over < requests:
            time.sleep(0.1)
            if sum(done.values()) < kills and time.monotonic() > due:
                victim, kind = chance.choice(servers), chance.choice(KINDS)
                if victim.alive and victim.worker() is not None:
                    victim.kill(kind)
                    done[kind] += 1
                due = time.monotonic() + chance.uniform(0.5, 4.0)
            for server in servers:
                if not server.alive:
                    server.start()
            over = len(context.requests.list(root, states=ENDED, limit=500))
            if time.monotonic() - began > _PATIENCE:
                break
        took = time.monotonic() - began
    finally:
        for server in servers:
            server.end()
    found = verify(context, home, journal, requests)
    context.close()
    waits.sort()
    return {
        "requests": requests,
        "kills": sum(done.values()),
        **{f"kills_{kind}": done[kind] for kind in KINDS},
        **asdict(found),
        "seconds": round(took, 1),
        "longest_wait_to_ask": round(waits[-1], 2) if waits else "",
    }


def append(row: dict[str, Any]) -> None:
    """Add a line to the results."""
    new = not RESULTS.exists() or RESULTS.stat().st_size == 0
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        if new:
            writer.writeheader()
        writer.writerow(row)


def main(words: Sequence[str] | None = None) -> int:
    """Kill and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--program", type=float, default=0.3, help="seconds that each program takes")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--sqlite", action="store_true", help="one SQLite file instead of PostgreSQL")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    given = parser.parse_args(words)
    wrong = 0
    for number in range(given.rounds):
        seed = given.seed + number
        found = one_round(given.requests, given.kills, given.program, seed, sqlite=given.sqlite)
        database = "sqlite" if given.sqlite else "postgresql"
        append({"date": datetime.now(UTC).date(), "database": database, "seed": seed, **found})
        print(found, flush=True)
        wrong += sum(found[name] for name in asdict(Findings()) if name != "repeated")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
