"""Decides that a search ends: budget used up, or a stopping rule that is met."""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.engine.state_machine.architectures import ArchitectureFailures
from tradewind.engine.state_machine.budget import Ledger
from tradewind.engine.state_machine.stopping_rules import SearchProgress, StoppingRule
from tradewind.engine.state_machine.trial_history import TrialHistory
from tradewind.problem import Problem
from tradewind.utils.units import count, format_duration, format_money


class TerminationCheck:
    """Decides whether a search is over: its time, trials or money are used up, or a stopping rule says so.

    Args:
        problem: The problem.
        rules: The stopping rules of the user.
        failures: The architectures that the program has shown not to be for; none without it.

    Attributes:
        now: The runner's clock, in seconds; it never goes back.
    """

    def __init__(
        self, problem: Problem, rules: Sequence[StoppingRule], failures: ArchitectureFailures | None = None
    ) -> None:
        self._budget, self._objective = problem.budget, problem.objective
        self._rules = rules
        self._failures = failures or ArchitectureFailures(())
        self._before = 0.0
        self._opened_at = 0.0
        self.now = 0.0

    def open(self, now: float, elapsed: float) -> None:
        """The search begins, or goes on after so many seconds of earlier sessions."""
        self._opened_at = self.now = now
        self._before = elapsed

    def advance(self, now: float, *, counts: bool) -> None:
        """Take what time it is.

        Args:
            now: Seconds on the runner's clock.
            counts: The time since the last moment is a part of the budget.
        """
        now = max(self.now, now)
        if not counts:
            self._opened_at += now - self.now
        self.now = now

    @property
    def elapsed(self) -> float:
        """Wall-clock seconds used, earlier sessions included; without those that did not count."""
        return self._before + self.now - self._opened_at

    @property
    def seconds_left(self) -> float | None:
        """Wall-clock seconds left, or None."""
        hours = self._budget.hours
        return None if hours is None else max(0.0, hours * 3600.0 - self.elapsed)

    def trials_left(self, history: TrialHistory) -> int | None:
        """Trials that may still be proposed, or None; those that were not run for their architecture do not count."""
        limit = self._budget.trials
        return None if limit is None else max(0, limit - len(history.trials) + self._failures.not_run)

    def why_over(
        self, history: TrialHistory, ledger: Ledger, *, waiting: bool, running: bool
    ) -> tuple[str, bool] | None:
        """The reason why the search is over, and True if waiting trials are dropped; None while it goes on.

        Args:
            history: The trials.
            ledger: The money.
            waiting: Some trials wait for their run.
            running: Some run.
        """
        budget = self._budget
        if self.trials_left(history) == 0 and not waiting:
            return f"the budget of {count(budget.trials or 0, 'trial')} is used up", False
        if self.seconds_left == 0:
            return f"the time budget of {format_duration((budget.hours or 0) * 3600)} is used up", True
        if ledger.free == 0 and not running:
            return f"the budget of {format_money(budget.dollars)} is used up", True
        progress = SearchProgress(self._objective, history.ended, history.best, ledger.spent, self._failures.trials)
        reason = self._failures.why_over() or next((reason for rule in self._rules if (reason := rule(progress))), None)
        return (reason, True) if reason else None

    def why_unpaid(self, history: TrialHistory, ledger: Ledger, attempts: int) -> str:
        """The reason why the money does not pay a run of a trial with so many attempts, while nothing runs."""
        if history.ended or attempts:
            return f"the {format_money(ledger.free)} left of the budget do not pay another run"
        return f"the budget of {format_money(self._budget.dollars)} does not pay a single run"
