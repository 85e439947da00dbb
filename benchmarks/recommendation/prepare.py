"""Measures the two programs on every cluster: ``python prepare.py [passes]`` as root; adds to ``recorded.csv``.

Each pass runs every point of parameters on every number of nodes and threads once, and is continued where it was
interrupted. A vCPU is a twentieth of a core, and a node's network 20 Mbit/s: the largest cluster, 8 nodes of 4 vCPUs,
takes 1.6 of this machine's cores.
"""

from __future__ import annotations

import csv
import itertools
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

from cluster import Cluster, cluster

HERE = Path(__file__).parent
WORK = HERE / "work"
TABLE = HERE / "recorded.csv"
COLUMNS = ("program", "first", "second", "nodes", "threads", "part", "seconds")
SHARE, MBIT = 0.05, 20.0
NODES, THREADS = range(1, 9), range(1, 5)
POINTS = {
    "dynamic": list(itertools.product((1, 2, 4, 8, 16), (100, 200, 400, 800, 1600))),
    "static": list(itertools.product((32, 64, 128, 256, 512), (100, 200, 400, 800, 1600))),
}
"""By program: subtasks in a group, or in all, and thousands of memory accesses of a subtask."""


def build(name: str) -> Path:
    """Compile a program."""
    WORK.mkdir(exist_ok=True)
    target = WORK / name
    command = ["mpicc", "-O2", "-fopenmp", "-o", str(target), str(HERE / f"{name}.c"), "-lm"]
    subprocess.run(command, check=True, timeout=120)
    return target


def measure(nodes: Cluster, program: Path, name: str, count: int, threads: int, part: int) -> list[tuple[object, ...]]:
    """All points of one program on one cluster, in random order; the first one is run before it counts."""
    points = list(POINTS[name])
    Random(part * 1000 + count * 10 + threads).shuffle(points)
    given = "".join(f"{a} {b}\n" for a, b in (points[0], points[0], *points))
    answer = nodes.run(program, [name], nodes=count, vcpu=threads, given=given, head=name == "dynamic")
    rows: list[tuple[object, ...]] = []
    for line in answer.splitlines()[2:]:
        first, second, seconds = line.split()
        rows.append((name, int(first), int(second), count, threads, part, float(seconds)))
    return rows


def main() -> None:
    passes = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the cluster is taken away then, too
    program = build("subtasks")
    new = not TABLE.exists()
    with TABLE.open("a+", newline="") as file:
        file.seek(0)
        done = {tuple(row[name] for name in ("program", "nodes", "threads", "part")) for row in csv.DictReader(file)}
        writer = csv.writer(file)
        if new:
            writer.writerow(COLUMNS)
        with cluster(max(NODES), SHARE, MBIT) as made:
            for part, name, count, threads in itertools.product(range(passes), POINTS, NODES, THREADS):
                if (name, str(count), str(threads), str(part)) in done:
                    continue
                writer.writerows(measure(made, program, name, count, threads, part))
                file.flush()
                print(f"pass {part + 1}: {name} on {count} x {threads}", flush=True)


if __name__ == "__main__":
    main()
