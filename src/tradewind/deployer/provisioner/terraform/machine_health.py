"""Finds out whether machines answer, and which a provider has taken back, without ever waiting for an answer."""

from __future__ import annotations

import logging
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tradewind.deployer.provisioner.terraform.cloud import Cloud
from tradewind.deployer.ssh_connection import SshConnection, SshTarget
from tradewind.errors import DeployError, TradewindError
from tradewind.problem import Machine

_log = logging.getLogger("tradewind.deployer")

_EVERY_SECONDS = 15.0
_REST = 3.0
"""A look that took long is followed by a pause of this many times as long."""
_LOOKS = 2
"""In so many looks in a row a machine has to be missing: lists of providers are not always up to date."""


@dataclass(frozen=True, slots=True)
class MachineLoss:
    """Losses that the looks at the machines of one run have shown.

    Attributes:
        lost: The ids of those that the provider does not have, or does not run, any more.
        vanished: True when the last look has shown none of them.
    """

    lost: tuple[str, ...] = ()
    vanished: bool = False


@dataclass(slots=True)
class _RegionState:
    """Knowledge of one region of one account.

    Attributes:
        wanted: The machines that the next look is about.
        missed: How many looks in a row have not shown a machine; of those that the last look was about.
        seen: Those that a look has shown.
        busy: True while a look goes on.
        next_at: When the next one may begin.
    """

    wanted: set[str] = field(default_factory=set)
    missed: dict[str, int] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    busy: bool = False
    next_at: float = float("-inf")


class MachineLossMonitor:
    """Asks each provider, account and region for the machines of all runs there at once, every 15 s or less often.

    What is unknown counts as being there: a provider that does not answer has taken nothing back.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[Cloud, str], _RegionState] = {}
        self._guard = threading.Lock()

    def look(self, cloud: Cloud, region: str, machines: Collection[str], *, sure: bool) -> MachineLoss:
        """Give the losses seen so far among some machines; a new look is begun when it is time.

        Args:
            cloud: Who is asked.
            region: Where the machines are.
            machines: Their ids.
            sure: False where the provider may know them by other names, or may be asked in the wrong account: there,
                only what it has shown before can be missing.
        """
        with self._guard:
            place = self._places.setdefault((cloud, region), _RegionState())
            place.wanted.update(machines)
            if not place.busy and time.monotonic() >= place.next_at:
                place.busy = True
                wanted, place.wanted = place.wanted, set()
                arguments = (place, cloud, region, wanted)
                threading.Thread(target=self._ask, args=arguments, name="tradewind-terraform", daemon=True).start()
            missed = {each: place.missed.get(each, 0) for each in machines if sure or each in place.seen}
            lost = tuple(each for each, times in missed.items() if times >= _LOOKS)
            return MachineLoss(lost, len(missed) == len(machines) > 0 and all(missed.values()))

    def _ask(self, place: _RegionState, cloud: Cloud, region: str, wanted: set[str]) -> None:
        begun = time.monotonic()
        alive: Collection[str] | None = None
        try:
            alive = cloud.alive(region, wanted)
        except Exception as error:  # as well of a bug: it must not end healthy runs, nor the looks
            _log.info("whether machines in %s are still there is not known: %s", region, error)
        with self._guard:
            took = time.monotonic() - begun
            place.busy, place.next_at = False, begun + took + max(_EVERY_SECONDS, _REST * took)
            if alive is None:
                return
            place.seen = (place.seen | set(alive)) & wanted
            place.missed = {each: 0 if each in alive else place.missed.get(each, 0) + 1 for each in wanted}


_CONNECT_SECONDS = 3.0
_COMMAND_SECONDS = 15.0
_READY_FILE = "/var/lib/tradewind-ready"
_FAILED_FILE = "/var/lib/tradewind-failed"
_NO_ENGINE = 9
"""The code of a look at a machine that has given up installing its container engine."""


@dataclass(frozen=True, slots=True)
class ReadinessProbe:
    """Findings of one look at the machines of a run.

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
        """Give the findings of the last look; a new one is begun when that has ended.

        Args:
            run_id: The run.
            machines: The machines of the run.
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
