"""Two workers on one PostgreSQL, one of them killed with -9 among 100 requests: each ends once, none is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.effort import share
from tests.service.requests.request_world import WorkerProcess, World, world
from tests.service.requests.test_worker_kill import check_once
from tests.store.conftest import _server as _server
from tests.store.conftest import postgresql_url as postgresql_url
from tests.waiting import eventually

from tradewind.store.service.requests import ENDED

REQUESTS = share(100, 40)


def over(there: World) -> int:
    return len(there.context.requests.list(there.root, states=ENDED, limit=500))


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_server_dies_in_the_middle_of_100_requests(tmp_path: Path, postgresql_url: str) -> None:
    with world(tmp_path, postgresql_url) as there:
        rows = [there.submit((there.ann, there.bob)[n % 2]) for n in range(REQUESTS)]
        began = time.monotonic()
        with WorkerProcess(there, runs=4) as first, WorkerProcess(there, runs=4):
            eventually(lambda: over(there) >= REQUESTS // 3, 300)
            first.kill()
            eventually(lambda: over(there) == REQUESTS, 500)
        print(f"{REQUESTS} requests in {time.monotonic() - began:.1f} s")
        for row in rows:
            check_once(there, row.id)
        assert len(there.begun()) == len(set(there.begun())) == REQUESTS
        assert len(there.context.store.find_studies()) == REQUESTS
        holders = {event.text for event in there.context.requests.events(there.root, limit=5000)}
        assert any(text.startswith("taken over") for text in holders)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_silent_server_on_another_machine_is_waited_for(tmp_path: Path, postgresql_url: str) -> None:
    """Whether a process of another machine lives cannot be seen: its lease has to run out."""
    with world(tmp_path, postgresql_url) as there:
        row = there.submit()
        claims = there.context.requests.claims
        held = claims.claim("elsewhere:1:1.0", 3.0, lambda lines: (lines[0].first, 0.0))
        assert held is not None
        with WorkerProcess(there, runs=1):
            time.sleep(1.5)
            assert there.get(row).hold_holder == "elsewhere:1:1.0"
            there.ended(row)
        check_once(there, row.id)
