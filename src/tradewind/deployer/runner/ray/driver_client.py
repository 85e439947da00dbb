"""Calls from the controller to the helper process that is connected to Ray (see `driver.py` beside this)."""

from __future__ import annotations

import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from pathlib import Path
from typing import Any, ClassVar

from tradewind import plugins
from tradewind.deployer.runner.warden.warden import WARDEN_SOURCES
from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    MissingProgramError,
    PrerequisiteError,
    TradewindError,
    UnreachableError,
)
from tradewind.utils.dependencies import install_command

# The helper runs with another Python perhaps, which has Ray and need not have Tradewind: the packages above it are
# entered without running their __init__ modules. The folder that it was started in is taken off the path: a file or a
# folder there that is named ray would be taken for Ray.
_BOOTSTRAP = """
import sys, types
sys.path[:] = [place for place in sys.path if place]
name, path = "tradewind", sys.argv[1]
for part in ("", "deployer", "runner", "ray"):
    if part:
        name, path = name + "." + part, path + "/" + part
    module = types.ModuleType(name)
    module.__path__ = [path]
    sys.modules[name] = module
from tradewind.deployer.runner.ray.driver import main
main()
"""
_PACKAGE = Path(__file__).parents[3]
_PAUSE_SECONDS = 5.0
_SILENCE_SECONDS = 30.0
_HINT = install_command("ray")


def driver_command(python: str) -> list[str]:
    """The command line that starts a helper."""
    return [python or sys.executable, "-c", _BOOTSTRAP, str(_PACKAGE)]


def warden_sources() -> dict[str, str]:
    """The sources that a node needs to watch a run, by path below the folder that Python looks into."""
    folder = Path(__file__).parents[1]
    names = (*WARDEN_SOURCES, "ray/warden.py")
    return {f"tradewind/deployer/runner/{name}": (folder / name).read_text(encoding="utf-8") for name in names}


def find_ray() -> None:
    """Check that this Python has Ray.

    Raises:
        MissingProgramError: It does not.
    """
    if not plugins.installed("ray"):
        raise MissingProgramError(f"{sys.executable} has no Ray", hint=f"{_HINT}, or set python to one that has it")


class RayDriverClient:
    """Calls to a Ray cluster, through a helper process that is started when it is needed and replaced when it dies.

    It may be used by several threads. Every call ends: with an answer, or with an error after its time. All runners of
    this process that use the same cluster share one, see `shared`.

    Args:
        address: The cluster, as ``ray.init`` takes it.
        python: The Python that has Ray; empty for this one.
        connect_seconds: How long connecting may take.
        log: File that gets what Ray prints.
    """

    _all: ClassVar[dict[tuple[str, str], RayDriverClient]] = {}
    _all_lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def shared(cls, *, address: str, python: str, connect_seconds: float, log: Path) -> RayDriverClient:
        """The client of a cluster that all runners of this process share.

        It must be closed as often as it was asked for. The arguments are those of the class.
        """
        with cls._all_lock:
            key = (address, python)
            if key not in cls._all:
                cls._all[key] = cls(address=address, python=python, connect_seconds=connect_seconds, log=log)
            cls._all[key]._users += 1
            return cls._all[key]

    def __init__(self, *, address: str, python: str, connect_seconds: float, log: Path) -> None:
        self._first = {"address": address}
        self._key = (address, python)
        self._users = 0
        self._where = address or "the Ray cluster of this machine"
        self._python = python
        self._connect_seconds = connect_seconds
        self._log = log
        self._lock = threading.RLock()
        self._helper: _Helper | None = None
        self._not_before = 0.0
        self._last: TradewindError | None = None

    def call(self, op: str, *, seconds: float, patient: bool = True, **arguments: Any) -> Any:
        """Do something on the cluster.

        Args:
            op: A method of the `Driver` there.
            seconds: How long it may take once the helper is connected.
            patient: Wait for the helper's connection; otherwise a missing connection is an error.
            arguments: The arguments of the method.

        Returns:
            What the method returns, as JSON has it.

        Raises:
            UnreachableError: The cluster does not answer, or not in time.
            CredentialsError: It does not accept our token.
            CapacityError: No node can ever run it.
            MissingProgramError: The helper's Python has no Ray.
            DeployError: The call failed for another reason.
        """
        helper = self._ready(self._connect_seconds if patient else 0.0)
        answer = helper.send(op, arguments)
        try:
            return answer.result(seconds)
        except TimeoutError:
            if time.monotonic() - helper.heard > _SILENCE_SECONDS:
                self._drop(helper)
            raise UnreachableError(f"{self._where} did not answer within {seconds:g} s") from None
        except _DriverFailure as failure:
            if failure.kind == "restarted":
                self._drop(helper)
            raise self._error(failure) from None

    def ask(self, op: str, *, patient: bool = True, **arguments: Any) -> Future[Any]:
        """Start a call that may last; arguments and errors are those of `call`.

        Returns:
            A future of the answer; it fails with an error when the helper is lost.
        """
        return self._ready(self._connect_seconds if patient else 0.0).send(op, arguments)

    def _ready(self, seconds: float) -> _Helper:
        with self._lock:
            helper = self._helper
            if helper is not None and helper.ended:
                self._drop(helper)
                helper = None
            if helper is None:
                if time.monotonic() < self._not_before and self._last is not None:
                    raise self._last
                helper = self._helper = _Helper(driver_command(self._python), self._log, self._error)
                helper.begin({**self._first, "code": warden_sources()})
        try:
            helper.connected.result(seconds)
        except TimeoutError:
            if seconds or time.monotonic() - helper.heard > self._connect_seconds:
                self._drop(helper)
            raise UnreachableError(f"{self._where} has not answered yet") from None
        except _DriverFailure as failure:
            self._last, self._not_before = self._error(failure), time.monotonic() + _PAUSE_SECONDS
            self._drop(helper)
            raise self._last from None
        return helper

    def _error(self, failure: _DriverFailure) -> TradewindError:
        kind, text = failure.kind, failure.text.strip().splitlines()
        words = f"Ray at {self._where}: {text[0] if text else kind}"
        match kind:
            case "unreachable" | "gone" | "restarted":
                return UnreachableError(words, hint="start the cluster, or set address")
            case "credentials":
                return CredentialsError(words, hint="set RAY_AUTH_MODE and RAY_AUTH_TOKEN as on the cluster")
            case "capacity":
                return CapacityError(words, hint="add such a node, or set autoscales: true if the cluster will")
            case "version":
                hint = "set python to one with the cluster's versions of Python and Ray"
                return PrerequisiteError(words, hint=hint)
            case "missing":
                return MissingProgramError(f"{self._python or sys.executable} has no Ray: {failure.text}", hint=_HINT)
            case "large":
                return DeployError(
                    "the outputs are larger than output_bytes", hint="keep less, or raise it", retryable=False
                )
            case _:
                return DeployError(words)

    def _drop(self, helper: _Helper) -> None:
        with self._lock:
            if self._helper is helper:
                self._helper = None
        helper.kill()

    def close(self) -> None:
        """End the helper once nobody else uses it, after some seconds at most for the calls under way."""
        with self._all_lock:
            self._users -= 1
            if self._users > 0:
                return
            self._all.pop(self._key, None)
        with self._lock:
            helper, self._helper = self._helper, None
        if helper is not None:
            helper.finish()


class _DriverFailure(Exception):  # noqa: N818  (it is an answer)
    """A failed call: the kind of error that the helper names, and its text."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class _Helper:
    """One helper process."""

    def __init__(self, command: list[str], log: Path, error: Callable[[_DriverFailure], TradewindError]) -> None:
        self.connected: Future[Any] = Future()
        self.heard = time.monotonic()
        self._calls: dict[int, Future[Any]] = {0: self.connected}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = {"RAY_USAGE_STATS_ENABLED": "0", **os.environ}
        try:
            with log.open("ab") as errors:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=environment,
                    cwd=log.parent,
                    start_new_session=True,
                )
        except OSError as problem:
            raise MissingProgramError(
                f"{command[0]} cannot be run: {problem.strerror}", hint="set python to a Python that has Ray"
            ) from problem
        for work in (self._listen, self._write):
            threading.Thread(target=work, name="tradewind-ray", daemon=True).start()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def begin(self, document: dict[str, Any]) -> None:
        self._out.put(json.dumps(document).encode() + b"\n")

    def send(self, op: str, arguments: dict[str, Any]) -> Future[Any]:
        answer: Future[Any] = Future()
        with self._lock:
            number = next(self._numbers)
            self._calls[number] = answer
        if self.ended:
            self._lose()
        self._out.put(json.dumps({"id": number, "op": op, **arguments}).encode() + b"\n")
        return answer

    def _write(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        while (line := self._out.get()) is not None:
            try:
                pipe.write(line)
                pipe.flush()
            except OSError:
                break
        try:
            pipe.close()
        except OSError:  # what was still to be written cannot be
            return

    def _listen(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        for line in pipe:
            self.heard = time.monotonic()
            answer = json.loads(line)
            with self._lock:
                call = self._calls.pop(answer["id"], None)
            if call is None:
                continue
            if "error" in answer:
                call.set_exception(_DriverFailure(answer["error"], answer["message"]))
            else:
                call.set_result(answer["answer"])
        self._process.wait()
        pipe.close()
        self._lose()
        self._out.put(None)

    def _lose(self) -> None:
        with self._lock:
            calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            try:
                call.set_exception(_DriverFailure("gone", "the helper process has ended"))
            except InvalidStateError:
                continue

    def kill(self) -> None:
        self._process.kill()
        self._out.put(None)

    def finish(self) -> None:
        self.send("leave", {})
        self._out.put(None)
        try:
            self._process.wait(8.0)
        except subprocess.TimeoutExpired:
            self.kill()
