"""What ``tradewind tune --dry-run`` says: what a search may choose and what it may cost; nothing is started."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tradewind.problem import Offer, Problem
    from tradewind.problem.job_spec.spec import JobSpec
    from tradewind.store.base import Store, StudyRow

_MOST_VALUES = 20
"""So many kinds of machines are printed; JSON has all."""


def print_dry_run(spec: JobSpec, *, store: str | None = None, fresh: bool = False, as_json: bool) -> None:
    """Print what a search of a specification may choose and spend; nothing is stored and no provider is asked.

    Args:
        spec: The specification.
        store: Address of the store, where there may be a study that the search would go on with.
        fresh: It would begin anew in any case.
        as_json: Print JSON.

    Raises:
        NoOfferError: Nobody sells what the space asks for.
        SpecError: The constraints leave nothing, or the searcher does not take the job.
    """
    from contextlib import closing

    from tradewind.cli.common import emit_json, open_store
    from tradewind.engine.past_studies import with_past_studies
    from tradewind.engine.preflight import future_runs_warning
    from tradewind.engine.search_builder import build_problem, build_searcher, find_or_new_study
    from tradewind.errors import StudyNotFoundError
    from tradewind.utils.paths import data_folder

    problem = build_problem(spec, data_folder())
    found = _facts(spec, problem)
    found["study"] = None
    try:
        opened = open_store(store, must_exist=True)
    except StudyNotFoundError:
        build_searcher(spec, problem)
    else:
        with closing(opened):
            # What the searcher has to object to the job is said now, before anything is paid for.
            row, new = find_or_new_study(spec, opened, fresh=fresh)
            build_searcher(spec, with_past_studies(problem, spec, row, opened))
            found["study"] = None if new else _begun(spec, row, opened)
    found["refused"] = _refused(spec, problem)
    found["future_runs"] = spec.future_runs
    found["note"] = future_runs_warning(spec)
    if as_json:
        emit_json(found)
        return
    _print(found)


def _facts(spec: JobSpec, problem: Problem) -> dict[str, Any]:
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


def _refused(spec: JobSpec, problem: Problem) -> str | None:
    """Why the search would not begin as the job stands, or None: a budget is often set once this is seen."""
    from tradewind.engine.preflight import check_limits, check_runner
    from tradewind.errors import SpecError

    try:
        check_runner(spec, problem)
        check_limits(spec, problem)
    except SpecError as error:
        return str(error)
    return None


def _begun(spec: JobSpec, row: StudyRow, store: Store) -> dict[str, Any]:
    """The study that the search would go on with, and what is left of the budget."""
    from tradewind.reporting.study.tables import state_words

    summary = store.summaries([row.id])[0]
    used = {"dollars": summary.spent, "hours": row.elapsed / 3600, "trials": sum(summary.counts.values())}
    limits = {"dollars": spec.budget.dollars, "hours": spec.budget.hours, "trials": spec.budget.trials}
    return {
        "id": row.id,
        "name": row.name,
        "state": state_words(summary),
        "reason": row.reason,
        "used": used,
        "left": {name: None if most is None else max(0, most - used[name]) for name, most in limits.items()},
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

    from tradewind.utils.units import count, format_duration, format_money

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
    sellers = [" ".join(filter(None, (row["provider"], row["region"]))) for row in machines[:_MOST_VALUES]]
    table.add_column("machines", no_wrap=True)
    table.add_column("of")
    headings = ("vCPU", "GiB", "per hour", *([f"a run of\n{deadline}"] if deadline else ()), "choices")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True, vertical="top")
    for row, seller in zip(machines, sellers, strict=False):
        table.add_row(
            f"{row['nodes']} × {row['instance_type']}" + (" (spot)" if row["spot"] else ""),
            seller,
            f"{row['vcpu'] * row['nodes']:g}",
            f"{row['memory_gib'] * row['nodes']:g}",
            format_money(row["hourly"]),
            *([format_money(row["to_deadline"])] if deadline else ()),
            "-" if row["configurations"] is None else str(row["configurations"]),
        )
    console = Console(highlight=False)
    # In a narrow terminal who sells a machine takes two lines; in one that is narrower still all lines break,
    # but nothing is cut.
    whole = console.measure(table, options=console.options.update(max_width=1000)).maximum
    widest = max(map(len, sellers), default=0)
    word = max((len(word) for seller in sellers for word in seller.split()), default=0)
    console.width = max(console.width, whole - widest + word)
    console.print(table)
    if len(machines) > _MOST_VALUES:
        typer.echo(f"and {len(machines) - _MOST_VALUES} more, dearer ones (--json has all)")
    if found["refused"] is not None:
        typer.echo(f"As it stands, the search is refused: {found['refused']}.")
    elif found["study"] is None:
        typer.echo(_limits(found))
    else:
        _print_begun(found["study"], budget)
    if found["note"]:
        typer.echo(f"{found['note']}.")
    if not deadline:
        typer.echo("A run may take as long as it likes: there is no deadline.")
    typer.echo("Nothing was started, and no provider was asked.")


def _limits(found: dict[str, Any]) -> str:
    """What a new search may take, in a sentence."""
    if limits := _amounts(found["budget"], "in total"):
        return f"The search may take {limits}."
    if found["future_runs"] is not None and not found["note"]:
        return f"It has no budget: it ends once no trial pays for itself over {found['future_runs']:g} future runs."
    return "Nothing limits the search: it has no budget."


def _print_begun(study: dict[str, Any], budget: dict[str, Any]) -> None:
    """Say what a study has used, and what is left to the search that goes on with it."""
    from tradewind.utils.units import count, format_money

    used, left = study["used"], study["left"]
    had = f"it has had {count(used['trials'], 'trial')} for {format_money(used['dollars'])}"
    why = f", as {study['reason'].rstrip('.')}" if study["reason"] and study["state"] == "finished" else ""
    typer.echo(f"The study {study['name']} (id {study['id']}) is {study['state']}{why}: {had}.")
    gone = {name: budget[name] for name, rest in left.items() if rest == 0}
    if gone:
        words = _amounts({"dollars": None, "hours": None, "trials": None, **gone}, "")
        typer.echo(f"Nothing is left of its budget of {words}: give it a larger one, or start anew with --fresh.")
        return
    rest = _amounts(left, "more in total") or "what it likes"
    onwards = (
        "It may" if study["state"] == "running" else "The same command goes on with it (--fresh starts anew) and may"
    )
    typer.echo(f"{onwards} take {rest}.")


def _amounts(budget: dict[str, Any], of_money: str) -> str:
    """What a search may take, in words: ``$2.00 in total or 5 trials``; empty where nothing limits it."""
    from tradewind.utils.units import count, format_duration, format_money

    dollars, hours, trials = budget["dollars"], budget["hours"], budget["trials"]
    amounts = [
        *([f"{format_money(dollars)} {of_money}".rstrip()] if dollars is not None else ()),
        *([format_duration(hours * 3600)] if hours is not None else ()),
        *([count(trials, "trial")] if trials is not None else ()),
    ]
    return " or ".join(amounts)
