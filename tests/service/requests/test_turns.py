"""Turns of requests: the allocator of shared clusters decides, tenants get their shares of a server's time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.service.requests.turns import RequestTurns
from tradewind.store.service.request_values import TenantQueueState


def served(weights: Mapping[str, float], seconds: Mapping[str, float], turns: int, places: int = 1) -> dict[str, float]:
    """Seconds for which requests of each tenant are carried out, where everybody always has some that wait."""
    now, numbers, found = 0.0, Counter[str](), Counter[str]()
    order, running = RequestTurns(places, lambda: now), list[tuple[float, int, str]]()
    first = {name: index * 10_000 for index, name in enumerate(weights)}
    for _ in range(turns):
        if len(running) == places:
            running.sort()
            now, number, _ = running.pop(0)
            order.end(number)
        lines = [TenantQueueState(name, first[name] + numbers[name], weight=weight) for name, weight in weights.items()]
        chosen = order.choose(lines)
        assert chosen is not None
        name = next(line.tenant for line in lines if line.first == chosen[0])
        order.begin(chosen[0], name)
        running.append((now + seconds[name], chosen[0], name))
        numbers[name] += 1
        found[name] += seconds[name]  # type: ignore[assignment]
    return dict(found)


def test_tenants_take_turns_even_on_one_place() -> None:
    assert served({"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0}, 10) == {"a": 5, "b": 5}


@pytest.mark.parametrize("places", [1, 4])
@pytest.mark.parametrize("longer", [1.0, 4.0])
def test_tenants_are_served_by_their_weights_in_time_whatever_their_requests_take(places: int, longer: float) -> None:
    found = served({"a": 3.0, "b": 1.0}, {"a": longer, "b": 1.0}, 200, places)
    assert found["a"] / sum(found.values()) == pytest.approx(0.75, abs=0.06)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=2))
def test_nobody_starves(weights: dict[str, float]) -> None:
    assert set(served(weights, dict.fromkeys(weights, 1.0), 60)) == set(weights)


def test_who_was_away_has_nothing_saved_up() -> None:
    now = 0.0
    order = RequestTurns(1, lambda: now)
    for number in range(10):
        assert order.choose([TenantQueueState("a", number)]) == (number, 0.0)
        order.begin(number, "a")
        now += 1.0
        order.end(number)
    picked: list[int] = []
    for n in range(6):
        waiting = [TenantQueueState("a", 100 + n), TenantQueueState("b", 200 + n)]
        chosen = order.choose(waiting)
        assert chosen is not None
        order.begin(chosen[0], "a" if chosen[0] < 200 else "b")
        now += 1.0
        order.end(chosen[0])
        picked.append(chosen[0])
    assert sum(number >= 200 for number in picked) == 3


def test_who_has_to_wait_holds_up_nobody() -> None:
    full = TenantQueueState("a", 1, quota={"requests": 1}, running=1)
    assert RequestTurns(1).choose([full, TenantQueueState("b", 2)]) == (2, 0.0)
    assert RequestTurns(1).choose([full]) is None


def test_a_request_that_was_chosen_and_is_gone_keeps_no_place() -> None:
    order = RequestTurns(1)
    assert order.choose([TenantQueueState("a", 1)]) == (1, 0.0)
    assert order.choose([TenantQueueState("a", 1)]) == (1, 0.0)
    assert order.choose([TenantQueueState("b", 2)]) == (2, 0.0)


def test_a_turn_that_nobody_used_while_nothing_waited_is_not_counted() -> None:
    now = 0.0
    order = RequestTurns(2, lambda: now)
    for number, tenant, seconds in ((1, "a", 50.0), (2, "b", 60.0)):
        assert order.choose([TenantQueueState(tenant, number)]) == (number, 0.0)
        order.begin(number, tenant)
        order.rest()
        now += seconds
        order.end(number)
    order.begin(3, "c")  # which leaves one place
    assert order.choose([TenantQueueState("b", 4), TenantQueueState("a", 5)]) == (5, 0.0)


def test_what_a_dead_process_left_takes_a_place_without_a_turn() -> None:
    order = RequestTurns(1)
    order.begin(7, "a")
    assert order.choose([TenantQueueState("b", 8)]) is None
    order.end(7)
    assert order.choose([TenantQueueState("b", 8)]) == (8, 0.0)


def test_what_goes_to_a_cluster_takes_no_place_here() -> None:
    order = RequestTurns(1)
    order.begin(7, "a")
    assert order.choose([TenantQueueState("b", 8, cluster="lab", plan={"dollars": 3.0})]) == (8, 3.0)
