"""Reads requirements of tasks from the profiles of Pegasus, HTCondor, Globus and Slurm."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tradewind.errors import InputError
from tradewind.utils.units import parse_memory
from tradewind.workflow.readers.builder import WorkflowBuilder

ProfileLevel = Mapping[tuple[str, str], tuple[str, int | None]]
"""Profiles of one place, such as a job: value and line by namespace and key."""

METADATA = "metadata"
"""Namespace of metadata, of which only the keys of requirements count."""

_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_AMOUNT = re.compile(r"([\d.]+(?:e[+-]?\d+)?)\s*(?:([kmgt])i?)?b?", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


@dataclass(frozen=True, slots=True)
class TaskRequirements:
    """Requirements of a task; None where it does not say.

    Attributes:
        runtime: Seconds.
        cores: Cores.
        memory_bytes: Bytes of memory.
        gpus: GPUs.
        disk_bytes: Bytes of disk.
        priority: Priority, the higher the earlier.
    """

    runtime: float | None
    cores: int | None
    memory_bytes: int | None
    gpus: int | None = None
    disk_bytes: int | None = None
    priority: int | None = None


def _number(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError
    return found


def _bytes(unit: int) -> Callable[[str], float]:
    """A reader of amounts that are in ``unit`` bytes unless they say another one; 1 GB is 1024 MB, as in HTCondor."""

    def read(text: str) -> float:
        match = _AMOUNT.fullmatch(text.strip())
        if match is None:
            return _number(text) * unit
        return _number(match[1]) * (_UNITS[match[2].lower()] if match[2] else unit)

    return read


def _minutes(text: str) -> float:
    return _number(text) * 60.0


def _clock(text: str) -> float:
    """Seconds of Slurm's times: ``90`` minutes, ``90:00``, ``1:30:00``, ``1-12``, ``1-12:00``, ``1-12:00:00``."""
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        raise ValueError
    days, first, second, third = (int(part or 0) for part in match.groups())
    if match[1] is not None or match[4] is not None:
        return ((days * 24 + first) * 60 + second) * 60 + third
    return first * 60.0 + second


def _gres(text: str) -> float:
    """GPUs of ``2``, ``gpu:2`` or ``gpu:a100:2``."""
    kind, colon, number = text.rpartition(":")
    if colon and not kind.startswith("gpu"):
        return 0.0
    return _number(number) if number.isdecimal() else 1.0


_MIB, _KIB = _bytes(1 << 20), _bytes(1 << 10)
_SLURM = {
    "ntasks": ("count", _number),
    "nodes": ("nodes", _number),
    "ntasks_per_node": ("ppn", _number),
    "cpus_per_task": ("each", _number),
    "mem": ("node_memory", _MIB),
    "mem_per_cpu": ("share", _MIB),
    "time": ("limit", _clock),
    "gpus": ("gpus", _gres),
    "gres": ("node_gpus", _gres),
    "gpus_per_node": ("node_gpus", _gres),
    "gpus_per_task": ("gpus_each", _gres),
    "tmp": ("disk", _MIB),
    "priority": ("priority", _number),
    "nice": ("nice", _number),
}
_READ: dict[str, dict[str, tuple[str, Callable[[str], float]]]] = {
    METADATA: {
        "runtime": ("runtime", _number),
        "cores": ("cores", _number),
        "memory": ("memory", _MIB),
        "tradewind_priority": ("priority", _number),
    },
    "pegasus": {
        "runtime": ("runtime", _number),
        "cores": ("cores", _number),
        "nodes": ("nodes", _number),
        "ppn": ("ppn", _number),
        "memory": ("memory", _MIB),
        "gpus": ("gpus", _number),
        "diskspace": ("disk", _MIB),
        "priority": ("priority", _number),
    },
    "condor": {
        "request_cpus": ("cores", _number),
        "request_memory": ("memory", _MIB),
        "request_gpus": ("gpus", _number),
        "request_disk": ("disk", _KIB),
        "priority": ("priority", _number),
        "allowed_execute_duration": ("limit", _number),
        "allowed_job_duration": ("limit", _number),
    },
    "globus": {
        "count": ("cores", _number),
        "hostcount": ("nodes", _number),
        "xcount": ("ppn", _number),
        "maxmemory": ("memory", _MIB),
        "minmemory": ("memory", _MIB),
        "maxwalltime": ("limit", _minutes),
        "maxtime": ("limit", _minutes),
        "maxcputime": ("limit", _minutes),
    },
    "slurm": _SLURM,
    "dagman": {"priority": ("priority", _number)},
}
"""By namespace, in the order in which they count, and key: the figure that it gives, and how it is read."""

_EXACT = (METADATA, "pegasus")
"""Namespaces whose values are numbers; those of others may be expressions, which only their system can evaluate."""


def requirements_of(level: ProfileLevel) -> ProfileLevel:
    """Profiles, of some, from which requirements are read; sites and properties have many others."""
    return {key: value for key, value in level.items() if _figure(*key)[0]}


def file_size(text: str) -> int:
    """Bytes of a number, or of an amount with a unit such as ``12 MB``.

    Raises:
        ValueError: It is neither, or not finite.
    """
    if not text.rstrip().lower().endswith("b"):
        return int(_number(text))
    try:
        return parse_memory(text)
    except InputError:
        raise ValueError from None


def exact_memory(asked: int | None, exact: str) -> int | None:
    """Give the bytes that were rounded up to a request in MiB; the request where there are none, or it was changed.

    Args:
        asked: Bytes asked for; None if nothing is.
        exact: The bytes before they were rounded, as Tradewind's writers note them; may be empty.
    """
    if asked is None or not exact.isdecimal():
        return asked
    return int(exact) if 0 <= asked - int(exact) < 1 << 20 else asked


def read_requirements(builder: WorkflowBuilder, task: str, levels: Sequence[ProfileLevel]) -> TaskRequirements:
    """Read what a task needs; profiles that are not used are noted by name, once.

    Args:
        builder: The builder of the workflow, for warnings and errors.
        task: The task's id.
        levels: Its own profiles, then those of its program.

    Raises:
        WorkflowError: A value is no number.
    """
    found: dict[str, float] = {}
    for level in levels:
        here: dict[str, float] = {}
        for namespace in (*_READ, *sorted({space for space, _ in level}.difference(_READ))):
            for (space, key), (text, line) in level.items():
                if space == namespace:
                    _take(builder, task, (space, key, text, line), here)
        _totals(here)
        found = {**here, **found}
    if "runtime" not in found and "limit" in found:
        builder.note("tasks without a run time, for which their time limit is taken", task)
    if found.get("nodes", 1.0) > 1:
        builder.note("tasks that ask for several nodes, each planned on one machine with the cores of all", task)
    cores, memory, gpus = found.get("cores"), found.get("memory"), found.get("gpus")
    disk, priority = found.get("disk"), found.get("priority")
    return TaskRequirements(
        found.get("runtime", found.get("limit")),
        None if cores is None else math.ceil(cores),
        int(memory) if memory else None,
        None if gpus is None else math.ceil(gpus),
        math.ceil(disk) if disk else None,
        None if priority is None else round(priority),
    )


def _figure(space: str, key: str) -> tuple[str, Callable[[str], float]]:
    """The figure that a profile gives, and how it is read; no figure where it gives none."""
    name = key.lower().removeprefix("--").replace("-", "_") if space == "slurm" else key.lower()
    # Generators of old write run times under namespaces of their own.
    return _READ.get(space, {}).get(name) or (("runtime", _number) if name == "runtime" else ("", _number))


def _take(
    builder: WorkflowBuilder, task: str, given: tuple[str, str, str, int | None], found: dict[str, float]
) -> None:
    """Take one profile into the figures of its level, unless one before it gave the figure."""
    space, key, text, line = given
    figure, read = _figure(space, key)
    if not figure:
        if space != METADATA:
            builder.note("profiles that are not used", f"{space}.{key}")
        return
    try:
        found.setdefault(figure, read(text))
    except (ValueError, OverflowError):
        if space in _EXACT:
            raise builder.fail(f"the {key} of {task!r} is {text!r}, not a number", line) from None
        builder.note("profiles that are no number, and are not used", f"{space}.{key} of {task}")


def _totals(found: dict[str, float]) -> None:
    """Add what is given by node, by task and by core, and as the contrary of a priority."""
    nodes = found.get("nodes", 1.0)
    if "ppn" in found or "nodes" in found:
        found.setdefault("count", nodes * found.get("ppn", 1.0))
    if "each" in found or "count" in found:
        found.setdefault("cores", found.get("each", 1.0) * found.get("count", 1.0))
    if "node_memory" in found:
        found.setdefault("memory", found["node_memory"] * nodes)
    if "node_gpus" in found:
        found.setdefault("gpus", found["node_gpus"] * nodes)
    if "share" in found:
        found.setdefault("memory", found["share"] * found.get("cores", 1.0))
    if "gpus_each" in found:
        found.setdefault("gpus", found["gpus_each"] * found.get("count", 1.0))
    if "nice" in found:
        found.setdefault("priority", -found["nice"])
