"""The commands of shared clusters: start one, submit searches to it, watch and steer them."""

from __future__ import annotations

import typer

from tradewind.cli.cluster import queue, start, submit, tenant
from tradewind.cli.cluster import queue as top
from tradewind.cli.common import command_group

cluster_app = command_group("cluster", "Run a cluster that many searches share.")
cluster_app.command("start")(start.start)
cluster_app.command("list")(start.list_clusters)

tenant_app = command_group("tenant", "Say who shares a cluster, with which weight and quota.")
tenant_app.command("set")(tenant.set_tenant)
tenant_app.command("list")(tenant.list_tenants)


def add_to(app: typer.Typer) -> None:
    """Add all commands of clusters to the table of commands."""
    app.add_typer(cluster_app, name="cluster")
    app.add_typer(tenant_app, name="tenant")
    app.command("submit")(submit.submit)
    app.command("queue")(queue.queue)
    app.command("top")(top.top)
    app.command("cancel")(queue.cancel)
    app.command("pause")(queue.pause)
    app.command("resume")(queue.resume)
    app.command("nice")(queue.nice)
