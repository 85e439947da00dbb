"""The throughput of a search that is alone and whose results do not improve, under ``dynamic`` and ``fifo``, for real.

    python benchmarks/tenancy/lone.py --rounds 6 --results work/lone.csv    # appends; 45 s a round
    python benchmarks/tenancy/lone.py --only-analyze --results work/lone.csv

`tradewind cluster start` shares two CPUs; one search has runs of half a CPU that sleep for half a second and all report
the same loss, so that Algorithm 1 lets it fall as far as it goes. Halfway the cluster gets kill -9 and is started
again. Both policies are measured at the same time, on clusters with files of their own: so they meet the same machine,
whatever else runs there. Each run writes when it began and ended. A rate is that of ended runs between two of them:
before, from the fifteenth end (Algorithm 1 begins after ten results); after, from the first end of a run that the new
cluster started.
"""

from __future__ import annotations

import argparse
import csv
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil

POLICIES = ("dynamic", "fifo")
FIELDS = ("round", "policy", "before", "after", "gap", "runs", "processor_ms", "busy")

JOB = """\
name: flat
job: {{command: [sh, -c, 'b=$(date +%s.%N); sleep 0.5; echo $b $(date +%s.%N) >>{log}; echo loss 1 {{{{ x }}}}']}}
space: {{x: 1..100000}}
offers: {{provider: local, vcpu: 1}}
objective: {{minimise: loss}}
interpret: [{{use: regex, patterns: 'loss (?P<loss>[0-9.]+)'}}]
budget: {{trials: 5000}}
searcher: random
stop: never
parallel: 4
"""


@contextmanager
def cluster(folder: Path, policy: str) -> Iterator[psutil.Process]:
    """A cluster with its own files, until it gets kill -9."""
    command = [sys.executable, "-m", "tradewind", "cluster", "start", "--priority", policy]
    with (folder / "cluster.log").open("a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=_environment(folder))
        try:
            yield psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def _environment(folder: Path) -> dict[str, str]:
    places = {"HOME": folder / "home", "SLOTS": folder / "slots", "STORE": f"sqlite:///{folder}/store.db"}
    return {**os.environ, **{f"TRADEWIND_{name}": str(each) for name, each in places.items()}}


def ends(log: Path) -> list[tuple[float, float]]:
    """When each run began and ended, in the order of their ends."""
    lines = log.read_text().splitlines() if log.exists() else []
    return sorted(((float(each.split()[0]), float(each.split()[1])) for each in lines), key=lambda run: run[1])


def rate(moments: list[float]) -> float:
    """Ends a second between the first and the last of them."""
    return (len(moments) - 1) / (moments[-1] - moments[0])


def one(policy: str, seconds: float) -> dict[str, float | str]:
    """A search of so many seconds before the cluster is killed, and after it has started again."""
    with tempfile.TemporaryDirectory(prefix="tw-lone-") as name:
        folder = Path(name)
        log, job = folder / "runs.log", folder / "job.yaml"
        (folder / "home").mkdir()
        job.write_text(JOB.format(log=log))
        submit = [sys.executable, "-m", "tradewind", "submit", str(job), "--demand", "cpu=0.5,memory=10MiB"]
        subprocess.run(submit, env=_environment(folder), check=True, stdout=subprocess.DEVNULL, timeout=60)
        psutil.cpu_percent()
        with cluster(folder, policy) as first:
            _wait_for(log, 15)
            began = time.time()
            time.sleep(seconds)
            used = first.cpu_times()
            killed = time.time()
        with cluster(folder, policy):
            again = time.time()
            _wait_for(log, 15, since=again)
            time.sleep(seconds)
            stopped = time.time()
        busy = psutil.cpu_percent()
        time.sleep(1.0)  # what it has left ends
        runs = ends(log)
    before = [end for _, end in runs if began <= end < killed]
    after = [end for start, end in runs if start > again and end < stopped]
    done = sum(end < killed for _, end in runs)
    return {
        "policy": policy, "before": round(rate(before), 4), "after": round(rate(after), 4),
        "gap": round(after[0] - killed, 3), "runs": len(runs),
        "processor_ms": round(1000 * (used.user + used.system) / done, 2), "busy": busy,
    }  # fmt: skip


def _wait_for(log: Path, count: int, since: float = 0.0) -> None:
    until = time.monotonic() + 90
    while sum(start > since for start, _ in ends(log)) < count:
        if time.monotonic() > until:
            raise TimeoutError(f"fewer than {count} runs in 90 s")
        time.sleep(0.1)


def analyze(path: Path) -> None:
    """Print the ratios of the rates, round by round, with their 95 % bootstrap interval."""
    with path.open() as file:
        rows = {(row["round"], row["policy"]): row for row in csv.DictReader(file)}
    rounds = sorted({number for number, _ in rows if all((number, policy) in rows for policy in POLICIES)})
    rng = np.random.default_rng(0)
    print("| | dynamic | fifo | ratio |\n|---|---:|---:|---|")
    for name in ("before", "after", "gap", "processor_ms", "busy"):
        found = np.array([[float(rows[number, policy][name]) for policy in POLICIES] for number in rounds])
        logs = np.log(found[:, 0] / found[:, 1])
        means = np.exp(rng.choice(logs, (4000, len(logs))).mean(axis=1))
        low, high = np.quantile(means, (0.025, 0.975))
        dynamic, fifo = np.median(found, axis=0)
        print(f"| {name} | {dynamic:.2f} | {fifo:.2f} | {np.exp(logs.mean()):.3f} [{low:.3f}, {high:.3f}] |")


def main() -> None:
    """Measure rounds, and print the table of README.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--seconds", type=float, default=12.0, help="before the kill, and after it")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "work" / "lone.csv")
    parser.add_argument("--only-analyze", action="store_true")
    given = parser.parse_args()
    numbers = range(given.first, given.first + (0 if given.only_analyze else given.rounds))
    for number in numbers:
        with ThreadPoolExecutor(len(POLICIES)) as at_once, given.results.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            if not file.tell():
                writer.writeheader()
            for found in at_once.map(lambda policy: one(policy, given.seconds), POLICIES):
                row = {"round": number, **found}
                writer.writerow(row)
                print(*row.values(), flush=True)
    analyze(given.results)


if __name__ == "__main__":
    main()
