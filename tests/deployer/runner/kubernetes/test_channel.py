"""Commands beside a run in its pod: over the WebSocket of the API, and what a workflow does with them."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.deployer.runner.kubernetes.test_runner import IMAGE, REAL, KubeBench, pretended, shell
from tests.engines.kube_api import KubeApi, kube_cluster
from tests.workflow.execution.plans import carry, flow_of, plan_of, sh

from tradewind.errors import CredentialsError, UnreachableError
from tradewind.problem import Handle, RunState
from tradewind.testing.runners import poll_until
from tradewind.workflow.execution.events import ExecutionEnding
from tradewind.workflow.execution.pilots import PilotSettings

pytestmark = [pytest.mark.xdist_group("kubernetes"), pytest.mark.timeout(300)]
__all__ = ["kube_cluster"]

LARGE = 300_000


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KubeBench]:
    cluster: KubeApi | None = None if REAL else request.getfixturevalue("kube_cluster")
    bench = KubeBench(tmp_path, cluster)
    yield bench
    bench.close()
    if cluster is not None:
        cluster.reset()


def started(bench: KubeBench) -> Handle:
    runner = bench.make()
    handle = bench.submit(runner, shell(bench, "echo given > file; sleep 60"))
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    return handle


def everything(stream: socket.socket) -> bytes:
    stream.settimeout(30)
    with stream.makefile("rb") as file:
        return file.read()


@pytest.mark.parametrize("version", [5, pytest.param(4, marks=pretended)])
def test_a_command_runs_in_the_working_folder_with_a_stream(bench: KubeBench, version: int) -> None:
    if bench.cluster is not None:
        bench.cluster.exec_version = version
    handle, runner = started(bench), bench.make()
    with runner.open_channel(
        handle, ["sh", "-c", 'cat file; echo oops >&2; echo "$1"; head -c 3', "sh", "$(a) b"]
    ) as s:
        s.sendall(b"xyz")
        assert everything(s) == b"given\n$(a) b\nxyz"
    blob = os.urandom(LARGE)
    with runner.open_channel(handle, ["sh", "-c", f"head -c {LARGE}; cat > rest; echo over > over"]) as stream:
        stream.sendall(blob)
        stream.settimeout(30)
        got = b""
        while len(got) < LARGE:
            got += stream.recv(1 << 16)
        assert got == blob
        stream.shutdown(socket.SHUT_WR)  # the input of the command ends, and so does the command
        assert everything(stream) == b""
    with runner.open_channel(handle, ["sh", "-c", "until cat over; do sleep 0.05; done"]) as stream:
        assert everything(stream) == b"over\n"
    runner.close()


@pretended
def test_what_is_not_there_or_not_allowed_is_said(bench: KubeBench) -> None:
    assert bench.cluster is not None
    runner, handle = bench.make(), started(bench)
    with pytest.raises(UnreachableError, match="run run-2 has no pod"):
        runner.open_channel(replace(handle, run_id="run-2"), ["true"])
    bench.cluster.forbidden.add(("get", "pods/exec"))
    with pytest.raises(CredentialsError, match='cannot get resource "pods/exec"') as caught:
        runner.open_channel(handle, ["true"])
    assert caught.value.hint == "the guide lists the rights that the account needs"
    runner.close()


def test_a_plan_whose_machines_are_pods(tmp_path: Path, bench: KubeBench) -> None:
    """Files are sent into each pod, and what the tasks write comes back."""
    (tmp_path / "x").write_text("7\n")
    parts = [sh(name, f"cat x > {name}", after="x", writes=name, runtime=5.0) for name in ("left", "right")]
    both = sh("both", "cat left right > total", after="left right", writes="total", runtime=1.0)
    python = "python3" if REAL else sys.executable
    terms = PilotSettings(python=python, linger=10.0, poll_seconds=0.3, silence=10.0, image=IMAGE)
    folder, runner = tmp_path / "run", bench.make()
    carried = carry(plan_of(flow_of(*parts, both)), folder, runner=runner, terms=terms)
    assert carried.ending is ExecutionEnding.DONE, carried.failures
    assert (folder / "files/total").read_text() == "7\n7\n"
    assert runner._api.listed("jobs", "") == [], "nothing is left in the cluster"
    runner.close()
