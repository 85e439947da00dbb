"""The WebSocket of the pretended Kubernetes through which commands run in its pods (``channel.k8s.io``)."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Any

_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # of RFC 6455
_BINARY, _END, _PING = 0x2, 0x8, 0x9
_STDIN, _STDOUT, _ERROR, _CLOSE = 0, 1, 3, 255


def accept_key(key: str) -> str:
    return base64.b64encode(hashlib.sha1((key + _MAGIC).encode()).digest()).decode()


class ExecStream:
    """The server's side of a WebSocket that leads to a command.

    Args:
        reads: What comes from the client.
        writes: The client's socket.
        version: 4 or 5: whether the command's input can be ended alone.
    """

    def __init__(self, reads: BufferedIOBase, writes: socket.socket, version: int) -> None:
        self._reads, self._writes, self._version = reads, writes, version
        self._lock = threading.Lock()

    def serve(self, command: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        """Run a command until it ends or the client goes."""
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, env=env
        )
        assert process.stdin is not None
        assert process.stdout is not None
        forwarding = threading.Thread(target=self._forward, args=(process,), daemon=True)
        forwarding.start()
        with suppress(OSError):
            self._take(process.stdin)
        with suppress(OSError):
            process.stdin.close()
        forwarding.join()

    def _take(self, stdin: IO[bytes]) -> None:
        while (message := self._message()) is not None:
            if message[:1] == bytes((_STDIN,)):
                stdin.write(message[1:])
                stdin.flush()
            elif message[:2] == bytes((_CLOSE, _STDIN)) and self._version == 5:
                stdin.close()

    def _message(self) -> bytes | None:
        head = self._reads.read(2)
        if len(head) < 2 or head[0] & 0xF == _END:
            return None
        size = head[1] & 0x7F
        if size > 125:
            size = int.from_bytes(self._reads.read(2 if size == 126 else 8), "big")
        mask, data = self._reads.read(4), self._reads.read(size)
        assert head[1] & 0x80 and len(data) == size, "what clients send is masked"
        return bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))

    def _forward(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with suppress(OSError), process.stdout:
            self._send(_PING, b"")
            while piece := process.stdout.read1(1 << 15):  # type: ignore[attr-defined]
                self._send(_BINARY, bytes((_STDOUT,)) + piece)
        code = process.wait()
        status: dict[str, Any] = {"status": "Failure" if code else "Success", "message": f"code {code}"}
        with suppress(OSError):
            self._send(_BINARY, bytes((_ERROR,)) + json.dumps(status).encode())
            self._send(_END, struct.pack(">H", 1000))
            self._writes.shutdown(socket.SHUT_RDWR)

    def _send(self, kind: int, data: bytes) -> None:
        size = len(data)
        head = bytes((0x80 | kind, size)) if size < 126 else struct.pack(">BBH", 0x80 | kind, 126, size)
        with self._lock:
            self._writes.sendall(head + data)
