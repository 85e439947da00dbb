"""What has to be made before a wrong input can be given: studies, full disks, locks, broken packages."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.deployer.helpers import foreign_program
from tests.waiting import eventually

from tradewind.store.base import this_process


@dataclass(frozen=True, slots=True)
class Setup:
    """What a preparation changes about the command.

    Attributes:
        env: Environment variables.
        more: Words behind the case's own.
        before: Python that a process of its own runs before the command.
        anew: True if Python has to start anew, as it finds packages when it starts.
        during: Called with the running process.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    before: str = ""
    anew: bool = False
    during: Callable[[subprocess.Popen[str]], None] | None = None


@dataclass(frozen=True, slots=True)
class World:
    """Where a case happens.

    Attributes:
        folder: The folder where the command is given.
        home: ``TRADEWIND_HOME``.
        searched: A home with the study ``sort``, of two trials, to copy.
    """

    folder: Path
    home: Path
    searched: Path

    @property
    def database(self) -> Path:
        return self.home / "tradewind.db"


Preparation = Callable[[World], AbstractContextManager[Setup]]
PREPARATIONS: dict[str, Preparation] = {}


def _preparation(make: Callable[[World], Iterator[Setup]]) -> Callable[[World], Iterator[Setup]]:
    PREPARATIONS[make.__name__] = contextmanager(make)
    return make


@_preparation
def study(world: World) -> Iterator[Setup]:
    shutil.copytree(world.searched, world.home)
    yield Setup()


def _records(world: World) -> list[str]:
    from tradewind.cli.common import find_study, open_store

    shutil.copytree(world.searched, world.home)
    with closing(open_store(f"sqlite:///{world.database}")) as store:
        return [json.dumps(one) for one in store.export_records(find_study(store, "sort").id)]


@_preparation
def cut_records(world: World) -> Iterator[Setup]:
    first, second = _records(world)
    (world.folder / "cut.jsonl").write_text(first + "\n" + second[:100])
    yield Setup()


@_preparation
def old_records(world: World) -> Iterator[Setup]:
    document = json.loads(_records(world)[0])
    (world.folder / "old.jsonl").write_text(json.dumps(document | {"record": 1}) + "\n")
    yield Setup()


@_preparation
def newer_records(world: World) -> Iterator[Setup]:
    document = json.loads(_records(world)[0])
    (world.folder / "new.jsonl").write_text(json.dumps(document | {"record": 99}) + "\n")
    yield Setup()


@_preparation
def other_processor(world: World) -> Iterator[Setup]:
    foreign_program(world.folder / "tool")
    yield Setup()


@_preparation
def no_shebang(world: World) -> Iterator[Setup]:
    tool = world.folder / "tool"
    tool.write_bytes(b"\x00\x01\x02 no program")
    tool.chmod(0o755)
    yield Setup()


@_preparation
def dead_endpoint(world: World) -> Iterator[Setup]:
    with socket.socket() as taken:  # bound, but nobody listens: connections are refused
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        yield Setup(more=("--set", f"azure.base_url={address}", "--set", "azure.retries=0"))


@contextmanager
def _mounted(place: Path, options: str) -> Iterator[None]:
    place.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@contextmanager
def _full(place: Path) -> Iterator[None]:
    with _mounted(place, "size=256k"):
        with (place / "filler").open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                pass
        yield


@_preparation
def full_disk(world: World) -> Iterator[Setup]:
    with _full(world.home):
        yield Setup()


@_preparation
def full_folder(world: World) -> Iterator[Setup]:
    shutil.copytree(world.searched, world.home)
    with _full(world.folder / "full"):
        yield Setup()


@_preparation
def file_limit(world: World) -> Iterator[Setup]:
    yield Setup(
        before="import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000)); ",
        # The limit would also stop coverage from writing its file.
        env={"COVERAGE_PROCESS_CONFIG": "", "COVERAGE_PROCESS_START": ""},
    )


@_preparation
def read_only_home(world: World) -> Iterator[Setup]:
    with _mounted(world.home, "ro,size=64k"):
        yield Setup()


@_preparation
def read_only_folder(world: World) -> Iterator[Setup]:
    shutil.copytree(world.searched, world.home)
    with _mounted(world.folder / "ro", "ro,size=64k"):
        yield Setup()


@_preparation
def locked(world: World) -> Iterator[Setup]:
    shutil.copytree(world.searched, world.home)
    with closing(sqlite3.connect(world.database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield Setup(env={"TRADEWIND_STORE": f"sqlite:///{world.database}?busy_timeout=0.1"})


@_preparation
def corrupt(world: World) -> Iterator[Setup]:
    shutil.copytree(world.searched, world.home)
    size = world.database.stat().st_size
    with world.database.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    yield Setup()


@_preparation
def foreign(world: World) -> Iterator[Setup]:
    path = world.folder / "songs.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE songs (name TEXT)")
        other.commit()
    yield Setup(env={"TRADEWIND_STORE": f"sqlite:///{path}"})


@_preparation
def newer_store(world: World) -> Iterator[Setup]:
    from tradewind.store.sql.schema import VERSION_TABLE

    shutil.copytree(world.searched, world.home)
    with closing(sqlite3.connect(world.database)) as other:
        other.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
        other.commit()
    yield Setup()


@_preparation
def busy(world: World) -> Iterator[Setup]:
    from tradewind.cli.common import open_store
    from tradewind.engine.search_builder import find_or_create_study
    from tradewind.problem.job_spec.spec import load_spec

    with closing(open_store(f"sqlite:///{world.database}")) as store:
        row, _ = find_or_create_study(load_spec(world.folder / "job.yaml"), store, fresh=False)
        token = store.hold(row.id, this_process(), 600.0)
        yield Setup()
        store.release(row.id, token)


@_preparation
def no_matplotlib(world: World) -> Iterator[Setup]:
    shutil.copytree(world.searched, world.home)
    yield Setup(before="import sys; sys.modules['matplotlib'] = None; ")


@_preparation
def no_polars(world: World) -> Iterator[Setup]:
    shutil.copytree(world.searched, world.home)
    yield Setup(before="import sys; sys.modules['polars'] = None; ")


def _package(world: World, entry: str) -> Setup:
    """A distribution beside the job that announces a searcher."""
    info = world.folder / "packages" / "extra-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tradewind.searchers]\n{entry}\n")
    (info.parent / "extra.py").write_text("raise RuntimeError('no licence\\nfor this machine')\n")
    return Setup(env={"PYTHONPATH": str(info.parent), "PYTHONDONTWRITEBYTECODE": "1"}, anew=True)


@_preparation
def broken_plugin(world: World) -> Iterator[Setup]:
    yield _package(world, "broken = extra:Broken")


@_preparation
def twice_plugin(world: World) -> Iterator[Setup]:
    yield _package(world, "gp = extra:Gp")


@_preparation
def interrupt(world: World) -> Iterator[Setup]:
    def press(process: subprocess.Popen[str]) -> None:
        eventually(lambda: any(world.home.rglob("stdout")) or process.poll() is not None)
        os.kill(process.pid, signal.SIGINT)

    yield Setup(during=press)
