"""What comes out of a container whose engine does not see this machine."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import request_for

from tradewind.deployer.runner.docker.file_transfer import fetch
from tradewind.errors import DeployError

pytest.importorskip("docker")

HARD = "hard:"
MOST = 5
OUTPUTS, WORK = "/tradewind/run/outputs", "/tradewind/work"


class Container:
    """A ``docker.APIClient`` of a container that has ended, with some places in it."""

    def __init__(self, places: Mapping[str, bytes]) -> None:
        self.places = places
        self.asked: list[str] = []

    def get_archive(self, container: str, path: str, chunk_size: int) -> tuple[Iterator[bytes], dict[str, Any]]:
        import requests
        from docker.errors import APIError

        self.asked.append(path)
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
            if what is not None and what.startswith(HARD):
                member.type = tarfile.LNKTYPE
            member.linkname = (what or "").removeprefix(HARD)
            tar.addfile(member)
    return buffer.getvalue()


def brought(base: Path, places: Mapping[str, bytes], *, times: int = 1, limit: int = 1 << 20, **given: Any) -> set[str]:
    """The outputs of a run after its files were fetched."""
    base.mkdir(exist_ok=True)
    request = request_for(base, ("true",), **given)
    (request.folder / "outputs").mkdir(parents=True, exist_ok=True)
    container = Container(places)
    for _ in range(times):
        fetch(container, "c", request, limit)
    assert len(container.asked) <= MOST * times, "it is read again and again"
    outputs = request.folder / "outputs"
    return {str(path.relative_to(outputs)) for path in outputs.rglob("*") if path.is_symlink() or path.is_file()}


def test_outputs_with_a_link_are_brought_twice(tmp_path: Path) -> None:
    """A controller that was killed while it brought them has left the first of them here."""
    places = {OUTPUTS: packed("outputs", {"ckpt-3": b"x", "latest": "ckpt-3"})}
    assert brought(tmp_path, places, times=2) == {"ckpt-3", "latest"}
    assert (tmp_path / "runs" / "run-1" / "outputs" / "latest").readlink() == Path("ckpt-3")


@pytest.mark.parametrize("odd", ["/tradewind/run/outputs/ckpt-3", "/etc/passwd", "../../x", None])
def test_links_out_of_the_outputs_and_pipes_are_left_out(odd: str | None, tmp_path: Path) -> None:
    """Programs make them; the run went well all the same."""
    assert brought(tmp_path, {OUTPUTS: packed("outputs", {"ckpt-3": b"x", "odd": odd})}) == {"ckpt-3"}


def test_metrics_that_are_a_pipe_are_left_out(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo("metrics.jsonl")
        member.type = tarfile.FIFOTYPE
        tar.addfile(member)
    assert brought(tmp_path, {"/tradewind/run/metrics.jsonl": buffer.getvalue()}) == set()


BIG = b"x" * 10_000
VENV: dict[str, str | bytes | None] = {
    "venv/python": "/usr/bin/python3",
    "venv/" + "deep/" * 120 + "x.py": b"",
    "data/big.bin": BIG,
    "socket": None,
}


@pytest.mark.parametrize(
    ("pattern", "content", "wanted"),
    [
        ("*.csv", {"r.csv": b"1"}, {"r.csv"}),
        ("**/*.csv", {"r.csv": b"1", "out/a/s.csv": b"2", "out/t.txt": BIG}, {"r.csv", "out/a/s.csv"}),
        ("run-*", {"run-1/a": b"1", "run-2/b/c": b"2"}, {"run-1/a", "run-2/b/c"}),
        ("run-*/a", {"run-1/a": b"1", "run-1/b": BIG, "x/run-1/a": BIG}, {"run-1/a"}),
        ("o*/**", {"out/a/b": b"1", "out/c": b"2"}, {"out/a/b", "out/c"}),
        ("[ab].txt", {"a.txt": b"1", "c.txt": BIG}, {"a.txt"}),
        # What a link leads to is needed, before it or after it, and through other links.
        ("best*", {"best.pt": "ckpt/last.pt", "ckpt/3.pt": b"3", "ckpt/last.pt": "3.pt"}, {"best.pt"}),
        ("best*", {"a/3.pt": b"3", "best.pt": "a/3.pt", "best.hard": "hard:work/a/3.pt"}, {"best.pt", "best.hard"}),
        ("now*/x", {"now": "runs/[3]", "runs/[3]/x": b"3", "runs/[3]/big": BIG, "runs/3/x": BIG}, {"runs/[3]/x"}),
        ("best*", {"best": "nowhere", "best.out": "/etc/passwd", "best.pt": b"1"}, {"best.pt"}),
    ],
)
def test_only_what_a_pattern_needs_counts(
    pattern: str, content: dict[str, str | bytes | None], wanted: set[str], tmp_path: Path
) -> None:
    places = {WORK: packed("work", {**content, **VENV})}
    assert brought(tmp_path, places, outputs=(pattern,), limit=5_000) == wanted


def test_what_a_pattern_matches_counts(tmp_path: Path) -> None:
    places = {WORK: packed("work", {"a.bin": BIG, "b.bin": BIG})}
    with pytest.raises(DeployError, match="too large"):
        brought(tmp_path, places, outputs=("*.bin",), limit=15_000)


def test_patterns_below_each_other_are_read_once(tmp_path: Path) -> None:
    places = {WORK: packed("work", {"r.csv": b"1", "out/a": b"2", "out/b": b"3", "other": b""})}
    assert brought(tmp_path, places, outputs=("*.csv", "out/a", "missing")) == {"r.csv", "out/a"}
    places = {f"{WORK}/out": packed("out", {"a": b"2", "b": BIG, "c/d": b"3"})}
    assert brought(tmp_path / "2", places, outputs=("out/a*", "out/c"), limit=100) == {"out/a", "out/c/d"}
