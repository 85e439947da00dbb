"""The history of a search: its trials, the best of them, and what was tried before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tradewind.engine.state_machine.events import PricedProposal
from tradewind.problem import Constraints, Objective, Observation, Offer, Trial, TrialState
from tradewind.problem.ranking import ConfigurationRanking, IncrementalRanking, MeasuredRun


class TrialHistory:
    """Trials by number, and what follows from those that have ended.

    Args:
        objective: What is wanted; it decides which trial is the best.
        constraints: What is to hold; it matters for the best where runs were repeated.

    Attributes:
        trials: All trials by number.
        ended: Those that inform, in the order in which they ended.
        last: The trial that ended last, or None.
        counts: Ended trials by state.
    """

    def __init__(self, objective: Objective, constraints: Constraints | None = None) -> None:
        self._objective, self._constraints = objective, constraints
        self._repeated = False
        self._growing = IncrementalRanking(objective, constraints)
        self._least: Trial | None = None
        self._usual: Trial | None = None  # the best where configurations were run again
        self._stood = False  # `_usual` is up to date
        self.trials: dict[int, Trial] = {}
        self.ended: list[Trial] = []
        self.last: Trial | None = None
        self.counts: dict[str, int] = {}
        self._by_key: dict[str, Trial] = {}
        self._open: set[int] = set()
        self._next = 0

    @property
    def next_number(self) -> int:
        """The number of the next trial."""
        return self._next

    @property
    def pending(self) -> list[Trial]:
        """Trials that have not ended, by number."""
        return [self.trials[n] for n in sorted(self._open)]

    @property
    def best(self) -> Trial | None:
        """The best feasible trial on the whole input, or None.

        Of equals the one with the shortest run time, then the lowest number. Where a configuration was run several
        times, see `ConfigurationRanking`.
        """
        if not self._repeated:
            return self._least
        if not self._stood:  # reckoned when it is wanted: a search of thousands of trials that is resumed wants it once
            run = ConfigurationRanking.of(self._growing).best_run
            self._usual, self._stood = None if run is None else self.trials[run.number], True
        return self._usual

    @property
    def best_value(self) -> float | None:
        """The objective of the best trial, or None."""
        return self.best.observation.objective if self.best and self.best.observation else None

    def known(self, key: str) -> bool:
        """True when a trial of that key has ended and taught something."""
        return key in self._by_key

    def of_key(self, key: str) -> Trial | None:
        """The trial of that key that is on its way or has taught something, or None."""
        return next((trial for trial in self.pending if trial.key == key), self._by_key.get(key))

    def put(self, trial: Trial) -> None:
        """Insert or replace a trial."""
        self.trials[trial.number] = trial
        self._next = max(self._next, trial.number + 1)
        if trial.state.ended:
            self._open.discard(trial.number)
        else:
            self._open.add(trial.number)

    def drop(self, trial: Trial) -> None:
        """Forget a trial that was never stored."""
        self.trials.pop(trial.number, None)
        self._open.discard(trial.number)

    def end(self, trial: Trial) -> None:
        """Take a trial that has ended."""
        self.put(trial)
        self.last = trial
        self.counts[trial.state.value] = self.counts.get(trial.state.value, 0) + 1
        if not trial.state.informs:
            return
        self.ended.append(trial)
        self._repeated = self._repeated or (trial.key in self._by_key and trial.proposal.fidelity >= 1.0)
        self._by_key[trial.key] = trial
        if (measured := MeasuredRun.of(trial, self._objective, self._constraints)) is not None:
            self._growing.add(measured)
            self._stood = False
        seen = trial.observation
        if trial.proposal.fidelity < 1.0 or seen is None or not seen.feasible or seen.objective is None:
            return
        if self._least is None or self._beats(trial, self._least):
            self._least = trial

    def _beats(self, trial: Trial, other: Trial) -> bool:
        """True for the better objective, and of equals for the shorter run time, then the lower number."""
        seen, known = trial.observation, other.observation
        assert seen is not None and seen.objective is not None and known is not None and known.objective is not None
        if seen.objective != known.objective:
            return self._objective.better(seen.objective, known.objective)
        return (seen.runtime, trial.number) < (known.runtime, other.number)


_REPEATS = 20
"""A searcher that proposes so many finished trials in a row is stopped: it will not get further."""

_NO_OFFER = Offer("", "", 0, 0, 0)


def new_trial(priced: PricedProposal, history: TrialHistory, now: float) -> Trial:
    """Make a pending trial of a proposal, and put it into the history.

    Args:
        priced: The proposal with its offer.
        history: The trials so far.
        now: The runner's clock, in seconds.
    """
    trial = Trial(
        number=history.next_number,
        proposal=priced.proposal,
        offer=priced.offer or _NO_OFFER,
        state=TrialState.PENDING,
        key=priced.key,
        created=now,
    )
    history.put(trial)
    return trial


class ProposalIntake:
    """Makes trials of proposals, and leaves out what was tried before.

    Attributes:
        stuck: The searcher has proposed only that, many times in a row.
    """

    def __init__(self) -> None:
        self.stuck = False
        self._repeats = 0

    def take(self, proposals: Sequence[PricedProposal], history: TrialHistory, now: float) -> list[Trial]:
        """The new trials, which are in the history then: pending, or failed where nobody sells what they need.

        Args:
            proposals: What is proposed.
            history: The trials so far.
            now: The runner's clock, in seconds.
        """
        keys = {trial.key for trial in history.pending}
        found = []
        for priced in proposals:
            if not priced.proposal.repeat and (priced.key in keys or history.known(priced.key)):
                self._repeats += 1
                self.stuck = self.stuck or self._repeats >= _REPEATS
                continue
            self._repeats = 0
            keys.add(priced.key)
            trial = new_trial(priced, history, now)
            if priced.offer is None:
                seen = Observation(None, 0.0, 0.0, feasible=False, reason=priced.reason)
                trial = replace(trial, state=TrialState.FAILED, observation=seen, ended=now)
            found.append(trial)
        return found
