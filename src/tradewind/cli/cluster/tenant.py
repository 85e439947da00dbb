"""``tradewind tenant``: who shares a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.common import command_group

if TYPE_CHECKING:
    from tradewind.store.clusters.cluster_store import TenantRow


def set_tenant(
    name: Annotated[str, typer.Argument(help="The tenant.", show_default=False)],
    weight: Annotated[float | None, typer.Option(help="Its share against others.", show_default=False)] = None,
    priority: Annotated[
        int | None, typer.Option(help="Larger goes first under strict priority.", show_default=False)
    ] = None,
    quota: Annotated[
        list[str] | None,
        typer.Option(help="The most it may use: cpu=8, memory=32GiB, dollars=100, requests=4; repeatable."),
    ] = None,
    preempt: Annotated[
        list[str] | None,
        typer.Option(
            help="Runs of others are ended so that it gets places when its work comes: within=2m, "
            "pays=taker (owner, cluster), exempt=30s; repeatable."
        ),
    ] = None,
    no_preempt: Annotated[bool, typer.Option("--no-preempt", help="Let it end no runs of others.")] = False,
    no_quota: Annotated[bool, typer.Option("--no-quota", help="Take its quota away.")] = False,
    store: Annotated[str | None, typer.Option(help="Address of the store.", metavar="URL", show_default=False)] = None,
) -> None:
    """Add a tenant, or change its weight, priority, quota or preemption; a running cluster follows at once."""
    from contextlib import closing

    from tradewind.cli.cluster.common import amounts, open_cluster_store
    from tradewind.cli.common import pairs
    from tradewind.store.clusters.cluster_store import TenantRow
    from tradewind.tenancy.preemption.policy import preemption_document
    from tradewind.tenancy.submission.search_submission import check_tenant

    check_tenant(name, weight)
    most = amounts(quota, "--quota", quota=True)
    words = [part for word in preempt or () for part in word.split(",")]
    takes = preemption_document(pairs(words, "--preempt", "within=2m")) if words else {}
    with closing(open_cluster_store(store)) as opened:
        old = next((row for row in opened.tenants() if row.name == name), TenantRow(name))
        row = TenantRow(
            name,
            old.weight if weight is None else weight,
            old.priority if priority is None else priority,
            {} if no_quota else {**old.quota, **most},
            old.created,
            {} if no_preempt else takes or old.preempt,
        )
        opened.set_tenant(row)
    typer.echo(_words(row))


def list_tenants(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    store: Annotated[str | None, typer.Option(help="Address of the store.", metavar="URL", show_default=False)] = None,
) -> None:
    """List the tenants, and what their searches and requests have used so far."""
    from contextlib import closing

    from tradewind.cli.cluster.common import open_cluster_store
    from tradewind.cli.common import emit_json, open_store
    from tradewind.tenancy.billing import tenant_bills

    with closing(open_cluster_store(store)) as opened, closing(open_store(store)) as studies:
        found = tenant_bills(opened, studies)
    if as_json:
        emit_json(found)
        return
    from rich.console import Console

    from tradewind.reporting.cluster import tenants_table

    console = Console(highlight=False)
    if not found:
        console.print("There is no tenant yet: tradewind tenant set physics --weight 2", markup=False)
        return
    console.print(tenants_table(found, console.width))


def _words(row: TenantRow) -> str:
    from tradewind.tenancy.preemption.policy import preemption_policy
    from tradewind.tenancy.resources import format_amounts

    most = f", at most {format_amounts(row.quota)}" if row.quota else ""
    policy = preemption_policy(row.preempt)
    takes = f"; {policy.words}" if policy else ""
    return f"{row.name}: weight {row.weight:g}, priority {row.priority}{most}{takes}"


tenant_app = command_group("tenant", "Say who shares a cluster, with which weight and quota.")
tenant_app.command("set")(set_tenant)
tenant_app.command("list")(list_tenants)
