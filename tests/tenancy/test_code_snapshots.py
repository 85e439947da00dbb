"""A search that was handed over runs the code that was there at that moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.tenancy.world import World
from tests.waiting import eventually

from tradewind.cli.app import run
from tradewind.errors import DeployError, PrerequisiteError
from tradewind.tenancy import code_snapshots
from tradewind.tenancy.code_snapshots import lay_out, run_from, take_snapshot
from tradewind.tenancy.core import CoreSettings, job_spec


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "program"
    (folder / "lib").mkdir(parents=True)
    (folder / "run.py").write_text("print('old')")
    (folder / "lib" / "part.py").write_text("1")
    (folder / "link.py").symlink_to("run.py")
    (folder / "big.dat").write_text("not code")
    (folder / ".tradewindignore").write_text("*.dat\n")
    return folder


def test_it_has_the_folder_as_it_was_without_what_is_ignored_and_equal_ones_are_kept_once(
    program: Path, tmp_path: Path
) -> None:
    first = take_snapshot(program, tmp_path / "home")
    assert take_snapshot(program, tmp_path / "home") == first
    (program / "run.py").write_text("print('new')")
    second = take_snapshot(program, tmp_path / "home")
    tree = lay_out(first.path, "1", tmp_path / "home", workdir=program)
    assert (tree / "run.py").read_text() == "print('old')"
    assert (tree / "link.py").readlink() == Path("run.py")
    assert sorted(path.name for path in tree.iterdir()) == [".tradewindignore", "lib", "link.py", "run.py"]
    assert (lay_out(second.path, "2", tmp_path / "home", workdir=program) / "run.py").read_text() == "print('new')"
    assert len(list(first.path.parent.glob("*.tar"))) == 2
    (tree / "written").write_text("by the program")
    assert (lay_out(first.path, "1", tmp_path / "home", workdir=program) / "written").exists()


def test_a_folder_that_is_too_large_is_refused_by_its_largest_parts(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_snapshots, "LIMIT_BYTES", 20)
    (program / "lib" / "data").write_bytes(b"x" * 100)
    with pytest.raises(DeployError, match=r"too large to be kept with the search .*largest: lib/ .101 B") as caught:
        take_snapshot(program, tmp_path / "home")
    assert ".tradewindignore" in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_cannot_be_read_is_named(program: Path, tmp_path: Path) -> None:
    (program / "secret").write_text("x")
    (program / "secret").chmod(0)
    with pytest.raises(DeployError, match=r"cannot be packed.*secret: Permission denied"):
        take_snapshot(program, tmp_path / "home")


_SLOW = """
import sys, time
from pathlib import Path
from tradewind.deployer import bundle
from tradewind.tenancy.code_snapshots import lay_out, take_snapshot
name = sys.argv[3]
before = getattr(bundle, name)
def slow(*words, **more):
    found = before(*words, **more)
    Path(sys.argv[2], "reached").touch()
    time.sleep(60)
    return found
setattr(bundle, name, slow)
found = take_snapshot(Path(sys.argv[1]), Path(sys.argv[2]))
lay_out(found.path, "1", Path(sys.argv[2]), workdir=Path(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["_add", "_extract"])
def test_half_a_snapshot_of_a_killed_process_is_never_used(program: Path, tmp_path: Path, where: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    process = subprocess.Popen([sys.executable, "-c", _SLOW, str(program), str(home), where])
    eventually((home / "reached").exists)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert list((home / "code").rglob("*.tar")) == [] or where == "_extract"
    assert not (home / "code" / "trees" / "1").exists()
    found = take_snapshot(program, home)
    tree = lay_out(found.path, "1", home, workdir=program)
    assert (tree / "run.py").read_text() == "print('old')"
    assert (tree / "lib" / "part.py").read_text() == "1"
    assert not list((home / "code" / "snapshots").glob(".making-*")) or where == "_extract"


def test_what_is_no_part_of_the_program_stays_where_it_is(program: Path, tmp_path: Path) -> None:
    (program / "mine.py").write_text("")
    tree = lay_out(take_snapshot(program, tmp_path / "home").path, "1", tmp_path / "home", workdir=program)
    inner: dict[str, Any] = {
        "job": {"workdir": str(program), "inputs": ["big.dat#size=8", "run.py", "/else", "http://a/b"]},
        "searcher": {"use": f"{program}/mine.py:Mine", "seconds": 1},
        "interpret": [{"use": "exit_code"}, {"use": f"{tmp_path}/other.py:Other"}],
    }
    found = run_from({"base": str(program), "job": inner}, tree)["job"]
    assert found["job"] == {
        "workdir": str(tree),
        "inputs": [f"{program}/big.dat#size=8", "run.py", "/else", "http://a/b"],
    }
    assert found["searcher"] == {"use": f"{tree}/mine.py:Mine", "seconds": 1}
    assert found["interpret"] == inner["interpret"]


def test_a_cluster_without_the_archive_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    with closing(world.store), closing(world.studies):
        row = world.submit("one")
    code = {"archive": str(tmp_path / "gone.tar"), "digest": "0" * 64}
    settings = CoreSettings(replace(row, options={"code": code}), world.url, tmp_path / "home")
    with pytest.raises(
        PrerequisiteError, match=r"gone.tar of the program's folder is not there, and .* has other files here \(submit"
    ):
        job_spec(settings)


def test_submit_keeps_a_snapshot_that_the_search_runs(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "home"))
    (program / "job.yaml").write_text("name: edited\njob: {command: python3 run.py}\nspace: {n: [1, 2]}\n")
    assert run(["submit", str(program / "job.yaml"), "--json"]) == 0
    submitted = json.loads(capsys.readouterr().out)
    assert len(submitted["code"]) == 64
    (program / "run.py").write_text("print('new')")
    assert run(["submit", str(program / "job.yaml"), "--json", "--live-folder"]) == 0
    assert json.loads(capsys.readouterr().out)["code"] is None
    from tradewind.store.clusters.cluster_store import ClusterStore

    url = f"sqlite:///{tmp_path}/home/tradewind.db"
    with closing(ClusterStore(url)) as store:
        kept, live = sorted(store.jobs(), key=lambda row: row.id)
    spec = job_spec(CoreSettings(kept, url, tmp_path / "home"))
    assert spec.job.workdir.is_relative_to(tmp_path / "home" / "code" / "trees")
    assert (spec.job.workdir / "run.py").read_text() == "print('old')"
    assert job_spec(CoreSettings(live, url, tmp_path / "home")).job.workdir == program
