"""Which nodes of a cluster take pods, and what they have."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.engines.kube_api import KubeApi, kube_cluster, node

from tradewind.deployer.runner.kubernetes.job import HOME, home_label
from tradewind.deployer.runner.kubernetes.runner import KubernetesRunner, nodes_of
from tradewind.deployer.runner.kubernetes.settings import KubernetesSettings
from tradewind.errors import CredentialsError, MissingProgramError

pytestmark = pytest.mark.xdist_group("kubernetes")
__all__ = ["kube_cluster"]

_GPUS = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, {"cpu": 4.0, "memory": 8.0}),
        ({"cpu": "3920m", "memory": "7936Mi"}, {"cpu": 3.92, "memory": 7.75}),
        ({"memory": "8e9"}, {"cpu": 4.0, "memory": 8e9 / 2**30}),
        ({"more": {"nvidia.com/gpu": "2"}}, {"cpu": 4.0, "memory": 8.0, "gpu": 2.0}),
        ({"ready": "Unknown"}, None),
        ({"spec": {"unschedulable": True}}, None),
        ({"spec": {"taints": [_GPUS]}}, None),
        ({"spec": {"taints": [{**_GPUS, "effect": "PreferNoSchedule"}]}}, {"cpu": 4.0, "memory": 8.0}),
    ],
)
def test_a_node_has_what_pods_may_have(given: dict[str, Any], found: dict[str, float] | None) -> None:
    expected = {} if found is None else {"one": pytest.approx(found)}
    assert nodes_of([node("one", **given)], [], KubernetesSettings()) == expected


@pytest.mark.parametrize(
    ("toleration", "taken"),
    [
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "value": "yes", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_taints_that_pods_put_up_with(toleration: dict[str, str | int], taken: bool) -> None:
    settings = KubernetesSettings(tolerations=[toleration])
    assert bool(nodes_of([node("one", spec={"taints": [_GPUS]})], [], settings)) == taken


def test_pods_that_request_a_share_of_their_offer_fit_more_often() -> None:
    assert nodes_of([node("one", cpu="3500m", memory="7Gi")], [], KubernetesSettings(request_share=0.875)) == {
        "one": {"cpu": 4.0, "memory": 8.0}
    }


def _takes(cpu: str = "0", memory: str = "0", **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu, "memory": memory, "nvidia.com/gpu": "0"}}, **more}


@pytest.mark.parametrize(
    ("spec", "cpu", "memory"),
    [
        ({"containers": [_takes("500m", "1Gi"), _takes("1", "1Gi")]}, 2.5, 6.0),
        ({"containers": [{"resources": {}}, {"resources": {"limits": {}}}]}, 4.0, 8.0),
        ({"containers": [_takes("1", "1Gi")], "initContainers": [_takes("3", "512Mi")]}, 1.0, 7.0),
        (
            # A sidecar beside the container, and beside the step after it but not the one before.
            {
                "containers": [_takes("1")],
                "initContainers": [_takes("2500m"), _takes("1", restartPolicy="Always"), _takes("500m")],
            },
            1.5,
            8.0,
        ),
        ({"containers": [_takes("1")], "overhead": {"cpu": "250m", "memory": "1Gi"}}, 2.75, 7.0),
        ({"containers": [_takes("5")]}, None, 8.0),
        ({"containers": [_takes("1")], "nodeName": "another"}, 4.0, 8.0),
    ],
    ids=["two", "best effort", "init", "sidecar", "overhead", "all", "elsewhere"],
)
def test_what_others_pods_request_is_not_ours(spec: dict[str, Any], cpu: float | None, memory: float) -> None:
    pod = {"spec": {"nodeName": "one", **spec}}
    expected = {"memory": pytest.approx(memory)} | ({} if cpu is None else {"cpu": pytest.approx(cpu)})
    assert nodes_of([node("one")], [pod], KubernetesSettings()) == {"one": expected}


def test_pods_of_others_are_taken_off_and_our_own_are_not(tmp_path: Path, kube_cluster: KubeApi) -> None:
    settings = KubernetesSettings(kubeconfig=kube_cluster.kubeconfig(tmp_path / "kubeconfig"))
    runner = KubernetesRunner(settings=settings, data_folder=tmp_path)

    def pod(phase: str, **labels: str) -> dict[str, Any]:
        spec = {"nodeName": "one", "containers": [_takes("1", "2Gi")]}
        return {"metadata": {"labels": labels}, "spec": spec, "status": {"phase": phase}}

    try:
        kube_cluster.elsewhere = [
            pod("Running"),
            pod("Pending", **{HOME: home_label(tmp_path / "other")}),
            pod("Succeeded"),
            pod("Failed"),
            pod("Running", **{HOME: home_label(tmp_path)}),
        ]
        assert runner.nodes() == {"one": {"cpu": 2.0, "memory": 4.0}, "two": {"cpu": 3.92, "memory": 8.0}}
        kube_cluster.forbidden.add(("list", "pods"))
        with pytest.raises(CredentialsError, match='cannot list resource "pods"') as caught:
            runner.nodes()
        assert "rights" in (caught.value.hint or "")
    finally:
        runner.close()
        kube_cluster.reset()


def test_the_nodes_of_a_cluster(tmp_path: Path, kube_cluster: KubeApi) -> None:
    def runner(**given: Any) -> KubernetesRunner:
        settings = KubernetesSettings(kubeconfig=kube_cluster.kubeconfig(tmp_path / "kubeconfig"), **given)
        return KubernetesRunner(settings=settings, data_folder=tmp_path)

    try:
        assert runner().nodes() == {"one": {"cpu": 4.0, "memory": 8.0}, "two": {"cpu": 3.92, "memory": 8.0}}
        assert list(runner(node_selector={"disk": "fast"}).nodes()) == ["two"]
        kube_cluster.forbidden.add(("list", "nodes"))
        with pytest.raises(CredentialsError, match="cannot list resource") as caught:
            runner().nodes()
        assert "rights" in (caught.value.hint or "")
    finally:
        kube_cluster.reset()


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kubernetes", "urllib3"):
        monkeypatch.setitem(sys.modules, name, None)
    runner = KubernetesRunner(settings=KubernetesSettings(), data_folder=tmp_path)
    with pytest.raises(MissingProgramError, match="kubernetes is not installed") as caught:
        runner.nodes()
    assert "tradewind[kubernetes]" in (caught.value.hint or "")


def test_an_instance_type_is_chosen_by_one_setting() -> None:
    label = {"node.kubernetes.io/instance-type": "m5.large"}
    with pytest.raises(ValidationError, match="leave one out"):
        KubernetesSettings(instance_type=True, node_selector=label)
    assert KubernetesSettings(node_selector=label).node_selector == label
