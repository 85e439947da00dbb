"""A Docker daemon of the tests' own, with an image that is made from this machine's files in about two seconds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from tests.engines import program, require
from tests.waiting import eventually

IMAGE = "tradewind-test:1"
PYTHON = "/usr/bin/python3"
_SYSTEM_PYTHON = "/usr/bin/python3"
_LEFT_OUT = {"__pycache__", "test", "tests", "idlelib", "lib2to3", "ensurepip", "tkinter", "turtledemo", "distutils"}
_PREFIX = "tw-dk-"
_APPLETS = "sh cat echo env false true head id kill ls mkdir sleep test touch stat printenv wc seq yes dd nc wget chmod"


class DockerEngine:
    """A Docker daemon with its data, socket and containers below one folder.

    Args:
        folder: An empty folder; its path must be short, for the socket.
        options: Further keys of ``daemon.json``.
    """

    def __init__(self, folder: Path, **options: object) -> None:
        self.folder = folder
        self.socket = folder / "d.sock"
        self.host = f"unix://{self.socket}"
        self._socket = folder / "containerd.sock"
        self._daemon: subprocess.Popen[bytes] | None = None
        self._containerd: subprocess.Popen[bytes] | None = None
        # No bridge and no packet filter of its own: nothing is left of it on this machine, and several may run.
        content = {
            "hosts": [self.host],
            "containerd": str(folder / "containerd.sock"),
            "data-root": str(folder / "data"),
            "exec-root": str(folder / "exec"),
            "pidfile": str(folder / "d.pid"),
            "bridge": "none",
            "iptables": False,
            "ip6tables": False,
            "ip-masq": False,
            "ip-forward": False,
            "shutdown-timeout": 2,
            **options,
        }
        (folder / "daemon.json").write_text(json.dumps(content))

    def configure(self, **options: object) -> None:
        """Change keys of ``daemon.json``, and restart the daemon."""
        path = self.folder / "daemon.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **options}))
        self.restart()

    def start(self) -> None:
        """Start the daemon and wait until it answers."""
        (self.folder / "d.pid").unlink(missing_ok=True)
        if self._containerd is None:
            # A process of its own, as on most machines: it outlives the daemon.
            places = ["--root", self.folder / "c", "--state", self.folder / "s", "--address", self._socket]
            self._containerd = self._launch("containerd", *map(str, places))
            eventually(self._socket.exists, 60, "containerd", self.folder / "log")
        self._daemon = self._launch("dockerd", "--config-file", str(self.folder / "daemon.json"))
        eventually(self._answers, 60, "the Docker daemon", self.folder / "log")

    def _launch(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        found = program(name)
        assert found is not None
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [found, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
                start_new_session=True,
            )

    def _answers(self) -> bool:
        assert self._daemon is not None
        if self._daemon.poll() is not None:
            raise RuntimeError(f"the Docker daemon has ended\n{(self.folder / 'log').read_text()[-2000:]}")
        return self.socket.exists() and self.docker("version", check=False).returncode == 0

    def docker(self, *words: str, stdin: bytes = b"", check: bool = True) -> subprocess.CompletedProcess[bytes]:
        """Run the ``docker`` command against this daemon."""
        command = ["/usr/bin/docker", "--host", self.host, *words]
        return subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=check)

    def running(self, run_id: str) -> list[str]:
        """The ids of a run's containers that have processes."""
        words = ["ps", "-q", "--filter", f"label=tradewind.run={run_id}"]
        return self.docker(*words).stdout.decode().split()

    def stop(self, *, kill: bool = False) -> None:
        """Stop the daemon, or kill it; its containers are what the daemon makes of that."""
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            daemon.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            daemon.wait(timeout=60)

    def restart(self, *, kill: bool = True) -> None:
        """Stop or kill the daemon, and start it again."""
        self.stop(kill=kill)
        self.start()

    def load_image(self, archive: Path) -> None:
        """Import the test image."""
        with archive.open("rb") as file:
            subprocess.run(
                ["/usr/bin/docker", "--host", self.host, "import", "-", IMAGE],
                stdin=file,
                stdout=subprocess.DEVNULL,
                timeout=60,
                check=True,
            )

    def remove(self) -> None:
        """End all containers, stop the daemon and delete its data."""
        if self._daemon is not None:
            left = self.docker("ps", "-aq", check=False).stdout.decode().split()
            if left:
                self.docker("rm", "-f", *left, check=False)
            self.docker("network", "prune", "-f", check=False)
        self.stop()
        if self._containerd is not None:
            self._containerd.terminate()
            self._containerd.wait(timeout=60)
        for line in Path("/proc/self/mounts").read_text().splitlines():
            place = line.split()[1]
            if place.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", place], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def image_archive(path: Path) -> Path:
    """Make a root file system of this machine's busybox, Python and their libraries."""
    wanted = {"/bin/busybox"}
    files: dict[str, Path] = {}
    stdlib = Path(sysconfig.get_path("stdlib", vars={"base": "/usr", "installed_base": "/usr"})).name
    library = Path("/usr/lib") / stdlib
    for file in sorted(library.rglob("*")):
        inside = file.relative_to(library).parts
        if not (_LEFT_OUT & set(inside)) and not inside[0].startswith("config-") and file.is_file():
            files[str(file)] = file
    wanted.add(_SYSTEM_PYTHON)
    extensions = [str(file) for file in (library / "lib-dynload").glob("*.so")]
    linked = subprocess.run(
        ["ldd", _SYSTEM_PYTHON, *extensions, "/bin/busybox"], capture_output=True, text=True, check=False
    ).stdout
    for line in linked.splitlines():
        words = line.split()
        wanted.update(word for word in words if word.startswith("/") and not word.endswith(":"))
    files |= {place: Path(place) for place in wanted}
    with tarfile.open(path, "w") as tar:
        for name in ("proc", "sys", "dev", "tmp", "etc", "run"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        for place, source in files.items():
            tar.add(source.resolve(), place.lstrip("/"), recursive=False)
        for applet in _APPLETS.split():
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "/bin/busybox"
            tar.addfile(entry)
    return path


def _remove_stale() -> None:
    """Remove the engines of test sessions that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError, ValueError):
            if not psutil.pid_exists(int((folder / "tests").read_text())):
                left = [each for each in psutil.process_iter() if any(str(folder) in word for word in _words(each))]
                for process in left:
                    with suppress(psutil.Error):
                        process.kill()
                psutil.wait_procs(left, 10)
                DockerEngine(folder).remove()


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@contextmanager
def docker_engine(**options: object) -> Iterator[DockerEngine]:
    """A running daemon with the test image; it is stopped and removed at the end."""
    require("dockerd", "containerd", "runc", package="docker.io")
    require("busybox", package="busybox-static")
    _remove_stale()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    (folder / "tests").write_text(str(os.getpid()))
    engine = DockerEngine(folder, **options)
    try:
        engine.start()
        engine.load_image(image_archive(folder / "image.tar"))
        yield engine
    finally:
        engine.remove()


def _leave(running: AbstractContextManager[DockerEngine]) -> None:
    running.__exit__(None, None, None)


_ENGINE = pytest.StashKey[DockerEngine]()


@pytest.fixture(scope="session")
def docker(pytestconfig: pytest.Config) -> DockerEngine:
    """The Docker daemon of the test session, whichever modules ask for it; tests that stop it must start it again."""
    if _ENGINE not in pytestconfig.stash:
        running = docker_engine()
        pytestconfig.stash[_ENGINE] = running.__enter__()
        pytestconfig.add_cleanup(partial(_leave, running))
    return pytestconfig.stash[_ENGINE]
