"""Gets the machines of a plan from the deployer, and keeps an eye on them.

A pilot is a run of the deployer whose program is `tradewind.workflow.execution.agent`: a process on this machine, a job
of Slurm, a command on a machine that was made for it. So a task costs a message and not a job of the engine: a job of
Slurm costs about a tenth of a second on a quiet controller, and waits in the queue each time.
"""

from __future__ import annotations

import queue
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tradewind.deployer.compatibility import shares_folder
from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.lifecycle.run_context import WAITS
from tradewind.deployer.provisioner.base import MakesMachines
from tradewind.deployer.runner.base import OpensChannel, ThisMachine
from tradewind.errors import DeployError, TeardownError, TradewindError
from tradewind.problem import Configuration, Gang, Limits, Offer, Run, RunRequest, RunState
from tradewind.problem.job_spec.model import LOG_LIMIT
from tradewind.workflow.execution.agent import NO_FOLDER
from tradewind.workflow.execution.connections import AgentConnection, connect_agent, prove
from tradewind.workflow.execution.machines.pilot_errors import error_of, why_lost
from tradewind.workflow.execution.machines.rows import RunRows
from tradewind.workflow.execution.recovery import pilot_id, pilot_owner
from tradewind.workflow.execution.run_folder import WorkflowRunFolder
from tradewind.workflow.platform import Vm

_LOOK_SECONDS = 0.01
_CONNECT_SECONDS = 5.0
_FIRST_SECONDS = 60.0
"""Seconds that the first connection to a machine may take which does not see the run's folder."""
_END_SECONDS = 15.0
_LEASE_SECONDS = 30 * 86400.0
_NEW_SECONDS = 0.1
"""Seconds between two looks at machines that are on their way."""


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
        gpus: True where tasks of the plan use GPUs: machines are asked for with those that they have.
        image: Container image, for runners that use one.
        log_bytes: Bytes that are kept of stdout and of stderr of a task, each.
        lease_seconds: Seconds after which anyone may destroy a machine that was made, if ``wall_seconds`` is not more.
        gang: What all machines take together where they share this one; None where they take nothing of it.
    """

    python: str = sys.executable
    wall_seconds: float | None = None
    linger: float = 60.0
    poll_seconds: float = 2.0
    silence: float = 15.0
    slot_bytes: int = 0
    gpus: bool = False
    image: str | None = None
    log_bytes: int = LOG_LIMIT
    lease_seconds: float = _LEASE_SECONDS
    gang: Gang | None = None


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


@dataclass(frozen=True)
class PilotWaits:
    """A machine waits in the queue of its engine, and ``reason`` says why."""

    vm: int
    reason: str


PilotReport = PilotConnected | PilotLost | PilotWaits


@dataclass
class _Pilot:
    """One pilot, as far as it is known here."""

    vm: int
    number: int
    folder: Path
    request: RunRequest
    run: Run
    linked: bool = False
    ever_linked: bool = False
    calling: bool = False
    unheard_since: float = field(default_factory=time.monotonic)
    gone: bool = False
    leaves_by: float = 0.0

    @property
    def executing(self) -> bool:
        """True once it was submitted, until it has ended."""
        return self.run.handle is not None and self.run.state is RunState.EXECUTING

    @property
    def waits(self) -> bool:
        """True while its engine has not begun it, and says why."""
        return self.executing and self.run.reason.startswith(WAITS)


class PilotManager:
    """The machines of a run; what takes time is done in a thread of its own.

    Args:
        deployer: Makes the machines, and runs the agent on each; its owner is `pilot_owner`.
        rows: Keeps the rows of the machines.
        vms: The machines of the plan.
        folder: The run's folder.
        run_id: Unique over all runs.
        secret: Secret of the run, from `WorkflowRunFolder.prepare`.
        terms: Settings of the pilots.
        reserve: USD to set aside for a machine that is asked for now.
        post: Takes the reports, from the thread.
    """

    def __init__(
        self,
        deployer: Deployer,
        rows: RunRows,
        vms: Sequence[Vm],
        folder: WorkflowRunFolder,
        run_id: str,
        secret: str,
        terms: PilotSettings,
        reserve: Callable[[int], float],
        post: Callable[[PilotReport], None],
    ) -> None:
        self._deployer, self._rows, self._vms, self._folder, self._run_id = deployer, rows, vms, folder, run_id
        self._secret, self._terms, self._reserve, self._post = secret, terms, reserve, post
        runner = deployer.runner
        self._here = isinstance(runner, ThisMachine)
        self.apart = not shares_folder(type(runner))
        self._makes = isinstance(deployer.provisioner, MakesMachines)
        self._pilots: dict[int, _Pilot] = {}
        self._leaving: list[_Pilot] = []
        self._costs: dict[str, float] = {}
        self._news: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._next_poll, self._halted = 0.0, False
        self._thread = threading.Thread(target=self._work, name="tradewind-pilots", daemon=True)

    # ------------------------------------------------------------------ before the thread runs

    def alive(self, numbers: dict[int, int]) -> set[int]:
        """Keep those of some earlier pilots that may still be there, and return their machines; the others are ended.

        Args:
            numbers: Number of the newest pilot, by machine.

        Raises:
            TeardownError: One of the others cannot be given back.
        """
        saved = {run.run_id: run for run in self._rows.saved_runs()}
        self._costs = {run_id: run.cost for run_id, run in saved.items()}
        if not (numbers or saved):
            return set()
        known = self._known()
        for vm, number in numbers.items():
            pilot = self._make(vm, number)
            row = saved.get(pilot.run.run_id, pilot.run)
            if row.state.ended or row.run_id not in known:
                continue
            # Without a handle it may be submitted by half: that is made whole, as with the runs of a search.
            pilot.run = self._deployer.adopt(row, pilot.request)
            self._save(pilot.run)
            if not (pilot.run.state.ended or pilot.run.state is RunState.COLLECTING):  # its agent has not ended
                self._pilots[vm] = pilot
        kept = {pilot.run.run_id for pilot in self._pilots.values()}
        for run_id in set(self._deployer.active) - kept:
            if (ended := self._deployer.cancel(run_id, "its machine is not wanted any more")) is not None:
                self._save(ended)
                self._deployer.settle(run_id)
        self._deployer.sweep(kept)
        own = self._deployer.runner.name
        for run in self._rows.saved_runs():  # as they are now: those that have ended above are paid already
            if run.handle is not None and run.handle.runner != own:
                continue  # another engine's
            if not (run.state.ended or run.run_id in kept):
                reason = "its machine was not there any more"
                self._save(replace(run, state=RunState.CANCELLED, reason=reason, ended=time.time(), machines=()))
        return set(self._pilots)

    def _known(self) -> set[str]:
        """The runs of all sessions of which something is there: a machine, a job, or a part of one."""
        owner = pilot_owner(self._run_id)
        found = {handle.run_id for handle in self._deployer.runner.find(owner)}
        if self._makes:
            found |= {cluster.run_id for cluster in self._deployer.provisioner.find(owner)}
        return found

    def open(self, numbers: dict[int, int]) -> None:
        """Ask for new machines, and begin to look after all.

        Args:
            numbers: Number of the pilot to be made, by machine.
        """
        if not self.apart:
            self._folder.install()
        self.fetch(numbers)
        self._thread.start()

    def fetch(self, numbers: dict[int, int]) -> None:
        """Ask for machines; the row of each is kept before.

        Args:
            numbers: Number of the pilot to be made, by machine.
        """
        fresh = [self._make(vm, number) for vm, number in numbers.items()]
        for pilot in fresh:
            pilot.folder.mkdir(parents=True, exist_ok=True)
            if self.apart:
                self._folder.equip(pilot.folder, self._secret)
            self._save(pilot.run)

        def launch() -> None:
            before = [self._pilots[pilot.vm] for pilot in fresh if pilot.vm in self._pilots]
            self._leaving += [pilot for pilot in before if not pilot.run.state.ended]
            self._pilots |= {pilot.vm: pilot for pilot in fresh}
            for pilot in fresh:
                self._note(pilot, self._deployer.launch(pilot.run, pilot.request))
            self._poll()  # those that are submitted together

        self._news.put(launch)

    def _make(self, vm: int, number: int) -> _Pilot:
        machine, terms = self._vms[vm], self._terms
        folder = self._folder.pilot(machine.name, number)
        run_id = pilot_id(self._run_id, vm, number)
        where: tuple[str, ...]
        if self.apart:
            where = ("run", "run/machine", "127.0.0.1", f"{terms.linger:g}", "apart")
        else:
            host = "127.0.0.1" if self._here else "0.0.0.0"  # noqa: S104  (who connects must know the secret)
            where = (str(self._folder.path), str(folder), host, f"{terms.linger:g}")
        held = self._makes or self._deployer.provisioner.gives_machines
        lease = terms.lease_seconds if held else _LEASE_SECONDS
        request = RunRequest(
            run_id=run_id,
            owner=pilot_owner(self._run_id),
            expires=time.time() + max(lease, terms.wall_seconds or 0.0),
            argv=(terms.python, "-I", "-S", "agent.py", *where),
            folder=folder / "run",
            workdir=folder / "work" if self.apart else self._folder.programs,
            offer=self._offer(machine),
            configuration=Configuration({}),
            env={"TRADEWIND_MACHINE": machine.name},
            limits=Limits(wall_seconds=terms.wall_seconds, asked=terms.wall_seconds is not None),
            image=terms.image,
            gang=None if terms.gang is None else replace(terms.gang, name=pilot_owner(self._run_id)),
        )
        run = Run(run_id, vm, number, folder=str(request.folder), offer_key=request.offer.key)
        return _Pilot(vm, number, folder, request, replace(run, reserved=self._reserve(vm)))

    def _offer(self, machine: Vm) -> Offer:
        """Offer that a machine is asked for by: its own where machines are made, else what its tasks need."""
        if self._makes and machine.offer is not None:
            return machine.offer.times(1)
        # Processes of this machine have CPUs as a gang, and hosts are what they are: the slots of the plan limit.
        free = self._here or (self.apart and self._deployer.provisioner.gives_machines)
        vcpu = 0.0 if free else float(machine.slots)
        memory = 0 if free else machine.slots * self._terms.slot_bytes
        memory = memory if machine.memory_bytes is None else min(memory, machine.memory_bytes)
        kind, provider = machine.kind or machine.name, "local" if self.apart else "plan"
        gpus = machine.gpus if self._terms.gpus else 0
        return Offer(provider, kind, vcpu, memory / 2**30, machine.price_per_hour, gpus=gpus)

    # ------------------------------------------------------------------ from the controller

    @property
    def cost(self) -> float:
        """USD for all machines so far, as their rows have it."""
        return sum(self._costs.values())

    def stream(self, vm: int) -> socket.socket:
        """Open a stream to the courier of a machine.

        Raises:
            DeployError: It is not there, or does not answer.
        """
        pilot = self._pilots.get(vm)
        if pilot is None or pilot.gone:
            raise DeployError(f"{self._vms[vm].name} is gone")
        return self._channel(pilot, "courier.py")

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
        self._halted = True
        self._news.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def close(self, *, seconds: float = _END_SECONDS) -> None:
        """Give all machines back: those with an order to stop end by themselves, the others are cancelled.

        Raises:
            TeardownError: One cannot be given back.
        """
        self.halt()
        pilots = [*self._pilots.values(), *self._leaving]
        reason = "the workflow has ended"
        self._deployer.stop({pilot.run.run_id: reason for pilot in pilots if not pilot.linked})
        until = time.monotonic() + 0.3 * seconds
        while self._deployer.active and time.monotonic() < until:
            with suppress(TradewindError):
                self._keep(self._deployer.poll())
            if self._deployer.active:
                time.sleep(0.02)
        problem: TradewindError | None = None
        self._deployer.stop(dict.fromkeys(self._deployer.active, reason))
        # A host of the user's that does not answer costs nothing, and its agent ends itself: the next session looks.
        silent = set() if self._makes else {pilot.run.run_id for pilot in pilots if pilot.gone}
        for run_id in set(self._deployer.active) - silent:
            try:
                ended = self._deployer.cancel(run_id, reason)
            except TradewindError as error:
                problem = problem or error
                ended = self._deployer.active.get(run_id)
            if ended is not None:
                self._keep([ended])
        for pilot in pilots:
            if pilot.run.state.ended:
                self._settle(pilot)
        self._deployer.close()
        if isinstance(problem, TeardownError):
            raise problem

    # ------------------------------------------------------------------ in the thread

    def _work(self) -> None:
        while True:
            coming = not self.apart and any(each.executing and not each.linked for each in self._pilots.values())
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
                if pilot.executing and not (pilot.waits or pilot.linked or pilot.gone or pilot.calling):
                    self._connect(pilot)
            if time.monotonic() >= self._next_poll:
                self._poll()

    def _save(self, run: Run) -> None:
        self._costs[run.run_id] = run.cost
        self._rows.save_run(run)

    def _keep(self, runs: Iterable[Run]) -> None:
        """Keep rows that have changed."""
        pilots = {pilot.run.run_id: pilot for pilot in [*self._pilots.values(), *self._leaving]}
        for run in runs:
            if run.run_id in pilots:
                self._note(pilots[run.run_id], run)
            else:
                self._save(run)

    def _note(self, pilot: _Pilot, run: Run) -> None:
        """Take in the row of a pilot."""
        before, pilot.run = pilot.run, run
        if replace(before, runtime=0.0, cost=0.0, usage=run.usage) != replace(run, runtime=0.0, cost=0.0):
            self._save(run)
        self._costs[run.run_id] = run.cost
        if pilot.waits and run.reason != before.reason:
            self._post(PilotWaits(pilot.vm, run.reason.removeprefix(WAITS)))
        if pilot.executing and not before.state.ended and before.state is not RunState.EXECUTING:
            pilot.unheard_since = time.monotonic()

    def _channel(self, pilot: _Pilot, *words: str) -> socket.socket:
        runner, handle = self._deployer.runner, pilot.run.handle
        if not isinstance(runner, OpensChannel) or handle is None:
            raise DeployError(f"{self._vms[pilot.vm].name} is not there")
        return runner.open_channel(handle, (self._terms.python, "-I", "-S", *words))

    def _connect(self, pilot: _Pilot) -> None:
        if not self.apart:
            self._welcome(pilot, connect_agent(pilot.folder, self._secret, min(_CONNECT_SECONDS, self._terms.silence)))
            return
        pilot.calling = True

        def call() -> None:
            found = None
            with suppress(TradewindError, OSError):
                channel = self._channel(pilot, "agent.py", "relay", "run/machine")
                channel.settimeout(_FIRST_SECONDS)
                found = prove(channel, self._secret)
            if found is not None and self._halted:  # nobody takes it any more
                found.connection.close()
            else:
                self._news.put(lambda: self._called(pilot, found))

        threading.Thread(target=call, name="tradewind-call", daemon=True).start()

    def _called(self, pilot: _Pilot, found: AgentConnection | None) -> None:
        pilot.calling = False
        if found is not None and (pilot.gone or self._pilots.get(pilot.vm) is not pilot):
            found.connection.close()
        else:
            self._welcome(pilot, found)

    def _welcome(self, pilot: _Pilot, found: AgentConnection | None) -> None:
        if found is not None:
            pilot.linked = pilot.ever_linked = True
            self._post(PilotConnected(pilot.vm, found.connection, found.host, found.offset))

    def _dismiss(self, vm: int) -> None:
        pilot = self._pilots.pop(vm, None)
        if pilot is None:
            return
        pilot.leaves_by = time.monotonic() + _END_SECONDS
        self._leaving.append(pilot)
        self._next_poll = 0.0
        if not pilot.linked:
            self._abort(pilot)

    def _abort(self, pilot: _Pilot) -> None:
        with suppress(TradewindError):
            self._keep(self._deployer.abort({pilot.run.run_id: "its machine is not wanted any more"}))

    def _unlink(self, vm: int) -> None:
        pilot = self._pilots.get(vm)
        if pilot is not None and not pilot.gone:
            pilot.linked, pilot.unheard_since = False, time.monotonic()
            self._next_poll = 0.0

    def _poll(self) -> None:
        """Ask the deployer; machines that come, or that were lost from sight, are asked for more often."""
        with suppress(TradewindError):  # the next one tells
            self._keep(self._deployer.poll())
        now = time.monotonic()
        for pilot in list(self._leaving):
            self._see_off(pilot, now)
        hurry = False
        for pilot in self._pilots.values():
            if pilot.gone:
                continue
            if pilot.run.state.ended or (pilot.ever_linked and not pilot.executing):
                pilot.gone = True
                self._post(PilotLost(pilot.vm, self._why(pilot), self._fatal(pilot)))
            elif not pilot.executing or pilot.waits:
                pilot.unheard_since, hurry = now, True
            elif not pilot.linked and (self.apart or (pilot.folder / "address.json").exists()):
                hurry = True
                if now - pilot.unheard_since > self._patience(pilot):
                    pilot.gone = True
                    self._give_up(pilot)
        self._next_poll = time.monotonic() + (_NEW_SECONDS if hurry else self._terms.poll_seconds)

    def _see_off(self, pilot: _Pilot, now: float) -> None:
        if pilot.run.state.ended:
            self._leaving.remove(pilot)
            self._settle(pilot)
        elif now > pilot.leaves_by:
            pilot.leaves_by = now + _END_SECONDS
            self._abort(pilot)

    def _patience(self, pilot: _Pilot) -> float:
        """Seconds without a word after which a machine is given up."""
        first = self.apart and not pilot.ever_linked
        return max(self._terms.silence, _FIRST_SECONDS) if first else self._terms.silence

    def _settle(self, pilot: _Pilot) -> None:
        """Forget a pilot that has ended; what an engine of this machine has left of its files is elsewhere, too."""
        with suppress(TradewindError):
            self._deployer.settle(pilot.run.run_id)
        if self.apart:
            shutil.rmtree(pilot.folder / "work", ignore_errors=True)

    def _why(self, pilot: _Pilot) -> str:
        return why_lost(self._vms[pilot.vm].name, pilot.run)

    def _fatal(self, pilot: _Pilot) -> TradewindError | None:
        if pilot.run.exit_code == NO_FOLDER and not self.apart:
            return DeployError(
                f"machine {self._vms[pilot.vm].name} does not see the folder {self._folder.path}",
                hint="name a folder that all machines share with --folder",
                retryable=False,
            )
        return None if pilot.ever_linked else error_of(self._vms[pilot.vm].name, pilot.run, self._terms.python)

    def _abandon(self, vm: int) -> None:
        pilot = self._pilots.get(vm)
        if pilot is not None and not (pilot.gone or pilot.linked):
            pilot.gone = True
            self._abort(pilot)
            self._post(PilotLost(vm, f"{self._vms[vm].name} has not come: the others do its work"))

    def _give_up(self, pilot: _Pilot) -> None:
        """Keep a machine that does not answer from going on, as far as it can be reached at all."""
        with suppress(OSError):
            (pilot.folder / "fenced").touch()
        self._abort(pilot)
        name, silence = self._vms[pilot.vm].name, self._patience(pilot)
        self._post(PilotLost(pilot.vm, f"{name} has not answered for {silence:g} s"))
