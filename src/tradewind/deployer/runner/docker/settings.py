"""The settings of the docker runner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from tradewind import plugins
from tradewind.deployer.runner.docker.names import MOST_GRACE
from tradewind.deployer.ssh_target import SshSettings, parse_host


@dataclass(frozen=True, slots=True)
class EngineHost:
    """The parts of an engine's address.

    Attributes:
        scheme: ``unix``, ``ssh`` or ``tcp``.
        place: The path of the socket, empty for the usual one behind SSH; or ``host:port`` of ``tcp``.
        login: The host behind SSH, as `parse_host` reads it; empty for the others.
    """

    scheme: str
    place: str
    login: str = ""

    @classmethod
    def parse(cls, text: str) -> EngineHost:
        """Read ``unix:///path``, ``ssh://user@host:port`` or ``tcp://host:port``.

        Raises:
            ValueError: It is none of them.
        """
        scheme, _, rest = text.partition("://")
        login, slash, path = rest.partition("/")
        match scheme.lower():
            case "ssh":
                parse_host(f"ssh://{login}")
                return cls("ssh", f"/{path}" if path else "", f"ssh://{login}")
            case "unix" if slash and path and not login:
                return cls("unix", f"/{path}")
            case "tcp" | "https" if _is_network_location(login):
                return cls("tcp", login)
        shown = "" if "@" in text else f" {text!r}"  # it may have a password
        raise ValueError(
            f"the engine's address{shown} is not understood: write unix:///path, ssh://user@host:port, or "
            "tcp://host:port with TLS"
        )


def _is_network_location(text: str) -> bool:
    try:
        parts = urlsplit(f"tcp://{text}")
        return bool(parts.hostname) and "@" not in text and parts.port != 0
    except ValueError:
        return False


def _checked_engine_host(text: str) -> str:
    if text:
        EngineHost.parse(text)
    return text


class DockerSettings(plugins.Settings):
    """Settings of the docker runner."""

    host: Annotated[str, AfterValidator(_checked_engine_host)] = Field(
        "",
        description="Where the engine listens: unix:///path, ssh://user@host:port, or tcp://host:port with TLS; "
        "without it DOCKER_HOST, then the usual sockets of Docker and Podman",
    )
    tls_ca: str = Field("", description="File with the certificate authority of a tcp:// engine")
    tls_cert: str = Field("", description="File with our certificate for a tcp:// engine")
    tls_key: str = Field("", description="File with the key of our certificate")
    remote_socket: str = Field(
        "/var/run/docker.sock", description="Path of the engine's socket on machines that are reached by SSH"
    )
    ssh: SshSettings = Field(SshSettings(), description="How machines are reached by SSH")
    pull: Literal["never", "missing", "always"] = Field("missing", description="When images are pulled")
    pull_seconds: float = Field(1800, gt=0, description="How long pulling an image may take")
    user: str = Field(
        "",
        description="User in the container: caller, image, or UID or UID:GID; "
        "without it the caller where folders are mounted, and the image's own elsewhere",
    )
    files: Literal["auto", "mount", "copy"] = Field(
        "auto",
        description="How the job gets its files: mount this machine's folders, or copy them into the container and "
        "back; auto mounts where the engine is on this machine and its containers' users are this machine's",
    )
    copy_limit: int = Field(
        2 << 30, gt=0, description="The most that is copied into a container, or out of it, in bytes"
    )
    network: str = Field(
        "bridge", description="Network of the container: bridge, none, host, or the name of one that is there"
    )
    publish: Literal["same", "free"] = Field(
        "same", description="Port of 127.0.0.1 that a port of the job gets: the same number, or a free one"
    )
    entrypoint: bool = Field(
        False, description="Give the command to the image's entry point instead of running it in its place"
    )
    init: bool = Field(False, description="Run the job below the engine's init process, which collects orphans")
    pids: int = Field(4096, ge=0, description="Processes and threads of a container at most; 0 means no limit")
    shm_bytes: int = Field(64 << 20, gt=0, description="Size of /dev/shm in bytes")
    grace: float = Field(
        0.5,
        ge=0,
        le=MOST_GRACE,
        description="Seconds between SIGTERM and SIGKILL at the wall time and when a run is cancelled",
    )
    share: bool = Field(
        True,
        description="With this machine's own engine: wait for CPUs and memory that runs of your other searches have "
        "here, and be held to CPUs of its own",
    )
    reaper: bool = Field(
        True, description="Keep a small process that ends runs at their wall time when this one is gone"
    )
