"""Tells the versions of a program's folder apart by digests, and reads only what changed since the last look."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.deployer.bundle import IGNORE_FILE, FolderEntry, folder_entries, ignore_test, link_within
from tradewind.errors import DeployError
from tradewind.utils.atomic_files import write_atomically
from tradewind.utils.paths import make_private
from tradewind.utils.units import count

_log = logging.getLogger("tradewind.deployer")

MEMBER_LIMIT = 50_000
"""A folder with more files than this is not watched: it is no program's."""

_READ_BYTES, _ALL_BYTES = 8 * 2**20, 512 * 2**20
"""What is read of one file and at one look; files beyond it count as changed when their size or time does."""

_SETTLED_SECONDS = 2.0
"""A file may change twice within one tick of its file system's clock: one so young is read again."""

_LINK = "link "
_DIGITS = 12
_PIECE = 1 << 20
_SHOWN = 3
_SHARE = 10.0
"""Of the time of a search, looking takes one in so many parts at most."""

_DATABASE = b"SQLite format 3\0"
_BESIDE_DATABASE = ("-wal", "-shm", "-journal")
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class _FileVersion:
    """A file as it was at the last look."""

    key: tuple[int, ...]
    digest: str
    settled: bool


class FolderVersions:
    """The versions of a working folder during a study.

    What counts are the files that were there when the study began and are not ignored: what programs write beside them
    is not code. Databases, and what the job keeps as outputs, do not count either.

    Args:
        workdir: The folder.
        record: The file in which the versions of the files are kept for the next process.
        skip: A folder that does not count: that of Tradewind's data.
        outputs: Patterns of files that the job writes, seen from the folder.
    """

    def __init__(self, workdir: Path, record: Path, *, skip: Path, outputs: Sequence[str] = ()) -> None:
        self._workdir, self._record, self._skip = workdir, record, skip
        self._is_output = ignore_test(f"/{pattern}" for pattern in outputs) if outputs else None
        self._files: dict[str, _FileVersion] | None = None
        self._digest, self._changed = "", tuple[str, ...]()
        self._said = self._off = False
        self._next_look, self._left = 0.0, 0
        self.read_files = 0

    def __call__(self, trial: int) -> str:
        """The digest for a trial that begins now; says once when files have changed.

        Args:
            trial: Its number, for the message.
        """
        if not self._off and time.monotonic() >= self._next_look:
            began = time.monotonic()
            try:
                self._look()
            except (DeployError, OSError) as error:
                self._off, self._digest = True, ""
                _log.warning("which code trials run is not recorded: %s", error)
            took = time.monotonic() - began
            self._next_look = began + took * _SHARE
        if self._changed and not self._said:
            self._said = True
            _log.warning("%s", changed_words(self._workdir, self._changed, trial))
        self._changed = ()
        return self._digest

    def _look(self) -> None:
        root, now = self._workdir.resolve(strict=True), time.time()
        self._left = _ALL_BYTES
        if self._files is None:
            before = self._read_record()
            found = self._walked(root, before, now)
        else:
            before = self._files
            found = {name: self._again(root, name, known, now) for name, known in before.items()}
        self._files = found
        self._changed = tuple(name for name in found if name in before and found[name].digest != before[name].digest)
        if self._changed or found.keys() != before.keys() or not self._digest:
            self._digest = _digest_of(found)
            self._write_record()

    def _walked(self, root: Path, known: dict[str, _FileVersion], now: float) -> dict[str, _FileVersion]:
        """The files that count: of those that an earlier process has seen; without any, all that are there."""
        found = {name: _ABSENT for name in known if not os.path.lexists(root / name)}
        entries = folder_entries(root, self._skip.resolve(), sys.maxsize, purpose="watched for changes")
        for seen, entry in enumerate(entries):
            if seen >= MEMBER_LIMIT:
                raise DeployError(
                    f"{self._workdir} has more than {MEMBER_LIMIT:,} files and folders",
                    hint=f"name in {IGNORE_FILE} what the job does not need",
                )
            if self._counts(entry) and (not known or entry.name in known):
                found[entry.name] = self._version(entry, known.get(entry.name), now)
        return found

    def _again(self, root: Path, name: str, known: _FileVersion, now: float) -> _FileVersion:
        """A file that counts, looked at again; only its facts where it is as it was."""
        try:
            facts = os.stat(f"{root}/{name}")  # noqa: PTH116  (ten thousand files: making their paths takes longer)
        except OSError:
            return _ABSENT
        if known.settled and known.key == _key_of(facts) and not known.digest.startswith(_LINK):
            return known
        source = root / name
        link = link_within(root, source) if known.digest.startswith(_LINK) else ""
        return self._version(FolderEntry(name, source, facts, link), known, now)

    def _counts(self, entry: FolderEntry) -> bool:
        if (stat.S_ISDIR(entry.facts.st_mode) and not entry.link) or entry.name.endswith(_BESIDE_DATABASE):
            return False
        return self._is_output is None or not self._is_output(entry.name)

    def _version(self, entry: FolderEntry, known: _FileVersion | None, now: float) -> _FileVersion:
        facts = entry.facts
        key = _key_of(facts)
        if known is not None and known.key == key and known.settled and not entry.link:
            return known
        settled = max(facts.st_mtime, facts.st_ctime) < now - _SETTLED_SECONDS
        if entry.link:
            return _FileVersion(key, _LINK + entry.link, settled)
        self._left -= facts.st_size
        if facts.st_size > _READ_BYTES or self._left < 0:
            return _FileVersion(key, f"{facts.st_size} {facts.st_mtime_ns}", settled)
        self.read_files += 1
        return _FileVersion(key, f"{facts.st_mode & 0o111:o} {_content_digest(entry.source)}", settled)

    def _read_record(self) -> dict[str, _FileVersion]:
        """Files as an earlier process of the study has seen them; none where study or folder is a new one."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            document: dict[str, Any] = json.loads(self._record.read_text(encoding="utf-8"))
            if document["format"] == _FORMAT and document["workdir"] == str(self._workdir):
                self._digest = document["digest"]
                return {
                    name: _FileVersion(tuple(key), digest, settled)
                    for name, (key, digest, settled) in document["files"].items()
                }
        return {}

    def _write_record(self) -> None:
        files = {name: [each.key, each.digest, each.settled] for name, each in (self._files or {}).items()}
        document = {"format": _FORMAT, "workdir": str(self._workdir), "digest": self._digest, "files": files}
        make_private(self._record.parent)
        write_atomically(self._record, json.dumps(document, ensure_ascii=True))


_ABSENT = _FileVersion((), "absent", settled=False)


def _key_of(facts: os.stat_result) -> tuple[int, ...]:
    return (facts.st_size, facts.st_mtime_ns, facts.st_ino, facts.st_mode & 0o111)


def _content_digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            piece = file.read(_PIECE)
            if piece.startswith(_DATABASE):
                return "database"
            while piece:
                digest.update(piece)
                piece = file.read(_PIECE)
    except FileNotFoundError:
        return "absent"
    except OSError:  # whether the job needs it is found out by the job
        return "unreadable"
    return digest.hexdigest()


def _digest_of(files: dict[str, _FileVersion]) -> str:
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(json.dumps([name, files[name].digest]).encode())
    return digest.hexdigest()[:_DIGITS]


def changed_words(workdir: Path, changed: Sequence[str], trial: int) -> str:
    """Say that files of a program's folder have changed.

    Args:
        workdir: The folder.
        changed: Names of files below it.
        trial: Number of the first trial that runs them.
    """
    more = f" and {count(len(changed) - _SHOWN, 'more file')}" if len(changed) > _SHOWN else ""
    return (
        f"in {workdir} {', '.join(changed[:_SHOWN])}{more} changed since the trial before: trial {trial} and later "
        "ones run other code (tradewind status shows which; name in .tradewindignore what the program writes)"
    )
