"""Learns for which processor architectures the program of a search is not made; nothing more is run on those."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tradewind.problem import Fault, Observation, Run, RunState, Trial, TrialState

_MOST_IN_A_ROW = 1000
"""A searcher that proposes so many in a row for machines of such an architecture is not asked again."""


class ArchitectureFailures:
    """Architectures on which a run has failed because the program, or its image, is for another one.

    Args:
        offered: Architectures of the offers; empty where one run says nothing of others.

    Attributes:
        trials: Numbers of the trials that failed so, or were not run for it: they say nothing of the program.
        not_run: How many of them were not run.
    """

    def __init__(self, offered: Collection[str]) -> None:
        self._offered = frozenset(offered)
        self._failed: dict[str, str] = {}
        self._works: set[str] = set()
        self._in_a_row = 0
        self.trials: set[int] = set()
        self.not_run = 0

    def note(self, run: Run, trial: Trial) -> None:
        """Take in the end of a run."""
        architecture = trial.offer.arch
        if not architecture or architecture not in self._offered:
            return
        if run.state is RunState.DONE:
            # Some machines of an offer may be others than it says.
            self._works.add(architecture)
            self._failed.pop(architecture, None)
        elif run.fault is Fault.ARCHITECTURE and architecture not in self._works:
            self.trials.add(trial.number)
            self._failed.setdefault(architecture, run.reason)

    def take_up(self, trial: Trial) -> None:
        """Take over a trial of an earlier session that has ended."""
        if trial.state is TrialState.FAILED and not trial.attempts and trial.offer.arch in self._failed:
            self.trials.add(trial.number)
            self.not_run += 1

    def refused(self, trial: Trial, now: float) -> Trial | None:
        """The trial as it ends without a run, where its machines are of an architecture that failed; else None."""
        why = self._failed.get(trial.offer.arch)
        if why is None:
            self._in_a_row = 0
            return None
        self._in_a_row += 1
        if not trial.attempts:
            self.trials.add(trial.number)
            self.not_run += 1
        seen = Observation(None, 0.0, 0.0, feasible=False, reason=f"not run on {trial.offer.arch}: {why}")
        return replace(trial, state=TrialState.FAILED, observation=seen, ended=now)

    def why_over(self) -> str:
        """The reason why the search must end, or an empty text."""
        if self._failed and self._offered <= self._failed.keys():
            one = next(iter(self._failed.values()))
            return f"no offer has machines that the program runs on ({', '.join(sorted(self._failed))}): {one}"
        if self._in_a_row >= _MOST_IN_A_ROW:
            names = ", ".join(sorted(self._failed))
            return f"the searcher has proposed {self._in_a_row} in a row on {names}, which the program does not run on"
        return ""
