"""What is brought into a run's folder can be brought again: after a kill in the middle, or when a run is stopped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.deployer.helpers import request_for
from tests.deployer.runner.slurm.helpers import slurm_runner

from tradewind.deployer.runner.run_files import merge_folder
from tradewind.problem import Handle


def left(folder: Path) -> Path:
    """What a job has left: files, a folder, and links as programs make them."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "3").write_text("weights")
    (folder / "checkpoints" / "latest").symlink_to("3")
    (folder / "newest").symlink_to("checkpoints")
    (folder / "nowhere").symlink_to("/no/such/place")
    (folder / "x.csv").write_text("1")
    return folder


def held(folder: Path) -> dict[str, str]:
    """What is in a folder, links as what they say."""
    paths = {str(path.relative_to(folder)): path for path in folder.rglob("*")}
    return {
        name: f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        for name, path in paths.items()
        if path.is_symlink() or path.is_file()
    }


ALL = {
    "checkpoints/3": "weights",
    "checkpoints/latest": "-> 3",
    "newest": "-> checkpoints",
    "nowhere": "-> /no/such/place",
    "x.csv": "1",
}


@pytest.mark.parametrize("move", [False, True])
def test_a_folder_is_brought_twice(move: bool, tmp_path: Path) -> None:
    target = tmp_path / "target"
    for turn in range(2):
        merge_folder(left(tmp_path / f"source-{turn}"), target, move=move)
        assert held(target) == ALL


@pytest.mark.parametrize("move", [False, True])
def test_what_was_there_before_is_replaced_and_nothing_written_through_a_link(move: bool, tmp_path: Path) -> None:
    elsewhere, target = tmp_path / "elsewhere", tmp_path / "target"
    elsewhere.mkdir()
    (elsewhere / "x.csv").write_text("mine")
    target.mkdir()
    (target / "x.csv").symlink_to(elsewhere / "x.csv")
    (target / "checkpoints").symlink_to(elsewhere)
    (target / "newest").mkdir()
    (target / "newest" / "old").write_text("old")
    (target / "other").write_text("kept")
    merge_folder(left(tmp_path / "source"), target, move=move)
    assert held(target) == {**ALL, "other": "kept"}
    assert held(elsewhere) == {"x.csv": "mine"}


def test_a_link_in_the_place_of_the_folder_itself(tmp_path: Path) -> None:
    elsewhere, target = tmp_path / "elsewhere", tmp_path / "target"
    elsewhere.mkdir()
    target.symlink_to(elsewhere)
    merge_folder(left(tmp_path / "source"), target)
    assert (held(target), held(elsewhere)) == (ALL, {})


def test_pipes_are_not_read(tmp_path: Path) -> None:
    source = left(tmp_path / "source")
    os.mkfifo(source / "pipe")
    merge_folder(source, tmp_path / "target")
    assert held(tmp_path / "target") == ALL
    assert not (tmp_path / "target" / "pipe").exists()


def test_slurm_brings_a_run_twice(tmp_path: Path) -> None:
    """A controller that was killed while it brought them has left the first of them here."""
    runner = slurm_runner(tmp_path, folder=tmp_path / "shared")
    request = request_for(tmp_path, ("true",))
    far = tmp_path / "shared" / "runs" / "run-1"
    left(far / "outputs")
    (far / "stdout").write_text("hello")
    handle = Handle("run-1", "slurm", {"owner": request.owner, "folder": str(far), "batch": "run-1", "index": 0})
    for _ in range(2):
        runner.collect(handle, request)
        assert held(request.folder / "outputs") == ALL
        assert (request.folder / "stdout").read_text() == "hello"
