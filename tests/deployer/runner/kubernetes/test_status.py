"""What the documents of Kubernetes say about a run, and what is asked of it: without any cluster."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import request_for

from tradewind.deployer.runner.kubernetes.job import job_of
from tradewind.deployer.runner.kubernetes.settings import KubernetesSettings
from tradewind.deployer.runner.kubernetes.status import (
    FOREVER,
    KubernetesData,
    end_of,
    latest_messages,
    quantity,
    read_marked,
    verdict,
)
from tradewind.problem import Fault, RunState, RunStatus

JOB: dict[str, Any] = {"metadata": {"name": "run-1", "uid": "u"}, "spec": {}, "status": {}}
BEGAN, ENDED = "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:10+00:00"


def status(state: dict[str, Any], **about: Any) -> RunStatus:
    pod = {
        "metadata": {"name": "p", "creationTimestamp": BEGAN},
        "status": {
            "containerStatuses": [
                {"name": "istio-proxy", "state": {}},
                {"name": "job", "image": "i:1", "state": state},
            ],
            **about,
        },
    }
    data = KubernetesData(wall_seconds=60.0, memory_bytes=2**30)
    return verdict(data, JOB, [pod], 1e9, FOREVER).status


def terminated(code: int, reason: str, message: str = "") -> dict[str, Any]:
    end = {"exitCode": code, "reason": reason, "message": message, "startedAt": BEGAN, "finishedAt": ENDED}
    return {"terminated": end}


def test_a_program_that_coped_with_a_killed_child_has_ended_well() -> None:
    assert status(terminated(0, "OOMKilled", "state=ended")).state is RunState.DONE
    found = status(terminated(137, "OOMKilled"))
    assert (found.state, found.fault) == (RunState.FAILED, Fault.JOB)
    assert "out of memory" in found.reason


def test_an_exit_code_that_no_signal_has_is_that_of_the_program() -> None:
    found = status(terminated(200, "Error", "state=ended"))
    assert (found.exit_code, found.reason) == (200, "the program exited with code 200")
    found = status(terminated(143, "Error", "state=ended"))
    assert (found.exit_code, found.reason) == (-15, "the program was killed by signal 15 (SIGTERM)")


def test_an_image_for_another_processor_architecture_is_told_at_once() -> None:
    cannot = "failed to create containerd task: exec /bin/busybox: exec format error"
    pull = "no match for platform in manifest: not found"
    prepared = {"initContainerStatuses": [{"name": "prepare", "state": terminated(255, "Error", "exec format error")}]}
    for found, words in (
        (status(terminated(128, "StartError", cannot)), "the image is for another processor"),
        (status({"waiting": {"reason": "ErrImagePull", "message": pull}}), "the image 'i:1' is for another processor"),
        (status({}, phase="Failed", **prepared), "set helper_image"),
    ):
        assert (found.state, found.fault) == (RunState.FAILED, Fault.ARCHITECTURE), found
        assert words in found.reason
        assert "another processor architecture than the node's" in found.reason


@pytest.mark.parametrize(
    ("reason", "message", "fault"),
    [
        ("ErrImagePull", "manifest unknown", Fault.PREREQUISITE),
        ("InvalidImageName", "", Fault.PREREQUISITE),
        ("ErrImagePull", "dial tcp: i/o timeout", Fault.INFRASTRUCTURE),
    ],
)
def test_an_image_that_no_run_can_have_is_not_the_configurations_fault(reason: str, message: str, fault: Fault) -> None:
    waiting = {"name": "job", "image": "a:b", "state": {"waiting": {"reason": reason, "message": message}}}
    pod = {"metadata": {"name": "p", "creationTimestamp": BEGAN}, "status": {"containerStatuses": [waiting]}}
    found = verdict(KubernetesData(), JOB, [pod], 1e10, replace(FOREVER, image_seconds=60.0)).status
    assert (found.state, found.fault) == (RunState.FAILED, fault)
    assert "'a:b' cannot be pulled" in found.reason


def test_a_pod_that_never_started_was_not_stopped_by_the_time_limit() -> None:
    late = {"phase": "Failed", "reason": "DeadlineExceeded"}
    found = status({"waiting": {"reason": "ContainerCreating", "message": "no such volume"}}, **late)
    assert (found.state, found.fault) == (RunState.FAILED, Fault.INFRASTRUCTURE)
    assert found.reason == "it did not start before its time limit: ContainerCreating no such volume"
    assert status({}, **late).reason == "it did not start before its time limit"
    found = status({"running": {"startedAt": BEGAN}}, **late)
    assert (found.state, found.fault) == (RunState.TIMED_OUT, Fault.JOB)


@pytest.mark.parametrize(
    ("state", "about", "reason"),
    [
        ({"waiting": {"reason": "ContainerCreating"}}, {}, ""),
        ({"waiting": {"reason": "PodInitializing"}}, {}, ""),
        (
            {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}},
            {},
            "the image 'i:1': ImagePullBackOff Back-off pulling image",
        ),
        (
            {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "s" not found'}},
            {},
            'its container: CreateContainerConfigError secret "s" not found',
        ),
        (
            {},
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 3 Insufficient cpu.",
                    }
                ]
            },
            "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.",
        ),
    ],
)
def test_a_pod_that_waits_says_why(state: dict[str, Any], about: dict[str, Any], reason: str) -> None:
    statuses = [{"name": "job", "image": "i:1", "state": state}]
    pod = {"metadata": {"name": "p", "creationTimestamp": BEGAN}, "status": {"containerStatuses": statuses, **about}}
    assert verdict(KubernetesData(), JOB, [pod], 1e9, FOREVER).status == RunStatus(RunState.SUBMITTING, reason=reason)


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", 0.5), ("4", 4.0), ("2Gi", 2.0**31), ("1e3", 1000.0), ("1.5k", 1500.0), ("1Ei", 2.0**60)],
)
def test_quantities(text: str, number: float) -> None:
    assert quantity(text) == pytest.approx(number)


def test_of_the_events_of_a_job_the_newest_counts() -> None:
    def event(uid: str, when: str, message: str) -> dict[str, Any]:
        return {"metadata": {}, "involvedObject": {"uid": uid}, "lastTimestamp": when, "message": message}

    found = latest_messages(
        [event("a", ENDED, "Error creating: new"), event("a", BEGAN, "old"), event("b", BEGAN, "its")]
    )
    assert found == {"a": "new", "b": "its"}


def test_the_end_is_that_of_the_jobs_own_container() -> None:
    other = {"name": "istio-proxy", "state": terminated(1, "Error")}
    pod = {"status": {"containerStatuses": [other, {"name": "job", "state": terminated(0, "Completed")}]}}
    end = end_of(pod)
    assert end is not None
    assert end["exitCode"] == 0
    assert end_of({"status": {"containerStatuses": [other]}}) is None


@pytest.mark.parametrize("text", [b"10%\r 20%\r 30%\n", b"x\rT = 5.0\n", b"\rT 12\n", b"\x0b\x0c\x85 a\n"])
def test_carriage_returns_of_a_program_end_no_line(text: bytes) -> None:
    packed = base64.b64encode(b"archive")
    found = read_marked(b"O" + text + b"Eoops\n" + b"T 7\n" + packed + b"\nT\n")
    assert found.streams == {"stdout": text, "stderr": b"oops\n"}
    assert found.archive == b"archive"


def resources(base: Path, **settings: Any) -> dict[str, Any]:
    request = request_for(base, ("true",))
    request = replace(request, image="i", offer=replace(request.offer, vcpu=8, memory_gib=32.0, gpus=1))
    job = job_of(request, "{}", {"work": "w"}, KubernetesSettings.model_validate(settings), "h")
    found: dict[str, Any] = job["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert found["requests"].pop("ephemeral-storage") == "0"
    return found


def test_a_node_of_a_type_does_not_lend_all_that_the_type_has(tmp_path: Path) -> None:
    whole = {"cpu": "8000m", "memory": str(32 * 2**30), "nvidia.com/gpu": "1"}
    disk = {"ephemeral-storage": str(20 * 2**30)}
    assert resources(tmp_path) == {"requests": whole, "limits": whole | disk}
    found = resources(tmp_path, instance_type=True)
    assert found["limits"] == whole | disk
    assert found["requests"] == {"cpu": "5600m", "memory": str(int(0.7 * 32 * 2**30)), "nvidia.com/gpu": "1"}
    assert resources(tmp_path, instance_type=True, request_share=1.0)["requests"] == whole
    assert resources(tmp_path, request_share=0.5)["requests"]["cpu"] == "4000m"


def test_a_jobs_deadline_that_the_cluster_has_set_is_told_as_that() -> None:
    late: dict[str, Any] = {
        **JOB,
        "spec": {"activeDeadlineSeconds": 30},
        "status": {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]},
    }
    data = KubernetesData(wall_seconds=60.0)
    killed = {
        "metadata": {"name": "p", "creationTimestamp": BEGAN},
        "status": {"containerStatuses": [{"name": "job", "state": terminated(143, "Error")}]},
    }
    said = "it reached its Job's time limit of 30.0 s: the cluster has set its activeDeadlineSeconds"
    for pods, runtime in (([], 0.0), ([killed], 10.0)):
        found = verdict(data, late, pods, 1e9, FOREVER).status
        assert (found.state, found.fault, found.reason) == (RunState.TIMED_OUT, Fault.JOB, said)
        assert found.runtime == runtime
    running = {
        "metadata": {"name": "p", "creationTimestamp": BEGAN},
        "spec": {"activeDeadlineSeconds": 30},
        "status": {
            "phase": "Failed",
            "reason": "DeadlineExceeded",
            "containerStatuses": [{"name": "job", "state": {"running": {"startedAt": BEGAN}}}],
        },
    }
    assert "its pod's time limit of 30.0 s" in verdict(data, JOB, [running], 1e9, FOREVER).status.reason
    running["spec"] = {"activeDeadlineSeconds": 960}
    assert verdict(data, JOB, [running], 1e9, FOREVER).status.reason == "it reached its time limit of 1m 00s"
