"""Images and programs for another processor architecture than that of the engine's machine."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.deployer.helpers import FOREIGN, OFFER, deployer_over, drive, foreign_program, row
from tests.deployer.runner.docker.helpers import Make, in_container, runners
from tests.engines.docker import DockerEngine, docker  # noqa: F401  (a fixture)

from tradewind.deployer.runner.architectures import architecture_here, may_be_emulated
from tradewind.deployer.runner.docker import engine as engines
from tradewind.errors import ArchitectureError
from tradewind.problem import Fault, RunState

pytestmark = [
    pytest.mark.xdist_group("docker"),
    pytest.mark.skipif(may_be_emulated(FOREIGN), reason="this machine emulates it"),
]

_IMAGE = "tradewind-foreign:1"
_HERE = replace(OFFER, arch=architecture_here())


@pytest.fixture
def make(tmp_path: Path, docker: DockerEngine) -> Iterator[Make]:  # noqa: F811
    with runners(tmp_path, docker) as found:
        yield found


def _tar(files: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in files.items():
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(content), 0o755
            tar.addfile(about, io.BytesIO(content))
    return archive.getvalue()


@pytest.fixture
def image(tmp_path: Path, docker: DockerEngine) -> Iterator[str]:  # noqa: F811
    """An image whose platform and whose only program are another machine's, as `docker save` writes one."""
    layer = _tar({"bin/tool": foreign_program(tmp_path / "tool").read_bytes()})
    facts = {
        "architecture": {"x86_64": "amd64"}.get(FOREIGN, FOREIGN),
        "os": "linux",
        "config": {"Cmd": ["/bin/tool"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [_IMAGE], "Layers": ["layer.tar"]}]
    documents = {"config.json": facts, "manifest.json": manifest}
    files = {"layer.tar": layer, **{name: json.dumps(each).encode() for name, each in documents.items()}}
    docker.docker("load", stdin=_tar(files))
    yield _IMAGE
    docker.docker("rmi", "-f", _IMAGE)


def test_a_foreign_image_is_refused_before_a_container_is_made(
    make: Make,
    docker: DockerEngine,  # noqa: F811
    image: str,
    tmp_path: Path,
) -> None:
    words = rf"image {image} is for another processor architecture \({FOREIGN}\) .* \({architecture_here()}\)"
    with pytest.raises(ArchitectureError, match=words):
        make().submit(in_container(tmp_path, ("/bin/tool",), image=image), [])
    assert docker.docker("ps", "-aq").stdout == b""


def test_an_image_that_may_be_emulated_is_run_and_its_end_is_the_architectures_fault(
    make: Make, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "may_be_emulated", lambda _: True)
    deployer = deployer_over(tmp_path, runner=make())
    deployer.launch(row(), in_container(tmp_path, ("/bin/tool",), image=image, offer=_HERE))
    last = drive(deployer)[-1]
    assert (last.state, last.fault) == (RunState.FAILED, Fault.ARCHITECTURE)
    assert "is for another processor architecture" in last.reason
    assert architecture_here() in last.reason
    deployer.settle("run-1")


def test_a_foreign_program_in_the_working_folder(make: Make, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    foreign_program(tmp_path / "work/prog")
    deployer = deployer_over(tmp_path, runner=make())
    deployer.launch(row(), in_container(tmp_path, ("sh", "-c", "./prog"), offer=_HERE))
    last = drive(deployer)[-1]
    assert (last.state, last.fault) == (RunState.FAILED, Fault.ARCHITECTURE)
    assert f"another processor architecture ({FOREIGN}) than the machine's ({architecture_here()})" in last.reason
    deployer.settle("run-1")
