"""Paper 1's evaluation, its figures 1 and 2: OBOL at depths 0 to 5 against CherryPick with a budget.

    python benchmarks/obol/run.py [DATASETS] [--seeds 50] [--depths 0 1 2 3 4 5] [--policies obol cherrypick random]

searches, appends each search to ``work/results.csv`` as it ends (a search that is there already is not repeated: an
interrupted run goes on) and prints the tables. ``--report`` only prints. ``--plot figures.png`` also draws them as the
paper does: DOPT and NEX against the budget.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from tradewind.problem import Billing, Categorical, Configuration, Instance, Nodes, Offer, Ordinal
from tradewind.testing.problems import KnownOutcome, make_problem
from tradewind.testing.recorded_tables import RecordedProblem
from tradewind.testing.searcher_benchmark import SearcherChoice, search_with_starts

HERE = Path(__file__).parent
RESULTS = HERE / "work/results.csv"
COLUMNS = ["table", "policy", "budget", "seed", "dopt", "nex", "spent", "cpu_seconds", "left_by_itself"]
BUDGETS = (8, 10, 15, 20)
STARTS = 5
MACHINES = {
    "t2.small": (1, 2, 0.023),
    "t2.medium": (2, 4, 0.0464),
    "t2.xlarge": (4, 16, 0.1856),
    "t2.2xlarge": (8, 32, 0.3712),
}
NOTHING_FOUND = float("inf")

POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"obol {d}": ("obol", {"depth": d, "threads": 1, "exact": 384, "min_trials": STARTS}) for d in range(6)},
    **{
        f"obol {d}, sd 10": ("obol", {"depth": d, "threads": 1, "exact": 384, "min_trials": STARTS, "agreement": 10})
        for d in range(6)
    },
    **{
        f"obol {d}, log": (
            "obol",
            {"depth": d, "threads": 1, "exact": 384, "min_trials": STARTS, "target": "log_cost"},
        )
        for d in range(6)
    },
    "cherrypick": ("cherrypick", {"starts": 1, "stop": False, "budget_confidence": 0.99}),
    "cherrypick, its stop": ("cherrypick", {"starts": 1, "budget_confidence": 0.99}),
    "random": ("random", {}),
}


@cache
def table(folder: Path, name: str) -> RecordedProblem:
    """A table of Lynceus as a problem, the mean cost of its configurations, and the least feasible cost."""
    rows = {}
    with (folder / "lynceus/tensorflow" / f"{name}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            seconds, accuracy = float(row["training_time"]), float(row["acc"])
            if seconds > 600 and accuracy < 0.85:
                seconds *= 0.85 / accuracy
            rows[
                row["vm_flavor"],
                int(row["n_workers"]),
                float(row["learning_rate"]),
                int(row["batch_size"]),
                row["synchronism"],
            ] = seconds
    offers = {k: Offer("table", k, vcpu, memory, price) for k, (vcpu, memory, price) in MACHINES.items()}
    parameters = [
        Instance(name="instance", values=tuple(offers), offers=offers),
        Nodes(name="nodes", values=tuple(sorted({key[1] for key in rows}))),
        Ordinal(name="learning_rate", values=(1e-5, 1e-4, 1e-3)),
        Ordinal(name="batch_size", values=(16, 256)),
        Categorical(name="synchronism", values=("sync", "async")),
    ]

    def truth(c: Configuration, _offer: Offer) -> KnownOutcome:
        return KnownOutcome(
            rows[
                str(c["instance"]),
                int(c["nodes"]),
                float(c["learning_rate"]),
                int(c["batch_size"]),
                str(c["synchronism"]),
            ]
        )

    times = sorted(rows.values())
    problem = make_problem(
        parameters,
        truth,
        deadline=times[len(times) // 2],
        billing=Billing(granularity_seconds=1e-4),
        sold={(key[0], key[1]) for key in rows},
        extra_nodes=2,
    )
    bills = [problem.bill(problem.candidates.configuration(i)) for i in range(len(problem.candidates))]
    best = problem.optimum()
    assert len(bills) == 384
    assert best is not None
    return RecordedProblem(problem, statistics.mean(bills), best[1])


def search(job: tuple[Path, str, str, int, int]) -> dict[str, Any]:
    """One search: the same random starts for every policy of a seed; every run ends and is paid, the last one too."""
    folder, name, policy, budget, seed = job
    known = table(folder, name)
    kind, settings = POLICIES[policy]
    started = time.process_time()
    trials = search_with_starts(known, SearcherChoice(policy, kind, settings), budget, seed, starts=STARTS)
    spent = sum(trial.spent for trial in trials) / known.mean
    feasible = [t.spent for t in trials if t.observation is not None and t.observation.feasible]
    return {
        "table": name,
        "policy": policy,
        "budget": budget,
        "seed": seed,
        "dopt": min(feasible) / known.best - 1.0 if feasible else NOTHING_FOUND,
        "nex": len(trials),
        "spent": round(spent, 4),
        "cpu_seconds": round(time.process_time() - started, 3),
        "left_by_itself": int(spent <= budget and len(trials) < len(known.problem.candidates)),
    }


def recorded() -> list[dict[str, str]]:
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


def report() -> Iterator[str]:
    """The tables of the README: median and 90 % quantile by policy and budget."""
    cells: dict[tuple[str, str, int], list[dict[str, str]]] = defaultdict(list)
    for row in recorded():
        cells[row["table"], row["policy"], int(row["budget"])].append(row)
    for name in dict.fromkeys(key[0] for key in cells):
        yield f"\n**{name}**\n"
        yield "| policy | seeds | " + " | ".join(f"{b} x mean" for b in BUDGETS) + " |"
        yield "|---|---|" + "---|" * len(BUDGETS)
        for policy in [p for p in POLICIES if any(key[:2] == (name, p) for key in cells)]:
            figures, seeds = [], 0
            for budget in BUDGETS:
                rows = cells.get((name, policy, budget), [])
                if not rows:
                    figures.append("")
                    continue
                seeds = max(seeds, len(rows))
                dopt, nex = [np.array([float(r[k]) for r in rows]) for k in ("dopt", "nex")]
                middle, high = np.quantile(dopt, [0.5, 0.9], method="inverted_cdf")
                hit = (dopt <= 1e-9).mean()
                most = np.quantile(nex, 0.9, method="inverted_cdf")
                figures.append(f"{middle:.0%} / {high:.0%}, {hit:.0%}, {np.median(nex):.0f} / {most:.0f}")
            yield f"| {policy} | {seeds} | " + " | ".join(figures) + " |"


def compared() -> Iterator[str]:
    """How much more often one depth ends on the exact optimum than another, on the same seeds; and who overspends."""
    of = {(row["table"], row["policy"], row["budget"], row["seed"]): row for row in recorded()}
    rng = np.random.default_rng(1)
    budgets = [str(budget) for budget in BUDGETS]
    yield "\nPoints by which one ends on the exact optimum more often (mean over budgets, 95 % bootstrap of seeds):\n"
    for name in ("cnn", "multilayer"):
        for first, second in itertools.combinations(range(6), 2):
            gains = []
            for seed in {key[3] for key in of}:
                pairs = [[of.get((name, f"obol {d}", budget, seed)) for d in (first, second)] for budget in budgets]
                if all(row is not None for pair in pairs for row in pair):
                    hits = [[float(row["dopt"]) <= 1e-9 for row in pair if row is not None] for pair in pairs]
                    gains.append(np.mean([float(pair[1]) - float(pair[0]) for pair in hits]))
            if gains:
                means = rng.choice(gains, (4000, len(gains))).mean(axis=1)
                low, high = np.quantile(means, [0.025, 0.975])
                words = f"{100 * np.mean(gains):+.1f} [{100 * low:+.1f}, {100 * high:+.1f}], {len(gains)} seeds"
                yield f"- {name}, depth {second} against {first}: {words}"
    for name in ("cnn", "multilayer"):
        beyond = [float(row["spent"]) - 8 for key, row in of.items() if key[:3] == (name, "obol 0", "8")]
        over = sum(each > 1 for each in beyond)
        words = f"{over} of {len(beyond)} more than one mean cost beyond, at worst {max(beyond):.0f}"
        yield f"- {name}, depth 0 at 8: {words}"


def plot(path: Path) -> None:
    """The paper's figures: above how far from the optimum searches end, below how many configurations they explore."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    cells: dict[tuple[str, str], dict[int, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for row in recorded():
        cells[row["table"], row["policy"]][int(row["budget"])].append(row)
    names = list(dict.fromkeys(name for name, _ in cells))
    figure, axes = plt.subplots(2, len(names), figsize=(5.2 * len(names), 7.2), squeeze=False, sharex=True)
    lines = {}
    for column, name in enumerate(names):
        for policy in [policy for policy in POLICIES if (name, policy) in cells]:
            by = cells[name, policy]
            budgets = sorted(by)
            dopt = [[1 + float(row["dopt"]) for row in by[budget]] for budget in budgets]
            nex = [statistics.median(float(row["nex"]) for row in by[budget]) for budget in budgets]
            (lines[policy],) = axes[1][column].plot(budgets, nex, marker="o")
            colour = lines[policy].get_color()
            for share, style in ((0.5, "-"), (0.9, "--")):
                ends = [np.quantile(each, share, method="inverted_cdf") for each in dopt]
                axes[0][column].plot(budgets, ends, style, color=colour, marker="o")
        axes[0][column].set(title=name, yscale="log")
        axes[1][column].set(xlabel="budget, mean costs", xticks=BUDGETS)
    axes[0][0].set_ylabel("cost / optimum (dashed: 90 % quantile)")
    axes[1][0].set_ylabel("configurations explored, median")
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    figure.legend(lines.values(), list(lines), loc="lower center", ncol=6, frameon=False)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="?", type=Path, default=HERE.parents[2] / "shared/datasets")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--depths", type=int, nargs="*", default=[0, 1, 2, 3, 4, 5])
    parser.add_argument("--policies", nargs="*", default=["obol", "cherrypick", "random"])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--plot", type=Path, help="a .png or .svg")
    given = parser.parse_args()
    if not given.report:
        if not (given.datasets / "lynceus/tensorflow").is_dir():
            raise SystemExit(f"{given.datasets} has no lynceus/tensorflow: give the folder of the datasets")
        RESULTS.parent.mkdir(exist_ok=True)
        wanted = []
        for policy in given.policies:
            stem, _, variant = policy.partition(",")
            wanted += [f"{stem} {d},{variant}".rstrip(",") for d in given.depths] if stem == "obol" else [policy]
        done = {(r["table"], r["policy"], int(r["budget"]), int(r["seed"])) for r in recorded()}
        jobs = [
            (given.datasets, name, policy, budget, seed)
            for seed in range(given.seeds)
            for policy in wanted
            for name in ("cnn", "multilayer")
            for budget in BUDGETS
            if (name, policy, budget, seed) not in done
        ]
        with ProcessPoolExecutor(given.processes) as pool, RESULTS.open("a", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            if not done:
                writer.writeheader()
            for ended in as_completed([pool.submit(search, job) for job in jobs]):
                writer.writerow(ended.result())
                file.flush()
    print("\n".join([*report(), *compared()]))
    if given.plot:
        plot(given.plot)


if __name__ == "__main__":
    main()
