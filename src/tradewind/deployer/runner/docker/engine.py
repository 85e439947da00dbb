"""Finds and calls a container engine: Docker or Podman, on this machine or another one."""

from __future__ import annotations

import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tradewind import plugins
from tradewind.deployer.runner.architectures import architecture_of, may_be_emulated, runs_on
from tradewind.deployer.runner.docker.names import engine_time
from tradewind.deployer.runner.docker.settings import DockerSettings, EngineHost
from tradewind.deployer.ssh_connection import SshConnection, SshTarget, find_ssh
from tradewind.errors import CredentialsError, DeployError, MissingProgramError, PrerequisiteError, UnreachableError
from tradewind.problem import Machine
from tradewind.utils.dependencies import install_command
from tradewind.utils.paths import expand

CALL_SECONDS = 60.0
"""Seconds that a call that changes something may take: engines are slow under load."""

LOOK_SECONDS = 4.0
"""Seconds that a call that only reads may take."""

_DOCKER_SOCKET = "/var/run/docker.sock"
_OLD_VERSION = "1.30"
_GLANCE_SECONDS = 0.2
_START = "start it (systemctl start docker, or podman system service), or set deploy.runner's host"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """The address of a container engine.

    Attributes:
        host: A ``unix://`` or ``tcp://`` address; with a target the path of a socket on that machine.
        target: The machine to reach by SSH first, or None.
    """

    host: str
    target: SshTarget | None = None

    @property
    def local(self) -> bool:
        """True for an engine of this machine, which sees this machine's folders."""
        return self.target is None and self.host.startswith("unix://")

    def __str__(self) -> str:
        return f"{self.target.host}:{self.host}" if self.target else self.host

    def to_json(self) -> dict[str, Any]:
        """A JSON-able document, for handles."""
        return {"host": self.host, "target": self.target.to_json() if self.target else None}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> EngineAddress:
        """The address of a document that `to_json` made."""
        target = document.get("target")
        return cls(str(document["host"]), SshTarget(**target) if target else None)


def default_address(settings: DockerSettings) -> EngineAddress:
    """The address of the engine that is used without machines: the setting, ``DOCKER_HOST``, or a socket that is there.

    Raises:
        CredentialsError: It would be reached over the network without TLS.
        DeployError: The address is not understood.
    """
    host = settings.host or os.environ.get("DOCKER_HOST", "")
    if not host:
        places = [_DOCKER_SOCKET, f"{os.environ.get('XDG_RUNTIME_DIR', '/run')}/podman/podman.sock"]
        places.append("/run/podman/podman.sock")
        return EngineAddress("unix://" + next((place for place in places if Path(place).exists()), _DOCKER_SOCKET))
    try:
        found = EngineHost.parse(host)
    except ValueError as error:
        raise PrerequisiteError(str(error)) from None
    if found.scheme == "unix":
        return EngineAddress(f"unix://{found.place}")
    if found.scheme == "ssh":
        return EngineAddress(found.place or settings.remote_socket, SshTarget.named(found.login, settings.ssh))
    _certificates(settings, host)
    return EngineAddress(f"tcp://{found.place}")


def machine_address(settings: DockerSettings, machine: Machine) -> EngineAddress:
    """The address of the engine on a machine of a provisioner."""
    return EngineAddress(settings.remote_socket, SshTarget.of(machine, settings.ssh.facts()))


def _certificates(settings: DockerSettings, host: str) -> tuple[str, str, str]:
    """The files for mutual TLS, from the settings or as the ``docker`` command finds them."""
    ca, cert, key = (
        str(expand(file)) if file else "" for file in (settings.tls_ca, settings.tls_cert, settings.tls_key)
    )
    files = (ca, cert, key)
    if not any(files) and os.environ.get("DOCKER_TLS_VERIFY"):
        folder = expand(os.environ.get("DOCKER_CERT_PATH") or "~/.docker")
        files = (str(folder / "ca.pem"), str(folder / "cert.pem"), str(folder / "key.pem"))
    if not all(files):
        raise CredentialsError(
            f"{host} would be an open port: who can reach it is root on that machine",
            hint="use ssh://user@host, or set tls_ca, tls_cert and tls_key",
        )
    for file in files:
        if not Path(file).is_file():
            raise CredentialsError(f"there is no file {file}", hint="set tls_ca, tls_cert and tls_key")
    return files


class ContainerEngine:
    """Calls one engine, from several threads.

    Args:
        address: The address of the engine.
        settings: The settings of the runner, for SSH and TLS.

    Attributes:
        link: The connection to its machine, or None.
        fitting_images: Names of images that are known to run on its machine.
        answering: False while the connection to its machine has to be opened first, which may take a while.
    """

    def __init__(self, address: EngineAddress, settings: DockerSettings) -> None:
        self.address = address
        self._settings = settings
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        self.link = (
            SshConnection(address.target, connect_seconds=settings.ssh.connect_seconds)
            if address.target is not None
            else None
        )
        self.answering = address.target is None
        self._version: str | None = None
        self._podman = False
        self._facts: Mapping[str, Any] | None = None
        self._offset = 0.0
        self.fitting_images: set[str] = set()

    @property
    def mounts(self) -> bool:
        """True when jobs see this machine's folders, rather than copies."""
        choice = self._settings.files
        return choice == "mount" or (choice == "auto" and self.address.local and not self.remapped)

    def call(self, function: Callable[[Any], T], seconds: float = LOOK_SECONDS) -> T:
        """Call a function with a client of the engine; it may be called twice, when a connection has become stale.

        Args:
            function: The function; its argument is a ``docker.APIClient``.
            seconds: Seconds that each answer may take.

        Returns:
            What the function returns.

        Raises:
            UnreachableError: The engine does not answer.
            CredentialsError: It does not let us in.
            docker.errors.APIError: It refuses; `tradewind.deployer.runner.docker.errors` makes typed errors of that.
        """
        requests = _package("requests.exceptions")
        docker, urllib3 = _package("docker.errors"), _package("urllib3.exceptions")
        while True:
            client, fresh = self._take(seconds)
            client.timeout = seconds
            try:
                result = function(client)
            except docker.APIError:
                self._give(client)  # an answer, even a bad one, leaves the connection as it was
                raise
            except (requests.RequestException, docker.DockerException, urllib3.HTTPError, ConnectionError) as error:
                client.close()
                self.answering = self.link is None
                waits = seconds > LOOK_SECONDS or self.link is None
                if fresh or not waits or isinstance(error, requests.Timeout | docker.DockerException):
                    raise self.trouble(error) from error
                continue
            except BaseException:
                client.close()
                raise
            self._give(client)
            self.answering = True
            return result

    def _probe(self) -> None:
        found = _socket_trouble(self.address.host.removeprefix("unix://")) if self.address.local else None
        if found is not None:
            raise found

    def client(self, seconds: float) -> Any:
        """Make a ``docker.APIClient`` that the caller has to close.

        Args:
            seconds: Seconds that each of its answers may take.

        Raises:
            DeployError: The engine does not answer.
        """
        self._probe()
        docker = _package("docker")
        base, tls = self.address.host, None
        try:
            if self.address.target is not None:
                assert self.link is not None
                base = f"unix://{self.link.forward_socket(base)}"
            elif base.startswith("tcp://"):
                ca, cert, key = _certificates(self._settings, base)
                tls = docker.tls.TLSConfig(client_cert=(cert, key), ca_cert=ca, verify=True)
            made = docker.APIClient(base_url=base, version=self._version or _OLD_VERSION, timeout=seconds, tls=tls)
        except docker.errors.DockerException as error:
            raise self.trouble(error) from error
        # Otherwise REQUESTS_CA_BUNDLE, or a proxy, would take the place of what the user said of this engine.
        made.trust_env = False
        _keep_alive(made)
        if self._version is None:
            # Unlike the package's "auto", this is asked when what is above holds already.
            try:
                answer = made.version(api_version=False)
                parts = [str(part.get("Name")).lower() for part in answer.get("Components") or ()]
                self._podman = any("podman" in part for part in parts)
                self._version = str(answer["ApiVersion"])
            except (docker.errors.DockerException, OSError, LookupError) as error:
                raise self.trouble(error) from error
            finally:
                made.close()
            return self.client(seconds)
        return made

    def _take(self, seconds: float) -> tuple[Any, bool]:
        with self._lock:
            client = self._idle.pop() if self._idle else None
        if client is None:
            return self.client(seconds), True
        try:
            self._probe()
        except BaseException:
            client.close()
            raise
        return client, False

    def _give(self, client: Any) -> None:
        with self._lock:
            self._idle.append(client)

    def trouble(self, error: Exception) -> DeployError:
        """The typed error for a call that the engine did not answer.

        Args:
            error: The error of the library.
        """
        host, words = self.address.host, str(error)
        if self.link is not None:
            return UnreachableError(
                f"no container engine answers at {self.address}: {words}",
                hint="install Docker there, or set remote_socket; the login must be in the group docker",
            )
        if host.startswith("unix://"):
            found = _socket_trouble(host.removeprefix("unix://"), words)
            assert found is not None
            return found
        if "certificate" in words.lower() or "ssl" in words.lower():
            return CredentialsError(
                f"the engine at {host} and we do not accept each other's certificates: {words}",
                hint="check tls_ca, tls_cert and tls_key",
            )
        return UnreachableError(f"the container engine at {host} does not answer: {words}", hint=_START)

    def facts(self) -> Mapping[str, Any]:
        """The engine's answer to ``info``, asked for once."""
        if self._facts is None:
            info = self.call(lambda client: client.info(), CALL_SECONDS)
            here, there = time.time(), engine_time(str(info.get("SystemTime") or ""))
            # This machine's engine has this machine's clock, and asking took some time.
            self._offset = there - here if there and not self.address.local else 0.0
            self._facts = info
        return self._facts

    @property
    def podman(self) -> bool:
        """True for Podman, some of whose answers differ from Docker's; known after the first answer."""
        return self._podman

    @property
    def rootless(self) -> bool:
        """True when root in a container is the user who runs the engine."""
        return any("rootless" in str(option) for option in self.facts().get("SecurityOptions") or ())

    @property
    def architecture(self) -> str:
        """The architecture of the engine's machine, or empty where it does not say."""
        return architecture_of(str(self.facts().get("Architecture") or ""))

    def runs(self, architecture: str) -> bool:
        """False only where images of an architecture certainly do not run here: nothing emulates its processor.

        Args:
            architecture: The architecture of an image.
        """
        if runs_on(architecture, self.architecture):
            return True
        # Only the engine's own kernel knows what it emulates: that of a virtual machine is another one than ours.
        ours = self.address.local and self.facts().get("KernelVersion") == platform.release()
        return not ours or may_be_emulated(architecture)

    @property
    def here(self) -> bool:
        """True where containers run on this machine's own kernel, and not on that of another or a virtual one."""
        ours = (os.uname().nodename, platform.release())
        return self.address.local and (self.facts().get("Name"), self.facts().get("KernelVersion")) == ours

    @property
    def pins(self) -> bool:
        """True where a container can be held to some of this machine's CPUs."""
        return self.here and bool(self.facts().get("CPUSet")) and self.facts().get("NCPU") == os.cpu_count()

    @property
    def remapped(self) -> bool:
        """True when users in containers are nobody here (``userns-remap``): they could not write into our folders."""
        return any("name=userns" in str(option) for option in self.facts().get("SecurityOptions") or ())

    def now(self) -> float:
        """The time on the engine's clock, in seconds since the epoch, by the difference known so far; no call."""
        return time.time() + self._offset

    def clock(self) -> float:
        """The time on the engine's clock, in seconds since the epoch; its difference from ours is asked for once."""
        if not self.address.local:
            self.facts()
        return self.now()

    def close(self) -> None:
        """Close all connections; containers are not touched."""
        with self._lock:
            idle, self._idle = self._idle, []
        for client in idle:
            client.close()
        if self.link is not None:
            self.link.close()


def _package(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise _no_package() from None


def _no_package() -> MissingProgramError:
    return MissingProgramError("the Python package docker is not installed", hint=install_command("docker"))


def find_package() -> None:
    """Check that the Python package ``docker`` is installed.

    Raises:
        MissingProgramError: It is not.
    """
    if not plugins.installed("docker"):
        raise _no_package()


def find_engine() -> None:
    """Check that the engine that is used without machines listens, if it is on this machine.

    Raises:
        MissingProgramError: It is behind SSH, and there is no ``ssh``.
        DeployError: It does not listen, its socket may not be used, or its address is wrong.
    """
    address = default_address(DockerSettings())
    if address.target is not None:
        find_ssh()
    elif address.local and (trouble := _socket_trouble(address.host.removeprefix("unix://"), seconds=_GLANCE_SECONDS)):
        raise trouble


def _keep_alive(client: Any) -> None:
    """Let a client use one connection for all calls: by itself the package opens one for each address."""
    adapter = client.get_adapter(client.base_url)
    by_address = getattr(adapter, "get_connection", None)
    if client.base_url.startswith("http+docker:") and by_address is not None:
        adapter.get_connection = lambda url, proxies=None: by_address(client.base_url, proxies)


def _socket_trouble(path: str, words: str = "", seconds: float = 1.0) -> DeployError | None:
    """The typed error for a socket that cannot be used: the package hides the cause, and leaves sockets open.

    Args:
        path: The path of the socket.
        words: An error that was seen already; without it a socket that can be connected gives None.
        seconds: Seconds that connecting may take.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(seconds)
        try:
            probe.connect(path)
        except FileNotFoundError:
            return UnreachableError(f"there is no container engine: {path} does not exist", hint=_START)
        except PermissionError:
            return CredentialsError(
                f"the socket of the container engine, {path}, may not be used by this user",
                hint="join the group docker (which makes you root here), or use rootless Podman or Docker",
            )
        except ConnectionRefusedError:
            return UnreachableError(f"the container engine is not running: nobody listens at {path}", hint=_START)
        except OSError as error:
            return UnreachableError(f"the container engine at {path} does not answer: {error.strerror or error}")
    return UnreachableError(f"the container engine at {path} does not answer: {words}") if words else None
