"""Asks libvirt, by its own program: virsh is wherever libvirt is, and the Python binding must be compiled."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from tradewind.errors import CapacityError, CredentialsError, DeployError, ImageError, UnreachableError
from tradewind.utils.dependencies import find_program

RUNNING, BLOCKED, PAUSED, SHUTDOWN, SHUTOFF, CRASHED, SUSPENDED = range(1, 8)
_WORDS = {
    PAUSED: "stopped, as QEMU does when the host's disk is full",
    SHUTDOWN: "shutting down",
    SHUTOFF: "off",
    CRASHED: "crashed",
    SUSPENDED: "suspended",
}
_LOOK_SECONDS = 5.0


class NotThereError(DeployError):
    """There is no such machine, or it is not running."""


class PortTakenError(DeployError):
    """Another program took the port of a machine."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A machine as libvirt has it.

    Attributes:
        state: One of libvirt's numbers.
        memory_kib: What it may take.
        vcpu: Its virtual CPUs.
    """

    state: int
    memory_kib: int = 0
    vcpu: int = 0

    @property
    def runs(self) -> bool:
        """True while it takes memory and CPU of the host."""
        return self.state in (RUNNING, BLOCKED, PAUSED, SHUTDOWN)

    @property
    def trouble(self) -> str:
        """What is wrong with it, or an empty text."""
        return "" if self.state in (RUNNING, BLOCKED) else _WORDS.get(self.state, f"in state {self.state}")


@dataclass(frozen=True, slots=True)
class HostCapabilities:
    """What a host has.

    Attributes:
        kvm: True when it says that it has KVM.
        cpus: Its CPUs.
        memory_kib: Its memory.
    """

    kvm: bool
    cpus: int
    memory_kib: int


def find_virsh() -> str:
    """The path of ``virsh``.

    Raises:
        MissingProgramError: There is none.
    """
    return find_program("virsh", "apt-get install libvirt-clients")


class LibvirtHost:
    """One libvirt.

    Args:
        uri: Its address.
        timeout: Seconds that a call which changes something may take.
    """

    def __init__(self, uri: str, timeout: float) -> None:
        self.uri = uri
        self._timeout = timeout
        self._capabilities: HostCapabilities | None = None

    def call(self, *words: str, timeout: float | None = None, lock: int | None = None) -> str:
        """Run a command of virsh.

        Args:
            *words: The command.
            timeout: Seconds that it may take.
            lock: What it keeps until it ends: an order that was on its way when we were killed is carried out.

        Raises:
            MissingProgramError: There is no virsh.
            DeployError: What libvirt says, as the error that fits.
        """
        program = find_virsh()
        try:
            done = subprocess.run(
                [program, "-q", "-c", self.uri, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout or self._timeout,
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
                pass_fds=() if lock is None else (lock,),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise UnreachableError(f"libvirt at {self.uri} did not answer within {error.timeout:g} s") from None
        if done.returncode:
            raise libvirt_error(done.stderr.decode(errors="replace"), self.uri)
        return done.stdout.decode(errors="replace")

    def domains(self) -> dict[str, Domain]:
        """All machines of the host, by name, in one call."""
        found = {}
        text = self.call("domstats", "--state", "--balloon", "--vcpu", "--nowait", timeout=_LOOK_SECONDS)
        for block in text.split("Domain: ")[1:]:
            name, *lines = block.splitlines()
            facts = dict(line.strip().partition("=")[::2] for line in lines)
            found[name.strip("'")] = Domain(
                int(facts.get("state.state", 0)),
                int(facts.get("balloon.maximum", facts.get("balloon.current", 0))),
                int(facts.get("vcpu.maximum", 0)),
            )
        return found

    def capabilities(self) -> HostCapabilities:
        """What the host has; asked once."""
        if self._capabilities is None:
            document = ElementTree.fromstring(self.call("capabilities"))  # noqa: S314  (libvirt's own answer)
            self._capabilities = HostCapabilities(
                any(each.get("type") == "kvm" for each in document.iter("domain")),
                len(document.findall("host/topology/cells/cell/cpus/cpu")) or os.cpu_count() or 1,
                sum(int(each.text or 0) for each in document.findall("host/topology/cells/cell/memory")),
            )
        return self._capabilities

    def remove(self, name: str, lock: int) -> None:
        """Switch a machine off and forget it; one that is not there is no error."""
        for command in ("destroy", "undefine"):
            try:
                self.call(command, name, lock=lock)
            except NotThereError:
                continue

    def address(self, name: str) -> str:
        """The address that a machine has got in its libvirt network, or an empty text."""
        for line in self.call("domifaddr", name, "--source", "lease", timeout=_LOOK_SECONDS).splitlines():
            words = line.split()
            if len(words) == 4 and words[2] == "ipv4":
                return words[3].partition("/")[0]
        return ""


_STORAGE_HINT = "the user that runs QEMU must be able to read the image and the folder of the setting storage"
_DAEMON_HINT = "is libvirtd running? systemctl start libvirtd, or set uri"
_GROUP_HINT = "add yourself to the group libvirt and log in again"
_IMAGE_HINT = "see the settings image, kernel and initrd"

_MEMORY_HINT = "the host has too little memory for it"

_MEANINGS: Sequence[tuple[str, type[DeployError], str]] = (
    # "failed to get domain" alone says that there is none; before another line that line says why it was not got.
    (r"^failed to get domain '[^']*'$|domain not found|domain is not running", NotThereError, ""),
    (r"authentication|access denied|failed to connect socket.*permission denied", CredentialsError, _GROUP_HINT),
    (r"cannot allocate memory|cannot set up guest memory", CapacityError, _MEMORY_HINT),
    (r"no space left on device", CapacityError, "the host's disk is full"),
    (r"could not set up host forwarding rule", PortTakenError, "another program took the port"),
    (r"permission denied", CredentialsError, _STORAGE_HINT),
    (r"could not (open|load) .*no such file|cannot access storage file|not in \w+ format", ImageError, _IMAGE_HINT),
    (r"failed to connect|cannot recv data|end of file while reading|socket is closed|cannot write", UnreachableError,
     _DAEMON_HINT),
)  # fmt: skip
"""What libvirt says, in small letters, what it is, and what to do about it."""

_FINAL: Mapping[str, str] = {
    r"network not found": "virsh net-list --all shows the networks; set network",
    r"network .* is not active": "virsh net-start starts it",
    r"kvm": "set emulator: qemu, or load the module kvm_intel or kvm_amd",
    r"virtiofsd": "apt-get install virtiofsd, or set share: 9p",
    r"machine type|no pci buses": "qemu-system-x86_64 -M help lists them; set machine",
    r"unsupported configuration|xml error|invalid argument": "",
}
"""What trying again does not help against, and what does."""


def libvirt_error(stderr: str, uri: str) -> DeployError:
    """What virsh said, as the error that fits."""
    lines = [line.removeprefix("error:").strip() for line in stderr.splitlines() if line.strip()]
    words = "; ".join(line for line in lines if line) or "no reason given"
    message = f"libvirt at {uri}: {words[:600]}"
    for pattern, kind, hint in _MEANINGS:
        if re.search(pattern, words.lower()):
            return kind(message, hint=hint or None)
    for pattern, hint in _FINAL.items():
        if re.search(pattern, words.lower()):
            return DeployError(message, hint=hint or None, retryable=False)
    return DeployError(message)
