"""Files that appear whole, or not at all."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tradewind.utils.atomic_files import atomic_path, atomic_user_path, write_atomically

THREADS, ROUNDS = 6, 60


@pytest.fixture
def _hasty() -> Iterator[None]:
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(params=[0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("data", "found"), [("Grüße\n", "Grüße\n".encode()), (b"\x00\xff", b"\x00\xff"), ("", b"")])
def test_what_was_there_is_replaced(tmp_path: Path, data: str | bytes, found: bytes) -> None:
    path = tmp_path / "file"
    for _ in range(2):
        write_atomically(path, data)
        assert path.read_bytes() == found
        path.write_text("older and longer than what comes")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
@pytest.mark.usefixtures("_hasty")
def test_threads_write_the_same_file_at_the_same_moment(tmp_path: Path) -> None:
    path = tmp_path / "file"
    together = Barrier(THREADS)

    def write(thread: int) -> None:
        for turn in range(ROUNDS):
            together.wait(10)
            write_atomically(path, f"{turn} {thread} " * 50)
            words = path.read_text().split()
            assert words == [str(turn), words[1]] * 50

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(write, range(THREADS)))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", [OSError, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("before", [None, "old"])
def test_nothing_is_left_of_what_went_wrong(tmp_path: Path, kind: type[BaseException], before: str | None) -> None:
    path = tmp_path / "file"
    if before:
        path.write_text(before)
    with pytest.raises(kind), atomic_path(path) as part:
        part.write_text("half of")
        raise kind
    assert [each.read_text() for each in tmp_path.iterdir()] == ([before] if before else [])


def test_a_full_disk_is_the_error_that_is_seen(tmp_path: Path) -> None:
    """Also where the file is gone already that would be removed."""
    with pytest.raises(OSError, match="full") as caught, atomic_path(tmp_path / "file") as part:
        part.unlink()
        raise OSError(errno.ENOSPC, "full")
    assert caught.value.errno == errno.ENOSPC


def test_errors_name_the_file_that_was_wanted(tmp_path: Path) -> None:
    missing = tmp_path / "none" / "file"
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(missing, "x")
    assert caught.value.filename == str(missing)

    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(IsADirectoryError) as refused:
        write_atomically(folder, "x")
    assert refused.value.filename == str(folder)

    with pytest.raises(FileNotFoundError) as other, atomic_path(tmp_path / "file"):
        (tmp_path / "other").read_bytes()
    assert str(other.value.filename) == str(tmp_path / "other")
    assert list(tmp_path.iterdir()) == [folder]


def test_permissions_are_those_of_the_umask_or_as_given(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "file"
    write_atomically(path, "x")
    assert mode_of(path) == 0o666 & ~umask
    for mode in (0o600, 0o644, 0o755):
        write_atomically(path, "x", mode=mode)
        assert mode_of(path) == mode


def test_a_private_file_is_private_before_anything_is_in_it(tmp_path: Path, umask: int) -> None:
    with atomic_path(tmp_path / "file", mode=0o600) as part:
        assert (mode_of(part), part.stat().st_size) == (0o600, 0)
        assert part.parent == tmp_path


def test_a_file_may_be_put_in_the_place_of_the_one_aside(tmp_path: Path) -> None:
    """Programs that are told where to write may write aside themselves."""
    with atomic_path(tmp_path / "file") as part:
        (tmp_path / "theirs").write_text("whole")
        (tmp_path / "theirs").replace(part)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("file", "whole")]


@pytest.mark.parametrize("durable", [False, True])
def test_only_what_shall_outlast_a_power_cut_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    path = tmp_path / "file"
    seen: list[tuple[bool, str]] = []

    def fsync(handle: int) -> None:
        place = Path(f"/proc/self/fd/{handle}").readlink()
        seen.append((place.is_dir(), path.read_text()))

    path.write_text("old")
    monkeypatch.setattr(os, "fsync", fsync)
    write_atomically(path, "new", durable=durable)

    assert seen == ([(False, "old"), (True, "new")] if durable else [])


def test_long_names_have_room_for_what_is_added(tmp_path: Path) -> None:
    path = tmp_path / ("\N{GRINNING FACE}" * 63)
    write_atomically(path, "x")
    assert list(tmp_path.iterdir()) == [path]


def test_a_named_place_stays_what_it_is(tmp_path: Path) -> None:
    """A link is followed; a pipe is written, and neither is replaced by a file."""
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_text("old")
    link.symlink_to("target")
    with atomic_user_path(link) as part:
        assert part.parent == tmp_path and part != target
        part.write_text("new")
    assert link.is_symlink() and target.read_text() == "new"
    dangling = tmp_path / "dangling"
    dangling.symlink_to("made")
    with atomic_user_path(dangling) as part:
        part.write_text("made")
    assert dangling.is_symlink() and (tmp_path / "made").read_text() == "made"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool, atomic_user_path(pipe) as part:
        read = pool.submit(pipe.read_text)
        part.write_text("through")
        assert read.result(10) == "through"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "link", "made", "pipe", "target"]
