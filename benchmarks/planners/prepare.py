"""The cells of the benchmark of planners: 20 Pegasus graphs on paper 3's four sets of machines.

    python benchmarks/planners/prepare.py [--data ../shared/datasets]

writes work/cells.json. One activation at a time on each machine, inputs from a shared file system of 15 MB/s, every
task on one core, as WorkflowSim has it.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
from pathlib import Path

from tradewind.workflow.graph import Workflow
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.readers.dax import read_dax

HERE = Path(__file__).parent
VCPUS = (16, 32, 64, 128)


def read(file: Path) -> Workflow:
    """A graph of which every task uses one core."""
    flow = read_dax(gzip.decompress(file.read_bytes()), str(file), lenient=True)
    return Workflow(flow.name, tuple(dataclasses.replace(t, cores=1) for t in flow.tasks), flow.parents, flow.sizes)


def machines(vcpu: int) -> Platform:
    """Eight machines of speed 1 and some of 4.156."""
    vms = [Vm(f"slow{i}") for i in range(8)] + [Vm(f"fast{i}", 4.156) for i in range((vcpu - 8) // 8)]
    return Platform(tuple(vms), "shared")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=HERE.parents[2] / "shared" / "datasets")
    data = parser.parse_args().data / "dax"
    files = [file for file in sorted(data.glob("*.xml.gz")) if not file.name.startswith("HEFT_paper")]
    cells = [{"file": str(file), "graph": file.name.partition(".")[0], "vcpu": v} for file in files for v in VCPUS]
    (HERE / "work").mkdir(exist_ok=True)
    (HERE / "work" / "cells.json").write_text(json.dumps(cells, indent=1) + "\n")
    print(f"{len(cells)} cells of {len(files)} graphs")


if __name__ == "__main__":
    main()
