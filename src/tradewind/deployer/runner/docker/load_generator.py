"""Runs with a load generator: the application starts first, then the load, and both end together.

The state is the engine's, not only in memory. The load's container is created with the application's, with all that it
needs, and waits to be started; a label says when the application is ready. Any process that polls can go on from that.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tradewind.deployer.runner.docker.engine import ContainerEngine
from tradewind.deployer.runner.docker.file_transfer import LogPosition, read_container_log
from tradewind.deployer.runner.docker.names import LOAD, InspectedContainer
from tradewind.deployer.runner.docker.status import (
    ended_status,
    failed_status,
    killed_words,
    out_of_memory_words,
    was_killed_within_limit,
    was_out_of_memory,
)
from tradewind.deployer.runner.exit_reasons import exit_code_of, lost_status, timeout_reason
from tradewind.errors import TradewindError
from tradewind.problem import Fault, RunState, RunStatus, Usage
from tradewind.utils.units import format_duration

_LOOK_SECONDS = 0.1
_ANSWER_SECONDS = 2.0
_SILENT_SECONDS = 0.25


def readiness(labels: Mapping[str, str]) -> dict[str, Any]:
    """The conditions of readiness in a load's label: ``port``, ``path``, ``pattern`` and ``seconds``."""
    return dict(json.loads(labels[LOAD]))


class LoadStarter:
    """Waits, in a thread, until an application is ready, then starts its load; gives up after its time.

    Args:
        engine: The engine of both containers.
        application: The application's container.
        start: The function that starts the load's container.
    """

    def __init__(self, engine: ContainerEngine, application: InspectedContainer, start: Callable[[], None]) -> None:
        self._engine = engine
        self._application = application
        self._start = start
        self._wanted = readiness(application.labels)
        self._stopped = threading.Event()
        self._log_positions = {stream: (LogPosition(), b"") for stream in ("stdout", "stderr")}
        self._matched = not self._wanted["pattern"]
        self._thread = threading.Thread(target=self._wait, name="tradewind-docker-load", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> bool:
        """True until the load was started or given up."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the thread, so that the load is not started any more."""
        self._stopped.set()
        self._thread.join(timeout=_ANSWER_SECONDS + 1)

    def _wait(self) -> None:
        until = self._application.started + self._wanted["seconds"]
        while not self._stopped.is_set():
            with suppress(TradewindError, OSError):
                # Asked once even when the time is over: no process may have been there to ask before.
                if self._ready():
                    if not self._stopped.is_set():
                        self._begin()
                    return
                if self._engine.now() > until:
                    self._engine.call(lambda client: client.kill(self._application.id))
                    return
                answer = self._engine.call(lambda client: client.inspect_container(self._application.id))
                if not answer["State"]["Running"]:
                    return
            self._stopped.wait(_LOOK_SECONDS)

    def _begin(self) -> None:
        from docker.errors import APIError

        try:
            self._start()
        except APIError:
            # The engine has kept why; without a load there is nothing that the application is there for.
            self._engine.call(lambda client: client.kill(self._application.id))

    def _ready(self) -> bool:
        port = self._wanted["port"]
        if not self._matched:
            self._matched = self._said()
        if not self._matched:
            return False
        outside = self._application.ports.get(str(port)) if port is not None else None
        if outside is None:
            return port is None
        if self._wanted["path"]:
            return self._answers(outside, self._wanted["path"])
        return self._open(outside)

    def _said(self) -> bool:
        """True when a line of the application's output matches the pattern."""
        client = self._engine.client(_ANSWER_SECONDS)
        try:
            for stream, (position, rest) in self._log_positions.items():
                found, position = read_container_log(client, self._application.id, stream, position.offset, position)
                lines = (rest + found).split(b"\n")
                if any(re.search(self._wanted["pattern"], line.decode(errors="replace")) for line in lines):
                    return True
                self._log_positions[stream] = (position, lines[-1])
        finally:
            client.close()
        return False

    def _connect(self, port: int) -> socket.socket:
        """A connection to a port of the engine's machine."""
        link = self._engine.link
        if link is None:
            return socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_SECONDS)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(str(link.forward_socket(f"127.0.0.1:{port}")))
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self, port: int) -> bool:
        """True when the application takes connections; the engine's proxy takes them before it does, and hangs up."""
        with self._connect(port) as connection:
            connection.settimeout(_SILENT_SECONDS if self._engine.link is None else _ANSWER_SECONDS / 2)
            try:
                return bool(connection.recv(1))
            except TimeoutError:
                return True

    def _answers(self, port: int, path: str) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)
        try:
            connection.sock = self._connect(port)
            connection.request("GET", path, headers={"Connection": "close"})
            return connection.getresponse().status < 400
        except http.client.HTTPException:
            return False
        finally:
            connection.close()


def load_status(
    load: InspectedContainer,
    application: InspectedContainer,
    *,
    cancelled: bool,
    podman: bool,
    usage: Usage,
    from_outside: Callable[[InspectedContainer], bool],
) -> RunStatus:
    """The status of a run with a load generator whose containers have both ended, or never began.

    Args:
        load: The load's container.
        application: The application's container.
        cancelled: True when the run was cancelled.
        podman: True for Podman's containers.
        usage: The usage of the application.
        from_outside: Asks the engine whether somebody else ended a container.
    """
    last = max(load.finished, application.finished) if not load.started else load.finished
    ran, runtime = (max(0.0, last - since) if since else 0.0 for since in (application.started, application.begun))
    if cancelled:
        return RunStatus(RunState.CANCELLED, runtime=runtime, exit_code=exit_code_of(load.exit_code), usage=usage)
    if load.wall is not None and ran >= load.wall:
        reason = timeout_reason(load.wall)
        return RunStatus(RunState.TIMED_OUT, runtime=runtime, reason=reason, fault=Fault.JOB, usage=usage)
    if not application.started:
        return ended_status(
            application, cancelled=False, podman=podman, usage=usage, from_outside=lambda: from_outside(application)
        )
    began = load.started > 0 or bool(load.error)
    if began and not (load.started and application.finished < load.finished):
        status = ended_status(
            load, cancelled=False, podman=podman, usage=usage, from_outside=lambda: from_outside(load)
        )
        return replace(status, runtime=runtime)
    code = exit_code_of(application.exit_code)
    if was_out_of_memory(application, podman=podman):
        return failed_status(out_of_memory_words(application, "the application"), runtime, code, usage)
    seconds = readiness(load.labels)["seconds"]
    if not began and code < 0 and application.finished - application.started >= seconds:
        return failed_status(f"the application was not ready within {format_duration(seconds)}", runtime, code, usage)
    if code < 0 and from_outside(application):
        return lost_status("the application's container was stopped from outside, or its engine was restarted", runtime)
    if was_killed_within_limit(application):
        return failed_status(killed_words(application, "the application"), runtime, code, usage)
    when = "before the load generator did" if began else "before the load generator began"
    return failed_status(f"the application ended {when}, with code {code}", runtime, code or 1, usage)
