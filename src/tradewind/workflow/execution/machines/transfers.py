"""Brings files of tasks to machines that do not see the run's folder, and what they write back into it."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tradewind.errors import TradewindError
from tradewind.workflow.execution.machines.courier import Frames, LostStreamError, digest_of, is_full, keep_content
from tradewind.workflow.execution.machines.courier import send_content as send_content_of

_STUCK_SECONDS = 120.0
"""Seconds after which a stream that nothing comes over counts as lost."""
_TRIES = 3
_PAUSE_SECONDS = 0.5

OpenStream = Callable[[int], socket.socket]
"""Opens a stream to the courier of a machine; raises a `TradewindError` where that cannot be."""


class _TransferError(Exception):
    """Files that cannot be sent or brought, in words."""


@dataclass(frozen=True)
class FilesMoved:
    """Files have come to a machine, or from it.

    Attributes:
        vm: The machine.
        about: What the caller has given.
        trouble: Reason that they have not, in words; empty where they have.
    """

    vm: int
    about: Any
    trouble: str = ""


@dataclass
class _Errand:
    """Files that are to be moved: their names in the run's folder."""

    about: Any
    send: Sequence[str] = ()
    fetch: Sequence[str] = ()
    wanted: bool = True


class FileHub:
    """The run's folder as the place from which all machines get their files, and to which they bring theirs.

    A file that is already on a machine as it is here is not sent again. Each machine has a thread and a stream of its
    own; its errands are done in their order.

    Args:
        root: The run's folder.
        open_stream: Opens a stream to the courier of a machine.
        names: Names of the machines.
        post: Takes the reports, from the threads.
    """

    def __init__(
        self, root: Path, open_stream: OpenStream, names: Sequence[str], post: Callable[[FilesMoved], None]
    ) -> None:
        self._root, self._open, self._names, self._post = root, open_stream, names, post
        self._known: dict[str, tuple[tuple[int, int, int], str]] = {}
        self._lock = threading.Lock()
        self._carriers: dict[int, _Carrier] = {}

    def send(self, vm: int, names: Sequence[str], about: Any = None) -> None:
        """Send files to a machine, those that are here.

        Args:
            vm: The machine.
            names: Their names below the run's folder.
            about: What the report is to say; None wants none.
        """
        self._carrier(vm).errands.put(_Errand(about, send=names, wanted=about is not None))

    def fetch(self, vm: int, names: Sequence[str], about: Any) -> None:
        """Bring files of a machine, those that are there; see `send`."""
        self._carrier(vm).errands.put(_Errand(about, fetch=names))

    def leave(self, vm: int) -> None:
        """Forget a machine, which is gone or has nothing more to do; what it was to do is not done."""
        carrier = self._carriers.pop(vm, None)
        if carrier is not None:
            carrier.end()

    def close(self) -> None:
        """Forget all machines."""
        for vm in list(self._carriers):
            self.leave(vm)

    def _carrier(self, vm: int) -> _Carrier:
        if vm not in self._carriers:
            self._carriers[vm] = _Carrier(self, vm)
        return self._carriers[vm]

    def open_stream(self, vm: int) -> socket.socket:
        """Open a stream to a machine's courier."""
        return self._open(vm)

    def name(self, vm: int) -> str:
        """Name of a machine."""
        return self._names[vm]

    def moved(self, report: FilesMoved) -> None:
        """Hand a report on."""
        self._post(report)

    def path(self, name: str) -> Path:
        """Place of a file in the run's folder."""
        return self._root / name

    @property
    def spare(self) -> Path:
        """Folder for what has not come as a whole yet."""
        return self._root / "machines" / ".parts"

    def digest(self, name: str) -> str:
        """Digest of a file of the run's folder as it is now; that of a file that has not changed is remembered.

        Raises:
            OSError: It cannot be read.
        """
        path = self._root / name
        facts = path.stat()
        stamp = facts.st_mtime_ns, facts.st_size, facts.st_ino
        with self._lock:
            known = self._known.get(name)
        if known is not None and known[0] == stamp and not path.is_dir():
            return known[1]
        found = digest_of(path)
        with self._lock:
            self._known[name] = stamp, found
        return found


class _Carrier:
    """The way of files to one machine."""

    def __init__(self, hub: FileHub, vm: int) -> None:
        self._hub, self._vm = hub, vm
        self.errands: queue.SimpleQueue[_Errand | None] = queue.SimpleQueue()
        self._there: dict[str, str] = {}
        self._stream: socket.socket | None = None
        self._frames: Frames | None = None
        self._files = ExitStack()
        self._ended = False
        threading.Thread(target=self._work, name="tradewind-files", daemon=True).start()

    def end(self) -> None:
        """Do nothing more."""
        self._ended = True
        self.errands.put(None)
        stream = self._stream
        if stream is not None:
            with suppress(OSError):  # it may read
                stream.shutdown(socket.SHUT_RDWR)

    def _work(self) -> None:
        while (errand := self.errands.get()) is not None and not self._ended:
            trouble = self._try(errand)
            if errand.wanted and not self._ended:
                self._hub.moved(FilesMoved(self._vm, errand.about, trouble))
        self._hang_up()

    def _try(self, errand: _Errand) -> str:
        """Do an errand; where the stream is lost, again. Returns the trouble in words."""
        why = ""
        for turn in range(_TRIES):
            if self._ended:
                return "the machine is gone"
            if turn:
                time.sleep(_PAUSE_SECONDS)
            try:
                self._do(errand)
            except _TransferError as error:
                return str(error)
            except (OSError, ValueError, KeyError, TradewindError) as error:
                self._hang_up()
                why = str(error)
            else:
                return ""
        return f"the way of files to {self._hub.name(self._vm)} is lost: {why}"

    def _do(self, errand: _Errand) -> None:
        for name in errand.send:
            if self._hub.path(name).exists():
                self._send(name)
        for name in errand.fetch:
            self._fetch(name)

    def _line(self) -> Frames:
        if self._frames is None:
            stream = self._hub.open_stream(self._vm)
            stream.settimeout(_STUCK_SECONDS)
            self._stream = stream
            self._files.callback(stream.close)
            reads, writes = stream.makefile("rb"), stream.makefile("wb")
            for file in (reads, writes):
                self._files.callback(_close, file)
            self._frames = Frames(reads, writes)
        return self._frames

    def _hang_up(self) -> None:
        stream, self._stream, self._frames = self._stream, None, None
        if stream is not None:
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
        self._files.close()

    def _send(self, name: str) -> None:
        digest, machine = self._hub.digest(name), self._hub.name(self._vm)
        if self._there.get(name) == digest:
            return
        line = self._line()
        line.say({"op": "put", "name": name, "digest": digest})
        answer = line.answer()
        if "error" not in answer and not answer["have"]:
            send_content_of(line, self._hub.path(name))
            answer = line.answer()
        if answer.get("full"):
            raise _TransferError(f"the disk of {machine} is full: there is no room for {_plain(name)}")
        if "error" in answer:
            raise _TransferError(f"{_plain(name)} cannot be written on {machine}: {answer['error']}")
        self._there[name] = answer.get("digest", digest)

    def _fetch(self, name: str) -> None:
        machine, line = self._hub.name(self._vm), self._line()
        line.say({"op": "get", "name": name})
        answer = line.answer()
        if "error" in answer:
            raise _TransferError(f"{_plain(name)} cannot be read on {machine}: {answer['error']}")
        if not answer["there"]:
            return
        trouble, digest = "", ""
        try:
            digest = keep_content(line, self._hub.path(name), self._hub.spare)
        except LostStreamError:
            raise
        except OSError as error:
            full = "the disk of this machine is full: there is no room for"
            trouble = f"{full} {_plain(name)}" if is_full(error) else f"{_plain(name)} cannot be kept: {error.strerror}"
        answer = line.answer()
        if trouble or "error" in answer:
            raise _TransferError(trouble or f"{_plain(name)} cannot be read on {machine}: {answer['error']}")
        if answer["digest"] != digest:
            raise _TransferError(f"{_plain(name)} has changed on {machine} while it was brought")
        self._there[name] = digest


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # what was not sent yet cannot be any more
        file.close()


def _plain(name: str) -> str:
    """Name of a file as the workflow has it."""
    return name.removeprefix("files/")
