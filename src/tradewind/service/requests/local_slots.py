"""Slots on this machine for the runs of several requests: each gets the CPUs that it pays for, and waits until then."""

from __future__ import annotations

import threading

from tradewind.deployer.runner.base import Runner
from tradewind.problem import Offer, Run, Trial

_Key = tuple[int, int]


class LocalSlots:
    """Runs on this machine, and a queue (first in, first out) of runs that wait for room."""

    def __init__(self) -> None:
        self._taken: dict[_Key, Offer] = {}
        self._waiting: dict[_Key, tuple[Runner, Offer]] = {}
        self._lock = threading.Lock()

    def want(self, key: _Key, runner: Runner, offer: Offer) -> None:
        """Queue a run."""
        with self._lock:
            self._waiting[key] = (runner, offer)

    def take(self, key: _Key) -> bool:
        """Let a queued run begin, if it is its turn and there is room; False otherwise."""
        with self._lock:
            if key not in self._waiting or key != next(iter(self._waiting)):
                return False
            runner, offer = self._waiting[key]
            if not runner.room(offer, list(self._taken.values())):
                return False
            del self._waiting[key]
            self._taken[key] = offer
            return True

    def keep(self, key: _Key, offer: Offer) -> None:
        """Register a run of an earlier process that was found again: it has its slot already."""
        with self._lock:
            self._waiting.pop(key, None)
            self._taken[key] = offer

    def free(self, key: _Key) -> None:
        """Remove a run that is gone, or is not wanted any more."""
        with self._lock:
            self._waiting.pop(key, None)
            self._taken.pop(key, None)


class LocalSlotPermits:
    """Launch permits of a request: a local slot for each run; see `tradewind.engine.search.LaunchGate`.

    Args:
        local_slots: The slots of this machine.
        number: The request.
    """

    def __init__(self, local_slots: LocalSlots, number: int) -> None:
        self._local_slots, self._number = local_slots, number
        self._runner: Runner | None = None
        self._waiting: list[int] = []
        self._running: dict[str, _Key] = {}

    def use(self, runner: Runner) -> None:
        """Set the runner, once it is known."""
        self._runner = runner

    @property
    def waits(self) -> bool:
        """True while a run waits for room."""
        return bool(self._waiting)

    def granted(self) -> list[int]:
        """Return the trials that have a slot now."""
        found = [number for number in self._waiting if self._local_slots.take((self._number, number))]
        self._waiting = [number for number in self._waiting if number not in found]
        return found

    def want(self, trial: Trial) -> None:
        """Queue a trial that would run."""
        assert self._runner is not None
        self._waiting.append(trial.number)
        self._local_slots.want((self._number, trial.number), self._runner, trial.offer)

    def unwant(self, number: int) -> None:
        """Remove a trial that does not want to run any more."""
        self._waiting = [other for other in self._waiting if other != number]
        self._local_slots.free((self._number, number))

    def launched(self, trial: Trial, run: Run, *, again: bool) -> None:
        """Register a run that was started, or one of an earlier process that was found again."""
        key = (self._number, trial.number)
        if again:
            self._local_slots.keep(key, trial.offer)
        self._running[run.run_id] = key

    def ended(self, run_id: str) -> None:
        """Free the slot of a run that is gone."""
        if (key := self._running.pop(run_id, None)) is not None:
            self._local_slots.free(key)

    def told(self, trial: Trial) -> None:
        """Do nothing: a finished trial that the searcher has learned of takes no slot."""

    def close(self) -> None:
        """Free all slots: the request is over here."""
        for key in (*self._running.values(), *((self._number, number) for number in self._waiting)):
            self._local_slots.free(key)
        self._running.clear()
        self._waiting.clear()
