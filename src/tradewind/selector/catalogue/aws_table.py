"""Amazon EC2 machine types and their on-demand Linux prices.

Source: the public on-demand list prices of https://aws.amazon.com/ec2/pricing/on-demand/ (Linux, shared tenancy,
USD per hour), written down by family from general knowledge of that list. Prices are those of us-east-1; us-east-2
and us-west-2 have the same for the families named in `SAME_PRICE`. They are as of `DATE`; ``tradewind offers
refresh aws`` reads today's.

Checked on 2026-11-21: us-east-1 agrees within 2 % with an independent table of the month of `DATE`. For the other
regions there was a poor table only (apache-libcloud 3.9.1): 644 of 788 prices agree with it, as do 485 of 606 in
us-east-1.
"""

from __future__ import annotations

from collections.abc import Iterator

from tradewind.selector.catalogue.price_list import ARCHITECTURES, MachineType, table_rows, tidy_price

DATE = "2026-07-01"
SOURCE = "https://aws.amazon.com/ec2/pricing/on-demand/"
HOME = "us-east-1"

# family, category, architecture, GiB per vCPU, USD per hour of `large` (2 vCPU), sizes:
# m = medium (1 vCPU), l = large (2), a number n = n x xlarge (4 n).
LINEAR = """
a1    general  a 2     0.0510  m l 1 2 4
m4    general  x 4     0.1000  l 1 2 4 10 16
m5    general  x 4     0.0960  l 1 2 4 8 12 16 24
m5a   general  x 4     0.0860  l 1 2 4 8 12 16 24
m5ad  general  x 4     0.1030  l 1 2 4 8 12 16 24
m5d   general  x 4     0.1130  l 1 2 4 8 12 16 24
m5n   general  x 4     0.1190  l 1 2 4 8 12 16 24
m5dn  general  x 4     0.1360  l 1 2 4 8 12 16 24
m5zn  general  x 4     0.1652  l 1 2 3 6 12
m6i   general  x 4     0.0960  l 1 2 4 8 12 16 24 32
m6a   general  x 4     0.0864  l 1 2 4 8 12 16 24 32 48
m6g   general  a 4     0.0770  m l 1 2 4 8 12 16
m6gd  general  a 4     0.0904  m l 1 2 4 8 12 16
m6id  general  x 4     0.11865 l 1 2 4 8 12 16 24 32
m6in  general  x 4     0.13923 l 1 2 4 8 12 16 24 32
m6idn general  x 4     0.15912 l 1 2 4 8 12 16 24 32
m7i   general  x 4     0.1008  l 1 2 4 8 12 16 24 48
m7i-flex general x 4   0.09576 l 1 2 4 8 12 16
m7a   general  x 4     0.11592 m l 1 2 4 8 12 16 24 32 48
m7g   general  a 4     0.0816  m l 1 2 4 8 12 16
m7gd  general  a 4     0.1068  m l 1 2 4 8 12 16
m8g   general  a 4     0.08976 m l 1 2 4 8 12 16 24 48
m8i   general  x 4     0.10584 l 1 2 4 8 12 16 24 32 48 96
m8a   general  x 4     0.12172 m l 1 2 4 8 12 16 24 48
c5    compute  x 2     0.0850  l 1 2 4 9 12 18 24
c5a   compute  x 2     0.0770  l 1 2 4 8 12 16 24
c5ad  compute  x 2     0.0860  l 1 2 4 8 12 16 24
c5d   compute  x 2     0.0960  l 1 2 4 9 12 18 24
c6i   compute  x 2     0.0850  l 1 2 4 8 12 16 24 32
c6a   compute  x 2     0.0765  l 1 2 4 8 12 16 24 32 48
c6g   compute  a 2     0.0680  m l 1 2 4 8 12 16
c6gd  compute  a 2     0.0768  m l 1 2 4 8 12 16
c6gn  compute  a 2     0.0864  m l 1 2 4 8 12 16
c6id  compute  x 2     0.1008  l 1 2 4 8 12 16 24 32
c6in  compute  x 2     0.1134  l 1 2 4 8 12 16 24 32
c7i   compute  x 2     0.08925 l 1 2 4 8 12 16 24 48
c7i-flex compute x 2   0.08479 l 1 2 4 8 12 16
c7a   compute  x 2     0.10264 m l 1 2 4 8 12 16 24 32 48
c7g   compute  a 2     0.0725  m l 1 2 4 8 12 16
c7gd  compute  a 2     0.0907  m l 1 2 4 8 12 16
c7gn  compute  a 2     0.1248  m l 1 2 4 8 12 16
c8g   compute  a 2     0.07976 m l 1 2 4 8 12 16 24 48
c8i   compute  x 2     0.09371 l 1 2 4 8 12 16 24 32 48 96
c8a   compute  x 2     0.10777 m l 1 2 4 8 12 16 24 48
r4    memory   x 7.625 0.1330  l 1 2 4 8 16
r5    memory   x 8     0.1260  l 1 2 4 8 12 16 24
r5a   memory   x 8     0.1130  l 1 2 4 8 12 16 24
r5ad  memory   x 8     0.1310  l 1 2 4 8 12 16 24
r5b   memory   x 8     0.1490  l 1 2 4 8 12 16 24
r5d   memory   x 8     0.1440  l 1 2 4 8 12 16 24
r5n   memory   x 8     0.1490  l 1 2 4 8 12 16 24
r5dn  memory   x 8     0.1670  l 1 2 4 8 12 16 24
r6i   memory   x 8     0.1260  l 1 2 4 8 12 16 24 32
r6a   memory   x 8     0.1134  l 1 2 4 8 12 16 24 32 48
r6g   memory   a 8     0.1008  m l 1 2 4 8 12 16
r6gd  memory   a 8     0.1152  m l 1 2 4 8 12 16
r6id  memory   x 8     0.1512  l 1 2 4 8 12 16 24 32
r6in  memory   x 8     0.17433 l 1 2 4 8 12 16 24 32
r6idn memory   x 8     0.19539 l 1 2 4 8 12 16 24 32
r7i   memory   x 8     0.1323  l 1 2 4 8 12 16 24 48
r7a   memory   x 8     0.15215 m l 1 2 4 8 12 16 24 32 48
r7g   memory   a 8     0.1071  m l 1 2 4 8 12 16
r7gd  memory   a 8     0.1361  m l 1 2 4 8 12 16
r7iz  memory   x 8     0.1860  l 1 2 4 8 12 16 32
r8g   memory   a 8     0.11782 m l 1 2 4 8 12 16 24 48
r8i   memory   x 8     0.13892 l 1 2 4 8 12 16 24 32 48 96
r8a   memory   x 8     0.15976 m l 1 2 4 8 12 16 24 48
x2gd  memory   a 16    0.1670  m l 1 2 4 8 12 16
x1e   memory   x 30.5  0.4170  1 2 4 8 16 32
x2idn memory   x 16    0.20841 16 24 32
x2iedn memory  x 32    0.41682 1 2 4 8 16 24 32
x1    memory   x 15.25 0.20841 16 32
z1d   memory   x 8     0.1860  l 1 2 3 6 12
d3    storage  x 8     0.2495  1 2 4 8
d3en  storage  x 4     0.2630  1 2 4 6 8 12
h1    storage  x 4     0.1170  2 4 8 16
i3    storage  x 7.625 0.1560  l 1 2 4 8 16
i3en  storage  x 8     0.2260  l 1 2 3 6 12 24
i4i   storage  x 8     0.17160 l 1 2 4 8 12 16 24 32
i4g   storage  a 8     0.15444 l 1 2 4 8 16
i7i   storage  x 8     0.18876 l 1 2 4 8 12 16 24 48
i7ie  storage  x 8     0.25988 l 1 2 3 6 12 18 24 48
i8g   storage  a 8     0.17160 l 1 2 4 8 12 16 24 48
im4gn storage  a 4     0.18190 l 1 2 4 8 16
is4gen storage a 6     0.28815 m l 1 2 4 8
"""

# name, category, architecture, vCPU, GiB, USD per hour, accelerators, their name
SINGLE = """
t2.nano      burstable x 1 0.5 0.0058
t2.micro     burstable x 1 1   0.0116
t2.small     burstable x 1 2   0.0230
t2.medium    burstable x 2 4   0.0464
t2.large     burstable x 2 8   0.0928
t2.xlarge    burstable x 4 16  0.1856
t2.2xlarge   burstable x 8 32  0.3712
t3.nano      burstable x 2 0.5 0.0052
t3.micro     burstable x 2 1   0.0104
t3.small     burstable x 2 2   0.0208
t3.medium    burstable x 2 4   0.0416
t3.large     burstable x 2 8   0.0832
t3.xlarge    burstable x 4 16  0.1664
t3.2xlarge   burstable x 8 32  0.3328
t3a.nano     burstable x 2 0.5 0.0047
t3a.micro    burstable x 2 1   0.0094
t3a.small    burstable x 2 2   0.0188
t3a.medium   burstable x 2 4   0.0376
t3a.large    burstable x 2 8   0.0752
t3a.xlarge   burstable x 4 16  0.1504
t3a.2xlarge  burstable x 8 32  0.3008
t4g.nano     burstable a 2 0.5 0.0042
t4g.micro    burstable a 2 1   0.0084
t4g.small    burstable a 2 2   0.0168
t4g.medium   burstable a 2 4   0.0336
t4g.large    burstable a 2 8   0.0672
t4g.xlarge   burstable a 4 16  0.1344
t4g.2xlarge  burstable a 8 32  0.2688
c4.large     compute x 2  3.75 0.1000
c4.xlarge    compute x 4  7.5  0.1990
c4.2xlarge   compute x 8  15   0.3980
c4.4xlarge   compute x 16 30   0.7960
c4.8xlarge   compute x 36 60   1.5910
c5n.large    compute x 2  5.25 0.1080
c5n.xlarge   compute x 4  10.5 0.2160
c5n.2xlarge  compute x 8  21   0.4320
c5n.4xlarge  compute x 16 42   0.8640
c5n.9xlarge  compute x 36 96   1.9440
c5n.18xlarge compute x 72 192  3.8880
d2.xlarge    storage x 4  30.5 0.6900
d2.2xlarge   storage x 8  61   1.3800
d2.4xlarge   storage x 16 122  2.7600
d2.8xlarge   storage x 36 244  5.5200
g4dn.xlarge   accelerated x 4  16  0.526 1 T4
g4dn.2xlarge  accelerated x 8  32  0.752 1 T4
g4dn.4xlarge  accelerated x 16 64  1.204 1 T4
g4dn.8xlarge  accelerated x 32 128 2.176 1 T4
g4dn.12xlarge accelerated x 48 192 3.912 4 T4
g4dn.16xlarge accelerated x 64 256 4.352 1 T4
g4ad.xlarge   accelerated x 4  16  0.37853 1 V520
g4ad.2xlarge  accelerated x 8  32  0.54117 1 V520
g4ad.4xlarge  accelerated x 16 64  0.867   1 V520
g4ad.8xlarge  accelerated x 32 128 1.734   2 V520
g4ad.16xlarge accelerated x 64 256 3.468   4 V520
g5.xlarge     accelerated x 4   16  1.006  1 A10G
g5.2xlarge    accelerated x 8   32  1.212  1 A10G
g5.4xlarge    accelerated x 16  64  1.624  1 A10G
g5.8xlarge    accelerated x 32  128 2.448  1 A10G
g5.12xlarge   accelerated x 48  192 5.672  4 A10G
g5.16xlarge   accelerated x 64  256 4.096  1 A10G
g5.24xlarge   accelerated x 96  384 8.144  4 A10G
g5.48xlarge   accelerated x 192 768 16.288 8 A10G
g5g.xlarge    accelerated a 4   8   0.42   1 T4G
g5g.2xlarge   accelerated a 8   16  0.556  1 T4G
g5g.4xlarge   accelerated a 16  32  0.828  1 T4G
g5g.8xlarge   accelerated a 32  64  1.372  1 T4G
g5g.16xlarge  accelerated a 64  128 2.744  2 T4G
g6.xlarge     accelerated x 4   16  0.8048  1 L4
g6.2xlarge    accelerated x 8   32  0.9776  1 L4
g6.4xlarge    accelerated x 16  64  1.3232  1 L4
g6.8xlarge    accelerated x 32  128 2.0144  1 L4
g6.12xlarge   accelerated x 48  192 4.6016  4 L4
g6.16xlarge   accelerated x 64  256 3.3968  1 L4
g6.24xlarge   accelerated x 96  384 6.6752  4 L4
g6.48xlarge   accelerated x 192 768 13.3504 8 L4
g6e.xlarge    accelerated x 4   32  1.861    1 L40S
g6e.2xlarge   accelerated x 8   64  2.24208  1 L40S
g6e.4xlarge   accelerated x 16  128 3.00424  1 L40S
g6e.8xlarge   accelerated x 32  256 4.52856  1 L40S
g6e.12xlarge  accelerated x 48  384 10.49264 4 L40S
g6e.16xlarge  accelerated x 64  512 7.57719  1 L40S
g6e.24xlarge  accelerated x 96  768 15.06559 4 L40S
g6e.48xlarge  accelerated x 192 1536 30.13118 8 L40S
p3.2xlarge    accelerated x 8   61  3.06   1 V100
p3.8xlarge    accelerated x 32  244 12.24  4 V100
p3.16xlarge   accelerated x 64  488 24.48  8 V100
p3dn.24xlarge accelerated x 96  768 31.212 8 V100
p4d.24xlarge  accelerated x 96  1152 21.957642 8 A100
p4de.24xlarge accelerated x 96  1152 27.44705  8 A100-80GB
p5.4xlarge    accelerated x 16  256  6.88   1 H100
p5.48xlarge   accelerated x 192 2048 55.04  8 H100
p5en.48xlarge accelerated x 192 2048 63.296 8 H200
inf1.xlarge   accelerated x 4   8    0.228 1 Inferentia
inf1.2xlarge  accelerated x 8   16   0.362 1 Inferentia
inf1.6xlarge  accelerated x 24  48   1.18  4 Inferentia
inf1.24xlarge accelerated x 96  192  4.721 16 Inferentia
inf2.xlarge   accelerated x 4   16   0.7582   1 Inferentia2
inf2.8xlarge  accelerated x 32  128  1.96786  1 Inferentia2
inf2.24xlarge accelerated x 96  384  6.49063  6 Inferentia2
inf2.48xlarge accelerated x 192 768  12.98127 12 Inferentia2
trn1.2xlarge  accelerated x 8   32   1.34375 1 Trainium
trn1.32xlarge accelerated x 128 512  21.5    16 Trainium
"""

_SAME = (
    "t2 t3 t3a t4g m4 m5 m5a m5d m5n m6i m6a m6g m6gd m7i m7g c4 c5 c5a c5d c5n c6i c6a c6g c6gd c7i c7g r4 r5 r5a"
    " r5d r5n r6i r6a r6g r6gd r7i r7g i3 i3en i4i d3 z1d x1 g4dn g5 g6 p3"
)
SAME_PRICE = {region: frozenset(_SAME.split()) for region in ("us-east-2", "us-west-2")}
"""Families of further regions whose list price is that of `HOME`."""

# USD per hour of `large` in regions that charge more, for the families that are sold there since long.
OTHER_PRICE = {
    "eu-west-1": "t3 0.0912 t3a 0.0816 t4g 0.0736 m5 0.107 m5a 0.096 m6i 0.107 m6g 0.086 c5 0.096 c6i 0.0912 c6g 0.073"
    " r5 0.141 r5a 0.127 r6i 0.141 r6g 0.113",
    "eu-central-1": "t3 0.096 t3a 0.0864 t4g 0.0768 m5 0.115 m5a 0.104 m6i 0.115 m6g 0.092 c5 0.097 c6i 0.097"
    " c6g 0.0776 r5 0.152 r5a 0.137 r6i 0.152 r6g 0.1216",
}


def machine_types() -> Iterator[MachineType]:
    """All machine types of the tables, with the price of `HOME`."""
    for family, category, arch, ratio, large, *sizes in table_rows(LINEAR):
        for size in sizes:
            name = {"m": "medium", "l": "large", "1": "xlarge"}.get(size, f"{size}xlarge")
            vcpu = {"m": 1, "l": 2}.get(size) or 4 * int(size)
            price = tidy_price(float(large) / 2 * vcpu)
            yield MachineType(
                f"{family}.{name}", family, category, ARCHITECTURES[arch], vcpu, vcpu * float(ratio), price
            )
    for name, category, arch, cpus, memory, usd, *gpu in table_rows(SINGLE):
        count, accelerator = (int(gpu[0]), gpu[1]) if gpu else (0, "")
        family = name.partition(".")[0]
        yield MachineType(
            name, family, category, ARCHITECTURES[arch], float(cpus), float(memory), float(usd), count, accelerator
        )


def regional_prices() -> Iterator[tuple[str, MachineType, float]]:
    """Region, machine type and USD per hour of everything in the tables."""
    types = list(machine_types())
    large = {t.family: t.price for t in types if t.name.endswith(".large")}
    for machine in types:
        yield HOME, machine, machine.price
        for region, families in SAME_PRICE.items():
            if machine.family in families:
                yield region, machine, machine.price
    for region, words in OTHER_PRICE.items():
        prices = dict(zip(words.split()[::2], map(float, words.split()[1::2]), strict=True))
        for machine in types:
            if machine.family in prices:
                yield region, machine, tidy_price(machine.price * prices[machine.family] / large[machine.family])
