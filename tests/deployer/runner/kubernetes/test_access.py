"""Who may do what on a cluster: logins that are renewed while runs run, and namespaces that admit few pods."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import OFFER, request_for
from tests.engines.kube_api import TOKEN, KubeApi, kube_cluster

from tradewind.deployer.runner.kubernetes.runner import KubernetesRunner
from tradewind.deployer.runner.kubernetes.settings import KubernetesSettings
from tradewind.errors import CredentialsError
from tradewind.problem import RunRequest, RunState
from tradewind.testing.runners import poll_until, wait_for_end

pytestmark = [pytest.mark.xdist_group("kubernetes"), pytest.mark.timeout(300)]
__all__ = ["kube_cluster"]


@pytest.fixture
def cluster(kube_cluster: KubeApi) -> Iterator[KubeApi]:
    yield kube_cluster
    kube_cluster.reset()


def over(folder: Path, config: str, **given: Any) -> KubernetesRunner:
    settings = KubernetesSettings(kubeconfig=config, helper_image="local/busybox:1", **given)
    return KubernetesRunner(settings=settings, data_folder=folder / "data")


def request(folder: Path, script: str) -> RunRequest:
    offer = replace(OFFER, vcpu=1, memory_gib=0.5)
    return request_for(folder, ("sh", "-c", script), image="local/py:1", offer=offer)


def plugin(folder: Path, config: str) -> str:
    """A kubeconfig whose user's token comes from a program, which does not say for how long it is good."""
    said = (
        "{'apiVersion': 'client.authentication.k8s.io/v1beta1', 'kind': 'ExecCredential', 'status': {'token': token}}"
    )
    code = f"import json; token = open({str(folder / 'token')!r}).read(); print(json.dumps({said}))"
    about = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": sys.executable, "args": ["-c", code]}
    found = json.loads(Path(config).read_text())
    found["users"][0]["user"] = {"exec": about}
    (folder / "plugin").write_text(json.dumps(found))
    return str(folder / "plugin")


@pytest.mark.parametrize("program", [False, True])
def test_a_login_that_is_renewed_while_a_run_runs(tmp_path: Path, cluster: KubeApi, program: bool) -> None:
    config = cluster.kubeconfig(tmp_path / "config")
    (tmp_path / "token").write_text(TOKEN)
    runner = over(tmp_path, plugin(tmp_path, config) if program else config)
    handle = runner.submit(request(tmp_path, "sleep 60"), [])
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    cluster.token = "another"
    (tmp_path / "token").write_text("another")
    cluster.kubeconfig(tmp_path / "config", "another")
    runner.cancel(handle)
    assert wait_for_end(runner, handle).state is RunState.CANCELLED
    runner.close()


def test_a_login_that_is_over_is_read_again_once_in_a_while(
    tmp_path: Path, cluster: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = cluster.kubeconfig(tmp_path / "config")
    runner = over(tmp_path, config)
    handle = runner.submit(request(tmp_path, "sleep 60"), [])
    cluster.token = "another"
    asked = 0
    answer = cluster.answer

    def count(*words: Any) -> bytes:
        nonlocal asked
        asked += 1
        return answer(*words)

    monkeypatch.setattr(cluster, "answer", count)
    assert runner.poll([handle])["run-1"].state is RunState.EXECUTING, "unknown counts as alive"
    with pytest.raises(CredentialsError, match="does not know us"):
        runner.find(None)
    assert asked == 3, "one look more for the first refusal, and none for those that follow"
    runner.close()


def test_a_restricted_namespace_admits_pods_of_a_plain_user(tmp_path: Path, cluster: KubeApi) -> None:
    cluster.restricted = True
    runner = over(tmp_path, cluster.kubeconfig(tmp_path / "config"), run_as=1000)
    handle = runner.submit(request(tmp_path, "echo fine"), [])
    assert wait_for_end(runner, handle).state is RunState.DONE
    [pod] = cluster.objects["pods"].values()
    assert pod["spec"]["securityContext"]["runAsUser"] == pod["spec"]["securityContext"]["fsGroup"] == 1000
    runner.close()
