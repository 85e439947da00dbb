"""CPUs and memory that a run may use on each of its nodes, and those that this machine has."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tradewind.problem import Offer, RunRequest

_GIB = 2**30


def cpus_of(request: RunRequest) -> float | None:
    """CPUs that a run may use on each node: its limit, or what its offer has; None where neither says."""
    return (request.offer.vcpu or None) if request.limits.cpus is None else request.limits.cpus


def memory_of(request: RunRequest) -> int | None:
    """Bytes that a run may use on each node: its limit, or what its offer has; None where neither says."""
    limit = request.limits.memory_bytes
    return int(request.offer.memory_gib * _GIB) or None if limit is None else limit


def cpus_here() -> int:
    """The CPUs of this machine that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_here() -> int:
    """The memory of this machine, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def fits_here(offer: Offer, running: Sequence[Offer]) -> bool:
    """True when this machine has the CPUs and the memory for one more run; a run alone always fits.

    Args:
        offer: The offer of the run.
        running: The offers of the runs that are under way.
    """
    every = [*running, offer]
    cpus = sum(each.vcpu * each.nodes for each in every)
    memory = sum(each.memory_gib * each.nodes for each in every) * _GIB
    return not running or (cpus <= cpus_here() + 1e-9 and memory <= memory_here())
