"""Turns every table of a dataset folder that is a search problem into one form: ``python prepare.py [DATASETS]``.

Writes ``work/tables.json``, a list of tables (`tables.py` makes problems of them). A set that is not there is named and
left out. Number of rows, failures, deadline, feasible rows, mean cost and optimum of each table are checked against
``problems.csv`` of the folder, which was computed independently; a difference ends the program.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tables import check_against, deadline_of

HERE = Path(__file__).parent
Table = dict[str, Any]


def rows_of(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def number(text: str | float) -> float | int:
    value = float(text)
    return int(value) if value.is_integer() else value


def table(
    name: str,
    machines: dict[str, Any],
    rows: list[dict[str, Any]],
    *,
    problem: tuple[str, str],
    parameters: list[dict[str, Any]] | None = None,
    extra_nodes: int = 0,
) -> Table:
    """One table.

    Args:
        name: ``family/job``.
        machines: Facts of one node by the name of its type.
        rows: Each with ``machine``, ``nodes``, ``values`` (what the searcher chooses), ``seconds`` and ``failed``.
        problem: Data set and problem of ``problems.csv``.
        parameters: The space besides instance and nodes; without it, the settings that the rows have, unordered.
        extra_nodes: Machines that every run pays for besides its nodes.
    """
    used = {row["machine"] for row in rows}
    return {
        "name": name,
        "family": name.partition("/")[0],
        "problem": list(problem),
        "machines": {k: m for k, m in machines.items() if k in used},
        "parameters": parameters or instance_parameters(rows),
        "extra_nodes": extra_nodes,
        "deadline": deadline_of([row["seconds"] for row in rows]),
        "rows": rows,
    }


def instance_parameters(rows: list[dict[str, Any]], **ordered: list[Any]) -> list[dict[str, Any]]:
    """Instance, nodes where they vary, and settings: ordinal with the given levels, else categorical."""
    found: list[dict[str, Any]] = [{"kind": "instance", "name": "instance"}]
    if "nodes" in rows[0]["values"]:
        found.append({"kind": "nodes", "name": "nodes", "values": sorted({row["nodes"] for row in rows})})
    for name in rows[0]["values"]:
        if name in ordered:
            found.append({"kind": "ordinal", "name": name, "values": ordered[name]})
        elif name not in ("instance", "nodes"):
            found.append({"kind": "categorical", "name": name, "values": sorted({row["values"][name] for row in rows})})
    return found


def row(machine: str, nodes: int | None, seconds: float, failed: bool = False, **settings: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"instance": machine, **settings}
    if nodes is not None:
        values["nodes"] = nodes
    return {"machine": machine, "nodes": nodes or 1, "values": values, "seconds": seconds, "failed": failed}


# ---------------------------------------------------------------------- the sets


def tensorflow(folder: Path) -> Iterator[Table]:
    prices = {r["vm_type"]: r for r in rows_of(folder / "lynceus/prices.csv") if r["job_set"] == "tensorflow"}
    memory = {"t2.small": 2, "t2.medium": 4, "t2.xlarge": 16, "t2.2xlarge": 32}
    machines = {
        k: {"vcpu": number(p["vcpus"]), "memory": memory[k], "price": float(p["usd_per_hour"])}
        for k, p in prices.items()
    }
    for name in ("cnn", "multilayer"):
        rows = []
        for r in rows_of(folder / "lynceus/tensorflow" / f"{name}.csv"):
            seconds, accuracy = float(r["training_time"]), float(r["acc"])
            if seconds > 600 and accuracy < 0.85:
                seconds *= 0.85 / accuracy
            settings = {
                "learning_rate": float(r["learning_rate"]),
                "batch_size": int(r["batch_size"]),
                "synchronism": r["synchronism"],
            }
            rows.append(row(r["vm_flavor"], int(r["n_workers"]), seconds, **settings))
        parameters = instance_parameters(rows, learning_rate=[1e-5, 1e-4, 1e-3], batch_size=[16, 256])
        yield table(
            f"tensorflow/{name}",
            machines,
            rows,
            problem=("lynceus/tensorflow", name),
            parameters=parameters,
            extra_nodes=2,  # the parameter server and the book-keeper
        )


def cherrypick(folder: Path) -> Iterator[Table]:
    for name in ("spark", "terasort", "tpch"):
        machines: dict[str, Any] = {}
        rows = []
        for r in rows_of(folder / "lynceus/cherrypick" / f"CP_{name}.csv"):
            # One machine type is sold with several kinds and numbers of disks.
            instance = f"{r['vm_name']}/{r['disk_count']}x{r['disk_name']}-{r['disk_speed']}-{r['disk_size']}"
            machines[instance] = {
                "vcpu": number(r["cpu_count"]),
                "memory": number(r["ram"]),
                "price": float(r["vm_cost"]),
                "disks": number(r["disk_count"]),
                "disk_gb": number(r["disk_size"]),
                "disk": f"{r['disk_name']}-{r['disk_speed']}",
                "speed": r["vm_speed"],
            }
            rows.append(row(instance, int(r["num_machines"]), float(r["time"])))
        yield table(f"cherrypick/{name}", machines, rows, problem=("lynceus/cherrypick", name))


def scout(folder: Path) -> Iterator[Table]:
    machines = {
        r["vm_type"]: {
            "vcpu": number(r["vcpus"]),
            "memory": number(r["ram_gib"]),
            "price": float(r["usd_per_hour"]),
            "family": r["family"],
            "ecus": number(r["ecus"]),
            "ebs": number(r["ebs_mbit_s"]),
        }
        for r in rows_of(folder / "scout-multi/vm_types.csv")
    }
    runs = rows_of(folder / "scout-multi/runs.csv")
    for name in sorted({r["workload"] for r in runs}):
        mine = [r for r in runs if r["workload"] == name]
        minutes = [-(-float(r["elapsed_time_s"]) // 60) for r in mine]
        rows = []
        for r, own in zip(mine, minutes, strict=True):
            done = r["completed"] == "true"
            # A run that did not complete is charged the longest time of its workload, as Lynceus does.
            seconds = 60.0 * (own if done else max(minutes))
            rows.append(row(r["vm_type"], int(r["num_instances"]), seconds, not done))
        yield table(f"scout/{name}", machines, rows, problem=("scout-multi", name))


def multicloud(folder: Path) -> Iterator[Table]:
    runs = rows_of(folder / "multicloud/multi-cloud-configuration.csv")
    own = {"A": ("A_family", "A_vcpu"), "B": ("B_family", "B_vcpu"), "C": ("C_family", "C_type", "C_vcpu")}
    # The hourly price of a row is target_cost / target_runtime; it turns out to be the same per node for all rows of a
    # machine type, so the offers carry it. vcpu is a level, 0 or 1; level 1 costs exactly twice level 0 everywhere,
    # so the sizes are taken as 1 and 2. Memory is not told.
    machines: dict[str, Any] = {}
    for r in runs:
        choice = [r[c] for c in own[r["provider"]]]
        price = float(r["target_cost"]) / float(r["target_runtime"]) * 3600 / int(r["nodes"])
        seen = machines.setdefault(
            "/".join([r["provider"], *choice]),
            {"provider": r["provider"], "vcpu": 1 + int(choice[-1]), "memory": 1, "price": round(price, 8)},
        )
        if abs(seen["price"] / price - 1) > 1e-6:
            raise ValueError(f"multicloud: two prices of {choice}: {seen['price']} and {price}")
    for workload in sorted({r["workload"] for r in runs if r["status"] == "ok"}):
        groups: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
        for r in runs:
            if r["workload"] == workload:
                groups[(r["provider"], *(r[c] for c in own[r["provider"]]), r["nodes"])].append(r)
        rows = []
        for (provider, *choice, nodes), found in groups.items():
            finished = [r for r in found if r["status"] == "ok"]
            # A configuration that was measured several times takes the mean of the runs that ended well.
            seconds = statistics.mean(float(r["target_runtime"]) for r in finished or found)
            values: dict[str, Any] = {"provider": provider}
            values.update({c: int(v) for c, v in zip(own[provider], choice, strict=True)})
            values["nodes"] = int(nodes)
            machine = "/".join([provider, *choice])
            rows.append(
                {
                    "machine": machine,
                    "nodes": int(nodes),
                    "values": values,
                    "seconds": seconds,
                    "failed": not finished,
                }
            )
        parameters: list[dict[str, Any]] = [{"kind": "categorical", "name": "provider", "values": sorted(own)}]
        for provider, columns in own.items():
            for c in columns:
                levels = sorted({r["values"][c] for r in rows if c in r["values"]})
                kind = "ordinal" if c.endswith("vcpu") else "categorical"
                parameters.append({"kind": kind, "name": c, "values": levels, "when": f"provider == '{provider}'"})
        parameters.append({"kind": "nodes", "name": "nodes", "values": sorted({r["nodes"] for r in rows})})
        yield table(f"multicloud/{workload}", machines, rows, problem=("multicloud", workload), parameters=parameters)


def flora(folder: Path) -> Iterator[Table]:
    jobs: dict[str, list[dict[str, str]]] = defaultdict(list)
    for r in rows_of(folder / "flora/gcp_dataproc.csv"):
        jobs[f"{r['algorithm']}_{r['dataset_size_bytes']}"].append(r)
    for job, found in jobs.items():
        machines = {}
        rows = []
        for r in found:
            vcpu, memory = number(r["vcpu_per_node"]), number(r["memory_gb_per_node"])
            name = f"{vcpu}x{memory}"
            price = round(0.04073 * vcpu + 0.005458 * memory, 8)
            machines[name] = {"vcpu": vcpu, "memory": memory, "price": price}
            rows.append(row(name, int(r["scaleout"]), float(r["runtime"])))
        yield table(f"flora/{job}", machines, rows, problem=("flora", job))


_CATEGORY = {"c": "compute", "m": "general", "t": "burstable", "a": "general", "r": "memory", "x": "memory"}
_CATEGORY |= {"z": "memory", "u": "memory", "i": "storage", "d": "storage", "h": "storage", "g": "accelerated"}
_CATEGORY |= {"p": "accelerated", "f": "accelerated", "v": "accelerated"}
_AZURE = {"a": "general", "b": "burstable", "d": "general", "e": "memory", "f": "compute", "g": "memory"}
_AZURE |= {"h": "compute", "l": "storage", "m": "memory", "n": "accelerated"}


def kind_of(instance: str) -> dict[str, Any]:
    """Category and generation, as the name of an EC2 or Azure type tells them."""
    if instance.startswith(("Standard_", "Basic_")):
        version = re.search(r"_v(\d+)$", instance)
        letter = instance.partition("_")[2][0].lower()
        return {"category": _AZURE[letter], "generation": int(version[1]) if version else 1}
    found = re.match(r"([a-z]+)-?(\d+)", instance)
    letter = "a" if instance.startswith("mac") else instance[0]
    return {"category": _CATEGORY[letter], "generation": int(found[2]) if found else 1}


def maker(model: str) -> str:
    lower = model.lower()
    for name in ("intel", "amd"):
        if name in lower:
            return name
    return "other"


def ec2(folder: Path) -> Iterator[Table]:
    measured = [r for r in rows_of(folder / "ec2-coremark/ec2_measured.csv") if r["usd_per_hour_us_east_1"]]
    machines = {
        r["instance_type"]: {
            "provider": "aws",
            "vcpu": number(r["threads"]),
            "memory": round(float(r["memory_mb"]) / 1024, 2),
            "price": float(r["usd_per_hour_us_east_1"]),
            "gpus": int(r["gpus"] or 0),
            **kind_of(r["instance_type"]),
            "maker": maker(r["cpu_vendor"] + r["cpu_model"]),
        }
        for r in measured
    }
    rows = [row(r["instance_type"], None, 1e9 / float(r["coremark_iterations_per_s"])) for r in measured]
    yield table("ec2/coremark", machines, rows, problem=("ec2-coremark", "coremark_1e9_iterations"))
    rows = [row(r["instance_type"], None, float(r["ffmpeg_elapsed_s"])) for r in measured if r["ffmpeg_elapsed_s"]]
    yield table("ec2/ffmpeg", machines, rows, problem=("ec2-coremark", "ffmpeg_encode"))


def sparecores(folder: Path) -> Iterator[Table]:
    prices = {
        ("aws", r["instance_type"]): float(r["usd_per_hour"])
        for r in rows_of(folder / "prices/aws_ec2_linux_ondemand_2026-07.csv.gz")
    }
    for r in rows_of(folder / "prices/azure_linux_ondemand_2026-06.csv.gz"):
        if r["region"] == "eastus":
            prices["azure", r["size"]] = float(r["usd_per_hour"])
    servers = [r for r in rows_of(folder / "sparecores/servers.csv.gz") if (r["vendor"], r["instance_type"]) in prices]
    machines = {
        r["instance_type"]: {
            "provider": r["vendor"],
            "vcpu": number(r["vcpus"]),
            "memory": 1,  # not in the table
            "price": prices[r["vendor"], r["instance_type"]],
            **kind_of(r["instance_type"]),
            "arch": r["arch"],
            "maker": maker(r["cpu_model"]),
        }
        for r in servers
    }
    work = {
        "gb6_multi_clang_klines_s": 3600.0,
        "compress_zstd1_best_bytes_s": 1e12,
        "redis_set_rps_max": 1e9,
        "llm_smollm-135m_gen_tok_s": 1e6,
    }
    for column, units in work.items():
        rows = [row(r["instance_type"], None, units / float(r[column])) for r in servers if r[column]]
        yield table(f"sparecores/{column}", machines, rows, problem=("sparecores", column))


def c3o(folder: Path) -> Iterator[Table]:
    types = {r["instance_type"]: r for r in rows_of(folder / "prices/aws_ec2_types_2017-11.csv.gz")}
    prices = {
        r["instance_type"]: float(r["linux_ondemand_usd_per_hour"])
        for r in rows_of(folder / "prices/aws_ec2_linux_2017-11.csv.gz")
        if r["region"] == "us-east-1" and r["linux_ondemand_usd_per_hour"]
    }
    for job in ("sort", "grep", "sgd", "kmeans", "pagerank"):
        runs = rows_of(folder / "c3o" / f"{job}.tsv", "\t")
        inputs = [c for c in runs[0] if c not in ("instance_count", "machine_type", "slots", "memory", "gross_runtime")]
        groups: dict[str, dict[tuple[str, int], list[float]]] = defaultdict(lambda: defaultdict(list))
        for r in runs:
            cluster = (r["machine_type"], int(r["instance_count"]))
            groups["_".join([job, *(r[c] for c in inputs)])][cluster].append(float(r["gross_runtime"]))
        for name, clusters in groups.items():
            # Fewer leave nothing to search. One input of kmeans has 17, as in problems.csv: its 18th cluster is filed
            # under another input by a slip of the table.
            if len(clusters) < 17:
                continue
            machines = {
                m: {"vcpu": number(types[m]["vCPU"]), "memory": number(types[m]["memory"]), "price": prices[m]}
                for m in sorted({m for m, _ in clusters})
            }
            rows = [row(m, n, statistics.median(seconds)) for (m, n), seconds in clusters.items()]
            yield table(f"c3o/{name}", machines, rows, problem=("c3o", name))


SETS: tuple[Callable[[Path], Iterable[Table]], ...] = (
    tensorflow,
    cherrypick,
    scout,
    multicloud,
    flora,
    sparecores,
    ec2,
    c3o,
)


def prepare(folder: Path, sets: Iterable[Callable[[Path], Iterable[Table]]] = SETS) -> list[Table]:
    """All tables of a folder, each checked against its ``problems.csv``."""
    published = {(r["dataset"], r["problem"]): r for r in rows_of(folder / "problems.csv")}
    found: list[Table] = []
    for load in sets:
        try:
            found += list(load(folder))
        except FileNotFoundError as error:
            print(f"left out: {load.__name__}: {error.filename} is not there", file=sys.stderr)
    for one in found:
        check_against(one, published[tuple(one["problem"])])
    return found


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parents[2] / "shared/datasets")
    if not (folder / "problems.csv").exists():
        sys.exit(f"no problems.csv in {folder}: give the folder of the datasets as argument")
    found = prepare(folder)
    (HERE / "work").mkdir(exist_ok=True)
    (HERE / "work/tables.json").write_text(json.dumps(found))
    counts: dict[str, int] = defaultdict(int)
    for one in found:
        counts[one["family"]] += 1
    print(f"{len(found)} tables, {sum(len(t['rows']) for t in found)} rows: {dict(counts)}; all equal problems.csv")


if __name__ == "__main__":
    main()
