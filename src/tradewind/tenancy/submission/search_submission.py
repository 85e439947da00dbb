"""Hands a search over to a cluster, from the command line and from Python."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.errors import InputError, QuotaError
from tradewind.store.clusters.cluster_store import ClusterStore, JobRow

if TYPE_CHECKING:
    from tradewind.engine.tunable import Tunable
    from tradewind.problem import Problem
    from tradewind.problem.job_spec.spec import JobSpec


def submit(
    what: Tunable[..., Any] | Path | str,
    *,
    tenant: str = "default",
    trials: int | None = None,
    parallel: int | None = None,
    searcher: str | None = None,
    seed: int | None = None,
    target: float | None = None,
    nice: int = 0,
    demand: Mapping[str, float] | None = None,
    cluster: str = "",
    go_on: bool = False,
    store: str | None = None,
) -> JobRow:
    """Hand a search over to a cluster; it begins when the cluster has room for it, now or at its next start.

    Each run is a process of its own, which loads the function's file from a snapshot of its folder.

    Args:
        what: A `tunable` function that is defined at the top level of a file, a reference to one
            (``train.py:train``, ``module:train``), or the path of a job YAML.
        tenant: The tenant that the search belongs to.
        trials: Number of trials at most.
        parallel: Trials at the same time.
        searcher: Who proposes.
        seed: Equal seeds give equal proposals.
        target: End when the objective is this good.
        nice: Smaller goes first within the tenant.
        demand: What each run takes instead of what its offer says: ``{"cpu": 2, "memory": 4}``, memory in GiB.
        cluster: The cluster that it is for; without it the first that takes it.
        go_on: Go on with the newest study of that name, whose trials count in the budget; without it, begin anew.
        store: Address of the store; the user's own without it.

    Returns:
        The search as the queue has it: ``id`` is its number in ``tradewind queue``.

    Raises:
        InputError: No other process finds the function, or a value makes no sense.
        SpecError: The specification is wrong.
        QuotaError: The dollars of the tenant's quota do not allow it.
        StudyNotFoundError: There is no study to go on with.
        StudyBusyError: A process, or a search that is not over, has it.
    """
    from tradewind.tenancy.resources import check_demand
    from tradewind.tenancy.submission.function_jobs import refuse_while_loading
    from tradewind.utils.paths import store_url

    refuse_while_loading(str(getattr(what, "__name__", what)))
    given = {"parallel": parallel, "budget.trials": trials, "searcher": searcher, "seed": seed}
    spec = spec_of(what, {key: value for key, value in given.items() if value is not None})
    check_target(target)
    wanted = None if demand is None else check_demand(demand)
    options = submission_options(spec, target=None if target is None else float(target), demand=wanted)
    row = _checked_row(tenant, spec.name, options, nice, cluster)
    with closing(ClusterStore(store or store_url())) as clusters:
        return add_search(clusters, spec, row, go_on=go_on)


def spec_of(what: Tunable[..., Any] | Path | str, overrides: Mapping[str, Any]) -> JobSpec:
    """The specification of a job YAML or of a tunable function.

    Args:
        what: See `submit`.
        overrides: Values to replace, by key of a job YAML.

    Raises:
        InputError: It is neither, or no other process finds the function.
        SpecError: The specification is wrong.
    """
    from tradewind.engine.tunable import Tunable
    from tradewind.problem.job_spec.spec import load_spec
    from tradewind.tenancy.submission.function_jobs import function_job, load_function

    if isinstance(what, Tunable):
        return function_job(what).spec(overrides)
    if not isinstance(what, str | Path):
        raise InputError(
            f"{what!r} cannot be submitted", hint="give a @tradewind.tunable function, or the path of a job YAML"
        )
    if names_function(str(what)):
        return load_function(str(what)).spec(overrides)
    return load_spec(Path(what), overrides)


def names_function(text: str) -> bool:
    """True for ``file.py:function`` and ``module:function``; false where a file is called so."""
    from tradewind.utils.user_functions import is_reference

    return is_reference(text) and not Path(text).exists()


def check_target(target: object, *, option: str = "target") -> None:
    """See that a target is a number, or None.

    Args:
        target: The target.
        option: Its name where it was given.

    Raises:
        InputError: It is none.
    """
    number = isinstance(target, Real) and not isinstance(target, bool)  # numpy's, too
    if target is not None and not (number and math.isfinite(target)):  # type: ignore[arg-type]
        raise InputError(f"{option} {target!r:.60}: that is no result", hint="name the value at which the search ends")


def check_tenant(name: object, weight: float | None = None, *, option: str = "") -> None:
    """See that a tenant's name and weight are some.

    Args:
        name: The name.
        weight: The weight, or None for that which it has.
        option: The option that the name was given with.

    Raises:
        InputError: One of them is none.
    """
    words = isinstance(name, str) and name.strip() and "/" not in name and name.isprintable()
    if not words or len(str(name)) > _LONGEST:
        given = f"{option} {name!r:.120}".lstrip()
        hint = f"write letters and digits on one line, without a /, at most {_LONGEST}"
        raise InputError(f"{given} is no name of a tenant", hint=hint)
    if weight is not None and not 0 < weight < float("inf"):
        raise InputError(f"--weight {weight:g} is none", hint="a weight is above 0")


_LONGEST = 100
"""Characters of a tenant's name, as of a job's."""


def _checked_row(tenant: object, name: str, options: Mapping[str, Any], nice: object, cluster: object) -> JobRow:
    """The row of a search with what a program has given: a cluster reads it, which many share."""
    check_tenant(tenant, option="tenant")
    if isinstance(nice, bool) or not isinstance(nice, Integral):
        raise InputError(f"nice {nice!r:.60} is no whole number", hint="smaller goes first, 0 is usual")
    if not isinstance(cluster, str):
        raise InputError(f"cluster {cluster!r:.60} is no name", hint="leave it out for the first that takes the search")
    return JobRow(0, str(tenant), name, {}, options, nice=int(nice), cluster=cluster)


def submission_options(
    spec: JobSpec,
    *,
    target: float | None = None,
    demand: Mapping[str, float] | None = None,
    core_demand: Mapping[str, float] | None = None,
    core_process: bool = False,
    live_folder: bool = False,
) -> dict[str, Any]:
    """The options of a search that is handed over: what cannot be searched is an error now, and not in the queue.

    Args:
        spec: The specification.
        target: End when the objective is this good.
        demand: What each run takes instead of what its offer says.
        core_demand: What its searcher takes as long as it lives.
        core_process: Its searcher gets a process of its own.
        live_folder: Keep no snapshot of the program's folder.

    Raises:
        TradewindError: The search would be refused.
    """
    from tradewind.tenancy.resources import largest_demand

    options: dict[str, Any] = {
        "target": target,
        "core": "process" if core_process else "thread",
        "demand": dict(demand) if demand else None,
        "run": largest_demand(_checked_problem(spec)) or None,
        "core_demand": dict(core_demand) if core_demand else None,
        "code": None if live_folder else _snapshot(spec),
    }
    return {key: value for key, value in options.items() if value is not None}


def _checked_problem(spec: JobSpec) -> Problem:
    from tradewind.engine.proposals import first_proposals
    from tradewind.engine.search_builder import build_problem, build_searcher, build_stopping_rules
    from tradewind.utils.paths import data_folder

    problem = build_problem(spec, data_folder())
    first_proposals(spec, problem, ())
    build_searcher(spec, problem)
    build_stopping_rules(spec)
    return problem


def _snapshot(spec: JobSpec) -> dict[str, str] | None:
    """Keep the program's folder as it is now, where runs need it; the archive and its digest."""
    from tradewind.tenancy.code_snapshots import runs_code, take_snapshot
    from tradewind.utils.paths import data_folder

    if not runs_code(spec):
        return None
    found = take_snapshot(spec.job.workdir, data_folder())
    return {"archive": str(found.path), "digest": found.digest}


def add_search(clusters: ClusterStore, spec: JobSpec, wanted: JobRow, *, go_on: bool = False) -> JobRow:
    """Add a search to the queue, if the dollars of its tenant's quota allow it.

    Args:
        clusters: The queue.
        spec: The specification.
        wanted: The search's row, whose document is that of the specification.
        go_on: Go on with the newest study of that name.

    Raises:
        QuotaError: They do not.
        StudyNotFoundError: There is no study to go on with.
        StudyBusyError: A process, or a search that is not over, has it.
        InputError: Nothing is left of its budget.
    """
    from dataclasses import replace

    from tradewind.engine.search_builder import study_document
    from tradewind.store.base import store_at
    from tradewind.tenancy.billing import check_dollar_quota
    from tradewind.tenancy.submission.continuation import continue_search, study_to_continue

    if go_on:
        with closing(store_at(clusters.url)) as studies:
            study = study_to_continue(studies, spec, wanted.tenant, clusters)
        return continue_search(clusters, spec, wanted, study)
    wanted = replace(wanted, spec=study_document(spec))
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
