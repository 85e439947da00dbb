"""Which nodes a Slurm cluster has."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tradewind.deployer.runner.slurm.commands import SlurmCommands
from tradewind.errors import InputError

_WORKING_STATES = frozenset({"idle", "mixed", "allocated", "completing", "reserved", "planned"})
_GPUS = re.compile(r"(?:^|,)gpu(?::[^,:()]+)*:(\d+)")


def slurm_nodes(programs: SlurmCommands, partition: str, timeout: float) -> dict[str, Mapping[str, float]]:
    """CPUs, GiB of memory and GPUs of the nodes that take work, by name.

    Args:
        programs: Slurm's programs.
        partition: The partition; all without it.
        timeout: Seconds to wait for an answer.

    Raises:
        DeployError: Slurm does not answer.
        InputError: There is no such partition.
    """
    words = ["-h", "-N", "-o", "%N|%c|%m|%G|%T"]
    answer = programs.ask("sinfo", *words, *(["-p", partition] if partition else []), timeout=timeout)
    if partition and not answer.strip():
        # sinfo is silent about a partition that there is none of.
        raise InputError(f"Slurm has no partition {partition!r} with nodes", hint="sinfo lists the partitions")
    return read_nodes(answer)


def read_nodes(text: str) -> dict[str, Mapping[str, float]]:
    """The nodes of what ``sinfo`` prints; those that are down, drained or do not answer are left out."""
    found: dict[str, Mapping[str, float]] = {}
    for line in text.splitlines():
        name, cpus, megabytes, devices, state = line.strip().split("|")
        # A star behind the state: the node does not answer. A minus: it is kept for a job that is about to start, which
        # may be one of ours. Other signs say that it sleeps or reboots.
        if state.rstrip("+-") not in _WORKING_STATES:
            continue
        gpus = sum(int(count) for count in _GPUS.findall(devices))
        amounts = {"cpu": float(cpus), "memory": float(megabytes) / 1024.0, "gpu": float(gpus)}
        found[name] = {kind: amount for kind, amount in amounts.items() if amount}
    return found
