"""``tradewind submit``: hand a search over to a cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli import completion

if TYPE_CHECKING:
    from tradewind.problem import Problem
    from tradewind.problem.job_spec.spec import JobSpec
    from tradewind.store.clusters.cluster_store import ClusterRow, ClusterStore, JobRow

_Demand = Annotated[
    list[str] | None,
    typer.Option(help="What each run takes instead of what its offer says, cpu=2,memory=4GiB; or besides, licence=1."),
]
_CoreDemand = Annotated[
    list[str] | None, typer.Option(help="What its searcher takes as long as it lives: cpu=1,memory=2GiB.")
]
_Cluster = Annotated[
    str | None,
    typer.Option(help="The cluster that it is for; without it the first that takes it.", show_default=False),
]


_LiveFolder = Annotated[
    bool, typer.Option("--live-folder", help="Run in the program's folder as it is then, not in a snapshot of it.")
]
_Param = Annotated[
    list[str] | None, typer.Option("--param", "-p", help="A job parameter's value, size=4000; repeatable.")
]
_CoreProcess = Annotated[bool, typer.Option("--core-process", help="Its searcher gets a process of its own.")]
_SEARCHER = typer.Option(help="Who proposes.", show_default=False, autocompletion=completion.parts("searcher"))


def submit(
    file: Annotated[Path, typer.Argument(help="The job YAML.", show_default=False)],
    tenant: Annotated[str, typer.Option(help="The tenant that the search belongs to.")] = "default",
    weight: Annotated[float | None, typer.Option(help="The tenant's weight from now on.", show_default=False)] = None,
    parallel: Annotated[int | None, typer.Option(help="Trials at the same time.", show_default=False)] = None,
    trials: Annotated[int | None, typer.Option(help="Number of trials at most.", show_default=False)] = None,
    searcher: Annotated[str | None, _SEARCHER] = None,
    seed: Annotated[int | None, typer.Option(help="Equal seeds give equal proposals.", show_default=False)] = None,
    target: Annotated[
        float | None, typer.Option(help="End when the objective is this good.", show_default=False)
    ] = None,
    cluster: _Cluster = None,
    nice: Annotated[int, typer.Option(help="Smaller goes first within the tenant.")] = 0,
    core_process: _CoreProcess = False,
    demand: _Demand = None,
    core_demand: _CoreDemand = None,
    param: _Param = None,
    live_folder: _LiveFolder = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    store: Annotated[str | None, typer.Option(help="Address of the store.", metavar="URL", show_default=False)] = None,
) -> None:
    """Hand a search over to a cluster; it begins when the cluster has room for it, now or at its next start.

    A snapshot of the program's folder is kept, without what .tradewindignore names: what is edited meanwhile does not
    change what the search runs.
    """
    from contextlib import closing

    from tradewind.cli.cluster.common import amounts, check_tenant, open_cluster_store
    from tradewind.cli.common import emit_json, load_job
    from tradewind.engine.search_builder import study_document
    from tradewind.store.clusters.cluster_store import JobRow, TenantRow
    from tradewind.tenancy.resources import largest_demand

    check_tenant(tenant, weight, option="--tenant")
    _check_target(target)
    given = {"parallel": parallel, "budget.trials": trials, "searcher": searcher, "seed": seed}
    spec = load_job(file, {key: value for key, value in given.items() if value is not None}, param)
    problem = _checked_problem(spec)
    options: dict[str, Any] = {
        "target": target,
        "core": "process" if core_process else "thread",
        "demand": amounts(demand, "--demand", further=True) or None,
        "run": largest_demand(problem) or None,
        "core_demand": amounts(core_demand, "--core-demand", further=True) or None,
        "code": None if live_folder else _snapshot(spec),
    }
    with closing(open_cluster_store(store)) as opened:
        if weight is not None:
            old = next((row for row in opened.tenants() if row.name == tenant), TenantRow(tenant))
            opened.set_tenant(TenantRow(tenant, weight, old.priority, old.quota, old.created))
        kept = {key: value for key, value in options.items() if value is not None}
        asked = JobRow(0, tenant, spec.name, study_document(spec), kept, nice=nice, cluster=cluster or "")
        row = _submit(opened, asked)
        running = opened.is_run(row.cluster)
    if as_json:
        code = row.options.get("code", {}).get("digest")
        emit_json({"id": row.id, "tenant": row.tenant, "name": row.name, "state": row.state, "code": code})
    else:
        _say(row, cluster, running=running)


def _tell_of_gpus(clusters: ClusterStore, wanted: JobRow) -> None:
    """Print that no cluster has the GPUs of a search's runs now, or refuse it."""
    gpus = {**wanted.options.get("run", {}), **wanted.options.get("demand", {})}.get("gpu", 0.0)
    if gpus and (notice := _missing_gpus(clusters.clusters(), wanted.cluster or None, gpus)):
        typer.echo(f"notice: {notice}", err=True)


def _missing_gpus(clusters: Sequence[ClusterRow], name: str | None, gpus: float) -> str:
    """Say that no cluster has the GPUs of a run now.

    Args:
        clusters: All clusters of the store.
        name: The cluster that the search is for, or None for any.
        gpus: GPUs of a run.

    Returns:
        A line about clusters that may get them later, or about this machine where no cluster runs; empty where one has
        them, or has not said yet what it has.

    Raises:
        InputError: They are no number of GPUs, or the clusters that run will never have them.
    """
    from tradewind import plugins
    from tradewind.deployer.runner.base import HasOwnMachines
    from tradewind.deployer.runner.resource_limits import missing_gpus
    from tradewind.errors import InputError
    from tradewind.tenancy.resources import format_amounts

    wanted = format_amounts({"gpu": gpus})
    if gpus > 1 and gpus != int(gpus):
        raise InputError(f"a run cannot have {wanted}", hint="write a whole number, or a part of one: gpu=0.5")
    found = [row for row in clusters if row.holder and name in (None, row.name)]
    if not found:
        why = missing_gpus(gpus)
        return f"{why}, and each run takes {wanted}: a cluster of this machine will refuse it" if why else ""
    if not all(row.snapshot.get("nodes") for row in found):
        return ""
    if any(node["has"].get("gpu", 0.0) >= gpus for row in found for node in row.snapshot["nodes"].values()):
        return ""
    who = f"cluster {found[0].name} has no node" if len(found) == 1 else "no cluster has a node"
    why = f"{who} with {wanted}, which each run takes"
    if any(issubclass(plugins.load("runner", str(row.settings["engine"])), HasOwnMachines) for row in found):
        return f"{why}; the search waits until there is one"
    raise InputError(why, hint="tradewind doctor says which GPUs this machine has; leave gpu= out to run without")


def _say(row: JobRow, cluster: str | None, *, running: bool) -> None:
    """Print which search it is, and how to start a cluster where none runs."""
    typer.echo(f"Search {row.id}: {row.name} of {row.tenant}. tradewind queue shows it.")
    if not running:
        which, how = (f"Cluster {cluster} does not run", f" --name {cluster}") if cluster else ("No cluster runs", "")
        typer.echo(f"{which}: tradewind cluster start{how}")


def _check_target(target: float | None) -> None:
    from tradewind.errors import InputError

    if target is not None and not math.isfinite(target):
        raise InputError(f"--target {target}: that is no result", hint="name the value at which the search ends")


def _snapshot(spec: JobSpec) -> dict[str, str] | None:
    """Keep the program's folder as it is now, where runs need it; the archive and its digest."""
    from tradewind.tenancy.code_snapshots import runs_code, take_snapshot
    from tradewind.utils.paths import data_folder

    if not runs_code(spec):
        return None
    found = take_snapshot(spec.job.workdir, data_folder())
    return {"archive": str(found.path), "digest": found.digest}


def _checked_problem(spec: JobSpec) -> Problem:
    """The problem of a specification that can be searched: what cannot is an error now, not in the queue."""
    from tradewind.engine.proposals import first_proposals
    from tradewind.engine.search_builder import build_problem, build_stopping_rules
    from tradewind.utils.paths import data_folder

    problem = build_problem(spec, data_folder())
    first_proposals(spec, problem, ())
    build_stopping_rules(spec)
    return problem


def _submit(clusters: ClusterStore, wanted: JobRow) -> JobRow:
    """Add a search, if the dollars of its tenant's quota allow it.

    Raises:
        InputError: It wants GPUs that no cluster has.
        QuotaError: They do not.
    """
    from tradewind.errors import QuotaError
    from tradewind.tenancy.billing import check_dollar_quota

    _tell_of_gpus(clusters, wanted)
    tenant = next((row for row in clusters.tenants() if row.name == wanted.tenant), None)
    if tenant is None or "dollars" not in tenant.quota:
        return clusters.submit(wanted)
    check_dollar_quota(tenant, *clusters.spending(tenant.name), wanted)
    row = clusters.submit(wanted)
    try:  # of two that were submitted at the same moment, the first one counts for the second
        check_dollar_quota(tenant, *clusters.spending(tenant.name, before=row.id), wanted)
    except QuotaError:
        clusters.want(row.id, "cancel")
        raise
    return row
