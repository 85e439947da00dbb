from __future__ import annotations

import shutil
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.service.live_server import move
from tests.service.module_server import House, house

from tradewind.errors import StoreFullError
from tradewind.service.accounts.identity import Principal
from tradewind.service.operations import health
from tradewind.service.operations.health import HealthChecks
from tradewind.service.settings import ServiceSettings
from tradewind.store.sql.schema import REVISIONS

CHECKS = {"serving": "ok", "database": "ok", "schema": "ok", "disk": "ok", "worker": "ok", "notices": "ok"}


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("health")) as made:
        yield made


@pytest.fixture
def here(there: House) -> TestClient:
    """A client of this machine."""
    return TestClient(there.client.app, base_url="http://localhost", client=("127.0.0.1", 5000))


@pytest.fixture(autouse=True)
def _asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_FRESH", -1.0)


def state(there: House) -> HealthChecks:
    found: Any = there.client.app
    assert isinstance(found.state.health, HealthChecks)
    return found.state.health


@pytest.mark.slow
def test_it_is_alive(here: TestClient) -> None:
    assert (here.get("/healthz").status_code, here.get("/healthz").text) == (200, "alive\n")


@pytest.mark.slow
def test_it_is_ready(here: TestClient) -> None:
    answer = here.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"ready": True, "degraded": False, "checks": CHECKS})


@pytest.mark.slow
def test_probes_need_no_name(there: House) -> None:
    assert there.client.get("/readyz", headers={"Host": "10.0.0.7:8765"}).status_code == 200


@pytest.mark.thorough
@pytest.mark.slow
def test_a_worker_that_is_dead(there: House, here: TestClient) -> None:
    for alive in (True, False):
        state(there).children = [SimpleNamespace(name="worker", alive=alive, restarts=0, pid=None)]  # type: ignore[list-item]
        answer = here.get("/readyz")
        assert (answer.status_code == 200) is alive
    assert answer.json()["checks"]["worker"] == "it does not run"
    state(there).children = ()


@pytest.mark.slow
def test_a_disk_that_is_full(here: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda path: real(path)._replace(free=100 * 2**20))
    answer = here.get("/readyz")
    assert (answer.status_code, answer.json()["checks"]["disk"]) == (503, "it is almost full")


@pytest.mark.slow
def test_a_database_that_cannot_be_written(there: House, here: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(*_args: object) -> None:
        raise StoreFullError("no room to write to the store /secret/place.db")

    monkeypatch.setattr("tradewind.store.service.operations.OperationsStore.probe", probe)
    answer = here.get("/readyz")
    assert (answer.status_code, answer.json()["checks"]["database"]) == (503, "store.full")
    assert "secret" not in answer.text


def test_another_schema(there: House, here: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.store.service.operations.OperationsStore.newest", "9999")
    answer = here.get("/readyz")
    assert answer.status_code == 503
    words = f"the database has schema {REVISIONS[-1]}, this program works with 9999"
    assert answer.json()["checks"]["schema"] == words


@pytest.mark.slow
def test_a_database_that_says_nothing(there: House, here: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    release = threading.Event()
    monkeypatch.setattr(health, "_PATIENCE", 0.1)
    monkeypatch.setattr("tradewind.store.service.operations.OperationsStore.probe", lambda *_args: release.wait(20.0))
    answer = here.get("/readyz")
    release.set()
    assert (answer.status_code, answer.json()["checks"]["database"]) == (503, "no answer within 0 s")


def lines(text: str) -> dict[str, float]:
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    }


def test_figures_of_requests(there: House, here: TestClient) -> None:
    before = lines(here.get("/metrics").text)
    ann = Principal(1, "ann", "user", "physics")
    context = there.context
    numbers = [context.requests.submit(ann, {"application": there.hello}).id for _ in range(3)]
    move(context.requests, numbers[0], "executing", started=100.0)
    move(context.requests, numbers[0], "done", cost=0.75, started=100.0, ended=160.0)
    move(context.requests, numbers[1], "failed", cost=0.25)
    answer = here.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    after = lines(answer.text)
    change = {name: after[name] - before.get(name, 0.0) for name in after}
    assert change['tradewind_requests{state="pending"}'] == 1
    assert change['tradewind_requests{state="done"}'] == 1
    assert change['tradewind_requests{state="failed"}'] == 1
    assert change["tradewind_requests_spent_dollars"] == pytest.approx(1.0)
    assert after['tradewind_requests_ended{state="done"}'] == 1
    assert after["tradewind_requests_oldest_waiting_seconds"] >= 0
    for word in ("ann", "physics", "hello"):
        assert word not in answer.text


def test_figures_of_calls(there: House, here: TestClient) -> None:
    for path in ("/api/v1/requests/1", "/api/v1/requests/2", "/nowhere/at/all", "/healthz"):
        there.client.get(path, headers=there.root)
    text = here.get("/metrics").text
    found = lines(text)
    route = 'route="/api/v1/requests/{number}"'
    assert [name for name in found if "/api/v1/requests/1" in name] == []
    counted = [name for name in found if name.startswith("tradewind_http_request_seconds_count") and route in name]
    assert len(counted) == 1, [name for name in found if "_count" in name]
    for name in [name for name in found if name.startswith("tradewind_http_request_seconds_count")]:
        labels = name.partition("{")[2].rstrip("}")
        buckets = [
            value for key, value in found.items() if key.startswith(f"tradewind_http_request_seconds_bucket{{{labels},")
        ]
        assert buckets == sorted(buckets)
        assert buckets[-1] == found[name]


def test_figures_are_for_this_machine_or_who_has_the_token(there: House, here: TestClient) -> None:
    assert there.client.get("/metrics").status_code == 403
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
        assert here.get("/metrics", headers={header: "127.0.0.1"}).status_code == 403


@pytest.mark.slow
def test_a_token_for_figures(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIGURES", "sesame")
    with house(tmp_path_factory.mktemp("token"), ServiceSettings(metrics_token="env:FIGURES")) as there:
        codes = [
            there.client.get("/metrics", headers=headers).status_code
            for headers in ({}, {"Authorization": "Bearer wrong"}, there.root, {"Authorization": "Bearer sesame"})
        ]
    assert codes == [401, 401, 401, 200]
