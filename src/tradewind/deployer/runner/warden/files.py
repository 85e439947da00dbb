"""The files that a warden writes into a run's folder (see `tradewind.deployer.runner.warden.warden`)."""

from __future__ import annotations

import errno
import json
import os
from typing import Any

STARTED = "started.json"
PID = "pid.json"
RESULT = "result.json"
CANCEL = "cancel"

Document = dict[str, Any]


class StartRefused(Exception):  # noqa: N818  (it is an answer)
    """A run that cannot be started.

    Its ``kind`` is ``exists``, ``cancelled``, ``workdir``, ``missing``, ``busy`` or ``system``. Of a busy
    one, ``again`` says after how many seconds there may be room; 0 where that is not known.
    """

    def __init__(self, kind: str, number: int = 0, words: str = "", again: float = 0.0) -> None:
        super().__init__(kind)
        self.kind = kind
        self.number = number
        self.words = words
        self.again = again


def claim_run(folder: str, claim: Document) -> None:
    """Put ``started.json`` into place, whole, unless it is there.

    Raises:
        StartRefused: Another warden has put it there.
    """
    draft = f"{folder}/{STARTED}.{os.getpid()}"
    try:
        write_document(draft, claim, part=draft)  # the link makes it whole
        os.link(draft, f"{folder}/{STARTED}")
    except FileExistsError:
        raise StartRefused("exists") from None
    finally:
        quietly(os.unlink, draft)


def write_document(path: str, document: Document, *, part: str = "", durable: bool = False) -> None:
    """Write a JSON document whole, or not at all.

    Args:
        path: The file.
        document: The content of the file.
        part: The file that is written first and then renamed, unless it is the file itself.
        durable: True to flush the file to the disk.

    Raises:
        OSError: It cannot be written.
    """
    part = part or path + ".part"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        text = json.dumps(document).encode()
        size = os.write(fd, text)
        if size < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        os.ftruncate(fd, size)
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    if part != path:
        os.rename(part, path)  # noqa: PTH104


def text_of(path: str) -> str | None:
    """The text of a file, or None when there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return None


def program_of(name: str, cwd: str, path: str) -> str:
    """Find the program that a shell would run.

    os.execvpe would look for it in the child, where every import and every page touched has to be paid for again.

    Args:
        name: The first word of the command.
        cwd: The working folder, to which folders of the search path are relative.
        path: The value of ``PATH``.

    Raises:
        StartRefused: There is none (``missing``).
    """
    if "/" in name:
        return name
    forbidden = False
    for folder in path.split(os.pathsep):
        place = os.path.join(cwd, folder, name)  # noqa: PTH118
        if os.path.isfile(place):  # noqa: PTH113
            if os.access(place, os.X_OK):
                return place
            forbidden = True
    raise StartRefused("missing", errno.EACCES if forbidden else errno.ENOENT)


def quietly(call: Any, *arguments: Any) -> None:
    """Call a function and ignore an OSError: its file or process may be gone meanwhile."""
    try:
        call(*arguments)
    except OSError:
        return
