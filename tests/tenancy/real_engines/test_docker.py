"""Searches that share this machine in containers."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest
from tests.engines.docker import IMAGE, DockerEngine, docker  # noqa: F401  (a fixture)
from tests.tenancy.real_engines.checks import nodes_of
from tests.tenancy.world import World

from tradewind.cli.app import run
from tradewind.deployer.runner import resource_limits
from tradewind.engine.search_builder import study_document
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.store.clusters.cluster_store import JobRow

pytestmark = pytest.mark.xdist_group("docker")

JOB = """
name: contained
job:
  {image}
  command: [sh, -c, "ls / > listing; echo loss {{{{ x }}}}"]
space: {{x: 1..40}}
offers: {{provider: local, vcpu: 1, memory: 1}}
objective: {{minimise: loss}}
interpret: [{{use: regex, patterns: 'loss (?P<loss>[0-9.]+)'}}]
budget: {{trials: 2}}
searcher: random
"""


def test_runs_are_in_containers_of_this_machine(
    tmp_path: Path,
    docker: DockerEngine,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path))
    world = World(tmp_path)
    with closing(world.store), closing(world.studies):
        rows = [
            world.store.submit(
                JobRow(0, tenant, "contained", study_document(parse_spec(JOB.format(image=image), base=world.work)), {})
            )
            for tenant, image in (("A", f"image: {IMAGE}"), ("B", f"image: {IMAGE}"), ("C", "env: {}"))
        ]
        words = ["--docker", "--set", f"host={docker.host}", "--set", "network=none", "--set", "pull=never"]
        assert run(["cluster", "start", "--store", world.url, "--until-empty", *words]) == 7, "one failed"
        found = [world.store.job(row.id) for row in rows]
        assert [row.state for row in found] == ["done", "done", "failed"], [row.reason for row in found]
        assert "docker runner needs job.image" in found[2].reason
        for row in found[:2]:
            assert row.study_id is not None
            runs = world.studies.runs(row.study_id)
            assert len(runs) == 2
            assert {handle.runner for each in runs if (handle := each.handle)} == {"docker"}
        # The root of the container is the image's, not this machine's.
        assert "tradewind" in (world.work / "listing").read_text().split()
        assert nodes_of(world) == {
            socket.gethostname(): {
                "cpu": float(resource_limits.cpus_here()),
                "memory": resource_limits.memory_here() / 2**30,
            }
        }
