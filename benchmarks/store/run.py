"""How fast the SQL store writes and reads; prints the table of README.md.

python benchmarks/store/run.py [--trials 100000] [--url sqlite:///...]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tradewind import plugins
from tradewind.problem import RunState
from tradewind.store.base import Change, Store
from tradewind.store.studies import tabular
from tradewind.testing.stores import run, study_row, trial


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def both(work: Callable[[], object]) -> tuple[float, float]:
    """Wall time and this process's CPU time."""
    cpu = time.process_time()
    return seconds(work), time.process_time() - cpu


def durable_writes(store: Store, count: int) -> list[float]:
    """The life of a trial as the engine writes it: proposed, running, ended."""
    study = store.create_study(study_row("writes"))
    token = store.hold(study.id, "bench:1:1.00", 3600)
    times = []
    for number in range(count):
        pending, ended = trial(number), trial(number, 0.5)
        for change in (
            Change([pending], [run(number, state=RunState.PENDING, cost=0.0)]),
            Change(runs=[run(number, state=RunState.EXECUTING, cost=0.0)]),
            Change([ended], [run(number)], {"elapsed": float(number)}),
        ):
            times.append(seconds(lambda change=change: store.write(study.id, change, token)))  # type: ignore[misc]
    return times


def fill(store: Store, count: int) -> int:
    study = store.create_study(study_row("large"))
    for first in range(0, count, 1000):
        numbers = range(first, min(first + 1000, count))
        trials = [trial(n, 0.1 + (n * 7919 % 1000) / 1000, feasible=n % 3 > 0) for n in numbers]
        store.write(study.id, Change([replace(t, spent=0.125) for t in trials], [run(n) for n in numbers]))
    return study.id


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--writes", type=int, default=300)
    parser.add_argument("--url")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        url = options.url or f"sqlite:///{folder}/tradewind.db"
        rows = [("make and open a new store", *both(lambda: plugins.create("store", "sql", {}, url=url).close()))]
        rows.append(("open it again", *both(lambda: plugins.create("store", "sql", {}, url=url).close())))
        store: Store = plugins.create("store", "sql", {}, url=url)
        cpu = time.process_time()
        times = durable_writes(store, options.writes)
        cpu = (time.process_time() - cpu) / len(times)
        rows.append(("one durable write, median", statistics.median(times), cpu))
        rows.append(("one durable write, 95 %", statistics.quantiles(times, n=20)[-1], cpu))
        rows.append(("one trial (3 durable writes), mean", 3 * statistics.mean(times), 3 * cpu))
        study = fill(store, options.trials)
        rows.append(("summaries", *both(store.summaries)))
        columns = store.columns(study)
        rows.append(("columns", *both(lambda: store.columns(study))))
        rows.append(("columns as a pandas frame", *both(lambda: tabular.to_pandas(columns))))
        rows.append(("columns as a polars frame", *both(lambda: tabular.to_polars(columns))))
        rows.append(("trials", *both(lambda: store.trials(study))))
        rows.append(("runs", *both(lambda: store.runs(study))))
        rows.append(("open runs", *both(lambda: store.runs(study, open_only=True))))
        rows.append(("export records", *both(lambda: sum(1 for _ in store.export_records(study)))))
        other = store.create_study(study_row("import"))
        rows.append(
            ("export and import records", *both(lambda: store.import_records(other.id, store.export_records(study))))
        )
        store.close()
    print(f"| step ({options.trials:,} trials where it reads) | wall | CPU |\n|---|---:|---:|")
    for name, wall, cpu in rows:
        print(f"| {name} | {shown(wall)} | {shown(cpu)} |")


def shown(spent: float) -> str:
    return f"{spent * 1000:.2f} ms" if spent < 0.1 else f"{spent:.2f} s"


if __name__ == "__main__":
    main()
