"""Measures what the ssh runner adds to a run over `ssh host command`.

    python benchmarks/overhead_ssh/run.py [--rounds 30]

It starts an SSH server of its own on 127.0.0.1 (see tests/engines/ssh.py), and prints the table of the README. The ways
alternate, so that other work on the machine meets all of them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.deployer.helpers import request_for
from tests.engines.ssh import Sshd

from tradewind.deployer.runner.ssh.runner import SshRunner
from tradewind.deployer.runner.ssh.settings import SshRunnerSettings
from tradewind.deployer.ssh_connection import SshConnection, SshSettings, SshTarget
from tradewind.problem import Machine


def measure(server: Sshd, folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of each run, by way."""
    settings = SshRunnerSettings(ssh=SshSettings(**server.facts), folder=str(folder / "far"))
    runner = SshRunner(settings=settings, data_folder=folder / "data")
    link = SshConnection(SshTarget(server.address, **server.facts))
    fresh = ["ssh", "-F", "/dev/null", "-o", "BatchMode=yes", "-p", str(server.port), "-i", str(server.keys.client)]
    fresh += ["-o", f"UserKnownHostsFile={server.facts['known_hosts']}", server.address, "true"]

    def ours(number: int) -> None:
        request = request_for(folder, ("true",), f"run-{number}")
        handle = runner.submit(request, [Machine("m", server.address)])
        while not runner.poll([handle])[request.run_id].state.ended:
            runner.wait([handle], 1.0)
        runner.collect(handle, request)
        runner.forget(handle)

    ways: dict[str, Callable[[int], object]] = {
        "ssh, a new connection": lambda _: subprocess.run(fresh, check=True),
        "ssh, over an open connection": lambda _: link.run(["true"]),
        "Tradewind": ours,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-1, rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            way(number)
            if number >= 0:  # the first of each opens connections and sends files
                times[name].append(time.perf_counter() - began)
    runner.close()
    link.close()
    return times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        server = Sshd(Path(made) / "sshd")
        server.start()
        try:
            times = measure(server, Path(made), given.rounds)
        finally:
            server.stop()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs")
    print("| way | wall time per run, median | least and most |\n|---|---|---|")
    for name, seconds in times.items():
        middle, least, most = (1000 * each for each in (statistics.median(seconds), min(seconds), max(seconds)))
        print(f"| {name} | {middle:.0f} ms | {least:.0f} ms to {most:.0f} ms |")
    for name in list(times)[:2]:
        pairs = [ours - bare for bare, ours in zip(times[name], times["Tradewind"], strict=True)]
        print(f"against {name}: {1000 * statistics.median(pairs):+.0f} ms (median of the pairs)")


if __name__ == "__main__":
    main()
