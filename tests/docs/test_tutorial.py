"""The tutorial's package installs, its parts are found, its tests pass, and its text shows the very files."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tradewind.errors import SpecError

pytestmark = pytest.mark.slow

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial"
PACKAGE = TUTORIAL / "tradewind-outside"
SHOWN = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```\n", re.DOTALL)


def run(words: list[str], cwd: Path, target: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(target), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, as a reader of the tutorial has it."""
    copy = tmp_path_factory.mktemp("tutorial") / "tradewind-outside"
    shutil.copytree(PACKAGE, copy)
    return copy


@pytest.fixture(scope="module")
def target(package: Path) -> Path:
    """A fresh folder with the package installed in it; nothing is fetched."""
    folder = package.parent / "installed"
    words = ["pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder)]
    done = run([*words, str(package)], package.parent, folder)
    assert done.returncode == 0, f"{done.stderr}\n(the build needs hatchling beside the test tools)"
    return folder


def test_the_text_shows_the_very_files() -> None:
    shown = dict(SHOWN.findall((TUTORIAL / "README.md").read_text()))
    files = {
        str(path.relative_to(PACKAGE)): path.read_text()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shown.keys() == files.keys()
    for name, text in files.items():
        assert shown[name] == text, f"{name} and the tutorial differ; run tests/docs/test_tutorial.py as a program"


@pytest.mark.slow
def test_the_parts_are_found_and_described(package: Path, target: Path) -> None:
    done = run(["tradewind", "plugins", "--json"], package, target)
    assert done.returncode == 0, done.stderr
    rows = {(row["kind"], row["name"]): row for row in json.loads(done.stdout)}
    halton = rows["searcher", "halton"]
    assert halton["package"] == "tradewind-outside"
    assert halton["capabilities"] == ["ContinuousSpaces", "ProposesMany"]
    assert [setting["name"] for setting in halton["settings"]] == ["skip"]
    assert rows["interpreter", "gnu_time"]["summary"].startswith("Reads CPU time")
    assert not any(row["broken"] for row in rows.values())


@pytest.mark.slow
def test_its_tests_pass(package: Path, target: Path) -> None:
    done = run(["pytest", "-q", "-p", "no:cacheprovider", "tests"], package, target)
    assert done.returncode == 0, done.stdout[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 40
    assert "skipped" not in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(
    not (Path("/usr/bin/time").exists() and shutil.which("gzip")), reason="needs GNU time and gzip on this machine"
)
def test_its_job_runs_with_both_parts(package: Path, target: Path) -> None:
    (package / "gzip-me.txt").write_text("\n".join(map(str, range(20_000))))
    done = run(["tradewind", "tune", "job.yaml"], package, target)
    assert done.returncode == 0, done.stderr
    assert "user_seconds" in done.stdout


def test_its_job_is_refused_without_the_package(package: Path, tmp_path: Path) -> None:
    done = run(["tradewind", "tune", "job.yaml"], package, tmp_path / "empty")
    assert done.returncode == SpecError.exit_code
    assert len(done.stderr.strip().splitlines()) == 1
    assert "gnu_time" in done.stderr or "halton" in done.stderr


def test_the_guide_names_only_what_is_there() -> None:
    text = (TUTORIAL.parent / "guides" / "extending.md").read_text()
    named = re.findall(r"`(tradewind(?:\.\w+)+)\.([A-Z]\w+)`", text)
    assert len(named) >= 14
    for module, attribute in named:
        assert hasattr(importlib.import_module(module), attribute), f"{module}.{attribute}"


def write() -> None:
    """Put the files into the text."""
    page = TUTORIAL / "README.md"

    def show(match: re.Match[str]) -> str:
        head, _, _ = match[0].partition("\n```")
        fence = match[0].split("\n")[1]
        return f"{head}\n{fence}\n{(PACKAGE / match[1]).read_text()}```\n"

    page.write_text(SHOWN.sub(show, page.read_text()))


if __name__ == "__main__":
    write()
