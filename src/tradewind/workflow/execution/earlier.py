"""The machines that an earlier session has left: none may work on beside those of this one, whoever gave it.

The runner finds its own again. Those of another engine it does not know, but they see the run's folder: they are called
at the address that they have left there, and one that finds the file ``fenced`` ends its tasks and itself.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tradewind.deployer.runner.base import Runner, ThisMachine
from tradewind.errors import DeployError, WorkflowError
from tradewind.utils.units import count
from tradewind.workflow.execution.agent import proof
from tradewind.workflow.execution.calling import connect_agent
from tradewind.workflow.execution.connections import STOP
from tradewind.workflow.execution.journal import JournalRecord, RunHistory
from tradewind.workflow.execution.recovery import departures
from tradewind.workflow.execution.run_folder import WorkflowRunFolder

_GO_SECONDS = 15.0
_CALL_SECONDS = 3.0
_CALLS = 16
_END_SECONDS = 60.0  # for so long a network file system may hide a new file from a machine


def pilot_owner(run_id: str) -> str:
    """Who the pilots of a run belong to, as runners know it."""
    return f"workflow-{run_id}"


def pilot_id(run_id: str, vm: int, number: int) -> str:
    """A pilot, as runners know it.

    Args:
        run_id: Of the run.
        vm: The place of its machine in the plan.
        number: Which pilot of that machine, from 1.
    """
    return f"{run_id}-m{vm + 1}-{number}"


def runner_fingerprint(runner: Runner, secret: str) -> str:
    """What tells the settings of a runner from others, and does not tell what they are.

    Args:
        runner: The runner.
        secret: Of the run.
    """
    settings = runner.settings.model_dump(mode="json", exclude_defaults=True)
    return proof(secret, json.dumps(settings, sort_keys=True))


def cancel_pilots(runner: Runner, run_id: str) -> None:
    """Give back all machines of a run that a runner knows, and wait until they are gone.

    Raises:
        DeployError: They cannot be.
    """
    handles = runner.find(pilot_owner(run_id))
    for handle in handles:
        runner.cancel(handle)
    until = time.monotonic() + _GO_SECONDS
    while handles:
        states = runner.poll(handles)
        for handle in [each for each in handles if states[each.run_id].state.ended]:
            runner.forget(handle)
            handles.remove(handle)
        if handles and time.monotonic() > until:
            left = count(len(handles), "machine")
            raise DeployError(f"{left} of the earlier run cannot be ended", hint="try again in a minute")
        time.sleep(0.02)


@dataclass
class _Left:
    """A machine that an earlier session has left.

    Attributes:
        name: Its name.
        folder: The folder of its pilot.
        home: The record of the session that asked for it.
        line: A connection to it, if it answers.
        gone: It has ended, or can begin nothing once it is fenced.
    """

    name: str
    folder: Path
    home: JournalRecord
    line: socket.socket | None = None
    gone: bool = False

    def look(self, secret: str) -> None:
        """Find out whether it is there."""
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
        """Whether it has said so, or has closed the connection, which it keeps as long as it lives."""
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
    runner: Runner,
    vms: Sequence[str],
    *,
    dismissed: bool = False,
    fresh: bool = False,
    linger: float = 0.0,
) -> list[JournalRecord]:
    """See that no machine of an earlier session works on in the folder but those that the runner will go on with.

    Args:
        folder: The run's folder.
        history: Its journal.
        runner: Of this session.
        vms: The names of the plan's machines.
        dismissed: End the others, and go on without those that do not answer; their tasks are run again.
        fresh: End the others: nothing that they do is wanted; what the runner knows of has been given back.
        linger: Seconds that machines wait without controller and tasks.

    Returns:
        What is to be written into the journal: which machines are not awaited any more.

    Raises:
        WorkflowError: Some are there, or may be.
    """
    left = [
        _Left(name, folder.pilot(name, history.pilots[name]), home)
        for name, home in history.homes.items()
        if not _same(home, runner, folder)
    ]
    if left and not fresh:
        known = _known(runner, history, vms)
        left = [each for each in left if each.name not in known]
    if not left:
        return []
    with _looked_for(left, _secret(folder)):
        there = [each for each in left if not each.gone]
        if there and not (dismissed or fresh):
            raise WorkflowError(_told(there), hint=_way_on(there, runner))
        for each in left:
            each.fence()
        until = time.monotonic() + _END_SECONDS
        while (there := [each for each in there if not each.has_ended()]) and time.monotonic() < until:
            time.sleep(0.05)
        if there and not dismissed:
            them = "them" if len(there) > 1 else "it"
            raise WorkflowError(
                _told(there), hint=f"--folder names another folder, --dismiss goes on without {them} if gone for good"
            )
    return departures(folder, history, [each.name for each in left], last=history.last, linger=linger)


@contextmanager
def _looked_for(left: Sequence[_Left], secret: str) -> Iterator[None]:
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


def _same(home: Mapping[str, str], runner: Runner, folder: WorkflowRunFolder) -> bool:
    """Whether a runner would find the machines that a session has asked for; older ones did not write all of it."""
    if isinstance(runner, ThisMachine) and home["host"] != socket.gethostname():
        return False
    return home["on"] == runner.name and home.get("settings") in (None, runner_fingerprint(runner, _secret(folder)))


def _known(runner: Runner, history: RunHistory, vms: Sequence[str]) -> set[str]:
    """The machines of earlier sessions that a runner finds at work."""
    run_id = history.header["run"] if history.header else ""
    handles = runner.find(pilot_owner(run_id))
    states = runner.poll(handles) if handles else {}
    alive = {each.run_id for each in handles if not states[each.run_id].state.ended}
    return {
        name for vm, name in enumerate(vms) if name in history.pilots
        if pilot_id(run_id, vm, history.pilots[name]) in alive
    }  # fmt: skip


def _told(there: Sequence[_Left]) -> str:
    """Which machines are in the way, in words."""
    certain = all(each.line is not None for each in there)
    where = " and ".join(sorted({_place(each.home) for each in there}))
    names = [each.name for each in there]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    be = ("are still" if len(names) > 1 else "is still") if certain else "may still be"
    machines = f"{len(names)} machines" if len(names) > 1 else "a machine"
    return f"{machines} of this run {be} on {where}: {', '.join(names[:3])}{more}"


def _place(home: Mapping[str, str]) -> str:
    """Where the machines of a session are, as ``--on`` takes it, or the host whose processes they are."""
    if home["on"] != "process":
        return home["on"]
    return "local" if home["host"] == socket.gethostname() else home["host"]


def _way_on(there: Sequence[_Left], runner: Runner) -> str:
    """What can be done."""
    home = there[0].home
    if home["on"] == "process" and home["host"] != socket.gethostname():
        way = f"the same command on {home['host']}"
    else:
        way = "the same --set as before" if home["on"] == runner.name else f"--on {_place(home)}"
    them, their = ("them", "their") if len(there) > 1 else ("it", "its")
    return f"{way} goes on with {them}, --dismiss ends {them} and runs {their} tasks again"
