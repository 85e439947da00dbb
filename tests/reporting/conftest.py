"""Studies to report on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tradewind.plugins import create
from tradewind.problem import Configuration, Observation, Offer, Proposal, Run, RunState, Trial, TrialState
from tradewind.store.base import Change, Store, StudyRow

Build = Callable[..., int]

SPEC: dict[str, Any] = {
    "objective": {"minimise": "cost"},
    "constraints": {"deadline": 20.0},
    "budget": {"dollars": 5.0, "trials": 100},
    "searcher": {"use": "gp"},
}
"""A specification as far as reports read it."""


def offer(kind: str = "c4", nodes: int = 1) -> Offer:
    """Machines of the embedded provider."""
    cpus = int(kind.removeprefix("c"))
    return Offer("local", kind, cpus, 2.0 * cpus, 0.05 * cpus, nodes=nodes)


def make_trial(
    number: int,
    configuration: Mapping[str, Any],
    cost: float | None = None,
    *,
    runtime: float = 10.0,
    objective: float | None = None,
    state: TrialState = TrialState.SUCCEEDED,
    feasible: bool = True,
    reason: str = "",
    kind: str = "c4",
    metrics: Mapping[str, float] | None = None,
    share: float = 1.0,
) -> Trial:
    """A trial of a few words; without a cost it has no observation."""
    seen = None
    if cost is not None:
        measured = state is TrialState.SUCCEEDED or state is TrialState.ABORTED
        value = (cost if objective is None else objective) if measured else None
        good = feasible and state is TrialState.SUCCEEDED
        aborted = state is TrialState.ABORTED
        seen = Observation(value, cost, runtime, good, aborted, metrics or {}, reason=reason)
    chosen = Configuration(configuration)
    return Trial(
        number,
        Proposal(chosen, fidelity=share),
        offer(kind),
        state,
        chosen.key,
        seen,
        spent=cost or 0.0,
        attempts=1 if cost is not None or state is TrialState.RUNNING else 0,
        created=1000.0 + number,
        started=1000.0 + number if cost is not None else None,
        ended=1001.0 + number if cost is not None else None,
    )


def some_trials(count: int = 60, seed: int = 3) -> list[Trial]:
    """Trials of all outcomes: workers and codec matter, seed does not."""
    rng = np.random.default_rng(seed)
    trials = []
    for number in range(count):
        kind = str(rng.choice(["c1", "c2", "c4"]))
        workers, codec = int(rng.choice([1, 2, 4, 8])), str(rng.choice(["zlib", "bz2", "lzma"]))
        configuration = {"instance": kind, "workers": workers, "codec": codec, "salt": int(rng.integers(0, 3))}
        speed = min(workers, int(kind[1])) ** 0.8
        runtime = {"zlib": 10.0, "bz2": 22.0, "lzma": 40.0}[codec] / speed * float(rng.lognormal(0, 0.05))
        cost = round(runtime / 3600 * 0.05 * int(kind[1]), 9)
        state, feasible, reason = TrialState.SUCCEEDED, runtime <= 20, ""
        if not feasible:
            reason = f"runtime {runtime:.4g} s is above the deadline of 20 s"
        if number % 11 == 5:
            state, reason = TrialState.FAILED, "the program ended with exit code 1"
        if number % 13 == 7:
            state, reason = TrialState.ABORTED, "its cost reached the cap"
        trials.append(
            make_trial(number, configuration, cost, runtime=runtime, state=state, feasible=feasible, reason=reason,
                       kind=kind)
        )  # fmt: skip
    return trials


def run_of(trial: Trial, folder: str = "") -> Run:
    """The only run of a trial."""
    seen = trial.observation
    return Run(
        f"run-{trial.number}",
        trial.number,
        state=RunState.DONE if trial.state.ended else RunState.EXECUTING,
        cost=trial.spent,
        runtime=seen.runtime if seen else 0.0,
        started=trial.started,
        ended=trial.ended,
        folder=folder,
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An open, empty store."""
    with contextlib.closing(create("store", "sql", {}, url=f"sqlite:///{tmp_path / 'tw.db'}")) as opened:
        yield opened


@pytest.fixture
def build(store: Store) -> Build:
    """Stores a study and returns its id."""

    def made(trials: Sequence[Trial] = (), *, spec: Mapping[str, Any] = SPEC, name: str = "zip", **fields: Any) -> int:
        row = store.create_study(StudyRow(0, name, "key", spec, 1000.0, owner="tw"))
        runs = [run_of(trial) for trial in trials if trial.attempts]
        store.write(row.id, Change(trials=trials, runs=runs, study=fields))
        return row.id

    return made
