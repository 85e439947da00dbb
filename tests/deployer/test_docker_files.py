"""What comes out of a container whose engine does not see this machine."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import request_for

from tradewind.deployer.runner.docker_files import fetch

pytest.importorskip("docker")

OUTPUTS, WORK = "/tradewind/run/outputs", "/tradewind/work"


class Container:
    """A ``docker.APIClient`` of a container that has ended, with some places in it."""

    def __init__(self, places: Mapping[str, bytes]) -> None:
        self.places = places

    def get_archive(self, container: str, path: str, chunk_size: int) -> tuple[Iterator[bytes], dict[str, Any]]:
        import requests
        from docker.errors import APIError

        if path not in self.places:
            answer = requests.Response()
            answer.status_code = 404
            raise APIError("no such file", response=answer)
        return iter([self.places[path]]), {}


def packed(root: str, content: Mapping[str, str | bytes | None]) -> bytes:
    """A tar as engines make it: bytes are a file, None is a pipe, words are where a link leads."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        top = tarfile.TarInfo(root)
        top.type, top.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(top)
        for name, what in content.items():
            member = tarfile.TarInfo(f"{root}/{name}")
            if isinstance(what, bytes):
                member.size = len(what)
                tar.addfile(member, io.BytesIO(what))
                continue
            member.type = tarfile.FIFOTYPE if what is None else tarfile.SYMTYPE
            member.linkname = what or ""
            tar.addfile(member)
    return buffer.getvalue()


def brought(base: Path, places: Mapping[str, bytes], *, times: int = 1, limit: int = 1 << 20, **given: Any) -> set[str]:
    """The outputs of a run after its files were fetched."""
    request = request_for(base, ("true",), **given)
    (request.folder / "outputs").mkdir(parents=True, exist_ok=True)
    for _ in range(times):
        fetch(Container(places), "c", request, limit)
    outputs = request.folder / "outputs"
    return {str(path.relative_to(outputs)) for path in outputs.rglob("*")}


def test_outputs_with_a_link_are_brought_twice(tmp_path: Path) -> None:
    """A controller that was killed while it brought them has left the first of them here."""
    places = {OUTPUTS: packed("outputs", {"ckpt-3": b"x", "latest": "ckpt-3"})}
    assert brought(tmp_path, places, times=2) == {"ckpt-3", "latest"}
    assert (tmp_path / "runs" / "run-1" / "outputs" / "latest").readlink() == Path("ckpt-3")
