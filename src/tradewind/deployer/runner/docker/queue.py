"""The slots that containers of this machine's engine take of it, and the runs that wait for one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.deployer.runner import resource_limits
from tradewind.deployer.runner.docker.engine import ContainerEngine
from tradewind.deployer.runner.exit_reasons import unstarted_status
from tradewind.deployer.runner.warden.files import StartRefused
from tradewind.deployer.runner.warden.slot_orders import FreedSlots, slot_order
from tradewind.deployer.runner.warden.slots import Slot, SlotRegistry
from tradewind.errors import DeployError, TradewindError
from tradewind.problem import Handle, RunRequest, RunState, RunStatus
from tradewind.utils.paths import slots_folder


def wanted_slot(request: RunRequest, engine: ContainerEngine, *, share: bool) -> dict[str, Any] | None:
    """The slot of this machine that a run wants; None where its engine is not here, or it takes no account.

    Args:
        request: The run.
        engine: The engine that runs it.
        share: False for a run that waits for no CPUs and no memory.
    """
    if not engine.here:
        return None
    load = 0 if request.load is None else request.load.cpus or 0
    wanted = slot_order(request, slots_folder(), share=share, beside=float(load))
    if wanted is not None and resource_limits.missing_gpus(wanted["device"]):
        wanted["device"] = 0.0  # the engine has GPUs that nobody shows us, or says itself that it has none
    return wanted if wanted is not None and (wanted["cpu"] or wanted["device"]) else None


@dataclass
class _WaitingRun:
    """A run that waits for a slot, or is being started since it has one."""

    wanted: dict[str, Any]
    start: Callable[[Slot], Handle]
    why: str
    slot: Slot | None = None
    thread: threading.Thread | None = None
    cancelled: bool = False


class ContainerQueue:
    """Slots of the runs of one runner. A slot is the container's once that is started, until somebody sees its end.

    Args:
        wake: Called from a thread when a run that had waited was started, or could not be.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._slots: SlotRegistry | None = None
        self._freed = FreedSlots()
        self._lock = threading.RLock()
        self._waiting: dict[str, _WaitingRun] = {}
        self._running: set[str] = set()
        self._started: dict[str, Handle] = {}
        self._unstarted: dict[str, RunStatus] = {}

    @property
    def _registry(self) -> SlotRegistry:
        if self._slots is None:
            self._slots = SlotRegistry.of_this_process()
        return self._slots

    @property
    def waits(self) -> bool:
        """True while a run waits."""
        return bool(self._waiting)

    def enter(self, run_id: str, wanted: dict[str, Any], start: Callable[[Slot], Handle]) -> Handle | None:
        """Start a run that has room; None for one that waits now.

        Args:
            run_id: The run.
            wanted: The slot that it wants, of `wanted_slot`.
            start: Starts it; it may be called in a thread, and again where the engine did not answer.

        Raises:
            TradewindError: It cannot be started.
        """
        run = _WaitingRun(wanted, start, "")
        with self._lock:
            if not self._take(run_id, run):
                self._waiting[run_id] = run
                return None
        assert run.slot is not None
        try:
            return start(run.slot)
        except TradewindError as error:
            if isinstance(error, DeployError) and error.retryable:
                self._leave(run_id)  # the engine may have started it, and did not say so
            else:
                self.end(run_id)
            raise
        except BaseException:
            self._leave(run_id)
            raise

    def _take(self, run_id: str, run: _WaitingRun) -> bool:
        try:
            run.slot = self._registry.take(run_id, run.wanted, os.sched_getaffinity(0))
        except StartRefused as answer:
            run.why = answer.words
            self._freed.ask_again(answer.again)
            return False
        except OSError as error:
            raise DeployError(f"the slots of this machine cannot be noted: {error}") from error
        self._running.add(run_id)
        return True

    def note_container(self, run_id: str, container: str) -> None:
        """Note which container a slot is of, right before the engine is asked to start it."""
        if run_id in self._running:
            self._registry.note_container(run_id, container)

    def advance(self) -> None:
        """Ask again for the runs that wait, when that may help; those that have room are started in threads."""
        with self._lock:
            if not self._waiting:
                return
            one = next(iter(self._waiting.values()))
            if not self._freed.due(Path(one.wanted["folder"])):
                return
            for run_id, run in self._waiting.items():
                if run.thread is None and not run.cancelled and self._has_room(run_id, run):
                    run.thread = threading.Thread(target=self._begin, args=(run_id, run), daemon=True)
                    run.thread.start()

    def _has_room(self, run_id: str, run: _WaitingRun) -> bool:
        try:
            return run.slot is not None or self._take(run_id, run)
        except DeployError as error:
            run.why = str(error)
            return False

    def _begin(self, run_id: str, run: _WaitingRun) -> None:
        assert run.slot is not None
        ended: RunStatus | None = None
        handle: Handle | None = None
        try:
            handle = run.start(run.slot)
        except DeployError as error:
            if error.retryable:  # it may be running: starting it again finds it
                run.why = str(error)
            else:
                ended = unstarted_status(error)
        except Exception as error:
            known = error if isinstance(error, TradewindError) else DeployError(f"{type(error).__name__}: {error}")
            ended = unstarted_status(known)
        with self._lock:
            run.thread = None
            if handle is not None:
                self._started[run_id] = handle
            elif ended is not None:
                self._unstarted[run_id] = ended
                self.end(run_id)
            if (handle or ended) is not None:
                self._waiting.pop(run_id, None)
        self._wake()

    def status(self, run_id: str) -> RunStatus | None:
        """The status of a run that has no container: it waits, or could not be started, or was cancelled before."""
        with self._lock:
            if (run := self._waiting.get(run_id)) is not None:
                return RunStatus(RunState.SUBMITTING, reason=run.why)
            return self._unstarted.get(run_id)

    def newest(self, handle: Handle) -> Handle:
        """The handle of a run as it is since it was started."""
        return self._started.get(handle.run_id, handle)

    def cancel(self, run_id: str, reason: str) -> bool:
        """Let a run wait no more.

        Returns:
            False for one that the engine may have.
        """
        with self._lock:
            run = self._waiting.get(run_id)
            if run is None:
                return run_id in self._unstarted
            run.cancelled, thread = True, run.thread
        if thread is not None:
            thread.join()
        with self._lock:
            if self._waiting.pop(run_id, None) is None:  # it was started, or could not be
                return run_id in self._unstarted
            if run.slot is not None:  # the engine was asked to start it, and did not answer
                self._leave(run_id)
                return False
            self.end(run_id)
            self._unstarted[run_id] = RunStatus(RunState.CANCELLED, reason=reason)
            return True

    def end(self, run_id: str) -> None:
        """Let others have the slot of a run that has ended; one that had none changes nothing."""
        self._running.discard(run_id)
        if self._slots is not None:
            self._slots.give_back(run_id)

    def _leave(self, run_id: str) -> None:
        """Leave the slot of a run to its container; it is free when there is none."""
        self._running.discard(run_id)
        self._registry.leave(run_id)

    def forget(self, run_id: str) -> None:
        """Forget a run that is settled."""
        self.end(run_id)
        self._started.pop(run_id, None)
        self._unstarted.pop(run_id, None)

    def close(self) -> None:
        """Leave the slots to the containers; what waits waits no more."""
        for run_id in list(self._waiting):
            self.cancel(run_id, "")
        for run_id in list(self._running):
            self._leave(run_id)
