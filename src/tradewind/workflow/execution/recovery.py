"""Puts a run together again from its journal and from what its machines have left.

No machine of an earlier session may work on beside those of this one. The runner finds its own again. Those of another
engine it does not know, but they see the run's folder: they are called at the address that they have left there, and
one that finds the file ``fenced`` ends its tasks and itself.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.deployer.runner.base import ThisMachine
from tradewind.errors import DeployError, WorkflowError
from tradewind.problem import Billing
from tradewind.utils.units import count
from tradewind.workflow.execution.connections import STOP, connect_agent
from tradewind.workflow.execution.events import ExecutionOpened
from tradewind.workflow.execution.journal import (
    ArmedRecord,
    AttemptRecord,
    JournalRecord,
    RunHistory,
    end_record,
    start_record,
)
from tradewind.workflow.execution.machines.engine import PilotEngine
from tradewind.workflow.execution.run_folder import WorkflowRunFolder
from tradewind.workflow.execution.task_states import ArmedTask
from tradewind.workflow.graph import Workflow

_GO_SECONDS = 15.0
_LATER = "try again in a minute"
_CALL_SECONDS = 3.0
_CALLS = 16
_END_SECONDS = 60.0  # for so long a network file system may hide a new file from a machine


class _Recovery:
    """State of `recover` while it settles what earlier sessions left open."""

    def __init__(
        self,
        flow: Workflow,
        folder: WorkflowRunFolder,
        history: RunHistory,
        machines: dict[str, tuple[int, int]],
        record: Callable[..., None],
    ) -> None:
        self._flow, self._folder, self._history = flow, folder, history
        self._machines, self._record = machines, record
        self.running: dict[int, tuple[int, int]] = {}
        self.armed: dict[int, ArmedTask] = {}
        self.attempts: dict[int, int] = {}

    def settle(self, each: AttemptRecord) -> None:
        """Find out what has become of an attempt whose end is not in the journal."""
        place, there = self._place(each)
        if there:
            self.running[self._flow.index[each.task]] = (place, each.attempt)
            return
        result = self._folder.end(each.task, each.attempt)
        found: dict[str, Any] = result or {"outcome": "lost", "reason": "nobody knows what became of it"}
        self._record(end_record(each.task, each.attempt, found, 0.0))

    def settle_armed(self, each: ArmedRecord) -> None:
        """Find out whether a task that was given to its machine beforehand has begun, will begin, or never will."""
        task, (place, there) = self._flow.index[each.task], self._place(each)
        awaited = [self._history.attempts[_split(key)] for key in each.after]
        outcomes = [None if other.end is None else other.end["outcome"] for other in awaited]
        if any(outcome not in ("done", None) for outcome in outcomes):
            # A machine that is there has forgotten it; one that is gone may have begun it before it could report.
            self._burn(task, each.attempt - there)
        elif None in outcomes:  # so the machine is there
            after = [other.task for other in awaited if other.end is None]
            self.armed[place] = ArmedTask(task, each.attempt, frozenset(self._flow.index[name] for name in after))
            self._burn(task, each.attempt)
        elif there or (self._folder.path / self._folder.attempt(each.task, each.attempt)).exists():
            self._record(start_record(each.task, each.attempt, each.vm, each.pilot))
            self.settle(self._history.attempts[each.task, each.attempt])
        else:  # its machine had an order to stop before it could begin it
            self._burn(task, each.attempt)

    def _place(self, each: AttemptRecord | ArmedRecord) -> tuple[int, bool]:
        place, pilot = self._machines.get(each.vm, (-1, -1))
        return place, pilot == each.pilot

    def _burn(self, task: int, attempt: int) -> None:
        """Use up a number: no later attempt may have it, or one before it."""
        self.attempts[task] = max(self.attempts.get(task, 0), attempt)


def departures(
    folder: WorkflowRunFolder, history: RunHistory, vms: Collection[str], *, last: float, linger: float
) -> list[dict[str, Any]]:
    """Make records of the ends of machines that no controller has seen go.

    The time is that which the machine has left, or the latest possible one.

    Args:
        folder: The run's folder.
        history: Journal of the run, put together.
        vms: The names of the machines; the newest pilot of each is meant.
        last: Time of the last sign of the last controller, in seconds since the epoch.
        linger: Seconds that a machine waits without controller and tasks.
    """
    now, alive = time.time(), {(vm, history.pilots[vm]): last for vm in vms}
    for each in history.open():
        pilot = (each.vm, each.pilot)
        if pilot in alive and (result := folder.end(each.task, each.attempt)) is not None:
            alive[pilot] = max(alive[pilot], result["began"] + result["seconds"])
    return [
        {"e": "left", "vm": vm, "at": min(now, _said(folder.pilot(vm, number)) or seen + linger)}
        for (vm, number), seen in alive.items()
    ]


def _said(pilot: Path) -> float | None:
    """Time at which a machine ended, as it has written itself."""
    try:
        return float(json.loads((pilot / "left.json").read_text(encoding="utf-8"))["at"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _split(key: str) -> tuple[str, int]:
    task, _, attempt = key.rpartition("#")
    return task, int(attempt)


def recover(
    flow: Workflow,
    folder: WorkflowRunFolder,
    history: RunHistory,
    machines: dict[str, tuple[int, int]],
    record: Callable[..., None],
) -> ExecutionOpened:
    """Make the first event of a session from all that earlier sessions have left.

    An attempt whose end is not in the journal is still running if its machine is there; it has ended if the
    machine left a note of that in its folder; otherwise it is lost, and the task is run again. A task that was given
    to its machine beforehand has begun if all that it waited for has ended well.

    Args:
        flow: The workflow.
        folder: The run's folder.
        history: Journal of the run, put together.
        machines: The machines of earlier sessions that are still there: name -> (place, number of its pilot).
        record: Writes the findings into the journal, and so into ``history``.
    """
    found = _Recovery(flow, folder, history, machines, record)
    for each in history.open():
        found.settle(each)
    for arming in list(history.armings.values()):
        found.settle_armed(arming)
    done = {flow.index[task]: each.attempt for task, each in history.done().items()}
    for task in sorted(_lacking(flow, folder, done)):
        reason = "an output that is still needed is not there any more"
        record(
            {"e": "end", "task": flow.tasks[task].id, "attempt": done.pop(task), "outcome": "gone", "reason": reason}
        )
    attempts = found.attempts
    for task_id, attempt in history.attempts:
        attempts[flow.index[task_id]] = max(attempts.get(flow.index[task_id], 0), attempt)
    return ExecutionOpened(frozenset(done), found.running, attempts, replan=history.replans > 0, armed=found.armed)


def _lacking(flow: Workflow, folder: WorkflowRunFolder, done: Collection[int]) -> set[int]:
    """Find the finished tasks whose outputs are missing; only real programs leave outputs."""
    if not any(task.command for task in flow.tasks):
        return set()
    return folder.lacking(flow, done)


def pilot_owner(run_id: str) -> str:
    """Name of the owner of a run's pilots, as runners know it."""
    return f"workflow-{run_id}"


def pilot_id(run_id: str, vm: int, number: int) -> str:
    """Id of a pilot, as runners know it.

    Args:
        run_id: Id of the run.
        vm: The place of its machine in the plan.
        number: Number of the pilot among those of that machine, from 1.
    """
    return f"{run_id}-m{vm + 1}-{number}"


def cancel_pilots(engine: PilotEngine, run_id: str, billing: Billing) -> None:
    """Give back all machines of a run that an engine knows, and wait until they are gone.

    Raises:
        DeployError: They cannot be.
    """
    deployer = engine.deployer(pilot_owner(run_id), billing)
    until = time.monotonic() + max(_GO_SECONDS, engine.provisioner.patience_seconds)
    deployer.sweep(set())
    while left := engine.provisioner.find(deployer.owner):
        if time.monotonic() > until:
            raise DeployError(f"{count(len(left), 'machine')} of the earlier run cannot be ended", hint=_LATER)
        time.sleep(engine.provisioner.next_change(left))
        deployer.sweep(set())


@dataclass
class _OrphanPilot:
    """A machine that an earlier session has left.

    Attributes:
        name: Name of the machine.
        folder: Folder of its pilot.
        home: Record of the session that requested it.
        line: Connection to it, or None where it does not answer.
        gone: True when it has ended, or can begin nothing once it is fenced.
    """

    name: str
    folder: Path
    home: JournalRecord
    line: socket.socket | None = None
    gone: bool = False

    @property
    def apart(self) -> bool:
        """True where it does not see the folder: only its own engine can find or end it."""
        return bool(self.home.get("apart"))

    def look(self, secret: str) -> None:
        """Find out if it is there."""
        if self.apart:
            return
        address = self.folder / "address.json"
        if not address.exists() or self.has_ended():  # one that comes later is fenced before anybody could call it
            self.gone = True
            return
        answer = connect_agent(self.folder, secret, _CALL_SECONDS)
        if answer is not None:
            self.line = answer.connection
        else:
            with suppress(OSError, ValueError, KeyError):
                self.gone = json.loads(address.read_text(encoding="utf-8"))["host"] == socket.gethostname()

    def fence(self) -> None:
        """Have it end all that it does."""
        with suppress(OSError):  # without a folder it ends by itself
            (self.folder / "fenced").touch()
        if self.line is not None:
            self.line.setblocking(False)
            with suppress(OSError):
                self.line.sendall(json.dumps(STOP).encode() + b"\n")

    def has_ended(self) -> bool:
        """True when it has written so, or has closed the connection, which it keeps as long as it lives."""
        if self.apart:
            return True
        if self.line is not None:
            try:
                while self.line.recv(1 << 16):
                    pass
                return True
            except ConnectionError:
                return True
            except OSError:  # nothing to read now, or the network is gone
                pass
        return (self.folder / "left.json").exists()


def end_orphan_pilots(
    folder: WorkflowRunFolder,
    history: RunHistory,
    engine: PilotEngine,
    vms: Sequence[str],
    *,
    dismissed: bool = False,
    fresh: bool = False,
    linger: float = 0.0,
) -> list[JournalRecord]:
    """See that no machine of an earlier session works on in the folder but those that the engine will go on with.

    Args:
        folder: The run's folder.
        history: Journal of the run, put together.
        engine: Gives the machines of this session.
        vms: The names of the plan's machines.
        dismissed: True to end the others, and go on without those that do not answer; their tasks are run again.
        fresh: True to end the others, whose work is not wanted; those that the engine knows were given back before.
        linger: Seconds that machines wait without controller and tasks.

    Returns:
        Records for the journal about the machines that are not awaited any more.

    Raises:
        WorkflowError: Some of the others are there, or may be.
    """
    left = [
        _OrphanPilot(name, folder.pilot(name, history.pilots[name]), home)
        for name, home in history.pilot_sessions.items()
        if not _same(home, engine, folder)
    ]
    if left and not fresh:
        known = _known(engine, history, vms)
        left = [each for each in left if each.name not in known]
    if not left:
        return []
    with _contacting(left, _secret(folder)):
        there = [each for each in left if not each.gone]
        if there and not (dismissed or fresh):
            raise WorkflowError(_in_the_way(there), hint=_way_on(there, engine))
        for each in left:
            each.fence()
        until = time.monotonic() + _END_SECONDS
        while (there := [each for each in there if not each.has_ended()]) and time.monotonic() < until:
            time.sleep(0.05)
        if there and not dismissed:
            them = "them" if len(there) > 1 else "it"
            hint = f"--folder names another folder, --dismiss goes on without {them} if gone for good"
            raise WorkflowError(_in_the_way(there), hint=hint)
    return departures(folder, history, [each.name for each in left], last=history.last, linger=linger)


@contextmanager
def _contacting(left: Sequence[_OrphanPilot], secret: str) -> Iterator[None]:
    """Find out which machines are there, and keep the connections to them for a while."""
    try:
        with ThreadPoolExecutor(_CALLS) as pool:
            list(pool.map(lambda each: each.look(secret), left))
        yield
    finally:
        for each in left:
            if each.line is not None:
                each.line.close()


def _secret(folder: WorkflowRunFolder) -> str:
    try:
        return (folder.path / "secret").read_text(encoding="utf-8")
    except OSError:
        return ""


def _same(home: Mapping[str, str], engine: PilotEngine, folder: WorkflowRunFolder) -> bool:
    """True if an engine would find the machines of a session; older sessions did not record all that it takes."""
    if isinstance(engine.runner, ThisMachine) and home["host"] != socket.gethostname():
        return False
    return home["on"] == engine.name and home.get("settings") in (None, engine.fingerprint(_secret(folder)))


def _known(engine: PilotEngine, history: RunHistory, vms: Sequence[str]) -> set[str]:
    """The machines of earlier sessions that an engine finds at work."""
    runner = engine.runner
    run_id = history.header["run"] if history.header else ""
    handles = runner.find(pilot_owner(run_id))
    states = runner.poll(handles) if handles else {}
    alive = {each.run_id for each in handles if not states[each.run_id].state.ended}
    return {
        name for vm, name in enumerate(vms) if name in history.pilots
        if pilot_id(run_id, vm, history.pilots[name]) in alive
    }  # fmt: skip


def _in_the_way(there: Sequence[_OrphanPilot]) -> str:
    """Name the machines that are in the way, in words."""
    certain = all(each.line is not None for each in there)
    where = " and ".join(sorted({_place(each.home) for each in there}))
    names = [each.name for each in there]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    be = ("are still" if len(names) > 1 else "is still") if certain else "may still be"
    machines = f"{len(names)} machines" if len(names) > 1 else "a machine"
    return f"{machines} of this run {be} on {where}: {', '.join(names[:3])}{more}"


def _place(home: Mapping[str, str]) -> str:
    """Name the engine of a session's machines as ``--on`` takes it, or the host whose processes they are."""
    if home["on"] != "process":
        return home["on"]
    return "local" if home["host"] == socket.gethostname() else home["host"]


def _way_on(there: Sequence[_OrphanPilot], engine: PilotEngine) -> str:
    """Advise what can be done about machines that are in the way."""
    home = there[0].home
    if home["on"] == "process" and home["host"] != socket.gethostname():
        way = f"the same command on {home['host']}"
    else:
        way = "the same --set as before" if home["on"] == engine.name else f"--on {_place(home)}"
    them, their = ("them", "their") if len(there) > 1 else ("it", "its")
    return f"{way} goes on with {them}, --dismiss ends {them} and runs {their} tasks again"
