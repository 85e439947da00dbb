"""Connections of slow clients: one that sends a call, or reads an answer, too slowly is closed.

uvicorn waits for the rest of a call's headers, and for somebody to read an answer, as long as the connection lives; a
few thousand connections that send a letter a minute would take all that a server has (Slowloris, CWE-400).
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import socket
import struct
import termios
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_LOG = logging.getLogger("tradewind.service.http.request_guard")


class SlowClientProtocol(H11Protocol):
    """HTTP/1.1 that does not wait for ever; `uvicorn.Config` takes it as ``http``."""

    ASK_SECONDS = 15.0
    """From the first byte of a call, or from the connection, to the end of its headers."""

    READ_SECONDS = 60.0
    """For which nobody reads an answer that is full to the brim."""

    _asking: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _left: tuple[asyncio.TimerHandle, int] | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first call."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        for timer in (self._asking, self._reading):
            if timer is not None:
                timer.cancel()
        self._asking = self._reading = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See whether a call is whole now."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """See whether there is more of a call than its answer needed."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Nobody reads at this moment."""
        super().pause_writing()
        if self._reading is None:
            self._reading = self.loop.call_later(self.READ_SECONDS, self._give_up, "reads")

    def resume_writing(self) -> None:
        """Somebody does again."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        super().resume_writing()

    def leave(self) -> None:
        """The server ends, and asks this again and again: close it if nobody has read since it asked before.

        A large answer over a slow line is full to the brim most of the time: that alone says nothing.
        """
        before, self._left = self._left, None
        if self._reading is not None:
            self._left = self._reading, self.transport.get_write_buffer_size() + self._queued()
            if self._left == before:
                self._give_up("reads")

    def _queued(self) -> int:
        """Bytes that the system has taken and the client has not, 0 where it does not tell.

        The system takes more only when a third of its buffer is free: over a slow line that is seconds of reading.
        """
        connection = self.transport.get_extra_info("socket")
        try:
            return int(struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))[0])
        except (AttributeError, OSError):
            return 0

    def _watch(self) -> None:
        waits = self._waits() and not self.transport.is_closing()
        if waits and self._asking is None:
            self._asking = self.loop.call_later(self.ASK_SECONDS, self._give_up, "sends")
        elif not waits and self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _waits(self) -> bool:
        """Whether the client owes the rest of something: what keep-alive waits for is none of that."""
        if self.conn.their_state is h11.IDLE:
            return self.cycle is None or bool(self.conn.trailing_data[0])
        # The body of a call that was answered without it.
        return self.cycle is not None and self.cycle.response_complete and self.conn.their_state is h11.SEND_BODY

    def _give_up(self, what: str) -> None:
        _LOG.warning("the connection of %s was closed: it %s too slowly", self.client[0] if self.client else "?", what)
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            # Without this, what nobody reads stays with the system until it gives up, too.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
