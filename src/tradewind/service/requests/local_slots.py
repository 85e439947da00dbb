"""Slots on this machine for the runs of several requests: each gets the CPUs that it pays for, and waits until then."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tradewind.deployer.runner.base import ListsNodes, Runner
from tradewind.problem import Run, Trial
from tradewind.service.requests.offered_places import OfferedPlaces
from tradewind.tenancy.resources import demand_of

_LONGEST_DELAY = 1.0
"""Seconds after which others may have the slot of a run that has ended, though its search has yet to ask for more."""


class LocalSlots:
    """Runs on this machine: tenants get their shares of its CPUs and its memory, whatever the sizes of their runs.

    Args:
        weights: The weights of tenants, as they are now.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = weights
        self._places: OfferedPlaces | None = None
        self._lock = threading.Lock()

    def of(self, runner: Runner) -> OfferedPlaces:
        """The places of the machine of a runner, which is this one."""
        with self._lock:
            if self._places is None:
                assert isinstance(runner, ListsNodes)
                (has,) = runner.nodes().values()
                self._places = OfferedPlaces(has)
            return self._places


class LocalSlotPermits:
    """Launch permits of a request: a local slot for each run; see `tradewind.engine.search.LaunchGate`.

    Args:
        local_slots: The slots of this machine.
        number: The request.
        tenant: Whose it is.
    """

    def __init__(self, local_slots: LocalSlots, number: int, tenant: str) -> None:
        self._local_slots, self._request, self._tenant = local_slots, str(number), tenant
        self._places: OfferedPlaces | None = None
        self._waiting: dict[str, int] = {}  # name of the slot -> the trial
        self._running: dict[str, str] = {}  # run -> name of its slot
        # Told at one moment: that a run is gone and what its search wants next belong together, as in `MessageBatcher`.
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._wanted: list[tuple[str, str, str, Mapping[str, float]]] = []
        self._over: list[tuple[str, float | None]] = []

    def use(self, runner: Runner) -> None:
        """Set the runner, once it is known."""
        self._places = self._local_slots.of(runner)

    @property
    def waits(self) -> bool:
        """True while a run waits for room."""
        return bool(self._waiting)

    def granted(self) -> list[int]:
        """Return the trials that have a slot now."""
        self.flush()
        if not self._waiting:
            return []
        given = self._its_places.given(self._waiting)
        return [self._waiting.pop(name) for name in list(self._waiting) if name in given]

    def want(self, trial: Trial) -> None:
        """Queue a trial that would run."""
        name = self._name(trial.number)
        self._waiting[name] = trial.number
        with self._lock:
            self._wanted.append((name, self._request, self._tenant, demand_of(trial.offer)))

    def flush(self) -> None:
        """Tell what has ended and what is wanted since the last time."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._wanted or self._over:
                self._its_places.ask(self._wanted, self._local_slots.weights, self._over)
                self._wanted, self._over = [], []

    def unwant(self, number: int) -> None:
        """Remove a trial that does not want to run any more."""
        self.flush()
        self._waiting.pop(self._name(number), None)
        self._its_places.give_up(self._name(number))

    def launched(self, trial: Trial, run: Run, *, again: bool) -> None:
        """Register a run that was started, or one of an earlier process that was found again: that has its slot."""
        name = self._running[run.run_id] = self._name(trial.number)
        if again:
            weight = self._local_slots.weights.get(self._tenant, 1.0)
            self._its_places.adopt(name, self._request, self._tenant, demand_of(trial.offer), weight)

    def ended(self, run_id: str) -> None:
        """Free the slot of a run that is gone."""
        if (name := self._running.pop(run_id, None)) is None:
            return
        with self._lock:
            self._over.append((name, None))
            if self._timer is None:  # whose searcher computes for longer keeps no slot empty for itself
                self._timer = threading.Timer(_LONGEST_DELAY, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def told(self, trial: Trial) -> None:
        """Count the time of its program, and not that for which it had its slot and waited for other programs."""
        if trial.observation is not None:
            with self._lock:
                self._over.append((self._request, trial.observation.runtime))

    def close(self) -> None:
        """Free all slots: the request is over here."""
        if self._places is not None:
            self.flush()
            self._places.forget(self._request)
        self._running.clear()
        self._waiting.clear()

    @property
    def _its_places(self) -> OfferedPlaces:
        assert self._places is not None
        return self._places

    def _name(self, trial: int) -> str:
        return f"{self._request}/{trial}"
