"""Checks before a search begins: refuses a job that cannot run as written, or could cost without end."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from tradewind import plugins
from tradewind.engine.state_machine.budget import RunLimits
from tradewind.errors import BudgetError, InputError, PluginError, PrerequisiteError
from tradewind.problem import COST, RUNTIME, Configuration, Offer, Problem, Proposal, Trial, TrialState
from tradewind.problem.completion import completed
from tradewind.problem.template import render_workflow
from tradewind.utils.units import count, format_money

if TYPE_CHECKING:
    from tradewind.deployer.lifecycle.deployer import Deployer
    from tradewind.deployer.provisioner.base import Provisioner
    from tradewind.deployer.runner.base import Runner, RunsWorkflows
    from tradewind.engine.state_machine.search_policy import SearchPolicy
    from tradewind.problem.job_spec.spec import JobSpec
    from tradewind.selector.base import Selector


def check_runner(spec: JobSpec, problem: Problem) -> None:
    """Refuse to pay cloud prices for runs that would take place on this machine."""
    from tradewind.deployer.compatibility import incompatibility
    from tradewind.deployer.provisioner.base import MakesMachines
    from tradewind.deployer.runner.base import DrivesLoad, KeepsCheckpoints, NeedsImages, Simulates, ThisMachine

    runner, provisioner = plugins.load("runner", spec.runner.name), plugins.load("provisioner", spec.provisioner.name)
    if problem_with := incompatibility(cast("type[Provisioner]", provisioner), cast("type[Runner]", runner)):
        raise spec.error(
            ("deploy", "provisioner"),
            f"provisioner {spec.provisioner.name} and runner {spec.runner.name} do not go together: {problem_with}",
            "tradewind plugins --matrix shows what does",
        )
    _check_workflow_runner(spec, cast("type[Runner]", runner))
    if spec.keep is not None and not issubclass(provisioner, MakesMachines):
        raise spec.error(
            ("deploy", "keep"),
            f"provisioner {spec.provisioner.name} makes no machines that could be kept between trials",
            "leave deploy.keep out, or let a provisioner make machines: terraform, libvirt, opennebula, script",
        )
    if spec.job.load is not None and not issubclass(runner, DrivesLoad):
        raise spec.error(
            ("job", "load"), f"the {spec.runner.name} runner drives no load", "use docker, ssh, slurm or kubernetes"
        )
    if spec.checkpoint is not None and not issubclass(runner, KeepsCheckpoints | Simulates):
        raise spec.error(
            ("deploy", "checkpoint"),
            f"the {spec.runner.name} runner keeps no checkpoints",
            "use process, ssh, docker, slurm, ray, kubernetes or htcondor, or leave deploy.checkpoint out: runs then "
            "begin anew",
        )
    if spec.checkpoint is not None and spec.job.load is not None:
        raise spec.error(
            ("deploy", "checkpoint"), "a job with a load generator has no checkpoints", "leave deploy.checkpoint out"
        )
    if issubclass(runner, NeedsImages) and not (spec.job.image or "").strip():
        raise spec.error(("job",), f"the {spec.runner.name} runner needs job.image", "name a container image")
    if cast("type[Runner]", runner).shell_variables:
        _check_shell_variables(spec)
    if not issubclass(runner, ThisMachine):
        return
    selector = cast("Selector", problem.resolver)
    elsewhere = sorted({offer.provider for offer in selector.offers} - {"local"})
    if elsewhere:
        raise spec.error(
            ("deploy", "runner"),
            f"the {spec.runner.name} runner runs on this machine, it cannot make {', '.join(elsewhere)} machines",
            "ask for provider: local, or choose another runner",
        )


def _check_workflow_runner(spec: JobSpec, runner: type[Runner]) -> None:
    """Refuse a workflow for a runner of commands, and a command for one of workflows."""
    from tradewind.deployer.runner.base import RunsWorkflows

    runs = issubclass(runner, RunsWorkflows)
    if spec.job.workflow is not None and not runs:
        raise spec.error(
            ("deploy", "runner"),
            f"the {spec.runner.name} runner runs a command, and job.workflow is a workflow",
            "workflow simulates it, workflow_local runs it on this machine",
        )
    if spec.job.workflow is None and runs:
        raise spec.error(
            ("job",), f"the {spec.runner.name} runner runs a workflow, and the job has none", "job: {workflow: FILE}"
        )


_LOOKS = 1000
"""Configurations that are looked at before a search for workflows and planners that are not there."""


def _check_workflows(spec: JobSpec, problem: Problem, runner: RunsWorkflows) -> None:
    """Refuse workflows and planners of the space that are not there or wrong."""
    if problem.space.enumerable:
        found = problem.candidates
        chosen = [(found.configuration(place), found.offer(place)) for place in range(min(len(found), _LOOKS))]
    else:
        middle = completed(problem, {})
        chosen = [(middle, problem.resolver.resolve(middle))]
    seen: set[str] = set()
    for configuration, offer in chosen:
        workflow = render_workflow(spec.job, configuration, offer, spec.job.parameters.fidelity)
        key = f"{workflow} {offer.key} {offer.nodes}"
        if workflow is not None and key not in seen:
            seen.add(key)
            try:
                runner.check_workflow(workflow, offer)
            except (InputError, PluginError) as error:
                if isinstance(error, InputError) and error.file:
                    raise  # of the workflow's own file, with its line
                raise spec.error(("job", "workflow"), f"job.workflow: {error.message}", error.hint) from error


def _check_shell_variables(spec: JobSpec) -> None:
    """Refuse variables that no shell can have, for runners that set them in one."""
    from tradewind.deployer.environment import is_variable

    load = spec.job.load.env if spec.job.load is not None else {}
    for place, names in ((("env",), spec.job.env), (("secrets",), spec.job.secrets), (("load", "env"), load)):
        for name in names:
            if not is_variable(name):
                raise spec.error(
                    ("job", *place, name),
                    f"job.{'.'.join(place)}: {name!r} cannot be a variable of a shell, which the {spec.runner.name} "
                    "runner sets it in",
                    "use letters, digits and _",
                )


def check_offers(spec: JobSpec, problem: Problem, deployer: Deployer) -> None:
    """Refuse, before any money is spent, what the provisioner can never make, or the runner never run or answer."""
    from tradewind.deployer.compatibility import offer_incompatibility
    from tradewind.deployer.runner.base import AnswersFromRecords, KeepsCheckpoints, RunsWorkflows

    for room, part in (("provisioner", deployer.provisioner), ("runner", deployer.runner)):
        if isinstance(part, plugins.CallsProgram):
            try:
                part.check_program()
            except PrerequisiteError as error:
                raise spec.error(("deploy", room), error.message, error.hint) from error
    runner = deployer.runner
    refused = runner.refuses_checkpoints(spec.job.image) if isinstance(runner, KeepsCheckpoints) else ""
    if spec.checkpoint is not None and refused:
        words = f"the {spec.runner.name} runner keeps no checkpoints of this job: {refused}"
        raise spec.error(("deploy", "checkpoint"), words, "see the guide on the runner, or leave it out")
    if isinstance(deployer.runner, AnswersFromRecords):
        deployer.runner.covers(problem.space, spec.job.parameters.values)
    if isinstance(deployer.runner, RunsWorkflows):
        _check_workflows(spec, problem, deployer.runner)
    for offer in cast("Selector", problem.resolver).offers:
        if why := deployer.provisioner.refuses(offer):
            raise spec.error(
                ("deploy", "provisioner"),
                f"provisioner {spec.provisioner.name} cannot make {offer.key}: {why}",
                "take it out of the space with offers:, or choose another provisioner",
            )
        if why := offer_incompatibility(deployer.provisioner, deployer.runner, offer):
            raise spec.error(
                ("deploy", "runner"),
                f"runner {spec.runner.name} with provisioner {spec.provisioner.name} cannot run on {offer.key}: {why}",
                "see the guide on the runner, or take the offer out of the space",
            )


def check_limits(spec: JobSpec, problem: Problem) -> None:
    """Refuse a search that makes machines for money while nothing says how much of it; simulated runs cost nothing.

    Args:
        spec: The specification.
        problem: The problem.

    Raises:
        SpecError: There is no limit.
    """
    from tradewind.deployer.provisioner.base import MakesMachines
    from tradewind.deployer.runner.base import Simulates
    from tradewind.problem.job_spec.choices import NEVER

    given = spec.budget
    why = future_runs_warning(spec)
    if spec.said_future_runs is not None and not why and not problem.space.enumerable:
        why = "future_runs ends a search only once something works, and this space has no end"
    stops = (rule for rule in spec.stop if rule.name != NEVER)
    limits = (given.dollars, given.hours, given.trials, None if why else spec.said_future_runs, *stops)
    makes = issubclass(plugins.load("provisioner", spec.provisioner.name), MakesMachines)
    if not makes or issubclass(plugins.load("runner", spec.runner.name), Simulates):
        return
    if any(limit is not None for limit in limits):
        return
    if any(offer.hourly > 0 and offer.provider != "local" for offer in cast("Selector", problem.resolver).offers):
        words = f"provisioner {spec.provisioner.name} makes machines that cost money, and nothing limits the search"
        raise spec.error(
            ("budget",),
            f"{words}: {why}" if why else words,
            "set budget.dollars (--budget $10), budget.hours or budget.trials",
        )


def check_budget(problem: Problem, policy: SearchPolicy) -> None:
    """Refuse a search whose whole budget pays not even a short run on the cheapest machines.

    Args:
        problem: The problem.
        policy: How the search is carried out.

    Raises:
        BudgetError: It does not.
    """
    dollars = problem.budget.dollars
    if dollars is None:
        return
    offer = _cheapest(problem)
    trial = Trial(0, Proposal(Configuration({})), offer, TrialState.PENDING, "")
    seconds = None if problem.budget.hours is None else problem.budget.hours * 3600.0
    if RunLimits(problem, policy).reservation(trial, None, dollars, 0, seconds) is None:
        least = problem.terms.billing.cost(policy.kill_seconds, offer.hourly)
        least = max(least, problem.terms.billing.unit_cost(offer.hourly))
        beside = f" beside {problem.terms.parallel - 1} more" if problem.terms.parallel > 1 else ""
        raise BudgetError(
            f"the budget of {format_money(dollars)} does not pay a single run: on the cheapest machines, "
            f"{offer.nodes} × {offer.instance_type}, one costs at least {format_money(least)}{beside}",
            hint="raise budget.dollars, or allow cheaper instance types",
        )


def _cheapest(problem: Problem) -> Offer:
    """The cheapest offer that a configuration of the problem comes to."""
    if problem.space.enumerable:
        candidates = problem.candidates
        return candidates.offer(int(np.argmin(candidates.hourly)))
    return problem.resolver.resolve(completed(problem, {}))


def future_runs_warning(spec: JobSpec) -> str:
    """Warn of ``future_runs`` that end nothing; empty where they are not given, or do."""
    why = "" if spec.said_future_runs is None else _why_unweighed(spec)
    return f"future_runs does not end this search: {why}" if why else ""


def _why_unweighed(spec: JobSpec) -> str:
    """Say why the search does not end by what later runs save; empty where it does."""
    if spec.objective.also:
        return "it says what a saving is worth, and this search has several objectives"
    if spec.objective.grows_with_time and (spec.objective.metric == COST or spec.value is not None):
        return ""
    if spec.objective.grows_with_time:
        return "it says how often an hour is saved, and nothing says what one is worth (value: $2/h)"
    return "it says what a saving is worth, and this search does not minimise the cost"


def ending_words(spec: JobSpec, *, advice: bool = True) -> str:
    """Say when the search ends by itself, and what changes it; empty where it does not weigh further trials.

    Args:
        spec: The specification.
        advice: Name the keys of the job that change it, where the job has none of them.
    """
    runs, least = spec.future_runs, spec.least_improvement
    never = "stop: never uses the whole budget"
    found = []
    if runs is not None and not _why_unweighed(spec):
        at = "" if spec.value is None else f", at {format_money(spec.value)} for an hour of a run"
        words = f"The search stops when another trial would not pay for itself within {count(runs, 'run')}{at}"
        said = spec.said_future_runs is not None or not advice
        found.append(f"{words}." if said else f"{words} (future_runs: changes it, {never}).")
    if least:
        words = f"The search stops when another trial is not expected to improve the best by {100 * least:.3g} %"
        said = spec.said_least_improvement is not None or not advice
        more = "; value: $2/h weighs it by money" if spec.objective.metric == RUNTIME else ""
        found.append(f"{words}." if said else f"{words} (least_improvement: changes it, {never}{more}).")
    return " ".join(found)
