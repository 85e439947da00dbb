"""Estimates pi with MPI: each process adds up its part of a sum."""

from __future__ import annotations

import argparse
import socket

from mpi4py import MPI


def main() -> None:
    """Add up, and let the first process say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    steps = parser.parse_args().steps
    world = MPI.COMM_WORLD
    part = sum(4.0 / (1.0 + ((i + 0.5) / steps) ** 2) for i in range(world.rank, steps, world.size)) / steps
    pi, hosts = world.reduce(part), world.gather(socket.gethostname())
    if world.rank == 0:
        print(f"pi is about {pi:.9f}, from {world.size} processes on {len(set(hosts))} machines")


if __name__ == "__main__":
    main()
