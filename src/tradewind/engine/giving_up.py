"""Makes the stopper of a specification, and who listens to the runs for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tradewind import plugins
from tradewind.engine.report_listener import ReportListener, why_reports_unavailable
from tradewind.engine.state_machine.early_stopping import judged_metric
from tradewind.errors import SpecError
from tradewind.problem import Problem

if TYPE_CHECKING:
    from tradewind.deployer.runner.base import Runner
    from tradewind.problem.job_spec.spec import JobSpec
    from tradewind.stopper.base import Stopper


def build_stopper(spec: JobSpec, problem: Problem) -> Stopper | None:
    """The stopper of a specification, or None.

    Args:
        spec: The specification.
        problem: Its problem.

    Raises:
        SpecError: Nothing says what it is to judge by, or the runner cannot tell what its runs report.
    """
    if spec.early_stop is None:
        return None
    stopper: Stopper = plugins.create("stopper", spec.early_stop.name, spec.early_stop.settings)
    try:
        judged_metric(problem, stopper.settings)
    except SpecError as error:
        raise spec.error(("early_stop",), error.message, error.hint) from None
    runner = cast("type[Runner]", plugins.load("runner", spec.runner.name))
    why, hint = why_reports_unavailable(runner, spec.runner.name, stopper.settings.file)
    if why:
        raise spec.error(("early_stop",), f"early_stop: {why}", hint)
    return stopper


def build_listener(stopper: Stopper | None, problem: Problem, runner: Runner) -> ReportListener | None:
    """Who reads what the runs report, where a stopper wants to know.

    Args:
        stopper: The stopper, or None.
        problem: The problem.
        runner: Who runs them.
    """
    return (
        None
        if stopper is None
        else ReportListener(runner, stopper.settings, judged_metric(problem, stopper.settings)[0])
    )
