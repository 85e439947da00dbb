"""``tradewind top``, ``queue``, ``cancel``, ``pause``, ``resume`` and ``nice``: a cluster's work and its searches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tradewind.store.clusters.cluster_store import ClusterRow, JobIntent, JobRow


def top(
    name: Annotated[str, typer.Option(help="The cluster.")] = "default",
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, once.")] = False,
    prometheus: Annotated[bool, typer.Option("--prometheus", help="Print metrics for Prometheus, once.")] = False,
    store: Annotated[str | None, typer.Option(help="Address of the store.", metavar="URL", show_default=False)] = None,
) -> None:
    """Watch a cluster: shares of the tenants, the queue, the best so far, and who gave way and why."""
    import sys
    import time
    from contextlib import closing

    from tradewind.cli.cluster.common import find_cluster, open_cluster_store
    from tradewind.cli.common import emit_json

    with closing(open_cluster_store(store)) as opened:
        row = find_cluster(opened, name)
        if as_json:
            emit_json(_cluster_document(row))
            return
        if prometheus:
            from tradewind.reporting.prometheus import metrics_text

            typer.echo(metrics_text(_cluster_document(row)), nl=False)
            return
        from rich.console import Console
        from rich.live import Live

        from tradewind.cli.signals import GracefulInterrupt
        from tradewind.reporting.cluster import screen

        console = Console(highlight=False)
        if once or not sys.stdout.isatty():
            console.print(screen(_cluster_document(row), console.width))
            return
        with GracefulInterrupt("") as stop, Live(console=console, screen=True, auto_refresh=False) as live:
            while not stop.wanted:
                row = find_cluster(opened, name)
                live.update(screen(_cluster_document(row), console.width, console.height), refresh=True)
                time.sleep(0.5)


def _cluster_document(row: ClusterRow) -> dict[str, Any]:
    import time

    return {
        **row.snapshot,
        "name": row.name,
        "settings": dict(row.settings),
        "holder": row.holder,
        "age": max(0.0, time.time() - row.updated),
    }


_NUMBER = typer.Argument(help="The search's number; tradewind queue shows it.", show_default=False)
_TENANT = typer.Option(help="Only of this tenant.", show_default=False)
_STORE = typer.Option(help="Address of the store.", metavar="URL", show_default=False)
_NEWEST = 30
_TAKINGS = 5


def queue(
    tenant: Annotated[str | None, _TENANT] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    store: Annotated[str | None, _STORE] = None,
) -> None:
    """Show the searches of a cluster: what they have found, and what they wait for."""
    from contextlib import closing

    from tradewind.cli.cluster.common import open_cluster_store
    from tradewind.cli.common import emit_json
    from tradewind.store.clusters.cluster_store import OPEN_JOB_STATES, TAKINGS

    with closing(open_cluster_store(store)) as opened:
        rows = opened.jobs(tenant=tenant, open_only=not everything, limit=None if as_json else _NEWEST)
        run = [cluster for cluster in opened.clusters() if cluster.holder]
        shown = {job["id"]: job for cluster in run for job in cluster.snapshot.get("jobs", ())}
    known = _figures([row for row in rows if row.id not in shown and row.study_id is not None], store)
    found = [_document(row, shown.get(row.id, known.get(row.id, {}))) for row in rows]
    if as_json:
        emit_json(found)
        return
    from rich.console import Console

    from tradewind.reporting.cluster import jobs_table, takings_lines

    console = Console(highlight=False)
    if not found:
        console.print("No search is in the queue: tradewind submit job.yaml", markup=False)
        return
    console.print(jobs_table(found, console.width))
    taken = [each for cluster in run for each in cluster.snapshot.get(TAKINGS, ())]
    taken = [each for each in taken if tenant in (None, each["owner"], each["tenant"])]
    for line in (*_longest_waits(run, tenant), *takings_lines(taken, _TAKINGS)):
        console.print(line, markup=False)
    names = {cluster.name for cluster in run}
    waits = [
        row for row in rows if row.state in OPEN_JOB_STATES and (row.cluster not in names if row.cluster else not run)
    ]
    for name in sorted({row.cluster for row in waits}):
        which, how = (f"Cluster {name}", f" --name {name}") if name not in ("", "default") else ("The cluster", "")
        console.print(f"{which} does not run: tradewind cluster start{how} goes on with what is left.", markup=False)


def _longest_waits(clusters: list[ClusterRow], tenant: str | None) -> list[str]:
    """Lines on when the next runs of tenants that wait start at the latest, as their clusters said last."""
    from tradewind.utils.units import format_duration

    return [
        f"The next run of {name} starts within {format_duration(each['within'])} at the latest."
        for cluster in clusters
        for name, each in cluster.snapshot.get("tenants", {}).items()
        if each.get("within") is not None and tenant in (None, name)
    ]


def cancel(
    number: Annotated[int, _NUMBER],
    tenant: Annotated[str | None, _TENANT] = None,
    store: Annotated[str | None, _STORE] = None,
) -> None:
    """End a search: its runs are cancelled and paid."""
    _want(number, "cancel", tenant, store)


def pause(
    number: Annotated[int, _NUMBER],
    tenant: Annotated[str | None, _TENANT] = None,
    store: Annotated[str | None, _STORE] = None,
) -> None:
    """Start no further run of a search; what runs goes on to its end."""
    _want(number, "pause", tenant, store)


def resume(
    number: Annotated[int, _NUMBER],
    trials: Annotated[int | None, typer.Option(help="Number of trials at most, in all.", show_default=False)] = None,
    budget: Annotated[str | None, typer.Option(help="USD that it may spend in total: $2.", show_default=False)] = None,
    tenant: Annotated[str | None, _TENANT] = None,
    store: Annotated[str | None, _STORE] = None,
) -> None:
    """Let a paused search go on, or one that is over: nothing that was paid for is run again."""
    from contextlib import closing

    from tradewind.cli.cluster.common import open_cluster_store
    from tradewind.cli.common import open_store
    from tradewind.errors import InputError
    from tradewind.store.clusters.cluster_store import OPEN_JOB_STATES
    from tradewind.tenancy.submission.continuation import resume_search

    given = {key: value for key, value in {"trials": trials, "dollars": budget}.items() if value is not None}
    with closing(open_cluster_store(store)) as opened:
        row = opened.job(number)
        _mine(row, tenant)
        if row.state not in OPEN_JOB_STATES:
            with closing(open_store(store)) as studies:
                row = resume_search(opened, studies, row, given)
            typer.echo(f"Search {row.id} ({row.name}) goes on")
            return
    if given:
        raise InputError(
            f"search {number} ({row.name}) is not over: its budget stays", hint=f"tradewind cancel {number} ends it"
        )
    _want(number, "run", tenant, store)


def nice(
    number: Annotated[int, _NUMBER],
    value: Annotated[int, typer.Argument(help="Smaller goes first within the tenant; 0 is usual.")],
    tenant: Annotated[str | None, _TENANT] = None,
    store: Annotated[str | None, _STORE] = None,
) -> None:
    """Give a search another place among those of its tenant; put -- before a negative number."""
    from contextlib import closing

    from tradewind.cli.cluster.common import open_cluster_store
    from tradewind.errors import InputError
    from tradewind.store.clusters.cluster_store import OPEN_JOB_STATES

    with closing(open_cluster_store(store)) as opened:
        row = opened.job(number)
        _mine(row, tenant)
        if row.state not in OPEN_JOB_STATES:
            hint = f"tradewind resume {number} lets it go on"
            raise InputError(f"search {number} ({row.name}) is over: {row.state}", hint=hint)
        row = opened.change_job(number, nice=value)
    typer.echo(f"Search {row.id} ({row.name}): nice {row.nice}")


def _want(number: int, wanted: JobIntent, tenant: str | None, store: str | None) -> None:
    from contextlib import closing

    from tradewind.cli.cluster.common import open_cluster_store

    with closing(open_cluster_store(store)) as opened:
        _mine(opened.job(number), tenant)
        row = opened.want(number, wanted)
        if wanted == "cancel" and not opened.is_run(row.cluster) and not _has_runs(row, store):
            import time

            row = opened.change_job(number, state="cancelled", reason="cancelled by its owner", ended=time.time())
    words = {"cancel": "is being cancelled", "pause": "is being paused", "run": "goes on"}[wanted]
    typer.echo(f"Search {row.id} ({row.name}) {'is cancelled' if row.state == 'cancelled' else words}")


def _has_runs(row: JobRow, url: str | None) -> bool:
    """True when a search has runs that have not ended: the next cluster ends and pays them."""
    from contextlib import closing

    from tradewind.cli.common import open_store

    if row.study_id is None:
        return False
    with closing(open_store(url)) as studies:
        return bool(studies.runs(row.study_id, open_only=True))


def _mine(row: JobRow, tenant: str | None) -> None:
    """See that a search is the tenant's; another's is as good as none.

    Raises:
        StudyNotFoundError: It is another's.
    """
    from tradewind.errors import StudyNotFoundError

    if tenant is not None and row.tenant != tenant:
        raise StudyNotFoundError(f"tenant {tenant} has no search {row.id}", hint="tradewind queue lists them")


def _figures(rows: list[JobRow], url: str | None) -> dict[int, dict[str, Any]]:
    """Read from their studies what searches have found that no cluster runs now."""
    from contextlib import closing

    from tradewind.cli.common import open_store

    if not rows:
        return {}
    with closing(open_store(url)) as studies:
        found = {each.study.id: each for each in studies.summaries([row.study_id for row in rows if row.study_id])}
    figures: dict[int, dict[str, Any]] = {}
    for row in rows:
        if (summary := found.get(row.study_id or 0)) is not None:
            seen = None if summary.best is None else summary.best.observation
            figures[row.id] = {
                "trials": sum(summary.counts.values()),
                "best": None if seen is None else seen.objective,
                "metric": summary.study.spec.get("objective", {}).get("metric"),
                "spent": 0.0 if row.simulated else summary.spent,
                "simulated": summary.spent if row.simulated else None,
            }
    return figures


def _document(row: JobRow, shown: dict[str, Any]) -> dict[str, Any]:
    kept = ("id", "tenant", "name", "state", "nice", "reason", "submitted", "started", "ended", "study_id", "cluster")
    return {**shown, **{name: getattr(row, name) for name in kept}, "why": shown.get("why", "")}
