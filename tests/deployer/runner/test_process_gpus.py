"""Runs of the process runner get GPUs of their own, or share one; those that find none free wait."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import OFFER, OWNER, process_runner, request_for
from tests.engines.gpus import have_amd, have_nvidia
from tests.waiting import eventually

from tradewind.deployer.runner.process import ProcessRunner
from tradewind.errors import DeployError
from tradewind.problem import Handle, Limits, RunRequest, RunState
from tradewind.testing.runners import wait_for_end as wait_for

SHOWS = 'echo "$CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES"; echo on >> "$0"; while [ ! -e "$1" ]; do sleep 0.02; done'


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessRunner]:
    have_nvidia(monkeypatch, tmp_path)
    made = process_runner(tmp_path)
    yield made
    for handle in made.find(OWNER):
        made.cancel(handle)
    made.close()


def request(tmp_path: Path, name: str, gpus: float | None = 1, **changes: Any) -> RunRequest:
    """A run that says which devices it sees, and ends when the file ``end-NAME`` is there."""
    words = ("sh", "-c", SHOWS, str(tmp_path / f"began-{name}"), str(tmp_path / f"end-{name}"))
    return replace(request_for(tmp_path, words, name, **changes), limits=Limits(gpus=gpus))


def sees(tmp_path: Path, name: str) -> str:
    eventually(lambda: (tmp_path / f"began-{name}").exists())
    return (tmp_path / "runs" / name / "stdout").read_text().strip()


def state(runner: ProcessRunner, handle: Handle) -> RunState:
    return runner.poll([handle])[handle.run_id].state


def test_a_device_of_its_own_and_the_third_run_waits(runner: ProcessRunner, tmp_path: Path) -> None:
    first, second, third = (runner.submit(request(tmp_path, name), ()) for name in ("a", "b", "c"))
    assert (sees(tmp_path, "a"), sees(tmp_path, "b")) == ("PCI_BUS_ID 0", "PCI_BUS_ID 1")
    assert state(runner, third) is RunState.SUBMITTING
    (tmp_path / "end-b").touch()
    assert wait_for(runner, second).state is RunState.DONE
    eventually(lambda: state(runner, third) is RunState.EXECUTING)
    assert sees(tmp_path, "c") == "PCI_BUS_ID 1"
    (tmp_path / "end-a").touch()
    assert wait_for(runner, first).state is RunState.DONE


def test_parts_share_one_and_leave_the_other_whole(runner: ProcessRunner, tmp_path: Path) -> None:
    for name, gpus in (("a", 0.5), ("b", 0.5), ("c", None)):
        offer = replace(OFFER, gpus=1) if gpus is None else OFFER
        runner.submit(request(tmp_path, name, gpus, offer=offer), ())
    assert [sees(tmp_path, name)[-1] for name in "abc"] == ["0", "0", "1"]


def test_the_devices_of_a_killed_warden_and_of_another_runner(runner: ProcessRunner, tmp_path: Path) -> None:
    held = runner.submit(request(tmp_path, "a", 2), ())
    assert sees(tmp_path, "a") == "PCI_BUS_ID 0,1"
    other = process_runner(tmp_path)
    waits = other.submit(request(tmp_path, "b"), ())
    assert state(other, waits) is RunState.SUBMITTING
    assert runner._warden is not None
    os.kill(runner._warden.pid, signal.SIGKILL)
    eventually(lambda: state(other, waits) is RunState.EXECUTING)
    assert wait_for(runner, held).state is RunState.PREEMPTED
    other.cancel(waits)
    wait_for(other, waits)
    other.close()


def test_one_that_waits_can_be_cancelled(runner: ProcessRunner, tmp_path: Path) -> None:
    runner.submit(request(tmp_path, "a", 2), ())
    waits = runner.submit(request(tmp_path, "b"), ())
    runner.cancel(waits, "nobody needs it")
    status = wait_for(runner, waits)
    assert (status.state, status.reason, status.runtime) == (RunState.CANCELLED, "nobody needs it", 0.0)
    assert not (tmp_path / "began-b").exists()


def test_more_than_there_are_is_refused_at_once(runner: ProcessRunner, tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="this machine has 2 GPUs"):
        runner.submit(request(tmp_path, "a", 3), ())
    with pytest.raises(DeployError, match=r"whole GPUs or a part of one, not 1\.5"):
        runner.submit(request(tmp_path, "a", 1.5), ())
    assert runner.refuses(replace(OFFER, gpus=2, nodes=2), given=False)
    assert not runner.refuses(replace(OFFER, gpus=2), given=False)
    assert [node["gpu"] for node in runner.nodes().values()] == [2.0]
    assert not runner.room(replace(OFFER, vcpu=0, gpus=1), [replace(OFFER, vcpu=0, gpus=2)])


def test_a_machine_without_any_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    have_nvidia(monkeypatch, tmp_path, 0)
    made = process_runner(tmp_path)
    assert not any("gpu" in node for node in made.nodes().values())
    with pytest.raises(DeployError, match="this machine has no GPU"):
        made.submit(request(tmp_path, "a"), ())
    made.close()


def test_the_variables_of_rocm(runner: ProcessRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpus" / "nvidia-smi").unlink()
    have_amd(monkeypatch, tmp_path)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "1")
    words = ("sh", "-c", 'echo "$ROCR_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES"')
    wait_for(runner, runner.submit(replace(request_for(tmp_path, words, "a"), limits=Limits(gpus=1)), ()))
    assert (tmp_path / "runs" / "a" / "stdout").read_text() == "1 0\n"
