"""A Podman of the tests' own behind a socket, with the same image as the Docker daemon's."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engines import require
from tests.engines.docker import IMAGE, image_archive
from tests.waiting import eventually

# Podman's own defaults ask for more than some machines give.
_CONFIGURATION = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


@pytest.fixture(scope="session")
def podman() -> Iterator[str]:
    """The address of its socket."""
    require("podman", "runc", package="podman runc")
    require("busybox", package="busybox-static")
    folder = Path(tempfile.mkdtemp(prefix="tw-pd-"))
    configuration = folder / "containers.conf"
    configuration.write_text(_CONFIGURATION)
    environment = {**os.environ, "CONTAINERS_CONF": str(configuration)}
    words = [
        "podman",
        "--root",
        str(folder / "root"),
        "--runroot",
        str(folder / "run"),
        "--tmpdir",
        str(folder / "tmp"),
    ]
    archive = image_archive(folder / "image.tar")
    command = [*words, "import", "-q", str(archive), IMAGE]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=100)
    socket = folder / "p.sock"
    with (folder / "log").open("wb") as log:
        service = subprocess.Popen(
            [*words, "system", "service", "--time=0", f"unix://{socket}"], env=environment, stdout=log, stderr=log
        )
    try:
        eventually(socket.exists, 30, "Podman", folder / "log")
        yield f"unix://{socket}"
    finally:
        service.terminate()
        service.wait(timeout=30)
        subprocess.run([*words, "rm", "-fa", "-t", "0"], env=environment, check=False, capture_output=True, timeout=60)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if line.split()[1].startswith(f"{folder}/"):
                subprocess.run(["umount", "-l", line.split()[1]], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
