"""Typed errors, each with a hint, for the refusals of container engines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.deployer.runner.architectures import architecture_error, wrong_architecture
from tradewind.deployer.runner.image_errors import NETWORK_WORDS, image_error
from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    ImageError,
    JobProgramError,
    OfferRefusedError,
    PrerequisiteError,
    TradewindError,
    UnreachableError,
)

_LIMITS = (("Memory", "MemoryLimit", "memory"), ("NanoCpus", "CpuCfsQuota", "CPUs"))


def engine_message(error: Any) -> str:
    """The engine's own message in an error of the library."""
    said = getattr(error, "explanation", None) or str(error)
    return str(said).strip()


def start_error(
    error: Any, *, image: str, program: str, place: str, machine: str = "", script: bool = False
) -> TradewindError:
    """The typed error for what an engine refused to create or to start.

    Args:
        error: The library's ``APIError``.
        image: The image of the container.
        program: The first word of its command.
        place: The address of the engine, for the message.
        machine: The architecture of its machine, or empty where that is not known.
        script: True when the program is known to be a script.
    """
    said = engine_message(error)
    low = said.lower()
    if "exec format error" in low and script:
        return JobProgramError(f"{program} is no program that this machine can run", hint="a script needs a #! line")
    if "exec format error" in low:
        what = f"the image {image}, or its program {program},"
        return architecture_error(f"{wrong_architecture(what, machine)}: {said}")
    if "no space left on device" in low or "disk quota exceeded" in low:
        return DeployError(
            f"the disk of the container engine at {place} is full",
            hint="docker system prune removes what nobody uses",
        )
    return (
        _program_refusal(said, low, image, program)
        or image_error(said, image)
        or _resource_refusal(said, low, place)
        or DeployError(f"the container engine at {place} refuses: {said}", retryable=_status(error) >= 500)
    )


def missing_limit_error(wanted: Mapping[str, Any], facts: Mapping[str, Any], place: str) -> PrerequisiteError | None:
    """The error for an engine that would start a container without the limits it is to have.

    Args:
        wanted: The limits, as in the engine's ``HostConfig``.
        facts: The engine's answer to ``info``; a limit that is not mentioned there is taken to be kept.
        place: The address of the engine, for the message.
    """
    lacking = [name for key, fact, name in _LIMITS if wanted.get(key) and facts.get(fact) is False]
    return _without_limits(place, " and ".join(lacking)) if lacking else None


def dropped_limit_error(wanted: Mapping[str, Any], warnings: Sequence[str], place: str) -> PrerequisiteError | None:
    """The error for an engine that has created a container and warns that it does not have its memory limit.

    Args:
        wanted: The limits, as in the engine's ``HostConfig``.
        warnings: The warnings of the engine.
        place: The address of the engine, for the message.
    """
    low = " ".join(warnings).lower()
    memory = "memory limit capabilities" in low or "resource limits are not supported" in low
    return _without_limits(place, "memory") if memory and wanted.get("Memory") else None


def _without_limits(place: str, what: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"the container engine at {place} cannot limit the {what} of containers",
        hint="it needs cgroup v2 and, when rootless, `Delegate=cpu cpuset memory pids` for its user",
    )


def _status(error: Any) -> int:
    return int(getattr(error, "status_code", None) or 500)


def _program_refusal(said: str, low: str, image: str, program: str) -> TradewindError | None:
    if "mkdir /tradewind" in low or "mounting" in low or "docker-init" in low or "exec" not in low:
        return None
    if "executable file not found" in low or re.search(r"exec:? .*no such file or directory", low):
        return JobProgramError(
            f"there is no program {program!r} in the image {image}",
            hint="use another image, or give the program's path, relative to job.workdir",
        )
    if "permission denied" in low or "is a directory" in low:
        return JobProgramError(f"{program} in the image {image} is not executable", hint=f"chmod +x {program}")
    return None


def _resource_refusal(said: str, low: str, place: str) -> DeployError | None:
    taken = re.search(r"(?:127\.0\.0\.1|0\.0\.0\.0|\[::\]):(\d+)", said)
    if "port is already allocated" in low or "address already in use" in low:
        port = taken[1] if taken else "?"
        return CapacityError(
            f"port {port} of the machine is taken", hint="end what uses it, change job.ports, or set publish: free"
        )
    if "could not select device driver" in low or "nvidia-container" in low or "unresolvable cdi devices" in low:
        return OfferRefusedError(
            f"the container engine at {place} cannot give GPUs to containers: {said}",
            hint="install the NVIDIA Container Toolkit there, or use offers without GPUs",
        )
    if "nanocpus can not be set" in low:
        return _without_limits(place, "CPUs")
    if "rootless needs no limits" in low:
        return _without_limits(place, "resources")
    if "minimum memory limit" in low or "cpu-shares" in low or "range of cpus" in low:
        return OfferRefusedError(
            f"the container engine at {place} refuses the limits: {said}", hint="use a larger offer"
        )
    if "network" in low and "not found" in low:
        return PrerequisiteError(said, hint="docker network ls shows the networks; set network")
    if "bind source path does not exist" in low or "mounts denied" in low or "statfs" in low:
        return PrerequisiteError(
            f"the container engine at {place} does not see this machine's folders: {said}", hint="set files: copy"
        )
    if "docker-init" in low or "catatonit" in low:
        return PrerequisiteError(f"the engine at {place} has no init program", hint="set init: false")
    return None


def pull_error(error: Any, image: str) -> TradewindError:
    """The typed error for an image that could not be pulled.

    Args:
        error: The library's ``APIError`` or ``DockerException``.
        image: The image.
    """
    said = engine_message(error)
    low = said.lower()
    if any(words in low for words in NETWORK_WORDS):
        return UnreachableError(f"the registry of the image {image} does not answer: {said}")
    if "no space left on device" in low:
        return DeployError(f"the disk of the engine is full: {image} cannot be pulled", hint="docker system prune")
    named = image_error(said, image)
    if named is not None:
        return named
    if _status(error) in (401, 403):
        return CredentialsError(f"the registry of the image {image} does not let us in: {said}", hint="docker login")
    if _status(error) == 404 or "not found" in low:
        return ImageError(f"there is no image {image}: {said}", hint="check its name and tag")
    return DeployError(f"the image {image} cannot be pulled: {said}")
