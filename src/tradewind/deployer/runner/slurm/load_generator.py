"""An application under test on the first node of a job, and its load generator on another; see ``load.sh``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tradewind.deployer.runner.exit_reasons import exit_code_of, shell_seconds
from tradewind.deployer.runner.load_generators import posix_pattern, with_load_usage
from tradewind.deployer.runner.resource_limits import memory_of
from tradewind.deployer.runner.slurm.options import SlurmSettings, command_of, cpus_per_node
from tradewind.errors import DeployError
from tradewind.problem import Fault, Load, RunRequest, RunState, RunStatus, Usage
from tradewind.utils.units import format_duration, format_memory

STATE, USAGE = "load.state", "load.usage"
"""Files in a run's folder: what became of application and load, and what the load used."""

_ALONE = ("", "apptainer", "singularity")
"""Settings of ``container`` whose containers are children of what starts them, and end with it."""


def check_load(request: RunRequest, load: Load, settings: SlurmSettings) -> None:
    """Refuse a load generator that a job of two equal nodes cannot hold.

    Raises:
        DeployError: It cannot.
    """

    def refuse(why: str, hint: str) -> DeployError:
        return DeployError(f"on Slurm a load generator {why}", hint=hint, retryable=False)

    if request.offer.nodes > 1:
        raise refuse(f"drives an application on one node, and the offer has {request.offer.nodes}", "search nodes: [1]")
    if settings.mpi:
        raise refuse(f"drives no MPI program, and `mpi` is {settings.mpi}", "leave mpi out")
    if (request.image or load.image) and settings.container not in _ALONE:
        raise refuse(f"is not run by {settings.container}", "set container to apptainer, or leave the images out")
    cpus, memory = cpus_per_node(request), memory_of(request)
    if load.cpus is not None and load.cpus > cpus:
        raise refuse(
            f"has a node like its application's, with {cpus} CPUs, and asks for {load.cpus}", "offer larger nodes"
        )
    if load.memory_bytes is not None and memory is not None and load.memory_bytes > memory:
        asked = f"{format_memory(memory)}, and asks for {format_memory(load.memory_bytes)}"
        raise refuse(f"has a node like its application's, with {asked}", "offer larger nodes")


def driving_command(
    request: RunRequest, load: Load, folder: Path, settings: SlurmSettings, variables: list[str], label: str
) -> list[str]:
    """The command of a job that drives an application; see `command_of` for the arguments.

    Raises:
        DeployError: A job cannot hold both, or the pattern of readiness has a part that only Python knows.
    """
    check_load(request, load, settings)
    application = command_of(request, folder, settings, variables, label)
    generator = replace(request, argv=load.argv, image=load.image or request.image, load=None)
    port = load.port
    logs, memory = request.limits.log_bytes, load.memory_bytes
    given = [
        str(folder),
        str(max(1, math.ceil(load.ready_seconds))),
        "" if port is None else f"{port:04X}",
        load.ready_path if port is not None else "",
        posix_pattern(load.ready_pattern, "Slurm"),
        "" if logs is None else str(logs),
        str(load.cpus or cpus_per_node(request)),
        "" if memory is None else str(max(1, math.ceil(memory / 2**20))),
    ]
    own = [f"{name}={value}" for name, value in load.env.items()]
    words = command_of(generator, folder, settings, [*variables, *load.env], label)
    text = Path(__file__).with_name("load.sh").read_text(encoding="utf-8")
    return ["bash", "-c", text, "load.sh", *given, *_counted(own), *_counted(application), *words]


def _counted(words: Sequence[str]) -> list[str]:
    return [str(len(words)), *words]


def driven_status(status: RunStatus, folder: Path, cpus: float) -> RunStatus:
    """The status of an ended run with a load generator: what became of which, and what the load used.

    Args:
        status: The status of the job.
        folder: The run's folder.
        cpus: CPUs that the load generator was held to.
    """
    seconds, load = _load_usage(folder / USAGE)
    status = replace(status, usage=with_load_usage(status.usage or Usage(), load, seconds, cpus))
    if status.state is not RunState.FAILED:
        return status
    words = _read(folder / STATE).split()
    match words:
        case ["unready", limit]:
            reason = f"the application was not ready within {format_duration(float(limit))}"
        case ["died", when, code]:
            began = "before the load generator did" if when == "during" else "before the load generator began"
            reason = f"the application ended {began}, with code {exit_code_of(int(code))}"
        case ["lost"]:
            why = "the job has no node for the load generator"
            return replace(status, state=RunState.PREEMPTED, reason=why, fault=Fault.INFRASTRUCTURE)
        case _:
            return status
    return replace(status, reason=reason)


def _load_usage(path: Path) -> tuple[float, Usage]:
    """Seconds that a load generator ran, and what it used; nothing where it left no record."""
    lines = _read(path).splitlines()
    if len(lines) < 3:
        return 0.0, Usage()
    hundredths, _, peak = lines[0].partition(" ")
    seconds = shell_seconds(lines[2]) or 0.0  # those of the children
    return int(hundredths) / 100, Usage(int(peak) or None, seconds)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
