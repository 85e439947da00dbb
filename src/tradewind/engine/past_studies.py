"""Earlier studies of the store, for searchers that learn from them."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tradewind import plugins
from tradewind.deployer.runner.base import AnswersFromRecords
from tradewind.errors import SpecError
from tradewind.problem import PastStudy, Problem
from tradewind.searcher.base import LearnsFromPast
from tradewind.store.base import EarlierStudy, Store, StudyRow
from tradewind.utils.suggestions import closest_match

if TYPE_CHECKING:
    from tradewind.problem.job_spec.spec import JobSpec

SINGLE_RUNS_SUFFIX = ".runs"
"""What stands behind a job's name in that of a study of its single runs."""

_MOST_STUDIES = 64
_MOST_TRIALS = 2_000
"""Of one study: a history that takes minutes to read would cost more than it teaches."""
_MOST_READ = 2_000


def learns_from_past(spec: JobSpec) -> bool:
    """True when the specification's searcher learns from earlier studies, and may."""
    return spec.past != "none" and issubclass(plugins.load("searcher", spec.searcher.name), LearnsFromPast)


def load_past_studies(
    spec: JobSpec, study: StudyRow | None, store: Store, *, same_job: bool = False
) -> tuple[PastStudy, ...]:
    """The studies that a study may learn from: those that began before it, as they were when it began.

    A study that is resumed sees the same past as before, so its proposals stay the same. Of a study that had been let
    go by then it sees all, of others what had ended: the clock of runs that are only played is ahead of real time.

    On a shared cluster nobody learns from another tenant's studies.

    Args:
        spec: The study's specification; its ``past`` says which studies may be used.
        study: The study; None for all that the store has now.
        store: The store.
        same_job: Only studies of the job of the same name.

    Returns:
        The newest 64 of them that have a trial, the oldest first, with at most 2,000 trials each. Studies of one run
        each, as requests for single runs leave them, count as one where problem and parameters are the same. No more
        than 2,000 studies are looked at, of those that may be used.
    """
    if spec.past == "none":
        return ()
    found: dict[Hashable, list[PastStudy]] = {}
    names = _names(spec, same_job=same_job)
    for earlier in store.earlier_studies(tenant_of(study), names, before=study, limit=_MOST_READ):
        past = _read(earlier, spec, store, study, same_job=same_job)
        if past is not None:
            found.setdefault(_together(earlier.study, past), []).append(past)
        if len(found) > _MOST_STUDIES:
            found.popitem()
            break
    return tuple(_joined(list(reversed(parts))) for parts in reversed(found.values()))


def with_past_studies(problem: Problem, spec: JobSpec, study: StudyRow, store: Store) -> Problem:
    """A problem with what the specification's searcher may learn from (`load_past_studies`), where it learns at all."""
    return replace(problem, past=load_past_studies(spec, study, store)) if learns_from_past(spec) else problem


def missing_past_hint(spec: JobSpec, store: Store) -> str:
    """Warn of jobs that are to be learned from but have nothing stored; an empty text if there are none.

    They may come later, so it is no error; the job itself is not named.
    """
    if isinstance(spec.past, str) or not learns_from_past(spec):
        return ""
    others = [job for job in spec.past if job != spec.name]
    gone = [
        job for job in others if not any(store.list_studies(name, limit=1) for name in (job, job + SINGLE_RUNS_SUFFIX))
    ]
    if not gone:
        return ""
    known = sorted({line.name.removesuffix(SINGLE_RUNS_SUFFIX) for line in store.list_studies()} - {spec.name})
    near = [repr(name) for job in gone if (name := closest_match(job, known)) is not None]
    hint = f"did you mean {' and '.join(near)}?" if near else f"known: {', '.join(known[:8]) or 'no other job'}"
    names = " and ".join(repr(job) for job in gone)
    them = "it" if len(gone) == 1 else "them"
    return f"past: nothing is stored yet of {names}, so that nothing is learned from {them} ({hint})"


def _together(row: StudyRow, past: PastStudy) -> Hashable:
    """Key of one study: single runs, as those of requests, of the same problem with the same parameters."""
    if len(past.trials) > 1:
        return row.id
    values = tuple(sorted(past.values.items()))
    return past.name, past.problem_key, past.parameters.fidelity, values, repr(past.constraints)


def _joined(parts: Sequence[PastStudy]) -> PastStudy:
    """One study with the trials of all of them, the oldest first."""
    if len(parts) == 1:
        return parts[0]
    trials = [trial for past in parts for trial in past.trials][-_MOST_TRIALS:]
    return replace(parts[-1], trials=tuple(replace(trial, number=i) for i, trial in enumerate(trials)))


def tenant_of(study: StudyRow | None) -> str:
    """The tenant of a study on a shared cluster, from its name ``tenant/job``; empty for all others."""
    return "" if study is None else study.name.rpartition("/")[0]


def _names(spec: JobSpec, *, same_job: bool) -> list[str] | None:
    """The studies of the jobs that may be learned from; None for those of all jobs."""
    jobs = None if spec.past == "all" else spec.past
    if same_job:
        jobs = (spec.name,)
    return None if jobs is None else [name for job in jobs for name in (job, job + SINGLE_RUNS_SUFFIX)]


def _read(
    earlier: EarlierStudy, spec: JobSpec, store: Store, study: StudyRow | None, *, same_job: bool
) -> PastStudy | None:
    from tradewind.problem.job_spec.spec import JobSpec as Reader

    row = earlier.study
    try:
        theirs = Reader.from_json(row.spec)
    except SpecError as error:
        warnings.warn(f"study {row.name} is not learned from: {error.message}", stacklevel=2)
        return None
    if (same_job and theirs.name != spec.name) or not _wanted(spec.past, theirs.name):
        return None
    if _replays(spec, theirs) or _replays(theirs, spec):
        return None
    limit = float("inf") if study is None else study.created
    if earlier.quiet is not None and earlier.quiet <= limit:
        limit = float("inf")
    trials = tuple(
        trial
        for trial in store.trials(row.id, limit=_MOST_TRIALS)
        if trial.state.informs and trial.observation is not None and (trial.ended is None or trial.ended <= limit)
    )
    if not trials:
        return None
    return PastStudy(
        name=theirs.name,
        parameters=theirs.job.parameters,
        trials=trials,
        problem_key=row.problem_key.partition("/")[0],
        objective=theirs.objective,
        constraints=theirs.constraints,
        billing=theirs.billing,
    )


def _replays(spec: JobSpec, other: JobSpec) -> bool:
    """True when the runs of a study are answered from the trials of another one.

    It would know its answers beforehand, and its own runs tell nobody anything new.
    """
    if spec.runner.name not in plugins.names("runner"):
        return False
    runner = plugins.load("runner", spec.runner.name)
    if not issubclass(runner, AnswersFromRecords) or not runner.answers_from_studies(spec.runner.settings):
        return False
    different = set(spec.problem_differences(other))
    return spec.name == other.name and "runner" in different and not {"job", "space"} & different


def _wanted(past: Any, name: str) -> bool:
    return past == "all" or name in past
