"""Plans on machines that do not see the run's folder: files are sent, and the machines are given back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engines.hosts import Hosts, hosts
from tests.workflow.execution.plans import carry, flow_of, heft, history, plan_of, sh

from tradewind import plugins
from tradewind.problem import RunState
from tradewind.workflow.execution.events import ExecutionEnding
from tradewind.workflow.execution.machines.rows import FileRows
from tradewind.workflow.execution.options import ExecutionProgress
from tradewind.workflow.execution.pilots import PilotSettings
from tradewind.workflow.execution.task_states import RetryLimits
from tradewind.workflow.files import Plan
from tradewind.workflow.platform import Platform, Vm

pytestmark = pytest.mark.xdist_group("ssh")

__all__ = ["hosts"]

TERMS = PilotSettings(python=sys.executable, linger=10.0, poll_seconds=0.5, silence=10.0)


def source(
    hosts: Hosts, folder: Path, names: tuple[str, ...] = ("h1", "h2"), *, place: str = "/mnt/far", **settings: Any
) -> dict[str, Any]:
    """The parts that give some hosts, whose runs lie on a disk that only each host sees."""
    listed = [{"host": hosts.addresses[name], **hosts.facts} for name in names]
    data = folder / "data"
    return {
        "provisioner": plugins.create("provisioner", "none", {"hosts": listed}, data_folder=data),
        "runner": plugins.create("runner", "ssh", {"folder": place, **settings}, data_folder=data),
    }


def plan_on_both() -> Plan:
    """A file that two machines read, each writes one, and one of them puts these together."""
    script = "cat in/common > $0; hostname >> $0; cat ran/tool.sh | sh >> $0"
    first, second = (
        sh(name, script.replace("$0", f"out/{name}"), after="in/common ran/tool.sh", writes=f"out/{name}", runtime=5.0)
        for name in ("left", "right")
    )
    both = sh("both", "cat out/left out/right > total", after="out/left out/right", writes="total", runtime=1.0)
    flow, platform = flow_of(first, second, both), Platform((Vm("vm-1"), Vm("vm-2")))
    return Plan(flow, platform, heft().plan(flow, platform), "heft")


def inputs(folder: Path) -> Path:
    for name, text in (("in/common", "common\n"), ("ran/tool.sh", "echo tool\n")):
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "source" / name).write_text(text)
    return folder / "source"


def test_a_plan_on_hosts_that_share_no_folder(tmp_path: Path, hosts: Hosts) -> None:
    folder = tmp_path / "run"
    carried = carry(
        plan_on_both(), folder, terms=TERMS, inputs=inputs(tmp_path), isolated=True, **source(hosts, tmp_path)
    )
    assert carried.ending is ExecutionEnding.DONE, carried.failures
    words = (folder / "files/total").read_text().split()
    assert sorted(words) == ["common", "common", "h1", "h2", "tool", "tool"], "each on a host of its own"
    rows = FileRows(folder / "machines/.rows").saved_runs()
    assert [row.state for row in rows] == [RunState.DONE] * 2
    assert all(row.handle is not None and not row.machines for row in rows)
    assert [record["on"] for record in history(folder).pilot_sessions.values()] == []
    for name in ("h1", "h2"):
        assert hosts.is_empty(name, "/mnt/far/runs")


def carry_without_h1(
    folder: Path, hosts: Hosts, script: str, when: Callable[[ExecutionProgress], bool]
) -> Mapping[str, Any]:
    """Carry out two tasks on two hosts, of which one is gone from a moment on; the results."""
    run = folder / "run"
    cut: list[str] = []

    def watch(seen: ExecutionProgress) -> None:
        if not cut and when(seen):
            cut.append("h1")
            hosts.stop_sshd("h1")

    tasks = [sh(name, f"{script}hostname > {name}", writes=name, runtime=5.0) for name in "ab"]
    plan = plan_of(flow_of(*tasks), vms=2)
    terms = replace(TERMS, silence=1.0)
    try:
        carried = carry(plan, run, terms=terms, watch=watch, **source(hosts, folder, patience=1.0))
    finally:
        if cut:
            hosts.start_sshd("h1")
    assert cut
    assert carried.ending is ExecutionEnding.DONE, carried.failures
    assert [(run / "files" / name).read_text() for name in "ab"] == ["h2\n", "h2\n"]
    return carried.results


def test_a_machine_is_lost_and_what_it_has_not_brought_runs_again(tmp_path: Path, hosts: Hosts) -> None:
    results = carry_without_h1(tmp_path, hosts, "sleep 1; ", lambda seen: seen.running == 2)
    assert len(results["machines_lost"]) == 1


def test_a_machine_is_lost_before_its_first_task(tmp_path: Path, hosts: Hosts) -> None:
    results = carry_without_h1(tmp_path, hosts, "", lambda seen: seen.up == 0)
    (lost,) = results["machines_lost"]
    assert lost["reason"].count("\n") == 0


def test_a_full_disk_of_a_machine_is_one_line(tmp_path: Path, hosts: Hosts) -> None:
    small = "mkdir -p /mnt/small && mount -t tmpfs -o size=1m none /mnt/small"
    assert hosts.run("h3", ["sh", "-c", small]).returncode == 0
    (tmp_path / "big").write_bytes(bytes(3_000_000))
    plan = plan_of(flow_of(sh("reads", "wc -c < big > size", after="big", writes="size")), vms=1)
    there = source(hosts, tmp_path, ("h3",), place="/mnt/small/far")
    carried = carry(plan, tmp_path / "run", terms=TERMS, retry_limits=RetryLimits(retries=0), **there)
    assert carried.ending is ExecutionEnding.FAILED
    assert carried.failures == {"reads": "the disk of vm-1 is full: there is no room for big"}
    assert hosts.is_empty("h3", "/mnt/small/far/runs")
