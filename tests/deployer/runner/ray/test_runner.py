"""The Ray runner, on a real cluster."""

from __future__ import annotations

import io
import json
import os
import random
import re
import signal
import tarfile
import time
import uuid
import zlib
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.deployer.continued import assert_goes_on
from tests.deployer.forks import controllers
from tests.deployer.helpers import OWNER, deployer_over, request_for, row
from tests.engines.ray import ENVIRONMENT, RayCluster, ray_cluster
from tests.examples.shortened import assert_searched, shortened
from tests.waiting import eventually

from tradewind.deployer.runner import procfs, resource_limits
from tradewind.deployer.runner.ray import driver as ray_driver
from tradewind.deployer.runner.ray import driver_client as ray_driver_client
from tradewind.deployer.runner.ray import runner as ray_runner
from tradewind.deployer.runner.ray.node_files import packed
from tradewind.deployer.runner.ray.runner import RayRunner, RaySettings
from tradewind.deployer.runner.warden.slots import SlotRegistry, describe_slots
from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    MissingProgramError,
    PrerequisiteError,
    TradewindError,
    UnreachableError,
)
from tradewind.problem import Fault, Handle, RunRequest, RunState
from tradewind.testing.runners import (
    ALIVE,
    OWNER_A,
    RunnerBench,
    RunnerConformance,
    poll_until,
    processes_of,
    wait_for_end,
)
from tradewind.utils.paths import slots_folder

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(300)]
__all__ = ["ray_cluster"]


class RayBench(RunnerBench):
    wall_seconds = 0.3

    def __init__(self, folder: Path, cluster: RayCluster) -> None:
        super().__init__(folder)
        self.cluster = cluster
        # The cluster is one for all tests, and so are their run ids.
        self.namespace = f"tradewind-{uuid.uuid4().hex}"

    def make(self, **given: Any) -> RayRunner:
        settings: dict[str, Any] = {"address": self.cluster.address, "scratch": str(self.folder / "scratch")}
        settings |= {"namespace": self.namespace, "share": False, **given}
        return RayRunner(settings=RaySettings(**settings), data_folder=self.folder / "data")

    def count(self, request: RunRequest) -> int:
        return sum(path.read_text().count("ran\n") for path in self.folder.glob("scratch/*/work/count"))


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")


class TestConformance(RunnerConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path, ray_cluster: RayCluster) -> Iterator[RunnerBench]:
        bench = RayBench(tmp_path, ray_cluster)
        yield bench
        bench.close()


@pytest.fixture(autouse=True, scope="module")
def _one_helper(ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps the helper process from one test to the next; starting it takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        settings = RaySettings(address=ray_cluster.address, namespace="nobody")
        runner = RayRunner(settings=settings, data_folder=tmp_path_factory.mktemp("ray"))
        assert runner.find(None) == []
        yield
        runner.close()


@pytest.fixture
def bench(tmp_path: Path, ray_cluster: RayCluster) -> Iterator[RayBench]:
    bench = RayBench(tmp_path, ray_cluster)
    yield bench
    bench.close()


def shell(bench: RayBench, script: str, run_id: str = "run-1", **changes: Any) -> RunRequest:
    return replace(bench.request("good", run_id), argv=("sh", "-c", script), **changes)


def test_files_go_there_and_come_back(bench: RayBench) -> None:
    request = shell(
        bench,
        "cat given data/large | wc -c; cat $TRADEWIND_INPUTS/part; echo oops >&2; echo $TRADEWIND_PARAM_KIND $COLOUR;"
        " mkdir kept; echo a > kept/a; ln -s /etc/passwd kept/b; echo c > $TRADEWIND_OUTPUTS/c; echo d > left;"
        ' echo "{}" > $TRADEWIND_METRICS; echo $RAY_ADDRESS',
        env={"COLOUR": "blue"},
        inputs=("part",),
        outputs=("kept",),
    )
    (request.workdir / "given").write_text("12345")
    (request.workdir / "data").mkdir()
    (request.workdir / "data" / "large").write_bytes(os.urandom(5_000_000))
    (request.folder / "inputs").mkdir(parents=True)
    (request.folder / "inputs" / "part").write_text("part of it\n")
    runner = bench.runner()
    handle = bench.submit(runner, request)
    assert wait_for_end(runner, handle).state is RunState.DONE
    runner.collect(handle, request)
    said = (request.folder / "stdout").read_text().splitlines()
    assert said[:3] == ["5000005", "part of it", "good blue"]
    assert said[3].endswith(f":{bench.cluster.port}")  # the job may use the cluster itself
    assert (request.folder / "stderr").read_text() == "oops\n"
    assert (request.folder / "metrics.jsonl").read_text() == "{}\n"
    kept = {p.relative_to(request.folder / "outputs").as_posix() for p in (request.folder / "outputs").rglob("*")}
    assert kept == {"c", "kept", "kept/a"}
    assert not (request.workdir / "kept").exists()
    runner.forget(handle)
    # What is left is for the next run.
    eventually(lambda: names_of_scratch(bench) == {"bundles", "code"})
    assert runner.find(None) == []


def names_of_scratch(bench: RayBench) -> set[str]:
    return {path.name.removeprefix("tradewind-ray-").partition("-")[0] for path in bench.folder.glob("scratch/*")}


def test_the_next_run_begins_in_the_process_of_the_one_before(bench: RayBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing of the one before reaches it."""
    monkeypatch.setenv("MY_TOKEN", "hush-4712")
    runner = bench.make(resources={"one": 1})
    wardens = set()
    for number, secrets in enumerate(({"TOKEN": "env:MY_TOKEN"}, {}, {})):
        request = shell(bench, "echo $PPID; env", f"run-{number}", secrets=secrets, env={f"ONLY_{number}": "x"})
        handle = bench.submit(runner, request)
        assert wait_for_end(runner, handle).state is RunState.DONE
        runner.collect(handle, request)
        warden, *environment = (request.folder / "stdout").read_text().splitlines()
        wardens.add(warden)
        assert ("TOKEN=hush-4712" in environment) == bool(secrets)
        assert [each for each in environment if each.startswith("ONLY_")] == [f"ONLY_{number}=x"]
        runner.forget(handle)
    # Ray ends a process that has waited for long, as it may seem to it where the machine stood still.
    assert len(wardens) < 3
    runner.close()


def test_a_log_is_read_after_the_end_and_much_output_comes_too(bench: RayBench) -> None:
    runner = bench.make()
    request = shell(bench, "echo one; head -c 3000000 /dev/urandom > $TRADEWIND_OUTPUTS/much")
    handle = bench.submit(runner, request)
    assert wait_for_end(runner, handle).state is RunState.DONE
    assert runner.read_log(handle, "stdout", 1) == b"ne\n"
    runner.collect(handle, request)
    assert (request.folder / "outputs" / "much").stat().st_size == 3_000_000
    runner.forget(handle)
    eventually(lambda: names_of_scratch(bench) == {"bundles", "code"})
    runner.close()


def test_what_is_packed_is_little_and_inside_the_folder(tmp_path: Path) -> None:
    for name in ("work", "outputs"):
        (tmp_path / name).mkdir()
    (tmp_path / "stdout").write_text("said")
    (tmp_path / "work" / "kept").write_text("kept")
    (tmp_path / "work" / "left").write_text("left")
    (tmp_path / "outputs" / "link").symlink_to("/etc/passwd")
    content = zlib.decompress(packed(tmp_path, ["kept"], 100))
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert sorted(tar.getnames()) == ["outputs/kept", "stdout"]
    assert packed(tmp_path, ["kept"], 7) == b""
    (tmp_path / "outputs" / "much").write_bytes(bytes(300_000))
    assert packed(tmp_path, ["kept"], 10**9) == b""


@pytest.mark.slow
def test_the_supervisor_goes_when_there_is_nothing_to_do_and_comes_again(bench: RayBench) -> None:
    runner = bench.make(keep_seconds=0.5)
    assert wait_for_end(runner, bench.submit(runner, bench.request("good"))).state is RunState.DONE
    eventually(lambda: not bench.cluster.processes("ray::SupervisorActor"))
    assert wait_for_end(runner, bench.submit(runner, bench.request("good", "run-2"))).state is RunState.DONE
    runner.close()


@pytest.mark.slow
def test_a_run_has_an_actor_of_its_own_where_it_is_wanted(bench: RayBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hush")
    runner = bench.make(actors=True)
    request = shell(bench, "test $TOKEN = hush", secrets={"TOKEN": "env:MY_TOKEN"})
    assert wait_for_end(runner, bench.submit(runner, request)).state is RunState.DONE
    handle = bench.submit(runner, bench.request("long", "run-2"))
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    runner.cancel(handle)
    assert wait_for_end(runner, handle).state is RunState.CANCELLED
    eventually(lambda: not processes_of("run-2"))
    runner.close()


@pytest.mark.slow
def test_outputs_beyond_the_limit_are_one_clear_error(bench: RayBench) -> None:
    runner = bench.make(output_bytes=1000)
    request = shell(bench, "head -c 2000 /dev/zero > $TRADEWIND_OUTPUTS/zeros")
    handle = bench.submit(runner, request)
    assert wait_for_end(runner, handle).state is RunState.DONE
    with pytest.raises(DeployError, match="output_bytes") as caught:
        runner.collect(handle, request)
    assert not caught.value.retryable
    runner.close()


def test_secrets_reach_the_job_only(bench: RayBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hush-4711")
    runner = bench.make()
    request = shell(bench, "test $TOKEN = hush-4711; sleep 60", secrets={"TOKEN": "env:MY_TOKEN"})
    handle = bench.submit(runner, request)
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    assert "hush-4711" not in json.dumps(handle.to_json())
    [found] = runner.find(OWNER_A)
    assert request.expires <= found.data["expires"] < request.expires + 60
    assert "hush-4711" not in json.dumps(found.to_json())
    for path in bench.folder.rglob("*"):
        assert not path.is_file() or b"hush-4711" not in path.read_bytes(), path
    runner.cancel(handle)
    assert wait_for_end(runner, handle).state is RunState.CANCELLED
    runner.close()


def _without_values(runner: RayRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a runner die, as it were, between making a run and sending it its secrets."""
    whole = runner._call

    def call(op: str, **given: Any) -> Any:
        if op == "submit":
            given["order"]["values"] = {}
        return whole(op, **given)

    monkeypatch.setattr(runner, "_call", call)


@pytest.mark.slow
def test_secrets_come_late_when_the_submitting_process_died(bench: RayBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hush")
    runner = bench.make()
    _without_values(runner, monkeypatch)
    request = shell(bench, "test $TOKEN = hush", secrets={"TOKEN": "env:MY_TOKEN"})
    assert wait_for_end(runner, bench.submit(runner, request)).state is RunState.DONE
    runner.close()


def test_who_only_looks_tells_no_secrets(bench: RayBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user who lists all runs has values of his own under the same names."""
    monkeypatch.setenv("MY_TOKEN", "right")
    mine, other = bench.make(), bench.make()
    _without_values(mine, monkeypatch)
    bench.submit(mine, shell(bench, 'test "$TOKEN" = right', secrets={"TOKEN": "env:MY_TOKEN"}))
    keys = {"run-1": f"{OWNER_A}/run-1"}
    eventually(lambda: (other._call("poll", seconds=10, keys=keys)["run-1"]["state"] or {}).get("state") == "waiting")
    monkeypatch.setenv("MY_TOKEN", "wrong")
    theirs = other.find(None)
    assert [each.run_id for each in theirs] == ["run-1"]
    for _ in range(3):
        assert other.poll(theirs)["run-1"].state is RunState.SUBMITTING
        time.sleep(0.2)
    monkeypatch.setenv("MY_TOKEN", "right")
    [again] = mine.find(OWNER_A)
    assert wait_for_end(mine, again).state is RunState.DONE
    mine.close()
    other.close()


@pytest.mark.slow
def test_a_log_is_read_while_the_run_goes_on(bench: RayBench) -> None:
    runner = bench.make()
    handle = bench.submit(runner, shell(bench, "echo one; echo two >&2; echo {} > $TRADEWIND_METRICS; sleep 60"))
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    eventually(lambda: runner.read_log(handle, "stderr", 0) == b"two\n")
    assert runner.read_log(handle, "stdout", 2) == b"e\n"
    eventually(lambda: runner.read_report(handle, 1) == b"}\n")
    runner.cancel(handle)
    runner.close()


def test_a_run_on_this_machine_waits_for_a_slot_and_leaves_none_when_it_is_killed(bench: RayBench) -> None:
    """It has its node of Ray while it waits; what has the machine's CPUs is a process of another search."""
    here, folder = resource_limits.cpus_here(), str(slots_folder())
    held, runner = SlotRegistry.of_this_process(), bench.make(share=True)
    nothing = {"memory": 0, "memory_here": 1, "device": 0, "devices_here": [], "group": ""}
    wanted = {"folder": folder, "cpu": here, "search": "other", "name": "tea", **nothing}
    held.take("held", wanted, os.sched_getaffinity(0))
    script = "grep Cpus_allowed_list /proc/self/status; echo $$ > pid; sleep 600"
    one, two = (runner.submit(shell(bench, script, name, env={"TRADEWIND_STUDY": "ink"}), ()) for name in ("a", "b"))
    why = f"{here} of {here} CPUs are used by search tea"
    eventually(lambda: runner.poll([one, two])["a"].reason == why, 60)
    assert runner.poll([one])["a"].state is RunState.SUBMITTING
    runner.cancel(two)
    assert wait_for_end(runner, two).state is RunState.CANCELLED
    held.give_back("held")
    eventually(lambda: runner.poll([one])["a"].state is RunState.EXECUTING, 60)
    assert describe_slots(folder, os.sched_getaffinity(0)) == f"1 of {here} CPUs are used by search ink"
    for process in processes_of("a"):
        process.kill()
    assert wait_for_end(runner, one).state is not RunState.EXECUTING
    eventually(lambda: describe_slots(folder, os.sched_getaffinity(0)) == "no run has any")


def test_several_nodes_are_a_placement_group(bench: RayBench) -> None:
    runner = bench.make()
    request = shell(bench, "echo $TRADEWIND_NODES; echo $TRADEWIND_NODE_IPS; cat $TRADEWIND_HOSTFILE")
    request = replace(request, offer=request.offer.times(2))
    handle = bench.submit(runner, request)
    assert wait_for_end(runner, handle).state is RunState.DONE
    runner.collect(handle, request)
    [count, addresses, *hosts] = (request.folder / "stdout").read_text().splitlines()
    assert (count, len(addresses.split())) == ("2", 2)
    assert hosts == [f"{address} slots=1" for address in addresses.split()]
    # Its CPUs are free again.
    folder = bench.folder / "runs" / "run-2"
    alone = replace(request, run_id="run-2", folder=folder, offer=request.offer.times(1))
    again = bench.submit(runner, alone)
    assert wait_for_end(runner, again).state is RunState.DONE
    runner.collect(again, alone)
    address = addresses.split()[0]  # both nodes are on this machine
    assert (folder / "stdout").read_text().splitlines() == ["1", address, f"{address} slots=1"]
    runner.close()


def test_a_cancelled_run_that_waits_for_cpus_never_starts(bench: RayBench) -> None:
    runner = bench.make()
    first = [bench.submit(runner, bench.request("long", f"run-{i}")) for i in range(2)]
    waits = bench.submit(runner, bench.request("good", "run-2"))
    status = runner.poll([waits])["run-2"]
    assert status.state is RunState.SUBMITTING
    assert re.fullmatch(r"CPU 1, memory \S+ GiB: taken by others for now", status.reason)
    runner.cancel(waits)
    assert runner.poll([waits])["run-2"].state is RunState.CANCELLED
    for handle in first:
        runner.cancel(handle)
        wait_for_end(runner, handle)
    assert not list(bench.folder.glob("scratch/*/work/count"))
    runner.close()


def test_a_run_that_no_node_can_ever_run_says_so_while_it_waits_for_the_cluster_to_grow(bench: RayBench) -> None:
    runner = bench.make(autoscales=True)
    request = bench.request("good")
    waits = bench.submit(runner, replace(request, offer=replace(request.offer, vcpu=64)))
    status = runner.poll([waits])["run-1"]
    assert status.state is RunState.SUBMITTING
    assert re.match(
        r"nodes with CPU 64, memory \S+ GiB: 0 of the 1 needed; the most that one has: CPU 1, ", status.reason
    )
    runner.cancel(waits)
    assert runner.poll([waits])["run-1"].state is RunState.CANCELLED
    runner.close()


def test_a_run_that_waits_for_cpus_does_not_expire(bench: RayBench) -> None:
    """Anyone may end it as long after its beginning as it was given when it was submitted."""
    runner = bench.make()
    first = [bench.submit(runner, bench.request("long", f"run-{i}")) for i in range(2)]
    for handle in first:
        poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    submitted = time.time()
    waits = bench.submit(runner, replace(bench.request("long", "run-2"), expires=submitted + 2.0))
    time.sleep(max(0.0, submitted + 2.5 - time.time()))
    found = {each.run_id: each for each in runner.find(None)}
    assert "expires" not in found["run-2"].data
    assert found["run-0"].data["expires"] > time.time() + 60
    freed = time.time()
    runner.cancel(first[0])
    poll_until(runner, waits, lambda status: status.state is RunState.EXECUTING)
    expires = {each.run_id: each.data["expires"] for each in runner.find(OWNER_A)}["run-2"]
    assert freed + 1.5 < expires < freed + 60
    state = runner._call("poll", seconds=10, keys={"run-2": f"{OWNER_A}/run-2"})["run-2"]["state"]
    # By it the next run on the node judges whether the files may go.
    assert float(Path(state["folder"], "expires").read_text()) == pytest.approx(expires, abs=1.0)
    for handle in (first[1], waits):
        runner.cancel(handle)
        wait_for_end(runner, handle)
    over = {each.run_id: each.data["expires"] for each in runner.find(OWNER_A)}
    assert over["run-2"] == expires
    runner.close()


def test_a_run_that_waited_long_is_alive_while_its_cluster_is_silent(
    bench: RayBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    facts = {"owner": OWNER_A, "expires": now - 7200.0, "lasts": 3660.0, "wall_seconds": 60.0}
    handle, silent = Handle("run-1", "ray", facts), False

    def call(op: str, **given: Any) -> Any:
        if silent:
            raise UnreachableError("nobody answers", hint="")
        return {"run-1": {"state": None, "end": None, "cancel": None, "live": True}}

    monkeypatch.setattr(ray_runner, "_FRESH_SECONDS", 0.0)
    runner = bench.make()
    monkeypatch.setattr(runner, "_call", call)
    assert runner.poll([handle])["run-1"].state is RunState.SUBMITTING
    silent = True
    assert runner.poll([handle])["run-1"].state is RunState.EXECUTING
    monkeypatch.setattr(time, "time", lambda: now + 3660.0 + 60.0 + 130.0)
    assert runner.poll([handle])["run-1"].state is RunState.PREEMPTED
    another = bench.make()
    monkeypatch.setattr(another, "_call", call)
    assert another.poll([handle])["run-1"].state is RunState.PREEMPTED


def test_what_was_known_a_moment_ago_is_not_asked_again(bench: RayBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """But it is after the news of an end, after a cancel, and for a run that was not among those asked for."""
    asked: list[list[str]] = []

    def call(op: str, **given: Any) -> Any:
        if op == "poll":
            asked.append(sorted(given["keys"]))
        return {name: {"state": None, "end": None, "cancel": None, "live": True} for name in given.get("keys", ())}

    runner = bench.make()
    monkeypatch.setattr(runner, "_call", call)
    monkeypatch.setattr(runner, "_waiting", lambda handles: {})
    monkeypatch.setattr(ray_runner, "_FRESH_SECONDS", 60.0)
    one, two = (Handle(name, "ray", {"owner": OWNER_A, "expires": 0.0}) for name in ("one", "two"))
    for _ in range(3):
        assert runner.poll([one])["one"].state is RunState.SUBMITTING
    assert asked == [["one"]]
    assert set(runner.poll([one, two])) == {"one", "two"}
    assert set(runner.poll([two])) == {"two"}
    assert asked == [["one"], ["one", "two"]]
    runner.cancel(two)
    runner.poll([one])
    assert asked[2:] == [["one"]]
    end: Future[Any] = Future()
    runner._awaited_end = end
    end.add_done_callback(runner._on_end)
    end.set_result(None)
    runner.poll([one])
    assert asked[3:] == [["one"]]


@pytest.mark.parametrize(
    ("name", "amount", "words"),
    [("CPU", 4, "the offer's"), ("memory", 1, "reserve_memory: false"), ("mine", -1, "zero")],
)
def test_resources_that_the_offer_has_are_refused_when_they_are_read(name: str, amount: float, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        RaySettings(resources={name: amount})


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"resources": {"no-such-thing": 1}}, CapacityError, "no-such-thing 1"),
        ({"instance_resource": True}, CapacityError, "small 1"),
        ({"address": "127.0.0.1:1"}, UnreachableError, "nobody answers at 127.0.0.1:1"),
        ({"python": "/usr/bin/python3"}, MissingProgramError, "tradewind[ray]"),
        ({"python": "/no/such/python"}, MissingProgramError, "/no/such/python"),
    ],
)
def test_what_users_meet_is_one_typed_error(
    bench: RayBench, given: dict[str, Any], error: type[TradewindError], words: str
) -> None:
    runner = bench.make(**given)
    with pytest.raises(error) as caught:
        bench.submit(runner, bench.request("good"))
    assert words in str(caught.value)
    assert caught.value.hint
    runner.close()


@pytest.mark.parametrize(
    ("told", "error"),
    [
        (RuntimeError("Version mismatch: The cluster was started with: Ray: 2.9 Python: 3.10"), PrerequisiteError),
        (RuntimeError("InvalidAuthToken: Authentication token is invalid"), CredentialsError),
        (RuntimeError("WrongClusterID: ... Note: RAY_AUTH_MODE is currently 'disabled'"), UnreachableError),
        (ConnectionError("ray client connection timeout"), UnreachableError),
        (ValueError("something else"), DeployError),
    ],
)
def test_what_ray_says_becomes_a_typed_error(told: Exception, error: type[DeployError]) -> None:
    link = ray_driver_client.RayDriverClient(address="head:1", python="", connect_seconds=1, log=Path("log"))
    raised = link._error(ray_driver_client._DriverFailure(ray_driver._kind_of(told), str(told)))
    assert type(raised) is error
    assert "head:1" in str(raised)


def _helper_pid(runner: RayRunner) -> int:
    assert runner._link is not None
    assert runner._link._helper is not None
    return runner._link._helper._process.pid


@pytest.mark.slow
def test_a_helper_that_is_killed_is_replaced(bench: RayBench) -> None:
    runner = bench.make()
    handle = bench.submit(runner, bench.request("long"))
    os.kill(_helper_pid(runner), signal.SIGKILL)
    for _ in range(3):
        assert runner.poll([handle])["run-1"].state in ALIVE
        time.sleep(0.05)
    eventually(lambda: runner.read_log(handle, "stdout", 0) == b"")
    runner.cancel(handle)
    assert wait_for_end(runner, handle).state is RunState.CANCELLED
    runner.close()


_JOB = ("sh", "-c", "echo ran >> count-$TRADEWIND_RUN_ID; setsid sleep 60 & sleep 60")


def kill_controllers(bench: RayBench, kills: int, seed: int = 1) -> int:
    """Kill controllers at random moments; the next one finds all, ends all, and nothing ran twice."""
    chance = random.Random(seed)
    settings = {"address": bench.cluster.address, "scratch": str(bench.folder / "scratch")}
    with controllers("ray") as many:
        for turn in range(kills):
            folder = bench.folder / str(turn)
            folder.mkdir()
            settings["namespace"] = f"{bench.namespace}-{turn}"
            ids = [f"run-{i}" for i in range(2)]
            # From before the helper is connected to when the jobs run.
            seconds = chance.uniform(0.0, 6.0)
            known = many.kill_after(seconds, folder, settings=settings, run_ids=ids, argv=_JOB, changes={})
            runner = RayRunner(settings=RaySettings(**settings), data_folder=folder / "data")
            deployer = deployer_over(folder, runner=runner)
            for run_id in known[:1]:
                deployer.adopt(row(run_id), request_for(folder, _JOB, run_id))
            deployer.sweep(set(known[:1]))
            for run_id in known[:1]:
                last = deployer.cancel(run_id, "the test is over")
                assert last is not None and last.state in (RunState.CANCELLED, RunState.PREEMPTED)
                deployer.settle(run_id)
            eventually(lambda d=deployer: not d.sweep(set()))  # type: ignore[misc]
            assert runner.find(None) == []
            for count in bench.folder.glob("scratch/*/work/count-*"):
                assert count.read_text() == "ran\n", "a run was started twice"
            eventually(lambda: not [p for i in range(2) for p in processes_of_owner(f"run-{i}")])
            deployer.close()
    return kills


def processes_of_owner(run_id: str) -> list[tuple[int, int]]:
    return procfs.members(run_id, OWNER)


@pytest.mark.slow
def test_nothing_is_lost_or_left_when_controllers_are_killed(bench: RayBench) -> None:
    assert kill_controllers(bench, 5) == 5


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.example
def test_the_example_is_searched(bench: RayBench) -> None:
    job = shortened("ray", bench.folder, lambda job: job["job"]["parameters"].update(darts=60000), trials=2)
    environment = {**ENVIRONMENT, "RAY_ADDRESS": bench.cluster.address}
    result = assert_searched(job, bench.folder / "home", trials=2, environment=environment)
    assert result["best"]["observation"]["metrics"]["pi"] > 3.1


_VICTIMS = {"task": "ray::carry_out_runs", "supervisor": "ray::SupervisorActor", "actor": "ray::RunActor"}


@pytest.mark.slow
def test_what_dies_around_a_run_is_the_infrastructures_fault(bench: RayBench) -> None:
    for victim in (*_VICTIMS, "node"):
        runner = bench.make(resources={"two": 1}, actors=victim == "actor")
        handle = bench.submit(runner, bench.request("long", f"run-{victim}"))
        poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
        assert processes_of(f"run-{victim}")
        if victim == "node":
            bench.cluster.raylet("two").kill()
        else:
            [process] = bench.cluster.processes(_VICTIMS[victim])
            process.kill()
        status = wait_for_end(runner, handle)
        assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)
        eventually(lambda name=victim: not processes_of(f"run-{name}"))  # type: ignore[misc]
        with pytest.raises(DeployError) if victim == "node" else nullcontext():
            runner.collect(handle, bench.request("long", f"run-{victim}"))
        runner.forget(handle)
        assert runner.find(None) == []
        runner.close()


@pytest.mark.slow
def test_the_head_dies_and_another_one_takes_its_place(bench: RayBench) -> None:
    """The last test: the cluster is not what it was."""
    runner = bench.make(resources={"one": 1})
    handle = bench.submit(runner, bench.request("long"))
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    bench.cluster.kill("head")
    for _ in range(3):
        began = time.monotonic()
        assert runner.poll([handle])["run-1"].state is RunState.EXECUTING
        assert time.monotonic() - began < 4.0
    bench.cluster.start_head()
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)
    assert runner.find(None) == []
    bench.cluster.kill("one")
    eventually(lambda: not processes_of("run-1"))
    runner.close()


@pytest.mark.thorough
def test_paused_promoted_and_interrupted_trials_go_on_from_their_checkpoints(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    scratch = str(tmp_path / "scratch")
    assert_goes_on(tmp_path, {"use": "ray", "address": ray_cluster.address, "scratch": scratch, "share": False})
