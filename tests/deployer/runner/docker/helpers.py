"""What the tests of the docker runner share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.deployer.helpers import OWNER, request_for
from tests.engines.docker import IMAGE, PYTHON, DockerEngine

from tradewind.deployer.runner.docker.runner import DockerRunner
from tradewind.deployer.runner.docker.settings import DockerSettings
from tradewind.problem import RunRequest, RunStatus

Make = Callable[..., DockerRunner]


def docker_runner(folder: Path, engine: DockerEngine | str, **settings: Any) -> DockerRunner:
    """A runner over a folder; quick to end things, and without a reaper of its own."""
    host = engine if isinstance(engine, str) else engine.host
    given = {"host": host, "network": "none", "grace": 0, "reaper": False, "share": False, **settings}
    return DockerRunner(settings=DockerSettings(**given), data_folder=folder / "data")


@contextmanager
def runners(folder: Path, engine: DockerEngine) -> Iterator[Make]:
    """Makes runners, and removes what their runs left."""
    made: list[DockerRunner] = []

    def make(**settings: Any) -> DockerRunner:
        made.append(docker_runner(folder, engine, **settings))
        return made[-1]

    yield make
    for runner in made:
        for handle in runner.find(OWNER):
            runner.forget(handle)
        runner.close()


def in_container(base: Path, argv: Sequence[str], run_id: str = "run-1", **changes: Any) -> RunRequest:
    """A request for a command in the test image."""
    return request_for(base, argv, run_id, **{"image": IMAGE, **changes})


def code(text: str) -> tuple[str, ...]:
    """The command that runs some Python code in a container."""
    return (PYTHON, "-S", "-c", text)


def finish(runner: DockerRunner, request: RunRequest) -> RunStatus:
    """Submit a run, wait for its end, and collect what it left."""
    handle = runner.submit(request, [])
    status = ended_within(runner, handle, 60)
    runner.collect(handle, request)
    return status


def ended_within(runner: DockerRunner, handle: Any, seconds: float) -> RunStatus:
    """Wait for the end of a run."""
    end = time.monotonic() + seconds
    while True:
        status = runner.poll([handle])[handle.run_id]
        if status.state.ended:
            return status
        assert time.monotonic() < end, f"the run is still {status}"
        runner.wait([handle], 0.5)
