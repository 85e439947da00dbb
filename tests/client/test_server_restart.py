"""The client, while the server that it talks to is ended or killed, and started anew."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.engines.ssh import free_port
from tests.service.operations.test_serve import seed, serving
from tests.waiting import eventually

from tradewind.client import Client, EventInfo

NAP = """\
name: nap
application: {}
job: {command: [sh, -c, "echo one; sleep 8; echo two"]}
space: {nodes: [1]}
offers: {provider: [local]}
"""


class Restarting:
    """A server at one port, which can be started anew."""

    def __init__(self, folder: Path) -> None:
        context, root = seed(folder)
        context.applications.register(root, NAP, shared=True)
        self.token = context.accounts.make_token(root.user_id, "test")
        context.close()
        self._folder, self._port = folder, str(free_port())
        self._stack = ExitStack()
        self.start()

    def start(self) -> None:
        """Start it."""
        self._stack = ExitStack()
        self.served = self._stack.enter_context(serving(self._folder, "--port", self._port, "--runs", "2"))

    def stop(self, number: int) -> None:
        """End it by a signal."""
        self.served.end(number)
        self._stack.close()

    def client(self) -> Client:
        """A client of it."""
        return Client(self.served.url, self.token)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Restarting]:
    made = Restarting(tmp_path)
    yield made
    made.stop(signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.thorough), signal.SIGKILL])
def test_who_listens_and_waits_notices_nothing(server: Restarting, number: int) -> None:
    """Each event comes once, in order, and so does each line of the log; nothing is asked for twice."""
    with server.client() as client, server.client() as listener, server.client() as reader:
        request = client.submit(application="nap", name="through")
        heard: list[EventInfo] = []
        lines: list[str] = []
        threads = [
            threading.Thread(target=lambda: heard.extend(listener.events(request.id)), daemon=True),
            threading.Thread(target=lambda: lines.extend(reader.logs(request.id, follow=True)), daemon=True),
        ]
        eventually(lambda: client.get(request.id).state == "executing")
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        server.stop(number)
        away = threading.Timer(3.0, server.start)
        away.start()
        second = client.submit(application="nap", name="meanwhile")  # nobody is there at this moment
        assert client.wait(request.id, timeout=90.0).ok
        for thread in threads:
            thread.join(30.0)
            assert not thread.is_alive()
        away.join()
        assert [event.id for event in heard] == [event.id for event in client.history(request.id)]
        assert "".join(lines).count("two\n") == 1
        assert [one.id for one in client.requests(text="meanwhile")] == [second.id]
        client.cancel(second.id)
