"""A file as an answer: in parts where a client asks for them, and never shown by a browser as a page of this server."""

from __future__ import annotations

import os
import re
from email.utils import formatdate
from pathlib import PurePosixPath
from typing import BinaryIO
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_PIECE = 256 * 1024
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
_PLAIN = re.compile(r"[^A-Za-z0-9._ -]")


class FileDownload(Response):
    """An open file as an answer; it is closed afterwards.

    One range is answered as one part; several at once are answered with the whole file, as HTTP allows.

    Args:
        request: The call.
        file: The open file.
        path: What the file is called; its last part is what a browser proposes.
    """

    def __init__(self, request: Request, file: BinaryIO, path: str) -> None:
        about = os.fstat(file.fileno())
        tag = f'"{about.st_mtime_ns:x}-{about.st_size:x}"'
        self.background = None
        self._file = file
        self._start, self._end = 0, about.st_size
        headers = {
            "Accept-Ranges": "bytes",
            "Cache-Control": "private, no-cache",
            "Content-Disposition": content_disposition(path),
            "Content-Type": "application/octet-stream",
            "ETag": tag,
            "Last-Modified": formatdate(about.st_mtime, usegmt=True),
            "X-Content-Type-Options": "nosniff",
        }
        self.status_code = 200
        if tag in [one.strip() for one in request.headers.get("if-none-match", "").split(",")]:
            self.status_code, self._end = 304, 0
        elif request.headers.get("if-range", tag) in (tag, headers["Last-Modified"]):
            self._narrow(request.headers.get("range", ""), about.st_size, headers)
        if self.status_code != 304:
            headers["Content-Length"] = str(self._end - self._start)
        self.init_headers(headers)

    def _narrow(self, wanted: str, size: int, headers: dict[str, str]) -> None:
        match = _RANGE.fullmatch(wanted.strip())
        if match is None or match[1] == match[2] == "":
            return
        first = int(match[1]) if match[1] else max(0, size - int(match[2]))
        last = int(match[2]) if match[1] and match[2] else size - 1
        if match[1] and match[2] and last < first:
            return  # no range at all
        if first >= size:
            self.status_code, self._end = 416, 0
            headers["Content-Range"] = f"bytes */{size}"
            return
        self._start, self._end = first, min(last, size - 1) + 1
        self.status_code = 206
        headers["Content-Range"] = f"bytes {self._start}-{self._end - 1}/{size}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            left = self._end - self._start
            self._file.seek(self._start)
            while left > 0 and (piece := await run_in_threadpool(self._file.read, min(left, _PIECE))):
                left -= len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._file.close()


def content_disposition(path: str) -> str:
    """The header that makes a browser keep a file, under its own name where that can be said.

    Args:
        path: The file's path; nothing of it can end the header, or name a folder.
    """
    name = PurePosixPath(path.replace("\\", "/")).name or "file"
    plain = _PLAIN.sub("_", name).lstrip(".") or "file"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
