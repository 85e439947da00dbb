"""Containers that wait for a slot of this machine, without an engine: what is asked for again, and what is left."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

from tradewind.deployer.runner import procfs
from tradewind.deployer.runner.docker.queue import ContainerQueue
from tradewind.deployer.runner.warden.slots import Slot, SlotRegistry, describe_slots
from tradewind.errors import DeployError
from tradewind.problem import Handle

SILENT = DeployError("the engine does not answer")


def wants(folder: Path) -> dict[str, Any]:
    """All CPUs of this machine."""
    nothing = {"memory": 0, "memory_here": 1, "device": 0, "devices_here": [], "group": ""}
    cpus = len(os.sched_getaffinity(0))
    return {"folder": str(folder / "registry"), "cpu": cpus, "search": "s", "name": "s", **nothing}


def used(folder: Path) -> bool:
    return "used by search s" in describe_slots(str(folder / "registry"), os.sched_getaffinity(0))


def started(slot: Slot) -> Handle:
    return Handle("a", "docker", {})


@pytest.fixture
def containers(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """The containers that have processes, each with the first one."""
    found: dict[str, tuple[int, int]] = {}
    monkeypatch.setattr(procfs, "first_process_of", found.get)
    return found


def me() -> tuple[int, int]:
    seen = procfs.stat(os.getpid())
    assert seen is not None
    return os.getpid(), seen.ticks


def test_one_that_may_have_been_started_keeps_its_slot_and_is_found(
    tmp_path: Path, containers: dict[str, tuple[int, int]]
) -> None:
    queue = ContainerQueue(lambda: None)

    def silent(slot: Slot) -> Handle:
        queue.note_container("a", "c1")
        containers["c1"] = me()
        raise SILENT

    with pytest.raises(DeployError):
        queue.enter("a", wants(tmp_path), silent)
    assert used(tmp_path)
    assert queue.enter("b", {**wants(tmp_path), "search": "t"}, started) is None, "it waits"
    assert queue.enter("a", wants(tmp_path), started) is not None, "it does not wait for itself"
    queue.close()
    assert used(tmp_path), "its container has it"
    containers.clear()
    assert queue.enter("c", wants(tmp_path), started) is None, "it was asked for a moment ago"
    queue.close()


def test_one_that_was_never_asked_for_has_no_slot(tmp_path: Path, containers: dict[str, tuple[int, int]]) -> None:
    queue = ContainerQueue(lambda: None)

    def silent(slot: Slot) -> Handle:
        raise SILENT

    with pytest.raises(DeployError):
        queue.enter("a", wants(tmp_path), silent)
    assert not used(tmp_path)


def test_what_is_cancelled_while_the_engine_does_not_answer_is_not_started_again(tmp_path: Path) -> None:
    held = SlotRegistry.of_this_process()
    held.take("other", wants(tmp_path), os.sched_getaffinity(0))
    queue, asked, answer = ContainerQueue(lambda: None), list[Slot](), threading.Event()
    queue._freed.due = lambda registry: True  # type: ignore[method-assign]

    def silent(slot: Slot) -> Handle:
        asked.append(slot)
        answer.wait()
        raise SILENT

    assert queue.enter("a", wants(tmp_path), silent) is None
    held.give_back("other")
    queue.advance()
    eventually(lambda: len(asked) == 1)
    queue._wake = queue.advance  # whoever is woken asks at once, before the one that cancels goes on
    cancelled = list[bool]()
    ending = threading.Thread(target=lambda: cancelled.append(queue.cancel("a", "nobody needs it")))
    ending.start()
    eventually(lambda: queue._waiting["a"].cancelled)
    answer.set()
    ending.join()
    assert cancelled == [False], "the engine may have it"
    queue.advance()
    assert len(asked) == 1
    assert not used(tmp_path)


def test_one_whose_registry_is_gone_is_left_all_the_same(
    tmp_path: Path, containers: dict[str, tuple[int, int]]
) -> None:
    queue = ContainerQueue(lambda: None)
    assert queue.enter("a", wants(tmp_path), started) is not None
    shutil.rmtree(tmp_path / "registry")
    queue.close()
    assert not used(tmp_path)
