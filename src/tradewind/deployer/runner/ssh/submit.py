"""The requests by which the ssh runner starts a run on its machines."""

from __future__ import annotations

import base64
import hashlib
import math
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tradewind.deployer.bundle import Bundle, pack
from tradewind.deployer.checkpoints import FOLDER as CHECKPOINT
from tradewind.deployer.environment import check_variables, job_environment, resolve_secrets
from tradewind.deployer.runner.log_limit import shares
from tradewind.deployer.runner.resource_limits import cpus_of, memory_of
from tradewind.deployer.runner.run_files import file_name_of
from tradewind.deployer.runner.ssh.remote_machine import RemoteMachine
from tradewind.deployer.runner.ssh.settings import SshRunnerSettings
from tradewind.deployer.staging import INPUTS
from tradewind.errors import DeployError
from tradewind.problem import RunRequest

APPLICATION = "+application"
"""The suffix of a run's name for the application of a run with a load generator."""

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class RunArchives:
    """The archives that a run needs on each of its machines.

    Attributes:
        work: The archive of the working folder.
        inputs: The archive of the inputs, or None without any.
    """

    work: Bundle
    inputs: Bundle | None

    @classmethod
    def of(cls, request: RunRequest, cache: Path, settings: SshRunnerSettings) -> RunArchives:
        """Pack the working folder and the inputs of a run.

        Args:
            request: The run.
            cache: The folder in which archives are kept.
            settings: The settings of the runner.

        Raises:
            DeployError: A folder is not there, or is too large.
        """
        limit = int(settings.send_gib * _GIB)
        work = pack(request.workdir, cache, limit_bytes=limit)
        inputs = pack(request.folder / INPUTS, cache, limit_bytes=limit) if request.inputs else None
        return cls(work, inputs)


@dataclass(frozen=True, slots=True)
class RemoteCommand:
    """One command of a run on one machine: the job itself, or the application beside a load generator.

    Attributes:
        name: The name of the command on that machine.
        argv: The words of the command.
        env: Variables beside those of the request.
        held: True when it is held to the CPUs and the memory of the offer.
        spare_seconds: Seconds that are added to the run's time limit.
        cpus: CPUs that it is held to instead of those of the offer, or None.
        memory_bytes: Memory that it is held to instead of that of the offer, or None.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    held: bool = True
    spare_seconds: float = 0.0
    cpus: int | None = None
    memory_bytes: int | None = None

    def cpus_held(self, request: RunRequest) -> float | None:
        """CPUs that the command of a run is held to, or None."""
        return self.cpus or (cpus_of(request) if self.held else None)


def tag_of(machine: RemoteMachine, request: RunRequest, name: str) -> str:
    """The tag in the environment of all processes of a run's command; it is always the same for the same run.

    Args:
        machine: The machine.
        request: The run.
        name: The name of the command there.
    """
    text = "\0".join([machine.target.host, str(machine.target.port), request.owner, name])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def start(
    machine: RemoteMachine,
    request: RunRequest,
    part: RemoteCommand,
    files: RunArchives,
    addresses: Sequence[str],
    given: SshRunnerSettings,
) -> None:
    """Start a command on a machine, unless it was started before.

    Args:
        machine: The machine.
        request: The run.
        part: The command.
        files: The archives that it needs.
        addresses: The addresses of the run's machines among themselves, that of the first machine first.
        given: The settings of the runner.

    Raises:
        UnreachableError: The machine does not answer.
        CredentialsError: It does not let us in.
        DeployError: It cannot be started, or a secret cannot be read.
    """
    limits, cpus = request.limits, part.cpus_held(request)
    options = {
        "wall": None if limits.wall_seconds is None else math.ceil((limits.wall_seconds + part.spare_seconds) * 100),
        "memory": part.memory_bytes or (memory_of(request) if part.held else None),
        "cpus": math.ceil(cpus) if cpus else None,
        "log": limits.log_bytes,
        "tail": None if limits.log_bytes is None else shares(limits.log_bytes)[1],
        "grace": round(given.grace * 100),
        "expires": _seconds_left(request),
        "groups": int(given.groups),
    }
    words = [*_head("submit", machine, request, part.name)]
    words.append(base64.b64encode(_spec(machine, request, part, addresses)).decode())
    words += [files.work.digest, files.inputs.digest if files.inputs else ""]
    words += [f"{key}={value}" for key, value in options.items() if value is not None]
    machine.start(words, files.work, files.inputs)


def lay_out(machine: RemoteMachine, request: RunRequest, name: str, files: RunArchives) -> None:
    """Put the files of a run on a machine that is not its first; see `start`."""
    words = [*_head("prepare", machine, request, name), files.work.digest]
    words += [files.inputs.digest if files.inputs else "", str(_seconds_left(request))]
    machine.start(words, files.work, files.inputs)


def _head(what: str, machine: RemoteMachine, request: RunRequest, name: str) -> list[str]:
    return [what, name, secrets.token_hex(6), file_name_of(request.owner), tag_of(machine, request, name)]


def _seconds_left(request: RunRequest) -> int:
    # Machines need not agree on what time it is: the far side gets a time span.
    return max(1, math.ceil(request.expires - time.time()))


def _spec(machine: RemoteMachine, request: RunRequest, part: RemoteCommand, addresses: Sequence[str]) -> bytes:
    """Shell words that export the environment and set the command; the far side removes them as it reads them."""
    folder = f"{machine.far_folder}/runs/{part.name}"
    slots = max(1, math.floor(cpus_of(request) or 1))
    variables = {
        **request.env,
        **job_environment(request, folder),
        "TRADEWIND_NODE_IPS": "\n".join(addresses),
        "TRADEWIND_HOSTFILE": f"{folder}/hostfile",
        **part.env,
        **resolve_secrets(request.secrets),
    }
    lines = [f"printf '%s\\n' {shlex.join(f'{address} slots={slots}' for address in addresses)} >../hostfile"]
    if request.checkpoint is not None:
        lines.append(f"mkdir -p ../{CHECKPOINT}")
    check_variables(variables)
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    lines.append(f"set -- {shlex.join(part.argv)}")
    text = "\n".join(lines) + "\n"
    if "\0" in text:
        raise DeployError(f"run {request.run_id}: a word or a variable has a null character", retryable=False)
    return text.encode(errors="surrogateescape")
