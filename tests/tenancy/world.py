"""A store, searches that leave marks, and clusters on them: here, or in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.tenancy.allocators import policy

from tradewind import plugins
from tradewind.engine.search_builder import study_document
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.store.base import Store
from tradewind.store.clusters.cluster_store import ClusterStore, JobRow
from tradewind.tenancy.allocator import AllocationPolicy
from tradewind.tenancy.node_monitor import NodeSource
from tradewind.tenancy.shared_cluster import SharedCluster, SharedClusterSettings

JOB = """
name: {name}
job:
  command:
    - {python}
    - -c
    - |
      import os, time
      with open({marks!r} + "/{name}", "a") as file:
          cpus = len(os.sched_getaffinity(0))
          file.write(f"begin {{time.time()}} {{os.environ['TRADEWIND_RUN_ID']}} {{cpus}}\\n")
      time.sleep({seconds})
      with open({marks!r} + "/{name}", "a") as file:
          file.write(f"end {{time.time()}} {{os.environ['TRADEWIND_RUN_ID']}}\\n")
      print("loss", (({{{{ x }}}}) - 5) ** 2)
space: {{x: 1..40}}
offers: {{provider: local, vcpu: 1, memory: 1}}
objective: {{minimise: loss}}
interpret: [{{use: regex, patterns: 'loss (?P<loss>[0-9.]+)'}}]
budget: {{trials: {trials}}}
searcher: random
parallel: {parallel}
deploy: {{runner: {{use: process, share: false}}}}
"""


class FourCpus:
    """One node with four CPUs, whatever this machine has: the jobs sleep."""

    def nodes(self) -> dict[str, dict[str, float]]:
        return {"here": {"cpu": 4.0, "memory": 8.0}}


class World:
    """A store, a folder for marks, and clusters on them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.url = folder, f"sqlite:///{folder}/tradewind.db"
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.work = folder / "work"
        self.work.mkdir()
        self.store = ClusterStore(self.url)
        self.studies: Store = plugins.create("store", "sql", {}, url=self.url)

    def submit(
        self,
        name: str,
        tenant: str = "A",
        trials: int = 6,
        seconds: float = 0.05,
        parallel: int = 2,
        share: bool = False,
        future_runs: int | None = None,
        dollars: float | None = None,
        **options: Any,
    ) -> JobRow:
        how = {"seconds": seconds, "trials": trials, "parallel": parallel}
        text = JOB.format(name=name, python=sys.executable, marks=str(self.marks), **how)
        text = text.replace("share: false", "share: true") if share else text
        if dollars is not None:
            text = text.replace("budget: {trials", f"budget: {{dollars: {dollars}, trials")
        if future_runs is not None:
            text = text.replace(
                "objective: {minimise: loss}", f"objective: {{minimise: cost}}\nfuture_runs: {future_runs}"
            )
        spec = parse_spec(text, base=self.work)
        return self.store.submit(JobRow(0, tenant, name, study_document(spec), options))

    def cluster(
        self, nodes: NodeSource | None = None, how: AllocationPolicy | None = None, name: str = "default", **more: Any
    ) -> SharedCluster:
        settings = SharedClusterSettings(name, self.url, self.folder, how or policy(), {"engine": "process"}, **more)
        return SharedCluster(settings, nodes or FourCpus())

    def run_until(self, done: Callable[[], bool], seconds: float = 60.0, **more: Any) -> SharedCluster:
        cluster, until = self.cluster(**more), time.monotonic() + seconds
        cluster.run(lambda: not done() and time.monotonic() < until)
        return cluster

    def over(self) -> bool:
        return not self.store.jobs(open_only=True)

    def marks_of(self, name: str) -> list[list[str]]:
        path = self.marks / name
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def check_accounts(world: World, row: JobRow, trials: int) -> None:
    """Each trial ended once, each run was run once and has ended, and the money is the sum of the runs."""
    row = world.store.job(row.id)
    assert row.study_id is not None
    found = world.studies.trials(row.study_id)
    assert Counter(trial.state.value for trial in found) == {"succeeded": trials}
    runs = world.studies.runs(row.study_id)
    assert all(run.state.ended for run in runs)
    begun = Counter(mark[2] for mark in world.marks_of(row.name) if mark[0] == "begin")
    assert set(begun.values()) == {1}
    assert set(begun) <= {run.run_id for run in runs}
    assert sum(trial.spent for trial in found) == pytest.approx(sum(run.cost for run in runs))


_START = "import sys; from tradewind.cli.app import run; sys.exit(run(sys.argv[1:]))"


@contextmanager
def cluster_process(world: World, *words: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """``tradewind cluster start --until-empty`` in a process of its own, with further words."""
    command = [sys.executable, "-c", _START, "cluster", "start", "--store", world.url, "--until-empty", *words]
    about = {**os.environ, "TRADEWIND_HOME": str(world.folder), **environment}
    with subprocess.Popen(command, env=about, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()
