"""Containers of this machine's own engine take slots of it, and keep them when who started them is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import OFFER, OWNER, process_runner
from tests.deployer.runner.docker.helpers import Make, ended_within, in_container, runners
from tests.engines.docker import DockerEngine, docker
from tests.waiting import eventually

from tradewind.deployer.runner import resource_limits
from tradewind.deployer.runner.docker.status import DockerData
from tradewind.deployer.runner.warden.slots import describe_slots
from tradewind.problem import RunRequest, RunState
from tradewind.testing.runners import wait_for_end
from tradewind.utils.paths import slots_folder

__all__ = ["docker"]

pytestmark = pytest.mark.xdist_group("docker")

ALL = replace(OFFER, vcpu=float(resource_limits.cpus_here()))
LASTS = ("sh", "-c", "while [ ! -e /tradewind/work/end-$0 ]; do sleep 0.05; done")


@pytest.fixture
def make(tmp_path: Path, docker: DockerEngine) -> Iterator[Make]:
    with runners(tmp_path, docker) as made:
        yield made


def request(tmp_path: Path, name: str, **changes: Any) -> RunRequest:
    """A run on all CPUs, until the file ``end-NAME`` is there; its study has its name."""
    given = {"offer": ALL, "env": {"TRADEWIND_STUDY": f"study-{name}"}, **changes}
    return in_container(tmp_path, (*LASTS, name), name, **given)


def used() -> str:
    return describe_slots(str(slots_folder()), os.sched_getaffinity(0))


def test_containers_and_processes_wait_for_each_other_and_say_for_whom(make: Make, tmp_path: Path) -> None:
    containers, processes = make(share=True), process_runner(tmp_path / "other", share=True)
    processes._folder.mkdir(parents=True)
    words = ("sh", "-c", f"while [ ! -e {tmp_path}/work/end-b ]; do sleep 0.02; done")
    first, second = request(tmp_path, "a"), replace(request(tmp_path, "b"), argv=words, image=None, owner="other")
    one, two = containers.submit(first, []), processes.submit(second, [])
    asked = request(tmp_path, "c")
    third = containers.submit(asked, [])
    here = resource_limits.cpus_here()
    assert processes.poll([two])["b"].reason == f"{here} of {here} CPUs are used by search study-a"
    assert containers.poll([third])["c"].state is RunState.SUBMITTING
    (tmp_path / "work" / "end-a").touch()
    assert ended_within(containers, one, 60).state is RunState.DONE
    eventually(lambda: processes.poll([two])["b"].state is RunState.EXECUTING)
    assert containers.poll([third])["c"].reason == f"{here} of {here} CPUs are used by search study-b"
    (tmp_path / "work" / "end-b").touch()
    assert wait_for_end(processes, two).state is RunState.DONE
    (tmp_path / "work" / "end-c").touch()
    assert ended_within(containers, third, 60).state is RunState.DONE
    expires = {found.run_id: DockerData.of(found).expires or 0.0 for found in containers.find(OWNER)}
    assert expires["c"] > asked.expires, "it counts from its beginning"
    containers.collect(third, asked)
    processes.close()


def test_each_container_has_cpus_of_its_own(make: Make, tmp_path: Path) -> None:
    if resource_limits.cpus_here() < 2:
        pytest.skip("this machine has one CPU")
    runner = make(share=True)
    told = "cat /sys/fs/cgroup/cpuset/cpuset.cpus /sys/fs/cgroup/cpuset.cpus.effective 2> /dev/null; "
    argv = ("sh", "-c", f"{told}while [ ! -e /tradewind/work/end ]; do sleep 0.05; done")
    asked = [replace(request(tmp_path, name, offer=OFFER), argv=argv) for name in "ab"]
    handles = [runner.submit(each, []) for each in asked]
    (tmp_path / "work" / "end").touch()
    for handle, each in zip(handles, asked, strict=True):
        assert ended_within(runner, handle, 60).state is RunState.DONE
        runner.collect(handle, each)
    assert len({(each.folder / "stdout").read_text() for each in asked}) == 2


def test_a_container_keeps_its_slot_when_its_search_is_killed(make: Make, docker: DockerEngine, tmp_path: Path) -> None:
    """Nobody has noted its end, and its first process holds the slot as long as it lives."""
    code = f"""
import time
from pathlib import Path
from tests.deployer.runner.docker.helpers import docker_runner
from tests.deployer.runner.docker.test_slots import request
folder = Path({str(tmp_path)!r})
made = docker_runner(folder, {docker.host!r}, share=True)
handles = [made.submit(request(folder, name), []) for name in "ab"]
print("both", flush=True)
time.sleep(600)
"""
    env = {**os.environ, "TRADEWIND_TEST_OWNER": OWNER}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "both\n"
        killed.kill()
    here = resource_limits.cpus_here()
    runner = make(share=True)
    waits = runner.submit(request(tmp_path, "c"), [])
    assert runner.poll([waits])["c"].reason == f"{here} of {here} CPUs are used by this search"
    assert used() == f"{here} of {here} CPUs are used by search study-a; 1 run waits"
    # Asked for again, as the next session does, it is found: it does not wait for itself.
    again = runner.submit(request(tmp_path, "a"), [])
    assert runner.poll([again])["a"].state is RunState.EXECUTING
    (tmp_path / "work" / "end-a").touch()
    eventually(lambda: runner.poll([again, waits])["c"].state is RunState.EXECUTING, 60)
    runner.cancel(waits)
    assert ended_within(runner, waits, 60).state is RunState.CANCELLED
    eventually(lambda: used() == "no run has any")


def test_what_waits_can_be_cancelled_and_a_program_that_is_missing_then_is_said(make: Make, tmp_path: Path) -> None:
    runner, other = make(share=True), make(share=True)
    first = runner.submit(request(tmp_path, "a"), [])
    wrong = replace(request(tmp_path, "b"), argv=("no-such-program",))
    second, third = runner.submit(wrong, []), other.submit(request(tmp_path, "c"), [])
    other.cancel(third, "nobody needs it")
    assert other.poll([third])["c"].reason == "nobody needs it"
    (tmp_path / "work" / "end-a").touch()
    assert ended_within(runner, first, 60).state is RunState.DONE
    status = ended_within(runner, second, 60)
    assert (status.state, status.exit_code) == (RunState.FAILED, 127)
    runner.collect(second, wrong)
    assert used() == "no run has any"
