"""Prints the tables of the comparison from ``work/results``: ``python analyze.py [--tables PREFIX] [--plot FILE.png]``.

Intervals are 95 % percentile bootstraps over seeds: the tables are taken as fixed, whole seeds are drawn with
replacement, and a seed brings its searches of all tables (and of both policies where two are compared) with it. For a
policy without chance such an interval has no width. Where a title says "over tables", tables are drawn instead, each
with the mean of its seeds: how much hangs on which tables there happen to be.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import results as kept
import tables
from bench import BUDGETS, CONDITIONS, NEVER, PASTS
from numpy.typing import NDArray
from run import POLICIES

Array = NDArray[np.float64]
BILLINGS = ("second", "minimum60", "setup120")
MARK = ("tensorflow", "cherrypick", "scout", "multicloud")
"""The families of which older figures exist."""
PEERS = ("random-plain", "random", "exhaustive", "cherrypick", "cherrypick-abort", "obol-0", "obol-0-abort", "obol-2")
PEERS += ("optuna-tpe", "optuna-tpe-abort", "optuna-gp", "smac", "smac-abort")
OURS = "tradewind"
BARS = {"second": (2.0, 0.90), "minimum60": (3.0, 0.85), "setup120": (4.5, 0.75)}
"""Largest geometric mean and smallest share within 8 mean costs, by billing."""


# ---------------------------------------------------------------------- results


class Results:
    """All searches of a folder.

    Args:
        folder: With ``POLICY.csv`` in it.
        names: Tables to look at.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.names = list(names)
        self._rows: dict[tuple[str, str, str], dict[tuple[str, int], dict[str, float]]] = {}
        wanted = set(names)
        for policy in POLICIES:
            for (table, condition, past, seed), row in kept.every(folder, policy).items():
                if table in wanted:
                    figures = {name: float(value) for name, value in row.items() if name not in kept.KEYS}
                    self._rows.setdefault((policy, condition, past), {})[table, int(seed)] = figures
        self.policies = [p for p in POLICIES if any(place[0] == p for place in self._rows)]

    @functools.cache  # noqa: B019  one object a program
    def seeds(
        self, policy: str, condition: str, past: str = "cold", names: tuple[str, ...] | None = None
    ) -> tuple[int, ...]:
        """The seeds that are there for every table."""
        rows = self._rows.get((policy, condition, past), {})
        found = [{seed for table, seed in rows if table == name} for name in names or self.names]
        return tuple(sorted(set.intersection(*found))) if found else ()

    def take(
        self,
        column: str,
        policy: str,
        condition: str,
        past: str = "cold",
        *,
        names: Sequence[str],
        seeds: Sequence[int],
    ) -> Array:
        """One figure, shape (tables, seeds); a policy without chance gives the same for all seeds."""
        rows = self._rows[policy, condition, past]
        single = self.single(policy, condition, past)
        return np.array([[rows[name, 0 if single else seed][column] for seed in seeds] for name in names])

    def single(self, policy: str, condition: str, past: str = "cold") -> bool:
        """True for a policy that was run once because its seeds do not differ: they choose what a past holds."""
        return POLICIES[policy].seeds == 1 and past == "cold" and not CONDITIONS[condition][2]

    def both(
        self, first: tuple[str, str, str], second: tuple[str, str, str], names: tuple[str, ...]
    ) -> tuple[int, ...]:
        """The seeds that two (policy, condition, past) have in common."""
        sets = []
        for policy, condition, past in (first, second):
            seeds = set(self.seeds(policy, condition, past, names))
            sets.append(None if self.single(policy, condition, past) and seeds else seeds)
        given = [s for s in sets if s is not None]
        return tuple(sorted(set.intersection(*given))) if given else (0,)


@dataclass(frozen=True)
class Figure:
    """An estimate with its interval."""

    value: float
    low: float
    high: float

    def text(self, form: str = "{:.2f}") -> str:
        return f"{form.format(self.value)} [{form.format(self.low)}, {form.format(self.high)}]"


def resampled(by_seed: Array, finish: Callable[[Array], Array] = lambda x: x, draws: int = 2000) -> Figure:
    """The mean over seeds with its bootstrap interval.

    Args:
        by_seed: One figure a seed, shape (seeds,).
        finish: What the mean is turned into.
        draws: Resamples.
    """
    rng = np.random.default_rng(0)
    means = by_seed[rng.integers(len(by_seed), size=(draws, len(by_seed)))].mean(axis=1)
    low, high = np.quantile(finish(means), [0.025, 0.975])
    return Figure(float(finish(by_seed.mean(keepdims=True))[0]), float(low), float(high))


def geometric(money: Array, *, over_tables: bool = False) -> Figure:
    """The geometric mean of money, shape (tables, seeds)."""
    return resampled(np.log(money).mean(axis=1 if over_tables else 0), np.exp)


def quantile(values: Array, q: float) -> float:
    """A quantile that is one of the values, so that infinite ones do no harm."""
    return float(np.quantile(values, q, method="inverted_cdf"))


def ratio(
    results: Results,
    ours: tuple[str, str, str],
    other: tuple[str, str, str],
    names: Sequence[str],
    *,
    over_tables: bool = False,
) -> Figure | None:
    """Money of one by money of the other until within 5 %, over paired seeds; None where they share none."""
    kept = tuple(names)
    seeds = results.both(ours, other, kept)
    if not seeds or not all(results.seeds(*side, kept) for side in (ours, other)):
        return None
    logs = [np.log(results.take("close", *side, names=kept, seeds=seeds)) for side in (ours, other)]
    return resampled((logs[0] - logs[1]).mean(axis=1 if over_tables else 0), np.exp)


# ---------------------------------------------------------------------- tables


def percent(value: float) -> str:
    return "none" if np.isinf(value) else f"{100 * value:.1f} %" if value < 10 else f"{100 * value:.0f} %"


def show(title: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    head = list(head)
    print(f"\n### {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def families(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.partition("/")[0], []).append(name)
    return {family: tuple(members) for family, members in found.items()}


def headline(
    results: Results, title: str, names: tuple[str, ...], column: str = "close", *, over_tables: bool = False
) -> None:
    """Money and share by policy and condition."""
    rows = []
    for policy in results.policies:
        cells, counts = [], set()
        for condition in CONDITIONS:
            seeds = results.seeds(policy, condition, "cold", names)
            if not seeds:
                cells.append("")
                continue
            counts.add("1*" if results.single(policy, condition) else str(len(seeds)))
            money = results.take(column, policy, condition, names=names, seeds=seeds)
            cells.append(f"{geometric(money, over_tables=over_tables).text()}, {np.mean(money <= 8):.0%}")
        if any(cells):
            rows.append([POLICIES[policy].words, *cells, "/".join(sorted(counts))])
    show(title, ["policy", *(words for words, _, _ in CONDITIONS.values()), "seeds"], rows)


def distances(results: Results, title: str, names: tuple[str, ...], condition: str) -> None:
    """Median and 90 % quantile of the distance from the optimum by budget."""
    rows = []
    for policy in results.policies:
        if seeds := results.seeds(policy, condition, "cold", names):
            cells = []
            for budget in BUDGETS:
                away = results.take(f"dopt{budget}", policy, condition, names=names, seeds=seeds)
                exact = np.mean(away <= 1e-9)
                cells.append(f"{percent(quantile(away, 0.5))} / {percent(quantile(away, 0.9))}, {exact:.0%}")
            rows.append([POLICIES[policy].words, *cells])
    show(title, ["policy", *(f"{b} mean costs" for b in BUDGETS)], rows)


def by_group(results: Results, title: str, groups: dict[str, tuple[str, ...]], condition: str) -> None:
    """Money until within 5 % and share by group of tables (rows) and policy (columns)."""
    rows = []
    for group, names in groups.items():
        cells = []
        for policy in results.policies:
            seeds = results.seeds(policy, condition, "cold", names)
            if seeds:
                money = results.take("close", policy, condition, names=names, seeds=seeds)
                cells.append(f"{np.exp(np.log(money).mean()):.2f}, {np.mean(money <= 8):.0%}")
            else:
                cells.append("")
        rows.append([f"{group} ({len(names)})" if len(names) > 1 else group, *cells])
    show(title, ["tables", *(POLICIES[p].words for p in results.policies)], rows)


def against(results: Results, ours: str, names: tuple[str, ...]) -> None:
    """Paired ratios of a policy to all others, and tables won and lost by family."""
    others = [p for p in results.policies if p != ours]
    for condition, (words, _, _) in CONDITIONS.items():
        rows = []
        for other in others:
            sides = ((ours, condition, "cold"), (other, condition, "cold"))
            whole = ratio(results, *sides, names)
            if whole is None:
                continue
            cells = []
            for members in families(names).values():
                single = [ratio(results, *sides, [name]) for name in members]
                won = sum(r is not None and r.high < 1 for r in single)
                lost = sum(r is not None and r.low > 1 for r in single)
                part = ratio(results, *sides, members)
                cells.append(f"{part.value if part else float('nan'):.2f} ({won}:{lost})")
            paired = len(results.both(*sides, names))
            wide = ratio(results, *sides, names, over_tables=True)
            spread = f"[{wide.low:.2f}, {wide.high:.2f}]" if wide else ""
            rows.append([POLICIES[other].words, whole.text(), spread, *cells, str(paired)])
        if rows:
            head = ["other policy", "all", "over tables", *families(names), "paired seeds"]
            show(f"{POLICIES[ours].words} by other policies, {words}: ratio of money (tables won : lost)", head, rows)


# ---------------------------------------------------------------------- bars


def verdict(text: str, held: bool | None) -> None:
    print(f"- {'no figures' if held is None else 'pass' if held else 'FAIL'}: {text}")


def bars(results: Results, names: tuple[str, ...]) -> None:
    """The bars that `OURS` has to pass."""
    print(f"\n### Bars of {OURS}\n")
    for condition, (most, share) in BARS.items():
        words = CONDITIONS[condition][0]
        seeds = results.seeds(OURS, condition, "cold", names)
        if not seeds:
            verdict(f"{words}: money at most {most}, {share:.0%} within 8 mean costs", None)
            continue
        money = results.take("close", OURS, condition, names=names, seeds=seeds)
        mean, within = geometric(money), float(np.mean(money <= 8))
        verdict(f"{words}: geometric mean {mean.text()}, at most {most}", mean.value <= most)
        verdict(f"{words}: {within:.1%} within 8 mean costs, at least {share:.0%}", within >= share)
    tensorflow = families(names).get("tensorflow", ())
    for condition, budget in (("minimum60", 4), ("setup120", 8)):
        for part in [tensorflow, *((name,) for name in tensorflow)]:
            seeds = results.seeds(OURS, condition, "cold", part) if part else ()
            if seeds:
                away = results.take(f"dopt{budget}", OURS, condition, names=part, seeds=seeds)
                median, p90 = quantile(away, 0.5), quantile(away, 0.9)
                what = f"{' and '.join(part)}, {CONDITIONS[condition][0]}, {budget} mean costs"
                verdict(f"{what}: median {percent(median)}, p90 {percent(p90)}", median <= 1e-9 and p90 <= 0.05)
    noise_bar(results, names)
    family_bar(results, names)
    warm_bars(results, names)


def noise_bar(results: Results, names: tuple[str, ...]) -> None:
    """Within 10 % with noise as often as without, less five points."""
    sides = [(OURS, "noise10", "cold"), (OURS, "second", "cold")]
    seeds = results.both(sides[0], sides[1], names) if all(results.seeds(*s, names) for s in sides) else ()
    for budget in BUDGETS if seeds else ():
        noisy, clean = (
            np.mean(results.take(f"dopt{budget}", *side, names=names, seeds=seeds) <= 0.1 + 1e-9) for side in sides
        )
        text = f"within 10 % at {budget} mean costs: {noisy:.1%} with noise, {clean:.1%} without"
        verdict(text, bool(noisy >= clean - 0.05))


def family_bar(results: Results, names: tuple[str, ...]) -> None:
    """No family worse than the best named peer by more than the interval."""
    for condition in BILLINGS:
        for family, members in families(names).items():
            found = [
                (float(geometric(results.take("close", p, condition, names=members, seeds=seeds)).value), p)
                for p in PEERS
                if (seeds := results.seeds(p, condition, "cold", members))
            ]
            if not found or not results.seeds(OURS, condition, "cold", members):
                continue
            best = min(found)[1]
            compared = ratio(results, (OURS, condition, "cold"), (best, condition, "cold"), members)
            if compared is not None:
                wide = ratio(results, (OURS, condition, "cold"), (best, condition, "cold"), members, over_tables=True)
                spread = f" (over tables [{wide.low:.2f}, {wide.high:.2f}])" if wide else ""
                text = f"{compared.text()} of {POLICIES[best].words}, the best peer{spread}"
                verdict(f"{family}, {CONDITIONS[condition][0]}: {text}", compared.low <= 1.0)


def warm_bars(results: Results, names: tuple[str, ...]) -> None:
    """Half of cold's money where the suite's other jobs are known; never worse where they teach nothing."""
    for condition in BILLINGS:
        for past in PASTS[1:]:
            for part, members in {"all": names, **families(names)}.items():
                warm = ratio(results, (OURS, condition, past), (OURS, condition, "cold"), members)
                if warm is None:
                    continue
                text = f"{past}, {part}, {CONDITIONS[condition][0]}: {warm.text()} of cold"
                verdict(text, warm.value <= 0.5 if past in ("warm", "complete") else warm.low <= 1.0)


def with_past(results: Results, names: tuple[str, ...]) -> None:
    """Money with a past as a share of what it takes without: by billing, and by family per second."""
    rows = []
    for past in PASTS[1:]:
        found = [ratio(results, (OURS, c, past), (OURS, c, "cold"), names) for c in BILLINGS]
        parts = [ratio(results, (OURS, "second", past), (OURS, "second", "cold"), m) for m in families(names).values()]
        if any(found):
            seeds = len(results.seeds(OURS, "second", past, names))
            rows.append([past, *(f"{one.value:.2f}" if one else "" for one in [*found, *parts]), str(seeds)])
    if rows:
        head = ["past", *(CONDITIONS[c][0] for c in BILLINGS), *families(names), "seeds"]
        show(f"{POLICIES[OURS].words} with a past: money as a share of what it takes without", head, rows)


def walls(results: Results) -> None:
    """Wall time by policy."""
    rows = []
    for policy in results.policies:
        # Recorded searches were timed elsewhere.
        parts = [part for place, part in results._rows.items() if place[0] == policy]
        found = [r for part in parts for r in part.values() if "seconds" in r]
        if not found:
            continue
        steps = np.array([r["ms_a_proposal"] for r in found])
        seconds = np.array([r["seconds"] for r in found])
        rows.append(
            [
                POLICIES[policy].words,
                str(len(found)),
                f"{np.median(steps):.1f} / {np.quantile(steps, 0.9):.1f}",
                f"{seconds.mean():.2f}",
                f"{seconds.sum() / 3600:.2f}",
            ]
        )
    head = ["policy", "searches", "ms a proposal, median / p90", "seconds a search", "hours in all"]
    show("Wall time", head, rows)


# ---------------------------------------------------------------------- the plot


def plot(results: Results, names: tuple[str, ...], path: Path) -> None:
    """Share of searches within 5 % against money spent, one panel a condition."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(CONDITIONS), figsize=(4.1 * len(CONDITIONS), 4.4), sharey=True)
    colours = plt.get_cmap("tab20").colors
    grid = np.linspace(0, 20, 401)
    lines = {}
    for axis, (condition, (words, _, _)) in zip(axes, CONDITIONS.items(), strict=True):
        for i, policy in enumerate(results.policies):
            if seeds := results.seeds(policy, condition, "cold", names):
                money = results.take("close", policy, condition, names=names, seeds=seeds).ravel()
                share = np.searchsorted(np.sort(money), grid, side="right") / len(money)
                ours = policy == OURS
                (lines[policy],) = axis.plot(
                    grid,
                    100 * share,
                    color="black" if ours else colours[i % 20],
                    linewidth=2.4 if ours else 1.3,
                    linestyle="--" if policy.endswith("abort") or policy == "random-plain" else "-",
                    zorder=3 if ours else 2,
                )
        axis.set(title=words, xlabel="money spent, mean costs", xlim=(0, 20), ylim=(0, 100), xticks=range(0, 21, 5))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("searches within 5 % of the optimum, %")
    figure.legend(
        lines.values(), [POLICIES[p].words for p in lines], loc="lower center", ncol=min(6, len(lines)), frameon=False
    )
    figure.tight_layout(rect=(0, 0.05 + 0.045 * ((len(lines) + 5) // 6), 1, 1))
    figure.savefig(path, dpi=110)
    plt.close(figure)
    print(f"\nplot: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default="", help="what names start with")
    parser.add_argument("--work", type=Path, default=tables.HERE / "work", help="folder of tables.json and results")
    parser.add_argument("--every", action="store_true", help="one line for every table, too")
    parser.add_argument("--plot", type=Path, help="write the share against the money to this file (.png, .svg)")
    parser.add_argument("--against", default=OURS, help="the policy that the others are compared with")
    given = parser.parse_args()
    every = [t["name"] for t in tables.load(given.work / "tables.json")]
    names = tuple(n for n in every if n.startswith(tuple(given.tables.split(","))))
    results = Results(given.work / "results", names)
    if not results.policies:
        raise SystemExit("no results: run run.py first")
    print(
        f"{len(names)} tables; never within 20 mean costs counts as {NEVER:g}; 1* is a policy without chance, run once"
    )
    mark = tuple(n for n in names if n.startswith(MARK))
    headline(results, f"Money until within 5 % [95 % interval], share within 8: all {len(names)} tables", names)
    if mark and mark != names:
        headline(results, f"The same on the {len(mark)} tables of {', '.join(MARK)}", mark)
    headline(results, f"Money until within 5 %, intervals over tables: all {len(names)}", names, over_tables=True)
    headline(results, f"Money until exactly at the optimum, share within 8: all {len(names)} tables", names, "exact")
    for condition, (words, _, _) in CONDITIONS.items():
        distances(results, f"Distance from the optimum, median / p90, share exact: {words}", names, condition)
        by_group(results, f"By family: {words}", families(names), condition)
        if given.every:
            by_group(results, f"By table: {words}", {name: (name,) for name in names}, condition)
    if given.against in results.policies:
        against(results, given.against, names)
    if OURS in results.policies:
        with_past(results, names)
        bars(results, names)
    walls(results)
    if given.plot:
        plot(results, names, given.plot)


if __name__ == "__main__":
    main()
