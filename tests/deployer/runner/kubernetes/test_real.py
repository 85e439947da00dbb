"""What a real cluster says of pods that it does not make or place, and what its nodes have; see ``test_runner``.

It makes objects that only a cluster's master may make: a namespace with a quota, another with a limit range.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deployer.runner.kubernetes.test_runner import IMAGE, REAL, KubeBench, shell
from tests.waiting import eventually

from tradewind.problem import Fault, RunState
from tradewind.testing.runners import poll_until, wait_for_end

pytestmark = [
    pytest.mark.xdist_group("kubernetes"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(not REAL, reason="TRADEWIND_KUBERNETES names no real cluster"),
]

_RULES: dict[str, dict[str, Any]] = {
    "one": {"kind": "ResourceQuota", "spec": {"hard": {"pods": "1"}}},
    "small": {"kind": "ResourceQuota", "spec": {"hard": {"limits.cpu": "50m"}}},
    "range": {"kind": "LimitRange", "spec": {"limits": [{"type": "Container", "max": {"cpu": "150m"}}]}},
    "free": {},
}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KubeBench]:
    made = KubeBench(tmp_path, None)
    yield made
    made.close()


@pytest.fixture
def spaces(bench: KubeBench) -> Iterator[dict[str, str]]:
    """Namespaces of this test, by what is special in them."""
    runner, mark = bench.make(), uuid.uuid4().hex[:6]
    names = {name: f"tw-{name}-{mark}" for name in _RULES}
    api = runner._api
    for name, space in names.items():
        api.call("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
        if _RULES[name]:
            rule = {"apiVersion": "v1", "metadata": {"name": "rule"}, **_RULES[name]}
            api.call("POST", f"/api/v1/namespaces/{space}/{rule['kind'].lower()}s", rule)
    yield names
    for space in names.values():
        api.call("DELETE", f"/api/v1/namespaces/{space}")
    runner.close()


def test_a_quota_is_waited_for_and_said(bench: KubeBench, spaces: dict[str, str]) -> None:
    runner = bench.make(namespace=spaces["one"], schedule_seconds=5.0)
    first = bench.submit(runner, shell(bench, "sleep 120"))
    poll_until(runner, first, lambda status: status.state is RunState.EXECUTING)
    second = bench.submit(runner, bench.request("good", "run-2"))
    poll_until(runner, second, lambda status: "exceeded quota: rule" in status.reason)
    time.sleep(6.0)
    assert runner.poll([second])["run-2"].state is RunState.SUBMITTING, "the quota is full of our own"
    runner.cancel(first)
    assert wait_for_end(runner, first).state is RunState.CANCELLED
    runner.forget(first)
    # The controller tries again after pauses that double.
    eventually(lambda: runner.poll([second])["run-2"].state is RunState.DONE, 120)
    runner.close()


@pytest.mark.parametrize(
    ("space", "settings", "fault", "words"),
    [
        ("small", {}, Fault.JOB, "one pod alone asks for more limits.cpu than the quota rule has"),
        ("range", {}, Fault.JOB, "maximum cpu usage per Container is 150m"),
        ("free", {"priority_class": "no-such-class"}, Fault.CREDENTIALS, "no PriorityClass with name no-such-class"),
    ],
    ids=["quota", "limit range", "priority class"],
)
def test_what_is_never_admitted_ends_within_seconds(
    bench: KubeBench, spaces: dict[str, str], space: str, settings: dict[str, Any], fault: Fault, words: str
) -> None:
    runner = bench.make(namespace=spaces[space], **settings)
    began = time.monotonic()
    status = wait_for_end(runner, bench.submit(runner, bench.request("good")))
    assert (status.state, status.fault) == (RunState.FAILED, fault), status
    assert words in status.reason
    assert time.monotonic() - began < 30
    runner.close()


def test_a_pod_that_is_too_large_says_that_no_node_has_room(bench: KubeBench) -> None:
    runner = bench.make()
    request = bench.request("good")
    handle = bench.submit(runner, replace(request, offer=replace(request.offer, vcpu=500)))
    status = poll_until(runner, handle, lambda status: bool(status.reason))
    assert (status.state, "Insufficient cpu" in status.reason) == (RunState.SUBMITTING, True), status
    runner.cancel(handle)
    assert wait_for_end(runner, handle).state is RunState.CANCELLED
    runner.close()


def test_an_image_that_is_not_there_is_said_while_it_waits(bench: KubeBench) -> None:
    runner = bench.make()
    handle = bench.submit(runner, replace(bench.request("good"), image="local/missing:1"))
    status = poll_until(runner, handle, lambda status: "local/missing:1" in status.reason)
    assert status.state is RunState.SUBMITTING
    runner.cancel(handle)
    assert wait_for_end(runner, handle).state is RunState.CANCELLED
    runner.close()


def test_pods_of_others_are_taken_off_the_nodes(bench: KubeBench, spaces: dict[str, str]) -> None:
    runner = bench.make()
    before = runner.nodes()["node-1"]
    pod = {
        "metadata": {"name": "other"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "c",
                    "image": IMAGE,
                    "command": ["sleep", "300"],
                    "resources": {"requests": {"cpu": "250m", "memory": "128Mi"}},
                }
            ],
        },
    }
    runner._api.call("POST", f"/api/v1/namespaces/{spaces['free']}/pods", pod)
    expected = {"cpu": before["cpu"] - 0.25, "memory": before["memory"] - 0.125}
    eventually(lambda: runner.nodes()["node-1"] == pytest.approx(expected), 30)
    runner._api.call("DELETE", f"/api/v1/namespaces/{spaces['free']}/pods/other")
    eventually(lambda: runner.nodes()["node-1"] == before, 30)
    own = bench.submit(runner, shell(bench, "sleep 60"))
    poll_until(runner, own, lambda status: status.state is RunState.EXECUTING)
    assert runner.nodes()["node-1"] == before, "our own pods are not others'"
    runner.cancel(own)
    wait_for_end(runner, own)
    runner.close()


def _tradewind(folder: Path, *words: str, code: int = 0) -> str:
    environment = {**os.environ, "TRADEWIND_HOME": str(folder / "home")}
    command = [sys.executable, "-W", "ignore", "-m", "tradewind", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def _job(folder: Path, command: list[str], **runner: Any) -> None:
    job = {
        "name": "train",
        "job": {"image": IMAGE, "command": command},
        "space": {"instance": {"provider": "local", "vcpu": "..1"}, "batch": [1, 2, 3]},
        "budget": {"dollars": 1, "hours": "1h"},
        "deploy": {"runner": {"use": "kubernetes", "kubeconfig": REAL, "helper_image": "local/busybox:1", **runner}},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))


def test_searches_share_the_cluster(tmp_path: Path) -> None:
    _job(tmp_path, ["sh", "-c", "echo {{ batch }}"])
    for tenant in ("a", "b"):
        _tradewind(tmp_path, "submit", "job.yaml", "--tenant", tenant, "--trials", "3", "--parallel", "2")
    settings = ["--set", f"kubeconfig={REAL}", "--set", "helper_image=local/busybox:1"]
    _tradewind(tmp_path, "cluster", "start", "--kubernetes", *settings, "--limit", "cpu=2", "--until-empty")
    for tenant in ("a", "b"):
        told = json.loads(_tradewind(tmp_path, "status", f"{tenant}/train", "--json"))
        assert "succeeded" in json.dumps(told), told
