"""What the source archive and the wheel contain."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[1]


def ours() -> set[str]:
    """The files of the repository that are there; others may be at work in it."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no repository: git tells which files are ours")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).is_file()}


@pytest.mark.slow
def test_the_source_archive_has_all_files_of_the_repository() -> None:
    packed = {file.distribution_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    assert not ours() - packed - {"pyproject.toml"}  # the builder adds that one by itself


def test_the_wheel_has_all_files_of_the_package() -> None:
    packed = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert not {name.removeprefix("src/") for name in ours() if name.startswith("src/")} - packed
