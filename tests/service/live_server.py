"""A server that really listens, for what a client in the same thread cannot show: streams, timeouts, many at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from tests.waiting import eventually

from tradewind.service.accounts.identity import Principal
from tradewind.service.app import create_app
from tradewind.service.context import Context
from tradewind.service.requests.request_service import RequestService
from tradewind.store.service.request_values import RequestState
from tradewind.store.service.requests import OPEN, NewRequestEvent, RequestRow

HELLO = """\
name: hello
application:
  title: Say hello
  fields:
    words: {type: text, default: hello, data: [command.1]}
    times: {type: integer, min: 1, max: 100, default: 1}
job:
  command: [echo, "{{ words }}", "{{ times }}"]
space:
  nodes: [1, 2]
offers:
  provider: [local]
"""
"""An application that runs anywhere."""


@contextmanager
def served(context: Context) -> Iterator[str]:
    """The address of a server that answers until the block ends."""
    config = uvicorn.Config(create_app(context), port=0, log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started, what="the server to start", pause=0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        server.config.app.state.traffic.stopping.set()  # type: ignore[union-attr]
        server.force_exit = True
        thread.join(10.0)


def move(requests: RequestService, number: int, state: RequestState, text: str = "", **fields: object) -> RequestRow:
    """Bring a request into a state, as a worker does."""
    over = {"ended": time.time()} if state not in OPEN else {}
    remark = NewRequestEvent(state, text or f"it is {state}")
    return requests.store.change_free(number, OPEN, {"state": state, **over, **fields}, remark)


def principal(context: Context, name: str) -> Principal:
    """A user who is there."""
    user = context.accounts.store.user_named(name)
    return Principal(user.id, user.name, user.role, user.tenant)


def not_uploaded(context: Context, number: int, state: str, problem: str) -> str:
    """Note that the results of a request that is over did not come to the user's folder; the folder's address."""
    from dataclasses import replace

    from tradewind.store.base import Change
    from tradewind.store.service.request_results import ResultUploadStore
    from tradewind.testing.stores import run, study_row, trial

    place = "webdavs://cloud.example.org/results/study"
    study = context.store.create_study(study_row("uploads"))
    context.store.write(study.id, Change([trial(0, 0.5)], [replace(run(0), results=f"{place}/run-0-1")]))
    row = context.requests.store.get(number)
    fields = {"study_id": study.id}
    context.requests.store.change_free(number, (row.state,), fields, NewRequestEvent(row.state, "its runs are over"))
    ResultUploadStore(context.database).remark(number, f"results are not uploaded: {problem}", state)
    return place
