"""How long a job of each made family takes on a machine: `made.py` makes tables of these models.

Each function draws a job and returns its model. ``level``, from 0 for the first job of a family to 1 for its last, sets
what the jobs of a family differ by most; all else is drawn. Work is in seconds of one core of speed 1, data in GB (1e9
bytes), memory in GiB, and a model knows of a machine what its catalogue does not tell: what its cores, its memory, its
network and its disk really do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.random import Generator


class Run(NamedTuple):
    """What becomes of a run: the seconds until it ends, and whether it fails then."""

    seconds: float
    failed: bool = False


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A kind of accelerator: TFLOP/s in single and mixed precision, GB of memory, GB/s to the others of its machine.

    Its price is in USD per hour, and so many vCPUs come with each.
    """

    name: str
    single: float
    mixed: float
    memory: float
    link: float
    price: float
    vcpu: int


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine type of an invented cloud; from ``cores`` on, what only runs find out.

    Attributes:
        name: As the table calls it.
        facts: What the catalogue tells, in the words of a table's ``machines``.
        vcpu: vCPUs.
        memory: GiB.
        cores: Physical cores; both threads of a core count as vCPUs where it has two.
        speed: Work per second of one core.
        bandwidth: GB/s between cores and memory.
        network: GB/s that last.
        burst: GB/s until the credit is used up.
        latency: Seconds of a message to another node.
        disk: GB/s of the scratch disk.
        disk_gb: Its size.
        store: GB/s of one node from the provider's object store.
        gpus: Number of accelerators.
        gpu: Their kind.
    """

    name: str
    facts: Mapping[str, Any]
    vcpu: int
    memory: float
    cores: float
    speed: float
    bandwidth: float
    network: float
    burst: float
    latency: float
    disk: float = 0.25
    disk_gb: float = 500.0
    store: float = 1.0
    gpus: int = 0
    gpu: Gpu | None = None


GB = 2**30 / 1e9
"""GB in a GiB."""
Settings = dict[str, Any]
Model = Callable[[Machine, int, Settings], Run]
"""A run on so many nodes of a machine with these settings."""


@dataclass(frozen=True)
class Draw:
    """Draws the parameters of a job, and where its level puts it."""

    rng: Generator
    level: float

    def between(self, low: float, high: float) -> float:
        """A number, even on the logarithmic scale."""
        return low * float((high / low) ** self.rng.random())

    def levelled(self, low: float, high: float) -> float:
        """The number at the job's level, give or take a tenth."""
        return low * float((high / low) ** self.level) * self.between(0.9, 1.1)

    def irregular(self, sigma: float) -> float:
        """A factor on a time, log-normal around 1."""
        return math.exp(sigma * self.rng.standard_normal())


# ---------------------------------------------------------------------- laws


def capacity(machine: Machine, threads: float = math.inf, second: float = 0.25) -> float:
    """Cores of speed 1 that so many threads use: one a core first; the second thread of a core adds a quarter."""
    threads = min(threads, machine.vcpu)
    alone = min(threads, machine.cores)
    return (alone + second * (threads - alone)) * machine.speed


def amdahl(work: float, serial: float, machine: Machine) -> float:
    """Seconds of work of which a part is serial (Amdahl, AFIPS 1967)."""
    return work * (serial / machine.speed + (1 - serial) / capacity(machine))


def lack(need: float, have: float, slow: float = 25.0, most: float = 0.2) -> float:
    """Factor on the time where memory lacks: swapping, up to so much of it; infinite beyond, the run is killed."""
    missing = max(0.0, need / have - 1)
    return 1 + slow * missing if missing < most else math.inf


# ---------------------------------------------------------------------- families


def solver(draw: Draw) -> Model:
    """An implicit solver on a grid in three dimensions, spread over MPI ranks; levels: how much they talk.

    A step takes the longer of computing and of reading memory (roofline: Williams, Waterman and Patterson, CACM 2009).
    The borders of a node's part go with the power 2/3 of its cells, and each inner iteration adds up one number over
    all ranks in log2 hops (Thakur, Rabenseifner and Gropp, IJHPCA 2005).
    """
    cells, steps = draw.between(8e7, 4e8), draw.between(200, 700)
    flop, traffic = draw.between(500, 2000), draw.between(300, 1200)  # FLOP and bytes a cell and step
    held = draw.between(500, 1000)  # bytes a cell
    inner = draw.levelled(2, 30)  # iterations a step; each exchanges borders
    border = draw.between(100, 300)  # bytes a cell of a face
    uneven = draw.between(0.01, 0.05)  # of the largest part, for each doubling of the nodes

    def run(machine: Machine, nodes: int, _: Settings) -> Run:
        ranks = nodes * machine.vcpu
        need = cells * held / nodes / 2**30 + 0.15 * machine.vcpu + 1.5
        part = cells / nodes * (1 + uneven * math.log2(nodes))
        # The second thread of a core gains next to nothing where all of them wait for the floating-point units.
        compute = part * flop / (4e9 * capacity(machine, second=0.05))
        step = max(compute, part * traffic / (machine.bandwidth * 1e9))
        if nodes > 1:
            step += inner * 6 * (cells / nodes) ** (2 / 3) * border / (machine.network * 1e9)
            step += inner * machine.latency * math.log2(ranks) * 4
        swapping = lack(need, machine.memory)
        if math.isinf(swapping):
            return Run(25 + 3 * nodes, True)  # killed while the grid is read
        return Run(15 + 2 * nodes + steps * step * swapping)

    return run


def shuffle(draw: Draw) -> Model:
    """A query on Spark that moves much of its data once between all nodes; levels: how much of it.

    Terms of Ernest (Venkataraman et al., NSDI 2016): work over machines, a logarithm and a line of their number. What a
    task cannot hold it spills, and what it can neither hold nor spill kills it.
    """
    data = draw.between(40, 250)  # GB read
    moved = data * draw.levelled(0.25, 1.3)
    grown = draw.between(1.8, 3.5)  # bytes in memory for one on disk
    skew = draw.between(1.4, 4.0)  # the largest partition beside a middling one
    work, again = draw.between(12, 45), draw.between(8, 30)  # core seconds a GB before and after
    pinned = draw.between(0.1, 0.25)  # of a partition that cannot be spilled

    def run(machine: Machine, nodes: int, settings: Settings) -> Run:
        partitions, slots = settings["partitions"], nodes * machine.vcpu
        cores = nodes * capacity(machine)
        share = 0.6 * max(0.5, machine.memory - 1.5) / machine.vcpu * GB  # GB of one task
        size = moved * grown / partitions
        read = max(data * work / cores, data / nodes / min(machine.store, machine.network))
        across = moved * (1 - 1 / nodes) / nodes / machine.network
        disks = moved / nodes / machine.disk
        # Each reducer fetches a block of every mapper, and small blocks cost a seek each.
        blocks = partitions * data / 0.128 * 1e-6 / machine.disk / nodes
        spilt = max(0.0, 1 - share / size) * moved * grown / nodes / machine.disk * 0.8
        waves = math.ceil(partitions / slots) * slots / partitions
        reduce = moved * again / cores * waves + size * skew * again / grown / machine.speed / 2
        seconds = 25 + read + max(across, disks) + blocks + spilt + reduce
        seconds += 4 * math.log2(nodes) + 0.8 * nodes + 0.006 * partitions
        # The largest task is lost, tried again three times, and takes the job with it.
        killed = size * skew * pinned > share
        return Run(seconds * (0.8 if killed else 1.0), killed)

    return run


def genomics(draw: Draw) -> Model:
    """A pipeline of one sample on one machine: align, sort, call; levels: from an exome to a genome.

    Aligning scales with Amdahl's serial part, sorting waits for disk where its buffer is small, and calling goes by
    chromosomes, whose longest bounds it. The aligner's index must be held in memory whole.
    """
    align, call = draw.levelled(1.2e4, 9e4), draw.levelled(8e3, 5e4)
    serial, longest = draw.between(0.01, 0.12), draw.between(0.06, 0.1)  # of aligning; of calling
    sorted_gb = draw.levelled(15, 120)
    index, each = draw.between(24, 50), draw.between(0.5, 4.0)  # GiB; GiB of a calling thread

    def run(machine: Machine, _: int, __: Settings) -> Run:
        paging = lack(index + 0.1 * machine.vcpu, machine.memory - 1, slow=8.0, most=0.1)
        if math.isinf(paging):
            return Run(90 + index / 0.15, True)  # found out when the index has been read
        aligned = amdahl(align, serial, machine) * paging
        passes = 1 + math.ceil(math.log2(max(1.0, sorted_gb / (0.5 * machine.memory))))
        ordered = max(sorted_gb * passes / machine.disk, sorted_gb * 20 / capacity(machine, 8))
        threads = min(machine.vcpu, 24, machine.memory / each)
        called = max(call / capacity(machine, threads), call * longest / machine.speed)
        return Run(60 + index / 0.4 + aligned + ordered + called)

    return run


def training(draw: Draw) -> Model:
    """A network trained to a target on the GPUs of one machine; levels: its size.

    A step takes the longer of computing and of loading. Small batches leave a GPU idle, gradients go round a ring
    (2 (g - 1) / g of them over the link), and the samples that are needed grow with the batch beside a critical one
    (McCandlish et al., arXiv:1812.06162). A weight, its gradient and its moments take 16 bytes.
    """
    weights = draw.levelled(2.5e7, 5e8)
    flop = draw.levelled(1.2e10, 1.2e11)  # a sample, forwards and backwards
    samples = draw.between(4e6, 9e6) / (1 + 6 * draw.level)
    critical = draw.between(500, 4000)
    activations = draw.levelled(0.06, 0.3)  # GB a sample in single precision
    half = draw.between(6, 20) / (1 + 3 * draw.level)  # batch at which a GPU is half busy
    loading = draw.between(120, 400)  # samples a second and core

    def run(machine: Machine, _: int, settings: Settings) -> Run:
        gpu, batch, mixed = machine.gpu, settings["batch"], settings["precision"] == "mixed"
        assert gpu is not None
        need = weights * 16e-9 + activations * batch * (0.6 if mixed else 1.0) + 1.2
        if need > gpu.memory:
            return Run(70 + 20 * need / gpu.memory, True)
        busy = batch / (batch + half) * 0.45
        step = flop * batch / (busy * (gpu.mixed if mixed else gpu.single) * 1e12) + 0.004
        # Half of the exchange hides behind the backward pass.
        step += weights * (2 if mixed else 4) * (machine.gpus - 1) / machine.gpus / (gpu.link * 1e9)
        loaders = settings["loaders"] * machine.gpus
        rate = loading * capacity(machine, loaders)
        # Loaders beyond the vCPUs take turns, and the training loop itself wants one for each GPU.
        crowd = 1 + 0.3 * max(0.0, (loaders + machine.gpus) / machine.vcpu - 1)
        step = max(step, batch * machine.gpus * crowd / rate) + 0.05 * min(step, batch * machine.gpus / rate)
        needed = samples * (1 + batch * machine.gpus / critical)
        return Run(100 + 5 * settings["loaders"] + needed / (batch * machine.gpus) * step)

    return run


def render(draw: Draw) -> Model:
    """Frames, or batches of Monte Carlo paths, that know nothing of each other; levels: how serial each one starts.

    Which processor is the cheapest for a piece of work is nearly all there is to it: newer generations and those of x86
    have wider vector units, which a job uses more or less. Every node holds the scene, and frames are dealt out whole.
    """
    frames = int(draw.between(150, 900))
    work = draw.between(250, 1500)  # a frame
    loading = 0.0 if draw.level == 0 else draw.levelled(0.4, 6.0)  # serial seconds a frame
    scene, each = draw.between(1.0, 20.0), draw.between(0.1, 1.2)  # GiB; GiB a thread
    newer, vectors = draw.between(0.97, 1.12), draw.between(1.0, 1.4)  # gain of a generation beyond its speed; of x86
    second = draw.between(0.15, 0.45)

    def run(machine: Machine, nodes: int, _: Settings) -> Run:
        if scene + each * machine.vcpu > machine.memory - 0.7:
            return Run(60.0, True)
        wide = newer ** machine.facts["generation"] * (vectors if machine.facts["arch"] == "x86_64" else 1.0)
        frame = loading / machine.speed + work / wide / capacity(machine, second=second)
        return Run(35 + scene / min(machine.network, machine.store) + math.ceil(frames / nodes) * frame)

    return run


PRESETS = {"veryfast": (0.35, 1.5), "fast": (0.62, 1.15), "medium": (1.0, 1.0), "slow": (2.1, 0.92)}
"""Work and size of the result beside those of ``medium``, at the same quality."""


def transcode(draw: Draw) -> Model:
    """A film cut into chunks, encoded at a quality that is set; levels: from HD to 8K.

    As many encodes run at a time as their threads fit on the machine. Threads of one encode wait for each other, so few
    are efficient, but every encode holds its own frames. A preset too fast for the film needs a second pass.
    """
    chunks = int(draw.between(40, 160))
    work, waiting = draw.levelled(12, 120), draw.between(0.015, 0.1)  # a chunk at medium; for each further thread
    held = draw.levelled(0.25, 3.5)  # GiB an encode
    source = draw.levelled(4, 50)  # GB
    hard = int(draw.rng.integers(0, 3))  # presets too fast for this film
    second, tuned = draw.between(0.2, 0.4), draw.between(1.0, 1.5)  # tuned: code written by hand for x86

    def run(machine: Machine, _: int, settings: Settings) -> Run:
        threads = settings["threads"]
        cost, size = PRESETS[settings["preset"]]
        encodes = min(chunks, max(1, machine.vcpu // threads))
        swapping = lack(encodes * (held + 0.03 * held * threads), machine.memory - 0.8, slow=10.0, most=0.3)
        if math.isinf(swapping):
            return Run(40 + 20 * held, True)
        used = min(threads, machine.vcpu)
        rate = capacity(machine, encodes * used, second) / encodes / (1 + waiting * (used - 1))
        # Threads beyond the vCPUs only take turns.
        rate /= 1 + 0.04 * max(0.0, threads / machine.vcpu - 1)
        rate *= tuned if machine.facts["arch"] == "x86_64" else 1.0
        twice = 2.2 if list(PRESETS).index(settings["preset"]) < hard else 1.0
        encoding = math.ceil(chunks / encodes) * work * cost * twice / rate * swapping
        moving = source / machine.burst + 0.4 * source * size / machine.network
        return Run(12 + max(encoding, moving) + 0.3 * min(encoding, moving))

    return run


def iterative(draw: Draw) -> Model:
    """Learning in rounds over data that is best held in memory, on clusters of several clouds; levels: data.

    Terms of Ernest (Venkataraman et al., NSDI 2016) for each round; what the memory of all nodes cannot hold is read
    again from the provider's store, the cliff of CherryPick (Alipourfard et al., NSDI 2017).
    """
    data = draw.levelled(15, 110)  # GB
    grown = draw.between(1.5, 2.8)
    rounds, serial = int(draw.between(8, 40)), draw.between(0.2, 3.0)  # serial seconds a round
    work, first = draw.between(2, 12), draw.between(10, 30)  # core seconds a GB and round, and to parse
    model = draw.between(0.02, 0.6)  # GB that all nodes send up a tree
    driver = draw.between(4, 13)  # GiB

    def run(machine: Machine, nodes: int, _: Settings) -> Run:
        cores = nodes * capacity(machine)
        reading = data / nodes / min(machine.store, machine.network)
        start = 40 + 3 * nodes + max(reading, data * first / cores)
        if machine.memory < driver:
            return Run(start + 30, True)  # the first round's result does not fit
        cached = min(1.0, 0.55 * nodes * (machine.memory - 1.5) * GB / (data * grown))
        missed = (1 - cached) * max(reading, data * 0.5 * first / cores)
        wave = data * work / cores * (1 + 0.03 * math.log2(nodes))
        talk = model * math.ceil(math.log2(nodes)) / machine.network + 0.03 * nodes
        return Run(start + rounds * (serial / machine.speed + wave + missed + talk))

    return run


def etl(draw: Draw) -> Model:
    """Files read from a store, rewritten by way of scratch disks, and loaded into a warehouse; levels: of scratch.

    Network, cores and disks work at the same time, so the slowest sets the pace and the others hide behind it but for a
    quarter. Small machines have a credit of fast network and slow down when it is used up.
    """
    data, parse = draw.between(80, 500), draw.between(4, 25)  # GB; core seconds a GB
    scratch = draw.levelled(0.4, 3.0)  # GB written and read for one read
    result, intake = draw.between(0.1, 0.6), draw.between(0.3, 1.5)  # GB for one read; GB/s of the warehouse
    credit = draw.between(10, 40)  # GB at full speed
    uneven = draw.between(0.002, 0.04)  # of the largest part, for each further node

    def run(machine: Machine, nodes: int, _: Settings) -> Run:
        part = data / nodes * (1 + uneven * (nodes - 1))
        slow = max(0.0, part - credit)
        paces = [
            (part - slow) / min(machine.burst, machine.store) + slow / min(machine.network, machine.store),
            part * parse / capacity(machine),
            2 * part * scratch / machine.disk,
        ]
        seconds = 20 + 3 * nodes + max(paces) + 0.25 * (sum(paces) - max(paces)) + data * result / intake
        if (full := part * scratch / machine.disk_gb) > 0.95:
            return Run(20 + 3 * nodes + max(paces) * 0.95 / full, True)
        return Run(seconds)

    return run


def catalogue(draw: Draw) -> Model:
    """A program on one machine, whichever of a whole cloud; levels: how well it spreads over cores.

    Amdahl's law with a bound on the threads, beside the memory traffic that they share (roofline), and a working set
    without which it does not start.
    """
    work = draw.levelled(1.5e3, 6e4)
    serial = 0.25 * (1 - draw.level) ** 2 + draw.between(0.001, 0.02)
    threads = draw.levelled(8, 250)
    traffic = work * draw.between(0.5, 4.0)  # GB
    need = draw.between(1.0, 40.0)  # GiB
    files = draw.between(2, 60)  # GB from and to disk
    second = draw.between(0.1, 0.5)

    def run(machine: Machine, _: int, __: Settings) -> Run:
        if need > machine.memory:
            return Run(20 + need, True)
        parallel = (1 - serial) * work / capacity(machine, threads, second)
        computing = serial * work / machine.speed + max(parallel, traffic / machine.bandwidth)
        # Files that fit beside the working set stay in the page cache when they are read again.
        disk = files / machine.disk * (1.0 if machine.memory > need + files else 2.0)
        return Run(10 + computing + 0.5 * disk + 0.5 * max(0.0, disk - computing))

    return run
