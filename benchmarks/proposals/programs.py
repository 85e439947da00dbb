"""Programs of our own: formulas for the time of kinds of programs that people have.

Of `STARTED` and `DEVELOPED` the sequences were looked at while the law was changed (2026-11-27). `HELD_OUT` were
written before that, and looked at after what is there now was chosen. `WORDS` were written and
looked at after a later idea was chosen, which they did not confirm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from benchmarks.done.scenarios import Scenario, Values

from tradewind.problem import Categorical, Configuration, Instance, Nodes, Objective, Offer, Ordinal, Parameter
from tradewind.testing.problems import KnownOutcome, KnownProblem, make_problem

Law = Callable[[Mapping[str, float | str], Configuration, Offer], float]
"""Seconds of a run."""

LOCAL = {"local.c1": Offer("local", "local.c1", vcpu=1, memory_gib=2.0, price_per_hour=0.045)}
SOLD = {f"m{n}": Offer("cloud", f"m{n}", vcpu=n, memory_gib=4.0 * n, price_per_hour=0.05 * n) for n in (1, 2, 4, 8, 16)}
NOISE = 0.03
"""Standard deviation of the logarithm of a run's time."""


def make_job(
    name: str, inputs: Sequence[Values], space: Sequence[Parameter], law: Law, metric: str = "runtime"
) -> Scenario:
    def make(given: Values) -> KnownProblem:
        return make_problem(
            list(space), lambda c, o: KnownOutcome(law(given, c, o)), objective=Objective(metric), noise=NOISE
        )

    return Scenario(name, inputs, make)


def machines(offers: Mapping[str, Offer]) -> Instance:
    return Instance(name="instance", values=tuple(offers), offers=offers)


def _pairs(first: str, a: Sequence[float], second: str, b: Sequence[float]) -> list[Values]:
    return [{first: one, second: other} for one in a for other in b]


def stars() -> Scenario:
    """Work divided among workers, each of which costs a start: the best number grows with the root of the work."""

    def law(given: Values, chosen: Configuration, _: Offer) -> float:
        workers = float(chosen["workers"])
        return float(given["stars"]) * float(given["steps"]) / 1e6 / workers + 0.15 * workers

    workers = Ordinal(name="workers", values=(1, 2, 4, 8, 16, 32))
    inputs = _pairs("stars", (5000.0, 10000.0, 20000.0), "steps", (500.0, 1000.0, 2000.0))
    return make_job("stars, time", inputs, [workers, machines(LOCAL)], law)


def blocks() -> Scenario:
    """Matrix work in blocks: the best block grows with the matrix, and a wrong one costs a multiple."""

    def law(given: Values, chosen: Configuration, _: Offer) -> float:
        size, threads = math.sqrt(float(given["rows"]) * float(given["columns"])), float(chosen["threads"])
        wrong = math.log2(float(chosen["block"]) / (8.0 * math.sqrt(size / 100.0)))
        return (
            0.5 + math.pow(size / 500.0, 2.5) / math.pow(threads, 0.85) * (1.0 + 0.35 * wrong * wrong) + 0.1 * threads
        )

    space = [Ordinal(name="block", values=(8, 16, 32, 64, 128, 256)), Ordinal(name="threads", values=(1, 2, 4, 8))]
    levels = (500.0, 1000.0, 2000.0, 4000.0)
    return make_job("blocks, time", _pairs("rows", levels, "columns", levels), [*space, machines(LOCAL)], law)


def cluster() -> Scenario:
    """Passes over data on a cluster, slower where the data do not fit into its memory; the cost is wanted."""

    def law(given: Values, _: Configuration, offer: Offer) -> float:
        data, cores = float(given["gb"]), offer.vcpu * offer.nodes
        short = max(0.0, 1.5 * data / (offer.memory_gib * offer.nodes) - 1.0)
        work = 6.0 * data * float(given["passes"]) / math.pow(cores, 0.9) * (1.0 + 2.0 * short)
        return 20.0 + work + 0.8 * data * (offer.nodes - 1) / offer.nodes + 4.0 * offer.nodes

    inputs = _pairs("gb", (1.0, 4.0, 16.0, 64.0), "passes", (1.0, 3.0, 10.0, 30.0))
    return make_job(
        "cluster, cost", inputs, [machines(SOLD), Nodes(name="nodes", values=(1, 2, 3, 4, 6, 8))], law, "cost"
    )


def chains() -> Scenario:
    """Three methods with different starts and speeds: which is best changes with the input, by leaps."""
    methods = {"plain": (0.0, 1.0), "cached": (1.5, 0.55), "gpu": (6.0, 0.12)}

    def law(given: Values, chosen: Configuration, _: Offer) -> float:
        start, speed = methods[str(chosen["method"])]
        many = float(chosen["chains"])
        work = float(given["cities"]) * float(given["sweeps"]) / 4000.0
        return 0.3 + start + speed * work / math.pow(min(many, 8.0), 0.9) + 0.25 * many

    space = [Ordinal(name="chains", values=tuple(range(1, 13))), Categorical(name="method", values=tuple(methods))]
    inputs = _pairs("cities", (50.0, 200.0, 800.0), "sweeps", (10.0, 100.0, 1000.0))
    return make_job("chains, time", inputs, [*space, machines(LOCAL)], law)


# ---------------------------------------------------------------------- developed on


def bodies() -> Scenario:
    """Bodies that all act on each other: n² shared by the cores, and every step all positions to all nodes."""

    def law(given: Values, chosen: Configuration, offer: Offer) -> float:
        n, steps, nodes = float(given["bodies"]), float(given["steps"]), float(chosen["nodes"])
        work = 2e-7 * n * n * steps / (offer.vcpu * nodes)
        talk = steps * (nodes - 1.0) * (0.004 + 4e-7 * n)
        return 1.0 + 0.5 * nodes + work + talk

    inputs = _pairs("bodies", (2000.0, 8000.0, 32000.0), "steps", (20.0, 100.0, 500.0))
    space = [machines(SOLD), Nodes(name="nodes", values=(1, 2, 4, 8, 16))]
    return make_job("bodies, time", inputs, space, law)


def threads() -> Scenario:
    """Amdahl's law on one machine, and threads that wait for each other the longer the more they are."""

    def law(given: Values, chosen: Configuration, _: Offer) -> float:
        work, many = 0.002 * float(given["frames"]) * float(given["quality"]), float(chosen["threads"])
        return 0.2 + 0.05 * work + 0.95 * work / many + 0.004 * work * (many - 1.0) + 0.02 * many

    inputs = _pairs("frames", (250.0, 1000.0, 4000.0), "quality", (1.0, 4.0, 16.0))
    return make_job(
        "threads, time", inputs, [Ordinal(name="threads", values=tuple(range(1, 25))), machines(LOCAL)], law
    )


def spill() -> Scenario:
    """A sort that writes to disk what its memory does not hold; memory and cores are paid for."""

    def law(given: Values, chosen: Configuration, offer: Offer) -> float:
        gb, memory = float(given["gb"]), float(chosen["buffer_gb"])
        passes = max(0.0, math.log(1.3 * gb / memory) / math.log(8.0))
        swap = 30.0 * max(0.0, memory - 0.8 * offer.memory_gib)
        return (
            3.0 + 8.0 * gb * (1.0 + 0.1 * float(given["keys"])) / math.pow(offer.vcpu, 0.8) + 12.0 * gb * passes + swap
        )

    inputs = _pairs("gb", (1.0, 3.0, 9.0, 27.0), "keys", (1.0, 4.0, 16.0))
    space = [machines(SOLD), Ordinal(name="buffer_gb", values=(1, 2, 4, 8, 16, 32))]
    return make_job("spill, cost", inputs, space, law, "cost")


def scan() -> Scenario:
    """Files read from a shared disk that a few readers fill: more only make its heads move."""

    def law(given: Values, chosen: Configuration, _: Offer) -> float:
        files, mb, readers = float(given["files"]), float(given["mb"]), float(chosen["readers"])
        disk = files * mb / (200.0 / (1.0 + 0.05 * readers))
        return 0.5 + max(disk, files * (0.05 + 0.02 * mb) / readers) + 0.05 * readers

    inputs = _pairs("files", (20.0, 100.0, 500.0), "mb", (0.5, 4.0, 32.0))
    return make_job(
        "scan, time", inputs, [Ordinal(name="readers", values=(1, 2, 4, 8, 16, 32, 64)), machines(LOCAL)], law
    )


# ---------------------------------------------------------------------- held out


def phases() -> Scenario:
    """Two phases, one that the mappers share and one that the reducers share, with a file for each pair of the two."""

    def law(given: Values, chosen: Configuration, _: Offer) -> float:
        gb, groups = float(given["gb"]), float(given["groups"])
        mappers, reducers = float(chosen["mappers"]), float(chosen["reducers"])
        return 2.0 + 20.0 * gb / mappers + 0.006 * groups / reducers + 0.06 * mappers * reducers + 0.3 * reducers

    space = [Ordinal(name="mappers", values=(1, 2, 4, 8, 16)), Ordinal(name="reducers", values=(1, 2, 4, 8, 16))]
    inputs = _pairs("gb", (0.5, 2.0, 8.0), "groups", (500.0, 4000.0, 32000.0))
    return make_job("phases, time", inputs, [*space, machines(LOCAL)], law)


def stencil() -> Scenario:
    """A grid divided among nodes, which exchange its rims every step."""

    def law(given: Values, chosen: Configuration, offer: Offer) -> float:
        side, steps, nodes = float(given["side"]), float(given["steps"]), float(chosen["nodes"])
        cores = offer.vcpu * nodes
        rim = 0.0 if nodes == 1 else 0.001 + 2e-6 * side / math.sqrt(nodes)
        return 10.0 + steps * (4e-9 * side * side * side / math.pow(cores, 0.95) + rim * math.log2(2.0 * nodes))

    inputs = _pairs("side", (100.0, 200.0, 400.0, 800.0), "steps", (100.0, 1000.0, 10000.0))
    space = [machines(SOLD), Nodes(name="nodes", values=(1, 2, 4, 8, 16, 32))]
    return make_job("stencil, time", inputs, space, law)


def training() -> Scenario:
    """Epochs in batches: small ones leave the device idle, large ones do not fit and are done in parts."""
    precisions = {"fp32": (1.0, 1.0), "bf16": (0.35, 0.5)}

    def law(given: Values, chosen: Configuration, _: Offer) -> float:
        speed, width = precisions[str(chosen["precision"])]
        model, samples, batch = float(given["model"]), float(given["samples"]), float(chosen["batch"])
        parts = max(1.0, model * batch * width / 4000.0)
        step = 0.03 + 2e-5 * speed * model * batch + 0.02 * (parts - 1.0)
        return 5.0 + (4.0 if width < 1 else 0.0) + samples / batch * step * (1.0 + 0.004 * batch)

    inputs = _pairs("model", (10.0, 40.0, 160.0), "samples", (2000.0, 10000.0, 50000.0))
    space = [Ordinal(name="batch", values=(4, 8, 16, 32, 64, 128, 256))]
    precision = Categorical(name="precision", values=tuple(precisions))
    return make_job("training, time", inputs, [*space, precision, machines(LOCAL)], law)


def archive() -> Scenario:
    """Files packed and sent: a slow packer makes them small, which pays where the line is slow."""
    packers = {"none": (0.0, 1.0), "quick": (0.004, 0.55), "strong": (0.05, 0.35)}

    def law(given: Values, chosen: Configuration, _: Offer) -> float:
        seconds, share = packers[str(chosen["packer"])]
        mb, line, threads = float(given["mb"]), float(given["mb_per_second"]), float(chosen["threads"])
        return 0.3 + max(seconds * mb / math.pow(threads, 0.9), share * mb / line) + 0.04 * threads + 0.0005 * mb

    inputs = _pairs("mb", (50.0, 400.0, 3200.0), "mb_per_second", (5.0, 25.0, 125.0))
    space = [Ordinal(name="threads", values=(1, 2, 4, 8, 16)), Categorical(name="packer", values=tuple(packers))]
    return make_job("archive, time", inputs, [*space, machines(LOCAL)], law)


def chunks() -> Scenario:
    """An array worked on in chunks: each has its start, and those that leave the cache are four times as slow."""

    def law(given: Values, chosen: Configuration, _: Offer) -> float:
        cells, size, many = float(given["cells"]), float(chosen["chunk"]), float(chosen["threads"])
        width = float(given["width"])
        slow = 1.0 + 3.0 / (1.0 + math.pow(24.0 / (size * width / 8.0), 4.0))
        return 0.1 + cells * width * slow / 5e2 / math.pow(many, 0.9) + 0.03 * cells / size + 0.01 * many

    inputs = _pairs("cells", (300.0, 1200.0, 4800.0), "width", (4.0, 8.0, 16.0))
    space = [Ordinal(name="chunk", values=(1, 2, 4, 8, 16, 32, 64, 128)), Ordinal(name="threads", values=(1, 2, 4, 8))]
    return make_job("chunks, time", inputs, [*space, machines(LOCAL)], law)


# ---------------------------------------------------------------------- with words as parameters


def solve() -> Scenario:
    """A linear solver: the preconditioner says how many steps it takes, and how well these are shared."""
    kinds = {"none": (1.0, 0.95, 0.02), "jacobi": (0.6, 0.9, 0.03), "ilu": (0.35, 0.5, 0.05), "amg": (0.08, 0.7, 0.4)}

    def law(given: Mapping[str, float | str], chosen: Configuration, _: Offer) -> float:
        steps, shared, start = kinds[str(given["preconditioner"])]
        rows, threads = float(given["rows"]), float(chosen["threads"])
        return 0.2 + steps * rows / 1000.0 / math.pow(threads, shared) + start * (1.0 + 0.3 * threads)

    inputs: list[Values] = [{"preconditioner": k, "rows": r} for k in kinds for r in (2000.0, 10000.0, 50000.0)]
    space = [Ordinal(name="threads", values=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32)), machines(LOCAL)]
    return make_job("solve, time", inputs, space, law)


def queries() -> Scenario:
    """Eight queries of a database on a cluster: some only read, some send all rows to all nodes."""
    names = {f"q{i + 1}": (30.0 * 1.6**i, (0.02, 0.3, 0.1, 0.6)[i % 4], (2.0, 9.0, 4.0)[i % 3]) for i in range(8)}

    def law(given: Mapping[str, float | str], _: Configuration, offer: Offer) -> float:
        work, talk, memory = names[str(given["query"])]
        cores, held = offer.vcpu * offer.nodes, offer.memory_gib * offer.nodes
        spilled = 1.0 + 2.0 * max(0.0, memory / held - 1.0)
        return 15.0 + spilled * work / math.pow(cores, 0.9) + talk * work * (offer.nodes - 1) / offer.nodes

    inputs: list[Values] = [{"query": name} for name in names]
    return make_job(
        "queries, cost", inputs, [machines(SOLD), Nodes(name="nodes", values=(1, 2, 3, 4, 6, 8, 12))], law, "cost"
    )


def codecs() -> Scenario:
    """Films made smaller: each codec has its own best size of a piece, and shares its work so far."""
    kinds = {"fast": (0.4, 4.0, 0.9), "middle": (1.5, 16.0, 0.8), "small": (6.0, 64.0, 0.6)}

    def law(given: Mapping[str, float | str], chosen: Configuration, _: Offer) -> float:
        speed, best, shared = kinds[str(given["codec"])]
        minutes, threads = float(given["minutes"]), float(chosen["threads"])
        wrong = math.log2(float(chosen["piece"]) / best)
        return 0.5 + speed * minutes / math.pow(threads, shared) * (1.0 + 0.1 * wrong * wrong) + 0.2 * threads

    inputs: list[Values] = [{"codec": k, "minutes": m} for k in kinds for m in (2.0, 10.0, 50.0)]
    space = [Ordinal(name="piece", values=(2, 4, 8, 16, 32, 64, 128)), Ordinal(name="threads", values=(1, 2, 4, 8, 16))]
    return make_job("codecs, time", inputs, [*space, machines(LOCAL)], law)


STARTED = (stars, blocks, cluster, chains)
"""Those of the first measurement."""

DEVELOPED = (bodies, threads, spill, scan)
HELD_OUT = (phases, stencil, training, archive, chunks)
WORDS = (solve, queries, codecs)
"""Held out from what was tried on 2026-11-28, and looked at once."""
