"""Kills controllers at calls that they make, and sees that the next one finds everything and leaves nothing."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from tests.deployer.helpers import OWNER, drive, row

from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.problem import RunRequest, RunState

STEPS = ("before", "during", "after")


class Scene(ABC):
    """What is the same in the process that is killed and in the one that looks on.

    Args:
        folder: An empty folder.
        address: Where the engine is.

    Attributes:
        module: The module of the class, for the other process.
    """

    module: ClassVar[str]

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address

    @abstractmethod
    def controller(self) -> Deployer:
        """A deployer over the engine."""

    @abstractmethod
    def request(self, run_id: str) -> RunRequest:
        """A job that counts in its working folder, in ``count-RUN``, how often it ran."""

    @abstractmethod
    def doom(self, call: int, step: str) -> None:
        """Have this process killed at a step of a call."""


def die_at(kind: type, method: str, call: int, step: str, delay: Callable[[], float]) -> None:
    """Kill this process before, during or after the nth call of a method.

    Args:
        kind: The class that has the method.
        method: Its name.
        call: The number of the call, from 1.
        step: One of `STEPS`; with another one it dies after the call, if it lives that long.
        delay: Seconds into the call, for ``during``.
    """
    plain, count = getattr(kind, method), [0]

    def counted(*arguments: Any, **options: Any) -> Any:
        count[0] += 1
        mine = count[0] == call
        if mine and step == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if mine and step == "during":
            die_in(delay())
        answer = plain(*arguments, **options)
        if mine:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(kind, method, counted)


def die_in(seconds: float) -> None:
    """Have this process killed in a moment."""
    if os.fork() == 0:
        time.sleep(seconds)
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(0)


def host(scene: Scene) -> None:
    """Reads orders ``RUN CALL STEP`` and forks controllers, which kill themselves there."""
    for line in sys.stdin:
        run_id, call, step = line.split()
        child = os.fork()
        if child == 0:
            scene.doom(int(call), step)
            deployer = scene.controller()
            deployer.launch(row(run_id), scene.request(run_id))
            drive(deployer, run_id)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print("killed" if os.WIFSIGNALED(status) else f"ended {status}", flush=True)


class Killing:
    """Kills controllers, and looks at what is left after the next one has been there.

    Args:
        scene: Where.
        clean: Sees, with the controller that came after, that nothing is left of a run; the last argument tells which
            one in words.
    """

    def __init__(self, scene: Scene, clean: Callable[[Deployer, str, str], None]) -> None:
        self._scene, self._clean = scene, clean
        name = type(scene).__name__
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        code += "from pathlib import Path\nfrom tests.deployer.kills import host\n"
        code += f"from {scene.module} import {name}\nhost({name}(Path({str(scene.folder)!r}), {scene.address!r}))"
        self._host = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TRADEWIND_TEST_OWNER": OWNER},
        )

    def once(self, run_id: str, call: int, step: str, *, adopt: bool) -> str:
        """Kill one controller; what became of it: ``killed``, or ``ended`` when it did not get that far.

        Raises:
            AssertionError: Something is left, a run is lost, or its job ran twice.
        """
        assert self._host.stdin is not None
        assert self._host.stdout is not None
        self._host.stdin.write(f"{run_id} {call} {step}\n")
        self._host.stdin.flush()
        ready, _, _ = select.select([self._host.stdout], [], [], 60)
        assert ready, "the controller neither ended nor was killed"
        told = self._host.stdout.readline()
        deployer = self._scene.controller()
        place = f"{run_id}, killed {step} call {call}, {'adopted' if adopt else 'swept'}"
        try:
            if adopt:
                deployer.adopt(row(run_id), self._scene.request(run_id))
                [*_, last] = drive(deployer, run_id)
                assert last.state is RunState.DONE, f"{place}: {last}"
                deployer.settle(run_id)
            self._clean(deployer, run_id, place)
        finally:
            deployer.close()
        count = self._scene.folder / "work" / f"count-{run_id}"
        ran = count.read_text().count("ran") if count.exists() else 0
        assert ran == 1 if adopt else ran <= 1, f"{place}: it ran {ran} times"
        return told.split()[0]

    def close(self) -> None:
        """Stop."""
        assert self._host.stdin is not None
        self._host.stdin.close()
        self._host.wait(10)
        assert self._host.stdout is not None
        self._host.stdout.close()
