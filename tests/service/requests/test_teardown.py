"""A request is over only when nothing of it is left: machines that cannot be given back are not forgotten."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.service.requests.request_world import World, working, world
from tests.waiting import eventually

from tradewind.deployer.lifecycle import deployer
from tradewind.deployer.provisioner.base import Cluster
from tradewind.deployer.provisioner.simulated import SimulatedProvisioner
from tradewind.errors import NotFoundError, TeardownError
from tradewind.service.requests import progress_writer, request_executor
from tradewind.service.requests.progress_writer import RequestProgressWriter
from tradewind.service.web.request_view import view_request
from tradewind.store.service.requests import RequestRow
from tradewind.utils.retries import Backoff

pytestmark = pytest.mark.slow


class Provider:
    """A provider that can be away: while it is, nothing is given back."""

    away = False
    refused = 0


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    """Pretended machines of a provider that everybody soon gives up on."""
    found, destroy = Provider(), SimulatedProvisioner.destroy

    def refuse(self: SimulatedProvisioner, cluster: Cluster) -> Cluster:
        if found.away:
            found.refused += 1
            raise TeardownError("the provider does not answer")
        return destroy(self, cluster)

    monkeypatch.setattr(SimulatedProvisioner, "destroy", refuse)
    monkeypatch.setattr(SimulatedProvisioner, "patience_seconds", 0.2)
    monkeypatch.setattr(deployer, "_PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(request_executor, "_BACKOFF", Backoff((0.05, 0.1)))
    return found


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as found:
        deploy = {"runner": "process", "provisioner": {"use": "simulated", "boot": 0.05}}
        found.context.backends.set(found.root, "cloud", {"deploy": deploy, "offers": {"provider": "local"}})
        yield found


def fleet(there: World) -> dict[str, Any]:
    """The machines that are there, by run."""
    found: dict[str, Any] = json.loads((there.home / "simulated-fleet.json").read_text() or "{}")
    return found


def begun(there: World) -> RequestRow:
    """A request that is being carried out on such machines."""
    row = there.submit(backend="cloud", parameters={"seconds": 60})
    eventually(lambda: there.get(row).state == "executing")
    assert len(fleet(there)) == 1
    return there.get(row)


def check_waits(there: World, row: RequestRow, provider: Provider) -> float:
    """See that a request goes on trying, for longer than one begins anew; what it has cost by then."""

    def waits() -> bool:
        now = there.get(row)
        return now.over or (provider.refused > 5 and "tried again" in str(now.progress.get("waiting")))

    eventually(waits)
    now = there.get(row)
    assert not now.over
    assert now.hold_holder is not None
    assert len(fleet(there)) == 1
    return now.cost


def check_paid(there: World, ended: RequestRow, by_then: float) -> None:
    """See that nothing is left, and that all of it was paid, what it took to get there included."""
    assert fleet(there) == {}
    assert ended.reserved == 0.0
    assert ended.study_id is not None
    (run,) = there.context.store.runs(ended.study_id)
    assert run.state.ended
    assert ended.cost == pytest.approx(run.cost)
    assert ended.cost > by_then


def test_one_that_is_cancelled_is_over_when_its_machines_are_gone(there: World, provider: Provider) -> None:
    with working(there.context):
        row = begun(there)
        provider.away = True
        there.context.requests.cancel(there.ann, row.id)
        check_waits(there, row, provider)
        provider.away = False
        ended = there.ended(row)
    assert (ended.state, ended.problem) == ("cancelled", "cancelled; what it had used by then is paid")
    check_paid(there, ended, row.cost)


@pytest.mark.parametrize("search", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_what_keeps_a_run_open_is_said_while_it_is_open(
    there: World, provider: Provider, monkeypatch: pytest.MonkeyPatch, search: bool
) -> None:
    monkeypatch.setattr(deployer, "_PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(SimulatedProvisioner, "patience_seconds", 60.0)
    monkeypatch.setattr(progress_writer, "_EVERY", 0.05)
    provider.away = True
    more: dict[str, Any] = {"search": {"budget": {"trials": 1}}} if search else {}
    with working(there.context):
        row = there.submit(backend="cloud", parameters={"seconds": 0.1}, **more)
        said = eventually(lambda: there.get(row).progress.get("trouble"))
        words = "its machines are not given back yet: the provider does not answer"
        assert said == (f"trial 0: {words}" if search else words)
        (lease,) = there.context.machines.leases(there.root)
        assert lease["reason"] == words
        shown = view_request(there.get(row))
        assert shown.trouble == said
        provider.away = False
        ended = there.ended(row)
    assert ended.state == "done"
    assert view_request(ended).trouble == ""
    assert fleet(there) == {}


def test_one_that_is_deleted_keeps_its_row_and_folders_until_then(there: World, provider: Provider) -> None:
    with working(there.context):
        row = begun(there)
        assert row.study_id is not None
        folder = there.home / "runs" / there.context.store.study(row.study_id).owner
        provider.away = True
        there.context.requests.delete(there.ann, row.id)
        check_waits(there, row, provider)
        assert folder.exists()
        provider.away = False

        def gone() -> bool:
            try:
                there.get(row)
            except NotFoundError:
                return True
            return False

        eventually(gone)
        eventually(lambda: not folder.exists())
    assert fleet(there) == {}
    (run,) = there.context.store.runs(row.study_id)
    assert run.state.ended
    line = there.context.audit.page(there.root, action="request.delete")[0]
    assert line.details["cost"] == pytest.approx(run.cost)


def test_one_that_fails_with_its_machines_running_is_over_when_they_are_gone(
    there: World, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, broken = RequestProgressWriter.snapshot, [False]

    def snapshot(self: RequestProgressWriter, *given: Any) -> None:
        if broken[0]:
            raise RuntimeError("a mistake of ours")
        original(self, *given)

    monkeypatch.setattr(RequestProgressWriter, "snapshot", snapshot)
    with working(there.context):
        row = begun(there)
        provider.away = broken[0] = True
        check_waits(there, row, provider)
        provider.away = False
        ended = there.ended(row)
    assert ended.state == "failed"
    check_paid(there, ended, row.cost)


def test_the_next_worker_goes_on_with_it(there: World, provider: Provider) -> None:
    with working(there.context):
        row = begun(there)
        provider.away = True
        there.context.requests.cancel(there.ann, row.id)
        check_waits(there, row, provider)
    assert not there.get(row).over
    provider.away = False
    with working(there.context):
        ended = there.ended(row)
    assert ended.state == "cancelled"
    check_paid(there, ended, row.cost)
