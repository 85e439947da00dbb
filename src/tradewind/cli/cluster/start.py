"""``tradewind cluster start``: share this machine, or a cluster of Ray, Slurm or Kubernetes, between searches."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.common import command_group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tradewind.tenancy.allocator import AllocationPolicy
    from tradewind.tenancy.fairness.base import Fairness
    from tradewind.tenancy.node_monitor import NodeSource
    from tradewind.tenancy.priority.base import Priority

_OWN_CODE = typer.Option(
    "--own-code", help="Also run programs that ordinary users of the service bring; local ones may do all you may."
)

_SHARE = typer.Option("--share", help="A setting of the rule between tenants: half_life=86400; repeatable.")
_STORE = typer.Option(help="Address of the store.", metavar="URL", show_default=False)


def start(
    local: Annotated[bool, typer.Option("--local", help="Share this machine (the default).")] = False,
    docker: Annotated[
        bool, typer.Option("--docker", help="Share this machine, each run in a container of its job's image.")
    ] = False,
    ray: Annotated[bool, typer.Option("--ray", help="Share a Ray cluster.")] = False,
    slurm: Annotated[
        str | None,
        typer.Option("--slurm", help="Share a Slurm partition; '' for the default one.", metavar="PARTITION"),
    ] = None,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Share a Kubernetes cluster, each run in a pod of its job's image.")
    ] = False,
    name: Annotated[str, typer.Option(help="The cluster's name in the store.")] = "default",
    fairness: Annotated[str, typer.Option(help="The rule between tenants.")] = "fair_share",
    share: Annotated[list[str] | None, _SHARE] = None,
    priority: Annotated[str, typer.Option(help="The rule between the searches of a tenant.")] = "gain",
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="A setting of the priority: declines=2; repeatable.")
    ] = None,
    runner: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the runner: address=...; repeatable.")
    ] = None,
    capacity: Annotated[
        list[str] | None, typer.Option("--limit", help="Use no more than this of each node: cpu=4; repeatable.")
    ] = None,
    resource: Annotated[
        list[str] | None, typer.Option("--resource", help="What else each node has, licence=2; repeatable.")
    ] = None,
    queued: Annotated[
        int, typer.Option("--queued", min=0, max=1000, help="Runs for each node that may wait in the engine's queue.")
    ] = 0,
    processes: Annotated[
        bool, typer.Option("--core-processes", help="Each search in a process of its own, not in a thread.")
    ] = False,
    own_code: Annotated[bool, _OWN_CODE] = False,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="End when no search is left.")] = False,
    store: Annotated[str | None, _STORE] = None,
) -> None:
    """Share a cluster between searches until Ctrl-C; what runs is then ended, and goes on at the next start."""
    from tradewind.cli.cluster.common import amounts
    from tradewind.cli.common import pairs
    from tradewind.cli.signals import GracefulInterrupt
    from tradewind.tenancy.shared_cluster import SharedCluster, SharedClusterSettings
    from tradewind.utils.paths import data_folder, store_url

    chosen = {"process": local, "docker": docker, "ray": ray, "slurm": slurm is not None, "kubernetes": kubernetes}
    part = _part(chosen, pairs(runner, "--set"), slurm)
    more = amounts(resource, "--resource", further=True)
    how = _policy(_rules(fairness, share, priority, policy), more, queued, part["use"])
    nodes = _nodes(part, amounts(capacity, "--limit"), more)
    words = {"engine": part["use"], "fairness": fairness, "priority": priority, "own_code": own_code}
    url = store or store_url()
    settings = SharedClusterSettings(name, url, data_folder(), how, words, part, processes)
    cluster = SharedCluster(settings, nodes)
    typer.echo(f"Cluster {name} on {part['use']} ({fairness}, {priority}). Ctrl-C ends it.")
    with GracefulInterrupt("ending: running trials are cancelled and paid; the next start goes on") as stop:
        cluster.run(lambda: not stop.wanted and not (until_empty and cluster.empty()))
    if until_empty and not stop.wanted:
        _tell_failures(list(cluster.failed.values()))


def _tell_failures(failed: Sequence[str]) -> None:
    """Raise an error that names the first of the searches that failed; nothing where there is none."""
    from tradewind.errors import JobFailedError

    if failed:
        searches = "1 search" if len(failed) == 1 else f"{len(failed):,} searches"
        raise JobFailedError(f"{searches} failed: {failed[0]}", hint="tradewind queue --all")


def list_clusters(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    store: Annotated[str | None, _STORE] = None,
) -> None:
    """List the clusters of the store, and who runs them."""
    from contextlib import closing
    from dataclasses import asdict

    from tradewind.cli.cluster.common import open_cluster_store
    from tradewind.cli.common import emit_json

    with closing(open_cluster_store(store)) as opened:
        rows = opened.clusters()
    if as_json:
        emit_json([asdict(row) for row in rows])
        return
    if not rows:
        typer.echo("No cluster was started yet: tradewind cluster start")
    for row in rows:
        typer.echo(f"{row.name}: {row.settings.get('engine', '')}, {row.holder or 'not running'}")


def _rules(
    fairness: str, share: list[str] | None, priority: str, policy: list[str] | None
) -> tuple[Fairness, Priority]:
    """Make the rule between tenants and the one between the searches of a tenant."""
    from tradewind import plugins
    from tradewind.cli.common import pairs

    between = plugins.create("fairness", fairness, pairs(share, "--share"))
    return between, plugins.create("priority", priority, pairs(policy, "--policy"))


def _policy(rules: tuple[Fairness, Priority], more: Mapping[str, float], queued: int, engine: str) -> AllocationPolicy:
    """Make the policy of the cluster; only an engine that is a cluster itself has a queue, and may grow."""
    from tradewind import plugins
    from tradewind.deployer.runner.base import HasOwnMachines
    from tradewind.errors import InputError
    from tradewind.tenancy.allocator import AllocationPolicy
    from tradewind.tenancy.resources import DEFAULT_RESOURCES, ResourceKinds

    grows = issubclass(plugins.load("runner", engine), HasOwnMachines)
    if queued and not grows:
        raise InputError(
            f"--queued {queued}: {engine} has no queue, it would start them all at once",
            hint="leave --queued out, or share --ray, --slurm or --kubernetes",
        )
    kinds = ResourceKinds((*DEFAULT_RESOURCES, *(name for name in more if name not in DEFAULT_RESOURCES)))
    return AllocationPolicy(*rules, kinds, ahead=queued, grows=grows)


def _part(chosen: Mapping[str, bool], given: Mapping[str, Any], partition: str | None) -> dict[str, Any]:
    """The runner of the cluster, with its settings."""
    from tradewind.errors import InputError

    engines = [name for name, wanted in chosen.items() if wanted]
    if len(engines) > 1:
        raise InputError(
            "--local, --docker, --ray, --slurm and --kubernetes exclude each other", hint="start one cluster for each"
        )
    named = {"partition": partition} if partition else {}
    return {"use": engines[0] if engines else "process", **given, **named}


def _nodes(part: Mapping[str, Any], most: Mapping[str, float], more: Mapping[str, float]) -> NodeSource:
    from pathlib import Path

    from tradewind import plugins
    from tradewind.deployer.runner.base import ListsNodes
    from tradewind.engine.deployment import make_plugin
    from tradewind.errors import InputError
    from tradewind.tenancy.node_monitor import LimitedNodes
    from tradewind.utils.paths import data_folder

    settings = {key: value for key, value in part.items() if key != "use"}
    if part["use"] == "docker":
        _check_host(str(settings.get("host") or os.environ.get("DOCKER_HOST", "")))
        if not settings.get("host"):
            # Other runners are asked for their nodes, and say then what is missing.
            for look in plugins.load("runner", "docker").needs:
                look()
        # Containers of this machine's engine have what its processes have.
        part, settings = {"use": "process"}, {}
    made = make_plugin("runner", part["use"], settings, Path.cwd(), data_folder())
    if not isinstance(made, ListsNodes):
        raise InputError(f"the {part['use']} runner does not say which nodes it has")
    return LimitedNodes(made, most, more)


def _check_host(host: str) -> None:
    """Refuse an engine of another machine: nobody here knows how many CPUs that has."""
    from tradewind.errors import InputError

    if host and not host.startswith("unix://"):
        raise InputError(
            f"--docker shares this machine, and the container engine is at {host}",
            hint="start the cluster on that machine, or unset DOCKER_HOST; --set host=unix:///PATH names a socket",
        )


cluster_app = command_group("cluster", "Run a cluster that many searches share.")
cluster_app.command("start")(start)
cluster_app.command("list")(list_clusters)
