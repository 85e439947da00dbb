"""``tradewind run``: run the job once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tradewind.errors import TradewindError
    from tradewind.problem import Budget, Configuration, Problem, Run, Trial, Value
    from tradewind.problem.job_spec.spec import JobSpec
    from tradewind.store.base import Store, StudyRow


NO_PROGRAM = 127
"""The exit code of a run whose program could not be started, as shells have it."""


def run_error(trial: Trial, runs: Sequence[Run], message: str, hint: str) -> TradewindError:
    """The error that a failed or aborted trial ends the command with.

    Args:
        trial: The trial.
        runs: Its runs, in order.
        message: What to say.
        hint: What to do.
    """
    from tradewind.errors import (
        ArchitectureError,
        InputError,
        InterpretationError,
        JobFailedError,
        LimitReachedError,
        MissingProgramError,
    )
    from tradewind.problem import Fault, RunState, TrialState

    last = runs[-1] if runs else None
    if trial.state == TrialState.ABORTED:
        return LimitReachedError(message, hint=hint)
    if trial.state != TrialState.FAILED or last is None:
        return JobFailedError(message, hint=hint)
    if last.state == RunState.DONE:
        return InterpretationError("no-match", message, hint=hint)
    if last.fault is Fault.ARCHITECTURE:
        return ArchitectureError(message)
    if last.exit_code == NO_PROGRAM and last.handle is None:
        return MissingProgramError(message)
    if last.exit_code is None and last.handle is None:
        return InputError(message)
    return JobFailedError(message, hint=hint)


def prerequisite_error(run: Run, reason: str) -> TradewindError | None:
    """The error for a lost run that the user must do something about before any run can succeed; None for others.

    Args:
        run: The run.
        reason: Why it was lost, in words.
    """
    from tradewind.errors import CredentialsError, PrerequisiteError
    from tradewind.problem import Fault

    if run.fault is Fault.PREREQUISITE:
        return PrerequisiteError(reason)
    return CredentialsError(reason) if run.fault is Fault.CREDENTIALS else None


def run(
    file: Annotated[Path, typer.Argument(help="The job YAML.", show_default=False)],
    values: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", help="A parameter's value, nodes=4; the others are those of the best known run."),
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="A job parameter's value, size=4000; repeatable.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the objective and the whole record as JSON, and nothing else.")
    ] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Cut the run short at the deadline.")] = False,
    budget: Annotated[str | None, typer.Option(help="USD that this run may cost at most.")] = None,
    store: Annotated[str | None, typer.Option(help="Address of the store.", metavar="URL", show_default=False)] = None,
) -> None:
    """Run the job once, on the best known or a given configuration.

    Parameters that are not given with --set have their only possible value, or that of the best run known: of the
    search, or else of earlier single runs. With --json, a shell loop or a foreign optimiser can be the searcher: it
    passes parameters with --set, and reads "objective". The run is kept in the store under NAME.runs; it does not count
    against the search's budget.
    """
    from tradewind.cli.common import load_job, open_store
    from tradewind.engine.search_builder import build_problem
    from tradewind.problem import Budget
    from tradewind.utils.paths import data_folder

    overrides: dict[str, Any] = {"abort": abort, "budget": {"dollars": budget} if budget else {}, "parallel": 1}
    spec = load_job(file, overrides, param)
    # The budget of the YAML is the search's; only what is given here limits a single run.
    limit = Budget(dollars=spec.budget.dollars if budget else None)
    problem = replace(build_problem(spec, data_folder()), budget=limit)
    opened = open_store(store)
    try:
        configuration = choose(spec, problem, opened, values or [])
        if not as_json:
            typer.echo(f"Running {spec.name} on {configuration}")
        study, trial, runs = run_once(spec, problem, opened, configuration)
        _finish(spec, study, trial, runs, as_json=as_json)
    finally:
        opened.close()


def choose(spec: JobSpec, problem: Problem, store: Store, texts: Sequence[str]) -> Configuration:
    """The configuration to run: the given values, what they leave one value for, and the best known one's others.

    Args:
        spec: The specification.
        problem: The problem.
        store: Where the best known configuration is looked up.
        texts: ``name=value``.

    Raises:
        ConfigurationError: A value is wrong, or one is missing and nothing is known yet.
    """
    from tradewind.cli.common import pair
    from tradewind.errors import ConfigurationError

    given: dict[str, Value] = {}
    for text in texts:
        name, value = pair(text, "--set", "nodes=4", error=ConfigurationError)
        if name not in problem.space:
            raise ConfigurationError(
                f"--set {text!r}: there is no parameter {name!r}", hint=f"known: {', '.join(problem.space.names)}"
            )
        given[name] = problem.space[name].coerce(value)
    implied = problem.space.implied(given)
    best = best_known(spec, store)
    if best is None and not given and not problem.space.required <= implied.keys():
        raise ConfigurationError(
            f"nothing is known of {spec.name} yet", hint=f"tradewind tune {spec.file} first, or give values with --set"
        )
    merged: Mapping[str, Value] = {**(best.configuration if best else {}), **implied, **given}
    active: dict[str, Value] = {}
    for parameter in problem.space.parameters:  # a condition names only parameters above its own
        name, when = parameter.name, parameter.when
        if name in given or (name in merged and (when is None or problem.space.holds(when, active))):
            active[name] = merged[name]
    return problem.space.check(active)


def best_known(spec: JobSpec, store: Store) -> Trial | None:
    """The best trial of the newest study of the same problem that has one, else the best of its single runs."""
    from tradewind.cli.common import single_runs
    from tradewind.problem.ranking import ConfigurationRanking

    for study in store.find_studies(spec.name, spec.problem_key):
        best = store.summaries([study.id])[0].best
        if best is not None:
            return best
    # Runs at the same time are in studies of their own, none of which stands for the others.
    singles = [trial for study in store.find_studies(*single_runs(spec)) for trial in store.trials(study.id)]
    numbered = [replace(trial, number=number) for number, trial in enumerate(singles)]
    best_run = ConfigurationRanking.of_trials(numbered, spec.objective, spec.constraints).best_run
    return None if best_run is None else singles[best_run.number]


def run_once(
    spec: JobSpec, problem: Problem, store: Store, configuration: Configuration
) -> tuple[StudyRow, Trial, list[Run]]:
    """Run one configuration through the whole engine: stored, limited, charged and read as any trial."""
    from tradewind.cli.common import single_runs
    from tradewind.cli.signals import GracefulInterrupt
    from tradewind.engine.proposals import FixedSearcher
    from tradewind.engine.search_builder import build_search, new_study
    from tradewind.errors import BudgetError, InterruptedSearch, StudyBusyError
    from tradewind.utils.paths import data_folder

    name, key = single_runs(spec)
    searcher = FixedSearcher(problem, configuration)
    found = [s for s in store.find_studies(name, key) if s.state != "interrupted"]
    while True:
        # Several commands may run the same job at once: each needs a study that nobody holds.
        study = found.pop(0) if found else new_study(spec, name=name, suffix="/runs")
        mine = replace(problem, budget=_with_earlier_runs(problem.budget, store, study))
        # Earlier runs are no reason not to run once more.
        search = build_search(spec, study, store, data_folder(), problem=mine, searcher=searcher, rules=())
        study = search.study
        number = len(store.trials(study.id))
        try:
            with GracefulInterrupt() as stop:
                ended = search.run(lambda: not stop.wanted)
            break
        except StudyBusyError:
            continue
    if ended.interrupted:
        raise InterruptedSearch("interrupted", hint="the run was cancelled and paid")
    trials = [t for t in store.trials(study.id, since=number) if t.configuration == configuration]
    if not trials:
        raise BudgetError(ended.reason)
    return study, trials[-1], store.runs(study.id, trial=trials[-1].number)


def _with_earlier_runs(budget: Budget, store: Store, study: StudyRow) -> Budget:
    """The budget of one run, as a budget of all runs of its study."""
    if budget.dollars is None:
        return budget
    if not study.id:
        return budget
    known = store.summaries([study.id])[0]
    return replace(budget, dollars=budget.dollars + known.spent + known.reserved)


def _finish(spec: JobSpec, study: StudyRow, trial: Trial, runs: list[Run], *, as_json: bool) -> None:
    from tradewind.cli.common import emit_json
    from tradewind.errors import DeployError, NothingFeasibleError
    from tradewind.problem import OWN_METRICS, UNINTERRUPTED_RUNTIME, TrialState
    from tradewind.store.codec import run_to_json, trial_to_json
    from tradewind.utils.units import format_bill, format_duration

    seen = trial.observation
    if as_json:
        emit_json(
            {
                "objective": seen.objective if seen and trial.state == TrialState.SUCCEEDED else None,
                "feasible": bool(seen and seen.feasible),
                "state": trial.state.value,
                "study": study.name,
                "record": {**trial_to_json(trial), "runs": [run_to_json(one) for one in runs]},
            }
        )
    elif seen is not None:
        typer.echo(
            f"{trial.state.value}: {format_duration(seen.figures.get(UNINTERRUPTED_RUNTIME, seen.runtime))}, "
            f"{format_bill(trial.spent, 'this run')}" + (f"; {seen.reason}" if seen.reason else "")
        )
        if seen.expected:
            expected = f"{format_duration(seen.runtime)}, {format_bill(seen.cost)}"
            typer.echo(f"  expected with interruptions: {expected}")
        for name, value in seen.metrics.items():
            if name not in OWN_METRICS:
                typer.echo(f"  {name} = {value:g}")
    reason = seen.reason if seen else "no reason known"
    logs = f"tradewind logs {study.id} {trial.number}"
    if trial.state == TrialState.LOST:
        if runs and (problem := prerequisite_error(runs[-1], reason)):
            raise problem
        raise DeployError(f"the run was lost: {reason}", hint=logs)
    if trial.state != TrialState.SUCCEEDED:
        what = "was cut short" if trial.state == TrialState.ABORTED else trial.state.value
        raise run_error(trial, runs, f"{spec.name} {what}: {reason}", logs)
    if seen is not None and not seen.feasible:
        raise NothingFeasibleError(f"{spec.name} ran, but broke a constraint: {reason}")
