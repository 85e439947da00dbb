"""Runs that HTCondor has no room for: they wait here, in the order of their submission, and are submitted later.

A scheduler limits how many jobs a user may have in its queue (``MAX_JOBS_PER_OWNER``), and how many there may be in all
(``MAX_JOBS_SUBMITTED``); beyond that ``condor_submit`` fails. Such a run keeps its description in its folder, which is
how another process finds it too.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tradewind.deployer.runner.exit_reasons import fault_of
from tradewind.deployer.runner.htcondor.commands import CondorCommands, run_constraint
from tradewind.deployer.runner.htcondor.exchange_folder import ExchangeFolder
from tradewind.errors import CapacityError, DeployError, MissingProgramError, UnreachableError
from tradewind.problem import Fault, RunState, RunStatus
from tradewind.utils.units import format_duration

_log = logging.getLogger("tradewind.deployer")

_SOON = 1.0
_LATEST = 15.0
_OURS = "TradewindRun =!= undefined"
_NOT_YET = "it is not handed to HTCondor yet"


@dataclass
class CondorBacklog:
    """The runs that HTCondor has no room for.

    Args:
        condor: The programs of HTCondor.
        sent: Returns true when a run's event log shows that HTCondor has it.
        longest: Seconds after which they are given up while HTCondor has no other job of ours.
    """

    condor: CondorCommands
    sent: Callable[[ExchangeFolder], bool]
    longest: float
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waiting: dict[str, ExchangeFolder] = field(default_factory=dict)
    _words: str = ""
    _due: float = 0.0
    _pause: float = _SOON
    _alone_since: float | None = None
    _pushing: bool = False

    @property
    def any(self) -> bool:
        """True while a run waits: runs that come now have to wait behind it."""
        return bool(self._waiting)

    def put(self, run_id: str, exchange: ExchangeFolder, text: str, words: str) -> None:
        """Let a run wait that HTCondor has just refused, or that comes while others wait.

        Args:
            run_id: The run.
            exchange: The exchange folder of the run.
            text: The submit description of the run.
            words: The message with which HTCondor refused, or empty.
        """
        exchange.wait(text)
        with self._lock:
            self._waiting[run_id] = exchange
            if words:
                self._refused(words)

    def _refused(self, words: str) -> None:
        self._words = words
        self._due = time.monotonic() + self._pause
        self._pause = min(_LATEST, 2 * self._pause)

    def drop(self, run_id: str) -> None:
        """Remove a run from those that wait."""
        with self._lock:
            self._waiting.pop(run_id, None)

    def close(self) -> None:
        """Remove all runs, so that none is submitted any more."""
        with self._lock:
            self._waiting.clear()

    def hasten(self) -> None:
        """Let the next `push` try at once: a run of ours has ended, and there may be room."""
        with self._lock:
            self._pause, self._due = _SOON, min(self._due, time.monotonic())

    def status(self, run_id: str, exchange: ExchangeFolder, *, may: bool) -> RunStatus | None:
        """The status of a run that HTCondor does not have; None for one that it has, or had.

        Args:
            run_id: The run.
            exchange: The exchange folder of the run.
            may: True when this process may submit it.
        """
        end = exchange.unsent
        if end is not None:
            fault = Fault(end["fault"]) if end["fault"] else None
            return RunStatus(RunState(end["state"]), reason=end["reason"], fault=fault)
        if not exchange.waits or self.sent(exchange):
            return None
        if may:
            with self._lock:
                self._waiting.setdefault(run_id, exchange)
        return RunStatus(RunState.SUBMITTING, reason=self._words or _NOT_YET)

    def withdraw(self, run_id: str, exchange: ExchangeFolder, reason: str, seconds: float) -> bool:
        """Cancel a run that was not submitted; False where it was submitted.

        Args:
            run_id: The run.
            exchange: The exchange folder of the run.
            reason: Why it is cancelled, for its status.
            seconds: Seconds to wait for a submission that is under way.

        Raises:
            UnreachableError: A submission that is under way takes too long.
        """
        with self.condor.alone(seconds):
            if not exchange.waits or self.sent(exchange):
                return False
            exchange.give_up(RunState.CANCELLED, None, reason)
        self.drop(run_id)
        return True

    def push(self) -> None:
        """Try to submit the runs that wait, in a thread, where that may succeed now."""
        with self._lock:
            if self._pushing or not self._waiting or time.monotonic() < self._due:
                return
            self._pushing = True
        # A daemon does not keep the program from ending: what it does may be cut off at any point.
        threading.Thread(target=self._push, name="tradewind-htcondor-backlog", daemon=True).start()

    def _push(self) -> None:
        try:
            while (first := self._first()) is not None and self._hand_over(*first):
                pass
        finally:
            with self._lock:
                self._pushing = False

    def _first(self) -> tuple[str, ExchangeFolder] | None:
        with self._lock:
            return next(iter(self._waiting.items()), None)

    def _hand_over(self, run_id: str, exchange: ExchangeFolder) -> bool:
        """Submit a run; False when it is of no use to try the others."""
        try:
            with self.condor.alone() as lock:
                if exchange.waits and not self.sent(exchange):
                    self._submit(run_id, exchange, lock)
        except CapacityError as error:
            with self._lock:
                self._refused(error.message)
            self._look_around()
            return False
        except (UnreachableError, MissingProgramError) as error:
            _log.info("%s waits: %s", run_id, error)
            with self._lock:
                self._refused(self._words or str(error))
            return False
        except (DeployError, OSError) as error:
            exchange.give_up(RunState.FAILED, fault_of(error), str(error))
        with self._lock:
            self._waiting.pop(run_id, None)
            self._alone_since, self._pause = None, _SOON
        return True

    def _submit(self, run_id: str, exchange: ExchangeFolder, lock: int) -> None:
        # A process that was cut off may have submitted it, and not written it down.
        for ad in self.condor.queue(run_constraint(run_id)):
            exchange.claim(int(ad["ClusterId"]), int(ad["ProcId"]), time.time())
            return
        began = time.time()
        jobs = self.condor.submit(exchange.description, lock)
        if len(jobs) != 1:
            raise UnreachableError(f"condor_submit has made {len(jobs)} jobs of one")
        exchange.claim(*jobs[0], began)

    def _look_around(self) -> None:
        """Give up the runs that wait when HTCondor takes none, and has had no other of ours for too long."""
        with contextlib.suppress(DeployError, MissingProgramError):
            alone = not self.condor.queue(_OURS)
            now = time.monotonic()
            with self._lock:
                self._alone_since = (self._alone_since or now) if alone else None
                if self._alone_since is None or now - self._alone_since < self.longest:
                    return
                left, self._waiting, self._alone_since = self._waiting, {}, None
            reason = (
                f"HTCondor has taken no job for {format_duration(self.longest)}, though none of ours was in its queue: "
                f"{self._words} (ask for a larger limit; `full` says how long to wait)"
            )
            for exchange in left.values():
                exchange.give_up(RunState.FAILED, Fault.CAPACITY, reason)
