"""Searches every prepared table with every policy: ``python run.py --policies gp,tradewind --seeds 50 --jobs 2``.

Appends to ``work/results/POLICY.csv`` and leaves out what is there, so a run may be stopped and gone on with.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import peers
import results
import tables
from bench import BUDGETS, CONDITIONS, PASTS, Bench, Pasts, search

from tradewind import plugins
from tradewind.errors import TradewindError
from tradewind.searcher.base import LearnsFromPast


@dataclass(frozen=True)
class Policy:
    """A searcher and how it is driven.

    Attributes:
        words: What the tables call it.
        searcher: Entry-point name, or ``peer:NAME``.
        abort: Cut runs short at the deadline and, unless the searcher sets caps itself, where they cannot win.
        settings: Of the searcher.
        seeds: Seeds that differ; 1 for a policy without chance (with noise every seed differs all the same).
    """

    words: str
    searcher: str
    abort: bool
    settings: dict[str, Any] = field(default_factory=dict)
    seeds: int | None = None


POLICIES: dict[str, Policy] = {
    "random-plain": Policy("random, no abort", "random", False),
    "random": Policy("random, abort", "random", True),
    "exhaustive": Policy("exhaustive, cheapest first, abort", "exhaustive", True, {"order": "cheapest"}, 1),
    "cherrypick": Policy("CherryPick, without its stop rule", "cherrypick", False, {"stop": False}),
    "cherrypick-abort": Policy("CherryPick, abort", "cherrypick", True, {"stop": False, "abort": True}),
    # Five random starts, as in paper 1; one thread, as for all.
    "obol-0": Policy("OBOL, depth 0", "obol", False, {"depth": 0, "starts": 5, "threads": 1}),
    "obol-0-abort": Policy(
        "OBOL, depth 0, abort", "obol", True, {"depth": 0, "starts": 5, "threads": 1, "abort": True}
    ),
    "obol-2": Policy("OBOL, depth 2", "obol", False, {"depth": 2, "starts": 5, "threads": 1}),
    "optuna-tpe": Policy("Optuna TPE", "peer:optuna-tpe", False),
    "optuna-tpe-abort": Policy("Optuna TPE, abort", "peer:optuna-tpe", True),
    "optuna-gp": Policy("Optuna GP", "peer:optuna-gp", False),
    "smac": Policy("SMAC3", "peer:smac", False),
    "smac-abort": Policy("SMAC3, abort", "peer:smac", True),
    "gp": Policy("gp", "gp", True),
    "tradewind": Policy("tradewind", "tradewind", True, {}, 1),
}

_BLOCK = 5
"""Seeds of one table that a worker does in one go."""


@dataclass(frozen=True)
class Task:
    """Some searches of one policy on one table."""

    policy: str
    table: str
    condition: str
    past: str
    seeds: tuple[int, ...]


class Desk:
    """What a worker process keeps between tasks.

    Args:
        path: The prepared tables.
    """

    def __init__(self, path: Path) -> None:
        found = tables.load(path)
        by_name = {table["name"]: table for table in found}
        self.pasts = Pasts(found)
        self.bench = lru_cache(maxsize=8)(lambda name, condition: Bench(by_name[name], condition))

    def rows(self, task: Task) -> list[dict[str, Any]]:
        """Do a task."""
        policy = POLICIES[task.policy]
        bench: Bench = self.bench(task.table, task.condition)
        found = []
        for seed in task.seeds:
            started = time.perf_counter()
            past = self.pasts.of(bench, task.past, seed)
            with bench.as_seen(seed, past) as problem:
                if policy.searcher.startswith("peer:"):
                    searcher: Any = peers.make(policy.searcher.removeprefix("peer:"), problem, seed)
                else:
                    searcher = plugins.create("searcher", policy.searcher, policy.settings, problem=problem, seed=seed)
                record, step = search(bench, searcher, abort=policy.abort)
            figures = [record.close, record.exact, *(record.dopt(b) for b in BUDGETS)]
            values = [task.table, task.condition, task.past, seed, *(f"{v:.6g}" for v in figures)]
            values += [record.trials, f"{record.spent:.4f}", f"{step:.3f}", f"{time.perf_counter() - started:.3f}"]
            found.append(dict(zip(results.COLUMNS, values, strict=True)))
        return found


_desk: Desk | None = None


def _sit(path: Path) -> None:
    global _desk
    _desk = Desk(path)


def _do(task: Task) -> list[dict[str, Any]]:
    assert _desk is not None
    return _desk.rows(task)


# ---------------------------------------------------------------------- what is to be done


def usable(name: str, past: str) -> str:
    """Why a policy cannot run; empty if it can."""
    policy = POLICIES[name]
    if policy.searcher.startswith("peer:"):
        if past != "cold":
            return "it does not learn from earlier jobs"
        package = policy.searcher.removeprefix("peer:")
        try:
            __import__("smac" if package == "smac" else "optuna")
            if package == "optuna-gp":
                __import__("torch")
        except ImportError as error:
            return f"{error} (see requirements.txt)"
        return ""
    try:
        part = plugins.load("searcher", policy.searcher)
        part.Settings(**policy.settings)
    except (TradewindError, ValueError) as error:
        return str(error).replace("\n", " ")
    if past != "cold" and not issubclass(part, LearnsFromPast):
        return "it does not learn from earlier jobs"
    return ""


def tasks(
    names: list[str], found: list[str], conditions: list[str], past: str, seeds: range, folder: Path
) -> Iterator[Task]:
    """What is not there yet; the first seeds of everything before the next ones."""
    done = {name: results.every(folder, name) for name in names}
    for start in range(seeds.start, seeds.stop, _BLOCK):
        block = range(start, min(start + _BLOCK, seeds.stop))
        for name in names:
            for condition in conditions:
                most = POLICIES[name].seeds
                wanted = [s for s in block if most is None or s < most or CONDITIONS[condition][2] or past != "cold"]
                for table in found:
                    open_ = tuple(s for s in wanted if (table, condition, past, str(s)) not in done[name])
                    if open_:
                        yield Task(name, table, condition, past, open_)


def seeds_of(text: str) -> range:
    """``50`` means 0 to 49, ``10-19`` what it says."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last) + 1) if dash else range(int(first))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", default=",".join(POLICIES), help=f"of {', '.join(POLICIES)}")
    parser.add_argument("--seeds", type=seeds_of, default=range(10), help="50 for 0 to 49, or 10-19")
    parser.add_argument("--tables", default="", help="what names start with: scout or tensorflow,cherrypick/tpch")
    parser.add_argument("--billing", default=",".join(CONDITIONS), help=f"of {', '.join(CONDITIONS)}")
    parser.add_argument("--past", default="cold", choices=PASTS, help="what of other jobs the searcher is given")
    parser.add_argument("--jobs", type=int, default=1, help="searches at the same time")
    parser.add_argument("--work", type=Path, default=tables.HERE / "work", help="folder of tables.json and results")
    return parser.parse_args()


def main() -> None:
    given = parsed()
    names, conditions = given.policies.split(","), given.billing.split(",")
    for wrong in [*(set(names) - set(POLICIES)), *(set(conditions) - set(CONDITIONS))]:
        sys.exit(f"unknown: {wrong!r}; policies are {', '.join(POLICIES)}; billings are {', '.join(CONDITIONS)}")
    found = [t["name"] for t in tables.load(given.work / "tables.json")]
    found = [n for n in found if n.startswith(tuple(given.tables.split(",")))]
    folder: Path = given.work / "results"
    folder.mkdir(parents=True, exist_ok=True)
    for name in list(names):
        if why := usable(name, given.past):
            print(f"skipped: {name}: {why}")
            names.remove(name)
    for name in names:
        results.mend(folder / f"{name}.csv")
    todo = list(tasks(names, found, conditions, given.past, given.seeds, folder))
    started, searches, wrong = time.perf_counter(), 0, 0
    print(f"{sum(len(t.seeds) for t in todo)} searches to do", flush=True)
    with ProcessPoolExecutor(max_workers=given.jobs, initializer=_sit, initargs=(given.work / "tables.json",)) as pool:
        waiting = {pool.submit(_do, task): task for task in todo}
        for future in as_completed(waiting):
            task = waiting.pop(future)
            if error := future.exception():
                wrong += 1
                print(f"failed: {task}: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            results.append(folder / f"{task.policy}.csv", future.result())
            searches += len(task.seeds)
    print(f"{searches} searches in {time.perf_counter() - started:.0f} s; {wrong} tasks failed")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
