"""Searches that share a Kubernetes cluster."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from tests.engines.kube_api import KubeApi, kube_cluster
from tests.tenancy.real_engines.checks import nodes_of
from tests.tenancy.world import World

from tradewind.cli.app import run
from tradewind.engine.search_builder import study_document
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.store.clusters.cluster_store import JobRow

pytestmark = pytest.mark.xdist_group("kubernetes")
__all__ = ["kube_cluster"]

JOB = """
name: pods
job: {image: "local/py:1", command: [sh, -c, "echo loss {{ x }}"]}
space: {x: 1..40}
offers: {provider: local, vcpu: 1, memory: 1}
objective: {minimise: loss}
interpret: [{use: regex, patterns: 'loss (?P<loss>[0-9.]+)'}]
budget: {trials: 2}
searcher: random
"""


def test_searches_of_two_tenants_share_a_cluster(
    tmp_path: Path,
    kube_cluster: KubeApi,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path))
    config = kube_cluster.kubeconfig(tmp_path / "kubeconfig")
    world = World(tmp_path)
    try:
        with closing(world.store), closing(world.studies):
            document = study_document(parse_spec(JOB, base=world.work))
            rows = [world.store.submit(JobRow(0, tenant, "pods", document, {})) for tenant in ("A", "B")]
            words = ["--set", "helper_image=local/busybox:1", "--set", "queue=shared", "--limit", "cpu=2"]
            words += ["--set", f"kubeconfig={config}"]
            assert run(["cluster", "start", "--kubernetes", "--store", world.url, "--until-empty", *words]) == 0
            found = [world.store.job(row.id) for row in rows]
            assert [row.state for row in found] == ["done", "done"], [row.reason for row in found]
            for row in found:
                assert row.study_id is not None
                runs = world.studies.runs(row.study_id)
                assert len(runs) == 2
                assert {handle.runner for each in runs if (handle := each.handle)} == {"kubernetes"}
            assert nodes_of(world) == {"one": {"cpu": 2.0, "memory": 8.0}, "two": {"cpu": 2.0, "memory": 8.0}}
    finally:
        kube_cluster.reset()
