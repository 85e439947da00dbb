"""Runs with a load generator: in one pod with the application that it drives, or in one of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import request_for
from tests.deployer.runner.kubernetes.test_runner import REAL, KubeBench, _works, pretended
from tests.engines.kube_api import KubeApi, kube_cluster
from tests.engines.ssh import free_port
from tests.waiting import eventually

from tradewind.deployer.runner.kubernetes.job import MANAGED, ROLE, job_of, load_job_of
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


APART = pytest.mark.parametrize("apart", [False, True], ids=["beside", "apart"])


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


@APART
def test_a_load_generator_drives_an_application(bench: KubeBench, apart: bool) -> None:
    request = driven(bench, cpus=1, memory_bytes=2**28)
    runner = bench.make(load_apart=apart)
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
    runner.forget(handle)
    eventually(lambda: not bench.left("run-1") and not runner._api.listed("jobs", MANAGED))
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


@APART
def test_loads_that_fail_and_applications_that_do(bench: KubeBench, apart: bool) -> None:
    runner = bench.make(load_apart=apart)
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
        (replace(driven(bench, waits, "run-5"), argv=("no-such-program",)), 127, "application.*(code 127|no program)"),
    ):
        handle = bench.submit(runner, request)
        status = wait_for_end(runner, handle)
        assert (status.state, status.fault, status.exit_code) == (RunState.FAILED, Fault.JOB, code), status
        assert re.search(words, status.reason), status
        runner.collect(handle, request)
        assert (request.folder / "application.stdout").exists() == (request.run_id != "run-5")
        runner.forget(handle)
    runner.close()


@APART
def test_a_load_has_the_time_of_its_run(bench: KubeBench, apart: bool) -> None:
    runner = bench.make(load_apart=apart)
    request = driven(bench, "import time; time.sleep(60)")
    request = replace(request, limits=replace(request.limits, wall_seconds=4.0))
    status = wait_for_end(runner, bench.submit(runner, request))
    assert status.state is RunState.TIMED_OUT, status
    runner.close()


@APART
def test_a_cancelled_load_takes_its_application_along(bench: KubeBench, apart: bool) -> None:
    runner = bench.make(load_apart=apart)
    handle = bench.submit(runner, driven(bench, "print('on', flush=True); import time; time.sleep(60)"))
    poll_until(runner, handle, lambda status: bool(runner.read_log(handle, "stdout", 0)))
    runner.cancel(handle, "enough")
    assert wait_for_end(runner, handle).state is RunState.CANCELLED
    assert not bench.left("run-1")
    assert not [each for each in runner._api.listed("pods", MANAGED) if _works(each)]
    runner.close()


@APART
def test_an_application_that_takes_too_much_memory_is_told(bench: KubeBench, apart: bool) -> None:
    runner = bench.make(load_apart=apart)
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


def pods_by_role(cluster: KubeApi) -> dict[str, dict[str, Any]]:
    return {pod["metadata"]["labels"][ROLE]: pod for pod in cluster.objects["pods"].values()}


@pretended
def test_a_load_of_its_own_is_on_another_node(bench: KubeBench, kube_cluster: KubeApi) -> None:
    runner = bench.make(load_apart=True)
    script = "print('on', flush=True); import time; time.sleep(60)"
    handle = bench.submit(runner, driven(bench, script))
    [service] = eventually(kube_cluster.objects["services"].values)
    poll_until(runner, handle, lambda status: bool(runner.read_log(handle, "stdout", 0)))
    pods = pods_by_role(kube_cluster)
    assert {name: pod["spec"]["nodeName"] for name, pod in pods.items()} == {"application": "one", "load": "two"}
    assert service["spec"]["selector"].items() <= pods["application"]["metadata"]["labels"].items()
    assert not service["spec"]["selector"].items() <= pods["load"]["metadata"]["labels"].items()
    assert [each.run_id for each in runner.find(None)] == ["run-1"]
    kube_cluster.evict("run-1", role="load")
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)
    assert "the load generator: " in status.reason
    assert not [each for each in kube_cluster.objects["pods"].values() if _works(each)]
    runner.close()


@pretended
def test_a_load_for_which_there_is_no_other_node(bench: KubeBench, kube_cluster: KubeApi) -> None:
    runner = bench.make(load_apart=True, load_node_selector={"disk": "slow"}, schedule_seconds=1.0)
    handle = bench.submit(runner, driven(bench))
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (RunState.FAILED, Fault.CAPACITY)
    assert status.reason.startswith("the load generator: no node for it within 1.0 s: 0/2 nodes are available")
    runner.close()


@pretended
def test_another_controller_goes_on_with_a_load_of_its_own(bench: KubeBench, kube_cluster: KubeApi) -> None:
    first = bench.make(load_apart=True)
    request = driven(bench)
    bench.submit(first, request)
    bench.submit(first, request)  # the one before was killed in between
    first.close()
    assert len(kube_cluster.objects["jobs"]) == 2
    second = bench.make()  # other settings, too
    [handle] = second.find(request.owner)
    status = wait_for_end(second, handle)
    assert status.state is RunState.DONE, status
    second.collect(handle, request)
    assert (request.folder / "application.stdout").read_text() == "serving 1\n"
    second.close()


@pretended
def test_an_application_that_may_not_be_told_is_ended_with_the_reason(bench: KubeBench, kube_cluster: KubeApi) -> None:
    runner = bench.make(load_apart=True)
    kube_cluster.forbidden = {("get", "pods/exec")}
    status = wait_for_end(runner, bench.submit(runner, driven(bench)))
    assert (status.state, status.fault) == (RunState.FAILED, Fault.CREDENTIALS)
    assert "the application cannot be told that its load generator has ended" in status.reason
    runner.close()


def test_the_job_of_a_load_has_its_own_limits_and_node(tmp_path: Path) -> None:
    load = Load(argv=("drive",), cpus=2, memory_bytes=2**28, port=80)
    request = replace(request_for(tmp_path, ("serve",), image="x", load=load), ports=(80,))
    given = KubernetesSettings(load_apart=True, load_node_selector={"for": "load"}, node_selector={"for": "apps"})
    job = load_job_of(request, {"work": "w"}, given, "home", {"uid": "u"})
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["resources"]["limits"]["cpu"] == "2000m"
    assert "ports" not in container
    assert pod["nodeSelector"] == {"for": "load"}
    assert job["spec"]["suspend"] is True
    assert job["metadata"]["ownerReferences"] == [{"uid": "u"}]
    application = job_of(request, "{}", {"work": "w"}, given, "home")["spec"]["template"]["spec"]
    assert application["nodeSelector"] == {"for": "apps"}
    assert len(application["containers"]) == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"load_node_selector": {"a": "b"}}, "load_node_selector is for load_apart: true"),
        ({"load_apart": True, "queue": "q"}, "Kueue starts by itself: leave one out"),
    ],
)
def test_settings_of_a_load_that_cannot_be(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        KubernetesSettings(**given)


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
