"""Machines of a workflow, and what is no set of them."""

from __future__ import annotations

import time

import pytest

from tradewind.errors import WorkflowError
from tradewind.workflow.platform import Platform, Vm


def test_two_machines_of_one_name() -> None:
    with pytest.raises(WorkflowError, match="two machines are called 'b'"):
        Platform((Vm("a"), Vm("b"), Vm("c"), Vm("b")))


def test_many_machines_are_a_platform_at_once() -> None:
    vms = tuple(Vm(f"vm{place}") for place in range(20_000))
    begin = time.process_time()
    assert len(Platform(vms).vms) == 20_000
    assert time.process_time() - begin < 1.0  # comparing each with each takes several seconds
