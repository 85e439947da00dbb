"""``tradewind submit``: hand a search over to a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli import completion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

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
_Budget = Annotated[str | None, typer.Option(help="USD that the search may spend in total: $2.", show_default=False)]
_Continue = Annotated[
    bool,
    typer.Option("--continue", help="Go on with the newest study of that name; its trials count in the budget."),
]
_File = Annotated[
    str, typer.Argument(help="The job YAML, or a tunable function: file.py:function.", show_default=False)
]
_Target = Annotated[float | None, typer.Option(help="End when the objective is this good.", show_default=False)]
_SEARCHER = typer.Option(help="Who proposes.", show_default=False, autocompletion=completion.parts("searcher"))


def submit(
    file: _File,
    tenant: Annotated[str, typer.Option(help="The tenant that the search belongs to.")] = "default",
    weight: Annotated[float | None, typer.Option(help="The tenant's weight from now on.", show_default=False)] = None,
    parallel: Annotated[int | None, typer.Option(help="Trials at the same time.", show_default=False)] = None,
    trials: Annotated[int | None, typer.Option(help="Number of trials at most.", show_default=False)] = None,
    budget: _Budget = None,
    searcher: Annotated[str | None, _SEARCHER] = None,
    seed: Annotated[int | None, typer.Option(help="Equal seeds give equal proposals.", show_default=False)] = None,
    target: _Target = None,
    cluster: _Cluster = None,
    nice: Annotated[int, typer.Option(help="Smaller goes first within the tenant.")] = 0,
    go_on: _Continue = False,
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

    from tradewind.cli.cluster.common import amounts, open_cluster_store
    from tradewind.cli.common import emit_json
    from tradewind.store.clusters.cluster_store import JobRow
    from tradewind.tenancy.submission import search_submission as hand_over

    hand_over.check_tenant(tenant, weight, option="--tenant")
    hand_over.check_target(target, option="--target")
    given = {"parallel": parallel, "budget.trials": trials, "budget.dollars": budget, "searcher": searcher}
    given |= {"seed": seed}
    spec = _spec(file, {key: value for key, value in given.items() if value is not None}, param)
    options = hand_over.submission_options(
        spec,
        target=target,
        demand=amounts(demand, "--demand", further=True),
        core_demand=amounts(core_demand, "--core-demand", further=True),
        core_process=core_process,
        live_folder=live_folder,
    )
    with closing(open_cluster_store(store)) as opened:
        if weight is not None:
            _set_weight(opened, tenant, weight)
        wanted = JobRow(0, tenant, spec.name, {}, options, nice=nice, cluster=cluster or "")
        _tell_of_gpus(opened, wanted)
        earlier = _earlier_words(spec, tenant, store, go_on=go_on)  # before a cluster may make the search's own study
        row = hand_over.add_search(opened, spec, wanted, go_on=go_on)
        running = opened.is_run(row.cluster)
    if as_json:
        code = row.options.get("code", {}).get("digest")
        emit_json({"id": row.id, "tenant": row.tenant, "name": row.name, "state": row.state, "code": code})
    else:
        _say(row, spec, cluster, running=running, earlier=earlier)


def _spec(what: str, given: Mapping[str, Any], param: Sequence[str] | None) -> JobSpec:
    """The specification of a job YAML or of a function, with other values by key and by ``--param``."""
    from tradewind.cli.common import load_job
    from tradewind.errors import InputError
    from tradewind.tenancy.submission.search_submission import names_function, spec_of

    if not names_function(what):
        return load_job(Path(what), given, param)
    if param:
        raise InputError(f"--param {param[0]!r}: a function has no job parameters", hint="they are in a job YAML")
    return spec_of(what, given)


def _set_weight(clusters: ClusterStore, tenant: str, weight: float) -> None:
    from dataclasses import replace

    from tradewind.store.clusters.cluster_store import TenantRow

    old = next((row for row in clusters.tenants() if row.name == tenant), TenantRow(tenant))
    clusters.set_tenant(replace(old, weight=weight))


def _earlier_words(spec: JobSpec, tenant: str, url: str | None, *, go_on: bool) -> str:
    """Say which study a search goes on with, or could; empty where there is none."""
    from contextlib import closing

    from tradewind.cli.common import open_store
    from tradewind.tenancy.submission.continuation import earlier_study
    from tradewind.utils.units import count

    with closing(open_store(url)) as studies:
        study = earlier_study(studies, spec, tenant)
        if study is None:
            return ""
        (summary,) = studies.summaries([study.id])
    had = f"study {study.id} ({study.name}), which has had {count(sum(summary.counts.values()), 'trial')}"
    if go_on:
        return f"It goes on with {had}."
    if summary.holder:
        return f"It begins anew: process {summary.holder} runs {had}."
    return f"It begins anew; --continue goes on with {had}."


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


def _say(row: JobRow, spec: JobSpec, cluster: str | None, *, running: bool, earlier: str) -> None:
    """Print which search it is, when it ends by itself, how to start a cluster where none runs, and what is known."""
    from tradewind.engine.preflight import ending_words

    typer.echo(f"Search {row.id}: {row.name} of {row.tenant}. tradewind queue shows it.")
    if ends := ending_words(spec):
        typer.echo(ends)
    if not running:
        which, how = (f"Cluster {cluster} does not run", f" --name {cluster}") if cluster else ("No cluster runs", "")
        typer.echo(f"{which}: tradewind cluster start{how}")
    if earlier:
        typer.echo(earlier)
