"""Makes tables of performance models, on which no searcher was developed: ``python made.py [--deadline 0.2]``.

Writes ``work-made/tables.json`` in the form of `prepare.py`, for ``run.py --work`` and ``analyze.py --work``; another
deadline wants a folder of its own, since results go by the names of tables. Clouds and prices are invented, jobs are in
`made_models.py`. The tables have, as real ones do, what no model explains: a job likes one processor more than another,
and a configuration is off by 3 to 8 %, the same whenever it is run. A line for each family says what they are like.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import made_models as models
import numpy as np
from bench import number as number_of
from made_models import PRESETS, Draw, Gpu, Machine, Model
from prepare import Table, instance_parameters, row, table
from tables import HERE, deadline_of

SEED = 20260
FEWEST = 0.05
"""Share of rows that a tight deadline leaves in time all the same: runs that fail at once are quick as well."""
TASTES = {"maker": 0.12, "family": 0.05}
"""Standard deviation of the logarithm of a job's time over kinds of machines, beside what its model says."""
SIZES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192)
"""vCPUs."""
LARGEST = {1: 16, 2: 32, 3: 32, 4: 64, 5: 96, 6: 128, 7: 192}
"""vCPUs of the largest type of a generation."""
NIC = {1: 1.0, 2: 5.0, 3: 10.0, 4: 20.0, 5: 25.0, 6: 50.0, 7: 100.0}
"""Gbit/s of the largest type of a generation."""


# ---------------------------------------------------------------------- clouds


@dataclass(frozen=True)
class Kind:
    """What sets the categories of a cloud apart: memory, price and clock, the last two beside ``general``."""

    category: str
    memory: float
    price: float
    clock: float = 1.0


@dataclass(frozen=True)
class Maker:
    """Who makes the processors: threads and vCPUs of a core, price, speed and GB/s of memory for each vCPU."""

    name: str
    arch: str
    threads: int
    price: float
    speed: float
    bandwidth: float


@dataclass(frozen=True)
class Cloud:
    """A provider.

    Attributes:
        price: USD per hour of a vCPU of a general type of generation 5.
        store: GB/s that a node gets from its object store.
        network: Its network beside `NIC`.
        kinds: Its categories by the letter that names them.
    """

    price: float
    store: float
    network: float
    kinds: Mapping[str, Kind]


MAKERS = {
    "i": Maker("intel", "x86_64", 2, 1.0, 1.0, 3.2),
    "a": Maker("amd", "x86_64", 2, 0.9, 0.97, 3.5),
    "g": Maker("own", "arm64", 1, 0.82, 0.72, 4.6),
}
KESTREL = {
    "c": Kind("compute", 2, 0.88, 1.07),
    "m": Kind("general", 4, 1.0),
    "r": Kind("memory", 8, 1.31),
    "x": Kind("memory", 16, 1.98, 0.97),
    "s": Kind("storage", 8, 1.55),
    "t": Kind("burstable", 4, 0.84, 0.55),
    "h": Kind("compute", 4, 1.6, 0.96),
    "p": Kind("accelerated", 6, 4.6),
}
ALBA = {"c": Kind("compute", 2, 0.87, 1.06), "m": Kind("general", 4, 1.0), "r": Kind("memory", 8, 1.3)}
BOREA = {
    "highcpu": Kind("compute", 1, 0.75),
    "standard": Kind("general", 3.75, 1.0),
    "highmem": Kind("memory", 6.5, 1.22),
}
CIRRUS = {"F": Kind("compute", 2, 0.86, 1.1), "D": Kind("general", 4, 0.96), "E": Kind("memory", 8, 1.24)}
CLOUDS = {
    "kestrel": Cloud(0.048, 1.0, 1.0, KESTREL),
    "alba": Cloud(0.05, 1.2, 1.0, ALBA),
    "borea": Cloud(0.0465, 0.7, 1.6, BOREA),
    "cirrus": Cloud(0.052, 0.9, 0.8, CIRRUS),
}
VARIANTS = {"": 1.0, "d": 1.19, "n": 1.23, "dn": 1.42}
"""Price with a local disk, with three times the network, with both."""


def line(
    letter: str, generation: int, maker: str, sizes: Iterable[int], variant: str = "", provider: str = "kestrel"
) -> list[Machine]:
    """The types of one family, as its cloud sells them: the same wherever it is asked for.

    Prices go with size, but for a discount here and a surcharge there. They fell until generation 5 and rise since,
    while cores became about a tenth faster every time.
    """
    cloud, made_by, family = CLOUDS[provider], MAKERS[maker], f"{letter}{generation}{maker}{variant}"
    kind, seed = cloud.kinds[letter], [SEED, number_of(f"{provider}/{family}")]
    rng = np.random.default_rng(seed)
    hourly = cloud.price * made_by.price * kind.price * VARIANTS[variant] * (1 + 0.035 * abs(generation - 5))
    hourly *= rng.uniform(0.97, 1.03)
    speed = made_by.speed * 1.1 ** (generation - 5) * kind.clock * rng.uniform(0.95, 1.06)
    wide, local, hpc = "n" in variant, "d" in variant or kind.category == "storage", letter == "h"
    fast = NIC[generation] * cloud.network * (3 if wide else 1) * (4 if hpc else 1)
    found = []
    for vcpu in sizes:
        rng = np.random.default_rng([*seed, vcpu])
        off = rng.choice([0.0, 0.0, 0.0, 0.02, 0.05, -0.02]) + (0.03 if vcpu >= 64 else 0.0)
        # Small types may use much more than their share for a while, and the catalogue tells that.
        lasting = max(0.3, fast * min(1.0, vcpu / LARGEST[generation]))
        told = fast if vcpu * 4 >= LARGEST[generation] else max(lasting, fast / 2)
        facts = {
            "provider": provider,
            "vcpu": vcpu,
            "memory": vcpu * kind.memory,
            "price": float(f"{hourly * vcpu * (1 - off):.4g}"),
            "family": family,
            "category": kind.category,
            "arch": made_by.arch,
            "generation": generation,
            "maker": made_by.name,
            "network": round(told, 2),
            "local": int(local),
        }
        share = made_by.bandwidth * 1.06 ** (generation - 5) * (1.2 if hpc else 1.0)
        found.append(
            Machine(
                name=f"{family}.{vcpu}" if provider == "kestrel" else f"{provider}/{family}.{vcpu}",
                facts=facts,
                vcpu=vcpu,
                memory=vcpu * kind.memory,
                cores=vcpu if hpc else vcpu / made_by.threads,
                # Many busy cores turn slower.
                speed=speed * (1 - 0.015 * math.log2(max(1.0, vcpu / 4))),
                bandwidth=max(10.0, share * vcpu),
                network=lasting / 8 * rng.uniform(0.85, 0.97),
                burst=told / 8 * 0.93,
                latency=2e-6 if hpc else 3e-5,
                disk=min(4.0, 0.25 + 0.06 * vcpu) if local else min(1.0, 0.12 + 0.015 * vcpu),
                disk_gb=60.0 * vcpu if local else 1000.0,
                store=cloud.store,
            )
        )
    return found


def whole_cloud() -> list[Machine]:
    """Every type of Kestrel, close to two thousand: three makers, seven generations, variants, and whole servers."""
    lines: list[list[Machine]] = []
    for maker, since in (("i", 1), ("a", 3), ("g", 4)):
        for generation in range(since, 8):
            sizes = [s for s in SIZES if s <= LARGEST[generation] and (s > 1 or maker == "g" or generation < 3)]
            variants = list(VARIANTS)[: 1 if generation < 3 else 2 if generation == 3 else 4]
            lines += [line(c, generation, maker, sizes, v) for c in "cmr" for v in variants]
            if generation >= 4:
                lines += [line(c, generation, maker, sizes[1:], v) for c, v in (("s", ""), ("x", ""), ("x", "d"))]
            if 3 <= generation <= 5:
                lines += [line("t", generation, maker, [s for s in sizes if s <= 8])]
            if maker != "g" and generation >= 4:
                lines += [line("p", generation, maker, [s for s in sizes if s >= 4])]
    found = []
    for types in lines:
        gpus = [max(1, m.vcpu // 12) if m.facts["category"] == "accelerated" else 0 for m in types]
        found += [replace(m, facts={**m.facts, "gpus": g}) for m, g in zip(types, gpus, strict=True)]
        if types[0].facts["generation"] >= 5 and types[0].facts["category"] in ("compute", "general", "memory"):
            # A whole server without a hypervisor costs what its largest type does, and is a little faster.
            found.append(replace(found[-1], name=f"{types[0].facts['family']}.metal", speed=found[-1].speed * 1.03))
    return found


GPUS = (
    (Gpu(name="P", single=9, mixed=10, memory=16, link=10, price=0.9, vcpu=8), (1, 4)),
    (Gpu(name="T", single=7, mixed=28, memory=16, link=8, price=0.53, vcpu=8), (1, 2, 4, 8)),
    (Gpu(name="A", single=22, mixed=58, memory=24, link=12, price=1.05, vcpu=8), (1, 2, 4, 8)),
    (Gpu(name="V", single=14, mixed=70, memory=32, link=120, price=2.7, vcpu=8), (1, 4, 8)),
    (Gpu(name="H", single=60, mixed=170, memory=80, link=250, price=4.1, vcpu=12), (1, 8)),
)


def gpu_types() -> list[Machine]:
    """Machines with GPUs; eight of them share the vCPUs of six, and are a little cheaper."""
    found = []
    for gpu, counts in GPUS:
        for count in counts:
            host = line("p", 5, "i", [gpu.vcpu * min(count, 6)])[0]
            price = round(gpu.price * count * (0.96 if count == 8 else 1.0), 4)
            facts = {**host.facts, "family": f"p{gpu.name}", "price": price, "gpus": count}
            facts |= {"accelerator": gpu.name, "gpu_memory": gpu.memory}
            found.append(replace(host, name=f"p{gpu.name}.{count}", facts=facts, gpus=count, gpu=gpu))
    return found


DISKS = {"hdd": (0.09, 1000, 0.025), "ssd": (0.25, 500, 0.06), "ssd-plus": (0.9, 500, 0.19)}
"""GB/s, GB and USD per hour of the disks that a type without its own is sold with."""


def with_disks(types: Iterable[Machine]) -> list[Machine]:
    """Each type with each disk that it is sold with."""
    found = []
    for machine in types:
        own = {"nvme": (machine.disk, machine.disk_gb, 0.0)}
        for disk, (speed, size, price) in (own if machine.facts["local"] else DISKS).items():
            facts = {**machine.facts, "disk": disk, "disk_gb": size, "price": round(machine.facts["price"] + price, 4)}
            found.append(replace(machine, name=f"{machine.name}/{disk}", facts=facts, disk=speed, disk_gb=float(size)))
    return found


# ---------------------------------------------------------------------- families


@dataclass(frozen=True)
class Family:
    """Jobs of one kind, and the space that they are searched in.

    Attributes:
        model: Draws a job.
        jobs: How many.
        machines: What is sold.
        nodes: How many of them; empty for one that is not chosen.
        settings: Ordered levels by name; words are categories.
        choices: What the searcher chooses in the place of a machine, by its name.
        parameters: The space, where `instance_parameters` is not it.
    """

    model: Callable[[Draw], Model]
    jobs: int
    machines: Sequence[Machine]
    nodes: tuple[int, ...] = ()
    settings: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    choices: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    parameters: list[dict[str, Any]] | None = None


def three_clouds() -> dict[str, Any]:
    """The conditional space: each provider has names of its own for what it sells."""
    nodes = (2, 3, 4, 6, 8)
    sold: dict[str, tuple[Machine, dict[str, Any]]] = {}
    for vcpu in (4, 8, 16):
        for letter in "cmr":
            machine = line(letter, 6, "i", [vcpu], provider="alba")[0]
            sold[machine.name] = machine, {"provider": "alba", "alba_family": letter, "alba_vcpu": vcpu}
        for shape in BOREA:
            for platform, maker in (("n1", "i"), ("n2", "a")):
                machine = line(shape, 5 + int(platform[1]) - 1, maker, [vcpu], provider="borea")[0]
                choice = {"borea_platform": platform, "borea_shape": shape, "borea_vcpu": vcpu}
                sold[machine.name] = machine, {"provider": "borea", **choice}
        for series in CIRRUS:
            machine = line(series, 5, "i", [vcpu], provider="cirrus")[0]
            sold[machine.name] = machine, {"provider": "cirrus", "cirrus_series": series, "cirrus_vcpu": vcpu}
    choices = {name: choice for name, (_, choice) in sold.items()}
    parameters: list[dict[str, Any]] = [
        {"kind": "categorical", "name": "provider", "values": ["alba", "borea", "cirrus"]}
    ]
    for name in dict.fromkeys(n for c in choices.values() for n in c if n != "provider"):
        kind, when = "ordinal" if name.endswith("vcpu") else "categorical", f"provider == '{name.partition('_')[0]}'"
        levels = sorted({c[name] for c in choices.values() if name in c})
        parameters.append({"kind": kind, "name": name, "values": levels, "when": when})
    parameters.append({"kind": "nodes", "name": "nodes", "values": [*nodes]})
    machines = [machine for machine, _ in sold.values()]
    return {"machines": machines, "nodes": nodes, "choices": choices, "parameters": parameters}


def families() -> dict[str, Family]:
    """All families by name."""
    ranks = [m for c in "cmr" for m in line(c, 6, "i", [8, 16, 32, 64])] + line("c", 6, "a", [16, 48, 96])
    ranks += [*line("h", 6, "a", [96]), *line("h", 7, "a", [192])]
    clusters = [m for c in "cmr" for m in line(c, 6, "i", [4, 8, 16])]
    clusters += [*line("m", 5, "i", [8, 16], "d"), *line("m", 6, "g", [8, 16]), *line("r", 6, "g", [4])]
    lab = [*line("c", 6, "i", [16, 32]), *line("m", 6, "i", [8, 16, 32]), *line("r", 6, "i", [4, 8, 16])]
    lab += [*line("m", 6, "a", [16, 48]), *line("r", 6, "a", [8, 16]), *line("m", 6, "g", [16, 32])]
    farm = [m for c in "cm" for g in (4, 5, 6) for k in MAKERS for m in line(c, g, k, [4, 8, 16, 32, 64])]
    encoders = [m for c, g, k in ("c6i", "m6i", "c6g", "m6a") for m in line(c, int(g), k, [4, 8, 16, 32])]
    loaders = [*line("c", 5, "i", [4, 8, 16]), *line("m", 5, "a", [4, 8, 16]), *line("m", 5, "i", [4, 8, 16], "n")]
    loaders += [*line("m", 5, "i", [4, 8, 16], "d"), *line("s", 5, "i", [4, 8])]
    queries = {"partitions": (50, 100, 200, 800, 3200)}
    films = {"preset": tuple(PRESETS), "threads": (1, 2, 4, 8, 16)}
    training = {"batch": (8, 16, 32, 64, 128, 256), "precision": ("single", "mixed"), "loaders": (1, 2, 4, 8)}
    return {
        "solver": Family(models.solver, 4, ranks, nodes=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32)),
        "shuffle": Family(models.shuffle, 4, clusters, nodes=(2, 4, 8, 12, 16), settings=queries),
        "genomics": Family(models.genomics, 4, lab),
        "training": Family(models.training, 3, gpu_types(), settings=training),
        "render": Family(models.render, 3, farm, nodes=(1, 2, 4, 8, 16)),
        "transcode": Family(models.transcode, 3, encoders, settings=films),
        "iterative": Family(models.iterative, 4, **three_clouds()),
        "etl": Family(models.etl, 4, with_disks(loaders), nodes=(1, 2, 4, 8)),
        "catalogue": Family(models.catalogue, 3, whole_cloud()),
    }


# ---------------------------------------------------------------------- tables


def job_table(name: str, family: Family, level: float, deadline: float) -> Table:
    """One job on every configuration of its family.

    Args:
        name: ``family/job``.
        family: What it is one of.
        level: Where the job stands among those of its family, 0 to 1.
        deadline: The share of all rows whose time is within the deadline, but for `FEWEST`.
    """
    draw = Draw(np.random.default_rng([SEED, number_of(name)]), level)
    model, sigma = family.model(draw), draw.between(0.03, 0.08)
    kinds = sorted({(k, m.facts["provider"], m.facts[k]) for k in TASTES for m in family.machines})
    liked = {kind: draw.irregular(TASTES[kind[0]]) for kind in kinds}
    settings = [dict(zip(family.settings, v, strict=True)) for v in itertools.product(*family.settings.values())]
    rows = []
    for machine, nodes, chosen in itertools.product(family.machines, family.nodes or (None,), settings):
        run = model(machine, nodes or 1, chosen)
        factor = math.prod(liked[k, machine.facts["provider"], machine.facts[k]] for k in TASTES)
        seconds = round(run.seconds * factor * draw.irregular(sigma), 3)
        rows.append(row(machine.name, nodes, seconds, run.failed, **chosen))
        if family.choices:
            rows[-1]["values"] = {**family.choices[machine.name], "nodes": nodes}
    ordered = {k: list(v) for k, v in family.settings.items() if k != "precision"}
    parameters = family.parameters or instance_parameters(rows, **ordered)
    machines = {m.name: dict(m.facts) for m in family.machines}
    made = table(name, machines, rows, problem=("made", name), parameters=parameters)
    least = sorted(r["seconds"] for r in rows if not r["failed"])[math.ceil(FEWEST * len(rows)) - 1]
    return {**made, "deadline": max(least, deadline_of([r["seconds"] for r in rows], deadline))}


def make(deadline: float = 0.5, only: Iterable[str] = ()) -> list[Table]:
    """All tables.

    Args:
        deadline: As for `job_table`.
        only: Names of families; all without it.
    """
    wanted = {name: family for name, family in families().items() if not only or name in only}
    return [
        job_table(f"{name}/{job + 1}", family, job / (family.jobs - 1), deadline)
        for name, family in wanted.items()
        for job in range(family.jobs)
    ]


def described(found: Sequence[Table]) -> str:
    """What the tables of a family are like, in one line; figures are of each table in turn."""
    shown: dict[str, list[str]] = {k: [] for k in ("failed", "dearest/cheapest", "feasible", "optimum at")}
    for one in found:
        seconds = np.array([r["seconds"] for r in one["rows"]])
        failed = np.array([r["failed"] for r in one["rows"]])
        hourly = np.array([one["machines"][r["machine"]]["price"] * r["nodes"] for r in one["rows"]])
        feasible = ~failed & (seconds <= one["deadline"])
        costs = np.where(feasible, hourly * seconds, np.nan)
        place = hourly[np.nanargmin(costs)]
        quantile = (np.mean(hourly < place) + np.mean(hourly <= place)) / 2
        shown["failed"].append(f"{failed.sum()}")
        shown["dearest/cheapest"].append(f"{np.nanmax(costs) / np.nanmin(costs):.1f}")
        shown["feasible"].append(f"{feasible.mean():.0%}")
        shown["optimum at"].append(f"{quantile:.2f}")
    words, size = "; ".join(f"{k} {' '.join(v)}" for k, v in shown.items()), f"{len(found)} x {len(found[0]['rows'])}"
    times = [r["seconds"] for one in found for r in one["rows"] if not r["failed"]]
    return f"{found[0]['family']}: {size}, {min(times):.0f} to {max(times):.0f} s; {words} of price per hour"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=HERE / "work-made", help="folder that tables.json is written to")
    parser.add_argument("--deadline", type=float, default=0.5, help="share of all rows that are in time: 0.2 is tight")
    given = parser.parse_args()
    if not 0 < given.deadline <= 1:
        parser.error("--deadline is above 0 and at most 1")
    found = make(given.deadline)
    given.work.mkdir(parents=True, exist_ok=True)
    (given.work / "tables.json").write_text(json.dumps(found))
    for family in dict.fromkeys(one["family"] for one in found):
        print(described([one for one in found if one["family"] == family]))


if __name__ == "__main__":
    main()
