"""Learning curves: what each configuration reported while it was trained, and when, and at which price."""

from __future__ import annotations

import csv
import gzip
import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HOURLY = {"t2.small": 0.023, "t2.medium": 0.0464, "t2.xlarge": 0.1856, "t2.2xlarge": 0.3712}
"""USD an hour, on demand, us-east-1, November 2017."""

REPORT_SECONDS = 30.0
"""How often the recorded program of ``cnn`` is taken to report."""


@dataclass(frozen=True)
class Recorded:
    """One configuration.

    Attributes:
        points: Step, error, and seconds since the start, in order.
        seconds: How long the whole run took.
        hourly: USD an hour, all machines.
        chosen: The values of its parameters, where a searcher may choose them.
    """

    points: tuple[tuple[float, float, float], ...]
    seconds: float
    hourly: float
    chosen: tuple[float, ...] = ()

    @property
    def error(self) -> float:
        """The error at the end."""
        return self.points[-1][1]


@dataclass(frozen=True)
class Table:
    """All configurations of a program.

    Attributes:
        name: Its name.
        rows: The configurations.
        settings: What a user would set of a stopper who knows the program: its first and its last step.
    """

    name: str
    rows: tuple[Recorded, ...]
    settings: dict[str, float]


def mnist(folder: Path) -> Table:
    """MNIST on one machine: the test error of 256 configurations after 1, 2, 4, 8 and 16 epochs."""
    found: dict[tuple[str, ...], list[tuple[float, float, float]]] = defaultdict(list)
    with gzip.open(folder / "hyperjump/mnist_epoch_datasetsize.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if float(row["size"]) == 1.0:
                key = (row["lr"], row["momentum"], row["bacth"], row["weightDecay"])
                found[key].append((float(row["epoch"]), float(row["testError"]), float(row["trainTime"])))
    rows = []
    for key, points in found.items():
        chosen = tuple(map(float, key))
        ordered = sorted(points)
        whole = ordered[-1][2]
        # Each number of epochs was trained by itself: the times of the shorter ones are those of the longest one's.
        even = tuple((epoch, error, whole * epoch / ordered[-1][0]) for epoch, error, _ in ordered)
        rows.append(Recorded(even, whole, 1.0, chosen))
    return Table("mnist", tuple(rows), {"first_step": 1, "last_step": 16})


def cnn(folder: Path) -> Table:
    """A CNN on clusters of AWS, on all 60,000 images: 288 configurations; the step is the second of training."""
    rows = []
    with gzip.open(folder / "trimtuner/cnn.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if row["training_set_size"] != "60000":
                continue
            errors = [1.0 - float(text) for text in row["intermediate_acc_values"].split()]
            done = [float(text) for text in row["intermediate_no_interations"].split()]
            seconds = float(row["training_time"])
            times = [seconds * count / max(done[-1], float(row["total_iterations"])) for count in done]
            points, at = [], REPORT_SECONDS
            while at < seconds:
                known = [error for error, when in zip(errors, times, strict=True) if when <= at]
                if known:
                    points.append((at, known[-1], at))
                at += REPORT_SECONDS
            points.append((seconds, 1.0 - float(row["acc"]), seconds))
            hourly = HOURLY[row["vm_flavor"]] * (int(row["n_workers"]) + 1)
            rows.append(Recorded(tuple(points), seconds, hourly))
    return Table("cnn", tuple(rows), {"first_step": REPORT_SECONDS, "last_step": 570})


def crossing() -> Table:
    """Synthetic, and meant to mislead: the better a configuration is in the end, the slower it begins; 27 steps."""
    rng = np.random.default_rng(7)
    last = rng.uniform(0.02, 0.4, 256)
    pace = 2 + 5 * (1 - last / 0.4) * rng.uniform(0.5, 1.5, 256)
    rows = []
    for least, slow in zip(last.tolist(), pace.tolist(), strict=True):
        errors = [least + (0.9 - least) * math.exp(-step / slow) for step in range(1, 28)]
        rows.append(Recorded(tuple((float(i), e, i * 10.0) for i, e in enumerate(errors, 1)), 270.0, 1.0))
    return Table("crossing", tuple(rows), {"first_step": 1, "last_step": 27})
