"""A client of HTTP that costs almost nothing, so that two cores measure the server and not the client."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass


@dataclass(slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Caller:
    """One connection that is kept; opened again when the server has closed it."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def call(self, method: str, path: str, body: bytes = b"", more: str = "") -> Answer:
        for attempt in (1, 2):
            fresh = self._writer is None
            try:
                return await self._call(method, path, body, more)
            except (ConnectionError, asyncio.IncompleteReadError):
                await self.close()
                if fresh or attempt == 2:
                    raise
        raise AssertionError

    async def open(self, path: str, more: str = "") -> asyncio.StreamReader:
        """An answer that stays open; its head is read."""
        reader, writer = await self._connect()
        writer.write(f"GET {path} HTTP/1.1\r\n{self._head}{more}\r\n".encode())
        answer = await self._read_head(reader)
        if answer.status != 200:
            length = int(answer.headers.get("content-length", "0"))
            raise RuntimeError(f"{answer.status} {await reader.readexactly(length)!r}")
        return reader

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
            self._writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._reader, self._writer

    async def _call(self, method: str, path: str, body: bytes, more: str) -> Answer:
        reader, writer = await self._connect()
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{length}{more}\r\n".encode() + body)
        answer = await self._read_head(reader)
        if answer.status not in (204, 304):
            answer.body = await reader.readexactly(int(answer.headers["content-length"]))
        if answer.headers.get("connection") == "close":
            await self.close()
        return answer

    async def _read_head(self, reader: asyncio.StreamReader) -> Answer:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        return Answer(int(lines[0].split(" ", 2)[1]), headers, b"")
