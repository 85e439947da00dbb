"""Load generators on a real Slurm: the application on one node of the job, the load on another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import python, request_for
from tests.deployer.runner.slurm.helpers import slurm_runner
from tests.engines.slurm import SlurmCluster, slurm  # noqa: F401  (a fixture)
from tests.engines.ssh import free_port

from tradewind.deployer.runner.slurm.load_generator import check_load
from tradewind.deployer.runner.slurm.options import SlurmSettings
from tradewind.deployer.runner.slurm.runner import SlurmRunner
from tradewind.errors import DeployError
from tradewind.problem import Fault, Load, RunRequest, RunState
from tradewind.testing.runners import poll_until, wait_for_end

_APPLICATION = """
import http.server, os, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 404)
        self.end_headers()
        self.wfile.write(os.environ["SLURMD_NODENAME"].encode())
    def log_message(self, *words): pass
socketserver.ThreadingTCPServer.allow_reuse_address = True
server = socketserver.ThreadingTCPServer(("0.0.0.0", int(sys.argv[1])), Handler)
print("serving 1", os.environ["TRADEWIND_NODE_IPS"].split(), flush=True)
server.serve_forever()
"""
_LOAD = """
import os, sys, urllib.request
host, port = os.environ["TRADEWIND_APPLICATION_HOST"], os.environ["TRADEWIND_APPLICATION_PORT"]
there = urllib.request.urlopen(f"http://{host}:{port}/ready", timeout=20).read().decode()
print(there != os.environ["SLURMD_NODENAME"], os.environ["RATE"], len(os.sched_getaffinity(0)), sys.argv[1:])
held = bytearray(40 << 20)
sum(range(1_000_000))
open(os.environ["TRADEWIND_OUTPUTS"] + "/load", "w").close()
"""

pytestmark = pytest.mark.xdist_group("slurm")


@pytest.fixture
def runner(tmp_path: Path, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmRunner]:  # noqa: F811
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    made = slurm_runner(tmp_path)
    yield made
    made.close()
    slurm.call("scancel", "--me", check=False)


def driven(folder: Path, run_id: str = "run-1", script: str = _LOAD, **changes: Any) -> RunRequest:
    port = free_port()
    given = {"port": port, "ready_path": "/ready", "ready_pattern": r"^serving \d", **changes}
    load = Load(argv=(*python(script), "a 'b'"), env={"RATE": "$(HOME) 5"}, cpus=1, memory_bytes=2**28, **given)
    return request_for(folder, (*python(_APPLICATION), str(port)), run_id=run_id, load=load)


def test_a_load_on_a_node_of_its_own_drives_an_application(runner: SlurmRunner, tmp_path: Path) -> None:
    request = driven(tmp_path)
    handle = runner.submit(request, [])
    status = wait_for_end(runner, handle)
    runner.collect(handle, request)
    assert status.state is RunState.DONE, (status, (request.folder / "stderr").read_text())
    assert (request.folder / "stdout").read_text() == "True $(HOME) 5 1 [\"a 'b'\"]\n"
    assert (request.folder / "application.stdout").read_text() == "serving 1 ['127.0.0.1']\n"
    assert (request.folder / "outputs/load").exists()
    assert status.usage is not None
    profile = status.usage.profile
    assert profile["load_cpu_seconds"] > 0.0
    assert 0.0 < profile["load_cpu_share"] <= 1.0
    assert profile["load_peak_memory_bytes"] > 40 << 20


@pytest.mark.slow
def test_loads_that_fail_and_applications_that_do(
    runner: SlurmRunner,
    tmp_path: Path,
    slurm: SlurmCluster,  # noqa: F811
) -> None:
    anyway: dict[str, Any] = {"port": None, "ready_path": "", "ready_pattern": ""}
    waits = "import time; time.sleep(60)"
    cases = {
        "fails": (driven(tmp_path, "fails", "raise SystemExit(7)"), 7, "exited with code 7"),
        "greedy": (driven(tmp_path, "greedy", "x = bytearray(600 << 20)"), 137, ""),
        "dies": (
            replace(driven(tmp_path, "dies", waits, **anyway), argv=tuple(python("raise SystemExit(4)"))),
            4,
            "the application ended",
        ),
        "late": (
            replace(driven(tmp_path, "late", ready_seconds=0.5), argv=tuple(python(waits))),
            1,
            "the application was not ready within 1.0 s",
        ),
        "absent": (replace(driven(tmp_path, "absent"), argv=("no-such-program",)), 127, "there is no program"),
    }
    for name, (request, code, words) in cases.items():
        status = wait_for_end(runner, runner.submit(request, []))
        assert (status.state, status.fault) == (RunState.FAILED, Fault.JOB), (name, status)
        assert words in status.reason, (name, status)
        assert name == "greedy" or status.exit_code == code, (name, status)
    assert slurm.jobs() == []


@pytest.mark.slow
def test_a_load_that_is_cancelled_leaves_nothing(runner: SlurmRunner, tmp_path: Path, slurm: SlurmCluster) -> None:  # noqa: F811
    begun = tmp_path / "begun"
    script = f"import time; open({str(begun)!r}, 'w').close(); time.sleep(60)"
    request = driven(tmp_path, script=script)
    handle = runner.submit(request, [])
    poll_until(runner, handle, lambda status: begun.exists())
    runner.cancel(handle, "enough")
    assert wait_for_end(runner, handle).state is RunState.CANCELLED
    assert slurm.jobs() == []


def test_what_a_job_of_two_equal_nodes_cannot_hold_is_refused(tmp_path: Path) -> None:
    request = driven(tmp_path)
    load = request.load
    assert load is not None
    two = replace(request, offer=replace(request.offer, nodes=2))
    for wrong, generator, settings, words in (
        (two, load, SlurmSettings(), "drives an application on one node, and the offer has 2"),
        (request, load, SlurmSettings(mpi="pmix"), "drives no MPI program"),
        (replace(request, image="x"), load, SlurmSettings(container="podman"), "is not run by podman"),
        (request, replace(load, cpus=99), SlurmSettings(), "and asks for"),
    ):
        with pytest.raises(DeployError, match=words) as caught:
            check_load(wrong, generator, settings)
        assert not caught.value.retryable
