"""Random search over learning curves with and without stoppers: ``python run.py DATASETS [seeds]``.

The engine's own state machine decides; only the runs are played back from the tables, four at a time. The orders of
configurations are the same for all policies of a seed. Writes ``work/searches.csv``: a line for each trial that ended.
"""

from __future__ import annotations

import csv
import heapq
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from curves import Table, cnn, crossing, mnist

from tradewind import plugins
from tradewind.engine.state_machine.events import (
    AskSearcher,
    CancelRun,
    InterpretOutput,
    Launch,
    NothingProposed,
    OutputInterpreted,
    PricedProposal,
    ProposalsMade,
    RunChanged,
    RunReported,
    SearchEvent,
    SearchInstruction,
    SearchOpened,
)
from tradewind.engine.state_machine.search_machine import SearchMachine
from tradewind.engine.state_machine.search_policy import SearchPolicy
from tradewind.problem import Integer, Objective, Proposal, Run, RunState
from tradewind.testing.problems import KnownOutcome, machine_parameters, make_problem

HERE = Path(__file__).parent
PARALLEL, TRIALS = 4, 150
POLICIES: dict[str, tuple[str, dict[str, Any]] | None] = {
    "none": None,
    "median": ("median", {}),
    "median, 15 trials": ("median", {"trials": 15}),
    "halving, eta 2": ("successive_halving", {"eta": 2}),
    "halving, eta 3": ("successive_halving", {}),
    "halving, eta 4": ("successive_halving", {"eta": 4}),
}


class Playback:
    """One search: carries out the machine's instructions on a clock that jumps.

    Args:
        table: The recorded curves.
        policy: The stopper and its settings, or None.
        seed: Of the order in which the configurations are tried.
    """

    def __init__(self, table: Table, policy: tuple[str, dict[str, Any]] | None, seed: int) -> None:
        self.table = table
        self.order = np.random.default_rng(seed).permutation(len(table.rows))[:TRIALS].tolist()
        parameters = [*machine_parameters(1, (1,)), Integer(name="row", low=0, high=len(table.rows) - 1)]
        problem = make_problem(parameters, lambda _c, _o: KnownOutcome(1.0), objective=Objective("error"))
        problem = replace(problem, terms=replace(problem.terms, parallel=PARALLEL))
        self.of_row = {int(c["row"]): c for c in map(problem.candidates.configuration, range(len(problem.candidates)))}
        self.offer = problem.candidates.offer(0)
        made = None if policy is None else plugins.create("stopper", policy[0], {**table.settings, **policy[1]})
        self.machine = SearchMachine(problem, SearchPolicy(owner="b", abort=False, stopper=made))
        self.now = self.spent = 0.0
        self.asked = 0
        self.rows: dict[str, int] = {}
        self.live: dict[str, tuple[Run, float]] = {}
        self.agenda: list[tuple[float, int, str, int]] = []
        self.lines: list[dict[str, Any]] = []

    def run(self) -> list[dict[str, Any]]:
        """Search until all trials have ended; a line for each."""
        self.feed(SearchOpened())
        while self.agenda:
            at, _, run_id, place = heapq.heappop(self.agenda)
            if run_id not in self.live:
                continue
            self.now, recorded = at, self.table.rows[self.rows[run_id]]
            if place < len(recorded.points):
                step, error, _ = recorded.points[place]
                self.feed(RunReported(run_id, ((step, error),)))
            else:
                points = tuple((step, error) for step, error, _ in recorded.points)
                self.feed(RunReported(run_id, points, final=True))
                self.feed(RunChanged(self.ended(run_id, RunState.DONE)))
        return self.lines

    def ended(self, run_id: str, state: RunState) -> Run:
        """A run's last row; it is paid for the seconds that it took."""
        run, start = self.live.pop(run_id)
        seconds, row = self.now - start, self.table.rows[self.rows[run_id]]
        cost = seconds * row.hourly / 3600.0
        self.spent += cost
        finished = state == RunState.DONE
        self.lines.append(
            {"cost": cost, "at": self.now, "error": row.error if finished else "", "row": self.rows[run_id]}
        )
        return replace(run, state=state, runtime=seconds, cost=cost, ended=self.now)

    def launch(self, run: Run, number: int) -> RunChanged:
        """Play a run back from now on."""
        self.rows[run.run_id] = self.order[number]
        run = replace(run, state=RunState.EXECUTING)
        self.live[run.run_id] = (run, self.now)
        recorded = self.table.rows[self.order[number]]
        times = [when for _, _, when in recorded.points]
        for place, when in enumerate([*times, recorded.seconds]):
            heapq.heappush(self.agenda, (self.now + when, place, run.run_id, place))
        return RunChanged(run)

    def proposed(self, count: int) -> SearchEvent:
        """The next configurations of the order."""
        fresh = self.order[self.asked : self.asked + count]
        self.asked += len(fresh)
        if not fresh:
            return NothingProposed("all were tried", final=True)
        return ProposalsMade([PricedProposal(Proposal(self.of_row[row]), self.offer, f"row {row}") for row in fresh])

    def heard(self, instruction: SearchInstruction) -> None:
        """Nobody but the machine chooses here."""

    def feed(self, event: SearchEvent) -> None:
        """Give the machine an event and do what it says."""
        events = [event]
        while events:
            for instruction in self.machine.handle(events.pop(0), self.now):
                self.heard(instruction)
                match instruction:
                    case AskSearcher(count):
                        events.append(self.proposed(count))
                    case Launch(trial, run, _, _):
                        events.append(self.launch(run, trial.number))
                    case CancelRun(run_id, _) if run_id in self.live:
                        events.append(RunChanged(self.ended(run_id, RunState.CANCELLED)))
                    case InterpretOutput(_, run):
                        events.append(
                            OutputInterpreted(run.run_id, {"error": self.table.rows[self.rows[run.run_id]].error})
                        )


@cache
def tables(folder: Path) -> dict[str, Table]:
    """The tables by name."""
    return {table.name: table for table in (mnist(folder), cnn(folder), crossing())}


def search(task: tuple[Path, str, str, int]) -> list[dict[str, Any]]:
    """One search; a line for each trial, in the order in which they ended."""
    folder, name, policy, seed = task
    lines = Playback(tables(folder)[name], POLICIES[policy], seed).run()
    return [{"table": name, "policy": policy, "seed": seed, **line} for line in lines]


def main() -> None:
    """Run all searches."""
    folder, seeds = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 30
    tasks = [(folder, name, policy, seed) for name in tables(folder) for policy in POLICIES for seed in range(seeds)]
    (HERE / "work").mkdir(exist_ok=True)
    start = time.perf_counter()
    with (HERE / "work/searches.csv").open("w", newline="") as file, ProcessPoolExecutor(2) as pool:
        writer = csv.DictWriter(file, ["table", "policy", "seed", "cost", "at", "error", "row"])
        writer.writeheader()
        for lines in pool.map(search, tasks, chunksize=5):
            writer.writerows(lines)
    print(f"{len(tasks)} searches in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
