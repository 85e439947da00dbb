"""CPUs, memory and GPUs that a run may use on each of its nodes, and those that this machine has."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tradewind.errors import DeployError
from tradewind.problem import Offer, RunRequest
from tradewind.utils.machine.gpus import gpus_here, why_none

_GIB = 2**30


def cpus_of(request: RunRequest) -> float | None:
    """CPUs that a run may use on each node: its limit, or what its offer has; None where neither says."""
    return (request.offer.vcpu or None) if request.limits.cpus is None else request.limits.cpus


def memory_of(request: RunRequest) -> int | None:
    """Bytes that a run may use on each node: its limit, or what its offer has; None where neither says."""
    limit = request.limits.memory_bytes
    return int(request.offer.memory_gib * _GIB) or None if limit is None else limit


def gpus_of(request: RunRequest) -> float:
    """GPUs that a run has on each node: what its owner says, or what its offer has."""
    return float(request.offer.gpus) if request.limits.gpus is None else request.limits.gpus


def whole_gpus(request: RunRequest, engine: str) -> int:
    """GPUs that a run has on each node of an engine that gives whole ones only.

    Args:
        request: The run.
        engine: The engine, for the message.

    Raises:
        DeployError: The run is to have a part of one.
    """
    gpus = gpus_of(request)
    if gpus != int(gpus):
        raise DeployError(
            f"{engine} gives whole GPUs to a run, and this one is to have {gpus:g}",
            hint="ask for whole ones; this machine (process) and Ray share one between runs",
            retryable=False,
        )
    return int(gpus)


def missing_gpus(gpus: float, running: float = 0.0) -> str:
    """The reason for which this machine cannot give so many GPUs to a run, or an empty text.

    Args:
        gpus: GPUs that the run is to have.
        running: GPUs that others have.
    """
    if not gpus:
        return ""
    if gpus > 1 and gpus != int(gpus):
        return f"a run has whole GPUs or a part of one, not {gpus:g}"
    here = len(gpus_here())
    if gpus + running <= here:
        return ""
    has = "no GPU" if not here else "1 GPU" if here == 1 else f"{here} GPUs"
    why = why_none() or "tradewind doctor says where it looks"
    return f"this machine has {has}" + ("" if here else f" ({why})")


def cpus_here() -> int:
    """The CPUs of this machine that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_here() -> int:
    """The memory of this machine, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def fits_here(offer: Offer, running: Sequence[Offer]) -> bool:
    """True when this machine has the CPUs, the memory and the GPUs for one more run; a run alone always fits.

    Args:
        offer: The offer of the run.
        running: The offers of the runs that are under way.
    """
    every = [*running, offer]
    cpus = sum(each.vcpu * each.nodes for each in every)
    memory = sum(each.memory_gib * each.nodes for each in every) * _GIB
    if not running:
        return True
    if offer.gpus and missing_gpus(float(offer.gpus), float(sum(each.gpus * each.nodes for each in running))):
        return False
    return cpus <= cpus_here() + 1e-9 and memory <= memory_here()
