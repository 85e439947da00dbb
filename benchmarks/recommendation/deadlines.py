"""As cheaply as possible within a deadline, from past runs: ``python deadlines.py [sequences | show]``.

The protocol of ``run.py``, with a deadline for each run that some of the clusters keep. Counted is which of the
proposals were in time, against the probability that they stated, and what they cost. Writes ``work/deadlines.csv``, a
line for each run, and ``work/chances.csv``, a line for each cluster at some of them.
"""

from __future__ import annotations

import csv
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from statistics import fmean, median

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from analyze import print_table
from jobs import HERE, Cluster, Job, Point, cluster_of
from run import History, drawn, jobs, largest, searcher

from tradewind.problem import Constraints, Proposal
from tradewind.searcher.base import Recommendation, Recommends

RUNS = 40
TIGHT = (0.05, 0.75)
"""The share of the clusters that are in time is drawn between these."""

LOOKED_AT = (8, 12, 17, 25, 40)
"""Runs before which the chances of all clusters are written down, not that of the proposal alone."""

BINS = (0.0, 0.05, 0.3, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
SPANS = ((2, 7), (8, 17), (18, RUNS))
SETTINGS: dict[str, dict[str, object]] = {
    "likeliest fit alone": {"average": False},
    "lines alone": {"law": False},
    "proposed": {},
    "confidence 0.9": {"confidence": 0.9},
}

Row = dict[str, object]


def deadline_of(job: Job, point: Point, rng: np.random.Generator) -> float:
    """Seconds that some of the clusters keep, by the median of the passes."""
    times = [median(seconds) for seconds in job.seconds[point].values()]
    return float(np.quantile(times, rng.uniform(*TIGHT)))


def expected(job: Job, point: Point, deadline: float, past: History, policy: str, seed: int) -> list[Recommendation]:
    """What the service says of every cluster, the best first."""
    problem = replace(job.problems[point], constraints=Constraints(deadline))
    made = searcher("done", SETTINGS[policy], problem, past, seed)
    assert isinstance(made, Recommends)
    return made.recommend(len(problem.candidates))


def judged(job: Job, point: Point, deadline: float, cluster: Cluster) -> tuple[float, float]:
    """Share of the passes that were in time, and the cost as a ratio to the cheapest cluster in time."""
    passes = job.seconds[point]
    keep = [job.value(point, each) for each, seconds in passes.items() if median(seconds) <= deadline]
    return fmean(seconds <= deadline for seconds in passes[cluster]), job.value(point, cluster) / min(keep)


def sequence(task: tuple[str, str, int]) -> tuple[list[Row], list[Row]]:
    """One sequence of runs: its proposals, and what was said of all clusters."""
    name, policy, seed = task
    job = jobs()[name]
    inputs, world = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    limits = np.random.default_rng([seed, 4])
    past: History = []
    rows: list[Row] = []
    chances: list[Row] = []
    for number in range(1, RUNS + 1):
        point = job.points[int(inputs.integers(len(job.points)))]
        deadline = deadline_of(job, point, limits)
        about: Row = {"job": name, "policy": policy, "seed": seed, "run": number}
        stated = covered = float("nan")
        if policy == "largest" or not past:
            choose = largest if policy == "largest" else drawn
            answer = choose(job, point, past, np.random.default_rng([seed, 3, number]), seed)
        else:
            every = expected(job, point, deadline, past, policy, 1000 * seed + number)
            answer, stated = Proposal(every[0].configuration), every[0].probability_feasible
            covered = fmean(
                every[0].runtime_low <= seconds <= every[0].runtime_high
                for seconds in job.seconds[point][cluster_of(answer.configuration)]
            )
            if number in LOOKED_AT:
                for one in every:
                    kept, _ = judged(job, point, deadline, cluster_of(one.configuration))
                    chances.append({**about, "stated": round(one.probability_feasible, 6), "kept": kept})
        kept, ratio = judged(job, point, deadline, cluster_of(answer.configuration))
        past.append((point, job.run(point, answer, number, world)))
        rows.append({**about, "stated": round(stated, 6), "kept": kept, "covered": covered, "ratio": round(ratio, 6)})
    return rows, chances


def write(name: str, rows: Sequence[Row]) -> None:
    """A table as CSV."""
    (HERE / "work").mkdir(exist_ok=True)
    with (HERE / "work" / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def read(name: str) -> list[dict[str, str]]:
    """What `write` has written."""
    with (HERE / "work" / name).open(newline="") as file:
        return list(csv.DictReader(file))


def calibration(title: str, rows: Iterable[dict[str, str]], policies: Sequence[str]) -> None:
    """What was stated, and how often it was so, of both jobs."""
    cells: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        stated = float(row["stated"])
        if not np.isnan(stated):
            place = int(np.searchsorted(BINS[1:-1], stated, side="right"))
            cells[row["policy"], place].append((stated, float(row["kept"])))

    def cell(found: list[tuple[float, float]]) -> str:
        return f"{fmean(s for s, _ in found):.0%}: {fmean(k for _, k in found):.0%} ({len(found):,})" if found else "-"

    lines = [
        [f"{BINS[k]:.0%} to {BINS[k + 1]:.0%}", *(cell(cells.get((policy, k), [])) for policy in policies)]
        for k in range(len(BINS) - 1)
    ]
    print_table(title, ["stated", *policies], lines)


def show() -> None:
    """The tables of the README."""
    rows = read("deadlines.csv")
    names, policies = list(dict.fromkeys(r["job"] for r in rows)), list(dict.fromkeys(r["policy"] for r in rows))

    def mean(column: str, of: list[dict[str, str]]) -> str:
        values = [float(row[column]) for row in of]
        return f"{fmean(values):.0%}" if values and not np.isnan(values).any() else "-"

    def sure(of: list[dict[str, str]]) -> list[dict[str, str]]:
        return [row for row in of if float(row["stated"]) >= 0.7]

    def dear(of: list[dict[str, str]]) -> str:
        ratios = [float(row["ratio"]) for row in of if float(row["kept"]) > 0]
        return f"{median(ratios):.2f}" if ratios else "-"

    figures: list[tuple[str, Callable[[list[dict[str, str]]], str]]] = [
        ("stated: in time", lambda of: f"{mean('stated', of)}: {mean('kept', of)}"),
        (
            "in time where 70 % or more is stated (share of the proposals where it is)",
            lambda of: f"{mean('kept', sure(of))} ({len(sure(of)) / len(of):.0%})",
        ),
        ("the time within the 90 % range", lambda of: mean("covered", of)),
        ("median cost of those in time, by that of the cheapest cluster in time", dear),
    ]
    for title, figure in figures:
        lines = []
        for name in names:
            for first, last in SPANS:
                of = [r for r in rows if r["job"] == name and first <= int(r["run"]) <= last]
                lines.append(
                    [name, f"{first} to {last}", *(figure([r for r in of if r["policy"] == p]) for p in policies)]
                )
        print_table(title, ["job", "runs", *policies], lines)
    said = {"Proposals from the eighth run on": rows, "All clusters": read("chances.csv")}
    for title, of in said.items():
        late = [row for row in of if int(row["run"]) >= 8]
        calibration(f"{title}, stated: in time (how many)", late, [p for p in policies if p in SETTINGS])


def main() -> None:
    if sys.argv[1:] == ["show"]:
        show()
        return
    sequences = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    names = [name for name in jobs() if name.endswith("cost")]
    tasks = [(n, policy, seed) for n in names for policy in (*SETTINGS, "largest") for seed in range(sequences)]
    with ProcessPoolExecutor(max_workers=int(os.environ.get("CORES", "2"))) as pool:
        parts = list(pool.map(sequence, tasks))
    write("deadlines.csv", [row for rows, _ in parts for row in rows])
    write("chances.csv", [row for _, chances in parts for row in chances])
    show()


if __name__ == "__main__":
    main()
