"""Kernels that show how many processes and nodes are worth it, like those of the NAS Parallel Benchmarks.

    kernels.py KERNEL SIZE PROCESSES

EP makes random pairs (no exchange), IS sorts integers (all to all), CG solves a sparse system (a vector to all, again
and again), ``memory`` copies blocks, ``network`` sends messages. Over several nodes, which TRADEWIND_HOSTFILE lists,
mpirun starts it on each; the processes exchange by sockets with the first, so that no package is needed.
"""

from __future__ import annotations

import array
import json
import math
import os
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SIZES = {
    "EP": {"small": 400_000, "medium": 4_000_000, "large": 40_000_000},
    "IS": {"small": 200_000, "medium": 2_000_000, "large": 10_000_000},
    "CG": {"small": 4_000, "medium": 20_000, "large": 80_000},
    "memory": {"small": 22, "medium": 25, "large": 28},
    "network": {"small": 18, "medium": 20, "large": 23},
}
"""Pairs, keys and unknowns; of the sweeps the largest block, as a power of two of bytes."""


class ProcessStar:
    """The processes of this run, in a star: all exchange with the first.

    Args:
        rank: Number of this process.
        size: Number of processes.
        peers: Connections: of the first process to all others by number, of another one to the first.
    """

    def __init__(self, rank: int, size: int, peers: dict[int, socket.socket]) -> None:
        self.rank, self.size, self.peers = rank, size, peers

    def send(self, to: int, data: bytes) -> None:
        """Send bytes to a process."""
        self.peers[to].sendall(struct.pack("<Q", len(data)) + data)

    def receive(self, source: int) -> bytes:
        """Receive the bytes that a process sends."""
        return _exactly(self.peers[source], struct.unpack("<Q", _exactly(self.peers[source], 8))[0])

    def gather(self, data: bytes) -> list[bytes]:
        """Collect the bytes of all processes at all."""
        if self.rank:
            self.send(0, data)
            count = struct.unpack("<Q", self.receive(0))[0]
            return [self.receive(0) for _ in range(count)]
        found = [data, *(self.receive(rank) for rank in range(1, self.size))]
        for rank in range(1, self.size):
            self.send(rank, struct.pack("<Q", self.size))
            for part in found:
                self.send(rank, part)
        return found

    def sums(self, values: list[float]) -> list[float]:
        """Add the values of all processes, place by place."""
        parts = [array.array("d", part) for part in self.gather(array.array("d", values).tobytes())]
        return [math.fsum(part[place] for part in parts) for place in range(len(values))]


def _exactly(peer: socket.socket, count: int) -> bytes:
    parts, left = [], count
    while left:
        part = peer.recv(min(left, 1 << 20))
        if not part:
            raise SystemExit("a process of this run has gone: its own messages say why")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def share(total: int, world: ProcessStar) -> range:
    """Return the part of ``range(total)`` that this process does."""
    return range(total * world.rank // world.size, total * (world.rank + 1) // world.size)


def embarrassingly_parallel(world: ProcessStar, pairs: int) -> float:
    """Make Gaussian pairs by the polar method, and count those that were accepted."""
    chance, sums = random.Random(1000 + world.rank), [0.0, 0.0, 0.0]  # noqa: S311
    for _ in share(pairs, world):
        x, y = 2 * chance.random() - 1, 2 * chance.random() - 1
        square = x * x + y * y
        if 0 < square <= 1:
            factor = math.sqrt(-2 * math.log(square) / square)
            sums[0] += x * factor
            sums[1] += y * factor
            sums[2] += 1
    accepted = world.sums(sums)[2] / pairs
    if abs(accepted - math.pi / 4) > 0.01:
        raise SystemExit(f"EP is wrong: {accepted:.4f} of the pairs were accepted, not about {math.pi / 4:.4f}")
    return float(pairs)


def integer_sort(world: ProcessStar, keys: int) -> float:
    """Sort integers: each process gets the keys of its own range from all others."""
    chance, most = random.Random(2000 + world.rank), 1 << 20  # noqa: S311
    buckets = [array.array("I") for _ in range(world.size)]
    for _ in share(keys, world):
        key = chance.randrange(most)
        buckets[key * world.size // most].append(key)
    sizes = array.array("Q", [len(bucket) for bucket in buckets]).tobytes()
    table = [array.array("Q", part) for part in world.gather(sizes)]
    everything = world.gather(b"".join(bucket.tobytes() for bucket in buckets))
    mine = array.array("I")
    for source, data in enumerate(everything):
        first = 4 * sum(table[source][: world.rank])
        mine.frombytes(data[first : first + 4 * table[source][world.rank]])
    ordered = sorted(mine)
    if world.sums([float(len(ordered))])[0] != keys:
        raise SystemExit("IS is wrong: keys were lost")
    return float(keys)


def conjugate_gradient(world: ProcessStar, unknowns: int) -> float:
    """Solve a sparse, symmetric system by conjugate gradients; each process has some of its rows."""
    mine, far = share(unknowns, world), max(2, unknowns // 7)
    x, r = array.array("d", bytes(8 * len(mine))), array.array("d", [1.0] * len(mine))
    p = array.array("d", r)
    rho, turns = world.sums([math.fsum(v * v for v in r)])[0], 15
    start = rho
    for _ in range(turns):
        whole = array.array("d")
        for part in world.gather(p.tobytes()):
            whole.frombytes(part)
        q = array.array("d")
        for row in mine:
            value = 5.0 * whole[row]
            for other in (row - 1, row + 1, row - far, row + far):
                if 0 <= other < unknowns:
                    value -= whole[other]
            q.append(value)
        alpha = rho / world.sums([math.fsum(a * b for a, b in zip(p, q))])[0]
        x = array.array("d", [a + alpha * b for a, b in zip(x, p)])
        r = array.array("d", [a - alpha * b for a, b in zip(r, q)])
        before, rho = rho, world.sums([math.fsum(v * v for v in r)])[0]
        p = array.array("d", [a + rho / before * b for a, b in zip(r, p)])
    if not rho < start * 1e-3:
        raise SystemExit(f"CG is wrong: the residual is {rho:.3g} after {turns} turns, and was {start:.3g}")
    return float(unknowns * turns)


def memory_sweep(world: ProcessStar, power: int) -> float:
    """Copy blocks of growing size: the curve falls where a block leaves a cache."""
    best = 0.0
    for exponent in range(12, power + 1):
        block = bytearray(1 << exponent)
        target = memoryview(bytearray(1 << exponent))
        turns = max(2, 1 << max(0, 26 - exponent))
        begun = time.perf_counter()
        for _ in range(turns):
            target[:] = block
        speed = turns * (1 << exponent) / (time.perf_counter() - begun) / 1e9
        total = world.sums([speed])[0]
        best = max(best, total)
        _report(world, exponent, gb_per_second=total)
    return best * 1e9


def network_sweep(world: ProcessStar, power: int) -> float:
    """Send messages of growing size from the first process to the last, and back."""
    last, best = world.size - 1, 0.0
    if not last:
        raise SystemExit("the network sweep needs two processes: choose 2 or more")
    for exponent in range(0, power + 1, 2):
        data, turns = bytes(1 << exponent), 40 if exponent < 16 else 8
        begun = time.perf_counter()
        if world.rank == 0:
            for _ in range(turns):
                world.send(last, data)
                world.receive(last)
        elif world.rank == last:
            for _ in range(turns):
                world.send(0, world.receive(0))
        one_way = (time.perf_counter() - begun) / turns / 2
        best = max(best, (1 << exponent) / one_way)
        _report(world, exponent, microseconds=1e6 * one_way, mb_per_second=(1 << exponent) / one_way / 1e6)
    return best


def _report(world: ProcessStar, exponent: int, **values: float) -> None:
    if world.rank == 0:
        with open(os.environ.get("TRADEWIND_METRICS", os.devnull), "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": exponent, **values}) + "\n")
        shown = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        print(f"blocks of {1 << exponent} bytes: {shown}", flush=True)


KERNELS: dict[str, tuple[Callable[[ProcessStar, int], float], str]] = {
    "EP": (embarrassingly_parallel, "pairs_per_second"),
    "IS": (integer_sort, "keys_per_second"),
    "CG": (conjugate_gradient, "rows_per_second"),
    "memory": (memory_sweep, "bytes_per_second"),
    "network": (network_sweep, "bytes_per_second"),
}
"""Function and rate of each kernel."""


def run(world: ProcessStar, kernel: str, size: str) -> None:
    """Run a kernel; the first process says what came out."""
    function, rate = KERNELS[kernel]
    begun = time.perf_counter()
    work = function(world, SIZES[kernel][size])
    seconds = time.perf_counter() - begun
    if world.rank == 0:
        per_second = work if kernel in ("memory", "network") else work / seconds
        result = {"kernel": kernel, "size": size, "processes": world.size, rate: per_second, "kernel_seconds": seconds}
        Path(os.environ.get("TRADEWIND_OUTPUTS", "."), "result.json").write_text(json.dumps(result, indent=2) + "\n")
        print(f"{kernel} {size}: {seconds:.3f} s with {world.size} processes, {per_second:,.0f} {rate}")


def first(size: int, server: socket.socket, hello: bytes) -> ProcessStar:
    """Wait for the other processes, as the first one."""
    peers: dict[int, socket.socket] = {}
    server.settimeout(60.0)
    while len(peers) < size - 1:
        peer, _ = server.accept()
        peer.settimeout(600.0)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _exactly(peer, len(hello)) != hello:  # somebody else: the port is open to the whole network
            peer.close()
            continue
        peers[struct.unpack("<I", _exactly(peer, 4))[0]] = peer
    return ProcessStar(0, size, peers)


def other(rank: int, size: int, address: tuple[str, int], hello: bytes) -> ProcessStar:
    """Connect to the first process, as another one."""
    end = time.monotonic() + 60.0
    while True:
        try:
            peer = socket.create_connection(address, timeout=600.0)
            break
        except OSError:
            if time.monotonic() > end:
                raise SystemExit(f"the first process does not answer at {address[0]}:{address[1]}") from None
            time.sleep(0.05)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.sendall(hello + struct.pack("<I", rank))
    return ProcessStar(rank, size, {0: peer})


def hosts() -> list[str]:
    """List the nodes of this run; empty where it has only this one."""
    file = os.environ.get("TRADEWIND_HOSTFILE", "")
    found = [line.split()[0] for line in Path(file).read_text().splitlines() if line.split()] if file else []
    return found if len(found) > 1 else []


def port_of(token: str) -> int:
    """Choose a port that all processes of a run know."""
    return 20_000 + sum(token.encode()) * 7919 % 20_000


def main() -> None:
    """Start the processes, or be one of them."""
    kernel, size, processes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    token = os.environ.get("TRADEWIND_RUN", f"alone-{os.getpid()}")
    if "OMPI_COMM_WORLD_RANK" in os.environ:  # mpirun has started this one
        rank, count = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
        hello = token.encode().ljust(64)[:64]
        if rank:
            run(other(rank, count, (sys.argv[4], port_of(token)), hello), kernel, size)
            return
        with socket.create_server(("", port_of(token)), backlog=count) as server:
            run(first(count, server, hello), kernel, size)
        return
    if nodes := hosts():
        words = ["mpirun", "--oversubscribe", "--hostfile", os.environ["TRADEWIND_HOSTFILE"]]
        words += [part for name in os.environ if name.startswith("TRADEWIND_") for part in ("-x", name)]
        words += ["-np", str(processes * len(nodes)), sys.executable, *sys.argv[:4], nodes[0]]
        if os.geteuid() == 0:
            words.insert(1, "--allow-run-as-root")
        sys.exit(subprocess.run(words, check=False).returncode)
    here(kernel, size, processes)


def here(kernel: str, size: str, processes: int) -> None:
    """Run a kernel with processes of this machine."""
    hello = os.urandom(16)
    with socket.create_server(("127.0.0.1", 0), backlog=processes) as server:
        address, children = server.getsockname()[:2], []
        for rank in range(1, processes):
            child = os.fork()
            if not child:
                code = 1
                try:
                    run(other(rank, processes, address, hello), kernel, size)
                    code = 0
                finally:
                    os._exit(code)
            children.append(child)
        run(first(processes, server, hello), kernel, size)
    bad = [child for child in children if os.waitpid(child, 0)[1]]
    if bad:
        raise SystemExit(f"{len(bad)} of {processes} processes failed")


if __name__ == "__main__":
    main()
