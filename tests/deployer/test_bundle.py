"""Archives of working folders, and archives from strangers."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import stat
import subprocess
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tradewind.deployer import bundle
from tradewind.deployer.bundle import ignore_test, pack, unpack
from tradewind.errors import DeployError

_ROOM = 1 << 20


def _tree(top: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return top


def _names(path: Path) -> list[str]:
    with tarfile.open(path) as tar:
        return tar.getnames()


def _packed(tmp_path: Path, files: dict[str, str]) -> list[str]:
    made = pack(_tree(tmp_path / "work", files), tmp_path / "cache", limit_bytes=_ROOM)
    return [name for name in _names(made.path) if (tmp_path / "work" / name).is_file()]


def test_the_same_files_make_the_same_archive(tmp_path: Path) -> None:
    files = {"a.py": "print(1)", "data/x": "1", "data/deep/y": "2"}
    one = _tree(tmp_path / "one", files)
    other = _tree(tmp_path / "other", dict(reversed(files.items())))
    os.utime(other / "a.py", (5, 5))
    (other / "a.py").chmod(0o600)
    first = pack(one, tmp_path / "cache", limit_bytes=_ROOM)
    second = pack(other, tmp_path / "cache2", limit_bytes=_ROOM)
    assert (first.digest, first.size) == (second.digest, second.size)
    content = first.path.read_bytes()
    assert (hashlib.sha256(content).hexdigest(), len(content)) == (first.digest, first.size)
    (other / "a.py").write_text("print(2)")
    assert pack(other, tmp_path / "cache2", limit_bytes=_ROOM).digest != first.digest


def test_an_archive_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "_SETTLED_SECONDS", -60.0)
    work = _tree(tmp_path / "work", {"a": "1", "b/c": "2"})
    first = pack(work, tmp_path / "cache", limit_bytes=_ROOM)
    made: list[object] = []
    whole = bundle._make

    def make(*given: Any) -> bundle.Bundle:
        made.append(given)
        return whole(*given)

    monkeypatch.setattr(bundle, "_make", make)
    assert pack(work, tmp_path / "cache", limit_bytes=_ROOM) == first
    assert not made
    (work / "b/c").write_text("3")
    second = pack(work, tmp_path / "cache", limit_bytes=_ROOM)
    assert (len(made), second.digest == first.digest) == (1, False)
    first.path.unlink()
    (work / "b/c").write_text("2")
    assert pack(work, tmp_path / "cache", limit_bytes=_ROOM).digest == first.digest


def test_what_changed_a_moment_ago_is_read_again(tmp_path: Path) -> None:
    work = _tree(tmp_path / "work", {"a": "1"})
    first = pack(work, tmp_path / "cache", limit_bytes=_ROOM)
    assert not list((tmp_path / "cache").glob("*.made"))
    assert pack(work, tmp_path / "cache", limit_bytes=_ROOM) == first


def test_threads_may_pack_at_the_same_time(tmp_path: Path) -> None:
    work = _tree(tmp_path / "work", {f"f{i}": str(i) for i in range(50)})
    found: list[bundle.Bundle] = []
    threads = [
        threading.Thread(target=lambda: found.append(pack(work, tmp_path / "cache", limit_bytes=_ROOM)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len({made.digest for made in found}) == 1


def test_some_folders_stay_at_home(tmp_path: Path) -> None:
    files = dict.fromkeys(("a.py", ".git/x", "sub/__pycache__/y", ".venv/z", ".tradewind/w", ".env"), "")
    assert _packed(tmp_path, files) == [".env", "a.py"]


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        ("!.venv/", [".venv/z", "a.py", "src/.venv/z", "src/b.py"]),
        ("!/.venv/", [".venv/z", "a.py", "src/b.py"]),
        ("/*\n!/src/", ["src/b.py"]),
        ("/*\n!/src/\n!__pycache__/", ["src/__pycache__/y", "src/b.py"]),
        ("/*\n!src/\n!src/.venv", ["src/.venv/z", "src/b.py"]),
    ],
)
def test_only_a_pattern_of_its_own_brings_a_folder_back(tmp_path: Path, patterns: str, left: list[str]) -> None:
    files = dict.fromkeys(("a.py", ".venv/z", "src/b.py", "src/.venv/z", "src/__pycache__/y", ".git/x"), "")
    kept = _packed(tmp_path, {**files, ".tradewindignore": patterns})
    assert [name for name in kept if name != ".tradewindignore"] == left


def test_the_cache_is_not_packed_into_itself(tmp_path: Path) -> None:
    work = _tree(tmp_path / "work", {"a": "1"})
    first = pack(work, work / "cache", limit_bytes=_ROOM)
    assert pack(work, work / "cache", limit_bytes=_ROOM).digest == first.digest
    assert _names(first.path) == ["a"]


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        ("*.log", ["a.py", "data/big.bin", "src/deep/data/x"]),
        ("data/", ["a.log", "a.py", "src/b.log"]),
        ("/data", ["a.log", "a.py", "src/b.log", "src/deep/data/x"]),
        ("src/*.log", ["a.log", "a.py", "data/big.bin", "src/deep/data/x"]),
        ("*.log\n!/a.log", ["a.log", "a.py", "data/big.bin", "src/deep/data/x"]),
        ("src/**/x\n# a comment\n\n", ["a.log", "a.py", "data/big.bin", "src/b.log"]),
        ("**/data/**", ["a.log", "a.py", "src/b.log"]),
        ("[ab].*", ["data/big.bin", "src/deep/data/x"]),
        ("[!a].log", ["a.log", "a.py", "data/big.bin", "src/deep/data/x"]),
        ("?.py   ", ["a.log", "data/big.bin", "src/b.log", "src/deep/data/x"]),
        ("*\n!a.py", ["a.py"]),
        ("[z-a]\n\\*.log\n!\n/", ["a.log", "a.py", "data/big.bin", "src/b.log", "src/deep/data/x"]),
    ],
)
def test_patterns_are_those_of_gitignore(tmp_path: Path, patterns: str, left: list[str]) -> None:
    files = dict.fromkeys(("a.py", "a.log", "src/b.log", "data/big.bin", "src/deep/data/x"), "")
    kept = _packed(tmp_path, {**files, ".tradewindignore": patterns})
    assert [name for name in kept if name != ".tradewindignore"] == left


@pytest.mark.slow
def test_patterns_agree_with_git(tmp_path: Path) -> None:
    paths = ["a", "b.txt", "x/a", "x/b.txt", "x/y/a", "x/y/b.txt", "x/y/z/c", "d e", "[q]", "ab", "x/ab"]
    lines = [
        "a",
        "/a",
        "x/a",
        "x/",
        "/x/*",
        "**/a",
        "x/**",
        "x/**/c",
        "*.txt",
        "!x/b.txt",
        "a?",
        "[ab]",
        "d\\ e",
        "\\[q]",
    ]
    _tree(tmp_path, dict.fromkeys(paths, ""))
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    for first in lines:
        for second in lines[len(first) % 3 :: 3]:
            (tmp_path / ".gitignore").write_text(f"{first}\n{second}\n")
            words = ["git", "-c", "core.quotePath=false", "ls-files", "-o", "--exclude-from=.gitignore"]
            listed = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
            ignored = ignore_test((first, second))

            def kept(path: str, ignored: Callable[[str], bool] = ignored) -> bool:
                parts = path.split("/")
                above = ("/".join(parts[:i]) + "/" for i in range(1, len(parts)))
                return not ignored(path) and not any(map(ignored, above))

            wanted = sorted(set(listed.splitlines()) - {".gitignore"})
            assert sorted(filter(kept, paths)) == wanted, (first, second)


def test_too_large_names_the_largest(tmp_path: Path) -> None:
    work = _tree(tmp_path / "work", {"big/x": "x" * 3000, "big/y": "x" * 3000, "mid/x": "x" * 2000, "s": "x"})
    with pytest.raises(DeployError, match=r"7.*limit.*largest: big/ \(.*mid/ \(.*s \(") as caught:
        pack(work, tmp_path / "cache", limit_bytes=5000)
    assert not caught.value.retryable
    assert ".tradewindignore" in str(caught.value)
    (work / ".tradewindignore").write_text("big\n")
    pack(work, tmp_path / "cache", limit_bytes=5000)


def test_a_missing_folder_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match=r"does not exist.*job\.workdir"):
        pack(tmp_path / "nowhere", tmp_path / "cache", limit_bytes=_ROOM)


def test_a_full_disk_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle, "_add", full)
    with pytest.raises(DeployError, match="disk is full"):
        pack(_tree(tmp_path / "work", {"a": ""}), tmp_path / "cache", limit_bytes=_ROOM)
    assert not list((tmp_path / "cache").glob(".making-*"))


def test_links_within_stay_links_and_links_out_become_files(tmp_path: Path) -> None:
    _tree(tmp_path, {"outside/f": "far", "outside/d/g": "away"})
    work = _tree(tmp_path / "work", {"a": "1", "sub/b": "2"})
    (work / "in").symlink_to("sub/b")
    (work / "sub/absolute").symlink_to(work / "a")
    (work / "out").symlink_to(tmp_path / "outside/f")
    (work / "tree").symlink_to(tmp_path / "outside")
    (work / "nowhere").symlink_to("missing")
    (work / "loop").symlink_to("loop")
    (tmp_path / "outside/back").symlink_to(tmp_path / "outside")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(work / "socket"))
        made = pack(work, tmp_path / "cache", limit_bytes=_ROOM)
    unpack(made.path, tmp_path / "there", limit_bytes=_ROOM)
    there = tmp_path / "there"
    assert (there / "in").readlink() == Path("sub/b")
    assert (there / "sub/absolute").readlink() == Path("../a")
    assert (there / "out").read_text() == "far"
    assert not (there / "out").is_symlink()
    assert (there / "tree/d/g").read_text() == "away"
    assert not any(os.path.lexists(there / name) for name in ("nowhere", "loop", "socket"))


def test_there_and_back(tmp_path: Path) -> None:
    name = "n" * 200
    work = _tree(tmp_path / "work", {"run.sh": "#!/bin/sh", f"{name}/{name}": "long", "ümläut": "x"})
    (work / "run.sh").chmod(0o700)
    (work / "empty").mkdir()
    (work / os.fsdecode(b"\xff\xfe")).write_text("no UTF-8")
    made = pack(work, tmp_path / "cache", limit_bytes=_ROOM)
    with made.path.open("rb") as stream:
        unpack(stream, tmp_path / "there", limit_bytes=_ROOM)
    there = tmp_path / "there"
    assert (there / name / name).read_text() == "long"
    assert stat.S_IMODE((there / "run.sh").stat().st_mode) == 0o755
    assert (there / "empty").is_dir()
    assert (there / os.fsdecode(b"\xff\xfe")).read_text() == "no UTF-8"
    # What POSIX tar makes of it is the same.
    (tmp_path / "by-tar").mkdir()
    subprocess.run(["tar", "xf", made.path, "-C", tmp_path / "by-tar"], check=True)
    assert (tmp_path / "by-tar" / name / name).read_text() == "long"


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    made = pack(_tree(tmp_path / "work", {"new": "1"}), tmp_path / "cache", limit_bytes=_ROOM)
    _tree(tmp_path / "there", {"old": "1"})
    unpack(made.path, tmp_path / "there", limit_bytes=_ROOM)
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["new"]


_Member = tuple[tarfile.TarInfo, bytes]


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b"x") -> _Member:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    member.size = len(data) if kind == tarfile.REGTYPE else 0
    return member, data


def _archive(*members: _Member) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for member, data in members:
            tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


def _pax(**headers: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("f")
        member.pax_headers = headers
        tar.addfile(member)
    return file.getvalue()


def _with_size(archive: bytes, size: int) -> bytes:
    """The archive whose first header says another size, with a right checksum."""
    header = bytearray(archive[:512])
    header[124:136] = b"%011o\0" % size if size >= 0 else b"\xff" * 12
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + archive[512:]


_PATH_MAX = "/".join(["d" * 247] * 16)

HOSTILE: dict[str, Callable[[], bytes]] = {
    "absolute": lambda: _archive(_member("/etc/owned")),
    "dots": lambda: _archive(_member("../owned")),
    "dots inside": lambda: _archive(_member("a/../../owned")),
    "link out": lambda: _archive(_member("l", tarfile.SYMTYPE, "../..")),
    "absolute link": lambda: _archive(_member("l", tarfile.SYMTYPE, "/etc/passwd")),
    "through a link": lambda: _archive(_member("l", tarfile.SYMTYPE, ".."), _member("l/owned")),
    "through a link within": lambda: _archive(_member("d", tarfile.SYMTYPE, "."), _member("d/owned")),
    "link below a link": lambda: _archive(
        _member("a/b", tarfile.DIRTYPE), _member("d", tarfile.SYMTYPE, "a/b"), _member("d/e", tarfile.SYMTYPE, "../..")
    ),
    "links that lead out together": lambda: _archive(
        _member("a/b/c", tarfile.DIRTYPE),
        _member("x", tarfile.SYMTYPE, "a/b/c"),
        _member("y", tarfile.SYMTYPE, "x/../../../.."),
    ),
    "loop": lambda: _archive(_member("a", tarfile.SYMTYPE, "b"), _member("b", tarfile.SYMTYPE, "a")),
    "hard link out": lambda: _archive(_member("h", tarfile.LNKTYPE, "../../owned")),
    "absolute hard link": lambda: _archive(_member("h", tarfile.LNKTYPE, "/etc/passwd")),
    "hard link to nothing": lambda: _archive(_member("h", tarfile.LNKTYPE, "nothing")),
    "hard link to a link": lambda: _archive(
        _member("l", tarfile.SYMTYPE, "../../x"), _member("h", tarfile.LNKTYPE, "l"), _member("h")
    ),
    "device": lambda: _archive(_member("dev", tarfile.CHRTYPE)),
    "block device": lambda: _archive(_member("dev", tarfile.BLKTYPE)),
    "fifo": lambda: _archive(_member("pipe", tarfile.FIFOTYPE)),
    "file below a file": lambda: _archive(_member("a"), _member("a/b")),
    "folder over a file": lambda: _archive(_member("a/b"), _member("a")),
    "too large": lambda: _archive(_member("big", data=b"x" * 200_000)),
    "too large together": lambda: _archive(*(_member(f"f{i}", data=b"x" * 20_000) for i in range(10))),
    "huge on paper": lambda: _with_size(_archive(_member("f")), 2**32),
    "negative": lambda: _with_size(_archive(_member("f")), -1),
    "too many": lambda: _archive(*(_member(f"f{i}", data=b"") for i in range(101))),
    "too deep": lambda: _archive(_member("/".join("d" * 1000))),
    "too long a path": lambda: _archive(_member(f"{_PATH_MAX}/{_PATH_MAX}", tarfile.DIRTYPE)),
    "too long a name": lambda: _archive(_member("n" * 300)),
    "null in a name": lambda: _pax(path="a\0b"),
    "large header": lambda: _pax(comment="x" * (2 << 20)),
    "PATH_MAX": lambda: _archive(
        _member(_PATH_MAX, tarfile.DIRTYPE),
        _member("deep", tarfile.SYMTYPE, _PATH_MAX),
        _member("deep/l", tarfile.SYMTYPE, "../" * 16 + "owned"),
        _member("deep/l/x"),
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "owned").write_text("mine")
    (tmp_path / "in").mkdir()
    with pytest.raises(DeployError) as caught:
        unpack(io.BytesIO(HOSTILE[name]()), tmp_path / "in" / "there", limit_bytes=100_000, limit_members=100)
    assert not caught.value.retryable or name == "huge on paper", caught.value
    assert (tmp_path / "owned").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "owned"]
    assert list((tmp_path / "in").iterdir()) == []


def _good() -> bytes:
    return _archive(*(_member(f"f{i}", data=bytes(700)) for i in range(5)))


@pytest.mark.parametrize("length", [0, 1, 511, 512, 700, 1024, 1536, 2048, 4096, 7680, 7681])
def test_a_part_of_an_archive_is_none(tmp_path: Path, length: int) -> None:
    """Also one that was cut exactly between two files, where tarfile sees nothing wrong."""
    with pytest.raises(DeployError) as caught:
        unpack(io.BytesIO(_good()[:length]), tmp_path / "there", limit_bytes=_ROOM)
    assert caught.value.retryable
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_archive_is_none(tmp_path: Path) -> None:
    whole = bytearray(_good())
    whole[1536 + 20] ^= 0xFF
    for damaged in (bytes(whole), b"garbage" * 1000, b"\x1f\x8b" + bytes(600)):
        with pytest.raises(DeployError):
            unpack(io.BytesIO(damaged), tmp_path / "there", limit_bytes=_ROOM)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_bytes_at_random_never_get_out(tmp_path: Path) -> None:
    """Whatever byte is changed: an error of ours, or an archive that stays inside."""
    good = _archive(_member("d/f"), _member("l", tarfile.SYMTYPE, "d/f"), _member("h", tarfile.LNKTYPE, "d/f"))
    (tmp_path / "in").mkdir()
    for place in range(0, 2560, 7):
        changed = bytearray(good)
        changed[place] ^= 1 << (place % 8)
        try:
            unpack(io.BytesIO(bytes(changed)), tmp_path / "in" / "there", limit_bytes=_ROOM)
        except DeployError:
            continue
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert {path.name for path in (tmp_path / "in").iterdir()} <= {"there"}


def test_setuid_and_owners_are_dropped_and_hard_links_kept(tmp_path: Path) -> None:
    member, data = _member("program")
    member.mode, member.uid = 0o6777, 12345
    unpack(
        io.BytesIO(_archive((member, data), _member("again", tarfile.LNKTYPE, "program"))),
        tmp_path / "there",
        limit_bytes=_ROOM,
    )
    facts = (tmp_path / "there/program").stat()
    assert stat.S_IMODE(facts.st_mode) & 0o7022 == 0
    assert facts.st_uid == os.geteuid()
    assert (tmp_path / "there/again").read_text() == "x"


def test_what_is_no_good_may_be_left_out(tmp_path: Path) -> None:
    archive = _archive(
        _member("good"),
        _member("out", tarfile.SYMTYPE, "/etc/passwd"),
        _member("up", tarfile.SYMTYPE, "../.."),
        _member("loop", tarfile.SYMTYPE, "loop"),
        _member("in", tarfile.SYMTYPE, "good"),
        _member("pipe", tarfile.FIFOTYPE),
    )
    unpack(io.BytesIO(archive), tmp_path / "there", limit_bytes=_ROOM, lenient=True)
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["good", "in"]
    for name in ("absolute", "dots", "through a link", "too deep"):
        with pytest.raises(DeployError):
            unpack(io.BytesIO(HOSTILE[name]()), tmp_path / "other", limit_bytes=_ROOM, lenient=True)


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    _tree(tmp_path / "work", {"a": "1"})
    words = ["tar", "cf", "-", "-b", "2000", "-C", str(tmp_path / "work"), "."]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as tar:
        assert tar.stdout is not None
        unpack(tar.stdout, tmp_path / "there", limit_bytes=_ROOM)
    assert tar.returncode == 0
    assert (tmp_path / "there/a").read_text() == "1"


def test_old_archives_are_dropped(tmp_path: Path) -> None:
    work = _tree(tmp_path / "work", {"a": "1"})
    old = pack(work, tmp_path / "cache", limit_bytes=_ROOM)
    os.utime(old.path, (5, 5))
    (tmp_path / "cache/.making-dead").write_text("half")
    (work / "a").write_text("2")
    new = pack(work, tmp_path / "cache", limit_bytes=_ROOM)
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {".lock", new.path.name}


def test_what_is_not_kept_is_not_looked_at(tmp_path: Path) -> None:
    archive = _archive(_member("a.csv", data=b"1"), _member("../b", data=bytes(_ROOM)), _member("c", data=bytes(_ROOM)))
    unpack(io.BytesIO(archive), tmp_path / "there", limit_bytes=1, keep=lambda member: member.name == "a.csv")
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["a.csv"]
