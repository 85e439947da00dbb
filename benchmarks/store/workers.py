"""Ask-and-tell pairs of several workers on one study: processes with database connections, some of them killed.

python benchmarks/store/workers.py --workers 16 --trials 1000 --kills 4 [--url postgresql+psycopg://…]
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
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
import sys, threading, time
from tradewind import Study
url, log, connections = sys.argv[1], sys.argv[2], int(sys.argv[3])
studies = [Study.open(url, "workers") for _ in range(connections)]
print("up", flush=True)
sys.stdin.readline()
begun = time.process_time()

def work(study, log):
    while study.finished is None:
        for asked in study.ask():
            log.write(f"{asked.number}\\n")
            study.tell(asked, runtime=1.0, metrics={"value": asked.configuration["x"]})

with open(log, "a", buffering=1) as handed_out:
    threads = [threading.Thread(target=work, args=(study, handed_out)) for study in studies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(time.process_time() - begun, flush=True)
for study in studies:
    study.close()
"""


@dataclass
class Worker:
    """A process that asks and tells.

    Attributes:
        process: The process.
        log: The numbers of the trials that it was handed.
    """

    process: subprocess.Popen[str]
    log: Path

    def go(self) -> None:
        """Give it the word."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> float:
        """Wait for its end; its processor time in seconds."""
        said, _ = self.process.communicate()
        return float(said)

    @property
    def handed_out(self) -> list[int]:
        """The numbers of the trials that it was handed; a killed one may have begun a line."""
        return [int(line) for line in self.log.read_text().split("\n")[:-1]]


def start(url: str, log: Path, connections: int) -> Worker:
    """A worker that is ready and waits for the word."""
    log.touch()
    command = [sys.executable, "-c", WORKER, url, str(log), str(connections)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return Worker(process, log)


def measure(url: str, folder: Path, given: argparse.Namespace) -> None:
    """Run the workers and print the figures; it raises where a trial was lost, or handed to two that live."""
    trials, kills, connections = given.trials, given.kills, given.connections
    Study.open(url, {**JOB, "budget": {"trials": trials}}).close()
    every = [start(url, folder / f"log-{i}", connections) for i in range(given.workers + kills)]
    running, spare = every[: given.workers], every[given.workers :]
    begun = time.perf_counter()
    for worker in running:
        worker.go()
    for each in spare:
        time.sleep(0.2)
        victim = running.pop(random.randrange(len(running)))
        victim.process.kill()
        each.go()
        running.append(each)
    used = sum(worker.end() for worker in running)
    seconds = time.perf_counter() - begun
    with closing(store_at(url)) as store:
        (study,) = store.find_studies()
        found, runs = store.trials(study.id), store.runs(study.id)
    assert [trial.number for trial in found] == list(range(trials)), "a trial was lost"
    assert all(trial.state.value == "succeeded" for trial in found)
    assert len({trial.key for trial in found}) == trials == len(runs), "a trial was run twice"
    assert all(run.state.ended for run in runs), "a run has no end"
    handed = Counter(number for worker in running for number in worker.handed_out)
    assert not handed or max(handed.values()) == 1, "a trial was handed to two workers that live"
    print(
        f"{given.workers} workers of {connections}, {kills} killed: {trials} trials, each once; "
        f"{trials / seconds:.0f} durable pairs/s; {used / trials * 1000:.2f} ms of the workers' processor time a pair"
    )


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
    parser.add_argument("--connections", type=int, default=1, help="of each worker, with a thread for each")
    parser.add_argument("--url", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.url or f"sqlite:///{Path(folder) / 'workers.db'}"
        measure(url, Path(folder), given)
        if not given.url:
            alone(url, given.trials)


if __name__ == "__main__":
    main()
