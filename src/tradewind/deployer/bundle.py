"""Packs the files of a job for machines that do not see this one's, and unpacks what comes back.

An archive is a plain tar. The same files make the same bytes, so that it is sent to a machine once, whatever number of
runs need it. What comes back was written by a job, and is treated like anything from a stranger.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import re
import stat
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from pathspec import GitIgnoreSpec

from tradewind.deployer.environment import check_workdir
from tradewind.errors import DeployError
from tradewind.utils.atomic_files import write_atomically
from tradewind.utils.units import format_memory

IGNORE_FILE = ".tradewindignore"
"""The file with the patterns, at the top of the working folder."""

ALWAYS_IGNORED = (".git/", "__pycache__/", ".venv/", ".tradewind/")
"""What is left out without a word; a pattern such as ``!.venv/`` brings it back."""


def read_ignore_patterns(workdir: Path) -> Callable[[str], bool]:
    """The test for what a working folder leaves out: `ALWAYS_IGNORED`, and the lines of its ``.tradewindignore``.

    Raises:
        DeployError: The file with the patterns cannot be read.
    """
    try:
        text = (workdir / IGNORE_FILE).read_text(encoding="utf-8-sig", errors="surrogateescape")
    except FileNotFoundError:
        text = ""
    except OSError as error:
        raise DeployError(f"{workdir / IGNORE_FILE}: {error.strerror}", retryable=False) from error
    return ignore_test(text.split("\n"))


def ignore_test(lines: Iterable[str]) -> Callable[[str], bool]:
    """The test for what lines as ``.gitignore`` has them leave out; a line that is no pattern is skipped, as git does.

    The test takes a path below the folder, that of a folder with a slash at its end. It takes none below a
    folder that is left out.
    """
    spec = GitIgnoreSpec.from_lines(filter(_is_pattern, lines), backend="simple")

    def ignored(path: str) -> bool:
        found = spec.check_file(path)
        above, _, name = path.rstrip("/").rpartition("/")
        if found.include or not path.endswith("/") or f"{name}/" not in ALWAYS_IGNORED:
            return bool(found.include)
        # For pathspec ``!src/`` brings back all below src; here it takes another pattern to bring back a .venv in it.
        inherited = bool(above) and spec.check_file(f"{above}/").index == found.index
        return found.include is None or inherited

    return ignored


def _is_pattern(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line], backend="simple")
    except (ValueError, re.error):
        return False
    return True


MEMBER_LIMIT = 100_000
"""Files and folders of an archive, at most."""

MemberFilter = Callable[[tarfile.TarInfo], bool]
_Ignored = Callable[[str], bool]
_BLOCK = tarfile.BLOCKSIZE
_DEPTH_LIMIT = 100
_HEADER_LIMIT = 1 << 20
_PIECE = 1 << 20
# The time of all members: the same files make the same archive. zip knows no time before 1980.
_TIME = 946_684_800
# A file may change twice within one tick of its file system's clock.
_SETTLED_SECONDS = 2.0
_LASTING = {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EISDIR, errno.EEXIST, errno.ELOOP}
_UNUSED_SECONDS = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Bundle:
    """The files of a working folder in one archive.

    Attributes:
        path: The archive, a tar without compression.
        digest: The SHA-256 of its bytes, in hexadecimal; its name on other machines.
        size: Bytes of the archive.
    """

    path: Path
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A file, folder or link of a working folder.

    Attributes:
        name: Its path below the folder.
        source: Where it is.
        facts: Its facts; those of what a link leads to that leads out of the folder.
        link: The target of a link that stays one, relative to its folder; else empty.
    """

    name: str
    source: Path
    facts: os.stat_result
    link: str = ""


def pack(
    workdir: Path,
    cache: Path,
    *,
    limit_bytes: int,
    purpose: str = "sent to other machines",
    unused_seconds: float = _UNUSED_SECONDS,
) -> Bundle:
    """Make an archive of a working folder, or find the one that was made of the same content.

    Left out are ``.git``, ``__pycache__``, ``.venv``, ``.tradewind``, what the patterns of ``.tradewindignore`` match
    (they are written as in ``.gitignore``), and what is neither a file nor a folder. A symbolic link within the
    folder stays one; of one that leads out of it, what it leads to is packed.

    Args:
        workdir: The folder.
        cache: Where archives are kept; those that nobody used for long are removed.
        limit_bytes: The most that the files may have together.
        purpose: What the folder is too large for, in words.
        unused_seconds: How long an archive is kept that nobody uses.

    Raises:
        DeployError: The folder is not there, cannot be read, or is too large; or the cache cannot be written.
    """
    try:
        root = workdir.resolve(strict=True)
        cache.mkdir(parents=True, exist_ok=True)
        entries = list(folder_entries(root, cache.resolve(), limit_bytes, purpose=purpose))
        with _alone(cache):
            return _find(entries, cache) or _make(entries, cache, unused_seconds)
    except FileNotFoundError as error:
        check_workdir(workdir)
        raise DeployError(f"{error.filename} went away while {workdir} was packed") from error
    except OSError as error:
        raise _cannot(f"the working folder {workdir} cannot be packed", error) from error


def folder_entries(root: Path, cache: Path, limit_bytes: int, *, purpose: str) -> Iterator[FolderEntry]:
    """List all of a working folder that is not ignored, in a fixed order.

    Args:
        root: The folder, resolved.
        cache: A folder that is left out, resolved.
        limit_bytes: The most that its files may have together.
        purpose: What it is too large for, in words.

    Raises:
        DeployError: It is too large.
        OSError: A folder cannot be read.
    """
    ignored = read_ignore_patterns(root)
    sizes: Counter[str] = Counter()
    count = 0
    for entry in _walk(root, "", root, ignored, cache, ()):
        count += 1
        if stat.S_ISREG(entry.facts.st_mode) and not entry.link:
            parts = PurePosixPath(entry.name).parts
            sizes[f"{parts[0]}/" if len(parts) > 1 else parts[0]] += entry.facts.st_size
        yield entry
    total = sum(sizes.values())
    if total > limit_bytes or count > MEMBER_LIMIT:
        largest = ", ".join(f"{name} ({format_memory(size)})" for name, size in sizes.most_common(3))
        what = f"{format_memory(total)}, limit {format_memory(limit_bytes)}"
        if total <= limit_bytes:
            what = f"{count} files, limit {MEMBER_LIMIT}"
        raise DeployError(
            f"the working folder {root} is too large to be {purpose} ({what}); largest: {largest}",
            hint=f"name in {IGNORE_FILE} what the job does not need",
            retryable=False,
        )


def _walk(
    root: Path,
    prefix: str,
    folder: Path,
    ignored: Callable[[str], bool],
    cache: Path,
    above: tuple[tuple[int, int], ...],
) -> Iterator[FolderEntry]:
    with os.scandir(folder) as found:
        listed = sorted(found, key=lambda each: os.fsencode(each.name))
    for each in listed:
        source, name = folder / each.name, prefix + each.name
        facts = each.stat(follow_symlinks=False)
        if stat.S_ISLNK(facts.st_mode):
            inside = link_within(root, source)
            if inside:
                if not ignored(name):
                    yield FolderEntry(name, source, facts, inside)
                continue
            try:
                facts = source.stat()
            except OSError:  # it leads nowhere
                continue
        if stat.S_ISREG(facts.st_mode) and not ignored(name):
            yield FolderEntry(name, source, facts)
        elif stat.S_ISDIR(facts.st_mode) and not ignored(f"{name}/"):
            seen = (facts.st_dev, facts.st_ino)
            # A link out of the folder may lead back to where it is, or to the folder itself.
            if seen in above or len(above) >= _DEPTH_LIMIT or source.resolve() == cache:
                continue
            yield FolderEntry(name, source, facts)
            yield from _walk(root, f"{name}/", source, ignored, cache, (*above, seen))


def link_within(root: Path, link: Path) -> str:
    """The target of a link relative to its folder, or empty when it leads out of ``root`` or nowhere."""
    try:
        real = link.resolve(strict=True)
    except (OSError, RuntimeError):
        return ""
    if not real.is_relative_to(root) or not link.parent.resolve().is_relative_to(root):
        return ""
    return os.path.relpath(real, link.parent.resolve())


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    with (cache / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fingerprint(entries: list[FolderEntry]) -> str:
    """Digest of names, sizes and times, by which a change is seen without reading a file."""
    digest = hashlib.sha256()
    for entry in entries:
        facts = entry.facts
        kept = [facts.st_mode, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino, facts.st_dev]
        if stat.S_ISDIR(facts.st_mode):  # what changes in a folder is seen by its entries
            kept = [facts.st_mode]
        digest.update(json.dumps([entry.name, entry.link, str(entry.source), *kept]).encode())
    return digest.hexdigest()


def _find(entries: list[FolderEntry], cache: Path) -> Bundle | None:
    try:
        digest = (cache / f"{_fingerprint(entries)}.made").read_text(encoding="ascii").strip()
        path = cache / f"{digest}.tar"
        os.utime(path)
        return Bundle(path, digest, path.stat().st_size)
    except FileNotFoundError:
        return None


def _make(entries: list[FolderEntry], cache: Path, unused_seconds: float) -> Bundle:
    began = time.time()
    _drop_unused(cache, unused_seconds)
    fd, name = tempfile.mkstemp(prefix=".making-", dir=cache)
    part = Path(name)
    try:
        with os.fdopen(fd, "wb") as file:
            hashed = _Hashed(file)
            with tarfile.open(fileobj=hashed, mode="w|", format=tarfile.GNU_FORMAT, encoding="utf-8") as tar:
                for entry in entries:
                    _add(tar, entry)
        digest = hashed.digest.hexdigest()
        path = cache / f"{digest}.tar"
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    if all(entry.facts.st_ctime < began - _SETTLED_SECONDS for entry in entries):
        write_atomically(cache / f"{_fingerprint(entries)}.made", digest)
    return Bundle(path, digest, hashed.size)


def _add(tar: tarfile.TarFile, entry: FolderEntry) -> None:
    member = tarfile.TarInfo(entry.name)
    member.mtime = _TIME
    if entry.link:
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, entry.link, 0o777
        tar.addfile(member)
    elif stat.S_ISDIR(entry.facts.st_mode):
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(member)
    else:
        with entry.source.open("rb") as file:
            facts = os.fstat(file.fileno())
            member.size = facts.st_size
            member.mode = 0o755 if facts.st_mode & 0o111 else 0o644
            tar.addfile(member, file)


class _Hashed(io.RawIOBase):
    """Writes to a file, and knows the hash and the size of what it wrote."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        self._file.write(data)
        self.digest.update(data)
        self.size += len(data)
        return len(data)


def _drop_unused(cache: Path, unused_seconds: float) -> None:
    """Remove what nobody used for long, and what a killed process left half-made."""
    before = time.time() - unused_seconds
    for path in cache.iterdir():
        old = path.suffix in (".tar", ".made", ".part") and path.stat().st_mtime < before
        if old or path.name.startswith(".making-"):  # the lock is ours: nobody is at it
            path.unlink(missing_ok=True)


def _cannot(what: str, error: OSError) -> DeployError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DeployError(f"{what}: the disk is full", hint="make room and start again")
    place = f": {error.filename}" if error.filename else ""
    return DeployError(f"{what}{place}: {error.strerror or error}", retryable=error.errno not in _LASTING)


def unpack(
    archive: Path | IO[bytes],
    folder: Path,
    *,
    limit_bytes: int,
    limit_members: int = MEMBER_LIMIT,
    lenient: bool = False,
    keep: MemberFilter | None = None,
) -> None:
    """Unpack a tar that somebody else wrote; nothing outside of the folder is touched, whatever is in it.

    The folder appears when all of it is there, in place of what had its name before. There are only files, folders
    and links in it, and no link leads out of it.

    Args:
        archive: The tar, or a stream of it (a pipe will do), without compression.
        folder: Where it goes; the folder above must be there.
        limit_bytes: The most that its files may have together.
        limit_members: The most files and folders.
        lenient: Leave out links that lead out of the folder, and what is neither file nor folder, instead of refusing
            the whole archive.
        keep: Says what is unpacked of it; the rest counts neither for the limits nor for what is refused.

    Raises:
        DeployError: It is cut short, damaged, too large or hostile, or cannot be written. ``retryable`` is true when
            another attempt may bring it.
    """
    try:
        with tempfile.TemporaryDirectory(
            prefix=f".{folder.name[:100]}.unpacking-", dir=folder.parent, ignore_cleanup_errors=True
        ) as place:
            whole = Path(place) / "whole"
            whole.mkdir()
            with archive.open("rb") if isinstance(archive, Path) else nullcontext(archive) as file:
                _extract(file, whole, limit_bytes, limit_members, lenient, keep or (lambda _: True))
            if folder.is_symlink() or folder.exists():
                folder.rename(Path(place) / "before")
            whole.rename(folder)
    except tarfile.FilterError as error:
        raise _hostile(str(error)) from error
    except (tarfile.TarError, EOFError) as error:
        raise DeployError(f"an archive is damaged or cut short: {error}") from error
    except (ValueError, OverflowError, KeyError, RuntimeError) as error:
        raise _hostile(f"{type(error).__name__}: {error}") from error
    except OSError as error:
        raise _cannot(f"an archive cannot be unpacked into {folder}", error) from error


def _extract(
    stream: IO[bytes], whole: Path, limit_bytes: int, limit_members: int, lenient: bool, keep: MemberFilter
) -> None:
    total = count = 0
    links: dict[str, tarfile.TarInfo] = {}
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member, encoding="utf-8") as tar:
        for member in filter(keep, tar):
            count += 1
            total += max(0, member.size) if member.isreg() else 0
            if total > limit_bytes or count > limit_members:
                raise DeployError(
                    f"an archive is too large: more than {format_memory(limit_bytes)} or {limit_members} files",
                    hint="keep less, or raise the limit",
                    retryable=False,
                )
            _check(member)
            if member.issym():
                # Made when all files are there: nothing is ever written through a link.
                links[str(PurePosixPath(member.name))] = member
            elif member.isreg() or member.isdir() or member.islnk():
                tar.extract(member, whole, filter="data")
            elif not lenient:
                raise _hostile(f"{member.name!r} is neither a file nor a folder")
        _make_links(tar, links, whole, lenient)
    while stream.read(_PIECE):  # the padding, without which the other end of a pipe fails
        pass


def _make_links(tar: tarfile.TarFile, links: dict[str, tarfile.TarInfo], whole: Path, lenient: bool) -> None:
    for name, link in links.items():
        if any(str(above) in links for above in PurePosixPath(name).parents) or os.path.lexists(whole / name):
            raise _hostile(f"{name!r} lies below a link, or is there twice")
        try:
            tar.extract(link, whole, filter="data")
        except tarfile.FilterError:
            if not lenient:
                raise
    for name in links:
        if not _stays(whole / name, whole.resolve()):
            if not lenient:
                raise _hostile(f"the link {name!r} leads out of the archive")
            (whole / name).unlink()


def _stays(link: Path, root: Path) -> bool:
    try:
        return not link.is_symlink() or link.resolve().is_relative_to(root)
    except RuntimeError:  # a loop
        return False


def _check(member: tarfile.TarInfo) -> None:
    parts, link = PurePosixPath(member.name).parts, member.linkname
    if ".." in parts or member.name.startswith("/") or "\0" in member.name:
        raise _hostile(f"the name {member.name!r} leads out of the archive")
    if len(parts) > _DEPTH_LIMIT:
        raise _hostile(f"folders are nested more than {_DEPTH_LIMIT} deep")
    if member.islnk() and (".." in PurePosixPath(link).parts or link.startswith("/")):
        raise _hostile(f"the link {member.name!r} leads out of the archive")
    if member.size < 0:
        raise _hostile(f"{member.name!r} has a size below zero")


class _Member(tarfile.TarInfo):
    """A member that is read strictly: by itself tarfile takes a damaged or missing header for the end."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        if len(buf) < _BLOCK:
            raise DeployError("an archive is cut short")
        if any(buf):
            try:
                return super().frombuf(buf, encoding, errors)
            except tarfile.TarError as error:
                raise DeployError(f"an archive is damaged: {error}") from error
        return super().frombuf(buf, encoding, errors)

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        # Long names and extended headers are read into memory as a whole.
        plain = self.isreg() or self.isdir() or self.issym() or self.islnk()
        if not plain and not 0 <= self.size <= _HEADER_LIMIT:
            raise _hostile(f"a header of {self.size} bytes")
        return super()._proc_member(archive)  # type: ignore[misc]


def _hostile(why: str) -> DeployError:
    return DeployError(
        f"an archive is refused: {why}", hint="look at what the job writes into its outputs", retryable=False
    )
