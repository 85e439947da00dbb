"""The docker runner against Podman's socket, where its answers are known to differ from Docker's."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import OFFER, OWNER
from tests.deployer.runner.docker.helpers import code, docker_runner, ended_within, in_container
from tests.engines.podman import podman  # noqa: F401  (a fixture)

from tradewind.deployer.runner import resource_limits
from tradewind.deployer.runner.warden.slots import describe_slots
from tradewind.errors import MissingProgramError
from tradewind.problem import Fault, RunState
from tradewind.utils.paths import slots_folder

pytestmark = pytest.mark.xdist_group("podman")


@pytest.mark.slow
def test_runs_end_as_they_do_with_docker(tmp_path: Path, podman: str) -> None:  # noqa: F811
    runner = docker_runner(tmp_path, podman)
    cases: dict[str, tuple[Any, ...]] = {
        "good": (("sh", "-c", "echo hello; echo oops >&2; touch made"), {}, (RunState.DONE, None), ""),
        "bad": (("sh", "-c", "exit 3"), {}, (RunState.FAILED, Fault.JOB), "code 3"),
        "hog": (code("x = b'x' * (200 << 20)"), {"memory": 64 << 20}, (RunState.FAILED, Fault.JOB), "memory"),
        "late": (("sleep", "60"), {"wall": 1.0}, (RunState.TIMED_OUT, Fault.JOB), "limit"),
    }
    for name, (words, limits, wanted, reason) in cases.items():
        request = in_container(tmp_path, words, name, **limits)
        handle = runner.submit(request, [])
        assert runner.submit(request, []).run_id == name
        status = ended_within(runner, handle, 60)
        assert (status.state, status.fault) == wanted, (name, status)
        assert reason in status.reason
        runner.collect(handle, request)
    assert (tmp_path / "runs" / "good" / "stdout").read_text() == "hello\n"
    assert (tmp_path / "runs" / "good" / "stderr").read_text() == "oops\n"
    assert (tmp_path / "work" / "made").exists()
    with pytest.raises(MissingProgramError, match="no-such-program"):
        runner.submit(in_container(tmp_path, ("no-such-program",), "none"), [])
    cancelled = runner.submit(in_container(tmp_path, ("sleep", "60"), "cancelled"), [])
    other = docker_runner(tmp_path, podman)
    assert {handle.run_id for handle in other.find(OWNER)} == {*cases, "cancelled"}
    other.cancel(cancelled)
    assert ended_within(other, cancelled, 30).state is RunState.CANCELLED
    for handle in other.find(OWNER):
        other.forget(handle)
    assert other.find(OWNER) == []
    for each in (runner, other):
        each.close()


@pytest.mark.slow
def test_its_containers_take_slots_of_this_machine_and_keep_them(tmp_path: Path, podman: str) -> None:  # noqa: F811
    """Whoever has started one leaves it, as a process that is killed does: its first process holds the slot then."""
    everything = replace(OFFER, vcpu=float(resource_limits.cpus_here()))
    folder, cpus = str(slots_folder()), os.sched_getaffinity(0)
    runner, other = (docker_runner(tmp_path, podman, share=True) for _ in range(2))
    words = ("sh", "-c", "cat /proc/self/status; while [ ! -e end ]; do sleep 0.05; done")
    asked = in_container(tmp_path, words, "lasts", offer=everything)
    runner.submit(asked, [])
    runner.close()
    waits = other.submit(in_container(tmp_path, ("true",), "waits", offer=everything), [])
    assert other.poll([waits])["waits"].state is RunState.SUBMITTING
    assert "1 run waits" in describe_slots(folder, cpus)
    (tmp_path / "work" / "end").touch()
    assert ended_within(other, waits, 60).state is RunState.DONE
    for handle in other.find(OWNER):
        other.forget(handle)
    other.close()
    assert describe_slots(folder, cpus) == "no run has any"
