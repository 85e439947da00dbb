"""PARIS's published figures beside ours, by leaving one workload out: ``python paris.py run|analyze [DATASETS]``.

``run`` writes work/paris.csv (about 2 minutes of CPU), ``analyze`` prints the tables of the README. PARIS's own data
are not public: what can be compared is the kind of figure, on three other tables.
"""

from __future__ import annotations

import csv
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "compare"))

import prepare  # noqa: E402
import tables  # noqa: E402

from tradewind import plugins  # noqa: E402
from tradewind.problem import JobParameters, PastStudy, Proposal, Trial  # noqa: E402
from tradewind.testing.problems import KnownProblem, drive, evaluate  # noqa: E402

SETS = {"scout": prepare.scout, "multicloud": prepare.multicloud, "flora": prepare.flora}
METHODS = ("paris", "mean ratio", "line", "power law")
FIELDS = (
    "set", "workload", "method", "error", "median_error", "above_p90", "pick_cost", "pick_late", "optimum", "runs",
    "best_of_all", "spent", "mean_cost", "pair", "seconds",
)  # fmt: skip


def study_of(problem: KnownProblem, name: str) -> PastStudy:
    """A past in which every configuration was run once."""
    candidates = problem.candidates
    trials = [evaluate(problem, Proposal(candidates.configuration(i)), i) for i in range(len(candidates))]
    return PastStudy(name, JobParameters(), tuple(trials))


def interpolated(problem: KnownProblem, first: Trial, second: Trial, *, logs: bool) -> np.ndarray:
    """Times of all candidates on a line through the two reference runs, by total cores.

    In plain numbers the line is held at its ends, where it would soon be negative; in logarithms it goes on.
    """
    candidates = problem.candidates
    cores = np.array([o.vcpu * o.nodes for o in (candidates.offer(i) for i in range(len(candidates)))], dtype=float)
    ends = sorted((t.offer.vcpu * t.offer.nodes, t.observation.runtime) for t in (first, second) if t.observation)
    (low, slow), (high, fast) = ends
    if high == low:
        return np.full(len(cores), np.sqrt(slow * fast))
    if not logs:
        return np.interp(cores, [low, high], [slow, fast])
    slope = np.log(fast / slow) / np.log(high / low)
    return slow * (cores / low) ** slope


def mean_ratio(problem: KnownProblem, first: Trial, past: Sequence[PastStudy]) -> np.ndarray:
    """Times as the others' geometric mean of time by time on the first reference."""
    logs: list[list[float]] = [[] for _ in range(len(problem.candidates))]
    place = {problem.candidates.key(i): i for i in range(len(problem.candidates))}
    for study in past:
        seen = {t.key: t.observation.runtime for t in study.trials if t.observation and t.state == "succeeded"}
        if first.key in seen:
            for key, seconds in seen.items():
                if key in place:
                    logs[place[key]].append(float(np.log(seconds / seen[first.key])))
    assert first.observation is not None
    known = [float(np.mean(found)) if found else np.nan for found in logs]
    ratios = np.where(np.isfinite(known), known, np.nanmean(known))
    return first.observation.runtime * np.exp(ratios)


def left_out(which: str, problem: KnownProblem, past: Sequence[PastStudy]) -> Iterator[dict[str, Any]]:
    """One workload: predictions of every method from the same two references, and what they choose."""
    began = time.process_time()
    problem = replace(problem, past=tuple(past))
    searcher = plugins.create("searcher", "paris", {}, problem=problem, seed=1)
    trials = drive(searcher, problem, 100)
    done = [t for t in trials if str(t.proposal.why["stage"]).startswith("reference") and t.state == "succeeded"]
    first, second = done[-2:] if len(done) > 2 else done
    candidates = problem.candidates
    rows = {candidates.configuration(i): i for i in range(len(candidates))}
    points = {rows[p.configuration]: p for p in searcher.predict_map()}
    ours = np.array([points[i].time for i in range(len(candidates))])
    late = np.array([points[i].time_p90 for i in range(len(candidates))])
    guesses = {
        "paris": ours,
        "mean ratio": mean_ratio(problem, first, past),
        "line": interpolated(problem, first, second, logs=False),
        "power law": interpolated(problem, first, second, logs=True),
    }
    truth = [problem.truth(candidates.configuration(i), candidates.offer(i)) for i in range(len(candidates))]
    seconds = np.array([o.runtime for o in truth])
    ran = np.array([not o.failed for o in truth])
    apart = [rows[t.configuration] for t in (first, second)]
    asked = ran.copy()
    asked[apart] = False
    bills = np.array([problem.bill(candidates.configuration(i)) for i in range(len(candidates))])
    deadline = problem.constraints.deadline
    optimum = problem.optimum()
    assert optimum is not None
    assert deadline is not None
    feasible = [t.observation.objective for t in trials if t.observation is not None and t.observation.feasible]
    for method, guess in guesses.items():
        off = np.abs(guess / seconds - 1)[asked]
        judged = late if method == "paris" else guess
        allowed = judged <= deadline
        cost = guess * candidates.hourly / 3600
        pick = int(np.argmin(np.where(allowed, cost, np.inf))) if allowed.any() else int(np.argmin(judged))
        yield {
            "set": which, "workload": problem.job.name, "method": method, "error": off.mean(),
            "median_error": np.median(off),
            "above_p90": (seconds > late)[asked].mean() if method == "paris" else "",
            "pick_cost": bills[pick], "pick_late": int(not ran[pick] or seconds[pick] > deadline),
            "optimum": optimum[1], "runs": len(trials), "best_of_all": min(feasible, default=""),
            "spent": sum(t.spent for t in trials), "mean_cost": bills.mean(), "pair": searcher.references_words(),
            "seconds": time.process_time() - began,
        }  # fmt: skip


def run(folder: Path) -> None:
    (HERE / "work").mkdir(exist_ok=True)
    with (HERE / "work/paris.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for which, read in SETS.items():
            found = [tables.build(table) for table in read(folder)]
            studies = [study_of(problem, problem.job.name) for problem in found]
            for i, problem in enumerate(found):
                for row in left_out(which, problem, studies[:i] + studies[i + 1 :]):
                    writer.writerow(row)
                file.flush()
                print(which, problem.job.name, f"{row['seconds']:.1f} s", flush=True)


def mean(rows: Sequence[Mapping[str, str]], name: str) -> float:
    return float(np.mean([float(row[name]) for row in rows]))


def analyze() -> None:
    with (HERE / "work/paris.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    print("| set | method | mean error | median error | error / paris | pick's cost / optimum | picks late |")
    print("|---|---|---|---|---|---|---|")
    for which in SETS:
        ours = mean([r for r in rows if r["set"] == which and r["method"] == "paris"], "error")
        for method in METHODS:
            mine = [r for r in rows if r["set"] == which and r["method"] == method]
            in_time = [r for r in mine if r["pick_late"] == "0"]
            cost = np.mean([float(r["pick_cost"]) / float(r["optimum"]) for r in in_time]) if in_time else np.nan
            error, late = mean(mine, "error"), len(mine) - len(in_time)
            middle = np.median([float(r["median_error"]) for r in mine])
            print(f"| {which} ({len(mine)}) | {method} | {error:.0%} | {middle:.0%} | {error / ours:.1f} | "
                  f"{cost:.2f} | {late} of {len(mine)} |")  # fmt: skip
    print("\n| set | runs of a search | best of them / optimum, mean | within 5 % | money, in mean costs | above p90 |")
    print("|---|---|---|---|---|---|")
    for which in SETS:
        mine = [r for r in rows if r["set"] == which and r["method"] == "paris"]
        best = [float(r["best_of_all"]) / float(r["optimum"]) for r in mine if r["best_of_all"]]
        money = [float(r["spent"]) / float(r["mean_cost"]) for r in mine]
        close = sum(b <= 1.05 for b in best)
        print(f"| {which} | {mean(mine, 'runs'):.1f} | {np.mean(best):.2f} ({len(best)} found a feasible one) | "
              f"{close} of {len(mine)} | {np.mean(money):.1f} | {mean(mine, 'above_p90'):.0%} |")  # fmt: skip
    print("\n| set | pick's cost against the line's, both in time |\n|---|---|")
    for which in SETS:
        by = {(r["workload"], r["method"]): r for r in rows if r["set"] == which}
        pairs = [(by[w, "paris"], by[w, "line"]) for w, m in by if m == "paris"]
        both = [float(a["pick_cost"]) / float(b["pick_cost"]) for a, b in pairs
                if a["pick_late"] == b["pick_late"] == "0"]  # fmt: skip
        print(
            f"| {which} | {np.mean(both) - 1:+.0%} on average over {len(both)} workloads |"
            if both
            else f"| {which} | - |"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(Path(sys.argv[2]) if len(sys.argv) > 2 else HERE.parents[2] / "shared/datasets")
    analyze()
