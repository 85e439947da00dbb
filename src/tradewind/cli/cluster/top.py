"""``tradewind top``: a cluster while it works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tradewind.store.clusters.cluster_store import ClusterRow


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
