"""Control groups: where they may be made, and what they hold."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import eventually

from tradewind.deployer.runner.warden.control_group import (
    PREFIX,
    ControlGroup,
    GroupMaker,
    group_pids,
    remove_group,
)


def _unified(root: Path, groups: dict[str, dict[str, str]]) -> Path:
    """A file system of control groups of version 2, as far as plain files can be one."""
    for path, files in groups.items():
        folder = root / path
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("cgroup.controllers", "cgroup.procs", "cgroup.subtree_control"):
            (folder / name).write_text("")
        for name, text in files.items():
            (folder / name).write_text(text)
    return root


def _made(tmp_path: Path, groups: dict[str, dict[str, str]], own: str) -> Path | None:
    root = _unified(tmp_path / "cgroup", groups)
    (tmp_path / "membership").write_text(f"0::{own}\n")
    group = GroupMaker(str(root), str(tmp_path / "membership")).make("x")
    return None if group is None else Path(group.folder).relative_to(root)


_GIVES = {"cgroup.subtree_control": "cpu memory pids\n"}


@pytest.mark.parametrize(
    ("groups", "own", "place"),
    [
        ({"": {}, "mine": _GIVES}, "/mine", "mine"),
        ({"": {}, "user": _GIVES, "user/shell": {"memory.max": "max\n"}}, "/user/shell", "user"),
        ({"": _GIVES, "user": {}, "user/shell": {"cpu.max": "max 100000\n"}}, "/user/shell", "."),
        ({"": {"cgroup.subtree_control": "cpu pids\n"}, "user": {}}, "/user", None),
        ({"": _GIVES, "slurm": {"memory.max": "1073741824\n"}}, "/slurm", None),
        ({"": _GIVES, "slurm": {"cpuset.cpus": "0-3\n"}, "slurm/step": {}}, "/slurm/step", None),
        ({"": _GIVES, "pod": {"cpu.max": "50000 100000\n"}}, "/pod", None),
        ({"": _GIVES}, "/gone", None),
    ],
)
def test_a_group_is_made_near_and_never_outside_of_one_with_limits(
    tmp_path: Path, groups: dict[str, dict[str, str]], own: str, place: str | None
) -> None:
    expected = None if place is None else Path(place) / f"{PREFIX}x"
    assert _made(tmp_path, groups, own) == expected


def test_without_control_groups_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "membership").write_text("4:memory:/mine\n")
    assert GroupMaker(str(tmp_path / "cgroup"), str(tmp_path / "membership")).make("x") is None
    assert GroupMaker(str(tmp_path / "cgroup"), str(tmp_path / "absent")).make("x") is None


@pytest.mark.parametrize("inner", [True, False])
def test_version_1_is_used_where_there_is_no_other(tmp_path: Path, inner: bool) -> None:
    place = tmp_path / "cgroup" / "memory"
    (place / "mine" if inner else place).mkdir(parents=True)
    (tmp_path / "membership").write_text("9:name=systemd:/\n4:memory:/mine\n0::/\n")
    group = GroupMaker(str(tmp_path / "cgroup"), str(tmp_path / "membership")).make("x")
    assert group is not None
    assert Path(group.folder) == (place / "mine" if inner else place) / f"{PREFIX}x"


def test_limits_are_written_as_the_version_wants_them(tmp_path: Path) -> None:
    new, old = tmp_path / f"{PREFIX}new", tmp_path / f"{PREFIX}old"
    for folder, names in (
        (new, ("memory.max", "memory.swap.max", "memory.oom.group", "cpu.max")),
        (old, ("memory.limit_in_bytes",)),
    ):
        folder.mkdir()
        for name in names:
            (folder / name).write_text("")
    ControlGroup(str(new)).limit(5000, 0.5)
    found = {path.name: path.read_text() for path in new.iterdir()}
    assert found == {"memory.max": "5000", "memory.swap.max": "0", "memory.oom.group": "1", "cpu.max": "50000 100000"}
    ControlGroup(str(old)).limit(5000, 0.5)
    assert {path.name: path.read_text() for path in old.iterdir()} == {"memory.limit_in_bytes": "5000"}
    (new / "cpu.max").write_text("")
    ControlGroup(str(new)).limit(None, 2.0)
    assert (new / "cpu.max").read_text() == "", "whole CPUs are chosen, not shared by time"


def test_what_the_kernel_says_is_read(tmp_path: Path) -> None:
    group = ControlGroup(str(tmp_path))
    assert (group.overran(), group.peak()) == (False, None)
    (tmp_path / "memory.events").write_text("low 0\nmax 3\noom 1\noom_kill 0\n")
    (tmp_path / "memory.peak").write_text("4711\n")
    assert (group.overran(), group.peak()) == (False, 4711)
    (tmp_path / "memory.events").write_text("oom 1\noom_kill 2\n")
    assert group.overran()


def test_groups_of_others_are_left_alone(tmp_path: Path) -> None:
    """What a run's folder says of its group may have been changed by the job."""
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    assert group_pids(str(tmp_path)) == []
    empty = tmp_path / "empty"
    empty.mkdir()
    assert not remove_group(str(empty))
    assert empty.is_dir()
    assert group_pids("") == []


@pytest.fixture(params=["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory"])
def real(request: pytest.FixtureRequest) -> Iterator[ControlGroup]:
    """A real group, of each version that this machine has."""
    place = Path(request.param)
    group = ControlGroup(str(place / f"{PREFIX}test-{os.getpid()}"))
    if not (place / "cgroup.procs").exists():
        pytest.skip(f"{place} holds no control groups")
    try:
        Path(group.folder).mkdir()
    except OSError as error:
        pytest.skip(f"no control group may be made: {error}")
    yield group
    for pid in group_pids(group.folder):
        os.kill(pid, signal.SIGKILL)
    eventually(group.remove)


_ENTER = """
import os, sys
from tradewind.deployer.runner.warden.control_group import ControlGroup
ControlGroup(sys.argv[1]).enter()
os.execvp("sleep", ["sleep", "60"])
"""


@pytest.mark.slow
def test_a_real_group_holds_its_processes(real: ControlGroup) -> None:
    with subprocess.Popen([sys.executable, "-c", _ENTER, real.folder]) as child:
        eventually(lambda: child.pid in group_pids(real.folder))
        assert not real.remove(), "something is in it"
        real.kill()
        if not Path(real.folder, "cgroup.kill").exists():
            child.kill()
        assert child.wait() == -signal.SIGKILL
    eventually(real.remove)
