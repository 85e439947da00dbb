"""Azure virtual machine sizes and their pay-as-you-go Linux prices.

Source: the public list prices of https://azure.microsoft.com/pricing/details/virtual-machines/linux/ (pay as you
go, USD per hour), written down by series from general knowledge of that list. Prices are those of eastus; the
regions in `SAME_PRICE` have the same for the series named there. They are as of `DATE`, and shipped where no package
has them (README.md).

Checked on 2026-11-21 against an independent table of the month of `DATE`: all but some AMD sizes, for which that table
has about twice the price of its neighbours, agree within 2 %. The ``lds_v5`` and ``plds_v5`` series, E64 v3
and two A v2 sizes were corrected by that comparison, and `SAME_PRICE` and `DIFFERENT` rest on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tools.prices.machine_types import ARCHITECTURES, MachineType, table_rows

from tradewind.selector.catalogue.price_list import tidy_price

DATE = "2026-06-01"
SOURCE = "typed from azure.microsoft.com"
HOME = "eastus"

# series with * for the vCPU count, category, architecture, GiB per vCPU, USD per hour of 2 vCPU, sizes in vCPU
# (size:GiB where memory is not in step).
LINEAR = """
D*_v3     general x 4 0.0960 2 4 8 16 32 48 64
D*s_v3    general x 4 0.0960 2 4 8 16 32 48 64
D*_v4     general x 4 0.0960 2 4 8 16 32 48 64
D*s_v4    general x 4 0.0960 2 4 8 16 32 48 64
D*d_v4    general x 4 0.1130 2 4 8 16 32 48 64
D*ds_v4   general x 4 0.1130 2 4 8 16 32 48 64
D*a_v4    general x 4 0.0960 2 4 8 16 32 48 64 96
D*as_v4   general x 4 0.0960 2 4 8 16 32 48 64 96
D*_v5     general x 4 0.0960 2 4 8 16 32 48 64 96
D*s_v5    general x 4 0.0960 2 4 8 16 32 48 64 96
D*d_v5    general x 4 0.1130 2 4 8 16 32 48 64 96
D*ds_v5   general x 4 0.1130 2 4 8 16 32 48 64 96
D*as_v5   general x 4 0.0860 2 4 8 16 32 48 64 96
D*ads_v5  general x 4 0.1030 2 4 8 16 32 48 64 96
D*ps_v5   general a 4 0.0770 2 4 8 16 32 48 64:208
D*pds_v5  general a 4 0.0904 2 4 8 16 32 48 64:208
D*ls_v5   compute x 2 0.0850 2 4 8 16 32 48 64 96
D*lds_v5  compute x 2 0.0960 2 4 8 16 32 48 64 96
D*pls_v5  compute a 2 0.0680 2 4 8 16 32 48 64
D*plds_v5 compute a 2 0.0768 2 4 8 16 32 48 64
D*s_v6    general x 4 0.1010 2 4 8 16 32 48 64 96 128
D*as_v6   general x 4 0.0910 2 4 8 16 32 48 64 96
E*_v3     memory  x 8 0.1260 2 4 8 16 20 32 48
E*s_v3    memory  x 8 0.1260 2 4 8 16 20 32 48
E*_v4     memory  x 8 0.1260 2 4 8 16 20 32 48 64:504
E*s_v4    memory  x 8 0.1260 2 4 8 16 20 32 48 64:504
E*d_v4    memory  x 8 0.1440 2 4 8 16 20 32 48 64:504
E*ds_v4   memory  x 8 0.1440 2 4 8 16 20 32 48 64:504
E*a_v4    memory  x 8 0.1260 2 4 8 16 20 32 48 64 96:672
E*as_v4   memory  x 8 0.1260 2 4 8 16 20 32 48 64 96:672
E*_v5     memory  x 8 0.1260 2 4 8 16 20 32 48 64 96:672
E*s_v5    memory  x 8 0.1260 2 4 8 16 20 32 48 64 96:672
E*d_v5    memory  x 8 0.1440 2 4 8 16 20 32 48 64 96:672
E*ds_v5   memory  x 8 0.1440 2 4 8 16 20 32 48 64 96:672
E*as_v5   memory  x 8 0.1130 2 4 8 16 20 32 48 64 96:672
E*ads_v5  memory  x 8 0.1310 2 4 8 16 20 32 48 64 96:672
E*ps_v5   memory  a 8 0.1010 2 4 8 16 20 32:208
E*pds_v5  memory  a 8 0.1150 2 4 8 16 20 32:208
F*s_v2    compute x 2 0.0846 2 4 8 16 32 48 64 72
L*s_v2    storage x 8 0.1560 8 16 32 48 64 80
L*s_v3    storage x 8 0.1740 8 16 32 48 64 80
L*as_v3   storage x 8 0.1560 8 16 32 48 64 80
"""

# name, category, architecture, vCPU, GiB, USD per hour, accelerators, their name
SINGLE = """
A1_v2   general x 1 2  0.043
A2_v2   general x 2 4  0.091
A4_v2   general x 4 8  0.191
A8_v2   general x 8 16 0.400
A2m_v2  memory  x 2 16 0.119
A4m_v2  memory  x 4 32 0.238
A8m_v2  memory  x 8 64 0.476
B1ls    burstable x 1  0.5 0.0052
B1s     burstable x 1  1   0.0104
B1ms    burstable x 1  2   0.0207
B2s     burstable x 2  4   0.0416
B2ms    burstable x 2  8   0.0832
B4ms    burstable x 4  16  0.166
B8ms    burstable x 8  32  0.333
B12ms   burstable x 12 48  0.499
B16ms   burstable x 16 64  0.666
B20ms   burstable x 20 80  0.832
B2ts_v2  burstable x 2 1   0.0104
B2ls_v2  burstable x 2 4   0.0416
B2s_v2   burstable x 2 8   0.0832
B2ats_v2 burstable x 2 1   0.0094
B2als_v2 burstable x 2 4   0.0376
B2as_v2  burstable x 2 8   0.0752
D1_v2    general x 1  3.5 0.073
D2_v2    general x 2  7   0.146
D3_v2    general x 4  14  0.293
D4_v2    general x 8  28  0.585
D5_v2    general x 16 56  1.17
DS1_v2   general x 1  3.5 0.073
DS2_v2   general x 2  7   0.146
DS3_v2   general x 4  14  0.293
DS4_v2   general x 8  28  0.585
DS5_v2   general x 16 56  1.17
D11_v2   memory  x 2  14  0.185
D12_v2   memory  x 4  28  0.370
D13_v2   memory  x 8  56  0.741
D14_v2   memory  x 16 112 1.482
F1       compute x 1  2   0.0497
F2       compute x 2  4   0.099
F4       compute x 4  8   0.199
F8       compute x 8  16  0.398
F16      compute x 16 32  0.796
F1s      compute x 1  2   0.0497
F2s      compute x 2  4   0.099
F4s      compute x 4  8   0.199
F8s      compute x 8  16  0.398
F16s     compute x 16 32  0.796
E64_v3   memory  x 64  432  3.629
E64s_v3  memory  x 64  432  3.629
M64s     memory  x 64  1024 6.669
M64ms    memory  x 64  1792 10.337
M128s    memory  x 128 2048 13.338
M128ms   memory  x 128 3892 26.688
HC44rs     compute x 44  352 3.168
HB120rs_v2 compute x 120 456 3.6
HB120rs_v3 compute x 120 448 3.6
HB176rs_v4 compute x 176 768 7.2
NC6s_v3   accelerated x 6  112 3.06   1 V100
NC12s_v3  accelerated x 12 224 6.12   2 V100
NC24s_v3  accelerated x 24 448 12.24  4 V100
NC24rs_v3 accelerated x 24 448 13.464 4 V100
NC4as_T4_v3  accelerated x 4  28  0.526 1 T4
NC8as_T4_v3  accelerated x 8  56  0.752 1 T4
NC16as_T4_v3 accelerated x 16 110 1.204 1 T4
NC64as_T4_v3 accelerated x 64 440 4.352 4 T4
NC24ads_A100_v4 accelerated x 24 220 3.673  1 A100-80GB
NC48ads_A100_v4 accelerated x 48 440 7.346  2 A100-80GB
NC96ads_A100_v4 accelerated x 96 880 14.692 4 A100-80GB
NC40ads_H100_v5 accelerated x 40 320 6.98   1 H100
NC80adis_H100_v5 accelerated x 80 640 13.96 2 H100
ND96asr_v4        accelerated x 96 900  27.197  8 A100
ND96amsr_A100_v4  accelerated x 96 1900 32.77   8 A100-80GB
ND96isr_H100_v5   accelerated x 96 1900 98.32   8 H100
NV36ads_A10_v5    accelerated x 36 440 3.2  1 A10
NV72ads_A10_v5    accelerated x 72 880 6.52 2 A10
"""

_DIFFERENT = "A*_v2 A*m_v2 B*ts_v2 B*ls_v2 B*s_v2 B*ats_v2 B*als_v2 B*as_v2 D*_v2 DS*_v2 E*_v3 E*s_v3"
DIFFERENT = frozenset(_DIFFERENT.split())
"""Series whose price is not the same in all of `SAME_PRICE`."""

SAME_PRICE = ("eastus2", "westus2")
"""Further regions that have the list price of `HOME`, but for the series in `DIFFERENT` and the large HPC machines."""

_HOME_ONLY = ("HB", "HC", "ND")


def machine_types() -> Iterator[MachineType]:
    """All sizes of the tables, with the price of `HOME`."""
    for series, category, arch, ratio, two, *sizes in table_rows(LINEAR):
        for size in sizes:
            count, _, memory = size.partition(":")
            vcpu = int(count)
            yield MachineType(
                "Standard_" + series.replace("*", count),
                series.replace("*", ""),
                category,
                ARCHITECTURES[arch],
                vcpu,
                float(memory) if memory else vcpu * float(ratio),
                tidy_price(float(two) / 2 * vcpu),
            )
    for name, category, arch, cpus, gib, usd, *gpu in table_rows(SINGLE):
        gpus, accelerator = (int(gpu[0]), gpu[1]) if gpu else (0, "")
        yield MachineType(
            f"Standard_{name}",
            series_of(name).replace("*", ""),
            category,
            ARCHITECTURES[arch],
            float(cpus),
            float(gib),
            float(usd),
            gpus,
            accelerator,
        )


def series_of(name: str) -> str:
    """The series of a size: ``D2s_v5`` is of ``D*s_v5``."""
    return re.sub(r"^([A-Z]+)\d+", r"\1*", name)


def regional_prices() -> Iterator[tuple[str, MachineType, float]]:
    """Region, size and USD per hour of everything in the tables."""
    for machine in machine_types():
        yield HOME, machine, machine.price
        name = machine.name.removeprefix("Standard_")
        if series_of(name) not in DIFFERENT and not name.startswith(_HOME_ONLY):
            for region in SAME_PRICE:
                yield region, machine, machine.price
