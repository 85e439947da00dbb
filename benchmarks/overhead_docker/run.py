"""Measures what the docker runner adds to a run over `docker run`, and what following 500 runs costs.

    python benchmarks/overhead_docker/run.py [--rounds 20] [--handles 500] [--seconds 20]

It starts a Docker daemon of its own (as root; see tests/engines/docker.py) with a small image, and prints the tables of
the README. The ways alternate, so that other work on the machine meets all of them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.deployer.helpers import OWNER
from tests.deployer.runner.docker.helpers import docker_runner, in_container
from tests.engines.docker import IMAGE, DockerEngine, docker_engine

from tradewind.deployer.runner.docker import monitor as docker_watch
from tradewind.deployer.runner.docker.names import ListedContainer
from tradewind.problem import Handle


def bare(engine: DockerEngine, folder: Path, number: int) -> None:
    """What a user would type, with the same limits and folders."""
    place = folder / f"bare-{number}"
    place.mkdir()
    words = ["run", "--rm", "--network", "none", "--cpus", "1", "--memory", "2g", "--memory-swap", "2g"]
    words += [
        "--pids-limit",
        "4096",
        "--user",
        "0:0",
        "-v",
        f"{folder}/work:/tradewind/work",
        "-v",
        f"{place}:/tradewind/run",
    ]
    done = engine.docker(*words, "-w", "/tradewind/work", "--entrypoint", "true", IMAGE)
    assert done.returncode == 0


def runs(engine: DockerEngine, folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of each run: by ``docker run``, and by the runner from `submit` to `forget`."""
    runner = docker_runner(folder, engine, grace=0.5)

    def ours(number: int) -> None:
        request = in_container(folder, ("true",), f"run-{number}")
        handle = runner.submit(request, [])
        while not runner.poll([handle])[request.run_id].state.ended:
            runner.wait([handle], 1.0)
        runner.collect(handle, request)
        runner.forget(handle)

    ways: dict[str, Callable[[int], None]] = {"docker run": lambda n: bare(engine, folder, n), "Tradewind": ours}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-1, rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            way(number)
            if number >= 0:  # the first of each warms up
                times[name].append(time.perf_counter() - began)
    runner.close()
    return times


def follow(engine: DockerEngine, folder: Path, handles: int, running: int, seconds: int) -> tuple[float, float]:
    """Shares of a core that one poll a second takes: ours, and the daemon's."""
    runner = docker_runner(folder, engine)
    requests = [in_container(folder, ("sleep", "3600"), f"follow-{i}") for i in range(handles)]

    def create(i: int) -> Handle:
        request = requests[i]
        if i < running:
            return runner.submit(request, [])
        request.folder.mkdir(parents=True)
        labels = {"run": request.run_id, "owner": OWNER, "role": "job", "wall": "", "memory": ""}
        words = [f"--label=tradewind.{key}={value}" for key, value in labels.items()]
        engine.docker("create", "--name", f"tradewind-{request.run_id}", "--network", "none", *words, IMAGE, "true")
        return Handle(request.run_id, "docker", {"owner": OWNER})

    with ThreadPoolExecutor(4) as pool:
        followed = list(pool.map(create, range(handles)))
    setattr(docker_watch, "Listed", _Pretended)  # noqa: B010  (a name that it imports)
    for _ in range(12):  # each run is looked at once when it is first seen
        runner.poll(followed)
    daemon = int((engine.folder / "d.pid").read_text())
    began, cpu, theirs = time.monotonic(), time.process_time(), _cpu(daemon)
    for turn in range(seconds):
        assert len(runner.poll(followed)) == handles
        time.sleep(max(0.0, began + turn + 1 - time.monotonic()))
    passed = time.monotonic() - began
    shares = (time.process_time() - cpu) / passed, (_cpu(daemon) - theirs) / passed
    runner.close()
    return shares


class _Pretended(ListedContainer):
    """Containers that were only created are followed as if they ran."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> ListedContainer:
        return ListedContainer.of({**row, "State": "running"})


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--handles", type=int, default=500)
    parser.add_argument("--running", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=20)
    given = parser.parse_args()
    with docker_engine() as engine, tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "work").mkdir()
        print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs, Docker", _version(engine))
        times = runs(engine, folder, given.rounds)
        print("| way | wall time per run, median | least and most |\n|---|---|---|")
        for name, seconds in times.items():
            middle, least, most = (1000 * each for each in (statistics.median(seconds), min(seconds), max(seconds)))
            print(f"| {name} | {middle:.0f} ms | {least:.0f} ms to {most:.0f} ms |")
        pairs = [ours - bare for bare, ours in zip(times["docker run"], times["Tradewind"], strict=True)]
        print(f"\nTradewind takes {1000 * statistics.median(pairs):+.0f} ms (median of the pairs)")
        ours, theirs = follow(engine, folder, given.handles, given.running, given.seconds)
        print(f"{given.handles} followed ({given.running} of them running), a poll a second:")
        print(f"{ours:.1%} of a core for Tradewind, {theirs:.1%} for the daemon; load {os.getloadavg()[0]:.1f}")


def _version(engine: DockerEngine) -> str:
    words = ["version", "--format", "{{.Server.Version}}"]
    return engine.docker(*words).stdout.decode().strip()


if __name__ == "__main__":
    main()
