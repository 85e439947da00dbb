"""A database with people and an application, and workers on it: in a thread, or as processes that die where told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.waiting import eventually

from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context, open_context
from tradewind.service.requests.worker import RequestWorker
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.requests import RequestRow

APPLICATION = """
name: note
job:
  command: [sh, -c, 'echo $TRADEWIND_RUN_ID >> {journal}; sleep {{{{ seconds }}}}; echo done; exit {{{{ code }}}}']
space:
  instance: {{types: [local.c1, local.g1]}}
deploy: {{billing: {{granularity: 1ms}}}}
application:
  fields:
    seconds: {{type: number, default: 0, min: 0, max: 60}}
    code: {{type: integer, default: 0, min: 0, max: 100}}
"""
"""Writes the run's name into a journal: what is there twice was run twice."""


@dataclass(frozen=True)
class World:
    """A server's database with people in it.

    Attributes:
        context: What its parts share.
        url: Address of the database.
        home: The data folder.
        root: An administrator.
        ann: A user of ``physics``.
        bob: A user of ``biology``.
        journal: What runs write.
    """

    context: Context
    url: str
    home: Path
    root: Principal
    ann: Principal
    bob: Principal
    journal: Path

    def begun(self) -> list[str]:
        """The runs that have begun, in their order."""
        return self.journal.read_text().split() if self.journal.exists() else []

    def submit(self, who: Principal | None = None, key: str | None = None, **document: Any) -> RequestRow:
        """Ask for a run of the application, on the smallest slice of this machine unless something else is asked."""
        given = {"application": "note", **document}
        if "search" not in given and "resources" not in given:
            given.setdefault("configuration", {"instance": "local.c1"})
        return self.context.requests.submit(who or self.ann, given, key=key)

    def get(self, row: RequestRow) -> RequestRow:
        """A request as it is now."""
        return self.context.requests.get(self.root, row.id)

    def ended(self, row: RequestRow, seconds: float = 60.0) -> RequestRow:
        """A request once it is over."""
        eventually(lambda: self.get(row).over, seconds)
        return self.get(row)

    def stages(self, row: RequestRow) -> list[str]:
        """The stages that its events tell of, in their order."""
        return [event.stage for event in self.context.requests.events(self.root, row.id)]


@contextmanager
def world(folder: Path, url: str = "", settings: ServiceSettings | None = None) -> Iterator[World]:
    """Such a database, until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    address, home, journal = url or f"sqlite:///{folder}/service.db", folder / "home", folder / "journal"
    context = open_context(settings or ServiceSettings(), address, home)
    try:
        people = {}
        for name, role, tenant in (("root", "admin", "root"), ("ann", "user", "physics"), ("bob", "user", "biology")):
            user = context.accounts.add_user(name, role=role, tenant=tenant)  # type: ignore[arg-type]
            people[name] = Principal(user.id, name, role, tenant)  # type: ignore[arg-type]
        context.applications.register(people["root"], APPLICATION.format(journal=journal), shared=True)
        yield World(context, address, home, people["root"], people["ann"], people["bob"], journal)
    finally:
        context.close()


@contextmanager
def clusters(there: World, **settings: dict[str, Any]) -> Iterator[None]:
    """Clusters of these names and settings, run by a process of another host, until the block ends."""
    store = there.context.cluster
    tokens = {name: store.hold(name, "elsewhere:1:1.0", 600.0, given) for name, given in settings.items()}
    try:
        yield
    finally:
        for name, token in tokens.items():
            store.release(name, token)


@contextmanager
def working(context: Context) -> Iterator[RequestWorker]:
    """A worker in a thread, until the block ends."""
    worker, stop = RequestWorker(context), threading.Event()
    thread = threading.Thread(target=worker.run, args=(stop,), daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        stop.set()
        thread.join(30.0)
        assert not thread.is_alive()


class WorkerProcess:
    """A worker in a process of its own.

    Args:
        there: Where it works.
        dies: Where it kills itself with SIGKILL; see `crash`. Empty for nowhere.
        settings: The server's settings, as a document.
    """

    def __init__(self, there: World, dies: str = "", **settings: Any) -> None:
        told = {"settings": settings, "url": there.url, "data_folder": str(there.home), "dies": dies}
        words = [sys.executable, "-m", "tests.service.requests.crash"]
        root = Path(__file__).parents[3]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(told).encode() + b"\n")
        self.process.stdin.flush()

    def wait(self, seconds: float = 60.0) -> int:
        """Its exit code."""
        return self.process.wait(seconds)

    def kill(self) -> None:
        """End it as a power cut does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10.0)

    def close(self) -> None:
        """End it in good order."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30.0)

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
