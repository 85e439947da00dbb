"""What ``tradewind tune --dry-run`` says: what a search may choose and what it may cost; nothing is started."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tradewind.problem import Offer, Problem
    from tradewind.problem.spec import Spec

_MOST = 20
"""So many kinds of machines are printed; JSON has all."""


def preview(spec: Spec, *, as_json: bool) -> None:
    """Print what a search of a specification may choose and spend; nothing is stored and no provider is asked.

    Args:
        spec: The specification.
        as_json: Print JSON.

    Raises:
        NoOfferError: Nobody sells what the space asks for.
        SpecError: The constraints leave nothing.
    """
    from tradewind.cli.common import emit_json
    from tradewind.engine.assemble import build_problem
    from tradewind.paths import data_folder

    found = _facts(spec, build_problem(spec, data_folder()))
    if as_json:
        emit_json(found)
        return
    _print(found)


def _facts(spec: Spec, problem: Problem) -> dict[str, Any]:
    """All that is known beforehand, JSON-able."""
    deadline = spec.constraints.deadline
    offers, counts, total = _offers(problem)
    return {
        "name": spec.name,
        "configurations": total,
        "machines": [
            {
                "provider": offer.provider,
                "region": offer.region,
                "instance_type": offer.instance_type,
                "spot": offer.spot,
                "nodes": offer.nodes,
                "vcpu": offer.vcpu,
                "memory_gib": offer.memory_gib,
                "hourly": offer.hourly,
                "to_deadline": None if deadline is None else spec.billing.cost(deadline, offer.hourly),
                "configurations": counts.get(offer.key),
            }
            for offer in offers
        ],
        "deadline": deadline,
        "budget": {"dollars": spec.budget.dollars, "hours": spec.budget.hours, "trials": spec.budget.trials},
        "parallel": spec.parallel,
        "searcher": spec.searcher.name,
        "provisioner": spec.provisioner.name,
        "runner": spec.runner.name,
    }


def _offers(problem: Problem) -> tuple[Sequence[Offer], Counter[str], int | None]:
    """The offers that configurations come to, the cheapest first, how many do so to each, and how many in all."""
    if not problem.space.enumerable:
        sold = getattr(problem.resolver, "offers", ())
        return sorted(sold, key=lambda offer: (offer.hourly, offer.key)), Counter(), None
    candidates = problem.candidates
    offers: dict[str, Offer] = {}
    counts: Counter[str] = Counter()
    for i in range(len(candidates)):
        offer = candidates.offer(i)
        offers[offer.key] = offer
        counts[offer.key] += 1
    return sorted(offers.values(), key=lambda offer: (offer.hourly, offer.key)), counts, len(candidates)


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from tradewind.units import count, format_duration, format_money

    machines, budget = found["machines"], found["budget"]
    total = "too many configurations to list" if found["configurations"] is None else count(
        found["configurations"], "configuration"
    )  # fmt: skip
    typer.echo(
        f"{found['name']}: {total} on {count(len(machines), 'kind')} of machines; {found['searcher']} searches, "
        f"{found['parallel']} at a time, on {found['provisioner']} and {found['runner']}"
    )
    deadline = "" if found["deadline"] is None else format_duration(found["deadline"])
    table = Table(box=None, header_style="", pad_edge=False)
    for name in (
        "machines",
        "of",
        "vCPU",
        "GiB",
        "per hour",
        *([f"a run of {deadline}"] if deadline else ()),
        "configurations",
    ):
        table.add_column(name, justify="left" if name in ("machines", "of") else "right", no_wrap=True)
    for row in machines[:_MOST]:
        table.add_row(
            f"{row['nodes']} × {row['instance_type']}" + (" (spot)" if row["spot"] else ""),
            " ".join(filter(None, (row["provider"], row["region"]))),
            f"{row['vcpu'] * row['nodes']:g}",
            f"{row['memory_gib'] * row['nodes']:g}",
            format_money(row["hourly"]),
            *([format_money(row["to_deadline"])] if deadline else ()),
            "-" if row["configurations"] is None else str(row["configurations"]),
        )
    Console(highlight=False).print(table)
    if len(machines) > _MOST:
        typer.echo(f"and {len(machines) - _MOST} more, dearer ones (--json has all)")
    limits = [
        *([f"{format_money(budget['dollars'])} in total"] if budget["dollars"] is not None else ()),
        *([format_duration(budget["hours"] * 3600)] if budget["hours"] is not None else ()),
        *([count(budget["trials"], "trial")] if budget["trials"] is not None else ()),
    ]
    typer.echo(
        f"The search may take {' or '.join(limits)}." if limits else "Nothing limits the search: it has no budget."
    )
    if not deadline:
        typer.echo("A run may take as long as it likes: there is no deadline.")
    typer.echo("Nothing was started, and no provider was asked.")
