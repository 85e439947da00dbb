"""Two searches at once on this machine: whether their runs get in each other's way, with shared slots and without.

Each run is a program that uses 0.3 s of processor time and notes when it began and ended, and on which CPUs.

    python benchmarks/shared_machine/run.py --rounds 3
    python benchmarks/shared_machine/run.py --engine unix:///run/docker.sock --image python:3.12-slim --python python3

With an engine the runs of the first search are containers of it, and those of the other one processes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tradewind.deployer.runner.warden.slots import SlotRegistry

PROGRAM = """
import os, sys, time
began, used = time.monotonic(), time.process_time()
while time.process_time() - used < 0.3:
    pass
with open(sys.argv[1], "a") as file:
    file.write(f"{began} {time.monotonic()} {min(os.sched_getaffinity(0))}\\n")
"""

JOB = """
name: {name}
job:
  command: [{python}, -S, program.py, "{log}", "{{{{ n }}}}"]
  workdir: {folder}
{image}
space:
  instance: {{provider: local, vcpu: 1, memory: 1}}
  n: 1..40
objective: {{minimise: runtime}}
budget: {{trials: {trials}}}
searcher: random
stop: never
parallel: {parallel}
deploy: {{runner: {{{runner}, share: {share}}}}}
"""


class Containers(NamedTuple):
    """An engine for the containers of the first search, their image, and the Python in it."""

    engine: str
    image: str
    python: str


class NotedRun(NamedTuple):
    """A run as its program saw it: its beginning, its end, and its CPU."""

    began: float
    ended: float
    cpu: int


def two_searches(parallel: int, trials: int, containers: Containers | None, *, share: bool) -> list[NotedRun]:
    """The runs of two searches that were started at the same moment."""
    with tempfile.TemporaryDirectory(prefix="tw-shared-") as name:
        folder = Path(name)
        (folder / "code").mkdir()
        (folder / "code" / "program.py").write_text(PROGRAM)
        begun = []
        for search in ("one", "other"):
            job = folder / f"{search}.yaml"
            how = {"trials": trials, "parallel": parallel, "share": str(share).lower()}
            where = {"python": sys.executable, "image": "", "runner": "use: process"}
            if containers is not None and search == "one":
                runner = f"use: docker, network: none, reaper: false, host: '{containers.engine}'"
                where = {"python": containers.python, "image": f"  image: {containers.image}", "runner": runner}
            job.write_text(JOB.format(name=search, log=f"log-{search}", folder=folder / "code", **how, **where))
            own = {"TRADEWIND_HOME": str(folder / search), "TRADEWIND_SLOTS": str(folder / "slots")}
            command = [str(Path(sys.executable).parent / "tradewind"), "tune", str(job)]
            begun.append(subprocess.Popen(command, env={**os.environ, **own}, stdout=subprocess.DEVNULL))
        if any(each.wait() for each in begun):
            sys.exit("a search failed")
        logs = [folder / "code" / f"log-{search}" for search in ("one", "other")]
        lines = [line.split() for log in logs for line in log.read_text().splitlines()]
        return [NotedRun(float(began), float(ended), int(cpu)) for began, ended, cpu in lines]


def most_at_once(runs: Sequence[NotedRun]) -> int:
    """The largest number of runs at any moment."""
    return max(sum(other.began <= run.began < other.ended for other in runs) for run in runs)


def seconds_together(runs: Sequence[NotedRun]) -> float:
    """Seconds for which runs shared a CPU, summed over their pairs."""
    pairs = [(a, b) for place, a in enumerate(runs) for b in runs[place + 1 :] if a.cpu == b.cpu]
    return sum(max(0.0, min(a.ended, b.ended) - max(a.began, b.began)) for a, b in pairs)


def take_milliseconds(others: int, times: int = 500) -> tuple[float, float]:
    """Median wall time of taking a slot that is free, and mean processor time of taking it and giving it back."""
    registry = SlotRegistry.of_this_process()
    nothing = {"memory": 0, "memory_here": 1 << 33, "device": 0, "devices_here": [], "group": ""}
    with tempfile.TemporaryDirectory(prefix="tw-slots-") as folder:
        wanted = {"folder": folder, "cpu": 1, "search": "s", "name": "s", **nothing}
        for number in range(others):
            registry.take(f"o{number}", wanted, range(128))
        taken, used = [], time.process_time()
        for _ in range(times):
            began = time.perf_counter()
            registry.take("mine", wanted, range(128))
            taken.append(time.perf_counter() - began)
            registry.give_back("mine")
        return 1e3 * statistics.median(taken), 1e3 * (time.process_time() - used) / times


def main() -> None:
    """Print the tables of README.md."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=10, help="of each of the two searches")
    parser.add_argument("--engine", default="", help="of the containers of the first search")
    parser.add_argument("--image", default="python:3.12-slim", help="their image")
    parser.add_argument("--python", default="python3", help="the Python in it")
    options = parser.parse_args()
    containers = Containers(options.engine, options.image, options.python) if options.engine else None
    print("| `parallel` | share | runs at once, most | s of two runs on one CPU | s a run, median | s in all |")
    print("|---:|---|---:|---:|---:|---:|")
    for parallel in (1, 2):
        for _ in range(options.rounds):
            for share in (False, True):
                runs = two_searches(parallel, options.trials, containers, share=share)
                lasts = max(run.ended for run in runs) - min(run.began for run in runs)
                each = statistics.median(run.ended - run.began for run in runs)
                figures = f"{most_at_once(runs)} | {seconds_together(runs):.1f} | {each:.2f} | {lasts:.1f}"
                print(f"| {parallel} | {str(share).lower()} | {figures} |", flush=True)
    print("\n| others with a slot | taking one, ms | taking and giving back, ms of processor time |\n|---:|---:|---:|")
    for others in (0, 2, 64):
        print("| {} | {:.2f} | {:.2f} |".format(others, *take_milliseconds(others)))


if __name__ == "__main__":
    main()
