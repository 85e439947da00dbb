"""PARIS's model: from two reference runs and a machine's description to its time relative to the first reference."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tradewind import plugins
from tradewind.errors import MissingProgramError
from tradewind.searcher.paris.workload_table import WorkloadTable
from tradewind.searcher.surrogate.gp import Array
from tradewind.utils.dependencies import install_command

Pair = tuple[int, int]
"""Two machines of the table, by place."""

_RIDGE = 0.1
"""Added to the spread of the screening regression, in squared log units."""

_ENOUGH = 0.75
"""Pairs are compared that at least this share of the most common pair's workloads ran on."""

_FOLDS = 10
"""Groups of workloads that are left out in turn, at most."""

_SCREEN_TREES = 20


def require_forest_packages() -> None:
    """Require the packages that the forests are made with.

    Raises:
        MissingProgramError: One is not installed.
    """
    for package in ("sklearn", "quantile_forest"):
        if not plugins.installed(package):
            raise MissingProgramError(f"the paris searcher needs {package}", hint=install_command("forest"))


@dataclass(frozen=True, slots=True)
class TimeForest:
    """A random forest for the mean and one for the 90th percentile, both of ln(time / time on the first reference).

    Attributes:
        mean: Fitted scikit-learn forest.
        late: Fitted quantile forest, or None.
        pair: Places of the two references.
        counters: Names of the counters in the fingerprint.
    """

    mean: Any
    late: Any
    pair: Pair
    counters: Sequence[str]

    @classmethod
    def fit(
        cls,
        table: WorkloadTable,
        facts: Array,
        pair: Pair,
        *,
        trees: int,
        seed: int,
        rows: Sequence[int] | None = None,
        counters: Sequence[str] = (),
        late: bool = True,
    ) -> TimeForest:
        """Learn from the workloads that ran on both references.

        Args:
            table: The offline table.
            facts: Descriptions of its machines, shape (machines, facts).
            pair: Places of the two references.
            trees: Number of trees.
            seed: Any integer.
            rows: Workloads to learn from; all without it.
            counters: Names of counters to use.
            late: False for the mean only.
        """
        from sklearn.ensemble import RandomForestRegressor  # type: ignore[import-untyped]

        x, y = _examples(table, facts, pair, table.together(pair) if rows is None else rows, counters)
        shared: dict[str, Any] = {"n_estimators": trees, "random_state": seed & 0x7FFFFFFF, "n_jobs": 1}
        shared |= {"max_features": 0.5}
        mean = RandomForestRegressor(**shared).fit(x, y)
        quantile = None
        if late:
            from quantile_forest import RandomForestQuantileRegressor  # type: ignore[import-untyped]

            quantile = RandomForestQuantileRegressor(**shared, min_samples_leaf=2).fit(x, y)
        return cls(mean, quantile, pair, tuple(counters))

    def predict(
        self, facts: Array, logs: tuple[float, float], counters: Mapping[str, CounterPair]
    ) -> tuple[Array, Array]:
        """Logarithm of the time on each machine: its mean and 90th percentile, shape (machines,) each.

        Args:
            facts: Descriptions, shape (machines, facts).
            logs: ln seconds on the two references.
            counters: Counters of the two reference runs, by name.
        """
        own = _fingerprint(np.array(logs), [counters[name] for name in self.counters])
        x = np.hstack([np.tile(own, (len(facts), 1)), facts])
        mean = logs[0] + self.mean.predict(x)
        if self.late is None:
            return mean, mean
        late = logs[0] + np.asarray(self.late.predict(x, quantiles=[0.9])).reshape(-1)
        return mean, np.maximum(late, mean)


CounterPair = tuple[float, float]
"""A counter on the two references."""


def _fingerprint(logs: Array, counters: Sequence[CounterPair]) -> Array:
    """Fingerprint of a workload: its times on the references, their ratio, its counters on both."""
    return np.array([logs[0], logs[1], logs[1] - logs[0], *(value for both in counters for value in both)])


def _examples(
    table: WorkloadTable, facts: Array, pair: Pair, rows: Sequence[int], counters: Sequence[str]
) -> tuple[Array, Array]:
    x, y = [], []
    for w in rows:
        own = _fingerprint(
            table.known[w, list(pair)],
            [(float(table.counters[n][w, pair[0]]), float(table.counters[n][w, pair[1]])) for n in counters],
        )
        for j in np.flatnonzero(np.isfinite(table.seconds[w])):
            x.append(np.concatenate([own, facts[j]]))
            y.append(table.known[w, j] - table.known[w, pair[0]])
    return np.array(x), np.array(y)


# ---------------------------------------------------------------------- which pair


@dataclass(frozen=True, slots=True)
class ReferenceChoice:
    """A pair of references and how well it predicts.

    Attributes:
        pair: The references; all times are relative to the first one's.
        error: Mean of |ln predicted - ln true| over workloads that were left out, of the forest.
        screened: True where the error is that of the quick regression instead, which is not comparable.
    """

    pair: Pair
    error: float
    screened: bool = False


@dataclass(frozen=True, slots=True)
class _Score:
    """Errors of a pair of references by workload that was left out."""

    pair: Pair
    errors: Array

    @property
    def mean(self) -> float:
        # Rounded, so that equal errors are taken in order whatever the last bit says.
        return round(float(self.errors.mean()), 9) if len(self.errors) else float("inf")

    @property
    def standard_error(self) -> float:
        n = len(self.errors)
        return float(self.errors.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0


def screening_errors(table: WorkloadTable, pair: Pair) -> Array:
    """Leave-one-workload-out error of a quick stand-in for the forest.

    For each machine, ln(time / time on the first reference) is regressed on ln(time on the second / on the first).

    Args:
        table: The offline table.
        pair: Places of the two references.

    Returns:
        Mean of |ln predicted - ln true| over the other machines, one for each workload that ran on both references.
    """
    rows = table.together(pair)
    logs = table.known[rows]
    f = (logs[:, pair[1]] - logs[:, pair[0]])[:, None]
    y = logs - logs[:, [pair[0]]]
    there = np.isfinite(y)
    y = np.where(there, y, 0.0)

    def without(values: Array) -> Array:
        values = np.where(there, values, 0.0)
        rest: Array = values.sum(axis=0) - values
        return rest

    count = without(np.ones_like(y))
    safe = np.maximum(count, 1.0)
    f_mean, y_mean = without(f + 0 * y) / safe, without(y) / safe
    spread = without(f * f + 0 * y) - safe * f_mean**2
    slope = (without(f * y) - safe * f_mean * y_mean) / (spread + _RIDGE)
    error = np.abs(y_mean + slope * (f - f_mean) - y)
    counted = there & (count > 0)
    counted[:, list(pair)] = False
    used = counted.any(axis=1)
    found: Array = (np.where(counted, error, 0.0).sum(axis=1) / np.maximum(counted.sum(axis=1), 1))[used]
    return found


def left_out_errors(table: WorkloadTable, facts: Array, pair: Pair) -> Array:
    """Leave-one-workload-out error of the forest; of more than ten workloads several are left out at a time.

    Args:
        table: The offline table.
        facts: Descriptions of its machines, shape (machines, facts).
        pair: Places of the two references.

    Returns:
        Mean of |ln predicted - ln true| over the other machines, one for each workload that ran on both references.
    """
    rows = table.together(pair)
    folds = min(len(rows), _FOLDS)
    names = table.common_counters(pair)
    errors: list[float] = []
    for fold in range(folds):
        out = rows[fold::folds]
        kept = [w for w in rows if w not in out]
        forest = TimeForest.fit(table, facts, pair, trees=_SCREEN_TREES, seed=0, rows=kept, counters=names, late=False)
        for w in out:
            own = {n: (float(table.counters[n][w, pair[0]]), float(table.counters[n][w, pair[1]])) for n in names}
            mean, _ = forest.predict(facts, (float(table.known[w, pair[0]]), float(table.known[w, pair[1]])), own)
            counted = np.isfinite(table.seconds[w])
            counted[list(pair)] = False
            if counted.any():
                errors.append(float(np.abs(mean - table.known[w])[counted].mean()))
    return np.array(errors)


def _cheapest_of_the_best(scores: Sequence[_Score], money: Array) -> list[_Score]:
    """Order: those within one standard error of the best, the cheapest first, then the others by their error."""
    best = min(scores, key=lambda score: (score.mean, score.pair))
    limit = best.mean + best.standard_error
    return sorted(
        scores,
        key=lambda s: (
            s.mean > limit,
            s.mean if s.mean > limit else round(float(money[list(s.pair)].sum()), 12),
            s.pair,
        ),
    )


_KEPT = 16
"""Tables whose pairs are kept; the oldest goes first."""

_chosen: dict[bytes, list[ReferenceChoice]] = {}
_choosing = threading.Lock()


def choose_pairs(
    table: WorkloadTable, facts: Array, hourly: Array, *, pool: int, tried: int, least: int
) -> list[ReferenceChoice]:
    """Rank pairs of references, the best first.

    A quick regression is scored for every pair; the forest for the best of these, and for the cheapest of those that
    are within one standard error of the best. Of these again the cheapest within one standard error comes first: a
    table of a few workloads cannot tell them apart.

    Args:
        table: The offline table.
        facts: Descriptions of its machines, shape (machines, facts).
        hourly: USD per hour of each machine choice, shape (machines,).
        pool: Machines that may be a reference, at most: the most measured ones, spread over the prices.
        tried: Number of pairs to compare by the forest.
        least: Number of workloads that a pair needs.

    Returns:
        The compared pairs, then the others in the order of the quick regression.
    """
    arrays = [table.seconds, facts, hourly, *table.counters.values(), np.array([pool, tried, least])]
    key = b"|".join(repr(array.shape).encode() + array.tobytes() for array in arrays) + repr(table.machines).encode()
    # It takes seconds, and every searcher of a process asks it of the same table: whoever comes meanwhile waits.
    with _choosing:
        if key not in _chosen:
            if len(_chosen) == _KEPT:
                del _chosen[next(iter(_chosen))]
            _chosen[key] = _choose(table, facts, hourly, pool, tried, least)
        return _chosen[key]


def _choose(
    table: WorkloadTable, facts: Array, hourly: Array, pool: int, tried: int, least: int
) -> list[ReferenceChoice]:
    able = _able(table, hourly, pool, least)
    pairs = [(a, b) for i, a in enumerate(able) for b in able[i + 1 :] if table.machines[a] != table.machines[b]]
    workloads = {pair: len(table.together(pair)) for pair in pairs}
    enough = max(least, _ENOUGH * max(workloads.values(), default=0))
    quick = [_Score(pair, screening_errors(table, pair)) for pair in pairs if workloads[pair] >= enough]
    if len(quick) < 2:
        return [ReferenceChoice(score.pair, score.mean, True) for score in quick]
    known = np.isfinite(table.known)
    seconds = np.exp(np.where(known, table.known, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1))
    money = seconds * hourly
    by_error = sorted(quick, key=lambda score: (score.mean, score.pair))
    by_money = _cheapest_of_the_best(quick, money)
    finalists = list(dict.fromkeys(s.pair for both in zip(by_error, by_money, strict=True) for s in both))[:tried]
    compared = [_Score(pair, left_out_errors(table, facts, pair)) for pair in finalists]
    ranked = [ReferenceChoice(score.pair, score.mean) for score in _cheapest_of_the_best(compared, money)]
    return ranked + [ReferenceChoice(s.pair, s.mean, True) for s in by_error if s.pair not in finalists]


def _able(table: WorkloadTable, hourly: Array, pool: int, least: int) -> list[int]:
    """The machines that may be a reference, the cheapest first."""
    measured = np.isfinite(table.seconds).sum(axis=0)
    able = [int(j) for j in np.lexsort((np.arange(len(hourly)), hourly)) if measured[j] >= least]
    if len(able) <= pool:
        return able
    most = set(sorted(able, key=lambda j: -int(measured[j]))[: 4 * pool])
    ordered = [j for j in able if j in most]
    return [ordered[round(i * (len(ordered) - 1) / (pool - 1))] for i in range(pool)]
