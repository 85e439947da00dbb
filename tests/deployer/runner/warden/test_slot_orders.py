"""Orders for slots of this machine: whose they are, and when it is worth asking again."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.deployer.helpers import request_for

from tradewind.deployer.runner.warden.slot_orders import FreedSlots, slot_order
from tradewind.deployer.runner.warden.slots import FREED
from tradewind.problem import TenantShare


@pytest.mark.parametrize(
    ("tenant", "noted"), [(None, ("default", None)), (TenantShare("physics", 3.0), ("physics", 3.0))]
)
def test_an_order_says_whose_it_is(tmp_path: Path, tenant: TenantShare | None, noted: tuple[str, float | None]) -> None:
    order = slot_order(replace(request_for(tmp_path, ("true",)), tenant=tenant), tmp_path, share=True)
    assert order is not None
    assert (order["tenant"], order["weight"]) == noted


def test_slots_are_asked_for_again_when_one_is_free_or_a_turn_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, freed = [1000.0], FreedSlots()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert freed.due(tmp_path)
    freed.ask_again(0.0)
    assert not freed.due(tmp_path)
    freed.ask_again(0.5)
    freed.ask_again(0.2)
    freed.ask_again(0.8)
    now[0] += 0.1
    assert not freed.due(tmp_path)
    now[0] += 0.1
    assert freed.due(tmp_path)
    now[0] += 0.5
    assert not freed.due(tmp_path)
    (tmp_path / FREED).touch()
    os.utime(tmp_path / FREED, ns=(1, 1))
    assert freed.due(tmp_path)
    assert not freed.due(tmp_path)
    now[0] += 1.0
    assert freed.due(tmp_path)
