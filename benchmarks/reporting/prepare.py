"""Makes a store with one study of many trials, each with its run.

python benchmarks/reporting/prepare.py FOLDER [TRIALS]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tradewind.plugins import create
from tradewind.problem import Configuration, Observation, Offer, Proposal, Run, RunState, Trial, TrialState
from tradewind.store.base import Change, StudyRow

SPEC = {
    "objective": {"minimise": "cost"},
    "constraints": {"deadline": 1800.0},
    "budget": {"dollars": 100_000.0},
    "searcher": {"use": "random"},
}
STATES = (TrialState.SUCCEEDED, TrialState.FAILED, TrialState.ABORTED)
CODECS = ("gzip", "lz4", "none", "zstd")
PAGE = 5000


def one(number: int, rng: np.random.Generator) -> tuple[Trial, Run]:
    """A trial and its run."""
    cpus = int(2 ** rng.integers(0, 6))
    offer = Offer("aws", f"c7i.{cpus}x", cpus, 2.0 * cpus, 0.045 * cpus, nodes=int(rng.integers(1, 9)))
    configuration = Configuration(
        {
            "instance": offer.instance_type,
            "nodes": offer.nodes,
            "partitions": int(rng.integers(1, 400)),
            "codec": str(rng.choice(CODECS)),
            "fraction": round(float(rng.random()), 4),
        }
    )
    runtime = 9000.0 / (cpus * offer.nodes) ** 0.7 * float(rng.lognormal(0, 0.2))
    cost = round(runtime / 3600 * offer.hourly, 9)
    state = STATES[int(rng.choice(3, p=[0.9, 0.05, 0.05]))]
    good = state is TrialState.SUCCEEDED
    seen = Observation(
        None if state is TrialState.FAILED else cost,
        cost,
        runtime,
        good and runtime <= 1800,
        state is TrialState.ABORTED,
        {"throughput": 1e6 / runtime},
        reason="" if good else "the program ended with exit code 137",
    )
    began = 1_700_000_000.0 + number
    trial = Trial(
        number, Proposal(configuration), offer, state, configuration.key, seen, cost, 1, began, began, began + runtime
    )
    run = Run(
        f"tw-{number}", number, state=RunState.DONE, cost=cost, runtime=runtime, started=began, ended=began + runtime
    )
    return trial, run


def main() -> None:
    folder = Path(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    folder.mkdir(parents=True, exist_ok=True)
    store = create("store", "sql", {}, url=f"sqlite:///{folder / 'tradewind.db'}")
    row = store.create_study(StudyRow(0, "many", "many", SPEC, 1_700_000_000.0, owner="benchmark"))
    rng = np.random.default_rng(0)
    for start in range(0, count, PAGE):
        made = [one(number, rng) for number in range(start, min(count, start + PAGE))]
        store.write(row.id, Change(trials=[t for t, _ in made], runs=[r for _, r in made]))
    store.write(row.id, Change(study={"state": "finished", "reason": "the trials are used up"}))
    store.close()
    print(f"{count:,} trials in {folder / 'tradewind.db'}")


if __name__ == "__main__":
    main()
