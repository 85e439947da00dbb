"""Leave-one-family-out: ``python held_out.py --made work-made --choices "default;repeats 1" --out work/held_out.csv``.

Settings that are chosen on tables flatter themselves on them. Here every choice of settings is tried on all families,
and for each family the choice that is best on all the others is judged on that one: deadlines at five quantiles, three
billings, with and without noise, recorded and made tables. Peers and the cheapest-first order have the same cuts.
``--report`` prints the table of what the file holds; a run that was stopped goes on with the file.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np
import peers
import tables
from bench import CONDITIONS, NEVER, Bench, Record, search

from tradewind import plugins
from tradewind.problem import Trial, TrialState

QUANTILES = (0.25, 0.35, 0.5, 0.65, 0.8)
"""Share of all rows that are in time."""
MOST_ROWS = 500
"""Larger tables are left out: their searches would be most of the time that this takes."""
COLUMNS = ("choice", "family", "table", "quantile", "condition", "close", "late_money", "spent", "cheapest_wins")


@dataclass(frozen=True)
class Choice:
    """A searcher with settings, and constants of its modules by ``module:NAME``."""

    searcher: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)


POSTERIOR = "tradewind.searcher.default.posterior"
CHOICES = {
    "default": Choice("tradewind"),
    "beyond 0": Choice("tradewind", {"beyond": 0.0}),
    "repeats 1": Choice("tradewind", {"repeats": 1}),
    "beyond 0, repeats 1": Choice("tradewind", {"beyond": 0.0, "repeats": 1}),
    "failure says little": Choice("tradewind", {}, {f"{POSTERIOR}:PricedPosterior.label_noise": 1.0}),
    "deadline vaguer": Choice("tradewind", {}, {f"{POSTERIOR}:LEVEL_SD": 3.0}),
    "price says less": Choice("tradewind", {}, {f"{POSTERIOR}:PRICE_SLOPE": 0.6}),
}
"""What is chosen from; all of them are the default searcher."""
RIVALS = {
    "cheapest first": Choice("exhaustive", {"order": "cheapest"}),
    "random": Choice("random"),
    "Optuna TPE": Choice("peer:optuna-tpe"),
    "SMAC3": Choice("peer:smac"),
    "HEBO": Choice("peer:hebo"),
    "BoTorch per dollar": Choice("peer:botorch"),
}
"""They are judged beside it, with the same cuts."""


@contextmanager
def patched(constants: Mapping[str, Any]) -> Iterator[None]:
    """The constants in place of those of the modules."""
    before = []
    for place, value in constants.items():
        module, _, path = place.partition(":")
        *owners, name = path.split(".")
        owner: Any = importlib.import_module(module)
        for one in owners:
            owner = getattr(owner, one)
        before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


class LateRecord(Record):
    """Also sums up what runs cost that missed the deadline, or were cut short at it or beyond."""

    late = 0.0

    def add(self, trial: Trial) -> bool:
        """Take a trial in; True when nothing more can be learnt of the search."""
        seen = trial.observation
        missed = self.bench.late(trial.configuration) > 0 and trial.state is not TrialState.FAILED
        if seen is not None and missed:
            self.late += trial.spent / self.bench.mean
        return super().add(trial) or self.close < NEVER


def sample(path: Path, each: int) -> list[dict[str, Any]]:
    """The first tables of each family that are not too large."""
    taken: dict[str, int] = defaultdict(int)
    found = []
    for table in tables.load(path / "tables.json"):
        if len(table["rows"]) <= MOST_ROWS and taken[table["family"]] < each:
            taken[table["family"]] += 1
            found.append(table)
    return found


def with_deadline(table: Mapping[str, Any], quantile: float) -> dict[str, Any]:
    """The table with its deadline at a quantile of all times."""
    return {**table, "deadline": tables.deadline_of([row["seconds"] for row in table["rows"]], quantile)}


def cheapest_wins(bench: Bench) -> bool:
    """True where the optimum is among the cheapest tenth of the configurations by the hour."""
    hourly = bench.problem.candidates.hourly
    best = [i for i in range(len(bench)) if bench.away[bench.problem.candidates.configuration(i).key] <= 1e-9]
    return any(float((hourly < hourly[i]).mean()) <= 0.1 for i in best)


def one(name: str, choice: Choice, bench: Bench, seed: int) -> tuple[float, float, float]:
    """Mean costs until within 5 %, those of late runs until then, and all that were spent."""
    record = LateRecord(bench)
    with patched(choice.constants), bench.as_seen(seed) as problem:
        if choice.searcher.startswith("peer:"):
            searcher: Any = peers.make(choice.searcher.removeprefix("peer:"), problem, seed)
        else:
            searcher = plugins.create("searcher", choice.searcher, choice.settings, problem=problem, seed=seed)
        search(bench, searcher, abort=True, record=record)
    return record.close, record.late, record.spent


def run(given: argparse.Namespace) -> None:
    """Search what is not in the file yet."""
    every = {**CHOICES, **RIVALS}
    done = {tuple(row[c] for c in ("choice", "table", "quantile", "condition")) for row in rows_of(given.out)}
    with appended(given.out, COLUMNS) as write:
        for table in chosen_tables(given):
            for place, quantile in enumerate(QUANTILES):
                for turn, condition in enumerate(CONDITIONS):
                    if (given.half and (place + turn) % 2) or quantile not in given.quantiles:
                        continue
                    if condition not in given.conditions:
                        continue
                    key = (table["name"], f"{quantile:g}", condition)
                    wanted = [name for name in given.choices if (name, *key) not in done]
                    if not wanted:
                        continue
                    dated = with_deadline(table, quantile)
                    if not has_winner(dated):
                        continue  # what fails at once is quick: nothing else is in time
                    bench = Bench(dated, condition)
                    for name in wanted:
                        figures = one(name, every[name], bench, seed=given.seed)
                        numbers = [f"{figure:.5g}" for figure in figures]
                        write([[name, table["family"], *key, *numbers, int(cheapest_wins(bench))]])


@contextmanager
def appended(path: Path, columns: Sequence[str]) -> Iterator[Callable[[Sequence[Sequence[Any]]], None]]:
    """A function that adds rows to a file of results, each call at once; a new file gets the columns first."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(columns)

        def write(rows: Sequence[Sequence[Any]]) -> None:
            writer.writerows(rows)
            file.flush()

        yield write


def chosen_tables(given: argparse.Namespace) -> list[dict[str, Any]]:
    """The tables that the options of `add_table_options` name, recorded and made."""
    found = [*sample(given.work, given.each), *(sample(given.made, given.each) if given.made else [])]
    return [table for table in found if not given.families or table["family"] in given.families.split(",")]


def has_winner(table: Mapping[str, Any]) -> bool:
    """True where a row of a table is in time."""
    return any(row["seconds"] <= table["deadline"] and not row["failed"] for row in table["rows"])


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options that say which tables are searched."""
    parser.add_argument("--work", type=Path, default=tables.HERE / "work", help="folder of tables.json")
    parser.add_argument("--made", type=Path, help="the same of made tables (made.py)")
    parser.add_argument("--each", type=int, default=2, help="tables of each family at most")
    parser.add_argument("--families", default="", help="flora,scout; all without it")


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a file of results; none where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# ---------------------------------------------------------------------- the table


Cells = dict[str, dict[tuple[str, ...], float]]


def cells_of(rows: Sequence[Mapping[str, str]], column: str) -> Cells:
    """A figure by choice and case, for the cases that all choices have."""
    cells: Cells = defaultdict(dict)
    for row in rows:
        case = (row["family"], row["table"], row["quantile"], row["condition"])
        cells[row["choice"]][case] = float(row[column])
    common = set.intersection(*(set(found) for found in cells.values()))
    return {name: {case: found[case] for case in sorted(common)} for name, found in cells.items()}


def mean_log(found: Mapping[tuple[str, ...], float], families: Sequence[str]) -> float:
    """Mean over families of the mean logarithm over their cases."""
    means = [np.mean([math.log(max(v, 1e-3)) for case, v in found.items() if case[0] == f]) for f in families]
    return float(np.mean(means))


def report(rows: Sequence[Mapping[str, str]]) -> None:
    """Print what the held-out choice, the default and the rivals need in each family."""
    close, late = cells_of(rows, "close"), cells_of(rows, "late_money")
    families = sorted({case[0] for case in next(iter(close.values()))})
    ours = [name for name in CHOICES if name in close]
    rivals = [name for name in RIVALS if name in close]
    print("| family | cases | held out (choice) | " + " | ".join([*ours, *rivals]) + " | late money, default |")
    print("|" + "---|" * (4 + len(ours) + len(rivals)))
    held = {}
    for family in families:
        others = [one for one in families if one != family]
        best = min(ours, key=lambda name: mean_log(close[name], others))
        held[family] = best
        figures = [f"{math.exp(mean_log(close[name], [family])):.2f}" for name in [*ours, *rivals]]
        cases = sum(case[0] == family for case in close[best])
        chosen = f"{math.exp(mean_log(close[best], [family])):.2f} ({best})"
        share = np.mean([value for case, value in late["default"].items() if case[0] == family])
        print(f"| {family} | {cases} | {chosen} | " + " | ".join(figures) + f" | {share:.2f} |")
    for words, chosen in (("all families", lambda _: True), ("without those the cheapest wins", dearer(rows))):
        cells = {name: {case: v for case, v in found.items() if chosen(case)} for name, found in close.items()}
        among = sorted({case[0] for case in cells["default"]})
        if not among:
            continue
        own = float(np.mean([mean_log(cells[held[family]], [family]) for family in among]))
        figures = [f"{math.exp(mean_log(cells[name], among)):.2f}" for name in [*ours, *rivals]]
        print(f"| {words} | {len(cells['default'])} | {math.exp(own):.2f} | " + " | ".join(figures) + " | |")
    for words, place in (("deadline at", 2), ("billing", 3)):
        for value in sorted({case[place] for case in close["default"]}):
            cells = {n: {c: v for c, v in found.items() if c[place] == value} for n, found in close.items()}
            among = sorted({case[0] for case in cells["default"]})
            own = float(np.mean([mean_log(cells[held[family]], [family]) for family in among]))
            figures = [f"{math.exp(mean_log(cells[name], among)):.2f}" for name in [*ours, *rivals]]
            cases = len(cells["default"])
            print(f"| {words} {value} | {cases} | {math.exp(own):.2f} | " + " | ".join(figures) + " | |")


def dearer(rows: Sequence[Mapping[str, str]]) -> Any:
    """A test for the cases in which the optimum is not among the cheapest."""
    cheap = {
        (row["family"], row["table"], row["quantile"], row["condition"]) for row in rows if row["cheapest_wins"] == "1"
    }
    return lambda case: case not in cheap


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--choices", default="default,cheapest first", help=f"of {', '.join({**CHOICES, **RIVALS})}")
    add_table_options(parser)
    parser.add_argument("--quantiles", default=",".join(f"{q:g}" for q in QUANTILES), help="deadlines")
    parser.add_argument("--conditions", default=",".join(CONDITIONS), help="billings, and noise")
    parser.add_argument("--half", action="store_true", help="half of the deadlines and billings, as a chessboard")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=tables.HERE / "work/held_out.csv")
    parser.add_argument("--report", action="store_true", help="print the table of the file, and search nothing")
    given = parser.parse_args()
    given.choices = [name.strip() for name in given.choices.split(";" if ";" in given.choices else ",")]
    given.quantiles = [float(one) for one in given.quantiles.split(",")]
    given.conditions = given.conditions.split(",")
    return given


def main() -> None:
    given = parsed()
    if wrong := set(given.choices) - {*CHOICES, *RIVALS}:
        raise SystemExit(f"unknown: {', '.join(wrong)}; known are {', '.join({**CHOICES, **RIVALS})}")
    if not given.report:
        run(given)
    report(rows_of(given.out))


if __name__ == "__main__":
    main()
