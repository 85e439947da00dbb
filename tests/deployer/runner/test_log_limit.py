"""Logs over their limit keep their beginning and their end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tradewind.deployer.runner import log_limit
from tradewind.deployer.runner.log_limit import CappedLogFile, GrowingLog, gap_line, shares, shorten_log, skip_hole
from tradewind.utils.log_copies import GAP_LINES

_LINES = [f"step {i} loss 0.25\n".encode() for i in range(20_000)]
_WHOLE = b"".join(_LINES)


def _checked(path: Path, limit: int, whole: bytes = _WHOLE) -> bytes:
    """The content of a shortened log, whose line between tells exactly what is missing."""
    content = path.read_bytes()
    rest, count = GAP_LINES.subn(b"", content)
    assert count == 1 and len(content) <= limit
    place = GAP_LINES.search(content)
    assert place is not None
    begin, end = content[: place.start()], content[place.end() :]
    assert whole.startswith(begin) and whole.endswith(end)
    assert place[0] == gap_line(len(whole) - len(rest))
    return content


def test_whole_lines_are_kept_of_the_beginning_and_of_the_end(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    path.write_bytes(_WHOLE)
    assert shorten_log(path, 5000)
    content = _checked(path, 5000)
    assert content.startswith(_LINES[0]) and content.endswith(_LINES[-1])
    assert all(line + b"\n" in _LINES for line in GAP_LINES.sub(b"", content).splitlines())
    assert not shorten_log(path, 5000), "it may be done again"
    assert path.read_bytes() == content


@pytest.mark.parametrize("limit", [None, len(_WHOLE)])
def test_what_is_within_the_limit_stays(tmp_path: Path, limit: int | None) -> None:
    path = tmp_path / "stdout"
    path.write_bytes(_WHOLE)
    assert not shorten_log(path, limit)
    assert path.read_bytes() == _WHOLE
    assert not shorten_log(tmp_path / "absent", 10)


@pytest.mark.parametrize("whole", [b"\0" * 9000, b"x" * 9000 + b"\nscore: 1\n", b"50%\r" * 3000, b"a\n" + b"x" * 9000])
def test_lines_without_an_end(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "stdout"
    path.write_bytes(whole)
    assert shorten_log(path, 4000)
    content = path.read_bytes()
    assert len(content) <= 4000 and content[-9:] == whole[-9:]
    assert GAP_LINES.search(content), "the line about the rest is one of its own"


@pytest.mark.parametrize("limit", [0, 1, 100, 101, 150])
def test_a_tiny_limit(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "stdout"
    path.write_bytes(_WHOLE)
    assert shorten_log(path, limit)
    assert path.stat().st_size <= max(limit, 100)
    head, tail = shares(limit)
    assert head >= 0 and tail >= 0 and head + tail <= limit


def test_only_plain_files_are_touched(tmp_path: Path) -> None:
    path, elsewhere, pipe = tmp_path / "stdout", tmp_path / "precious", tmp_path / "pipe"
    elsewhere.write_bytes(_WHOLE)
    path.symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic link"):
        shorten_log(path, 100)
    os.mkfifo(pipe)
    assert not shorten_log(pipe, 100)
    log = GrowingLog(str(path), 1000)
    log.trim()
    assert elsewhere.read_bytes() == _WHOLE


def _append(path: Path, log: GrowingLog, look: Callable[[], None]) -> None:
    for place in range(0, len(_LINES), 100):
        with path.open("ab") as file:
            file.writelines(_LINES[place : place + 100])
        log.trim()
        look()


def test_a_growing_log_gives_the_disk_back_and_keeps_its_offsets(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    log = GrowingLog(str(path), 20_000)
    used: list[int] = []
    _append(path, log, lambda: used.append(path.stat().st_blocks * 512))
    if path.stat().st_size < len(_WHOLE):
        pytest.skip("this file system makes no holes")
    assert max(used) < 60_000
    with path.open("rb") as file:
        assert skip_hole(file, 100) == 100
        place = skip_hole(file, 30_000)
        file.seek(place)
        assert place > 30_000 and _WHOLE.endswith(file.read().lstrip(b"\0"))
        assert skip_hole(file, len(_WHOLE)) == len(_WHOLE)
    assert log.finish()
    _checked(path, 20_000)


def test_a_file_system_without_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_limit, "_punch", lambda *_: False)
    path = tmp_path / "stdout"
    log = GrowingLog(str(path), 20_000)
    sizes: list[int] = []
    _append(path, log, lambda: sizes.append(path.stat().st_size))
    assert max(sizes) < 40_000
    assert log.finish()
    assert _checked(path, 20_000).endswith(_LINES[-1])


def test_a_growing_log_within_its_limit_stays(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    log = GrowingLog(str(path), len(_WHOLE))
    _append(path, log, lambda: None)
    assert not log.finish()
    assert path.read_bytes() == _WHOLE


@pytest.mark.parametrize(("limit", "cut"), [(None, False), (len(_WHOLE), False), (len(_WHOLE) - 1, True), (5000, True)])
def test_a_log_that_comes_in_pieces(tmp_path: Path, limit: int | None, cut: bool) -> None:
    path = tmp_path / "stdout"
    with path.open("wb") as file:
        log = CappedLogFile(file, limit)
        for line in _LINES:
            log.write(line)
        assert log.close() is cut
    if cut:
        assert limit is not None
        assert _checked(path, limit).endswith(_LINES[-1])
    else:
        assert path.read_bytes() == _WHOLE
