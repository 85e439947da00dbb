"""Writes the progress of a request into its row, and its events."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.engine.state_machine.snapshot import RunningTrial, SearchSnapshot
from tradewind.problem import Trial
from tradewind.service.requests.state import (
    RequestOutcome,
    StageEntry,
    StageTracker,
    budget_share,
    describe_trial,
    trial_facts,
)
from tradewind.store.base import StudyRow
from tradewind.store.service.claims import Claim, ClaimStore
from tradewind.store.service.request_values import NewRequestEvent, RequestIntent
from tradewind.utils.units import json_safe

_EVERY = 2.0
"""Seconds between two writes where nothing but figures has changed."""

_MOST_TROUBLES = 3
"""Runs of a search whose trouble is reported, at most."""


class RequestProgressWriter:
    """Writes the progress of a request that this process carries out; all calls are of one thread.

    Args:
        claim: The request.
        claims: The table of claimed requests.

    Attributes:
        plan: What was decided about it so far.
        study_id: Its study, once it has one.
        simulated: True where nobody pays its runs, so that they cost nothing.
    """

    def __init__(self, claim: Claim, claims: ClaimStore) -> None:
        row = claim.row
        self.plan = dict(row.plan)
        self.study_id = row.study_id
        self.simulated = False
        self._claim, self._claims = claim, claims
        self._search = row.kind == "search"
        runs = [str(row.progress["run"])] if row.progress.get("run") else []
        self._course = StageTracker(row.state, runs)
        self._state = row.state
        self._progress = dict(row.progress)
        self._stored: dict[str, Any] = {"progress": dict(row.progress), "cost": row.cost}
        self._cost = row.cost
        self._remarks: list[NewRequestEvent] = []
        self._reported = int(row.progress.get("trials", 0))
        self._known: set[int] | None = None
        self._floor = 0
        self._written = 0.0
        self._started = row.started

    def name_study(self, study: StudyRow) -> StudyRow:
        """Store the study of the request, with what was decided."""
        self._started = self._started or time.time()
        stored = self._claims.name_study(self._claim, study, {"plan": self.plan, "started": self._started})
        self.study_id = stored.id
        return stored

    def begins(self) -> None:
        """Record that the search has its study: whatever it waited for is over."""
        self._progress.pop("waiting", None)
        again = self.plan.pop("again", None)
        if again or self._started is None:  # once more, its time begins with the attempt
            self._started = self._started or time.time()
            fields = {"plan": self.plan, "started": self._started}
            self._claims.change(self._claim.row.id, self._claim.token, fields)
        if self._search and self._state == "pending":
            self._state = "executing"
            self._remarks.append(NewRequestEvent("executing", "the search begins"))
        self.flush()

    def waits(self, why: str) -> None:
        """Record why the request cannot go on now."""
        if self._progress.get("waiting") != why:
            self._progress["waiting"] = why
            self.flush()

    def passed(self, passed: StageEntry) -> None:
        """Record that a run has entered a stage; it is written with the next snapshot, which follows at once."""
        if self._search:
            return
        found = self._course.take(passed)
        self._remarks += found
        if found:
            self._state = self._course.state
            self._progress["run"] = passed.run_id
            self._progress.pop("waiting", None)

    def snapshot(self, snapshot: SearchSnapshot, trials: Mapping[int, Trial]) -> None:
        """Take in a snapshot of the search, and write it where something has changed.

        Args:
            snapshot: The search at this moment.
            trials: All its trials, by number.
        """
        self._cost = 0.0 if self.simulated else snapshot.spent
        self._record_trouble(snapshot.running)
        if self._search:
            self._record_trials(trials, sum(snapshot.counts.values()), snapshot.objective.metric)
            self._progress_of_search(snapshot)
        elif snapshot.running:
            running = snapshot.running[-1]
            self._progress |= {
                "stage": running.stage,
                "seconds": round(running.runtime, 3),
                "cost": running.cost,
                "hourly": running.trial.offer.hourly,
                "at": time.time(),
                "offer": running.trial.offer.key,
                "attempt": running.trial.attempts,
                "hosts": [{"id": machine.id, "ip": machine.address} for machine in running.machines]
                or self._progress.get("hosts", []),
            }
        if self._remarks or time.monotonic() - self._written > _EVERY:
            self.flush()

    def _record_trouble(self, running: Sequence[RunningTrial]) -> None:
        """Record what keeps runs from going on, or from being gone: their machines may cost money meanwhile."""
        found = [(one.trial.number, " ".join(one.trouble.split())) for one in running if one.trouble]
        words = [f"trial {number}: {trouble}" if self._search else trouble for number, trouble in found]
        if words:
            more = f"; and {len(words) - _MOST_TROUBLES} more" if len(words) > _MOST_TROUBLES else ""
            self._progress["trouble"] = "; ".join(words[:_MOST_TROUBLES]) + more
        else:
            self._progress.pop("trouble", None)

    def _record_trials(self, trials: Mapping[int, Trial], count: int, metric: str) -> None:
        """Record the trials that have ended since the last time."""
        if self._known is None:  # as many as an earlier process reported, in the order in which they ended
            ended = sorted((each for each in trials.values() if each.state.ended), key=lambda each: each.ended or 0.0)
            self._known = {each.number for each in ended[: self._reported]}
        if count == len(self._known):
            return
        for number in range(self._floor, max(trials, default=-1) + 1):
            trial = trials.get(number)
            if trial is not None and trial.state.ended and number not in self._known:
                self._known.add(number)
                self._remarks.append(NewRequestEvent(self._state, describe_trial(trial, metric), {"trial": number}))
        while self._floor in self._known:
            self._floor += 1

    def _progress_of_search(self, snapshot: SearchSnapshot) -> None:
        trials = sum(snapshot.counts.values())
        budget = {
            "dollars": snapshot.budget.dollars,
            "hours": snapshot.budget.hours,
            "trials": snapshot.budget.trials,
        }
        if snapshot.running:
            self._progress.pop("waiting", None)
        self._progress |= {
            "trials": trials,
            "states": dict(snapshot.counts),
            "best": trial_facts(snapshot.best),
            "metric": snapshot.objective.metric,
            "goal": snapshot.objective.goal,
            "spent": snapshot.spent,
            "budget": {name: most for name, most in budget.items() if most is not None},
            "share": budget_share(snapshot.spent, budget, trials, snapshot.elapsed),
            "running": [{"trial": one.trial.number, "stage": one.stage} for one in snapshot.running],
            "message": snapshot.message,
        }

    def flush(self, *, leave: bool = False) -> None:
        """Write all changes.

        Args:
            leave: Let go of the request as it is: the next process goes on with it.

        Raises:
            StudyBusyError: Another process has taken the request over.
        """
        fields: dict[str, Any] = {"progress": json_safe(self._progress), "cost": self._cost, "state": self._state}
        if fields == self._stored and not self._remarks and not leave:
            return
        remarks, self._remarks = self._remarks, []
        row, token = self._claim.row, self._claim.token
        self._claims.change(row.id, token, fields, remarks, lasting=leave, hold="leave" if leave else "keep")
        self._stored, self._written = fields, time.monotonic()

    def requeue(self, why: str) -> None:
        """Put the request back: it waits for its turn again."""
        self._progress.pop("waiting", None)
        fields = {"state": "pending", "progress": json_safe(self._progress), "cost": self._cost, "plan": self.plan}
        remarks = [*self._remarks, NewRequestEvent("pending", why)]
        self._claims.change(self._claim.row.id, self._claim.token, fields, remarks, hold="release")

    def finish(self, end: RequestOutcome, cost: float, *, trial: Trial | None = None) -> RequestIntent:
        """Write the end of the request, and let go of it.

        Args:
            end: The outcome.
            cost: USD, total.
            trial: The trial of its run, where it is one.

        Returns:
            What its owner wants of it at this moment.
        """
        self._progress.pop("waiting", None)
        if trial is not None:
            metrics = dict(trial.observation.metrics) if trial.observation is not None else {}
            self._progress |= {"stage": end.state, "result": {**(trial_facts(trial) or {}), "metrics": metrics}}
        fields = {
            "state": end.state,
            "problem": end.problem,
            "hint": end.hint,
            "cost": cost,
            "reserved": 0.0,
            "ended": time.time(),
            "progress": json_safe(self._progress),
            "plan": {key: value for key, value in self.plan.items() if key != "again"},
        }
        words = end.problem or end.hint or "it has ended well"
        remarks = [*self._remarks, NewRequestEvent(end.state, words, {"cost": cost})]
        return self._claims.change(self._claim.row.id, self._claim.token, fields, remarks, hold="release")
