"""Prints the table of ``work/runs.csv``, and draws distance by run: ``python analyze.py [FILE.svg]``."""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
FROM, TO = 8, 15
DRAWN = {
    "paper 5, dynamic": "paper 5: subtasks on request",
    "paper 5, static": "paper 5: subtasks dealt out evenly",
    "stars, time": "stars: best number of workers",
    "blocks, time": "blocks: best size of a block",
}
STYLES = {"default page": ("#0f6cbd", "-", "the first proposal"), "explore off": ("#9a9a9a", "--", "explore: false")}

Sequences = dict[tuple[str, str], np.ndarray]
"""By job and policy: figures of shape (sequences, runs)."""


def read(column: str) -> Sequences:
    """One column of all whole sequences."""
    cells: dict[tuple[str, str], dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    with (HERE / "work/runs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            cells[row["job"], row["policy"]][int(row["seed"])][int(row["run"])] = float(row[column])
    return {
        key: np.array([[runs[run] for run in sorted(runs)] for _, runs in sorted(seeds.items())])
        for key, seeds in cells.items()
    }


def table(share: Sequences, excess: Sequences, trying: Sequences) -> None:
    """Mean of runs 8 to 15, with the standard error over sequences."""
    print(
        "| job | sequences | first proposal: of the range | of the optimum | to learn | explore: false, of the range |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for job in dict.fromkeys(job for job, _ in share):
        own = share[job, "default page"][:, FROM - 1 : TO].mean(axis=1)
        error = own.std(ddof=1) / np.sqrt(len(own)) if len(own) > 1 else float("nan")
        away, tried = (one[job, "default page"][:, FROM - 1 : TO].mean() for one in (excess, trying))
        off = share.get((job, "explore off"))
        words = "-" if off is None else f"{off[:, FROM - 1 : TO].mean():.1%} ({len(off)})"
        print(f"| {job} | {len(own)} | {own.mean():.1%} ± {error:.1%} | {away:.1%} | {tried:.0%} | {words} |")


def plot(share: Sequences, target: Path) -> None:
    """Mean distance from the optimum by run."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update(
        {"svg.hashsalt": "tradewind", "svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif"}
    )
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(DRAWN), figsize=(11.0, 3.2), sharey=True, layout="constrained")
    for ax, (job, title) in zip(axes, DRAWN.items(), strict=True):
        for policy, (colour, line, label) in STYLES.items():
            if (job, policy) in share:
                values = 100 * share[job, policy]
                runs = np.arange(1, values.shape[1] + 1)
                ax.plot(runs, values.mean(axis=0), linestyle=line, color=colour, label=label, linewidth=1.6)
        ax.axvline(FROM, color="#555555", linewidth=0.8)
        ax.axhline(5, color="#555555", linewidth=0.8)
        ax.set_title(title, fontsize=9)
        ax.set_xlabel("run")
        ax.set_xlim(1, TO)
        ax.set_xticks([1, 4, FROM, 12, TO])
        ax.set_ylim(0, 102)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("distance from the optimum,\n% of the range")
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside lower center", ncol=2)
    figure.savefig(target, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    share = read("share")
    table(share, read("excess"), read("trying"))
    if len(sys.argv) > 1:
        plot(share, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
