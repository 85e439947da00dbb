"""Runs with a load generator beside the application, in two containers of the docker runner."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import OWNER
from tests.deployer.runner.docker.helpers import Make, code, ended_within, in_container, runners
from tests.engines.docker import DockerEngine, docker  # noqa: F401  (a fixture)
from tests.waiting import eventually

from tradewind.deployer.runner.docker import submit as docker_submit
from tradewind.problem import Fault, RunRequest, RunState
from tradewind.problem.run import Load

pytestmark = pytest.mark.xdist_group("docker")

SERVER = """
import http.server, sys, time
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = time.time() > began + DELAY
        self.send_response(200 if ready or self.path == '/ping' else 503); self.end_headers(); self.wfile.write(b'pong')
    def log_message(self, *words): print('asked', self.path, flush=True)
began = time.time()
time.sleep(OPENS)
print('listening now', flush=True)
http.server.HTTPServer(('', 8080), Answer).serve_forever()
"""

PING = """
import os, sys, urllib.request
host, port = os.environ['TRADEWIND_APPLICATION_HOST'], os.environ['TRADEWIND_APPLICATION_PORT']
answers = [urllib.request.urlopen(f'http://{host}:{port}/ping').read() for _ in range(5)]
print(len(answers), 'answers', os.environ['WORD'])
open(os.environ['TRADEWIND_METRICS'], 'w').write('{"answers": 5}')
sys.exit(int(os.environ.get('CODE', 0)))
"""


@pytest.fixture
def make(tmp_path: Path, docker: DockerEngine) -> Iterator[Make]:  # noqa: F811
    with runners(tmp_path, docker) as maker:
        yield maker


def server(opens: float = 0, delay: float = 0) -> tuple[str, ...]:
    return code(SERVER.replace("DELAY", str(delay)).replace("OPENS", str(opens)))


def driven(base: Path, application: Sequence[str], load: Load, run_id: str = "run-1", **changes: object) -> RunRequest:
    return in_container(base, application, run_id, load=load, **changes)


@pytest.mark.parametrize(
    ("ready", "files"),
    [
        pytest.param({"cpus": 1, "memory_bytes": 1 << 28}, "mount", id="port", marks=pytest.mark.thorough),
        pytest.param({"ready_path": "/health"}, "mount", id="path", marks=pytest.mark.thorough),
        pytest.param({"ready_pattern": "listening n.w"}, "copy", id="pattern"),
    ],
)
def test_the_load_begins_when_the_application_is_ready(
    make: Make,
    tmp_path: Path,
    docker: DockerEngine,  # noqa: F811
    ready: dict[str, Any],
    files: str,
) -> None:
    said = {"WORD": "hello", "CODE": "3" if files == "copy" else "0"}
    request = driven(tmp_path, server(0.5, 1.0), Load(code(PING), port=8080, env=said, **ready))
    runner = make(files=files)
    handle = runner.submit(request, [])
    status = ended_within(runner, handle, 60)
    runner.collect(handle, request)
    wanted = (RunState.FAILED, 3) if files == "copy" else (RunState.DONE, 0)
    assert (status.state, status.exit_code) == wanted, (request.folder / "stderr").read_text()
    assert status.runtime > (1.0 if "ready_path" in ready else 0.5)
    assert ("load_cpu_share" in status.usage.profile) == ("cpus" in ready), status.usage
    assert (request.folder / "stdout").read_text() == "5 answers hello\n"
    assert (request.folder / "metrics.jsonl").read_text() == '{"answers": 5}'
    assert "listening now\nasked " in (request.folder / "application.stdout").read_text()
    assert (request.folder / "application.stderr").exists()
    assert not docker.running("run-1")
    runner.forget(handle)
    assert runner.find(OWNER) == []
    assert docker.docker("ps", "-aq").stdout == b""
    assert b"tradewind" not in docker.docker("network", "ls").stdout


def test_failures_of_the_application_are_told_apart(make: Make, tmp_path: Path) -> None:
    runner = make()
    forever = ("sleep", "60")
    hog = code("import time; print('up', flush=True); time.sleep(1); x = b'x' * (200 << 20); time.sleep(60)")
    cases = {
        "never": (forever, Load(forever, port=8080, ready_seconds=0.5), "was not ready within 0.50 s"),
        "early": (
            ("sh", "-c", "exit 4"),
            Load(forever, port=8080),
            "before the load generator began, with code 4",
        ),
        "first": (
            ("sh", "-c", "until test -e begun; do sleep 0.05; done"),
            Load(("sh", "-c", "touch begun; sleep 60")),
            "ended before the load generator did, with code 0",
        ),
        "hog": (hog, Load(forever, ready_pattern="up"), "used more than 64 MiB"),
        "nothing": (forever, Load(("no-such-load",)), "no program 'no-such-load'"),
    }
    handles = {
        name: runner.submit(driven(tmp_path, words, load, name, memory=64 << 20), [])
        for name, (words, load, _) in cases.items()
    }
    for name, handle in handles.items():
        status = ended_within(runner, handle, 60)
        assert (status.state, status.fault) == (RunState.FAILED, Fault.JOB), (name, status)
        assert status.exit_code
        assert cases[name][2] in status.reason


@pytest.mark.thorough
def test_it_is_cancelled_and_limited_as_one_run(make: Make, tmp_path: Path, docker: DockerEngine) -> None:  # noqa: F811
    runner = make()
    load = Load(("sleep", "60"))
    cancelled = runner.submit(driven(tmp_path, ("sleep", "60"), load, "cancelled"), [])
    late = runner.submit(driven(tmp_path, ("sleep", "60"), load, "late", wall=1.0), [])
    waiting = runner.submit(driven(tmp_path, ("sleep", "60"), Load(("sleep", "60"), port=1), "waiting"), [])
    eventually(lambda: runner.poll([cancelled]) and len(docker.running("cancelled")) == 2)
    runner.poll([waiting])
    runner.cancel(cancelled)
    runner.cancel(waiting)
    assert ended_within(runner, cancelled, 30).state is RunState.CANCELLED
    assert ended_within(runner, waiting, 30).state is RunState.CANCELLED
    status = ended_within(runner, late, 30)
    assert (status.state, status.fault) == (RunState.TIMED_OUT, Fault.JOB)
    assert status.runtime >= 1.0
    for name in ("cancelled", "late", "waiting"):
        assert not docker.running(name)


_CONTROLLER = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.deployer.runner.docker.helpers import *
from tests.deployer.runner.docker.test_load_generator import PING, driven, server
from tradewind.problem.run import Load
runner = docker_runner(Path({folder!r}), {host!r})
handle = runner.submit(driven(Path({folder!r}), server(0.5), Load(code(PING), port=8080, env={{"WORD": "x"}})), [])
print("submitted", flush=True)
while True:
    runner.poll([handle])
    runner.wait([handle], 0.1)
"""


@pytest.mark.slow
def test_another_controller_goes_on_where_one_was_killed(
    make: Make,
    tmp_path: Path,
    docker: DockerEngine,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(docker_submit, "_IN_FLIGHT_SECONDS", 1.5)
    root = str(Path(__file__).parents[4])
    # Before anything is there, between the steps, while readiness is waited for, and when all is over.
    for i, seconds in enumerate((0.9, 1.5, 2.5)):
        folder = tmp_path / str(i)
        folder.mkdir()
        with subprocess.Popen(
            [sys.executable, "-c", _CONTROLLER.format(root=root, folder=str(folder), host=docker.host)],
            env={**os.environ, "TRADEWIND_TEST_OWNER": OWNER},
            stdout=subprocess.DEVNULL,
        ) as controller:
            time.sleep(seconds)
            controller.kill()
        request = driven(folder, server(0.5), Load(code(PING), port=8080, env={"WORD": "x"}))
        runner = make()
        handle = runner.submit(request, [])
        status = ended_within(runner, handle, 60)
        runner.collect(handle, request)
        assert status.state is RunState.DONE, status
        assert (request.folder / "stdout").read_text() == "5 answers x\n"
        runner.forget(handle)
        assert runner.find(OWNER) == []
