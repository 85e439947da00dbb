"""Google Compute Engine machine types and their on-demand Linux prices.

Source: the public list prices of https://cloud.google.com/compute/vm-instance-pricing (on demand, USD per hour),
written down by family from general knowledge of that list: a family has one price per vCPU and one per GiB. Prices
are those of us-central1; us-east1 and us-west1 have the same, europe-west1 is 10 % above for the families in
`EUROPE`. They are as of `DATE`; shipped where no package has them (see README.md).

Checked on 2026-11-21: the families e2, n1, n2, n2d, c2 and m1 agree within 2 % with an independent table of the month
of `DATE` in us-central1 and europe-west1; the others could not be compared. The prices of
these families were written with that table in view.
"""

from __future__ import annotations

from collections.abc import Iterator

from tools.prices.machine_types import ARCHITECTURES, MachineType, table_rows

from tradewind.selector.catalogue.price_list import tidy_price

DATE = "2025-03-01"
SOURCE = "typed from cloud.google.com"
HOME = "us-central1"

# family, USD per vCPU and hour, USD per GiB and hour, architecture
COMPONENTS = """
e2  0.02181159 0.00292353 x
n1  0.031611   0.004237   x
n2  0.031611   0.004237   x
n2d 0.027502   0.003686   x
t2d 0.027502   0.003686   x
t2a 0.0250     0.003375   a
c2  0.033982   0.004555   x
c2d 0.029563   0.003959   x
c3  0.03475    0.003913   x
c3d 0.029563   0.003959   x
m1  0.0348     0.0051     x
"""

# family, kind, category, GiB per vCPU, sizes in vCPU (size:GiB where memory is not in step)
KINDS = """
e2  standard general 4    2 4 8 16 32
e2  highmem  memory  8    2 4 8 16
e2  highcpu  compute 1    2 4 8 16 32
n1  standard general 3.75 1 2 4 8 16 32 64 96
n1  highmem  memory  6.5  2 4 8 16 32 64 96
n1  highcpu  compute 0.9  2 4 8 16 32 64 96
n2  standard general 4    2 4 8 16 32 48 64 80 96 128
n2  highmem  memory  8    2 4 8 16 32 48 64 80 96 128:864
n2  highcpu  compute 1    2 4 8 16 32 48 64 80 96
n2d standard general 4    2 4 8 16 32 48 64 80 96 128 224
n2d highmem  memory  8    2 4 8 16 32 48 64 80 96
n2d highcpu  compute 1    2 4 8 16 32 48 64 80 96 128 224
t2d standard general 4    1 2 4 8 16 32 48 60
t2a standard general 4    1 2 4 8 16 32 48
c2  standard compute 4    4 8 16 30 60
c2d standard compute 4    2 4 8 16 32 56 112
c2d highmem  memory  8    2 4 8 16 32 56 112
c2d highcpu  compute 2    2 4 8 16 32 56 112
c3  standard general 4    4 8 22 44 88 176
c3  highmem  memory  8    4 8 22 44 88 176
c3  highcpu  compute 2    4 8 22 44 88 176
c3d standard general 4    4 8 16 30 60 90 180 360
c3d highmem  memory  8    4 8 16 30 60 90 180 360
c3d highcpu  compute 2    4 8 16 30:59 60:118 90:177 180:354 360:708
m1  megamem  memory  14.933 96:1433.6
m1  ultramem memory  24   40:961 80:1922 160:3844
"""

# name, category, architecture, vCPU, GiB, USD per hour, accelerators, their name
SINGLE = """
f1-micro  burstable x 1 0.6 0.0076
g1-small  burstable x 1 1.7 0.0257
e2-micro  burstable x 2 1   0.00837643
e2-small  burstable x 2 2   0.01675286
e2-medium burstable x 2 4   0.03350571
a2-highgpu-1g  accelerated x 12 85   3.673385  1 A100
a2-highgpu-2g  accelerated x 24 170  7.34677   2 A100
a2-highgpu-4g  accelerated x 48 340  14.69354  4 A100
a2-highgpu-8g  accelerated x 96 680  29.38708  8 A100
a2-megagpu-16g accelerated x 96 1360 55.739504 16 A100
g2-standard-4  accelerated x 4  16   0.70683   1 L4
g2-standard-8  accelerated x 8  32   0.85362   1 L4
g2-standard-12 accelerated x 12 48   1.00041   1 L4
g2-standard-16 accelerated x 16 64   1.14720   1 L4
g2-standard-24 accelerated x 24 96   2.00082   2 L4
g2-standard-32 accelerated x 32 128  1.73437   1 L4
g2-standard-48 accelerated x 48 192  4.00164   4 L4
g2-standard-96 accelerated x 96 384  8.00328   8 L4
a3-highgpu-8g  accelerated x 208 1872 88.49    8 H100
"""

SAME_PRICE = ("us-east1", "us-west1")
"""Further regions that have the list price of `HOME`, accelerators left out."""

HOME_ONLY = frozenset(("m1", "t2a"))
"""Families that are listed for `HOME` only."""

EUROPE = frozenset(("e2", "n1", "n2", "n2d", "c2"))
"""Families that cost `EUROPE_FACTOR` times as much in europe-west1."""

EUROPE_FACTOR = 1.1


def components() -> dict[str, tuple[float, float]]:
    """USD per vCPU and per GiB, each per hour, in `HOME`, by family."""
    return {family: (float(cpu), float(gib)) for family, cpu, gib, _ in table_rows(COMPONENTS)}


def machine_types() -> Iterator[MachineType]:
    """All machine types of the tables, with the price of `HOME`."""
    units = components()
    arches = {family: ARCHITECTURES[arch] for family, _, _, arch in table_rows(COMPONENTS)}
    for family, kind, category, ratio, *sizes in table_rows(KINDS):
        cpu, gib = units[family]
        for size in sizes:
            count, _, odd = size.partition(":")
            vcpu = int(count)
            memory = float(odd) if odd else round(vcpu * float(ratio), 6)
            price = tidy_price(vcpu * cpu + memory * gib)
            yield MachineType(f"{family}-{kind}-{count}", family, category, arches[family], vcpu, memory, price)
    for name, category, arch, cpus, memory_gib, usd, *gpu in table_rows(SINGLE):
        gpus, accelerator = (int(gpu[0]), gpu[1]) if gpu else (0, "")
        yield MachineType(
            name,
            name.partition("-")[0],
            category,
            ARCHITECTURES[arch],
            float(cpus),
            float(memory_gib),
            float(usd),
            gpus,
            accelerator,
        )


def regional_prices() -> Iterator[tuple[str, MachineType, float]]:
    """Region, machine type and USD per hour of everything in the tables."""
    for machine in machine_types():
        yield HOME, machine, machine.price
        if not machine.gpus and machine.family not in HOME_ONLY:
            for region in SAME_PRICE:
                yield region, machine, machine.price
        if machine.family in EUROPE:
            yield "europe-west1", machine, tidy_price(machine.price * EUROPE_FACTOR)
