"""Searchers that learn, with and without stoppers, on ``mnist``: ``python with_searchers.py DATASETS [seeds]``.

As in ``run.py``, but a searcher chooses among the 256 configurations by their four parameters, in 60 trials. Prints a
table.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from analyze import best_error
from run import PARALLEL, POLICIES, Playback, tables

from tradewind import plugins
from tradewind.engine.proposals import ask_searcher
from tradewind.engine.state_machine.events import SearchEvent, SearchInstruction, TellSearcher
from tradewind.engine.state_machine.search_machine import SearchMachine
from tradewind.engine.state_machine.search_policy import SearchPolicy
from tradewind.problem import Objective, Ordinal, Run
from tradewind.testing.problems import KnownOutcome, machine_parameters, make_problem

TRIALS = 60
NAMES = ("rate", "momentum", "batch", "decay")
SEARCHERS = ("random", "tradewind", "gp", "optuna")


class Chosen(Playback):
    """One search whose configurations a searcher chooses."""

    def __init__(self, folder: Path, searcher: str, policy: tuple[str, dict[str, Any]] | None, seed: int) -> None:
        super().__init__(tables(folder)["mnist"], policy, seed)
        self.place = {row.chosen: i for i, row in enumerate(self.table.rows)}
        levels = [sorted(set(column)) for column in zip(*self.place, strict=True)]
        chosen = [Ordinal(name=name, values=tuple(values)) for name, values in zip(NAMES, levels, strict=True)]
        problem = make_problem(
            [*machine_parameters(1, (1,)), *chosen],
            lambda _c, _o: KnownOutcome(1.0),
            objective=Objective("error"),
            trials=TRIALS,
        )
        problem = replace(problem, terms=replace(problem.terms, parallel=PARALLEL))
        stopper = self.machine.policy.stopper
        self.searcher = plugins.create("searcher", searcher, {}, problem=problem, seed=seed)
        self.machine = SearchMachine(problem, SearchPolicy(owner="b", abort=False, stopper=stopper))
        self.order = []

    def launch(self, run: Run, number: int) -> SearchEvent:
        """Find the recorded row of what was chosen."""
        configuration = self.machine.history.trials[number].configuration
        self.order += [0] * (number + 1 - len(self.order))
        self.order[number] = self.place[tuple(float(configuration[name]) for name in NAMES)]
        return super().launch(run, number)

    def proposed(self, count: int) -> SearchEvent:
        """Ask the searcher."""
        return ask_searcher(self.machine, self.searcher, count)

    def heard(self, instruction: SearchInstruction) -> None:
        """Tell the searcher."""
        if isinstance(instruction, TellSearcher):
            self.searcher.tell(instruction.trial)


def search(task: tuple[Path, str, str, int]) -> tuple[str, str, int, list[dict[str, str]]]:
    """One search: searcher, policy, seed, and a line for each trial."""
    folder, searcher, policy, seed = task
    lines = Chosen(folder, searcher, POLICIES[policy], seed).run()
    return searcher, policy, seed, [{key: str(value) for key, value in line.items()} for line in lines]


def main() -> None:
    """Run all searches and print the table."""
    folder, seeds = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 30
    policies = ("none", "median", "halving, eta 3")
    tasks = [(folder, name, policy, seed) for name in SEARCHERS for policy in policies for seed in range(seeds)]
    found: dict[tuple[str, str], dict[int, list[dict[str, str]]]] = defaultdict(dict)
    with ProcessPoolExecutor(2) as pool:
        for searcher, policy, seed, lines in pool.map(search, tasks, chunksize=3):
            found[searcher, policy][seed] = lines
    print("| searcher | policy | stopped | money saved | best error, % | at half the money |")
    print("|---|---|---|---|---|---|")
    for (searcher, policy), seen in found.items():
        whole = {seed: sum(float(line["cost"]) for line in lines) for seed, lines in found[searcher, "none"].items()}
        saved = [1 - sum(float(line["cost"]) for line in lines) / whole[seed] for seed, lines in seen.items()]
        best = [best_error(lines) for lines in seen.values()]
        half = [best_error(lines, whole[seed] / 2) for seed, lines in seen.items()]
        stopped = statistics.fmean(sum(not line["error"] for line in lines) for lines in seen.values())
        print(
            f"| {searcher} | {policy} | {stopped:.0f} of {TRIALS} | {statistics.fmean(saved):.0%} | "
            f"{statistics.fmean(best) * 100:.2f} | {statistics.fmean(half) * 100:.2f} |"
        )


if __name__ == "__main__":
    main()
