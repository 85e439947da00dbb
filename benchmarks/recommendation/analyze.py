"""Prints the tables of ``work/runs.csv``, and draws the plot: ``python analyze.py [FILE.svg]``."""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
NEAR = 0.05
FROM, TO = 8, 17
"""The publication finds it near the optimum from the eighth run; ten runs are judged."""

Table = dict[tuple[str, str], np.ndarray]
"""By job and policy: shape (sequences, runs)."""


def read(column: str) -> Table:
    """One column of all sequences."""
    cells: dict[tuple[str, str], dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    with (HERE / "work/runs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            cells[row["job"], row["policy"]][int(row["seed"])][int(row["run"])] = float(row[column])
    return {
        key: np.array([[runs[number] for number in sorted(runs)] for _, runs in sorted(seeds.items())])
        for key, seeds in cells.items()
    }


def names(table: Table) -> tuple[list[str], list[str]]:
    """Jobs and policies, in their order."""
    return list(dict.fromkeys(job for job, _ in table)), list(dict.fromkeys(policy for _, policy in table))


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """One table in Markdown."""
    print(f"\n{title}\n\n| {' | '.join(header)} |\n|{' --- |' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def near(values: np.ndarray) -> str:
    """Share of the judged runs that are near the optimum, and of the sequences in which eight of ten are."""
    judged = values[:, FROM - 1 : TO] <= NEAR
    return f"{judged.mean():.0%}, {(judged.sum(axis=1) >= 8).mean():.0%}"


def tables(share: Table, excess: Table, spent: Table) -> None:
    """All tables of the README."""
    jobs, policies = names(share)
    count = len(next(iter(share.values())))
    print(f"{count} sequences of each")
    for title, table in (("Share of the range", share), ("Ratio to the optimum", excess)):
        rows = [[job, *(near(table[job, policy]) for policy in policies)] for job in jobs]
        print_table(
            f"{title}: runs {FROM} to {TO} within 5 %, and sequences with eight of these ten", ["job", *policies], rows
        )
        for at, words in (
            (slice(1, 3), "2 and 3"),
            (slice(3, 7), "4 to 7"),
            (slice(7, 17), "8 to 17"),
            (slice(17, 40), "18 to 40"),
        ):
            rows = [[job, *(f"{table[job, p][:, at].mean():.1%}" for p in policies)] for job in jobs]
            print_table(f"{title}: mean distance of runs {words}", ["job", *policies], rows)
    rows = [[job, *(f"{np.median(spent[job, p][:, 17:]):.0f} ms" for p in policies)] for job in jobs]
    print_table("Processor time of a proposal, median of runs 18 to 40", ["job", *policies], rows)


def plot(share: Table, target: Path) -> None:
    """Mean distance from the optimum by run, as figures 10 and 11 of the publication, with its quartiles."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update(
        {"svg.hashsalt": "tradewind", "svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif"}
    )
    import matplotlib.pyplot as plt

    titles = {"dynamic, time": "subtasks on request", "static, time": "subtasks dealt out evenly"}
    styles: dict[str, tuple[str, Any, str]] = {
        "random": ("#9a9a9a", ":", "a random cluster"),
        "largest": ("#c2410c", "--", "the largest cluster"),
        "as published": ("#7c3aed", "-.", "DONE as published"),
        "done, exploring": ("#0d7a5f", (0, (5, 1, 1, 1, 1, 1)), "DONE, exploring"),
        "proposed": ("#0f6cbd", "-", "proposed"),
    }
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.8), sharey=True, layout="constrained")
    for ax, (job, title) in zip(axes, titles.items(), strict=True):
        for policy, (colour, line, label) in styles.items():
            values = 100 * share[job, policy]
            runs = np.arange(1, values.shape[1] + 1)
            if policy == "proposed":
                low, high = np.quantile(values, [0.25, 0.75], axis=0)
                ax.fill_between(runs, low, high, color=colour, alpha=0.15, linewidth=0)
            ax.plot(runs, values.mean(axis=0), linestyle=line, color=colour, label=label, linewidth=1.6)
        ax.axvline(8, color="#555555", linewidth=0.8)
        ax.axhline(5, color="#555555", linewidth=0.8)
        ax.text(8.4, 58, "eighth run", fontsize=8, color="#333333")
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("run")
        ax.set_xlim(1, 40)
        ax.set_ylim(0, 62)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("distance from the optimum, % of the range")
    figure.legend(*axes[1].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside lower center", ncol=5)
    figure.savefig(target, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    share = read("share")
    tables(share, read("excess"), read("ms"))
    if len(sys.argv) > 1:
        plot(share, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
