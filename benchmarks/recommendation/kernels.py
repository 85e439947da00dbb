"""Where more nodes stop helping: ``python kernels.py [repetitions]`` as root makes ``kernels.csv``; ``show`` shows it.

Kernels in the kind of the NAS Parallel Benchmarks on 1 to 8 nodes of one vCPU each (a tenth of a core), with networks
of different bandwidth, as in the publication's figures 6 and 7.
"""

from __future__ import annotations

import csv
import itertools
import os
import signal
import sys
from collections import defaultdict
from statistics import median

from cluster import cluster
from prepare import HERE, build

TABLE = HERE / "kernels.csv"
SHARE = 0.1
KERNELS = {"is": "IS, integer sort", "cg": "CG, conjugate gradients", "mg": "MG, multigrid", "ft": "FT, transpose"}
NODES = (1, 2, 4, 8)
MBIT = (5.0, 20.0, 100.0, 1000.0)


def measure(repetitions: int) -> None:
    """Run everything, and write the table."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the cluster is taken away then, too
    program = build("kernels")
    rows: list[tuple[object, ...]] = []
    checked: dict[str, str] = {}
    for mbit in MBIT:
        with cluster(max(NODES), SHARE, mbit) as made:
            for kernel, nodes, part in itertools.product(KERNELS, NODES, range(repetitions)):
                name, count, seconds, number = made.run(program, [kernel], nodes=nodes, vcpu=1).split()
                if (name, int(count)) != (kernel, nodes) or checked.setdefault(kernel, number) != number:
                    raise RuntimeError(f"{kernel} on {nodes} nodes: {number} instead of {checked[kernel]}")
                rows.append((kernel, mbit, nodes, part, seconds))
            print(f"{mbit:g} Mbit/s", flush=True)
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("kernel", "mbit", "nodes", "part", "seconds"))
        writer.writerows(rows)


def show() -> None:
    """Print the table: seconds by number of nodes, the best in bold, and how many times as quick as one node it is."""
    cells: dict[tuple[str, float, int], list[float]] = defaultdict(list)
    with TABLE.open(newline="") as file:
        for row in csv.DictReader(file):
            cells[row["kernel"], float(row["mbit"]), int(row["nodes"])].append(float(row["seconds"]))
    print(f"| kernel | Mbit/s | {' | '.join(f'{n} node' + 's' * (n > 1) for n in NODES)} | best | times as quick |")
    print("| --- |" + " ---: |" * (len(NODES) + 3))
    for kernel, mbit in itertools.product(KERNELS, MBIT):
        seconds = {nodes: median(cells[kernel, mbit, nodes]) for nodes in NODES}
        best = min(seconds, key=lambda nodes: seconds[nodes])
        shown = [f"**{s:.2f} s**" if n == best else f"{s:.2f} s" for n, s in seconds.items()]
        print(f"| {KERNELS[kernel]} | {mbit:g} | {' | '.join(shown)} | {best} | {seconds[1] / seconds[best]:.1f} |")


if __name__ == "__main__":
    if os.geteuid() == 0 and "show" not in sys.argv:
        measure(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
    show()
