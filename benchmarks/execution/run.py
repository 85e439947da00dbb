"""Carry out plans for real and measure how much longer they take than planned; see README.md."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tradewind import plugins  # noqa: E402
from tradewind.deployer.runner.base import Runner  # noqa: E402
from tradewind.workflow.execution.options import ExecutionOptions  # noqa: E402
from tradewind.workflow.execution.pilots import PilotSettings  # noqa: E402
from tradewind.workflow.execution.plan_run import execute_plan  # noqa: E402
from tradewind.workflow.execution.results import measured_runtimes  # noqa: E402
from tradewind.workflow.files import Plan, read_plan  # noqa: E402
from tradewind.workflow.graph import Workflow  # noqa: E402
from tradewind.workflow.simulator.compiled import CompiledSimulator  # noqa: E402

WAYS = ("played", "alone", "program", "again")
SLEEP = shutil.which("sleep") or "/bin/sleep"


@contextmanager
def engine(name: str, base: Path) -> Iterator[dict[str, object]]:
    """Start what a runner needs, as the tests do, and give its settings."""
    if name == "local":
        yield {}
    elif name == "slurm":
        from tests.engines.slurm import slurm_cluster

        with slurm_cluster(base / "cluster", cpus=4) as cluster:
            os.environ["SLURM_CONF"] = str(cluster.conf)
            yield {"sbatch": ["--mem=200M"]}
    else:
        from tests.engines.ray import RayCluster

        ray = RayCluster()
        try:
            ray.start()
            yield {"address": ray.address}
        finally:
            ray.stop()


def programs(plan: Plan) -> Plan:
    """The same plan with a real program for each task: sleep, for the time that the plan has for it."""
    spans = plan.schedule.finish - plan.schedule.start
    tasks = tuple(
        replace(task, command=(SLEEP, f"{span:.6f}")) for task, span in zip(plan.flow.tasks, spans, strict=True)
    )
    return replace(plan, flow=Workflow(plan.flow.name, tasks, plan.flow.parents))


def start_seconds(times: int = 25) -> float:
    """What `sleep` takes by itself more than it sleeps: median over starts without anything of ours around them."""
    more = []
    for _ in range(times):
        time.sleep(0.1)  # as between the tasks of a plan, the processor has rested
        began = time.monotonic()
        os.waitpid(os.posix_spawn(SLEEP, [SLEEP, "0.1"], os.environ), 0)
        more.append(time.monotonic() - began - 0.1)
    return statistics.median(more)


def planned_alone(plan: Plan) -> Plan:
    """The same plan with the times that its programs take when each is started by itself, outside of Tradewind."""
    more = (start_seconds() * plan.platform.speeds[plan.schedule.vm]).tolist()
    tasks = tuple(replace(task, runtime=task.runtime + own) for task, own in zip(plan.flow.tasks, more, strict=True))
    flow = Workflow(plan.flow.name, tasks, plan.flow.parents)
    return replace(plan, flow=flow, schedule=CompiledSimulator(flow, plan.platform).follow(plan.schedule))


def planned_again(plan: Plan, results: Mapping[str, Any]) -> Plan:
    """The same plan with the times that `workflow plan --measured` expects after a run of it."""
    flow = measured_runtimes(plan.flow, [results])
    return replace(plan, flow=flow, schedule=CompiledSimulator(flow, plan.platform).follow(plan.schedule))


def once(plan: Plan, name: str, settings: dict[str, object], base: Path) -> tuple[dict[str, object], Mapping[str, Any]]:
    """One run of a plan: what was measured, and its `results.json`."""
    folder = Path(tempfile.mkdtemp(dir=base))
    part = "process" if name == "local" else name
    runner: Runner = plugins.create("runner", part, settings, data_folder=folder / ".runner")
    began, used = time.perf_counter(), time.process_time()
    carried = execute_plan(
        plan,
        folder,
        runner,
        options=ExecutionOptions(inputs=folder, synthetic=True, gather=120.0),
        planner=plugins.create("planner", "heft", {}),
        terms=PilotSettings(poll_seconds=0.5 if name == "local" else 2.0),
    )
    wall, cpu = time.perf_counter() - began, time.process_time() - used
    shutil.rmtree(folder)
    planned, actual = carried.results["planned"]["makespan"], carried.results["actual"]["makespan"]
    measured = {"planned": planned, "actual": actual, "ratio": actual / planned, "around": wall - actual, "cpu": cpu}
    return measured, carried.results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=Path, default=Path("/tmp/tradewind-execution"))
    parser.add_argument("--on", nargs="+", choices=("local", "slurm", "ray"), default=["local"])
    parser.add_argument("--only", nargs="+", default=[], help="names of plans")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("/tmp/tradewind-execution/results.jsonl"))
    given = parser.parse_args()
    if "again" in given.ways and given.ways.index("again") != given.ways.index("program") + 1:
        parser.error("--ways: again comes right after program, whose times it plans with")
    plans = {path.stem: read_plan(path) for path in sorted(given.plans.glob("*.json"))}
    for name in given.on:
        with tempfile.TemporaryDirectory() as scratch, engine(name, Path(scratch)) as settings:
            for turn in range(given.rounds):
                for plan_name, plan in plans.items():
                    if given.only and plan_name not in given.only:
                        continue
                    if name == "ray" and len(plan.platform.vms) > 2:
                        continue  # the cluster has two nodes of one CPU
                    carried = programs(plan)
                    results: Mapping[str, Any] = {}
                    for way in given.ways:
                        if way == "again":
                            carried = planned_again(carried, results)
                        one = plan if way == "played" else planned_alone(carried) if way == "alone" else carried
                        measured, results = once(one, name, settings, Path(scratch))
                        row = {"on": name, "plan": plan_name, "way": way, "turn": turn, "load": os.getloadavg()[0]}
                        row |= {"tasks": len(plan.flow), "vms": len(plan.platform.vms), **measured}
                        with given.out.open("a") as file:
                            file.write(json.dumps(row) + "\n")
                        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
