"""Turns a request into the documents that create its containers."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tradewind.deployer.environment import job_environment
from tradewind.deployer.runner import resource_limits
from tradewind.deployer.runner.docker import names
from tradewind.deployer.runner.docker.engine import ContainerEngine
from tradewind.deployer.runner.docker.settings import DockerSettings
from tradewind.deployer.runner.warden.slots import Slot
from tradewind.deployer.staging import INPUTS
from tradewind.problem import RunRequest

_LOG_SLACK = 1 << 20
_INPUTS_VARIABLE = "TRADEWIND_INPUTS"


def container_labels(request: RunRequest, role: str, *, grace: float, mounted: bool) -> dict[str, str]:
    """The labels of a run's container: owner, run, expiry, price, limits, and the grace with which it is ended.

    Args:
        request: The run.
        role: `JOB` or `APPLICATION` of `tradewind.deployer.runner.docker.names`.
        grace: Seconds between SIGTERM and SIGKILL.
        mounted: True when the container sees this machine's folders.
    """
    _, memory = _limits(request, role)
    wall = request.limits.wall_seconds
    found = {
        names.RUN: request.run_id,
        names.OWNER: request.owner,
        names.EXPIRES: repr(request.expires),
        names.PRICE: repr(request.offer.hourly),
        names.ROLE: role,
        names.FOLDER: str(request.folder.absolute()),
        names.COPIED: "" if mounted else "yes",
        names.WALL: "" if wall is None else repr(wall),
        names.GRACE: repr(grace),
        names.MEMORY: "" if memory is None else str(memory),
    }
    if request.load is not None:
        load = request.load
        found[names.LOAD] = json.dumps(
            {
                "cpus": load.cpus,
                "port": load.port,
                "path": load.ready_path,
                "pattern": load.ready_pattern,
                "seconds": load.ready_seconds,
            }
        )
    return found


def _drives(request: RunRequest, role: str) -> bool:
    """True for a load generator: the offer is the application's."""
    return request.load is not None and role == names.JOB


def _limits(request: RunRequest, role: str) -> tuple[float | None, int | None]:
    """CPUs and bytes of memory that a container may take, each None without a limit."""
    if request.load is not None and role == names.JOB:
        return request.load.cpus, request.load.memory_bytes
    return _cpus_of(request), _memory_of(request)


def _memory_of(request: RunRequest) -> int | None:
    """The most memory that a run may take on all its nodes, which are this engine's, in bytes, or None."""
    one = resource_limits.memory_of(request)
    return None if one is None else one * request.offer.nodes


def _cpus_of(request: RunRequest) -> float | None:
    one = resource_limits.cpus_of(request)
    return None if one is None else one * request.offer.nodes


def container_environment(request: RunRequest, role: str, secrets: Mapping[str, str]) -> list[str]:
    """The environment of a container, as ``NAME=value``.

    Args:
        request: The run.
        role: `JOB` or `APPLICATION` of `tradewind.deployer.runner.docker.names`.
        secrets: The values of the run's secrets, by variable.
    """
    given = {**request.env, **job_environment(request, names.RUN_PLACE), _INPUTS_VARIABLE: names.INPUTS_PLACE}
    if request.load is not None and role == names.JOB:
        given |= request.load.env
        given["TRADEWIND_APPLICATION_HOST"] = names.APPLICATION
        if request.load.port is not None:
            given["TRADEWIND_APPLICATION_PORT"] = str(request.load.port)
    given |= secrets
    return [f"{name}={value}" for name, value in given.items()]


def container_spec(
    request: RunRequest,
    role: str,
    engine: ContainerEngine,
    settings: DockerSettings,
    secrets: Mapping[str, str],
    slot: Slot | None = None,
) -> dict[str, Any]:
    """The document that creates one of a run's containers.

    Args:
        request: The run.
        role: `JOB` or `APPLICATION` of `tradewind.deployer.runner.docker.names`.
        engine: The engine that creates it.
        settings: The settings of the runner.
        secrets: The values of the run's secrets, by variable.
        slot: The part of this machine that the run has; None where it takes no account.
    """
    drives = _drives(request, role)
    load = request.load
    argv = load.argv if load is not None and drives else request.argv
    user = _user(engine, settings)
    variables = container_environment(request, role, secrets)
    if user not in ("", "0:0") and not any(each.startswith("HOME=") for each in variables):
        variables.append("HOME=/tmp")  # the user has no entry in the passwd of the image
    document: dict[str, Any] = {
        "Image": (load.image if load is not None and drives else None) or request.image,
        "Cmd": list(argv) if settings.entrypoint else [],
        "Env": variables,
        "Labels": container_labels(request, role, grace=settings.grace, mounted=engine.mounts),
        "WorkingDir": names.WORK_PLACE,
        "User": user,
        "StopTimeout": max(1, math.ceil(settings.grace)),
        "HostConfig": {**_host_config(request, role, engine, settings), **_places(slot, engine, drives=drives)},
    }
    if not settings.entrypoint:
        document["Entrypoint"] = list(argv)
    ports = _published(request, role)
    if ports:
        document["ExposedPorts"] = {f"{port}/tcp": {} for port in ports}
    return document


def _user(engine: ContainerEngine, settings: DockerSettings) -> str:
    choice = settings.user or ("caller" if engine.mounts else "image")
    if choice == "image":
        return ""
    if choice != "caller":
        return choice
    return "0:0" if engine.rootless else f"{os.getuid()}:{os.getgid()}"


def _host_config(request: RunRequest, role: str, engine: ContainerEngine, settings: DockerSettings) -> dict[str, Any]:
    document: dict[str, Any] = {
        "NetworkMode": settings.network,
        "PidsLimit": settings.pids or None,
        "ShmSize": settings.shm_bytes,
        "LogConfig": {"Type": "json-file", "Config": _log_options(request)},
        "RestartPolicy": {"Name": "no"},
        "Init": settings.init,
        "Mounts": _mounts(request) if engine.mounts else [],
        "PortBindings": {
            f"{port}/tcp": [{"HostIp": "127.0.0.1", "HostPort": _outside(port, request, settings)}]
            for port in _published(request, role)
        },
    }
    if engine.podman:
        # On a machine with SELinux the user's folders would otherwise have to be labelled anew.
        document["SecurityOpt"] = ["label=disable"]
    cpus, memory = _limits(request, role)
    if cpus is not None and cpus < float(engine.facts().get("NCPU") or math.inf):
        document["NanoCpus"] = max(10_000_000, round(cpus * 1e9))
    if memory is not None:
        document["Memory"] = document["MemorySwap"] = memory
    if (gpus := resource_limits.whole_gpus(request, "Docker")) and not _drives(request, role):
        document["DeviceRequests"] = [{"Count": gpus, "Capabilities": [["gpu"]]}]
    return document


def _places(slot: Slot | None, engine: ContainerEngine, *, drives: bool) -> dict[str, Any]:
    """The CPUs and the GPUs of this machine that a container is held to."""
    document: dict[str, Any] = {}
    if slot is not None and engine.pins and len(slot.cpus) < (os.cpu_count() or 0):
        document["CpusetCpus"] = ",".join(map(str, slot.cpus))
    if slot is not None and slot.devices and not drives:
        document["DeviceRequests"] = [{"DeviceIDs": slot.devices, "Capabilities": [["gpu"]]}]
    return document


def _log_options(request: RunRequest) -> dict[str, str]:
    limit = request.limits.log_bytes
    if limit is None:
        return {}
    # The engine keeps each line with its time, and both streams together: what is collected is cut exactly.
    return {"max-size": str(4 * limit + _LOG_SLACK), "max-file": "2"}


def _published(request: RunRequest, role: str) -> Sequence[int]:
    if request.load is None:
        return request.ports
    if role == names.JOB:
        return ()
    port = request.load.port
    return request.ports if port is None or port in request.ports else (*request.ports, port)


def _outside(port: int, request: RunRequest, settings: DockerSettings) -> str:
    asked = port in request.ports and settings.publish == "same"
    return str(port) if asked else ""


def _mounts(request: RunRequest) -> list[dict[str, Any]]:
    """The mounts of this machine's folders that the job sees."""
    mounts = [
        _mount(request.workdir.resolve(), names.WORK_PLACE),
        _mount(request.folder.resolve(), names.RUN_PLACE),
    ]
    mounts += [
        _mount(source.resolve(), f"{names.INPUTS_PLACE}/{source.name}", read_only=True)
        for source in staged_inputs(request)
    ]
    return mounts


def staged_inputs(request: RunRequest) -> list[Path]:
    """The paths of a run's staged inputs, sorted by name."""
    folder = request.folder / INPUTS
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _mount(source: Path, target: str, *, read_only: bool = False) -> dict[str, Any]:
    return {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": read_only}
