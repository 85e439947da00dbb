"""One table under one billing, ready to be searched many times, and what a search is judged by."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from tables import build

from tradewind.problem import Billing, Budget, Configuration, JobParameters, PastStudy, Proposal, Trial, stable_hash
from tradewind.problem.ranking import ConfigurationRanking, MeasuredRun
from tradewind.searcher.base import NothingLeft, Repeats, SearchState
from tradewind.testing.problems import KnownProblem, drive, evaluate

CAP = 20.0
"""Mean costs of a configuration that a search may spend."""
NEVER = 25.0
"""What a search that has not found within `CAP` counts as."""
CLOSE = 0.05
BUDGETS = (4, 8, 12, 20)
MOST_TRIALS = 400
"""Trials at most: all rows of every table but those of a thousand types and more, which nobody would try one by one."""
FURTHER = 100
"""Trials at most once the recommendation is within 5 %: what then comes only decides when it is exact."""
AFTER = 30
"""Trials that a search with noise goes on for after it has tried the optimum: a lucky draw may yet mislead it."""
NOISE = 0.1
"""Standard deviation of the logarithm of a run's time in the condition with noise."""
PAST_TRIALS = 20
FOREIGN = 5

_GRAIN = 1e-4
CONDITIONS: dict[str, tuple[str, Billing, float]] = {
    "second": ("per second", Billing(granularity_seconds=_GRAIN), 0.0),
    "minimum60": ("60 s minimum", Billing(minimum_seconds=60.0, granularity_seconds=_GRAIN), 0.0),
    "setup120": ("120 s paid set-up", Billing(setup_seconds=120.0, granularity_seconds=_GRAIN), 0.0),
    "noise10": ("per second, 10 % noise", Billing(granularity_seconds=_GRAIN), NOISE),
}
"""Words, billing and noise by name."""

PASTS = ("cold", "warm", "complete", "foreign", "shuffled")
"""What of other jobs a searcher is given: nothing; 20 random trials of each other job of the suite; all trials of
them; 20 of each of 5 jobs of other suites; 20 of each other job of the suite, whose times are dealt out anew at random
over its configurations, so that they look related and teach nothing."""


class Asks(Protocol):
    """What a search needs of a searcher, Tradewind's own or a peer behind `peers.Peer`."""

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft: ...

    def tell(self, trial: Trial) -> None: ...


class Bench:
    """A table under a condition.

    The problem is made once and shared by all searches: between them only the noise, the past and the budget change,
    and none of these touches what the problem keeps (its candidates).

    Args:
        table: A prepared table.
        condition: One of `CONDITIONS`.
    """

    def __init__(self, table: Mapping[str, Any], condition: str) -> None:
        _, billing, self.noise = CONDITIONS[condition]
        self.table, self.condition = table, condition
        self._factors: dict[str, float] = {}
        self.problem: KnownProblem = build(table, billing, factor=lambda key: self._factors.get(key, 1.0))
        candidates = self.problem.candidates
        self._keys = [candidates.configuration(i).key for i in range(len(candidates))]
        bills = [self.problem.bill(candidates.configuration(i)) for i in range(len(candidates))]
        self.mean = sum(bills) / len(bills)
        """Mean cost of all configurations, USD, under this billing and without noise."""
        values = [self.problem.value(candidates.configuration(i)) for i in range(len(candidates))]
        self.best = min(v for v in values if v is not None)
        """Cost of the optimum, USD."""
        self.away = {
            key: math.inf if v is None else v / self.best - 1.0 for key, v in zip(self._keys, values, strict=True)
        }
        """Distance from the optimum by configuration key, 0.05 for 5 % above it; infinite for what is not feasible."""
        object.__setattr__(self.problem, "budget", Budget(dollars=CAP * self.mean))

    def __len__(self) -> int:
        return len(self._keys)

    @contextmanager
    def as_seen(self, seed: int, past: Sequence[PastStudy] = ()) -> Iterator[KnownProblem]:
        """The problem with the noise of a seed and a past; the same draw for a table, seed and configuration."""
        self._draws = np.random.default_rng([number(self.table["name"]), seed, 3])
        if self.noise:
            rng = np.random.default_rng([number(self.table["name"]), seed])
            draws = np.exp(self.noise * rng.standard_normal(len(self._keys)))
            self._factors = dict(zip(self._keys, draws.tolist(), strict=True))
        object.__setattr__(self.problem, "past", tuple(past))
        try:
            yield self.problem
        finally:
            self._factors = {}
            object.__setattr__(self.problem, "past", ())

    def late(self, configuration: Configuration) -> float:
        """ln seconds beyond the deadline, without noise; infinite for a run that fails before it."""
        seconds = self.problem.truth(configuration, self.problem.resolver.resolve(configuration)).runtime
        late = math.log(seconds / (self.problem.constraints.deadline or math.inf))
        return math.inf if self.problem.value(configuration) is None and late <= 0 else late

    def again(self, configuration: Configuration) -> None:
        """Draw the noise of a configuration anew, for a run that repeats an earlier one."""
        if self.noise:
            self._factors[configuration.key] = math.exp(self.noise * float(self._draws.standard_normal()))


def number(name: str) -> int:
    """A whole number that stands for a name, the same everywhere."""
    return int(stable_hash(name, 8), 16)


@dataclass
class Record:
    """What a search has reached, trial by trial.

    What a search would recommend is the cheapest trial that met the deadline, or, where it ran configurations again,
    what the engine would (`ConfigurationRanking`); how good that is, the noise-free table says.

    Attributes:
        bench: Where it searches.
        spent: Mean costs spent so far.
        close: Mean costs spent until the recommendation was first within 5 % of the optimum.
        exact: The same until it was the optimum.
        steps: Mean costs spent, and the recommendation's distance from the optimum, wherever that changed.
    """

    bench: Bench
    spent: float = 0.0
    trials: int = 0
    close: float = NEVER
    exact: float = NEVER
    steps: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, math.inf)])
    _seen: float = math.inf
    _measured: dict[str, list[MeasuredRun]] = field(default_factory=dict)
    _repeated: bool = False
    _left: int | None = None
    _further: int = FURTHER

    def add(self, trial: Trial) -> bool:
        """Take a trial in; True when nothing more can be learnt of the search."""
        self.spent += trial.spent / self.bench.mean
        self.trials += 1
        if trial.proposal.fidelity < 1.0:  # a part of the input holds nothing that could be recommended
            return False
        self._recommend(trial)
        away = self.bench.away[trial.configuration.key]
        if self._left is None and away <= 1e-9:
            self._left = AFTER if self.bench.noise else 0
        elif self._left is not None:
            self._left -= 1
        if self.close < NEVER:
            self._further -= 1
        return self._further <= 0 or (self._left is not None and self._left <= 0)

    def _recommend(self, trial: Trial) -> None:
        """Note what would be recommended now, and when that is close."""
        seen, key = trial.observation, trial.configuration.key
        self._repeated = self._repeated or key in self._measured
        if (one := MeasuredRun.of(trial, self.bench.problem.objective)) is not None:
            self._measured.setdefault(key, []).append(one)
        if self._repeated:
            runs = [replace(one, key=name) for name, found in self._measured.items() for one in found]
            best = ConfigurationRanking(runs, self.bench.problem.objective, self.bench.problem.constraints).best_run
            if best is None:
                return
            key = best.key
        elif seen is None or not seen.feasible or seen.objective is None or seen.objective >= self._seen:
            return
        else:
            self._seen = seen.objective
        away = self.bench.away[key]
        if away != self.steps[-1][1]:
            self.steps.append((self.spent, away))
        if away <= CLOSE and self.close == NEVER:
            self.close = self.spent
        if away <= 1e-9 and self.exact == NEVER:
            self.exact = self.spent

    def dopt(self, budget: float) -> float:
        """Distance from the optimum of what would be recommended after so many mean costs."""
        return [away for spent, away in self.steps if spent <= budget * (1 + 1e-9)][-1]


def search(bench: Bench, searcher: Asks, *, abort: bool, record: Record | None = None) -> tuple[Record, float]:
    """Search until the optimum is found, or the money or the trials are used up.

    Args:
        bench: Where to search.
        searcher: Who searches.
        abort: Cut runs short, see `drive`.
        record: What is told of each trial, and says when it is enough; a new one without it.

    Returns:
        The record, and the wall time of a proposal in milliseconds: asking and telling, without the table.
    """
    record, seconds = record or Record(bench), 0.0
    asked, told = searcher.ask, searcher.tell

    def ask(state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        nonlocal seconds
        started = time.perf_counter()
        answer = asked(state, count)
        seconds += time.perf_counter() - started
        for proposal in [] if isinstance(answer, NothingLeft) else answer:
            if proposal.repeat:
                bench.again(proposal.configuration)
        return answer

    def tell(trial: Trial) -> None:
        nonlocal seconds
        started = time.perf_counter()
        told(trial)
        seconds += time.perf_counter() - started

    searcher.ask, searcher.tell = ask, tell  # type: ignore[method-assign]
    most = MOST_TRIALS if isinstance(searcher, Repeats) else min(len(bench), MOST_TRIALS)
    drive(searcher, bench.problem, most, abort=abort, until=record.add)  # type: ignore[arg-type]
    return record, 1000.0 * seconds / max(1, record.trials)


# ---------------------------------------------------------------------- the past


class Pasts:
    """Makes the past of a search.

    Args:
        tables: All prepared tables.
    """

    def __init__(self, tables: Sequence[Mapping[str, Any]]) -> None:
        self._tables = {table["name"]: table for table in tables}
        self._bench = lru_cache(maxsize=80)(lambda name, condition: Bench(self._tables[name], condition))

    def of(self, bench: Bench, past: str, seed: int) -> tuple[PastStudy, ...]:
        """The earlier studies that a search is given; the same for every searcher."""
        name, family = bench.table["name"], bench.table["family"]
        suite = [n for n, t in self._tables.items() if t["family"] == family and n != name]
        if past == "cold":
            return ()
        if past == "foreign":
            rng = np.random.default_rng([number(name), seed, 1])
            others = [n for n, t in self._tables.items() if t["family"] != family]
            suite = [others[int(i)] for i in rng.permutation(len(others))[:FOREIGN]]
        return tuple(self._study(other, bench, past, seed) for other in suite)

    def _study(self, other: str, bench: Bench, past: str, seed: int) -> PastStudy:
        # Money of the past is billed like that of the search.
        source: Bench = self._bench(other, "second" if bench.noise else bench.condition)
        rng = np.random.default_rng([number(bench.table["name"]), number(other), seed, 2])
        if past == "shuffled":
            source = Bench(_dealt(source.table, rng), source.condition)
        problem = source.problem
        order = rng.permutation(len(source))
        chosen = range(len(source)) if past == "complete" else order[:PAST_TRIALS]
        trials = tuple(
            evaluate(problem, Proposal(problem.candidates.configuration(int(i))), n) for n, i in enumerate(chosen)
        )
        return PastStudy(
            name=other,
            parameters=JobParameters(),
            trials=trials,
            problem_key=stable_hash([other, past, seed]),
            objective=problem.objective,
            constraints=problem.constraints,
            billing=problem.terms.billing,
        )


def _dealt(table: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The table with its times dealt out anew over its configurations."""
    rows = table["rows"]
    order = rng.permutation(len(rows))
    dealt = [
        {**row, "seconds": rows[int(i)]["seconds"], "failed": rows[int(i)]["failed"]}
        for row, i in zip(rows, order, strict=True)
    ]
    return {**table, "rows": dealt}
