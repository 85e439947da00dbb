"""Finds out whether machines answer, without ever waiting for them."""

from __future__ import annotations

import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tradewind.deployer.ssh_connection import SshConnection, SshTarget
from tradewind.errors import DeployError, TradewindError
from tradewind.problem import Machine

_CONNECT_SECONDS = 3.0
_COMMAND_SECONDS = 15.0
_READY_FILE = "/var/lib/tradewind-ready"
_FAILED_FILE = "/var/lib/tradewind-failed"
_NO_ENGINE = 9
"""The code of a look at a machine that has given up installing its container engine."""


@dataclass(frozen=True, slots=True)
class ReadinessProbe:
    """What one look at some machines has shown.

    Attributes:
        ready: True when all answer.
        missing: What is still missing, in words.
        failed: True when one will never be ready.
    """

    ready: bool
    missing: str = ""
    failed: bool = False


class ReadinessProber:
    """Looks at the machines of many runs, each in a thread of its own, one look at a time."""

    def __init__(self) -> None:
        self._looks: dict[str, Future[ReadinessProbe]] = {}
        self._seen: dict[str, ReadinessProbe] = {}
        self._guard = threading.Lock()

    def look(self, run_id: str, machines: Sequence[Machine], what: str) -> ReadinessProbe:
        """What the last look has shown; a new one is begun when it had ended.

        Args:
            run_id: The run.
            machines: Its machines.
            what: ``docker``, ``ssh`` or ``none``.
        """
        if what == "none":
            return ReadinessProbe(True)
        with self._guard:
            look = self._looks.get(run_id)
            if look is not None and not look.done():
                return self._seen[run_id]
            seen = look.result() if look is not None else ReadinessProbe(False, "they were just made")
            self._seen[run_id] = seen
            if seen.ready:
                self._looks.pop(run_id)
            else:
                look = self._looks[run_id] = Future()
                arguments = (look, machines, what)
                threading.Thread(target=_carry_out, args=arguments, name="tradewind-terraform", daemon=True).start()
            return seen


def _carry_out(look: Future[ReadinessProbe], machines: Sequence[Machine], what: str) -> None:
    try:
        look.set_result(next((seen for m in machines if not (seen := _one(m, what)).ready), ReadinessProbe(True)))
    except BaseException as error:
        look.set_result(ReadinessProbe(False, f"{type(error).__name__}: {error}"))


def _one(machine: Machine, what: str) -> ReadinessProbe:
    target = SshTarget.of(machine)
    if not target.jump and not _speaks_ssh(target.host, target.port or 22):
        return ReadinessProbe(False, f"the SSH server of {machine.id} ({target.host}) does not answer")
    if what == "ssh" and not target.jump:
        return ReadinessProbe(True)
    link = SshConnection(target, connect_seconds=_CONNECT_SECONDS)
    looked = f"test -e {_READY_FILE} && exit 0; test -e {_FAILED_FILE} && exit {_NO_ENGINE}; exit 1"
    command = ["sh", "-c", looked] if what == "docker" else ["true"]
    try:
        code = link.run(command, timeout=_COMMAND_SECONDS, check=False).code
        if code == _NO_ENGINE:
            words = f"{machine.id} could not install its container engine (its /var/log/cloud-init-output.log says why)"
            return ReadinessProbe(False, words, failed=True)
        if code:
            return ReadinessProbe(False, f"{machine.id} is installing its container engine")
    except TradewindError as error:
        return ReadinessProbe(False, f"{machine.id}: {error.message}")
    finally:
        with suppress(OSError, subprocess.SubprocessError):
            link.close()
    return ReadinessProbe(True)


def _speaks_ssh(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), _CONNECT_SECONDS) as connection:
            connection.settimeout(_CONNECT_SECONDS)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def machines_from_output(
    listed: Sequence[Mapping[str, Any]], given: Mapping[str, Any], keys: Mapping[str, str]
) -> tuple[Machine, ...]:
    """The machines that a module's output lists.

    Args:
        listed: The output ``machines``: ``id``, ``address``, and perhaps ``private_address``, ``user`` and ``port``.
        given: How they are reached instead, in the user's settings.
        keys: ``identity`` and ``known_hosts`` of the run.
    """
    machines = []
    for each in listed:
        address = str(given.get("host") or each["address"])
        said = {name: each[name] for name in ("user", "port") if each.get(name)}
        own = {} if given.get("accept_new") else {"known_hosts": keys["known_hosts"]}
        ssh = {"identity": keys["identity"], **own, **said, **given, "host": address}
        data = {"ssh": ssh, "private_address": each.get("private_address") or address}
        machines.append(Machine(str(each["id"]), address, data))
    return tuple(machines)


def address_of_this_machine(url: str) -> str:
    """The address that the outside sees this machine under, as a network of one.

    Raises:
        DeployError: It cannot be found out.
    """
    hint = "write it into the setting caller_cidr of provisioner terraform"
    try:
        # The page is the one in the user's own settings.
        with urllib.request.urlopen(url, timeout=_CONNECT_SECONDS) as answer:  # noqa: S310
            text = answer.read(100).decode().strip()
        socket.inet_pton(socket.AF_INET, text)
    except (OSError, ValueError, UnicodeDecodeError) as error:
        reason = getattr(error, "reason", error)
        raise DeployError(f"{url} does not say which address this machine has: {reason}", hint=hint) from None
    return f"{text}/32"
