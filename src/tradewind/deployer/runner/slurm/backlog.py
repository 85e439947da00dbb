"""Runs that Slurm has no room for: they wait here, in the order of their submission, and are handed over later.

A cluster limits how many jobs a user, an account or a quality of service may have in its queue (``MaxSubmitJobs``), and
how many there may be in all (``MaxJobCount``). Beyond that ``sbatch`` refuses. Such a run stays noted and is not handed
over, which is how another process finds it too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tradewind.deployer.runner.exit_reasons import fault_of
from tradewind.deployer.runner.slurm.commands import surely_refused
from tradewind.deployer.runner.slurm.handle import SlurmRun
from tradewind.deployer.runner.slurm.spool import Spool
from tradewind.errors import CapacityError, TradewindError, UnreachableError
from tradewind.problem import Fault, RunState, RunStatus
from tradewind.utils.units import format_duration

_log = logging.getLogger("tradewind.deployer")

_SOON = 1.0
_LATEST = 15.0

HandOver = Callable[[str, bool], None]
"""Hands a batch to Slurm; its arguments are the name, and true when Slurm surely does not have it yet."""


@dataclass
class _WaitingBatch:
    """A batch that waits.

    Attributes:
        came: The time when it was submitted, in seconds since the epoch, which gives the order.
        refused: True when Slurm has refused it to this process: Slurm surely does not have it.
    """

    came: float
    refused: bool = False


@dataclass
class SlurmBacklog:
    """The runs that Slurm has no room for.

    Args:
        spool: The files that controllers and jobs share.
        hand_over: The function that hands a batch to Slurm.
        longest: Seconds after which they are given up when Slurm refuses them and has no other job of ours.
    """

    spool: Spool
    hand_over: HandOver
    longest: float
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waiting: dict[str, _WaitingBatch] = field(default_factory=dict)
    _ended: dict[str, dict[str, Any]] = field(default_factory=dict)
    _words: str = ""
    _due: float = 0.0
    _pause: float = _SOON
    _stamp: int = 0
    _alone_since: float | None = None
    _pushing: bool = False

    def put(self, name: str, words: str = "", *, sure: bool = True) -> None:
        """Let a batch wait that Slurm has just refused, or that comes while others wait.

        Args:
            name: The batch.
            words: The message with which Slurm refused, or empty.
            sure: True when Slurm surely does not have it.
        """
        with self._lock:
            self._waiting[name] = _WaitingBatch(time.time(), sure)
            if words:
                self._refused(words)

    @property
    def any(self) -> bool:
        """True while a batch waits: those that come now have to wait behind it."""
        return bool(self._waiting)

    def has(self, name: str) -> bool:
        """True while a batch waits here."""
        return name in self._waiting

    def drop(self, name: str) -> None:
        """Remove a batch from those that wait."""
        with self._lock:
            self._waiting.pop(name, None)
            self._ended.pop(name, None)

    def close(self) -> None:
        """Remove all batches, so that none is handed over any more."""
        with self._lock:
            self._waiting.clear()

    def _refused(self, words: str) -> None:
        self._words = words or self._words
        self._due = time.monotonic() + self._pause
        self._pause = min(_LATEST, 2 * self._pause)

    def look(self, run: SlurmRun, *, may: bool) -> RunStatus | Mapping[str, Any]:
        """The status of a run that is not handed over, or the result that is to be written as its end.

        Args:
            run: The run, alone in its batch.
            may: True when this process may hand it over.
        """
        name = run.name
        with self._lock:
            if (ended := self._ended.pop(name, None)) is not None:
                return ended
            if may and name not in self._waiting:
                # The process that wrote it down may be about to hand it over: it gets its time.
                self._due = self._due if self._waiting else time.monotonic() + _LATEST
                self._waiting[name] = _WaitingBatch(run.data.submitted or time.time())
        return RunStatus(RunState.SUBMITTING, reason=self._words or "it is not handed to Slurm yet")

    def push(self, *, alone: bool) -> None:
        """Try to hand over the batches that wait, in a thread, where that may succeed now.

        Args:
            alone: True when Slurm's queue has no job of ours.
        """
        now, stamp = time.monotonic(), self.spool.stamp()
        with self._lock:
            if not alone or not self._waiting or not self._words:
                self._alone_since = None
            elif self._alone_since is None:
                self._alone_since = now
            elif now - self._alone_since > self.longest:
                self._give_up()
            if stamp != self._stamp:
                # One of ours has ended: Slurm counts it until it has cleaned up.
                self._stamp, self._pause, self._due = stamp, _SOON, min(self._due, now)
            if self._pushing or not self._waiting or now < self._due:
                return
            self._pushing = True
        # A daemon does not keep the program from ending: what it does may be cut off at any point.
        threading.Thread(target=self._push, name="tradewind-slurm-backlog", daemon=True).start()

    def _give_up(self) -> None:
        reason = (
            f"Slurm has taken no job for {format_duration(self.longest)}, though none of ours was in its queue: "
            f"{self._words} (ask for a larger limit; `full` says how long to wait)"
        )
        for name in self._waiting:
            self._ended[name] = {"state": "refused", "fault": Fault.CAPACITY, "reason": reason, "runtime": 0.0}
        self._waiting.clear()
        self._alone_since, self._words = None, ""

    def _push(self) -> None:
        try:
            while (name := self._next()) is not None and self._hand_over(name):
                pass
        finally:
            with self._lock:
                self._pushing = False

    def _next(self) -> str | None:
        with self._lock:
            return min(self._waiting, key=lambda name: (self._waiting[name].came, name), default=None)

    def _hand_over(self, name: str) -> bool:
        """Hand over a batch; False when it is of no use to try the others."""
        with self._lock:
            sure = name in self._waiting and self._waiting[name].refused
        try:
            self.hand_over(name, sure)
        except UnreachableError as error:
            _log.info("%s waits: %s", name, error)
            with self._lock:
                if name in self._waiting:
                    self._waiting[name].refused = False  # the answer may be lost
                self._refused("")
            return False
        except CapacityError as error:
            with self._lock:
                if name in self._waiting:
                    self._waiting[name].refused = surely_refused(error)
                self._refused(error.message)
            return False
        except TradewindError as error:
            with self._lock:
                self._ended[name] = _end_of(error)
                self._waiting.pop(name, None)
            return True
        with self._lock:
            self._waiting.pop(name, None)
            self._alone_since, self._pause = None, _SOON
            if not self._waiting:
                self._words = ""
        return True


def _end_of(error: TradewindError) -> dict[str, Any]:
    """The result of a run that Slurm refuses for good, although it has room."""
    return {"state": "refused", "fault": fault_of(error), "reason": str(error), "runtime": 0.0}
