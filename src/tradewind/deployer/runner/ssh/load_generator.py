"""An application under test and the load generator beside it, on machines that are reached by SSH."""

from __future__ import annotations

import base64
import http.client
import re
import socket
import time
from dataclasses import replace

from tradewind.deployer.runner.ssh.remote_machine import RemoteMachine
from tradewind.deployer.runner.ssh.submit import RemoteCommand
from tradewind.errors import DeployError, UnreachableError
from tradewind.problem import Fault, Load, RunState, RunStatus

_LOOK_SECONDS = 0.1
_HTTP_SECONDS = 5.0
_BAD_STATUS = 400
_TAIL_BYTES = 4096


def load_command(name: str, load: Load, host: str, held: bool) -> RemoteCommand:
    """The command of the load generator of a run.

    Args:
        name: The name of the command on its machine.
        load: The load generator.
        host: The address of the application, as the load generator sees it.
        held: True to hold it to the CPUs and the memory of the offer, where it has no limits of its own.
    """
    env = {**load.env, "TRADEWIND_APPLICATION_HOST": host}
    if load.port is not None:
        env["TRADEWIND_APPLICATION_PORT"] = str(load.port)
    return RemoteCommand(name, load.argv, env, held=held, cpus=load.cpus, memory_bytes=load.memory_bytes)


def await_application(machine: RemoteMachine, name: str, load: Load) -> bool:
    """Wait until an application is ready; False when it has ended, or was ended because it was not ready in time.

    Raises:
        UnreachableError: Its machine does not answer.
    """
    end = time.monotonic() + load.ready_seconds
    seen = _Output(machine, name, load.ready_pattern)
    while True:
        [words] = machine.ask("poll", name)
        state = words.partition(" ")[2]
        if state.startswith("result"):
            return False
        if not state.startswith("waiting"):
            if state.split(" ")[0] not in ("running", "waiting"):
                return False
            if _listens(machine, load) and seen.matches() and _answers(machine, load):
                return True
        if time.monotonic() > end:
            machine.ask("cancel", name, "unready")
            return False
        time.sleep(_LOOK_SECONDS)


def _listens(machine: RemoteMachine, load: Load) -> bool:
    return load.port is None or machine.ask("listens", f"{load.port:04X}") == ["yes"]


def _answers(machine: RemoteMachine, load: Load) -> bool:
    """True when the path of readiness answers with a status below 400, through the SSH connection."""
    if not load.ready_path or load.port is None:
        return True
    try:
        local = machine.link.forward_socket(f"127.0.0.1:{load.port}")
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(_HTTP_SECONDS)
            sock.connect(str(local))
            connection = http.client.HTTPConnection("127.0.0.1", load.port)
            connection.sock = sock
            connection.request("GET", load.ready_path)
            return connection.getresponse().status < _BAD_STATUS
    except UnreachableError:
        raise
    except (OSError, http.client.HTTPException, DeployError):
        return False


class _Output:
    """Searches the output of an application for a line that matches a pattern."""

    def __init__(self, machine: RemoteMachine, name: str, pattern: str) -> None:
        self._machine, self._name = machine, name
        self._pattern = re.compile(pattern.encode()) if pattern else None
        self._offsets = {"stdout": 0, "stderr": 0}
        self._tails = {"stdout": b"", "stderr": b""}

    def matches(self) -> bool:
        """True when a line that was written by now matches."""
        if self._pattern is None:
            return True
        for stream, offset in self._offsets.items():
            came = base64.b64decode("".join(self._machine.ask("log", self._name, stream, str(offset))))
            self._offsets[stream] = offset + len(came)
            text = self._tails[stream] + came
            if any(self._pattern.search(line) for line in text.splitlines()):
                return True
            self._tails[stream] = text[-_TAIL_BYTES:].rpartition(b"\n")[2]
        return False


def combined_status(load: RunStatus, application: RunStatus, *, started: bool) -> tuple[RunStatus, list[int]]:
    """The status of a run with a load generator.

    Args:
        load: The status of the load generator.
        application: The status of the application.
        started: False when there is no trace of the load generator.

    Returns:
        The status, and the indexes of those to be ended now: 0 for the load generator, 1 for the application.
    """
    if load.state.ended and started:
        if not application.state.ended:
            return RunStatus(RunState.EXECUTING, runtime=load.runtime), [1]
        by_itself = application.state in (RunState.DONE, RunState.FAILED)
        if load.state is RunState.CANCELLED and by_itself:
            return _died(application, load), []
        if load.state is RunState.FAILED and by_itself:
            words = f"{load.reason}; the application had ended: {application.reason or 'with code 0'}"
            return replace(load, reason=words), []
        return load, []
    if application.state.ended:
        if not load.state.ended:
            return RunStatus(RunState.EXECUTING, runtime=load.runtime), [0]
        return _died(application, load), []
    return replace(load, state=RunState.EXECUTING, reason="", fault=None), []


def _died(application: RunStatus, load: RunStatus) -> RunStatus:
    """The status of a run whose application ended first."""
    if application.state in (RunState.CANCELLED, RunState.PREEMPTED):
        return application
    if application.state is RunState.FAILED and application.fault is Fault.INFRASTRUCTURE:
        return application
    words = application.reason or "the application ended by itself"
    if not words.startswith("the application"):
        words = f"the application: {words}"
    return RunStatus(
        RunState.FAILED,
        runtime=max(load.runtime, application.runtime),
        reason=words,
        fault=Fault.JOB,
        exit_code=application.exit_code,
        usage=application.usage,
    )
