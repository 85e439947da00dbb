"""Prepared tables as problems whose truth is known."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tradewind.errors import NoOfferError
from tradewind.problem import (
    Billing,
    Budget,
    Categorical,
    Configuration,
    Constraints,
    Expression,
    Instance,
    Job,
    Nodes,
    Objective,
    Offer,
    Ordinal,
    Parameter,
    Space,
    StudyTerms,
)
from tradewind.testing.problems import KnownOutcome, KnownProblem

HERE = Path(__file__).parent

EXACT = Billing(granularity_seconds=1e-4)
"""By the second, with a grain fine enough to reproduce the tables' own cost."""


def load(path: Path = HERE / "work/tables.json") -> list[dict[str, Any]]:
    """The prepared tables.

    Raises:
        SystemExit: They have not been prepared.
    """
    if not path.exists():
        raise SystemExit(f"{path} is not there: run prepare.py first")
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


def deadline_of(seconds: list[float], share: float = 0.5) -> float:
    """The deadline of a table: the time at half of all rows, half a row rounded up (the protocol of Lynceus).

    Args:
        seconds: Of all rows.
        share: Another share than half, above 0 and at most 1.
    """
    return sorted(seconds)[min(math.floor(len(seconds) * share + 0.5), len(seconds) - 1)]


class TableResolver:
    """Finds the offer of a configuration by what it says about machines and nodes.

    Args:
        table: A prepared table.
        offers: The offer of one node by machine.
    """

    def __init__(self, table: Mapping[str, Any], offers: Mapping[str, Offer]) -> None:
        settings = settings_of(table)
        self._names = tuple(p["name"] for p in table["parameters"] if p["name"] not in settings)
        self._found = {
            tuple(row["values"].get(name) for name in self._names): offers[row["machine"]].times(
                row["nodes"] + table["extra_nodes"]
            )
            for row in table["rows"]
        }

    @property
    def machine_parameters(self) -> tuple[str, ...]:
        """The parameters that choose machines."""
        return self._names

    def resolve(self, configuration: Configuration) -> Offer:
        """The machines of a configuration.

        Raises:
            NoOfferError: The table has no row with these machines.
        """
        choice = tuple(configuration.get(name) for name in self._names)
        if choice not in self._found:
            raise NoOfferError(f"{choice} is not in the table")
        return self._found[choice]


def settings_of(table: Mapping[str, Any]) -> set[str]:
    """The parameters of a table that do not choose machines: one machine and node count has several values of each."""
    chosen: dict[str, set[tuple[Any, ...]]] = {}
    for row in table["rows"]:
        for name, value in row["values"].items():
            chosen.setdefault(name, set()).add((row["machine"], row["nodes"], value))
    return {name for name, seen in chosen.items() if len(seen) > len({(m, n) for m, n, _ in seen})}


def parameters_of(table: Mapping[str, Any], offers: Mapping[str, Offer]) -> list[Parameter]:
    """The space of a table."""
    found: list[Parameter] = []
    for p in table["parameters"]:
        when = Expression(p["when"]) if "when" in p else None
        if p["kind"] == "instance":
            found.append(Instance(name=p["name"], values=tuple(offers), offers=dict(offers)))
            continue
        kind = {"nodes": Nodes, "ordinal": Ordinal, "categorical": Categorical}[p["kind"]]
        found.append(kind(name=p["name"], values=tuple(p["values"]), when=when))
    return found


def offers_of(table: Mapping[str, Any]) -> dict[str, Offer]:
    """The offer of one node by machine."""
    own = {"provider", "vcpu", "memory", "price", "family", "category", "arch", "gpus"}
    return {
        name: Offer(
            m.get("provider", "table"),
            name,
            vcpu=m["vcpu"],
            memory_gib=m["memory"],
            price_per_hour=m["price"],
            family=m.get("family", ""),
            category=m.get("category", "general"),
            arch=m.get("arch", ""),
            gpus=m.get("gpus", 0),
            facts={k: v for k, v in m.items() if k not in own},
        )
        for name, m in table["machines"].items()
    }


def build(
    table: Mapping[str, Any], billing: Billing = EXACT, *, factor: Callable[[str], float] = lambda _key: 1.0
) -> KnownProblem:
    """The problem of a table: the cheapest run that meets the deadline.

    Args:
        table: A prepared table.
        billing: How time becomes money.
        factor: What a run's time is multiplied by, by the configuration's key.

    Raises:
        ValueError: The space does not have exactly the table's configurations.
    """
    offers = offers_of(table)
    rows = {Configuration(row["values"]).key: row for row in table["rows"]}

    def truth(configuration: Configuration, _offer: Offer) -> KnownOutcome:
        row = rows[configuration.key]
        seconds = row["seconds"] * factor(configuration.key)
        return KnownOutcome(seconds, failed="did not complete" if row["failed"] else "")

    problem = KnownProblem(
        job=Job(table["name"], ("true",), workdir=Path("/")),
        space=Space(parameters_of(table, offers)),
        objective=Objective(),
        constraints=Constraints(table["deadline"]),
        budget=Budget(),
        resolver=TableResolver(table, offers),
        terms=StudyTerms(billing=billing),
        truth=truth,
    )
    candidates = problem.candidates
    missing = [i for i in range(len(candidates)) if candidates.configuration(i).key not in rows]
    if missing or len(candidates) != len(table["rows"]):
        raise ValueError(f"{table['name']}: {len(candidates)} candidates for {len(table['rows'])} rows")
    return problem


def check_against(table: Mapping[str, Any], published: Mapping[str, str]) -> None:
    """Compare a table, as the problem bills it, with its line of ``problems.csv``.

    Raises:
        ValueError: A figure differs.
    """
    problem = build(table)
    candidates = problem.candidates
    bills = [problem.bill(candidates.configuration(i)) for i in range(len(candidates))]
    best = problem.optimum()
    assert best is not None
    values = [problem.value(candidates.configuration(i)) for i in range(len(candidates))]
    counts = {
        "n_configs": len(bills),
        "n_failed": sum(row["failed"] for row in table["rows"]),
        "n_feasible": sum(value is not None for value in values),
    }
    figures = {"t_max_s": table["deadline"], "mean_cost": sum(bills) / len(bills), "opt_cost": best[1]}
    wrong = [f"{k} {v} is {published[k]} there" for k, v in counts.items() if v != int(published[k])]
    wrong += [
        f"{k} {v:.6g} is {published[k]} there"
        for k, v in figures.items()
        if not math.isclose(v, float(published[k]), rel_tol=1.5e-4)
    ]
    if wrong:
        raise ValueError(f"{table['name']}: {'; '.join(wrong)}")
