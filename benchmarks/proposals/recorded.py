"""The recorded runs of the measurement: every family of tables with several jobs or inputs on the same configurations.

Each function takes the folder of all tables and the objective, and gives the jobs of one family. A table has one figure
for a configuration, the median where it was run several times; 3 % noise is added to what is learned from where nothing
else is said.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.done.scenarios import PARAMETERS, Scenario, Values
from benchmarks.done.scenarios import recorded as c3o_job
from benchmarks.proposals.programs import NOISE, machines

from tradewind.problem import Categorical, Configuration, Nodes, Objective, Offer, Ordinal, Parameter
from tradewind.testing.problems import KnownOutcome, KnownProblem, make_problem

Key = tuple[object, ...]
"""Of an input, its values in the order of the job parameters; of a configuration, in the order of the space."""


def _rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
        return list(csv.DictReader(file))


def _scenario(
    name: str, parameters: tuple[str, ...], space: list[Parameter], runs: Iterable[tuple[Key, Key, float]], metric: str
) -> Scenario:
    """A job from its runs: input, configuration and seconds of each.

    The space's first parameter is the instance; the number of nodes, where there is one, is the second.
    """
    cells: dict[Key, dict[Key, list[float]]] = defaultdict(lambda: defaultdict(list))
    for given, chosen, seconds in runs:
        cells[given][chosen].append(seconds)
    names = [one.name for one in space]
    with_nodes = isinstance(space[1], Nodes) if len(space) > 1 else False

    def make(given: Values) -> KnownProblem:
        table = {key: median(values) for key, values in cells[tuple(given[name] for name in parameters)].items()}

        def truth(chosen: Configuration, _: Offer) -> KnownOutcome:
            return KnownOutcome(table[tuple(chosen[name] for name in names)])

        sold = {(str(key[0]), int(str(key[1])) if with_nodes else 1) for key in table}
        return make_problem(space, truth, objective=Objective(metric), noise=NOISE, sold=sold)

    keys = sorted(cells, key=lambda key: tuple(map(str, key)))
    inputs: list[Values] = [
        {n: v if isinstance(v, float) else str(v) for n, v in zip(parameters, k, strict=True)} for k in keys
    ]
    return Scenario(f"{name}, {'time' if metric == 'runtime' else 'cost'}", inputs, make)


def bell(folder: Path, metric: str) -> list[Scenario]:
    """Six jobs of Spark and Flink on 4 to 60 nodes: the job's name is the only parameter."""
    tables = {path.stem: _rows(path) for path in sorted((folder / "bell").glob("*.csv"))}
    counts = set.intersection(*({int(row["Nodes"]) for row in rows} for rows in tables.values()))
    offers = {"node": Offer("lab", "node", vcpu=8, memory_gib=16.0, price_per_hour=0.4)}
    runs = [
        ((name,), ("node", int(row["Nodes"])), float(row["Runtime"]) / 1000.0)
        for name, rows in tables.items()
        for row in rows
        if int(row["Nodes"]) in counts
    ]
    return [
        _scenario("bell", ("job",), [machines(offers), Nodes(name="nodes", values=tuple(sorted(counts)))], runs, metric)
    ]


def c3o(folder: Path, metric: str) -> list[Scenario]:
    """Five Spark jobs, each with its inputs; mostly six numbers of nodes of one machine type for an input. No noise."""
    words = "time" if metric == "runtime" else "cost"
    made = [c3o_job(folder / "c3o", name, metric) for name in PARAMETERS]
    return [Scenario(f"{one.name}, {words}", one.inputs, one.make) for one in made]


def flora(folder: Path, metric: str) -> list[Scenario]:
    """Nine Spark algorithms, each on two inputs, on ten clusters of Google Dataproc."""
    rows = _rows(folder / "flora/gcp_dataproc.csv")

    def machine(row: Mapping[str, str]) -> str:
        return f"n{row['vcpu_per_node']}-{row['memory_gb_per_node']}"

    offers = {}
    for row in rows:
        vcpu, memory = int(row["vcpu_per_node"]), float(row["memory_gb_per_node"])
        offers[machine(row)] = Offer(
            "gcp", machine(row), vcpu=vcpu, memory_gib=memory, price_per_hour=0.04073 * vcpu + 0.005458 * memory
        )
    counts = tuple(sorted({int(row["scaleout"]) for row in rows}))
    runs = [
        (
            (row["algorithm"], float(row["dataset_size_bytes"]) / 1e9),
            (machine(row), int(row["scaleout"])),
            float(row["runtime"]),
        )
        for row in rows
    ]
    space: list[Parameter] = [machines(offers), Nodes(name="nodes", values=counts)]
    return [_scenario("flora", ("algorithm", "gb"), space, runs, metric)]


def scout(folder: Path, metric: str) -> list[Scenario]:
    """Nine workloads of Hadoop and Spark on 69 clusters; what failed takes as long as the slowest of its workload."""
    types = {row["vm_type"]: row for row in _rows(folder / "scout-multi/vm_types.csv")}
    offers = {
        name: Offer(
            "aws", name, vcpu=int(t["vcpus"]), memory_gib=float(t["ram_gib"]), price_per_hour=float(t["usd_per_hour"])
        )
        for name, t in types.items()
    }
    rows = _rows(folder / "scout-multi/runs.csv")
    slowest: dict[str, float] = defaultdict(float)
    for row in rows:
        slowest[row["workload"]] = max(slowest[row["workload"]], float(row["elapsed_time_s"]))
    runs = [
        (
            (row["algorithm"], row["framework"], row["datasize"]),
            (row["vm_type"], int(row["num_instances"])),
            float(row["elapsed_time_s"]) if row["completed"] == "true" else slowest[row["workload"]],
        )
        for row in rows
    ]
    counts = tuple(sorted({int(row["num_instances"]) for row in rows}))
    space: list[Parameter] = [machines(offers), Nodes(name="nodes", values=counts)]
    return [_scenario("scout", ("algorithm", "framework", "datasize"), space, runs, metric)]


def multicloud(folder: Path, metric: str) -> list[Scenario]:
    """Five tasks of Dask on three inputs, on up to 88 clusters of three anonymous clouds; runs without an error only.

    Prices are what the runs were charged; of two sizes without a number one is taken to have 2 and one 4 vCPUs.
    """
    rows = [row for row in _rows(folder / "multicloud/multi-cloud-configuration.csv") if row["status"] == "ok"]

    def machine(row: Mapping[str, str]) -> str:
        provider = row["provider"]
        return "-".join(
            [
                provider,
                *(row[f"{provider}_{part}"] for part in ("family", "type", "vcpu") if row.get(f"{provider}_{part}")),
            ]
        )

    hourly: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        hourly[machine(row)].append(
            3600.0 * float(row["target_cost"]) / float(row["target_runtime"]) / int(row["nodes"])
        )
    offers = {
        name: Offer(name[0], name, vcpu=4 if name.endswith("1") else 2, memory_gib=8.0, price_per_hour=median(prices))
        for name, prices in sorted(hourly.items())
    }
    runs = []
    for row in rows:
        data, task = row["workload"].split("-")
        runs.append(((task, data), (machine(row), int(row["nodes"])), float(row["target_runtime"])))
    counts = tuple(sorted({int(row["nodes"]) for row in rows}))
    space: list[Parameter] = [machines(offers), Nodes(name="nodes", values=counts)]
    return [_scenario("multicloud", ("task", "data"), space, runs, metric)]


T2 = {
    "t2.small": (1, 2.0, 0.023),
    "t2.medium": (2, 4.0, 0.0464),
    "t2.xlarge": (4, 16.0, 0.1856),
    "t2.2xlarge": (8, 32.0, 0.3712),
}
"""vCPUs, GiB and USD an hour, us-east-2, November 2017."""


def _training(
    name: str,
    parameter: str,
    rows: list[dict[str, str]],
    given: Callable[[Mapping[str, str]], object],
    seconds: Callable[[Mapping[str, str]], float],
    metric: str,
) -> Scenario:
    """A training whose configuration is a cluster of T2 machines and three hyper-parameters."""
    offers = {n: Offer("aws", n, vcpu=v, memory_gib=m, price_per_hour=p) for n, (v, m, p) in T2.items()}
    counts = tuple(sorted({int(row["n_workers"]) for row in rows}))
    rates = tuple(sorted({float(row["learning_rate"]) for row in rows}))
    batches = tuple(sorted({int(row["batch_size"]) for row in rows}))
    space: list[Parameter] = [
        machines(offers),
        Nodes(name="nodes", values=counts),
        Ordinal(name="learning_rate", values=rates),
        Ordinal(name="batch", values=batches),
        Categorical(name="synchronism", values=("sync", "async")),
    ]
    runs = [
        (
            (given(row),),
            (
                row["vm_flavor"],
                int(row["n_workers"]),
                float(row["learning_rate"]),
                int(row["batch_size"]),
                row["synchronism"],
            ),
            seconds(row),
        )
        for row in rows
    ]
    return _scenario(name, (parameter,), space, runs, metric)


def trimtuner(folder: Path, metric: str) -> list[Scenario]:
    """A network trained on five numbers of samples, on 288 configurations."""
    rows = _rows(folder / "trimtuner/cnn.csv.gz")
    return [
        _training(
            "trimtuner",
            "samples",
            rows,
            lambda row: float(row["training_set_size"]),
            lambda row: float(row["training_time"]),
            metric,
        )
    ]


def tensorflow(folder: Path, metric: str) -> list[Scenario]:
    """Two networks trained to an accuracy, on 384 configurations; runs cut at 600 s are extrapolated as published."""
    rows = [
        {**row, "network": name}
        for name in ("cnn", "multilayer")
        for row in _rows(folder / f"lynceus/tensorflow/{name}.csv")
    ]

    def seconds(row: Mapping[str, str]) -> float:
        took, reached = float(row["training_time"]), float(row["acc"])
        return took * 0.85 / reached if took > 600.0 and reached < 0.85 else took

    return [_training("tensorflow", "network", rows, lambda row: row["network"], seconds, metric)]


FAMILIES: dict[str, Callable[[Path, str], list[Scenario]]] = {
    "bell": bell,
    "c3o": c3o,
    "flora": flora,
    "scout-multi": scout,
    "multicloud": multicloud,
    "trimtuner": trimtuner,
    "lynceus/tensorflow": tensorflow,
}
"""By the folder of the tables. CherryPick's three jobs have 52 to 72 configurations each, but hardly a common space."""


def recorded_jobs(folder: Path) -> dict[str, Scenario]:
    """The jobs of all families whose tables are there, on time and on cost."""
    found: dict[str, Scenario] = {}
    for tables, make in FAMILIES.items():
        if (folder / tables).is_dir():
            found |= {one.name: one for metric in ("runtime", "cost") for one in make(folder, metric)}
    return found
