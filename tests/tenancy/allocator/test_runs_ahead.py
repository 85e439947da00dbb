"""Runs of mixed sizes that go ahead into an engine's queue: within quotas, and so many for each node at most."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tenancy.allocators import policy

from tradewind.tenancy import events as ev
from tradewind.tenancy.allocator import Allocator

_NODES = {"small": {"cpu": 2.0, "memory": 4.0}, "b": {"cpu": 4.0, "memory": 4.0}, "large": {"cpu": 8.0, "memory": 32.0}}
_QUOTAS = {"A": {}, "B": {"cpu": 6.0}, "C": {"memory": 9.0}}
_SIZES = st.tuples(st.sampled_from([0.5, 1.0, 2.0, 3.0, 8.0]), st.sampled_from([0.5, 2.0, 4.0, 30.0]))
_ASKED, _ENDED, _WITHDRAWN, _PAUSED, _RESUMED, _TICK = range(6)
_STEPS = st.tuples(
    st.sampled_from([_ASKED] * 6 + [_ENDED] * 4 + [_WITHDRAWN, _PAUSED, _RESUMED, _TICK]), st.integers(0, 30), _SIZES
)


class _Engine:
    """Starts what it is told to, and checks each start and each state against what the policy allows."""

    def __init__(self, ahead: int) -> None:
        self.count = ahead
        self.allocator = Allocator(policy(more={"ahead": ahead, "patience": 2.0}))
        self.placed: dict[str, tuple[str, str, tuple[float, float]]] = {}  # request -> tenant, node, demand
        self.asked: dict[str, tuple[str, tuple[float, float]]] = {}
        self.feed(*(ev.NodeJoined(node, capacity) for node, capacity in _NODES.items()))
        self.feed(*(ev.TenantSet(tenant, quota=quota) for tenant, quota in _QUOTAS.items()))
        self.feed(*(ev.JobSubmitted(tenant.lower(), tenant) for tenant in _QUOTAS))

    def feed(self, *events: ev.AllocatorEvent, now: float = 0.0) -> None:
        for each in self.allocator.handle_all(events, now):
            match each:
                case ev.StartRun(request, job, node):
                    self.start(request, job.upper(), node)
                case ev.RequestRefused(request, _, _):
                    del self.asked[request]

    def used(self, place: int, name: str) -> list[float]:
        """CPUs and memory of what is placed, of a tenant (0) or on a node (1)."""
        demands = [each[2] for each in self.placed.values() if each[place] == name]
        return [sum(column) for column in zip((0.0, 0.0), *demands, strict=True)]

    def start(self, request: str, tenant: str, node: str) -> None:
        _, demand = self.asked.pop(request)
        self.placed[request] = (tenant, node, demand)
        assert _fits(demand, _NODES[node]), "it can begin there once the node is empty"
        assert _fits(self.used(0, tenant), _QUOTAS[tenant])
        before = [have - each for have, each in zip(self.used(1, node), demand, strict=True)]
        room = [_NODES[node][kind] + self.count * each for kind, each in zip(("cpu", "memory"), demand, strict=True)]
        assert all(b + d <= r + 1e-9 for b, d, r in zip(before, demand, room, strict=True)), "so many wait at most"

    def check(self) -> None:
        found = {each.id: each.node for each in self.allocator.requests.values() if each.node is not None}
        assert found == {request: node for request, (_, node, _) in self.placed.items()}
        for tenant, view in self.allocator.tenants.items():
            assert view.used[:2] == pytest.approx(self.used(0, tenant))


def _fits(amounts: tuple[float, float] | list[float], limits: dict[str, float]) -> bool:
    return all(
        amount <= limits.get(kind, float("inf")) + 1e-9 for kind, amount in zip(("cpu", "memory"), amounts, strict=True)
    )


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.integers(0, 3), st.lists(_STEPS, max_size=60))
def test_what_goes_ahead_keeps_to_quotas_and_to_the_number(
    ahead: int, steps: list[tuple[int, int, tuple[float, float]]]
) -> None:
    engine = _Engine(ahead)
    for moment, (what, which, demand) in enumerate(steps, 1):
        job = "abc"[which % 3]
        placed = sorted(engine.placed)
        event: ev.AllocatorEvent = ev.AllocatorTick()
        if what == _ASKED:
            engine.asked[f"r{moment}"] = (job.upper(), demand)
            event = ev.RequestMade(job, f"r{moment}", {"cpu": demand[0], "memory": demand[1]})
        elif what == _ENDED and placed:
            del engine.placed[placed[which % len(placed)]]
            event = ev.RequestEnded(placed[which % len(placed)])
        elif what == _WITHDRAWN and engine.asked:
            gone = sorted(engine.asked)[which % len(engine.asked)]
            del engine.asked[gone]
            event = ev.RequestWithdrawn(gone)
        elif what in (_PAUSED, _RESUMED):
            event = ev.JobPaused(job) if what == _PAUSED else ev.JobResumed(job)
        engine.feed(event, now=float(moment))
        engine.check()
    # In the end everything that any node could hold has had its turn: nothing that waits ahead keeps it out for ever.
    engine.feed(*(ev.JobResumed(job) for job in "abc"), now=100.0)
    for moment in range(200):
        if not engine.placed:
            break
        request = min(engine.placed)
        del engine.placed[request]
        engine.feed(ev.RequestEnded(request), now=101.0 + moment)
        engine.check()
    engine.feed(ev.AllocatorTick(), now=400.0)
    could = [
        request
        for request, (tenant, demand) in engine.asked.items()
        if any(_fits(demand, node) for node in _NODES.values()) and _fits(demand, _QUOTAS[tenant])
    ]
    blocked = {tenant for tenant, demand in engine.asked.values() if not any(_fits(demand, n) for n in _NODES.values())}
    # A run that no node could hold waits for a larger one, and the later ones of its search behind it.
    assert all(engine.asked[request][0] in blocked for request in could)
