"""What Tradewind adds to a job on Slurm, and what following 500 of them costs; see README.md."""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.engines.slurm import SlurmCluster, slurm_cluster  # noqa: E402

from tradewind.deployer.lifecycle.deployer import Deployer  # noqa: E402
from tradewind.deployer.provisioner.none import NoneProvisioner, NoneSettings  # noqa: E402
from tradewind.deployer.runner.slurm.options import SlurmSettings  # noqa: E402
from tradewind.deployer.runner.slurm.runner import SlurmRunner  # noqa: E402
from tradewind.problem import Billing, Configuration, Handle, Offer, Run, RunRequest, RunState  # noqa: E402

OFFER = Offer("local", "small", 1, 0.04, 1.0)


def cpu() -> float:
    """Seconds of processor time of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def request(folder: Path, run_id: str, *argv: str) -> RunRequest:
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    return RunRequest(
        run_id=run_id,
        owner="benchmark",
        expires=time.time() + 3600,
        argv=argv,
        folder=folder / "runs" / run_id,
        workdir=work,
        offer=OFFER,
        configuration=Configuration({"x": 1}),
    )


def by_hand(cluster: SlurmCluster, jobs: int, folder: Path) -> float:
    """Wall time from the submission of an array until its last job has ended."""
    script = folder / "job.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    began = time.perf_counter()
    words = ["--parsable", "--mem=41M", "--chdir=/", "--output=/dev/null", f"--array=0-{jobs - 1}"]
    cluster.call("sbatch", *words, str(script))
    while cluster.jobs():
        time.sleep(0.1)
    return time.perf_counter() - began


def by_tradewind(jobs: int, folder: Path) -> tuple[float, float]:
    """Wall time from the launch of as many runs until the last one is settled, and processor time used here."""
    runner = SlurmRunner(settings=SlurmSettings(), data_folder=folder / "data")
    none = NoneProvisioner(settings=NoneSettings(), data_folder=folder / "data")
    deployer = Deployer(provisioner=none, runner=runner, billing=Billing(), owner="benchmark")
    requests = [request(folder, f"run-{i}", "true") for i in range(jobs)]
    began, used = time.perf_counter(), cpu()
    for i, each in enumerate(requests):
        deployer.launch(Run(each.run_id, i), each)
    left = jobs
    while left:
        for run in deployer.poll():
            if run.state.ended:
                assert run.state is RunState.DONE, run
                deployer.settle(run.run_id)
                left -= 1
        if left:
            deployer.wait(1.0)
    taken = time.perf_counter() - began, cpu() - used
    deployer.close()
    return taken


def overhead(cluster: SlurmCluster, rounds: int, jobs: int, base: Path) -> None:
    """Print the table of the time per job; the ways alternate."""
    hand, ours, cpus = [], [], []
    for turn in range(rounds):
        folder = base / str(turn)
        folder.mkdir()
        hand.append(by_hand(cluster, jobs, folder) / jobs * 1000)
        wall, used = by_tradewind(jobs, folder)
        ours.append(wall / jobs * 1000)
        cpus.append(used / jobs * 1000)
        while cluster.jobs():
            time.sleep(0.1)
    print(f"load {os.getloadavg()[0]:.1f}; {rounds} rounds of {jobs} jobs")
    print("| way | wall time per job, median | least and most |")
    print("|---|---|---|")
    for name, figures in (("an array by hand", hand), ("Tradewind", ours)):
        print(f"| {name} | {statistics.median(figures):.1f} ms | {min(figures):.1f} ms to {max(figures):.1f} ms |")
    print(
        f"processor time of Tradewind's own process and of Slurm's programs: {statistics.median(cpus):.1f} ms per job"
    )


def following(cluster: SlurmCluster, concurrent: int, seconds: int, base: Path) -> None:
    """Print what one poll a second of so many running jobs costs."""
    runner = SlurmRunner(settings=SlurmSettings(interval=0.5, timeout=20.0), data_folder=base / "data")
    requests = [request(base, f"long-{i}", "sleep", "600") for i in range(concurrent)]
    handles = [h for h in runner.submit_all([(each, ()) for each in requests]).values() if isinstance(h, Handle)]
    end = time.monotonic() + 240
    running = 0
    while running < concurrent and time.monotonic() < end:
        running = sum(s.state is RunState.EXECUTING for s in runner.poll(handles).values())
        time.sleep(1.0)
    before, began = cpu(), time.perf_counter()
    for _ in range(seconds):
        runner.poll(handles)
        time.sleep(1.0)
    share = (cpu() - before) / (time.perf_counter() - began)
    print(f"{running} of {concurrent} runs running, one poll a second for {seconds} s: {100 * share:.1f} % of a core")
    subprocess.run(["scancel", "--me"], check=False, env=cluster.env)
    end = time.monotonic() + 240
    while cluster.jobs() and time.monotonic() < end:
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--concurrent", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        if given.rounds:
            (base / "a").mkdir()
            with slurm_cluster(base / "cluster-a") as cluster:
                os.environ["SLURM_CONF"] = str(cluster.conf)
                overhead(cluster, given.rounds, given.jobs, base / "a")
        if given.concurrent:
            with slurm_cluster(base / "cluster-b", cpus=-(-given.concurrent // 3)) as cluster:
                os.environ["SLURM_CONF"] = str(cluster.conf)
                following(cluster, given.concurrent, given.seconds, base / "b")


if __name__ == "__main__":
    main()
