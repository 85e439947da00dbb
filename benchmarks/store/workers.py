"""Ask-and-tell pairs of several workers on one study: processes with a database connection each, some of them killed.

python benchmarks/store/workers.py --workers 16 --trials 1000 --kills 4 [--url postgresql+psycopg://…]
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tradewind import Study
from tradewind.store.base import store_at

JOB: dict[str, Any] = {
    "name": "workers",
    "space": {"x": {"type": "float", "low": 0, "high": 1}, "y": {"type": "float", "low": 0, "high": 1}},
    "objective": {"minimise": "value"},
    "searcher": "random",
}

WORKER = """
import sys
from tradewind import Study
with Study.open(sys.argv[1], "workers") as study, open(sys.argv[2], "a", buffering=1) as handed_out:
    print("up", flush=True)
    sys.stdin.readline()
    while study.finished is None:
        for asked in study.ask():
            handed_out.write(f"{asked.number}\\n")
            study.tell(asked, runtime=1.0, metrics={"value": asked.configuration["x"]})
"""


def start(url: str) -> subprocess.Popen[str]:
    """A worker that is ready and waits for the word."""
    command = [sys.executable, "-c", WORKER, url]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def go(process: subprocess.Popen[str]) -> None:
    """Give a worker the word."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def measure(url: str, workers: int, trials: int, kills: int) -> None:
    """Run the workers and print the figures; it raises where a trial was lost or run twice."""
    Study.open(url, {**JOB, "budget": {"trials": trials}}).close()
    running = [start(url) for _ in range(workers)]
    spare = [start(url) for _ in range(kills)]
    begun = time.perf_counter()
    for process in running:
        go(process)
    for each in spare:
        time.sleep(0.2)
        victim = running.pop(random.randrange(len(running)))
        victim.kill()
        go(each)
        running.append(each)
    for process in running:
        process.wait()
    seconds = time.perf_counter() - begun
    with closing(store_at(url)) as store:
        (study,) = store.find_studies()
        found, runs = store.trials(study.id), store.runs(study.id)
    assert [trial.number for trial in found] == list(range(trials)), "a trial was lost"
    assert all(trial.state.value == "succeeded" for trial in found)
    assert len({trial.key for trial in found}) == trials == len(runs), "a trial was run twice"
    print(f"{workers} workers, {kills} killed: {trials} trials, each once; {trials / seconds:.0f} durable pairs/s")


def alone(url: str, trials: int) -> None:
    """The same with one `Study`, which holds the study alone."""
    with Study({**JOB, "name": "alone", "budget": {"trials": trials}}, store=url) as study:
        begun = time.perf_counter()
        while given := study.ask():
            study.tell(given[0], runtime=1.0, metrics={"value": float(given[0].configuration["x"])})
        print(f"one process alone: {trials / (time.perf_counter() - begun):.0f} durable pairs/s")


def main() -> None:
    """Measure as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--url", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.url or f"sqlite:///{Path(folder) / 'workers.db'}"
        measure(url, given.workers, given.trials, given.kills)
        if not given.url:
            alone(url, given.trials)


if __name__ == "__main__":
    main()
