"""Gives up running trials for what they report: pure bookkeeping around a stopper."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence

from tradewind.engine.state_machine.events import RunReported
from tradewind.errors import SpecError
from tradewind.problem import COST, RUNTIME, STOPPED_EARLY, Direction, Problem, Threshold, Trial, TrialState
from tradewind.stopper.base import LearningCurve, Stopper, StopperSettings

_STEP = "step"


def judged_metric(problem: Problem, settings: StopperSettings) -> tuple[str, Direction]:
    """The metric that a stopper judges by, and whether it is to be small or large.

    Args:
        problem: The problem.
        settings: The stopper's settings.

    Raises:
        SpecError: They do not say, and neither does the problem.
    """
    metric = settings.metric or problem.objective.metric
    if metric in (COST, RUNTIME):
        raise SpecError(
            f"early_stop: {metric} is no metric that a run reports while it runs",
            hint="name one: early_stop: {use: median, metric: loss, goal: minimise}",
        )
    if settings.goal is not None:
        return metric, settings.goal
    if metric == problem.objective.metric:
        return metric, problem.objective.goal
    bound = _bound(problem, metric)
    if bound is not None and (bound.at_least is None) != (bound.at_most is None):
        return metric, "maximise" if bound.at_most is None else "minimise"
    raise SpecError(
        f"early_stop: nothing says whether {metric} is to be small or large",
        hint="add goal: minimise or goal: maximise to early_stop",
    )


def _bound(problem: Problem, metric: str) -> Threshold | None:
    return next((one for one in problem.constraints.thresholds if one.metric == metric), None)


def estimated_savings(finished: Sequence[float], stopped: Sequence[tuple[float, float]]) -> float:
    """About how many USD were saved: as if what was stopped had run as long as the usual trial that was not.

    Args:
        finished: Run times of the trials that ran to their end, in seconds.
        stopped: Run time in seconds, and USD an hour, of each that was stopped early.
    """
    if not finished:
        return 0.0
    usual = statistics.median(finished)
    return sum(max(0.0, usual - seconds) * hourly for seconds, hourly in stopped) / 3600.0


class EarlyStopping:
    """The learning curves of a search, and what its stopper makes of them.

    Args:
        problem: The problem.
        stopper: The user's policy, or None: nothing is stopped.

    Attributes:
        finished: Run times of the trials that ran to their end, in seconds.
        stopped: Run time in seconds, and USD an hour, of each that was stopped early.
    """

    def __init__(self, problem: Problem, stopper: Stopper | None) -> None:
        self._stopper = stopper
        self._curves: dict[int, LearningCurve] = {}
        self._adopted: set[int] = set()
        self.finished: list[float] = []
        self.stopped: list[tuple[float, float]] = []
        if stopper is None:
            return
        self._settings = stopper.settings
        self.metric, goal = judged_metric(problem, stopper.settings)
        self._maximise = goal == "maximise"
        own = self.metric == problem.objective.metric
        self._kept = None if own else _bound(problem, self.metric)

    def open(self, trials: Sequence[Trial], reports: Mapping[int, Collection[tuple[float, float]]]) -> None:
        """Take over what the trials of earlier sessions reported, by number."""
        for trial in trials:
            if trial.state == TrialState.RUNNING:
                self._adopted.add(trial.number)
            if self._stopper is not None and trial.state.ended:
                if trial.number in reports:
                    self._curve(trial).extend(reports[trial.number])
                self.close(trial)

    def take(self, event: RunReported, trial: Trial, best: Trial | None) -> str:
        """Add what a run has reported.

        Args:
            event: What it reported.
            trial: The trial of the run.
            best: The best trial so far, or None.

        Returns:
            Why its run is to be stopped now, or an empty text.
        """
        if self._stopper is None:
            return ""
        if event.final:
            self._curves.pop(trial.number, None)  # it reports from the beginning again
        curve = self._curve(trial)
        if not curve.extend(event.points):
            return ""
        if trial.number in self._adopted:
            # It reports from the beginning again: only where the run is now has not been judged yet.
            self._adopted.discard(trial.number)
            curve.fresh = len(curve.steps) - 1
        if event.final or self._spared(curve, best):
            return ""
        others = [
            other
            for number, other in self._curves.items()
            if number != trial.number and other.steps and other.fidelity == curve.fidelity
        ]
        why = self._stopper.hopeless(curve, others)
        return f"{STOPPED_EARLY}{self.metric}: {why}" if why else ""

    def _curve(self, trial: Trial) -> LearningCurve:
        made = LearningCurve(maximise=self._maximise, fidelity=trial.proposal.fidelity)
        return self._curves.setdefault(trial.number, made)

    def _spared(self, curve: LearningCurve, best: Trial | None) -> bool:
        """True where no policy is asked."""
        step, last = curve.step, self._settings.last_step
        if step < self._settings.first_step or (last is not None and step >= last):
            return True
        least = curve.best(step)
        if self._kept is not None and self._kept.holds(curve.value(least)):
            return True
        leader = self._curves.get(best.number) if best is not None else None
        return leader is not None and leader.best(step) >= least

    def close(self, trial: Trial) -> None:
        """A run has ended: the curve of a trial that failed, or will run again, says nothing to the others."""
        self._adopted.discard(trial.number)
        seen = trial.observation
        if seen is not None and trial.stopped_early:
            self.stopped.append((seen.runtime, trial.offer.hourly))
        elif seen is not None and trial.state == TrialState.SUCCEEDED and trial.proposal.fidelity >= 1.0:
            self.finished.append(seen.runtime)
        curve = self._curves.get(trial.number)
        if curve is None:
            return
        if trial.state in (TrialState.SUCCEEDED, TrialState.ABORTED):
            curve.over, curve.finished = True, trial.state == TrialState.SUCCEEDED
        else:
            del self._curves[trial.number]

    def reached(self, trial: Trial) -> dict[str, float]:
        """The last value that a trial reported, and its step; empty if it reported nothing."""
        curve = self._curves.get(trial.number)
        if curve is None or not curve.steps:
            return {}
        last = {self.metric: curve.value(curve.losses[-1]), _STEP: curve.step}
        return {name: value for name, value in last.items() if math.isfinite(value)}
