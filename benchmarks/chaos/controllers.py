"""Processes that run a command, and kill themselves or are killed: copies of one that has imported everything.

A copy is what ``tradewind tune`` or ``tradewind workflow run`` is, but for the second that starting Python takes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

_MOTHER = """
import importlib, json, os, pkgutil, signal, sys, time
import tradewind
OTHERS = ("service", "testing", "__main__", "deployer.runner.replay")
for found in pkgutil.walk_packages(tradewind.__path__, "tradewind."):
    if not found.name.partition(".")[2].startswith(OTHERS):
        try:
            importlib.import_module(found.name)
        except ImportError:
            continue  # a package of an engine that is not used here
for name in {imports!r}:
    importlib.import_module(name)
from tradewind import plugins
from tradewind.cli.app import run

def doomed(kind, name, method, when, number):
    module, _, own = name.partition(":")
    part = getattr(importlib.import_module(module), own) if kind == "class" else plugins.load(kind, name)
    plain, count = getattr(part, method), [0]

    def counted(*given, **named):
        count[0] += 1
        mine = count[0] == number
        if mine and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = plain(*given, **named)
        if mine:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(part, method, counted)

def command(order):
    os.chdir(order["folder"])
    os.environ.update(order["environment"])
    log = os.open("controllers.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if order["stage"]:
        doomed(*order["stage"])
    return run(order["words"])

print("ready", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            code = command(order)
        finally:
            os._exit(code)
    began, killed = time.monotonic(), False
    while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0):
        if not killed and time.monotonic() - began > order["seconds"]:
            os.kill(pid, signal.SIGKILL)  # it is not waited for yet, so that the number is still its own
            killed = True
        time.sleep(0.002)
    code = os.waitstatus_to_exitcode(ended[1])
    print(json.dumps([code, killed, time.monotonic() - began]), flush=True)
"""


@dataclass(frozen=True)
class Death:
    """How a controller ended.

    Attributes:
        code: What it exited with, or minus the signal.
        by_time: True when its time was over, and not when it came to its stage.
        seconds: How long it lived.
    """

    code: int
    by_time: bool
    seconds: float


class Controllers:
    """Starts commands that end at some moment.

    Args:
        imports: Packages that the engine's parts import late.
    """

    def __init__(self, imports: Sequence[str] = ()) -> None:
        self._mother = subprocess.Popen(
            [sys.executable, "-c", _MOTHER.format(imports=tuple(imports))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self._mother.stdin is not None and self._mother.stdout is not None
        self._in, self._out = self._mother.stdin, self._mother.stdout
        if self._out.readline() != "ready\n":
            raise RuntimeError("the process that controllers are copies of did not start")

    def run(
        self,
        folder: Path,
        words: Sequence[str],
        *,
        seconds: float,
        environment: Mapping[str, str],
        stage: Sequence[Any] | None = None,
    ) -> Death:
        """Run a command in a folder, until the end, the stage, or the time.

        Args:
            folder: The folder.
            words: The command, without ``tradewind``.
            seconds: After that it is killed.
            environment: Further variables.
            stage: It kills itself there: kind and name of a part (or ``class`` and ``module:Class``), its method,
                ``before`` or ``after``, which call.
        """
        order = {"folder": str(folder), "words": list(words), "seconds": seconds, "stage": stage}
        self._in.write(json.dumps({**order, "environment": dict(environment)}) + os.linesep)
        self._in.flush()
        return Death(*json.loads(self._out.readline()))

    def close(self) -> None:
        """End the process that they are copies of."""
        self._in.close()
        self._mother.wait(30)
        self._out.close()
