"""Gets the machines of a plan from a runner, and keeps an eye on them.

A pilot is a run of the runner whose program is `tradewind.workflow.execution.agent`: one process on this machine, one
job of Slurm, one actor of Ray for each machine of the plan. So a task costs a message and not a job of the engine: a
job of Slurm costs about a tenth of a second on a quiet controller, and waits in the queue each time.
"""

from __future__ import annotations

import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tradewind.deployer.runner.base import Runner, SubmitsTogether, ThisMachine
from tradewind.errors import DeployError, MissingProgramError, TradewindError
from tradewind.problem import Configuration, Handle, Limits, Offer, RunRequest, RunState, RunStatus
from tradewind.workflow.execution.agent import NO_FOLDER
from tradewind.workflow.execution.connections import connect_agent
from tradewind.workflow.execution.recovery import pilot_id, pilot_owner
from tradewind.workflow.execution.run_folder import WorkflowRunFolder
from tradewind.workflow.platform import Vm

_LOOK_SECONDS = 0.01
_CONNECT_SECONDS = 5.0
_END_SECONDS = 15.0
_LEASE_SECONDS = 30 * 86400.0


@dataclass(frozen=True)
class PilotSettings:
    """Settings of pilots: the Python on the machines, how long each is kept, and when it counts as lost.

    Attributes:
        python: The Python on the machines.
        wall_seconds: Most seconds that a machine is kept, or None.
        linger: Seconds that a machine without controller and tasks waits before it is given back.
        poll_seconds: Seconds between two questions to the runner.
        silence: Seconds without a word after which a machine counts as lost.
        slot_bytes: Memory that each slot of a machine is asked for with, or 0 for what the engine gives; no machine is
            asked for with more than it has.
    """

    python: str = sys.executable
    wall_seconds: float | None = None
    linger: float = 60.0
    poll_seconds: float = 2.0
    silence: float = 15.0
    slot_bytes: int = 0


@dataclass(frozen=True)
class PilotConnected:
    """A connection to a machine was made, whose clock is ``offset`` seconds behind this one's."""

    vm: int
    connection: socket.socket
    host: str
    offset: float


@dataclass(frozen=True)
class PilotLost:
    """A machine is gone; ``fatal`` where no other machine would do better."""

    vm: int
    reason: str
    fatal: TradewindError | None = None


PilotReport = PilotConnected | PilotLost


@dataclass
class _Pilot:
    """One pilot, as far as it is known here."""

    vm: int
    number: int
    folder: Path
    request: RunRequest
    handle: Handle | None = None
    linked: bool = False
    unheard_since: float = field(default_factory=time.monotonic)
    gone: bool = False
    leaves_by: float = 0.0


class PilotManager:
    """The machines of a run; what takes time is done in a thread of its own.

    Args:
        runner: The runner.
        vms: The machines of the plan.
        folder: The run's folder.
        run_id: Unique over all runs.
        secret: Secret of the run, from `WorkflowRunFolder.prepare`.
        terms: Settings of the pilots.
        post: Takes the reports, from the thread.
    """

    def __init__(
        self,
        runner: Runner,
        vms: Sequence[Vm],
        folder: WorkflowRunFolder,
        run_id: str,
        secret: str,
        terms: PilotSettings,
        post: Callable[[PilotReport], None],
    ) -> None:
        self._runner, self._vms, self._folder, self._run_id = runner, vms, folder, run_id
        self._secret, self._terms, self._post = secret, terms, post
        self._here = isinstance(runner, ThisMachine)
        self._pilots: dict[int, _Pilot] = {}
        self._leaving: list[_Pilot] = []
        self._news: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._next_poll = 0.0
        self._thread = threading.Thread(target=self._work, name="tradewind-pilots", daemon=True)

    # ------------------------------------------------------------------ before the thread runs

    def alive(self, numbers: dict[int, int]) -> set[int]:
        """Keep those of some earlier pilots that may still be there, and return their machines.

        Args:
            numbers: Number of the newest pilot, by machine.
        """
        pilots = {vm: self._make(vm, number) for vm, number in numbers.items()}
        known = {handle.run_id: handle for handle in self._runner.find(self._owner)}
        for pilot in pilots.values():
            pilot.handle = known.get(pilot.request.run_id)
        found = {vm: pilot for vm, pilot in pilots.items() if pilot.handle is not None}
        statuses = self._runner.poll([p.handle for p in found.values() if p.handle]) if found else {}
        self._pilots = {vm: pilot for vm, pilot in found.items() if not statuses[pilot.request.run_id].state.ended}
        return set(self._pilots)

    def open(self, numbers: dict[int, int]) -> None:
        """Ask for new machines, and begin to look after all.

        Args:
            numbers: Number of the pilot to be made, by machine.
        """
        self._folder.install()
        self.fetch(numbers)
        self._thread.start()

    def fetch(self, numbers: dict[int, int]) -> None:
        """Ask for machines.

        Args:
            numbers: Number of the pilot to be made, by machine.
        """
        fresh = [self._make(vm, number) for vm, number in numbers.items()]
        for pilot in fresh:
            pilot.folder.mkdir(parents=True, exist_ok=True)

        def submit() -> None:
            self._pilots |= {pilot.vm: pilot for pilot in fresh}
            self._submit(fresh)

        self._news.put(submit)

    @property
    def _owner(self) -> str:
        return pilot_owner(self._run_id)

    def _make(self, vm: int, number: int) -> _Pilot:
        machine = self._vms[vm]
        folder = self._folder.pilot(machine.name, number)
        host = "127.0.0.1" if self._here else "0.0.0.0"  # noqa: S104  (who connects must know the secret)
        run_id = pilot_id(self._run_id, vm, number)
        words = (
            self._terms.python,
            "-I",
            "-S",
            "agent.py",
            str(self._folder.path),
            str(folder),
            host,
            f"{self._terms.linger:g}",
        )
        # Processes of this machine are not pinned to CPUs: the slots of the plan are what limits them.
        vcpu = 0.0 if self._here else float(machine.slots)
        memory = 0 if self._here else machine.slots * self._terms.slot_bytes
        memory = memory if machine.memory_bytes is None else min(memory, machine.memory_bytes)
        request = RunRequest(
            run_id=run_id,
            owner=self._owner,
            expires=time.time() + _LEASE_SECONDS,
            argv=words,
            folder=folder / "run",
            workdir=self._folder.programs,
            offer=Offer("plan", machine.kind or machine.name, vcpu, memory / 2**30, machine.price_per_hour),
            configuration=Configuration({}),
            env={"TRADEWIND_MACHINE": machine.name},
            limits=Limits(wall_seconds=self._terms.wall_seconds, asked=self._terms.wall_seconds is not None),
        )
        return _Pilot(vm, number, folder, request)

    # ------------------------------------------------------------------ from the controller

    def unheard(self, vm: int) -> None:
        """Find out what has become of a machine whose connection has ended, or that sends nothing any more."""
        self._news.put(lambda: self._unlink(vm))

    def give_up(self, vm: int) -> None:
        """Wait no longer for a machine that has not come."""
        self._news.put(lambda: self._abandon(vm))

    def give_back(self, vm: int) -> None:
        """See that a machine ends that has nothing more to do; one that does not end by itself is cancelled."""
        self._news.put(lambda: self._dismiss(vm))

    def halt(self) -> None:
        """Look for no more machines: nothing is posted from now on."""
        self._news.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def close(self, *, seconds: float = _END_SECONDS) -> None:
        """Give all machines back: those with an order to stop end by themselves, the others are cancelled."""
        self.halt()
        waiting = [each for each in [*self._pilots.values(), *self._leaving] if each.handle is not None]
        self._cancel([pilot for pilot in waiting if not pilot.linked])
        until, cancelled = time.monotonic() + seconds, False
        while waiting and time.monotonic() < until:
            with suppress(TradewindError):
                states = self._runner.poll([pilot.handle for pilot in waiting if pilot.handle])
                for pilot in [each for each in waiting if states[each.request.run_id].state.ended]:
                    waiting.remove(pilot)
                    if pilot.handle is not None:
                        self._runner.forget(pilot.handle)
            if waiting and not cancelled and until - time.monotonic() < 0.7 * seconds:
                cancelled = True
                self._cancel(waiting)
            if waiting:
                time.sleep(0.02)
        self._runner.close()

    def _cancel(self, pilots: Sequence[_Pilot]) -> None:
        for pilot in pilots:
            if pilot.handle is not None:
                with suppress(TradewindError):
                    self._runner.cancel(pilot.handle)

    # ------------------------------------------------------------------ in the thread

    def _work(self) -> None:
        while True:
            coming = any(not pilot.linked and not pilot.gone for pilot in self._pilots.values())
            pause = _LOOK_SECONDS if coming else max(0.0, self._next_poll - time.monotonic())
            try:
                news = self._news.get(timeout=pause)
            except queue.Empty:
                pass
            else:
                if news is None:
                    return
                news()
            for pilot in self._pilots.values():
                if pilot.handle is not None and not pilot.linked and not pilot.gone:
                    self._connect(pilot)
            if time.monotonic() >= self._next_poll:
                self._poll()

    def _submit(self, pilots: Sequence[_Pilot]) -> None:
        runs = [(pilot.request, ()) for pilot in pilots]
        answers: dict[str, Handle | TradewindError] = {}
        try:
            if isinstance(self._runner, SubmitsTogether):
                answers = dict(self._runner.submit_all(runs))
            else:
                for request, machines in runs:
                    answers[request.run_id] = self._runner.submit(request, machines)
        except TradewindError as error:
            answers = {request.run_id: answers.get(request.run_id, error) for request, _ in runs}
        for pilot in pilots:
            answer = answers[pilot.request.run_id]
            if isinstance(answer, MissingProgramError) and self._terms.python in answer.message:
                answer = MissingProgramError(f"there is no program {self._terms.python}", hint="--python names one")
            if isinstance(answer, Handle):
                pilot.handle, pilot.unheard_since = answer, time.monotonic()
            else:
                pilot.gone = True
                self._post(PilotLost(pilot.vm, str(answer), answer))

    def _connect(self, pilot: _Pilot) -> None:
        found = connect_agent(pilot.folder, self._secret, min(_CONNECT_SECONDS, self._terms.silence))
        if found is not None:
            pilot.linked = True
            self._post(PilotConnected(pilot.vm, found.connection, found.host, found.offset))

    def _dismiss(self, vm: int) -> None:
        pilot = self._pilots.pop(vm, None)
        if pilot is None or pilot.handle is None:
            return
        pilot.leaves_by = time.monotonic() + _END_SECONDS
        self._leaving.append(pilot)
        self._next_poll = 0.0
        if not pilot.linked:
            self._cancel([pilot])

    def _unlink(self, vm: int) -> None:
        pilot = self._pilots.get(vm)
        if pilot is not None and not pilot.gone:
            pilot.linked, pilot.unheard_since = False, time.monotonic()
            self._next_poll = 0.0

    def _poll(self) -> None:
        """Ask the runner; a machine that was lost from sight is asked for more often."""
        known = [pilot for pilot in self._pilots.values() if pilot.handle is not None and not pilot.gone]
        asked = [pilot.handle for pilot in [*known, *self._leaving] if pilot.handle]
        try:
            states = self._runner.poll(asked) if asked else {}
        except TradewindError:  # the next one tells
            states = {}
        now = time.monotonic()
        for pilot in list(self._leaving):
            self._see_off(pilot, states.get(pilot.request.run_id), now)
        hurry = False
        for pilot in known:
            status = states.get(pilot.request.run_id)
            if status is None:
                continue
            if status.state.ended:
                pilot.gone = True
                self._post(
                    PilotLost(pilot.vm, self._why(pilot, status.state, status.reason), self._fatal(pilot, status))
                )
            elif not pilot.linked and (pilot.folder / "address.json").exists():
                hurry = True
                if now - pilot.unheard_since > self._terms.silence:
                    pilot.gone = True
                    self._give_up(pilot)
        self._next_poll = now + (0.1 if hurry else self._terms.poll_seconds)

    def _see_off(self, pilot: _Pilot, status: RunStatus | None, now: float) -> None:
        if status is not None and status.state.ended and pilot.handle is not None:
            self._leaving.remove(pilot)
            with suppress(TradewindError):
                self._runner.forget(pilot.handle)
        elif now > pilot.leaves_by:
            pilot.leaves_by = now + _END_SECONDS
            self._cancel([pilot])

    def _why(self, pilot: _Pilot, state: RunState, reason: str) -> str:
        return f"{self._vms[pilot.vm].name} is gone: {reason or state.value}"

    def _fatal(self, pilot: _Pilot, status: Any) -> TradewindError | None:
        if status.exit_code != NO_FOLDER:
            return None
        return DeployError(
            f"machine {self._vms[pilot.vm].name} does not see the folder {self._folder.path}",
            hint="name a folder that all machines share with --folder",
            retryable=False,
        )

    def _abandon(self, vm: int) -> None:
        pilot = self._pilots.get(vm)
        if pilot is not None and not (pilot.gone or pilot.linked):
            pilot.gone = True
            self._cancel([pilot])
            self._post(PilotLost(vm, f"{self._vms[vm].name} has not come: the others do its work"))

    def _give_up(self, pilot: _Pilot) -> None:
        """Keep a machine that does not answer from going on, as far as it can be reached at all."""
        with suppress(OSError):
            (pilot.folder / "fenced").touch()
        self._cancel([pilot])
        name, silence = self._vms[pilot.vm].name, self._terms.silence
        self._post(PilotLost(pilot.vm, f"{name} has not answered for {silence:g} s"))
