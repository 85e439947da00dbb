"""Goes on with searches that are over: with the same budget where some of it is left, or with a larger one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tradewind.engine.search_builder import build_stopping_rules, study_document, study_names
from tradewind.engine.state_machine.stopping_rules import SearchProgress
from tradewind.errors import InputError, QuotaError, StudyBusyError, StudyNotFoundError
from tradewind.problem import Budget, TrialState
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.store.base import Store, StudyRow, StudySummary
from tradewind.store.clusters.cluster_store import OPEN_JOB_STATES, ClusterStore, JobRow
from tradewind.tenancy.billing import check_dollar_quota
from tradewind.utils.units import count, format_duration, format_money


def earlier_study(studies: Store, spec: JobSpec, tenant: str) -> StudyRow | None:
    """The newest study of a search's name and problem, whether a cluster or ``tradewind tune`` made it; None if none.

    Args:
        studies: The store.
        spec: The specification.
        tenant: The search's tenant.
    """
    found = [study for name in study_names(spec.name, tenant) for study in studies.find_studies(name, spec.problem_key)]
    return max(found, key=lambda study: study.id, default=None)


def study_to_continue(studies: Store, spec: JobSpec, tenant: str, clusters: ClusterStore | None = None) -> StudyRow:
    """The study that a search of a specification goes on with.

    Args:
        studies: The store.
        spec: The specification, with the budget of the whole study.
        tenant: The search's tenant.
        clusters: The queue, in which a search may have it that is not over.

    Raises:
        StudyNotFoundError: There is none of that name, or those that there are have another problem.
        StudyBusyError: A search of the queue has it, or a process runs it.
        InputError: Nothing is left of the budget.
    """
    found = earlier_study(studies, spec, tenant)
    if found is None:
        names = study_names(spec.name, tenant)
        others = [study for name in names for study in studies.find_studies(name) if study.kind == "search"]
        if not others:
            raise StudyNotFoundError(f"there is no study {names[0]} to go on with", hint="leave --continue out")
        newest = max(others, key=lambda study: study.id)
        differences = spec.problem_differences(JobSpec.from_json(newest.spec))
        parts = f"{', '.join(differences)} {'differs' if len(differences) == 1 else 'differ'}" if differences else ""
        raise StudyNotFoundError(
            f"study {newest.id} ({newest.name}) is of another problem{f': {parts}' if parts else ''}",
            hint="leave --continue out to begin anew",
        )
    if clusters is not None:  # whose process is the cluster's: nobody is to end that
        _newest_search(clusters, found)
    (summary,) = studies.summaries([found.id])
    if summary.holder:
        raise StudyBusyError(
            f"study {found.id} ({found.name}) is being run by process {summary.holder}", hint="end that one first"
        )
    check_budget_left(spec.budget, summary)
    _check_goes_on(studies, spec, summary)
    return found


def _check_goes_on(studies: Store, spec: JobSpec, summary: StudySummary) -> None:
    """See that no stopping rule ends a study again before it has run anything.

    Raises:
        InputError: One does.
    """
    ended = [each for each in studies.trials(summary.study.id) if each.state.ended and each.state != TrialState.LOST]
    progress = SearchProgress(spec.objective, ended, summary.best, summary.spent)
    if reason := next((reason for rule in build_stopping_rules(spec) if (reason := rule(progress))), None):
        raise InputError(
            f"study {summary.study.id} ({summary.study.name}) would end again at once: {reason}",
            hint="submit the job without --continue, or with another rule under stop:",
        )


def check_budget_left(budget: Budget, summary: StudySummary) -> None:
    """See that a study may have further trials.

    Args:
        budget: Of the whole study, what it has used included.
        summary: What it has used.

    Raises:
        InputError: It may not.
    """
    study, used = summary.study, sum(summary.counts.values())
    interrupted = any(number for state, number in summary.counts.items() if not TrialState(state).ended)
    over = ""
    if budget.trials is not None and used >= budget.trials and not interrupted:
        over = f"it has had {count(used, 'trial')} of {budget.trials}"
    elif budget.dollars is not None and summary.spent >= budget.dollars:
        over = f"it has spent {format_money(summary.spent)} of {format_money(budget.dollars)}"
    elif budget.hours is not None and study.elapsed >= budget.hours * 3600:
        over = f"it has searched for {format_duration(study.elapsed)} of {format_duration(budget.hours * 3600)}"
    if over:
        raise InputError(
            f"nothing is left of the budget of study {study.id} ({study.name}): {over}",
            hint="give more in all, with --trials or --budget, or in the job YAML",
        )


def continue_search(clusters: ClusterStore, spec: JobSpec, wanted: JobRow, study: StudyRow) -> JobRow:
    """Let a search go on with a study: as the search that had it before, or as a new one of the queue.

    Args:
        clusters: The queue.
        spec: The specification, with the budget of the whole study.
        wanted: The row of a new search.
        study: The study.

    Raises:
        StudyBusyError: A search of the queue has it, and is not over.
        QuotaError: The dollars of the tenant's quota do not allow it.
    """
    known = _newest_search(clusters, study)
    wanted = replace(wanted, spec=study_document(spec), study_id=study.id)
    mine = known if known is not None and known.tenant == wanted.tenant else None
    _check_quota(clusters, wanted, mine)
    if mine is None:
        row = clusters.submit(wanted)
        try:  # as `_reopened`
            _check_quota(clusters, wanted, row)
        except QuotaError:
            clusters.want(row.id, "cancel")
            raise
        return row
    fields: dict[str, Any] = {"spec": wanted.spec, "options": wanted.options, "nice": wanted.nice}
    return _reopened(clusters, mine, **fields, cluster=wanted.cluster or mine.cluster)


def _newest_search(clusters: ClusterStore, study: StudyRow) -> JobRow | None:
    """The search of the queue that had a study last, and is over; None without one.

    Raises:
        StudyBusyError: It is not over.
    """
    known = next(iter(clusters.searches_of(study.id)), None)
    if known is not None and known.state in OPEN_JOB_STATES:
        raise StudyBusyError(
            f"study {study.id} ({study.name}) is that of search {known.id}, which is not over: {known.state}",
            hint=f"tradewind queue shows it, tradewind cancel {known.id} ends it",
        )
    return known


def resume_search(
    clusters: ClusterStore, studies: Store, job: JobRow, budget: Mapping[str, Any] | None = None
) -> JobRow:
    """Let a search that is over go on.

    Args:
        clusters: The queue.
        studies: The store.
        job: The search.
        budget: ``trials`` or ``dollars`` of the whole study from now on, what it has used included.

    Raises:
        StudyBusyError: A process runs its study, or another search of the queue has it.
        InputError: Nothing is left of its budget.
        QuotaError: The dollars of the tenant's quota do not allow it.
        SpecError: The budget makes no sense.
    """
    document = dict(job.spec)
    inner = dict(document["job"])
    document["job"] = {**inner, "budget": {**(inner.get("budget") or {}), **(budget or {})}}
    spec = JobSpec.from_json(document)
    if job.study_id is None:
        wanted = replace(job, spec=study_document(spec))
        _check_quota(clusters, wanted, job)
        return _reopened(clusters, job, spec=wanted.spec)
    (summary,) = studies.summaries([job.study_id])
    if summary.holder:
        words = f"study {job.study_id} ({summary.study.name}) is being run by process {summary.holder}"
        raise StudyBusyError(words, hint="end that one first")
    check_budget_left(spec.budget, summary)
    _check_goes_on(studies, spec, summary)
    return continue_search(clusters, spec, job, summary.study)


def _check_quota(clusters: ClusterStore, wanted: JobRow, mine: JobRow | None) -> None:
    """Refuse what the tenant's dollars do not allow; what the study has cost is within its budget, and counts once."""
    tenant = next((row for row in clusters.tenants() if row.name == wanted.tenant), None)
    if tenant is not None and "dollars" in tenant.quota:
        searches, requests = clusters.spending(tenant.name)
        others = {number: most for number, most in searches.items() if mine is None or number != mine.id}
        check_dollar_quota(tenant, others, requests, wanted)


def _reopened(clusters: ClusterStore, job: JobRow, **fields: Any) -> JobRow:
    """Queue a search anew; not if the money that it needs was set aside for something else at the same moment."""
    row = clusters.reopen(job.id, **fields)
    try:
        _check_quota(clusters, row, row)
    except QuotaError:
        before = {name: getattr(job, name) for name in ("state", "wanted", "reason", "ended", *fields)}
        clusters.change_job(job.id, **before)
        raise
    return row
