"""Servers that files come from and go to: WebDAV, SFTP, and an object store that speaks Amazon's language."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.engines import require
from tests.engines.ssh import Sshd, free_port
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
USER, PASSWORD = "ada", "correct horse"

_WEBDAV = """
import sys
from cheroot import wsgi
from wsgidav.wsgidav_app import WsgiDAVApp
port, folder, user, password = sys.argv[1:]
app = WsgiDAVApp({
    "provider_mapping": {"/": folder},
    "simple_dc": {"user_mapping": {"*": {user: {"password": password}}}},
    "http_authenticator": {"accept_basic": True, "accept_digest": False, "default_to_digest": False},
    "verbose": 1,
})
wsgi.Server(("127.0.0.1", int(port)), app).start()
"""


@dataclass
class Server:
    """A server of files.

    Attributes:
        address: The address of a folder there.
        access: What ``deploy.places`` must say for it.
        folder: The same folder on this machine, where it has one.
        environ: Variables that must be set for it.
    """

    address: str
    access: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def places(self) -> dict[str, dict[str, str]]:
        return {self.address: self.access} if self.access else {}


class Process:
    """A server that is a process of its own.

    Args:
        argv: Its command.
        port: Where it listens.
        log: Where it writes.
        environ: Further environment variables.
    """

    def __init__(self, argv: Sequence[str], port: int, log: Path, **environ: str) -> None:
        self.port = port
        self._argv, self._log, self._environ = argv, log, environ
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self._log.open("ab") as log:
            environ = {**os.environ, **self._environ}
            self._process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ)
        eventually(self._answers, 60, self._argv[0], self._log)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=5):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            return True
        except OSError:
            return False

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _running(process: Process) -> Iterator[Process]:
    process.start()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture(scope="session")
def webdav(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Process]]:
    """A WebDAV server with a login, and its process."""
    pytest.importorskip("wsgidav", reason="!!! ENGINE MISSING: pip install wsgidav cheroot")
    base = tmp_path_factory.mktemp("webdav")
    folder = base / "files"
    folder.mkdir()
    port = free_port()
    argv = [sys.executable, "-c", _WEBDAV, str(port), str(folder), USER, PASSWORD]
    for process in _running(Process(argv, port, base / "log")):
        access = {"user": USER, "password": "env:WEBDAV_PASSWORD"}
        yield Server(f"webdav://127.0.0.1:{port}", access, folder, {"WEBDAV_PASSWORD": PASSWORD}), process


@pytest.fixture(scope="session")
def sftp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Sshd]]:
    """An SFTP server with a key."""
    require("sshd", "sftp", "ssh-keygen", package="openssh-server openssh-client", root=False)
    base = tmp_path_factory.mktemp("sftp")
    folder = base / "files"
    folder.mkdir()
    daemon = Sshd(base)
    daemon.start()
    access = {key: str(daemon.facts[key]) for key in ("identity", "known_hosts")}
    try:
        yield Server(f"sftp://127.0.0.1:{daemon.port}{folder}", access, folder), daemon
    finally:
        daemon.stop()


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Process]]:
    """A bucket of an object store that speaks Amazon's language."""
    inside = ROOT / ".venv-terraform" / "bin" / "moto_server"
    program = str(inside) if inside.exists() else shutil.which("moto_server")
    if program is None:
        message = "!!! ENGINE MISSING: there is no moto_server: tools/terraform_engine.sh makes one"
        pytest.skip(message)
    base = tmp_path_factory.mktemp("objects")
    port = free_port()
    for process in _running(Process([program, "-H", "127.0.0.1", "-p", str(port)], port, base / "log")):
        endpoint = f"http://127.0.0.1:{port}"
        # moto asks nobody for signatures.
        make = urllib.request.Request(f"{endpoint}/bucket", method="PUT")
        urllib.request.urlopen(make, timeout=10).close()
        access = {"user": "key", "password": "env:OBJECTS_SECRET", "endpoint": endpoint}
        yield Server("s3://bucket/some/folder", access, None, {"OBJECTS_SECRET": "secret"}), process
