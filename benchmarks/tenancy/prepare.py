"""Reads the tables and records searches on them, for policies.py and real.py.

    python benchmarks/tenancy/prepare.py DATASETS

Writes ``work/tables.npz`` (value and seconds of every configuration of each table) and ``work/tpe.npz`` (the rows that
Optuna's TPE visited, one search for each table and seed). Tables that are there already are kept.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
WORK = HERE / "work"
SEEDS, TRIALS = 6, 150


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV, packed or not."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return list(csv.DictReader(text.splitlines()))


def mean(row: dict[str, str], prefix: str) -> float:
    """The mean over the seeds of a column."""
    found = [float(value) for name, value in row.items() if name.startswith(f"{prefix}_") and value]
    return sum(found) / len(found)


def tables(datasets: Path) -> Iterator[tuple[str, list[dict[str, str]], list[str], list[float], list[float]]]:
    """Name, rows, parameters, values (smaller is better) and seconds of each table."""
    for path in sorted((datasets / "hpo").glob("*.csv.gz")):
        found = rows(path)
        names = [name for name in found[0] if not name.rpartition("_")[2].isdigit() and name != "model_size"]
        if path.name.startswith("hpolib"):
            found = found[::3]
            names = [n for n in found[0] if not n.startswith(("train_time", "val_loss", "model_size"))]
            yield path.name.split(".")[0], found, names, [mean(r, "val_loss") for r in found], _seconds(found)
        elif path.name.startswith("nasbench"):
            names = [n for n in found[0] if n.startswith("Op")]
            yield path.name.split(".")[0], found, names, [100 - mean(r, "val_acc") for r in found], _seconds(found)
        else:
            yield path.name.split(".")[0], found, names, [1 - mean(r, "val_acc") for r in found], _seconds(found)
    yield from _clouds(datasets)


def _clouds(datasets: Path) -> Iterator[tuple[str, list[dict[str, str]], list[str], list[float], list[float]]]:
    """Error of TrimTuner's CNN on all of its data; what the jobs of Lynceus cost."""
    names = ["n_workers", "vm_flavor", "learning_rate", "batch_size", "synchronism"]
    found = [row for row in rows(datasets / "trimtuner/cnn.csv.gz") if row["training_set_size"] == "60000"]
    seconds = [float(row["training_time"]) for row in found]
    yield "trimtuner_cnn", found, names, [1 - float(row["acc"]) for row in found], seconds
    prices = dict(
        zip(("t2.small", "t2.medium", "t2.xlarge", "t2.2xlarge"), (0.023, 0.0464, 0.1856, 0.3712), strict=True)
    )
    for path in sorted((datasets / "lynceus/tensorflow").glob("*.csv")):
        found = rows(path)
        seconds = [float(row["training_time"]) for row in found]
        costs = []
        for row, spent in zip(found, seconds, strict=True):
            short = spent > 600 and float(row["acc"]) < 0.85
            whole = spent * 0.85 / float(row["acc"]) if short else spent
            costs.append(whole / 3600 * prices[row["vm_flavor"]] * (float(row["n_workers"]) + 2))
        yield f"lynceus_{path.stem}", found, names, costs, seconds
    for path in sorted((datasets / "lynceus/cherrypick").glob("*.csv")):
        found = rows(path)
        seconds = [float(row["time"]) for row in found]
        hourly = [float(row["num_machines"]) * float(row["vm_cost"]) for row in found]
        costs = [spent / 3600 * price for spent, price in zip(seconds, hourly, strict=True)]
        yield f"lynceus_{path.stem}", found, ["num_machines", "vm_name", "disk_name", "disk_count"], costs, seconds


def _seconds(found: list[dict[str, str]]) -> list[float]:
    if "train_time" in found[0]:
        return [float(row["train_time"]) for row in found]
    return [mean(row, "train_time") for row in found]


def tpe(found: list[dict[str, str]], names: list[str], values: list[float], seed: int) -> list[int]:
    """The rows that TPE visits, each at most once; what is not in the table moves to a random untried row."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    levels = {name: list(dict.fromkeys(row[name] for row in found)) for name in names}
    for name, each in levels.items():
        try:
            levels[name] = sorted(each, key=float)
        except ValueError:
            levels[name] = each
    place = {tuple(row[name] for name in names): at for at, row in enumerate(found)}
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=10))
    rng, seen, order = np.random.default_rng(seed), set[int](), list[int]()
    numeric = {name: all(_number(each) for each in levels[name]) for name in names}
    for _ in range(min(TRIALS, len(found))):
        trial = study.ask()
        chosen: list[Any] = []
        for name in names:
            if numeric[name]:
                chosen.append(levels[name][trial.suggest_int(name, 0, len(levels[name]) - 1)])
            else:
                chosen.append(trial.suggest_categorical(name, levels[name]))
        at = place.get(tuple(chosen))
        while at is None or at in seen:
            at = int(rng.integers(len(found)))
        seen.add(at)
        order.append(at)
        study.tell(trial, values[at])
    return order


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def main() -> int:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", type=Path)
    given = parser.parse_args()
    WORK.mkdir(exist_ok=True)
    out = dict(np.load(WORK / "tables.npz")) if (WORK / "tables.npz").exists() else {}
    searched = dict(np.load(WORK / "tpe.npz")) if (WORK / "tpe.npz").exists() else {}
    for name, found, names, values, seconds in tables(given.datasets):
        if name in out:
            continue
        out[name] = np.array([values, seconds])
        for seed in range(SEEDS):
            if f"{name}/{seed}" not in searched:
                searched[f"{name}/{seed}"] = np.array(tpe(found, names, values, seed))
        print(f"{name}: {len(found)} configurations, {names}, {np.mean(seconds):.0f} s in the mean", flush=True)
    np.savez_compressed(WORK / "tables.npz", **out)
    np.savez_compressed(WORK / "tpe.npz", **searched)
    return 0


if __name__ == "__main__":
    sys.exit(main())
