"""Turns the tables of a dataset folder into problems: ``python prepare.py ../../../shared/datasets``.

Writes ``work/tables.json``. A table that is not there is named and left out.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def tensorflow(folder: Path) -> Iterator[dict[str, Any]]:
    vcpu = {"t2.small": (1, 2), "t2.medium": (2, 4), "t2.xlarge": (4, 16), "t2.2xlarge": (8, 32)}
    price = {"t2.small": 0.023, "t2.medium": 0.0464, "t2.xlarge": 0.1856, "t2.2xlarge": 0.3712}
    for name in ("cnn", "multilayer"):
        rows = []
        for row in rows_of(folder / "lynceus/tensorflow" / f"{name}.csv"):
            seconds, accuracy = float(row["training_time"]), float(row["acc"])
            if seconds > 600 and accuracy < 0.85:
                seconds *= 0.85 / accuracy
            settings = {k: row[k] for k in ("learning_rate", "batch_size", "synchronism")}
            rows.append(
                {
                    "instance": row["vm_flavor"],
                    "nodes": int(row["n_workers"]),
                    "settings": settings,
                    "seconds": seconds,
                    "failed": False,
                }
            )
        machines = {k: {"vcpu": vcpu[k][0], "memory": vcpu[k][1], "price": price[k]} for k in vcpu}
        yield {"name": f"tensorflow/{name}", "machines": machines, "rows": rows, "extra_nodes": 2}


def cherrypick(folder: Path) -> Iterator[dict[str, Any]]:
    for name in ("spark", "terasort", "tpch"):
        machines: dict[str, Any] = {}
        rows = []
        for row in rows_of(folder / "lynceus/cherrypick" / f"CP_{name}.csv"):
            instance = f"{row['vm_name']}/{row['disk_name']}{row['disk_count']}"
            machines[instance] = {
                "vcpu": float(row["cpu_count"]),
                "memory": float(row["ram"]),
                "price": float(row["vm_cost"]),
                "disks": float(row["disk_count"]),
                "disk": f"{row['disk_name']}-{row['disk_speed']}",
                "speed": row["vm_speed"],
            }
            rows.append(
                {
                    "instance": instance,
                    "nodes": int(row["num_machines"]),
                    "settings": {},
                    "seconds": float(row["time"]),
                    "failed": False,
                }
            )
        yield {"name": f"cherrypick/{name}", "machines": machines, "rows": rows, "extra_nodes": 0}


def scout(folder: Path) -> Iterator[dict[str, Any]]:
    machines = {
        row["vm_type"]: {
            "vcpu": float(row["vcpus"]),
            "memory": float(row["ram_gib"]),
            "price": float(row["usd_per_hour"]),
            "ecus": float(row["ecus"]),
            "ebs": float(row["ebs_mbit_s"]),
        }
        for row in rows_of(folder / "scout-multi/vm_types.csv")
    }
    runs = rows_of(folder / "scout-multi/runs.csv")
    for name in sorted({row["workload"] for row in runs}):
        mine = [row for row in runs if row["workload"] == name]
        longest = max(math.ceil(float(row["elapsed_time_s"]) / 60) for row in mine)
        rows = []
        for row in mine:
            done = row["completed"] == "true"
            minutes = math.ceil(float(row["elapsed_time_s"]) / 60) if done else longest
            rows.append(
                {
                    "instance": row["vm_type"],
                    "nodes": int(row["num_instances"]),
                    "settings": {},
                    "seconds": 60.0 * minutes,
                    "failed": not done,
                }
            )
        yield {"name": f"scout/{name}", "machines": machines, "rows": rows, "extra_nodes": 0}


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parents[2] / "shared/datasets")
    tables = []
    for load in (tensorflow, cherrypick, scout):
        try:
            tables += list(load(folder))
        except FileNotFoundError as error:
            print(f"left out: {load.__name__}: {error.filename} is not there", file=sys.stderr)
    if not tables:
        sys.exit(f"no table found under {folder}: give the folder of the datasets as argument")
    for table in tables:
        times = sorted(row["seconds"] for row in table["rows"])
        table["deadline"] = times[round(len(times) / 2)]
    (HERE / "work").mkdir(exist_ok=True)
    (HERE / "work/tables.json").write_text(json.dumps(tables))
    print(f"{len(tables)} tables, {sum(len(t['rows']) for t in tables)} rows")


if __name__ == "__main__":
    main()
