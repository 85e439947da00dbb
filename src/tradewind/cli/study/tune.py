"""``tradewind tune``: search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli import completion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tradewind.engine.state_machine.events import PricedProposal, StopSearch
    from tradewind.engine.state_machine.snapshot import SearchSnapshot
    from tradewind.errors import TradewindError
    from tradewind.problem import Offer, Problem, Trial
    from tradewind.problem.job_spec.spec import JobSpec
    from tradewind.searcher.base import Searcher
    from tradewind.store.base import Store, StudyRow


_MOST_VALUES = 20
"""So many kinds of machines are printed; JSON has all."""


def print_dry_run(
    spec: JobSpec, tries: Sequence[str] = (), *, store: str | None = None, fresh: bool = False, as_json: bool
) -> None:
    """Print what a search of a specification may choose and spend; nothing is stored and no provider is asked.

    Args:
        spec: The specification.
        tries: Configurations that the user wants tried first, as ``--try`` has them.
        store: Address of the store, where there may be a study that the search would go on with.
        fresh: It would begin anew in any case.
        as_json: Print JSON.

    Raises:
        TradewindError: The search would be refused; that is raised once all is printed that is known.
    """
    from contextlib import closing

    from tradewind.cli.common import emit_json, open_store
    from tradewind.engine.past_studies import with_past_studies
    from tradewind.engine.preflight import ending_words, future_runs_warning
    from tradewind.engine.search_builder import build_problem, build_searcher, find_or_new_study, new_study
    from tradewind.errors import StudyNotFoundError
    from tradewind.utils.paths import data_folder

    problem = build_problem(spec, data_folder())
    found, kinds = _facts(spec, problem, None if as_json else _MOST_VALUES)
    found["study"] = None
    history: Sequence[Trial] = ()
    try:
        opened = open_store(store, must_exist=True)
    except StudyNotFoundError:
        row = new_study(spec)
        searcher = build_searcher(spec, problem)
    else:
        with closing(opened):
            # What the searcher has to object to the job is said now, before anything is paid for.
            row, new = find_or_new_study(spec, opened, fresh=fresh)
            searcher = build_searcher(spec, with_past_studies(problem, spec, row, opened))
            found["study"] = None if new else _begun(spec, row, opened)
            history = [] if new else opened.trials(row.id)
    first = [priced.proposal.configuration for priced in _wanted_first(spec, problem, tries, history).values()]
    refusal = _refusal(spec, row, problem, searcher)
    found["first"] = [dict(configuration) for configuration in first]
    found["refused"] = None if refusal is None else str(refusal)
    found["future_runs"] = spec.future_runs
    found["stops"] = ending_words(spec)
    found["note"] = future_runs_warning(spec)
    if as_json:
        emit_json(found)
    else:
        _print(found, kinds, [str(configuration) for configuration in first])
    if refusal is not None:
        raise refusal


def _refusal(spec: JobSpec, study: StudyRow, problem: Problem, searcher: Searcher) -> TradewindError | None:
    """The error that the search of a study would begin with, or None."""
    from tradewind.engine.search_builder import check_search
    from tradewind.errors import TradewindError
    from tradewind.utils.paths import data_folder

    try:
        check_search(spec, study, problem, searcher, data_folder())
    except TradewindError as error:
        return error
    return None


def _wanted_first(
    spec: JobSpec, problem: Problem, tries: Sequence[str], history: Sequence[Trial]
) -> Mapping[str, PricedProposal]:
    """Find the configurations that the specification and ``--try`` want tried first, by the user's words.

    What is left out, because it has a trial already, is told in a line.

    Args:
        spec: The specification.
        problem: The problem.
        tries: ``workers=4,instance=c5.large``, each with the values of some or all parameters.
        history: The trials of the study.

    Raises:
        BudgetError: The budget does not leave so many trials.
        InputError: One is no configuration of the space, or nobody sells it.
    """
    from tradewind.cli.common import tried_values
    from tradewind.engine.proposals import first_proposals

    first = first_proposals(spec, problem, history, [(f"--try {text}", tried_values(text)) for text in tries])
    for words, why in first.known.items():
        if words.startswith("--try") or not history:  # the job's own were tried when the study began
            typer.echo(f"tradewind: {words}: {why}", err=True)
    return first.proposals


def _facts(spec: JobSpec, problem: Problem, most: int | None) -> tuple[dict[str, Any], int]:
    """Facts known beforehand, JSON-able, and the number of different machines, of which there are ``most``."""
    deadline = spec.constraints.deadline
    offers, kinds, total = _offers(problem, most)
    found = {
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
                "configurations": choices,
            }
            for offer, choices in offers
        ],
        "deadline": deadline,
        "budget": {"dollars": spec.budget.dollars, "hours": spec.budget.hours, "trials": spec.budget.trials},
        "parallel": spec.parallel,
        "searcher": spec.searcher.name,
        "abort": spec.abort,
        "abort_said": spec.said_abort is not None,
        "provisioner": spec.provisioner.name,
        "runner": spec.runner.name,
    }
    return found, kinds


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


def _offers(problem: Problem, most: int | None) -> tuple[list[tuple[Offer, int | None]], int, int | None]:
    """The offers that configurations come to, the cheapest first, with how many do so to each; how many of both."""
    if not problem.space.enumerable:
        sold = sorted(getattr(problem.resolver, "offers", ()), key=lambda offer: (offer.hourly, offer.key))
        return [(offer, None) for offer in sold[:most]], len(sold), None
    candidates = problem.candidates
    return [*candidates.cheapest_offers(most)], candidates.different_offers, len(candidates)


def _print(found: dict[str, Any], kinds: int, first: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    from tradewind.utils.units import bill_column, count, format_duration, format_money

    machines, budget = found["machines"], found["budget"]
    total = "too many configurations to list" if found["configurations"] is None else count(
        found["configurations"], "configuration"
    )  # fmt: skip
    typer.echo(
        f"{found['name']}: {total} on {count(kinds, 'kind')} of machines; {found['searcher']} searches, "
        f"{found['parallel']} at a time, on {found['provisioner']} and {found['runner']}"
    )
    deadline = "" if found["deadline"] is None else format_duration(found["deadline"])
    unit, bill = bill_column(row["to_deadline"] for row in machines)
    of = "a run" if unit == "this run" else unit
    table = Table(box=None, header_style="", pad_edge=False)
    sellers = [" ".join(filter(None, (row["provider"], row["region"]))) for row in machines]
    table.add_column("machines", no_wrap=True)
    table.add_column("of")
    headings = ("vCPU", "GiB", "per hour", *([f"{of} of\n{deadline}"] if deadline else ()), "choices")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True, vertical="top")
    for row, seller in zip(machines, sellers, strict=True):
        table.add_row(
            f"{row['nodes']} × {row['instance_type']}" + (" (spot)" if row["spot"] else ""),
            seller,
            f"{row['vcpu'] * row['nodes']:g}",
            f"{row['memory_gib'] * row['nodes']:g}",
            format_money(row["hourly"]),
            *([bill(row["to_deadline"])] if deadline else ()),
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
    if kinds > len(machines):
        typer.echo(f"and {kinds - len(machines)} more, dearer ones (--json has all)")
    for configuration in first:
        typer.echo(f"It tries first: {configuration}")
    if found["refused"] is not None:
        typer.echo("As it stands, the search is refused.")
    elif found["study"] is None:
        typer.echo(_limits(found))
    else:
        _print_begun(found["study"], budget)
    if found["note"]:
        typer.echo(f"{found['note']}.")
    if found["stops"]:
        typer.echo(found["stops"])
    typer.echo(_ending(found))
    if not deadline:
        typer.echo("A run may take as long as it likes: there is no deadline.")
    typer.echo("Nothing was started, and no provider was asked.")


def _ending(found: dict[str, Any]) -> str:
    """Say whether runs are cut short, and what changes it."""
    if found["abort"]:
        return "A run that can no longer win is cut short (abort: false in the job lets all runs end)."
    if found["abort_said"]:
        return "Every run goes to its end (abort: false in the job)."
    return f"Every run goes to its end, as {found['searcher']} is published (abort: true in the job cuts runs short)."


def _limits(found: dict[str, Any]) -> str:
    """Limits of a new search, in a sentence."""
    if limits := _amounts(found["budget"], "in total"):
        return f"The search may take {limits}."
    return "It has no budget." if found["stops"] else "Nothing limits the search: it has no budget."


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
    """Limits of a search in words: ``$2.00 in total or 5 trials``; empty where nothing limits it."""
    from tradewind.utils.units import count, format_duration, format_money

    dollars, hours, trials = budget["dollars"], budget["hours"], budget["trials"]
    amounts = [
        *([f"{format_money(dollars)} {of_money}".rstrip()] if dollars is not None else ()),
        *([format_duration(hours * 3600)] if hours is not None else ()),
        *([count(trials, "trial")] if trials is not None else ()),
    ]
    return " or ".join(amounts)


def tune(
    file: Annotated[Path, typer.Argument(help="The job YAML.", show_default=False)],
    budget: Annotated[str | None, typer.Option(help="USD that the search may spend in total: $2.")] = None,
    deadline: Annotated[str | None, typer.Option(help="Time that one run may take: 30m.")] = None,
    hours: Annotated[str | None, typer.Option(help="Time that the search may take: 2h.")] = None,
    trials: Annotated[int | None, typer.Option(help="Number of trials at most.")] = None,
    parallel: Annotated[int | None, typer.Option(help="Trials at the same time.")] = None,
    searcher: Annotated[
        str | None,
        typer.Option(help="Who proposes; tradewind plugins lists them.", autocompletion=completion.parts("searcher")),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Equal seeds give equal proposals.")] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="A job parameter's value, size=4000; repeatable.")
    ] = None,
    tries: Annotated[
        list[str] | None, typer.Option("--try", help="Values to try first, workers=4,instance=c5.large; repeatable.")
    ] = None,
    callback: Annotated[
        list[str] | None,
        typer.Option(
            help="Where trials are written, too, instead of the job's callbacks: mlflow, tensorboard; repeatable.",
            autocompletion=completion.parts("callback"),
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew, even if there is a study to go on with.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what may be chosen and what it may cost; start nothing.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write the HTML report there at the end.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the plots as PNG into that folder at the end.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing while searching.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")] = False,
    store: Annotated[str | None, typer.Option(help="Address of the store.", metavar="URL", show_default=False)] = None,
) -> None:
    """Search for the best configuration; Ctrl-C stops cleanly, the same command resumes."""
    from tradewind.cli.common import load_job, open_store

    given = {
        "budget.dollars": budget,
        "constraints.deadline": deadline,
        "budget.hours": hours,
        "budget.trials": trials,
        "parallel": parallel,
        "searcher": searcher,
        "seed": seed,
        "callbacks": callback or None,
    }
    spec = load_job(file, {key: value for key, value in given.items() if value is not None}, param)
    if dry_run:
        print_dry_run(spec, tries or (), store=store, fresh=fresh, as_json=as_json)
        return
    _check_report(html, png)
    opened = open_store(store)
    try:
        study, ended = _search(spec, opened, tries or (), fresh=fresh, quiet=quiet or as_json)
        _finish(spec, opened, study, ended, html=html, png=png, as_json=as_json)
    finally:
        opened.close()


def _check_report(html: Path | None, png: Path | None) -> None:
    """See that the reports can be written: hours of searching are not to end with these errors."""
    from tradewind.errors import InputError
    from tradewind.utils.dependencies import require_package

    if html is not None and not html.absolute().parent.is_dir():
        raise InputError(f"--html {html}: there is no folder {html.parent}", hint="make it, or name another file")
    if png is not None:
        require_package("matplotlib", "PNG charts", "plots")


def _search(
    spec: JobSpec, store: Store, tries: Sequence[str], *, fresh: bool, quiet: bool
) -> tuple[StudyRow, StopSearch]:
    from tradewind.cli.signals import GracefulInterrupt
    from tradewind.engine.past_studies import missing_past_hint
    from tradewind.engine.preflight import ending_words, future_runs_warning
    from tradewind.engine.search_builder import build_problem, build_search, find_or_new_study, refuse_queued
    from tradewind.reporting.study.terminal import LiveView
    from tradewind.utils.paths import data_folder
    from tradewind.utils.units import count

    problem = build_problem(spec, data_folder())
    study, new = find_or_new_study(spec, store, fresh=fresh)
    if not fresh:
        refuse_queued(spec, study, store)
    history = [] if new else store.trials(study.id)
    for warning in filter(None, (missing_past_hint(spec, store), future_runs_warning(spec))):
        typer.echo(f"tradewind: {warning}", err=True)
    first = _wanted_first(spec, problem, tries, history)
    words = f"Resuming {study.name} after {count(len(history), 'trial')} (--fresh starts anew)."
    untold = [words] if history and not quiet else []
    untold += [said] if (said := ending_words(spec)) and not quiet else []
    untold += [f"Trying first: {one.proposal.configuration}" for one in first.values() if not quiet]

    def show(snapshot: SearchSnapshot) -> None:
        # The first snapshot: the study is ours, and nothing was refused.
        while untold:
            typer.echo(untold.pop(0))
        view.update(snapshot)

    with LiveView(quiet=quiet, history=history) as view, GracefulInterrupt() as stop:
        search = build_search(
            spec,
            study,
            store,
            data_folder(),
            problem=problem,
            observer=show,
            fresh=fresh,
            enqueued=list(first.values()),
        )
        ended = search.run(lambda: not stop.wanted)
    made = {trial.key for trial in search.trials.values()}
    for text in (text for text, one in first.items() if one.key not in made):
        typer.echo(f"tradewind: {text} was not tried: {ended.reason}", err=True)
    if not quiet:
        for line in (*untold, *search.swept):
            typer.echo(line)
    return search.study, ended


def _finish(
    spec: JobSpec,
    store: Store,
    study: StudyRow,
    ended: StopSearch,
    *,
    html: Path | None,
    png: Path | None,
    as_json: bool,
) -> None:
    """Say what was found, and end with the exit code that fits."""
    from tradewind.cli.study.report import write_files
    from tradewind.cli.study.run import prerequisite_error
    from tradewind.errors import BudgetError, InterruptedSearch, NothingFeasibleError
    from tradewind.reporting.study.bill import bill_sentences
    from tradewind.reporting.study.data import StudyData
    from tradewind.utils.units import format_money

    data = StudyData.load(store, study.id)
    if as_json:
        _print_json(store, study, ended)
    elif not ended.interrupted:
        from rich.console import Console

        from tradewind.reporting.study.terminal import print_report

        console = Console(highlight=False)
        print_report(data, console)
        for line in ("", *lines) if (lines := bill_sentences(data)) else ():
            console.print(line, markup=False, soft_wrap=not console.is_terminal)
    for path in write_files(data, html, png):
        if not as_json:
            typer.echo(f"Written: {path}")
    if ended.interrupted:
        raise InterruptedSearch("interrupted", hint=f"tradewind tune {spec.file} resumes")
    if data.best is None:
        if data.unpaid:
            words = f"the budget of {format_money(spec.budget.dollars)} does not pay a single run"
            message = ended.reason if ended.reason.startswith(words) else f"{words}: {ended.reason}"
            raise BudgetError(message, hint="raise budget.dollars, or allow cheaper instance types")
        runs = store.runs(study.id)
        if runs and (problem := prerequisite_error(max(runs, key=lambda run: run.ended or 0.0), ended.reason)):
            raise problem
        last = data.reasons[max(data.reasons)] if data.reasons else ""
        mentioned = not last or last in ended.reason
        raise NothingFeasibleError(
            f"no feasible configuration was found: {ended.reason}" + ("" if mentioned else f"; the last one: {last}"),
            hint=f"tradewind report {study.name} shows what was tried",
        )


def _print_json(store: Store, study: StudyRow, ended: StopSearch) -> None:
    from tradewind.cli.common import emit_json
    from tradewind.store.codec import trial_to_json

    summary = store.summaries([study.id])[0]
    result: dict[str, Any] = {
        "study": study.name,
        "id": study.id,
        "reason": ended.reason,
        "interrupted": ended.interrupted,
        "trials": dict(summary.counts),
        "spent": summary.spent,
        "best": None if summary.best is None else trial_to_json(summary.best),
    }
    emit_json(result)
