"""What a shared cluster adds to a trial, and how many asked and told trials a second its store keeps.

    python benchmarks/tenancy/overhead.py                      # everything: about five minutes
    python benchmarks/tenancy/overhead.py --only trial

- ``trial``: one search of ``true`` on the local cluster: its wall time a trial, beside that of ``true`` alone.
- ``pairs``: 1, 2, 4, 8 searches at once, each a study of its own that asks for a configuration, tells a result at once,
  and does so again. In ``processes`` each has a process; in ``threads`` all are in one, as Cores of a cluster are. All
  told results are on the disk before the next is asked for: SQLite with ``synchronous = FULL``, PostgreSQL with fsync.
  Optuna is asked and told beside it in the same run, with random search on SQLite, as it comes.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import pwd
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

WORKERS = (1, 2, 4, 8)
SPACE = {f"x{i}": {"type": "float", "low": 0, "high": 1} for i in range(6)}


def document(name: str, trials: int) -> dict[str, Any]:
    """A problem of six numbers."""
    return {
        "name": name,
        "space": SPACE,
        "offers": {"provider": "local", "vcpu": 1, "memory": 1},
        "objective": {"minimise": "loss"},
        "interpret": [{"use": "json_lines"}],
        "budget": {"trials": trials},
        "searcher": "random",
    }


def tradewind(url: str, name: str, pairs: int, ready: Callable[[], object]) -> None:
    """Ask and tell."""
    from tradewind.engine.study import Study

    with Study(document(name, pairs + 1), store=url) as study:
        study.tell(study.ask()[0], runtime=1.0, metrics={"loss": 1.0})  # imports and first statements
        ready()
        for _ in range(pairs):
            asked = study.ask()[0]
            study.tell(asked, runtime=1.0, metrics={"loss": float(asked.configuration["x0"])})


def optuna(url: str, name: str, pairs: int, ready: Callable[[], object]) -> None:
    """The same with Optuna."""
    import optuna as peer

    peer.logging.set_verbosity(peer.logging.ERROR)
    storage = peer.storages.RDBStorage(url, engine_kwargs={"connect_args": {"timeout": 100}})
    study = peer.create_study(
        study_name=name, storage=storage, sampler=peer.samplers.RandomSampler(), load_if_exists=True
    )

    def pair() -> None:
        trial = study.ask()
        values = [trial.suggest_float(each, 0, 1) for each in SPACE]
        study.tell(trial, values[0])

    pair()
    ready()
    for _ in range(pairs):
        pair()


def rate(
    what: Callable[..., None], url: str, workers: int, pairs: int, *, threads: bool, shared: bool = False
) -> float:
    """Pairs a second of all workers together, from the first one's start to the last one's end."""
    context: Any = threading if threads else multiprocessing.get_context("spawn")
    ready = context.Barrier(workers + 1)
    make = threading.Thread if threads else context.Process
    mark = time.monotonic_ns()
    names = [f"s{mark}-{0 if shared else number}" for number in range(workers)]
    if what is optuna:
        optuna(url, names[0], 1, lambda: None)  # makes the tables, which Optuna's workers do not do at once
    all_ = [make(target=what, args=(url, name, pairs, ready.wait)) for name in names]
    for each in all_:
        each.start()
    ready.wait(120)
    began = time.perf_counter()
    for each in all_:
        each.join()
    return workers * pairs / (time.perf_counter() - began)


@contextlib.contextmanager
def postgresql() -> Iterator[str | None]:
    """A server of its own on this disk, with fsync, or None where PostgreSQL is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        yield None
        return
    binaries, folder = found[-1].parent, Path(tempfile.mkdtemp(prefix="twpg", dir="/tmp"))
    options: dict[str, Any] = {"cwd": folder, "check": True, "timeout": 100, "stdout": subprocess.DEVNULL}
    if os.geteuid() == 0:  # the server refuses to be run by root
        entry = pwd.getpwnam("postgres")
        options |= {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        shutil.chown(folder, "postgres")
    data = folder / "data"
    try:
        subprocess.run([binaries / "initdb", "-D", data, "-U", "tw", "-A", "trust", "-E", "UTF8"], **options)
        flags = f"-k {folder} -c listen_addresses="
        subprocess.run([binaries / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", flags, "start"], **options)
        try:
            yield f"postgresql+psycopg://tw@/postgres?host={folder}"
        finally:
            subprocess.run([binaries / "pg_ctl", "-D", data, "-m", "immediate", "stop"], **options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def pairs_table(folder: Path, pairs: int) -> None:
    """Print pairs a second by way and number of searches."""
    from tradewind.store.clusters.cluster_store import ClusterStore

    with postgresql() as server:
        ours = f"sqlite:///{folder}/ours.db"
        peers = f"sqlite:///{folder}/peers.db"
        for url in (ours, server):
            if url is not None:
                ClusterStore(url).close()  # makes the tables
        ways: list[tuple[str, Callable[..., None], str | None, bool, bool, int]] = [
            ("Tradewind, SQLite, processes", tradewind, ours, False, False, pairs),
            ("Tradewind, SQLite, threads", tradewind, ours, True, False, pairs),
            ("Tradewind, PostgreSQL, processes", tradewind, server, False, False, pairs),
            ("Tradewind, PostgreSQL, threads", tradewind, server, True, False, pairs),
            ("Optuna, SQLite, processes", optuna, peers, False, False, max(20, pairs // 10)),
            ("Optuna, SQLite, processes, one study", optuna, peers, False, True, max(20, pairs // 10)),
        ]
        print(f"| pairs a second, searches at once | {' | '.join(map(str, WORKERS))} |\n|---|{'---:|' * len(WORKERS)}")
        for name, what, url, threads, shared, each in ways:
            if url is None:
                print(f"| {name} | not installed |||")
                continue
            rates = [rate(what, url, n, max(20, each // n), threads=threads, shared=shared) for n in WORKERS]
            print(f"| {name} | {' | '.join(f'{found:.0f}' for found in rates)} |", flush=True)


def trial_table(folder: Path, trials: int) -> None:
    """Print what a trial of ``true`` takes on the local cluster."""
    from tradewind import plugins
    from tradewind.engine.search_builder import study_document
    from tradewind.problem.job_spec.spec import parse_spec
    from tradewind.store.clusters.cluster_store import ClusterStore, JobRow
    from tradewind.tenancy.allocator import AllocationPolicy
    from tradewind.tenancy.shared_cluster import SharedCluster, SharedClusterSettings

    class Here:
        def nodes(self) -> dict[str, dict[str, float]]:
            return {"here": {"cpu": 2.0, "memory": 4.0}}

    began = time.perf_counter()
    for _ in range(trials):
        subprocess.run(["true"], check=True)
    bare = (time.perf_counter() - began) / trials
    print("| `true`, ms a trial | wall | processor, this process |\n|---|---:|---:|")
    print(f"| bare, from Python | {bare * 1000:.2f} | |")
    for parallel in (1, 2):
        url = f"sqlite:///{folder}/trial{parallel}.db"
        text = (
            f"name: t\njob: {{command: ['true']}}\nparallel: {parallel}\nsearcher: random\n"
            "space: {x: {type: float, low: 0, high: 1}}\noffers: {provider: local, vcpu: 1, memory: 1}\n"
            f"objective: {{minimise: runtime}}\nbudget: {{trials: {trials}}}"
        )
        store = ClusterStore(url)
        row = store.submit(JobRow(0, "A", "t", study_document(parse_spec(text, base=folder))))
        policy = AllocationPolicy(plugins.create("fairness", "drf", {}), plugins.create("priority", "fifo", {}))
        cluster = SharedCluster(SharedClusterSettings("default", url, folder / str(parallel), policy, {}), Here())
        cpu = time.process_time()
        cluster.run(lambda cluster=cluster: not cluster.empty())  # type: ignore[misc]
        cpu = (time.process_time() - cpu) / trials
        studies = plugins.create("store", "sql", {}, url=url)
        runs = studies.runs(store.job(row.id).study_id)
        assert len(runs) == trials, store.job(row.id)
        done = store.job(row.id)
        wall = ((done.ended or 0.0) - (done.started or 0.0)) / trials
        print(f"| on the cluster, {parallel} at once | {wall * 1000:.2f} | {cpu * 1000:.2f} |", flush=True)
        studies.close()
        store.close()


def main() -> None:
    """Print the tables of README.md."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=2000, help="asked and told in all, at each number of searches")
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--only", choices=("trial", "pairs"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        if options.only != "pairs":
            trial_table(Path(name), options.trials)
            print()
        if options.only != "trial":
            pairs_table(Path(name), options.pairs)


if __name__ == "__main__":
    main()
