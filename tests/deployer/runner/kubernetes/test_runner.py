"""The Kubernetes runner: on a server that behaves like Kubernetes, or with TRADEWIND_KUBERNETES on a real cluster.

The variable names a kubeconfig. The images ``local/py:1`` (with Python) and ``local/busybox:1`` must be on its nodes;
``tools/kubernetes/check.py`` starts such a cluster and runs the suite on it.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.forks import controllers
from tests.deployer.helpers import OWNER, deployer_over, request_for, row
from tests.engines.kube_api import KubeApi, kube_cluster
from tests.waiting import eventually

from tradewind.deployer.runner.kubernetes.job import ENDING, job_of, literal, name_of, owner_label
from tradewind.deployer.runner.kubernetes.runner import KubernetesRunner
from tradewind.deployer.runner.kubernetes.settings import KubernetesSettings
from tradewind.deployer.runner.kubernetes.status import KubernetesData, WaitLimits, read_marked, verdict
from tradewind.errors import CapacityError, CredentialsError, DeployError, ImageError, TradewindError, UnreachableError
from tradewind.problem import Fault, RunRequest, RunState
from tradewind.testing.runners import ALIVE, OWNER_A, OWNER_B, RunnerBench, RunnerConformance, poll_until, wait_for_end

REAL = os.environ.get("TRADEWIND_KUBERNETES", "")
IMAGE = "local/py:1"
pytestmark = [pytest.mark.xdist_group("kubernetes"), pytest.mark.timeout(300)]
pretended = pytest.mark.skipif(bool(REAL), reason="a real cluster cannot be made to fail so")
__all__ = ["kube_cluster"]


class KubeBench(RunnerBench):
    wall_seconds = 1.0 if REAL else 0.3
    python = "python3" if REAL else sys.executable

    def __init__(self, folder: Path, cluster: KubeApi | None) -> None:
        super().__init__(folder)
        self.cluster = cluster
        self.config = REAL or (cluster.kubeconfig(folder / "kubeconfig") if cluster else "")

    def make(self, **given: Any) -> KubernetesRunner:
        settings = {"kubeconfig": self.config, "helper_image": "local/busybox:1", **given}
        return KubernetesRunner(settings=KubernetesSettings(**settings), data_folder=self.folder / "data")

    def request(self, kind: str, run_id: str = "run-1", owner: str = OWNER_A) -> RunRequest:
        request = super().request(kind, run_id, owner)
        argv = request.argv
        if REAL and kind == "cpus":
            # A CPU is a share of time there, and programs see all of them.
            files = "/sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu/cpu.cfs_period_us"
            argv = ("sh", "-c", f"cat {files} | {{ read q; read p; echo $((q / p)); }}")
        offer = replace(request.offer, memory_gib=0.5, vcpu=0.2 if REAL and kind != "cpus" else 1)
        return replace(request, argv=argv, image=IMAGE, offer=offer)

    def left(self, run_id: str) -> Sequence[object]:
        runner = self.make()
        pods = runner._api.listed("pods", f"job-name={name_of(run_id)}")
        runner.close()
        return [pod for pod in pods if _works(pod)]

    def count(self, request: RunRequest) -> int:
        runner = self.make()
        [handle] = [each for each in runner.find(request.owner) if each.run_id == request.run_id]
        pods = runner._api.listed("pods", f"job-name={name_of(request.run_id)}")
        again = replace(request, outputs=("count",))
        runner.collect(handle, again)
        runner.close()
        return len(pods) if "hello\n" in (request.folder / "stdout").read_text() else 0

    def close(self) -> None:
        runner = self.make()
        for owner in (OWNER_A, OWNER_B):
            for handle in runner.find(owner) if self.cluster is None or self.cluster._server else ():
                runner.forget(handle)
                eventually(lambda run_id=handle.run_id: not self.left(run_id))  # type: ignore[misc]
        runner.close()
        for each in self._made:
            each.close()


def _works(pod: dict[str, Any]) -> bool:
    """The phase comes seconds after the end of the containers, and never for a pod that was deleted before it began."""
    status = pod["status"]
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waits = status["phase"] == "Pending" and "deletionTimestamp" not in pod["metadata"]
    return waits or any("running" in each["state"] for each in containers)


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KubeBench]:
    cluster: KubeApi | None = None if REAL else request.getfixturevalue("kube_cluster")
    bench = KubeBench(tmp_path, cluster)
    yield bench
    bench.close()
    if cluster is not None:
        cluster.reset()


class TestConformance(RunnerConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunnerBench]:
        cluster: KubeApi | None = None if REAL else request.getfixturevalue("kube_cluster")
        bench = KubeBench(tmp_path, cluster)
        yield bench
        bench.close()
        if cluster is not None:
            cluster.reset()


def shell(bench: KubeBench, script: str, run_id: str = "run-1", **changes: Any) -> RunRequest:
    return replace(bench.request("good", run_id), argv=("sh", "-c", script), **changes)


def test_files_go_there_and_come_back(bench: KubeBench) -> None:
    request = shell(
        bench,
        'cat given data/large | wc -c; cat $TRADEWIND_INPUTS/part; echo oops >&2; echo $TRADEWIND_PARAM_KIND "$COLOUR";'
        " mkdir -p kept/deep; echo a > kept/deep/a; ln -s /etc/passwd kept/b; echo c > $TRADEWIND_OUTPUTS/c;"
        " echo d > left;"
        ' echo "{}" > $TRADEWIND_METRICS; env | grep -c ^TW',
        env={"COLOUR": "$(PATH) $$ blue\nT 3\nO"},
        inputs=("part",),
        outputs=("kept", "gi*"),
    )
    (request.workdir / "given").write_text("12345")
    (request.workdir / "data").mkdir()
    (request.workdir / "data" / "large").write_bytes(os.urandom(100_000))
    (request.folder / "inputs").mkdir(parents=True)
    (request.folder / "inputs" / "part").write_text("part of it\n")
    runner = bench.make()
    handle = bench.submit(runner, request)
    assert poll_until(runner, handle, lambda s: s.state.ended).exit_code == 1  # what grep -c of nothing says
    runner.collect(handle, request)
    said = (request.folder / "stdout").read_text()
    assert said == "100005\npart of it\ngood $(PATH) $$ blue\nT 3\nO\n0\n"
    assert (request.folder / "stderr").read_text() == "oops\n"
    assert (request.folder / "metrics.jsonl").read_text() == "{}\n"
    kept = {p.relative_to(request.folder / "outputs").as_posix() for p in (request.folder / "outputs").rglob("*")}
    assert kept == {"c", "given", "kept", "kept/deep", "kept/deep/a"}
    runner.forget(handle)
    assert runner.find(OWNER_A) == []
    runner.close()


def test_a_run_brings_its_time_and_its_memory(bench: KubeBench) -> None:
    runner = bench.make()
    handle = bench.submit(runner, shell(bench, "sleep 0.5"))
    status = wait_for_end(runner, handle)
    assert 0.5 <= status.runtime < 10
    runner.close()


def test_a_signal_is_a_negative_exit_code(bench: KubeBench) -> None:
    runner = bench.make()
    status = wait_for_end(runner, bench.submit(runner, shell(bench, "kill -SEGV $$")))
    assert (status.state, status.exit_code, status.fault) == (RunState.FAILED, -11, Fault.JOB)
    assert "SIGSEGV" in status.reason
    runner.close()


def test_what_a_run_leaves_behind_does_not_hold_it_up(bench: KubeBench) -> None:
    runner = bench.make()
    status = wait_for_end(runner, bench.submit(runner, shell(bench, "setsid sleep 60 & echo done")))
    assert status.state is RunState.DONE
    eventually(lambda: not bench.left("run-1"))
    runner.close()


def test_outputs_beyond_the_limit_are_one_clear_error(bench: KubeBench) -> None:
    runner = bench.make(output_bytes=1000)
    request = shell(bench, "echo hello; head -c 9000 /dev/urandom > $TRADEWIND_OUTPUTS/noise")
    handle = bench.submit(runner, request)
    assert wait_for_end(runner, handle).state is RunState.DONE
    with pytest.raises(DeployError, match="output_bytes") as caught:
        runner.collect(handle, request)
    assert not caught.value.retryable
    assert (request.folder / "stdout").read_text() == "hello\n"
    runner.close()


def test_secrets_are_in_a_secret_that_goes_with_the_job(bench: KubeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hush-4711")
    runner = bench.make()
    handle = bench.submit(runner, shell(bench, "test ${#TOKEN} = 9 && sleep 60", secrets={"TOKEN": "env:MY_TOKEN"}))
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    objects = [*runner._api.listed("jobs", ""), *runner._api.listed("pods", "")]
    assert "hush-4711" not in json.dumps([objects, handle.to_json()])
    name = f"{name_of('run-1')}-env"
    assert runner._api.document("GET", runner._api.path("secrets", name))["metadata"]["ownerReferences"]
    runner.cancel(handle)
    assert wait_for_end(runner, handle).state is RunState.CANCELLED
    runner.forget(handle)
    eventually(lambda: name not in [each["metadata"]["name"] for each in runner._api.listed("secrets", "")])
    eventually(lambda: not runner._api.listed("secrets", "app.kubernetes.io/managed-by=tradewind"))
    runner.close()


def test_runs_with_the_same_files_share_them(bench: KubeBench) -> None:
    runner = bench.make()
    handles = [bench.submit(runner, shell(bench, "cat given", f"run-{i}")) for i in range(2)]
    found = runner._api.listed("secrets", "app.kubernetes.io/managed-by=tradewind")
    assert [len(each["metadata"]["ownerReferences"]) for each in found] == [2]
    assert found[0]["metadata"]["name"].startswith("tradewind-work-")
    for handle in handles:
        wait_for_end(runner, handle)
    runner.close()


def test_the_files_of_a_run_are_there_though_those_of_the_last_one_are_just_being_removed(bench: KubeBench) -> None:
    """The garbage collector may have looked at the Secret's owners before a run joined them."""
    runner = bench.make()
    if bench.cluster is not None:
        bench.cluster.collector_lag = 0.5
    for i in range(3):
        handle = bench.submit(runner, shell(bench, "sleep 1.5", f"run-{i}"))
        time.sleep(1.0)
        assert runner._api.listed("secrets", "app.kubernetes.io/managed-by=tradewind")
        assert wait_for_end(runner, handle).state is RunState.DONE
        runner.forget(handle)
        time.sleep(0.15)  # the collector has looked at the owners by then
    runner.close()


def test_a_log_is_read_while_the_run_goes_on(bench: KubeBench) -> None:
    runner = bench.make()
    handle = bench.submit(runner, shell(bench, "echo one; echo two >&2; sleep 60"))
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    eventually(lambda: runner.read_log(handle, "stderr", 0) == b"two\n")
    eventually(lambda: runner.read_log(handle, "stdout", 2) == b"e\n")
    assert runner.read_log(handle, "stdout", 1000) == b""
    runner.close()


def test_a_working_folder_that_is_too_large_is_one_clear_error(bench: KubeBench) -> None:
    request = bench.request("good")
    (request.workdir / "large").write_bytes(os.urandom(1_100_000))
    runner = bench.make()
    with pytest.raises(DeployError, match="Secret") as caught:
        bench.submit(runner, request)
    assert "claim" in str(caught.value.hint)
    assert runner.find(OWNER_A) == []
    runner.close()


def test_a_job_without_an_image_is_refused(bench: KubeBench) -> None:
    runner = bench.make()
    with pytest.raises(ImageError, match="names none"):
        bench.submit(runner, replace(bench.request("good"), image=None))
    runner.close()


def test_an_image_that_is_not_there_fails_in_time(bench: KubeBench) -> None:
    runner = bench.make(image_seconds=1.0)
    handle = bench.submit(runner, replace(bench.request("good"), image="local/missing:1"))
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (RunState.FAILED, Fault.PREREQUISITE)
    assert "local/missing:1" in status.reason
    assert "image_pull_secrets" in status.reason
    eventually(lambda: not bench.left("run-1"))
    assert runner.poll([handle])["run-1"] == status
    runner.close()


def test_a_node_that_nobody_has_is_a_matter_of_capacity(bench: KubeBench) -> None:
    runner = bench.make(schedule_seconds=1.0, instance_type=True)
    request = bench.request("good")
    handle = bench.submit(runner, replace(request, offer=replace(request.offer, instance_type="x9.huge")))
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (RunState.FAILED, Fault.CAPACITY)
    assert "no node" in status.reason
    runner.close()


def test_who_only_looks_gives_up_nothing_that_waits(bench: KubeBench) -> None:
    """Another store, or the same one with other settings, lists all Jobs and is less patient than who made this one."""
    patient, hasty = (bench.make(schedule_seconds=given, instance_type=True) for given in (3600.0, 1.0))
    request = bench.request("good")
    handle = bench.submit(patient, replace(request, offer=replace(request.offer, instance_type="x9.huge")))
    time.sleep(1.5)
    theirs = hasty.find(None)
    assert [each.run_id for each in theirs] == ["run-1"]
    status = hasty.poll(theirs)["run-1"]
    assert status.state is RunState.SUBMITTING
    assert status.reason.startswith("Unschedulable: 0/"), "it says why it waits"
    assert hasty.poll(hasty.find(OWNER_A))["run-1"].state is RunState.SUBMITTING, "the Job's own wait limits count"
    job = patient._api.document("GET", patient._api.path("jobs", name_of("run-1")))
    assert ENDING not in job["metadata"]["annotations"]
    assert job["spec"]["parallelism"] == 1
    assert patient.poll([handle])["run-1"].state is RunState.SUBMITTING
    hasty.cancel(theirs[0])
    assert wait_for_end(patient, handle).state is RunState.CANCELLED
    for runner in (patient, hasty):
        runner.close()


def test_who_only_looks_does_not_end_what_is_to_be_given_up(bench: KubeBench) -> None:
    runner = bench.make(schedule_seconds=1.0, instance_type=True)
    request = bench.request("good")
    handle = bench.submit(runner, replace(request, offer=replace(request.offer, instance_type="x9.huge")))
    time.sleep(2.5)
    assert runner.poll(runner.find(None))["run-1"].state is RunState.SUBMITTING
    job = runner._api.document("GET", runner._api.path("jobs", name_of("run-1")))
    assert ENDING not in job["metadata"]["annotations"]
    assert wait_for_end(runner, handle).fault is Fault.CAPACITY
    runner.close()


# ------------------------------------------------------------------ what only a pretended cluster does on demand


@pytest.fixture
def cluster(kube_cluster: KubeApi) -> KubeApi:
    return kube_cluster


@pretended
def test_several_nodes_are_an_indexed_job(bench: KubeBench, cluster: KubeApi) -> None:
    runner = bench.make()
    request = shell(bench, "echo $TRADEWIND_NODES; echo $TRADEWIND_NODE_IPS; cat $TRADEWIND_HOSTFILE")
    request = replace(request, offer=request.offer.times(3))
    handle = bench.submit(runner, request)
    assert list(cluster.objects["services"]) == [name_of("run-1")]
    assert wait_for_end(runner, handle).state is RunState.DONE
    runner.collect(handle, request)
    name = name_of("run-1")
    hosts = [f"{name}-{i}.{name}" for i in range(3)]
    assert (request.folder / "stdout").read_text().splitlines() == [
        "3",
        " ".join(hosts),
        *(f"{host} slots=1" for host in hosts),
    ]
    eventually(lambda: not bench.left("run-1"))
    runner.close()


@pretended
def test_a_command_may_start_on_every_node(bench: KubeBench, cluster: KubeApi) -> None:
    runner = bench.make(everywhere=True)
    request = shell(bench, "echo $JOB_COMPLETION_INDEX; sleep 0.3")
    handle = bench.submit(runner, replace(request, offer=request.offer.times(2)))
    wait_for_end(runner, handle)
    logs = [(cluster.folder / uid / "job.log").read_bytes() for uid in cluster._containers]
    assert sorted(read_marked(log).streams["stdout"] for log in logs) == [b"0\n", b"1\n"]
    runner.close()


@pretended
def test_the_working_folder_may_be_in_a_claim(bench: KubeBench, cluster: KubeApi) -> None:
    (cluster.folder / "claim" / "here").mkdir()
    (cluster.folder / "claim" / "here" / "given").write_text("from the claim\n")
    runner = bench.make(claim="data", claim_path="here")
    request = shell(bench, "cat given; cp given kept", outputs=("kept",))
    handle = bench.submit(runner, request)
    assert wait_for_end(runner, handle).state is RunState.DONE
    runner.collect(handle, request)
    assert (request.folder / "stdout").read_text() == "from the claim\n"
    assert (request.folder / "outputs" / "kept").read_text() == "from the claim\n"
    runner.close()


def _forbid(verb: str, kind: str) -> Callable[[KubeApi], None]:
    return lambda cluster: cluster.forbidden.add((verb, kind))


@pretended
@pytest.mark.parametrize(
    ("given", "trouble", "error", "words"),
    [
        ({}, _forbid("create", "jobs"), CredentialsError, 'cannot create resource "jobs"'),
        ({}, _forbid("create", "secrets"), CredentialsError, 'cannot create resource "secrets"'),
        ({}, lambda cluster: setattr(cluster, "quota", 0), CapacityError, "exceeded quota"),
        ({}, KubeApi.go_down, UnreachableError, "does not answer"),
        ({"namespace": "nowhere"}, None, DeployError, 'namespaces "nowhere" not found'),
        ({"context": "nowhere"}, None, CredentialsError, "nowhere"),
        ({"kubeconfig": "/no/such/file"}, None, CredentialsError, "kubeconfig"),
        ({"token": "wrong"}, None, CredentialsError, "does not know us"),
    ],
)
def test_what_users_meet_is_one_typed_error(
    bench: KubeBench,
    cluster: KubeApi,
    given: dict[str, Any],
    trouble: Callable[[KubeApi], None] | None,
    error: type[TradewindError],
    words: str,
) -> None:
    if "token" in given:
        given = {"kubeconfig": cluster.kubeconfig(bench.folder / "other", given["token"])}
    if trouble is not None:
        trouble(cluster)
    runner = bench.make(**given)
    try:
        with pytest.raises(error) as caught:
            bench.submit(runner, bench.request("good"))
        assert words in str(caught.value)
        assert caught.value.hint
        runner.close()
    finally:
        if cluster._server is None:
            cluster.start()


@pretended
def test_a_quota_that_others_of_ours_have_used_up_is_waited_for(bench: KubeBench, cluster: KubeApi) -> None:
    cluster.pod_quota = 1
    runner = bench.make(schedule_seconds=2.5)
    first = bench.submit(runner, shell(bench, "sleep 60"))
    poll_until(runner, first, lambda status: status.state is RunState.EXECUTING)
    second = bench.submit(runner, bench.request("good", "run-2"))
    time.sleep(3.0)
    status = runner.poll([second])["run-2"]
    assert status.state is RunState.SUBMITTING, status
    assert "exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1" in status.reason
    runner.cancel(first)
    wait_for_end(runner, first)
    assert wait_for_end(runner, second).state is RunState.DONE
    runner.close()


@pretended
def test_a_quota_that_others_have_used_up_is_a_matter_of_capacity(bench: KubeBench, cluster: KubeApi) -> None:
    cluster.admission = 'pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1'
    runner = bench.make(schedule_seconds=1.0)
    status = wait_for_end(runner, bench.submit(runner, bench.request("good")))
    assert (status.state, status.fault) == (RunState.FAILED, Fault.CAPACITY)
    assert "exceeded quota" in status.reason
    runner.close()


@pretended
@pytest.mark.parametrize(
    ("words", "fault", "hint"),
    [
        (
            'pods "x" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false',
            Fault.CREDENTIALS,
            "set run_as",
        ),
        (
            'pods "x" is forbidden: [maximum cpu usage per Container is 500m, but limit is 1, maximum memory usage per '
            "Container is 64Mi, but limit is 512Mi]",
            Fault.JOB,
            "other sizes",
        ),
        (
            'pods "x" is forbidden: exceeded quota: compute, requested: limits.cpu=1,limits.memory=512Mi, '
            "used: limits.cpu=0,limits.memory=0, limited: limits.cpu=500m,limits.memory=1Gi",
            Fault.JOB,
            "one pod alone asks for more limits.cpu than the quota compute has",
        ),
        ('admission webhook "validate.kyverno.svc" denied the request: no', Fault.CREDENTIALS, "denied the request"),
        ('pods "x" is forbidden: no PriorityClass with name high was found', Fault.CREDENTIALS, "PriorityClass"),
    ],
    ids=["pod security", "limit range", "quota", "webhook", "priority class"],
)
def test_a_pod_that_the_cluster_will_never_admit_ends_its_run_soon(
    bench: KubeBench, cluster: KubeApi, words: str, fault: Fault, hint: str
) -> None:
    cluster.admission = words
    runner = bench.make()
    began = time.monotonic()
    status = wait_for_end(runner, bench.submit(runner, bench.request("good")))
    assert time.monotonic() - began < 20.0
    assert (status.state, status.fault) == (RunState.FAILED, fault)
    assert words in status.reason
    assert hint in status.reason
    runner.close()


@pretended
def test_a_pod_that_the_cluster_does_not_admit_for_the_moment_says_so_and_waits(
    bench: KubeBench, cluster: KubeApi
) -> None:
    cluster.admission = 'Internal error occurred: failed calling webhook "v.kyverno.svc": connection refused'
    runner = bench.make()
    handle = bench.submit(runner, bench.request("good"))
    status = poll_until(runner, handle, lambda status: "failed calling webhook" in status.reason)
    assert status.state is RunState.SUBMITTING
    cluster.admission = ""
    assert wait_for_end(runner, handle).state is RunState.DONE
    runner.close()


@pretended
def test_a_run_that_waits_in_a_queue_waits(bench: KubeBench, cluster: KubeApi) -> None:
    runner = bench.make(queue="team", schedule_seconds=1.5)
    cluster.pod_quota = 0
    handle = bench.submit(runner, bench.request("good"))
    job = cluster.objects["jobs"][name_of("run-1")]
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    job["spec"]["suspend"] = True  # as Kueue does
    time.sleep(2.0)
    assert runner.poll([handle])["run-1"].state is RunState.SUBMITTING
    cluster.pod_quota = None
    job["spec"]["suspend"] = False
    assert wait_for_end(runner, handle).state is RunState.DONE
    runner.close()


@pretended
def test_a_run_that_waits_in_a_queue_does_not_expire(bench: KubeBench, cluster: KubeApi) -> None:
    """Anyone may end it as long after it got its node as it was given when it was submitted."""
    runner = bench.make(queue="team")
    cluster.pod_quota = 0
    began = time.time()
    handle = bench.submit(runner, replace(bench.request("long"), expires=began + 2.0))
    job = cluster.objects["jobs"][name_of("run-1")]
    job["spec"]["suspend"] = True  # as Kueue does
    with cluster.lock:
        job["status"]["conditions"] = [{"type": "Suspended", "status": "True"}]
    [waiting] = runner.find(OWNER_A)
    assert "expires" not in waiting.data
    time.sleep(max(0.0, began + 3.5 - time.time()))
    [waiting] = runner.find(None)
    assert "expires" not in waiting.data
    freed = time.time()
    cluster.pod_quota = None
    with cluster.lock:
        job["spec"]["suspend"], job["status"]["conditions"] = False, []
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    [running] = runner.find(None)
    assert running.data["expires"] >= freed - 1.0 + 1.9  # the API says whole seconds
    runner.cancel(handle)
    wait_for_end(runner, handle)
    [over] = runner.find(None)
    assert over.data["expires"] >= began + 2.0
    runner.close()


def test_a_run_without_a_node_does_not_expire(bench: KubeBench) -> None:
    runner = bench.make(instance_type=True)
    request = bench.request("good")
    offer = replace(request.offer, instance_type="x9.huge")
    handle = bench.submit(runner, replace(request, offer=offer, expires=time.time() + 1.0))
    time.sleep(1.5)
    [waiting] = runner.find(OWNER_A)
    assert "expires" not in waiting.data
    runner.cancel(handle)
    wait_for_end(runner, handle)
    [over] = runner.find(OWNER_A)
    assert over.data["expires"] < time.time(), "what has ended goes with its lease"
    runner.close()


@pretended
def test_a_suspended_job_gets_what_belongs_to_it(bench: KubeBench, cluster: KubeApi) -> None:
    """The answer to its creation was lost, and Kueue holds it."""
    runner = bench.make(queue="team")
    cluster.pod_quota = 0
    whole = runner._complete
    runner._complete = lambda *_: None  # type: ignore[method-assign]
    request = bench.request("good")
    handle = bench.submit(runner, request)
    job = cluster.objects["jobs"][name_of("run-1")]
    job["spec"]["suspend"] = True
    with cluster.lock:
        job["status"]["conditions"] = [{"type": "Suspended", "status": "True"}]
    runner._complete = whole  # type: ignore[method-assign]
    bench.submit(runner, request)
    cluster.pod_quota = None
    with cluster.lock:
        job["spec"]["suspend"], job["status"]["conditions"] = False, []
    assert wait_for_end(runner, handle).state is RunState.DONE
    runner.close()


@pretended
def test_a_pod_that_is_evicted_is_the_infrastructures_fault(bench: KubeBench, cluster: KubeApi) -> None:
    runner = bench.make()
    handle = bench.submit(runner, bench.request("long"))
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    cluster.evict("run-1")
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)
    assert "Evicted" in status.reason
    runner.close()


@pretended
@pytest.mark.parametrize(
    "why",
    [
        'Usage of EmptyDir volume "tradewind" exceeds the limit "1Gi". ',
        "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
        "Container job exceeded its local ephemeral storage limit 1Gi. ",
    ],
)
def test_a_run_that_fills_the_disk_of_its_node_is_told_in_one_line(
    bench: KubeBench, cluster: KubeApi, why: str
) -> None:
    runner = bench.make(disk_gib=1)
    handle = bench.submit(runner, bench.request("long"))
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    [pod] = runner._api.listed("pods", "")
    assert [each["emptyDir"] for each in pod["spec"]["volumes"] if "emptyDir" in each] == [{"sizeLimit": str(2**30)}]
    assert pod["spec"]["containers"][0]["resources"]["limits"]["ephemeral-storage"] == str(2**30)
    cluster.evict("run-1", why)
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (RunState.FAILED, Fault.JOB)
    assert status.reason == f"its files grew beyond the disk that it may fill: {why.strip()} (set disk_gib)"
    runner.close()


@pretended
@pytest.mark.parametrize("kind", ["pods", "jobs"])
def test_what_somebody_else_deletes_is_gone(bench: KubeBench, cluster: KubeApi, kind: str) -> None:
    runner = bench.make()
    handle = bench.submit(runner, bench.request("long"))
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    with cluster.lock:
        if kind == "jobs":
            cluster.objects["jobs"].clear()
        else:
            cluster.delete_pod(next(iter(cluster.objects["pods"].values())))
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)
    runner.close()


@pretended
def test_runs_go_on_while_the_api_is_down(bench: KubeBench, cluster: KubeApi) -> None:
    runner = bench.make()
    handle = bench.submit(runner, shell(bench, "sleep 0.5"))
    cluster.go_down()
    try:
        for _ in range(3):
            began = time.monotonic()
            assert runner.poll([handle])["run-1"].state is RunState.EXECUTING
            assert time.monotonic() - began < 4.0
    finally:
        cluster.start()
    assert wait_for_end(runner, handle).state is RunState.DONE
    runner.close()


def test_a_lost_node_counts_as_alive_for_a_minute() -> None:
    pod: dict[str, Any] = {
        "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T01:00:00Z"},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "job", "state": {"running": {"startedAt": "2026-01-01T00:00:10Z"}}}],
        },
    }
    job = {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}
    deleted = 1767229200.0
    data, limits = KubernetesData(), WaitLimits(60, 60)
    assert verdict(data, job, [pod], deleted + 30, limits).status.state is RunState.EXECUTING
    assert verdict(data, job, [pod], deleted + 90, limits).status.state is RunState.PREEMPTED
    pod["status"] = {"phase": "Pending"}  # it never began, and never will
    assert verdict(data, job, [pod], deleted - 1, limits).status.state is RunState.PREEMPTED
    pod["spec"] = {"nodeName": "node-1"}  # its node may be starting it
    assert verdict(data, job, [pod], deleted - 1, limits).status.state is RunState.SUBMITTING
    assert verdict(data, job, [pod], deleted + 1, limits).status.state is RunState.PREEMPTED


def test_names_and_words_are_such_as_kubernetes_takes(tmp_path: Path) -> None:
    names = {name_of(text) for text in ("A", "a", "ä" * 300, "1", "-", "x" * 300, "x" * 299 + "y")}
    assert len(names) == 7
    assert all(len(name) <= 52 and name[0].isalpha() and name.strip("-") == name for name in names)
    assert owner_label("Müller/1") != owner_label("Muller/1")
    assert literal("$(HOME) $HOME") == "$$(HOME) $$HOME"
    request = replace(request_for(tmp_path, ("echo", "$(x); `y`")), image="i")
    job = job_of(request, "{}", {"work": "w"}, KubernetesSettings(image_pull_secrets=["reg"], service_account="s"), "h")
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"] == ["echo", "$$(x); `y`"]
    requests, limits = (pod["containers"][0]["resources"][name] for name in ("requests", "limits"))
    assert limits.pop("ephemeral-storage") != requests.pop("ephemeral-storage") == "0", "no disk is set aside"
    assert requests == limits
    assert (pod["imagePullSecrets"], pod["serviceAccountName"]) == ([{"name": "reg"}], "s")
    assert (job["spec"]["backoffLimit"], pod["restartPolicy"]) == (0, "Never")


_JOB = ("sh", "-c", "echo ran; setsid sleep 60 & sleep 60")
# A kubelet looks after a pod again when it has waited two minutes for a Secret that nobody makes any more.
_GONE_SECONDS = 240.0 if REAL else 60.0


def kill_controllers(bench: KubeBench, kills: int, seed: int = 1) -> int:
    """Kill controllers at random moments; the next one finds all, ends all, and nothing ran twice."""
    chance = random.Random(seed)
    settings = {"kubeconfig": bench.config, "helper_image": "local/busybox:1"}
    managed = "app.kubernetes.io/managed-by=tradewind"
    with controllers("kubernetes", "kubernetes.client", "kubernetes.config") as many:
        for turn in range(kills):
            folder = bench.folder / str(turn)
            folder.mkdir()
            ids = [f"kill-{uuid.uuid4().hex[:8]}-{i}" for i in range(3)]
            given = {"settings": settings, "run_ids": ids, "argv": _JOB, "changes": {"image": IMAGE}}
            known = many.kill_after(chance.uniform(0.0, 0.6), folder, **given)
            runner = KubernetesRunner(settings=KubernetesSettings(**settings), data_folder=folder / "data")
            deployer = deployer_over(folder, runner=runner)
            for run_id in known[:1]:
                deployer.adopt(row(run_id), request_for(folder, _JOB, run_id, image=IMAGE))
            deployer.sweep(set(known[:1]))
            for run_id in known[:1]:
                assert len(runner._api.listed("pods", f"job-name={name_of(run_id)}")) <= 1, "a run was started twice"
                last = deployer.cancel(run_id, "the test is over")
                assert last is not None and last.state in (RunState.CANCELLED, RunState.PREEMPTED)
                deployer.settle(run_id)
            eventually(lambda d=deployer: not d.sweep(set()))  # type: ignore[misc]
            assert runner.find(OWNER) == []
            for kind in ("pods", "secrets", "services"):
                eventually(lambda r=runner, k=kind: not r._api.listed(k, managed), _GONE_SECONDS)  # type: ignore[misc]
            deployer.close()
    return kills


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_lost_or_left_when_controllers_are_killed(bench: KubeBench) -> None:
    kills = 3 if REAL else 10
    assert kill_controllers(bench, kills) == kills


def test_another_controller_sees_a_run_of_a_killed_one(bench: KubeBench) -> None:
    first = bench.make()
    request = bench.request("good")
    # The answer to the creation was lost: the Job is there, what belongs to it is not.
    whole = first._complete
    first._complete = lambda *_: None  # type: ignore[method-assign]
    handle = bench.submit(first, request)
    assert first.poll([handle])["run-1"].state in ALIVE
    first._complete = whole  # type: ignore[method-assign]
    second = bench.make()
    assert wait_for_end(second, bench.submit(second, request)).state is RunState.DONE
    first.close()
    second.close()
