"""Runs with a load generator: in one pod with the application that it drives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.runner.kubernetes.test_runner import REAL, KubeBench
from tests.engines.kube_api import KubeApi, kube_cluster
from tests.engines.ssh import free_port

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
    request = driven(bench)
    runner = bench.make()
    handle = bench.submit(runner, request)
    status = wait_for_end(runner, handle)
    assert status.state is RunState.DONE, status
    runner.collect(handle, request)
    assert (request.folder / "stdout").read_text() == "hello $(HOME) 5\n"
    assert (request.folder / "application.stdout").read_text() == "serving 1\n"
    assert (request.folder / "outputs/load").exists()
    runner.close()


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
