"""What tenants get of one machine on which a service, a cluster and lone searches run: by the stamps of their programs.

Each owner has a search with two runs at a time that has always work; a run takes one CPU of two, sleeps for half a
second to a second and notes when it began and ended.

    python benchmarks/shared_machine/weights.py --seconds 60                 # all cases
    python benchmarks/shared_machine/weights.py --case service:3 cluster:1   # one case
    python benchmarks/shared_machine/weights.py --case docker:3 cluster:1 --engine unix:///run/docker.sock

``service`` is a search that was requested of `tradewind serve`, ``cluster`` one of `tradewind submit` on a cluster of
its own, ``docker`` one of a cluster of containers, and ``tune`` a lone one; ``and`` is another tenant of the service or
the cluster before. What follows is the weight of its tenant.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PROGRAM = """
import os, sys, time
began = time.monotonic()
time.sleep(float(sys.argv[3]) * (0.5 + 0.5 * (int(sys.argv[2]) * 0.618034 % 1)))
with open(sys.argv[1], "a") as file:
    file.write(f"{began} {time.monotonic()} {os.sched_getaffinity(0)}\\n")
"""

JOB = """
name: {name}
{head}
job:
  command: [{python}, -S, {program}, {log}, "{{{{ n }}}}", "{length}"]
{image}
space:
  instance: {{provider: local, vcpu: 1, memory: 1}}
  n: 1..100000
objective: {{minimise: runtime}}
budget: {{trials: 100000}}
searcher: random
stop: never
abort: false
parallel: {parallel}
"""

CASES = (
    ("service:3", "cluster:1"),
    ("service:1", "cluster:3"),
    ("cluster:3", "cluster:1"),
    ("tune", "cluster:1"),
    ("tune", "cluster:3"),
    ("tune", "tune"),
    ("service:3", "and:1", "cluster:1"),
    ("cluster:3", "and:1", "service:2"),
)

SERVE = """
import sys
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import open_context
from tradewind.service.settings import ServiceSettings
from tradewind.store.clusters.cluster_store import ClusterStore, TenantRow
url, home, tenant, weight, application, parallel = sys.argv[1:]
store = ClusterStore(url)
store.set_tenant(TenantRow(tenant, float(weight)))
store.close()
context = open_context(ServiceSettings(), url, __import__("pathlib").Path(home))
user = context.accounts.add_user(tenant, role="admin", tenant=tenant)
who = Principal(user.id, user.name, user.role, user.tenant)
context.applications.register(who, open(application).read(), shared=True)
search = {"budget": {"dollars": 1000, "trials": 100000}, "parallel": int(parallel)}
context.requests.submit(who, {"application": tenant, "search": search})
context.close()
"""


class Owner(NamedTuple):
    """One of those that share the machine."""

    number: int
    kind: str
    weight: float

    @property
    def name(self) -> str:
        """The name of its tenant."""
        return f"t{self.number}"


class NotedRun(NamedTuple):
    """A run as its program saw it."""

    owner: int
    began: float
    ended: float


class Options(NamedTuple):
    """How all owners are started: runs of each at a time, their longest seconds, the engine and image of containers."""

    parallel: int
    length: float
    engine: str
    image: str


def write_job(owner: Owner, folder: Path, options: Options) -> Path:
    """Write the job of an owner."""
    job, program, log = folder / f"job-{owner.number}.yaml", folder / "program.py", folder / f"log-{owner.number}"
    head = "application: {title: Endless}" if owner.kind == "service" else ""
    how = {"name": owner.name, "head": head, "parallel": options.parallel, "length": options.length}
    if owner.kind == "docker":
        image = f"  image: {options.image}\n  workdir: {folder}"
        how |= {"python": "python3", "image": image, "program": program.name, "log": log.name}
    else:
        how |= {"python": sys.executable, "image": "", "program": program, "log": log}
    job.write_text(JOB.format(**how))
    return job


def start(owners: Sequence[Owner], folder: Path, options: Options) -> subprocess.Popen[bytes]:
    """Start a service, a cluster or a search with the work of its tenants."""
    home, kind = folder / owners[0].name, owners[0].kind
    home.mkdir()
    env = {**os.environ, "TRADEWIND_HOME": str(home), "TRADEWIND_SLOTS": str(folder / "slots")}
    tradewind, url = str(Path(sys.executable).parent / "tradewind"), f"sqlite:///{home}/tradewind.db"
    jobs = {owner: str(write_job(owner._replace(kind=kind), folder, options)) for owner in owners}
    for owner, job in jobs.items():
        if kind == "service":
            words = [url, str(home), owner.name, str(owner.weight), job, str(options.parallel)]
            subprocess.run([sys.executable, "-c", SERVE, *words], env=env, check=True)
        elif kind != "tune":
            words = ["submit", job, "--tenant", owner.name, "--weight", str(owner.weight), "--live-folder"]
            subprocess.run([tradewind, *words], env=env, check=True, stdout=subprocess.DEVNULL)
    command = {
        "tune": ["tune", jobs[owners[0]]],
        "service": ["serve", "--port", "0", "--database", url],
        "cluster": ["cluster", "start", "--local"],
        "docker": ["cluster", "start", "--docker", "--set", f"host={options.engine}", "--set", "network=none"],
    }[kind]
    with (folder / f"output-{owners[0].number}").open("wb") as output:
        return subprocess.Popen([tradewind, *command], env=env, stdout=output, stderr=output, start_new_session=True)


def noted(folder: Path, owners: Sequence[Owner]) -> list[NotedRun]:
    """The runs that have ended."""
    found = []
    for owner in owners:
        log = folder / f"log-{owner.number}"
        for line in log.read_text().splitlines() if log.exists() else ():
            began, ended, *_ = line.split()
            found.append(NotedRun(owner.number, float(began), float(ended)))
    return found


def measure(owners: Sequence[Owner], seconds: float, options: Options) -> list[NotedRun]:
    """The runs of all owners in so many seconds from when each had its first one."""
    groups: list[list[Owner]] = []
    for owner in owners:
        if owner.kind == "and":
            groups[-1].append(owner)
        else:
            groups.append([owner])
    with tempfile.TemporaryDirectory(prefix="tw-weights-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        begun: list[subprocess.Popen[bytes]] = []
        try:
            for group in groups:
                begun.append(start(group, folder, options))
            until = time.monotonic() + 120
            while {run.owner for run in noted(folder, owners)} != {owner.number for owner in owners}:
                time.sleep(0.2)
                if time.monotonic() > until or any(each.poll() is not None for each in begun):
                    print(*(path.read_text() for path in folder.glob("output-*")), file=sys.stderr)
                    sys.exit("an owner did not begin")
            first = time.monotonic()
            time.sleep(seconds)
            return [run for run in noted(folder, owners) if run.began >= first]
        finally:
            for each in begun:
                each.send_signal(signal.SIGINT)
            for each in begun:
                each.wait(60)


def row(owners: Sequence[Owner], runs: Sequence[NotedRun]) -> str:
    """A line of the table."""
    used = [sum(run.ended - run.began for run in runs if run.owner == owner.number) for owner in owners]
    weights = [owner.weight for owner in owners]
    first, last = min(run.began for run in runs), max(run.ended for run in runs)

    def percents(amounts: Sequence[float]) -> str:
        return " : ".join(f"{100 * each / sum(amounts):.1f}" for each in amounts)

    who = ", ".join(f"{owner.kind} {owner.weight:g}" for owner in owners)
    return f"| {who} | {percents(weights)} | {percents(used)} | {len(runs)} | {sum(used) / 2 / (last - first):.0%} |"


def main() -> None:
    """Print the table of README.md."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--case", nargs="+", help="kinds with weights")
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--length", type=float, default=1.0, help="seconds of the longest run")
    parser.add_argument("--engine", default="unix:///run/docker.sock", help="of containers")
    parser.add_argument("--image", default="python:3.12-slim", help="their image")
    options = parser.parse_args()
    print("| owners and weights | wanted, % | shares, % | runs | used |\n|---|---|---|---:|---:|")
    for case in [options.case] if options.case else CASES:
        parts = [words.partition(":") for words in case]
        owners = [Owner(number, kind, float(weight or 1)) for number, (kind, _, weight) in enumerate(parts)]
        found = measure(
            owners, options.seconds, Options(options.parallel, options.length, options.engine, options.image)
        )
        print(row(owners, found), flush=True)


if __name__ == "__main__":
    main()
