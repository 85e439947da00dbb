"""The status of a run from its records in a Ray cluster's store, without Ray."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import foreign_program

from tradewind.deployer.runner.ray import node_executor
from tradewind.deployer.runner.ray.node_executor import NodeRun
from tradewind.deployer.runner.ray.status import status_of
from tradewind.problem import Fault, Handle, RunState


@pytest.mark.parametrize(
    ("number", "foreign", "fault", "code", "words"),
    [
        (errno.ENOEXEC, True, Fault.ARCHITECTURE, 126, "./prog is for another processor architecture"),
        (errno.ENOEXEC, False, Fault.JOB, 127, "Exec format error"),
        (errno.ENOENT, True, Fault.JOB, 127, "there is no program './prog'"),
    ],
)
def test_a_node_says_why_it_cannot_start_a_program(
    tmp_path: Path, number: int, foreign: bool, fault: Fault, code: int, words: str
) -> None:
    order: dict[str, Any] = {"space": "s", "key": "k", "scratch": str(tmp_path), "lasts": 60.0}
    order["warden"] = {"argv": ["./prog"]}
    run = NodeRun(order)
    work = run._folder() / "work"
    work.mkdir()
    if foreign:
        foreign_program(work / "prog")
    else:
        (work / "prog").write_text("echo a script without its first line")
    end = run._refused({"event": "refused", "kind": "missing", "errno": number})
    status = status_of(Handle("run-1", "ray", {}), {"state": None, "live": False, "end": end, "cancel": None})
    assert (status.state, status.fault, status.exit_code) == (RunState.FAILED, fault, code)
    assert words in status.reason


def test_a_run_on_several_machines_takes_its_part_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    slot = {"folder": "f", "cpu": 8.0, "memory": 4000, "device": 0.0}
    order = {"space": "s", "key": "k", "slot": slot, "origin": node_executor.origin()}
    monkeypatch.setattr(node_executor, "_addresses", lambda order: ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.1"])
    taken = NodeRun(order)._slot({})
    assert (taken["cpu"], taken["memory"]) == (4.0, 2000)
    assert (slot["cpu"], slot["memory"]) == (8.0, 4000), "it is asked for again"
    assert NodeRun({**order, "origin": ["another boot", 1, 0]})._slot({}) == {}, (
        "the slots of this machine are no affair"
    )
