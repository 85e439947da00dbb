"""What a shared cluster adds to a trial, beside its engine by itself and beside Ray Tune.

    python benchmarks/tenancy/bare.py --engine local --rounds 5       # or slurm, ray
    python benchmarks/tenancy/bare.py --engine ray --tune PYTHON      # a Python with the same Ray and ray[tune]

Each way carries out 40 tasks that sleep for half a second, two at a time; the rounds of all ways alternate. Appends
wall seconds to work/bare.csv. ``bare`` is the engine's own way: processes of a pool; an array of Slurm, ``%2``; tasks
of Ray that start ``sleep``. ``actors`` is an actor of Ray for each task, ``tune`` Ray Tune with random search,
``cluster`` a random search on a cluster of Tradewind, ``queued`` the same with two runs more that wait in Ray's queue.
What is made once (connections, the first worker) is not counted: each way has two tasks before.

Slurm begins jobs once a second only, so what is handed over late in its second waits less. All ways of a round are
therefore handed over in the same part of a second, another one in each round, so that few rounds cover it evenly; who
is first alternates. ``cluster`` is submitted right before the cluster looks for new searches, ``later`` at any moment
between two looks.
"""

from __future__ import annotations

import argparse
import csv
import logging
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import psutil
from ground import ENGINES, Ground, ground

WORK = Path(__file__).parent / "work"
FIELDS = ("engine", "way", "tasks", "seconds", "round", "wall", "busy")
PARALLEL = 2
_GOLDEN = 0.618034
"""Multiples of it, modulo one, cover the interval evenly however many there are."""

Way = Callable[[float, int, float | None], float]
"""Measures tasks of so many seconds, so many of them, handed over in this part of a second or, with None, at once."""

JOB = """\
name: bare
job: {{command: [sh, -c, "sleep {seconds}; echo loss 1"]}}
space: {{x: {{type: float, low: 0, high: 1}}}}
offers: {{provider: local, vcpu: 1, memory: 1}}
objective: {{minimise: loss}}
interpret: [{{use: regex, patterns: 'loss (?P<loss>[0-9.]+)'}}]
budget: {{trials: {tasks}}}
searcher: random
parallel: {parallel}
"""

PEER = """
import logging, subprocess, sys, time
import ray
way, address, seconds, warm, tasks = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)

def sleep(*_):
    subprocess.run(["sleep", seconds], check=True)

@ray.remote(num_cpus=1)
def task():
    sleep()

@ray.remote(num_cpus=1)
class Actor:
    def work(self):
        sleep()

def tasks_of(count):
    ray.get([task.remote() for _ in range(count)])

def actors_of(count):
    open_, left = {}, count
    while left or open_:
        while left and len(open_) < 2:
            actor = Actor.remote()
            open_[actor.work.remote()] = actor
            left -= 1
        for ready in ray.wait(list(open_))[0]:
            ray.get(ready)
            del open_[ready]

def trial(configuration):
    from ray import tune
    sleep()
    tune.report({"loss": configuration["x"]})

def tune_of(count):
    from ray import tune
    found = tune.Tuner(
        tune.with_resources(trial, {"cpu": 1}),
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(num_samples=count, max_concurrent_trials=2, metric="loss", mode="min"),
        run_config=tune.RunConfig(verbose=0, storage_path=sys.argv[6]),
    ).fit()
    assert len(found) == count and not found.errors

run = {"bare": tasks_of, "actors": actors_of, "tune": tune_of}[way]
run(warm)
began = time.perf_counter()
run(tasks)
print("took", time.perf_counter() - began)
"""


def wait_for(phase: float | None) -> None:
    """Wait for this part of a second."""
    if phase is not None:
        time.sleep((phase - time.time()) % 1.0)


def pool(seconds: float, tasks: int, phase: float | None) -> float:
    """Wall seconds of processes, two at a time."""
    wait_for(phase)
    began = time.perf_counter()
    with ThreadPoolExecutor(PARALLEL) as threads:
        for _ in threads.map(lambda _: subprocess.run(["sleep", str(seconds)], check=True), range(tasks)):
            pass
    return time.perf_counter() - began


def array(here: Ground, folder: Path, seconds: float, tasks: int, phase: float | None) -> float:
    """Wall seconds of an array of Slurm, from sbatch until nothing of it is in the queue."""
    slurm = here.slurm
    assert slurm is not None
    script = folder / "job.sh"
    script.write_text(f"#!/bin/sh\nsleep {seconds}\n")
    words = ["--parsable", "--mem=1024M", "--chdir=/", "--output=/dev/null", f"--array=0-{tasks - 1}%{PARALLEL}"]
    wait_for(phase)
    began = time.perf_counter()
    slurm.call("sbatch", *words, str(script))
    while slurm.jobs():
        time.sleep(0.05)
    return time.perf_counter() - began


def peer(way: str, python: str, here: Ground, folder: Path, seconds: float, tasks: int, phase: float | None) -> float:
    """Wall seconds of a way of Ray's own, in a process of its own."""
    assert phase is None, "its process takes its time to begin"
    assert here.ray is not None
    words = [way, here.ray.address, str(seconds), "2", str(tasks), str(folder)]
    done = subprocess.run(
        [python, "-c", PEER, *words], check=False, capture_output=True, text=True, timeout=300, cwd=folder
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return float(done.stdout.rpartition("took ")[2])


def cluster(
    here: Ground, folder: Path, queued: int, later: bool, seconds: float, tasks: int, phase: float | None
) -> float:
    """Wall seconds of a search on a cluster of Tradewind, from its submission to its end.

    Args:
        here: The engine.
        folder: For its files.
        queued: Runs beyond two that wait in the engine's queue.
        later: Submit it at any moment between two looks of the cluster for new searches, not right before one.
        seconds: How long each sleeps.
        tasks: How many.
        phase: In which part of a second it is submitted.
    """
    from tradewind import plugins
    from tradewind.engine.search_builder import study_document
    from tradewind.problem import RunState
    from tradewind.problem.job_spec.spec import parse_spec
    from tradewind.store.clusters.cluster_store import ClusterStore, JobRow
    from tradewind.tenancy.allocator import AllocationPolicy
    from tradewind.tenancy.shared_cluster import SharedCluster, SharedClusterSettings

    class Two:
        def nodes(self) -> dict[str, dict[str, float]]:
            return {"here": {"cpu": float(PARALLEL), "memory": 8.0}}

    url = f"sqlite:///{folder}/tradewind.db"
    (folder / "work").mkdir(exist_ok=True)
    text = JOB.format(seconds=seconds, tasks=tasks, parallel=PARALLEL + queued)
    spec = study_document(parse_spec(text, base=folder / "work"))
    rules = plugins.create("fairness", "drf", {}), plugins.create("priority", "least_attained", {})
    policy = AllocationPolicy(*rules, ahead=queued)
    began, rows = 0.0, []
    with closing(ClusterStore(url)) as store:

        def submit() -> None:
            nonlocal began
            if later:
                time.sleep(0.5 + random.random())  # the cluster has begun: its looks and Slurm's second are not in step
            wait_for(phase)
            began = time.time()
            rows.append(store.submit(JobRow(0, "all", f"bare{began}", spec)))

        def wanted() -> bool:
            if not later and not rows:
                submit()
            return submitter.is_alive() or not held.empty()

        submitter = threading.Thread(target=submit)
        held = SharedCluster(SharedClusterSettings("default", url, folder, policy, {}, here.runner), Two())
        if later:
            submitter.start()
        held.run(wanted)
        row = store.job(rows[0].id)
        with closing(plugins.create("store", "sql", {}, url=url)) as studies:
            runs = studies.runs(row.study_id)
    assert row.state == "done", row.reason
    assert [run.state for run in runs] == [RunState.DONE] * tasks, runs
    return (row.ended or 0.0) - began


def ways_of(here: Ground, folder: Path, tune: str) -> dict[str, Way]:
    """The ways of an engine."""
    found: dict[str, Way] = {}
    if here.slurm is not None:
        found["bare"] = partial(array, here, folder)
    elif here.ray is not None:
        found["bare"] = partial(peer, "bare", tune or sys.executable, here, folder)
        found["actors"] = partial(peer, "actors", tune or sys.executable, here, folder)
        if tune:
            found["tune"] = partial(peer, "tune", tune, here, folder)
    else:
        found["bare"] = pool
    found["cluster"] = partial(cluster, here, folder, 0, False)
    if here.slurm is not None:
        found["later"] = partial(cluster, here, folder, 0, True)
    if here.ray is not None:  # which has places for two; Slurm would carry them all out
        found["queued"] = partial(cluster, here, folder, PARALLEL, False)
    return found


def main() -> int:
    """Measure the ways of an engine in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=ENGINES, required=True)
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=5, help="in all, those that are there with them")
    parser.add_argument("--tune", metavar="PYTHON", default="", help="a Python with ray[tune]")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing later than that")
    parser.add_argument("--results", type=Path, default=WORK / "bare.csv")
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    done: set[tuple[str, ...]] = set()
    if given.results.exists():
        with given.results.open() as file:
            done = {tuple(row[name] for name in FIELDS[:5]) for row in csv.DictReader(file)}
    logging.getLogger("tradewind").setLevel(logging.ERROR)
    with (
        tempfile.TemporaryDirectory(prefix="tw-bare-") as name,
        ground(given.engine, 6 if given.engine == "slurm" else 2, given.tune) as here,
        given.results.open("a", newline="") as file,
    ):
        writer = csv.DictWriter(file, FIELDS)
        if not file.tell():
            writer.writeheader()
        ways = ways_of(here, Path(name), given.tune)
        for way in ways.values():
            way(0.1, 2, None)
        for turn in range(given.rounds):
            phase = turn * _GOLDEN % 1.0 if given.engine == "slurm" else None
            for way, measure in list(ways.items())[:: -1 if turn % 2 else 1]:
                key = (given.engine, way, str(given.tasks), str(given.seconds), str(turn))
                if key in done or time.monotonic() > until:
                    continue
                if way in ("cluster", "later", "queued"):
                    measure(0.1, 2, None)  # as peers do in their processes: Ray ends workers that are idle for a second
                psutil.cpu_percent()
                wall = measure(given.seconds, given.tasks, phase)
                row = dict(zip(FIELDS, (*key, round(wall, 4), psutil.cpu_percent()), strict=True))
                writer.writerow(row)
                file.flush()
                print(*row.values(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
