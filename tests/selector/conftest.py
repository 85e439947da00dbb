"""A price endpoint on this machine, scripted by the tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest


@dataclass
class Answer:
    """An answer of the endpoint: ``cut`` bytes less than it announces, after ``delay`` seconds."""

    body: bytes | str = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = 0
    wait_for: threading.Event | None = None

    @property
    def raw(self) -> bytes:
        return self.body.encode() if isinstance(self.body, str) else self.body


Script = Callable[[str, dict[str, str]], Answer]


class Endpoint:
    """A server that answers with what ``script(path, query)`` returns, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.script: Script = lambda path, query: Answer(status=404)
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
                endpoint.asked.append((parts.path, query))
                answer = endpoint.script(parts.path, query)
                if answer.wait_for is not None:
                    answer.wait_for.wait(5)
                try:
                    self.send_response(answer.status)
                    for name, value in answer.headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(answer.raw)))
                    self.end_headers()
                    self.wfile.write(answer.raw[: len(answer.raw) - answer.cut])
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client gave up first, as a test wanted

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def sequence(self, *answers: Answer) -> None:
        """Send these answers, one a request, whatever is asked; the last one again and again."""
        left = list(answers)
        self.script = lambda path, query: left.pop(0) if len(left) > 1 else left[0]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    yield server
    server.close()


@pytest.fixture
def answer() -> type[Answer]:
    """The class of answers: test modules import nothing from each other."""
    return Answer
