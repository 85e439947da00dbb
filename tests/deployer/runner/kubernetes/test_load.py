"""Runs with a load generator: in one pod with the application that it drives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import request_for
from tests.deployer.runner.kubernetes.test_runner import REAL, KubeBench
from tests.engines.kube_api import KubeApi, kube_cluster
from tests.engines.ssh import free_port

from tradewind.deployer.runner.kubernetes.job import job_of
from tradewind.deployer.runner.kubernetes.settings import KubernetesSettings
from tradewind.deployer.runner.kubernetes.status import KubernetesData, _ended
from tradewind.deployer.runner.load_generators import posix_pattern
from tradewind.errors import DeployError
from tradewind.problem import Fault, Load, RunRequest, RunState
from tradewind.testing.runners import poll_until, wait_for_end

pytestmark = [pytest.mark.xdist_group("kubernetes"), pytest.mark.timeout(300)]
__all__ = ["kube_cluster"]

_APPLICATION = """
import http.server, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 404)
        self.end_headers()
        self.wfile.write(b"hello")
    def log_message(self, *words): pass
socketserver.ThreadingTCPServer.allow_reuse_address = True
server = socketserver.ThreadingTCPServer(("0.0.0.0", int(sys.argv[1])), Handler)
print("serving 1", flush=True)
server.serve_forever()
"""
_LOAD = """
import os, urllib.request
host, port = os.environ["TRADEWIND_APPLICATION_HOST"], os.environ["TRADEWIND_APPLICATION_PORT"]
print(urllib.request.urlopen(f"http://{host}:{port}/ready", timeout=20).read().decode(), os.environ["RATE"])
open(os.environ["TRADEWIND_OUTPUTS"] + "/load", "w").close()
"""


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KubeBench]:
    cluster: KubeApi | None = None if REAL else request.getfixturevalue("kube_cluster")
    made = KubeBench(tmp_path, cluster)
    yield made
    made.close()
    if cluster is not None:
        cluster.reset()


def driven(bench: KubeBench, script: str = _LOAD, run_id: str = "run-1", **changes: Any) -> RunRequest:
    port = free_port()
    argv = (bench.python, "-S", "-c", _APPLICATION, str(port))
    given = {"port": port, "ready_path": "/ready", "ready_pattern": r"^serving \d$", "ready_seconds": 60.0, **changes}
    load = Load(argv=(bench.python, "-S", "-c", script), env={"RATE": "$(HOME) 5"}, **given)
    return replace(bench.request("good", run_id), argv=argv, load=load)


def test_a_load_generator_drives_an_application(bench: KubeBench) -> None:
    request = driven(bench, cpus=1, memory_bytes=2**28)
    runner = bench.make()
    handle = bench.submit(runner, request)
    status = wait_for_end(runner, handle)
    assert status.state is RunState.DONE, status
    runner.collect(handle, request)
    assert (request.folder / "stdout").read_text() == "hello $(HOME) 5\n"
    assert (request.folder / "application.stdout").read_text() == "serving 1\n"
    assert (request.folder / "outputs/load").exists()
    assert status.usage is not None
    assert (status.usage.cpu_seconds or 0.0) > 0.0  # the application's
    assert status.usage.profile["load_cpu_seconds"] > 0.0
    assert 0.0 < status.usage.profile["load_cpu_share"] <= 1.0
    runner.close()


@pytest.mark.parametrize(
    ("cpus", "memory", "held"), [(None, None, {}), (2, 2**28, {"cpu": "2000m", "memory": str(2**28)})]
)
def test_a_load_is_held_to_its_limits(
    tmp_path: Path, cpus: int | None, memory: int | None, held: dict[str, str]
) -> None:
    load = Load(argv=("drive",), cpus=cpus, memory_bytes=memory)
    request = request_for(tmp_path, ("serve",), image="x", load=load)
    job = job_of(request, "{}", {"work": "w"}, KubernetesSettings(), "home")
    driver, application = job["spec"]["template"]["spec"]["containers"]
    limits = {key: value for key, value in driver["resources"]["limits"].items() if key in ("cpu", "memory")}
    assert limits == held
    assert driver["resources"]["requests"].items() >= (held or {"cpu": "100m", "memory": "64Mi"}).items()
    assert application["resources"]["limits"]["cpu"] != "2000m"


def test_a_load_that_takes_too_much_memory_is_told_from_its_application() -> None:
    data = KubernetesData(owner="o", expires=None, memory_bytes=2**30, load_memory=2**28)
    ended = {"exitCode": 137, "reason": "OOMKilled", "startedAt": "2026-01-01T00:00:00Z"}
    pod = {"metadata": {}, "status": {"containerStatuses": [{"name": "job", "state": {"terminated": ended}}]}}
    assert "the load generator: " in _ended(data, pod, ended).reason
    assert "256" in _ended(data, pod, ended).reason


def test_loads_that_fail_and_applications_that_do(bench: KubeBench) -> None:
    runner = bench.make()
    waits = "import time; time.sleep(60)"
    anyway = {"port": None, "ready_path": "", "ready_pattern": ""}
    for request, code, words in (
        (driven(bench, "raise SystemExit(4)", "run-1"), 4, "exited with code 4"),
        (replace(driven(bench, waits, "run-2"), argv=("sh", "-c", "echo no; exit 5")), 5, "application.*code 5"),
        (replace(driven(bench, run_id="run-3", ready_seconds=1.0), argv=("sleep", "60")), None, "not ready in time"),
        (
            replace(driven(bench, waits, "run-4", **anyway), argv=("sh", "-c", "sleep 1; exit 6")),
            6,
            "the application ended before the load generator did, with code 6",
        ),
        (replace(driven(bench, waits, "run-5"), argv=("no-such-program",)), 127, "application.*code 127"),
    ):
        handle = bench.submit(runner, request)
        status = wait_for_end(runner, handle)
        assert (status.state, status.fault, status.exit_code) == (RunState.FAILED, Fault.JOB, code), status
        assert re.search(words, status.reason), status
        runner.collect(handle, request)
        assert (request.folder / "application.stdout").exists() == (request.run_id != "run-5")
        runner.forget(handle)
    runner.close()


def test_a_load_has_the_time_of_its_run(bench: KubeBench) -> None:
    runner = bench.make()
    request = driven(bench, "import time; time.sleep(60)")
    request = replace(request, limits=replace(request.limits, wall_seconds=4.0))
    status = wait_for_end(runner, bench.submit(runner, request))
    assert status.state is RunState.TIMED_OUT, status
    runner.close()


def test_a_cancelled_load_takes_its_application_along(bench: KubeBench) -> None:
    runner = bench.make()
    handle = bench.submit(runner, driven(bench, "print('on', flush=True); import time; time.sleep(60)"))
    poll_until(runner, handle, lambda status: bool(runner.read_log(handle, "stdout", 0)))
    runner.cancel(handle, "enough")
    assert wait_for_end(runner, handle).state is RunState.CANCELLED
    assert not bench.left("run-1")
    runner.close()


def test_an_application_that_takes_too_much_memory_is_told(bench: KubeBench) -> None:
    runner = bench.make()
    request = driven(bench, "import time; time.sleep(120)", port=None, ready_path="", ready_pattern="")
    grows = "import time\nmany = []\nwhile True: many.append(b'x' * 2**24); time.sleep(0.01)"
    handle = bench.submit(runner, replace(request, argv=(bench.python, "-S", "-c", grows)))
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (RunState.FAILED, Fault.JOB)
    assert "the application" in status.reason
    assert "memory" in status.reason
    runner.close()


def test_a_load_on_several_nodes_is_refused(bench: KubeBench) -> None:
    runner = bench.make()
    request = driven(bench)
    with pytest.raises(DeployError, match="on one node") as caught:
        bench.submit(runner, replace(request, offer=request.offer.times(2)))
    assert not caught.value.retryable
    runner.close()


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"^ready in \d+ ms$", "^ready in [0-9]+ ms$"),
        (r"(?:up|on)\s\w", "(up|on)[[:space:]][[:alnum:]_]"),
        (r"[\d.]+ \S", "[0-9.]+ [^[:space:]]"),
        (r"a\.b\[[^]x]", r"a\.b\[[^]x]"),
    ],
)
def test_a_pattern_is_written_for_busybox(pattern: str, found: str) -> None:
    assert posix_pattern(pattern, "Kubernetes") == found


@pytest.mark.parametrize("pattern", [r"(?=x)", r"(?P<n>x)", r"x*?", r"\bword", r"x+?"])
def test_what_only_python_knows_is_refused(pattern: str) -> None:
    with pytest.raises(DeployError, match=r"job\.load\.ready\.pattern"):
        posix_pattern(pattern, "Kubernetes")
