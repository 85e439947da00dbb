"""What goes wrong with a container engine: one typed error with a hint for each."""

from __future__ import annotations

import http.server
import json
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.deployer.helpers import OFFER, OWNER, deployer_over, drive, row
from tests.deployer.runner.docker.helpers import Make, docker_runner, in_container, runners
from tests.engines import require
from tests.engines.docker import IMAGE, DockerEngine, docker  # noqa: F401  (a fixture)

from tradewind.deployer.runner.docker.engine import ContainerEngine, EngineAddress, default_address
from tradewind.deployer.runner.docker.errors import pull_error, start_error
from tradewind.deployer.runner.docker.monitor import CgroupCounters, counters_of, larger_usage, usage_from_stats
from tradewind.deployer.runner.docker.names import ListedContainer, cancelled_name, container_name, engine_time
from tradewind.deployer.runner.docker.settings import DockerSettings
from tradewind.deployer.ssh_target import SshSettings, SshTarget
from tradewind.errors import (
    ArchitectureError,
    CapacityError,
    CredentialsError,
    DeployError,
    ImageError,
    MissingProgramError,
    OfferRefusedError,
    PrerequisiteError,
    TradewindError,
    UnreachableError,
)
from tradewind.problem import Fault, Handle, Machine, RunState, Usage

pytestmark = pytest.mark.xdist_group("docker")


@pytest.fixture
def make(tmp_path: Path, docker: DockerEngine) -> Iterator[Make]:  # noqa: F811
    with runners(tmp_path, docker) as maker:
        yield maker


@pytest.mark.parametrize(
    ("changes", "settings", "error", "words"),
    [
        ({"image": None}, {}, DeployError, "names no image"),
        ({"image": "no/such:1"}, {"pull": "never"}, ImageError, "there is no image no/such:1"),
        ({"image": "Not A Name"}, {}, ImageError, "not the name of an image"),
        ({"argv": ("/etc",)}, {}, MissingProgramError, "/etc in the image .* is not executable"),
        ({"argv": ("./not-there",)}, {}, MissingProgramError, "no program './not-there' in the image"),
        ({"memory": 1000}, {}, OfferRefusedError, "refuses the limits"),
        ({}, {"network": "no-such-net"}, DeployError, "network no-such-net not found"),
        ({"workdir": Path("/not/there")}, {}, PrerequisiteError, "folder /not/there does not exist"),
        ({"workdir": Path("/not/there")}, {"files": "copy"}, PrerequisiteError, "folder /not/there does not exist"),
        ({"secrets": {"X": "env:NOT_SET"}}, {}, DeployError, "no variable NOT_SET"),
    ],
)
def test_what_cannot_be_started_leaves_nothing(
    make: Make,
    tmp_path: Path,
    docker: DockerEngine,  # noqa: F811
    changes: dict[str, Any],
    settings: dict[str, Any],
    error: type[TradewindError],
    words: str,
) -> None:
    given = {"argv": ("true",), **changes}
    runner = make(**settings)
    with pytest.raises(error, match=words) as caught:
        runner.submit(in_container(tmp_path, **given), [])
    assert not getattr(caught.value, "retryable", False)
    assert runner.find(OWNER) == []
    assert docker.docker("ps", "-aq").stdout == b""


def test_gpus_that_the_engine_cannot_give(make: Make, tmp_path: Path) -> None:
    from dataclasses import replace

    with pytest.raises(OfferRefusedError, match="cannot give GPUs") as caught:
        make().submit(in_container(tmp_path, ("true",), offer=replace(OFFER, gpus=1)), [])
    assert "Container Toolkit" in str(caught.value)


def test_names_that_are_taken(make: Make, tmp_path: Path, docker: DockerEngine) -> None:  # noqa: F811
    docker.docker("create", "--name", "tradewind-run-1", IMAGE, "true")
    with pytest.raises(DeployError, match="taken by a container that is not ours") as caught:
        make().submit(in_container(tmp_path, ("true",)), [])
    assert not caught.value.retryable
    docker.docker("rm", "tradewind-run-1")
    runner = make()
    runner.submit(in_container(tmp_path, ("true",)), [])
    with pytest.raises(DeployError, match="of another owner"):
        runner.submit(in_container(tmp_path, ("true",), owner="somebody"), [])
    with pytest.raises(DeployError, match="one machine, and 2 were made"):
        runner.submit(in_container(tmp_path, ("true",), "run-2"), [Machine("a", "a"), Machine("b", "b")])


def test_a_cancelled_run_is_not_started_by_a_late_order(
    make: Make,
    tmp_path: Path,
    docker: DockerEngine,  # noqa: F811
) -> None:
    runner, request = make(), in_container(tmp_path, ("touch", "ran"))
    labels = [f"--label=tradewind.run={request.run_id}", f"--label=tradewind.owner={OWNER}"]
    docker.docker("create", "--name", "tradewind-run-1", *labels, IMAGE, "true")
    [handle] = runner.find(OWNER)
    assert runner.poll([handle])["run-1"].state is RunState.SUBMITTING
    runner.cancel(handle)
    assert runner.poll([handle])["run-1"].state is RunState.CANCELLED
    with pytest.raises(DeployError, match="cancelled before it started"):
        runner.submit(request, [])
    assert not (request.workdir / "ran").exists()


def _registry(answers: dict[str, tuple[int, str]]) -> http.server.ThreadingHTTPServer:
    """A registry that refuses each image in its own way."""

    class Registry(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.split("/")[2] if self.path.count("/") > 2 else ""
            status, code = answers.get(name, (200, ""))
            body = json.dumps({"errors": [{"code": code, "message": code.lower()}]} if code else {}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815  (the name that the server looks for)

        def log_message(self, *words: Any) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def test_registries_that_refuse(make: Make, tmp_path: Path) -> None:
    cases = {
        "denied": ((403, "DENIED"), ImageError, "wants to know who asks"),
        "secret": ((401, "UNAUTHORIZED"), CredentialsError, "does not let us in"),
        "missing": ((404, "MANIFEST_UNKNOWN"), ImageError, "there is no image"),
        "often": ((429, "TOOMANYREQUESTS"), CapacityError, "so often"),
    }
    server = _registry({name: answer for name, (answer, _, _) in cases.items()})
    try:
        runner = make()
        for name, (_, error, words) in cases.items():
            image = f"127.0.0.1:{server.server_port}/{name}/it:1"
            with pytest.raises(error, match=words):
                runner.submit(in_container(tmp_path, ("true",), image=image), [])
    finally:
        server.shutdown()
        server.server_close()
    with pytest.raises(UnreachableError, match=r"registry of the image .* does not answer"):
        make(pull="always").submit(in_container(tmp_path, ("true",), image=f"127.0.0.1:{server.server_port}/x:1"), [])


class RefusedError(Exception):
    def __init__(self, explanation: str, status_code: int = 500) -> None:
        super().__init__(explanation)
        self.explanation = explanation
        self.status_code = status_code


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        ("write /var/lib/docker/x: no space left on device", DeployError, "disk .* is full"),
        ('exec: "x": stat x: no such file or directory: unknown', MissingProgramError, "no program 'prog'"),
        (
            "exec /prog: exec format error",
            ArchitectureError,
            "img, or its program prog, is for another processor .*arm64",
        ),
        ("pull access denied for x, repository does not exist", ImageError, "there is no image img"),
        ("no matching manifest for linux/arm64/v8 in the manifest list", ArchitectureError, "image img is for another"),
        ("Bind for 127.0.0.1:80 failed: port is already allocated", CapacityError, "port 80 of the machine is taken"),
        ("invalid mount config: bind source path does not exist: /x", DeployError, "does not see this machine's"),
        ('exec: "docker-init": executable file not found in $PATH', DeployError, "no init program"),
        (
            "NanoCPUs can not be set, as your kernel does not support CPU CFS scheduler or the cgroup is not mounted",
            PrerequisiteError,
            "limit the CPUs of containers.*Delegate=cpu",
        ),
        (
            "OCI runtime error: unable to apply cgroup configuration: rootless needs no limits + no cgrouppath",
            PrerequisiteError,
            "limit the resources of containers.*Delegate=cpu",
        ),
        ("something unheard of", DeployError, "refuses: something unheard of"),
    ],
)
def test_words_of_engines(said: str, error: type[TradewindError], words: str) -> None:
    found = start_error(RefusedError(said), image="img", program="prog", place="there", machine="arm64")
    assert isinstance(found, error)
    import re

    assert re.search(words, str(found)), found


@pytest.mark.parametrize(
    ("said", "status", "error"),
    [
        ("dial tcp: lookup registry.example: no such host", 500, UnreachableError),
        ("no basic auth credentials", 500, CredentialsError),
        ("toomanyrequests: you have reached your pull rate limit", 429, CapacityError),
        ("manifest for x:1 not found", 404, ImageError),
        ("something", 403, CredentialsError),
        ("something", 404, ImageError),
        ("failed to register layer: no space left on device", 500, DeployError),
        ("something", 500, DeployError),
    ],
)
def test_words_of_registries(said: str, status: int, error: type[TradewindError]) -> None:
    assert type(pull_error(RefusedError(said, status), "img")) is error


def test_a_run_where_there_is_no_engine_is_over(tmp_path: Path) -> None:
    runner = docker_runner(tmp_path, f"unix://{tmp_path / 's'}")
    deployer = deployer_over(tmp_path, runner=runner)
    deployer.launch(row(), in_container(tmp_path, ("true",)))
    [*_, last] = drive(deployer)
    assert (last.state.ended, last.fault, "does not exist" in last.reason) == (True, Fault.INFRASTRUCTURE, True)


def test_engines_that_do_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    runner = docker_runner(tmp_path, f"unix://{path}")
    request, handle = in_container(tmp_path, ("true",)), Handle("run-1", "docker", {"owner": OWNER})
    with pytest.raises(UnreachableError, match="does not exist"):
        runner.submit(request, [])
    assert runner.find(OWNER) == [], "it was never asked for, so that nothing is left to be given back"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        with pytest.raises(UnreachableError, match="nobody listens"):
            runner.submit(request, [])
        if os.geteuid() == 0:
            monkeypatch.setattr(socket.socket, "connect", _refuse)
            with pytest.raises(CredentialsError, match="may not be used by this user"):
                runner.submit(request, [])
            monkeypatch.undo()
        listener.listen()
        began = time.monotonic()
        # It takes the connection and says nothing.
        assert runner.poll([handle])["run-1"].state is RunState.EXECUTING
        assert time.monotonic() - began < 8
    assert runner.find(OWNER) == []
    runner.close()


def _refuse(*words: Any) -> None:
    raise PermissionError(13, "Permission denied")


def test_an_open_port_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(CredentialsError, match="open port"):
        default_address(DockerSettings(host="tcp://10.0.0.1:2375"))
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2376")
    with pytest.raises(CredentialsError, match="open port"):
        default_address(DockerSettings())
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    with pytest.raises(CredentialsError, match=r"no file .*ca\.pem"):
        default_address(DockerSettings())
    for name in ("ca", "cert", "key"):
        (tmp_path / f"{name}.pem").touch()
    assert default_address(DockerSettings()) == EngineAddress("tcp://10.0.0.1:2376")
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/other.sock")
    assert default_address(DockerSettings()) == EngineAddress("unix:///run/other.sock")
    far = default_address(DockerSettings(host="ssh://me@far:2222"))
    assert far.target is not None
    assert (far.host, far.target.host, far.target.user, far.target.port) == ("/var/run/docker.sock", "far", "me", 2222)
    assert EngineAddress.from_json(json.loads(json.dumps(far.to_json()))) == far
    own = DockerSettings(host="ssh://me@[::1]:2222/run/podman.sock", ssh=SshSettings(user="other", identity="key"))
    assert default_address(own) == EngineAddress("/run/podman.sock", SshTarget("::1", "me", 2222, "key"))
    monkeypatch.setenv("DOCKER_HOST", "ftp://x")
    with pytest.raises(DeployError, match="not understood"):
        default_address(DockerSettings())


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("ftp://x", "not understood"),
        ("me@x", "not understood"),
        ("unix://x", "not understood"),
        ("tcp://", "not understood"),
        ("tcp://x:y", "not understood"),
        ("tcp://me:geheim@x:1", "not understood"),
        ("ssh://", "no host"),
        ("ssh://me:geheim@x", "password"),
    ],
)
def test_an_address_that_is_none_is_refused_when_it_is_read(host: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why) as refused:
        DockerSettings(host=host)
    assert "geheim" not in refused.value.errors()[0]["msg"]


def _certificates(folder: Path) -> None:
    """An authority, and a certificate of it for 127.0.0.1 that serves both sides."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)

    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
        *("-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"),
    )
    openssl(
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", "/CN=both", "-keyout", "key.pem", "-out", "request.pem"),
    )
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl(
        *("x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
        *("-days", "2", "-extfile", "names", "-out", "cert.pem"),
    )


def test_mutual_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides show their certificates; who shows none, or another authority's, is not let in."""
    monkeypatch.setenv("HOME", str(tmp_path))
    require("openssl", package="openssl", root=False)
    ours, others = tmp_path / "ours", tmp_path / "others"
    for folder in (ours, others):
        folder.mkdir()
        _certificates(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ours / "ca.pem"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(ours / "cert.pem", ours / "key.pem")

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"ApiVersion": "1.41"}' if "version" in self.path else b"[]"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            return

    server = http.server.HTTPServer(("127.0.0.1", 0), Answers)
    server.handle_error = lambda *words: None  # type: ignore[method-assign]
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host = f"tcp://127.0.0.1:{server.server_port}"

    def settings(folder: Path) -> DockerSettings:
        files = {f"tls_{name}": f"~/{folder.name}/{name}.pem" for name in ("ca", "cert", "key")}
        return DockerSettings(host=host, **files)

    try:
        engine = ContainerEngine(default_address(settings(ours)), settings(ours))
        assert engine.call(lambda client: client.containers()) == []
        assert not engine.mounts
        engine.close()
        stranger = ContainerEngine(default_address(settings(others)), settings(others))
        with pytest.raises(CredentialsError, match="certificates"):
            stranger.call(lambda client: client.containers())
    finally:
        server.shutdown()
        server.server_close()


def test_names_and_times() -> None:
    assert container_name("run-1") == "tradewind-run-1"
    assert container_name("a b/ü") != container_name("a_b__")
    assert len(container_name("x" * 300)) < 200
    row = {"Id": "x", "State": "running", "Names": [f"/{cancelled_name('tradewind-x')}"], "Labels": None}
    assert ListedContainer.of(row).cancelled
    assert engine_time("0001-01-01T00:00:00Z") == 0.0
    assert engine_time("") == 0.0
    assert engine_time("2026-11-21T17:15:12.118559085Z") == pytest.approx(1795281312.118559)


def test_meters_of_both_kinds(tmp_path: Path) -> None:
    (tmp_path / "peak").write_text("5\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    (tmp_path / "io.stat").write_text("254:0 rbytes=10 wbytes=20 rios=1\n254:16 rbytes=1 wbytes=2 rios=1\n")
    (tmp_path / "dev").write_text(
        "Inter-| Receive | Transmit\n face |bytes packets|bytes\n    lo: 99 1 0 0 0 0 0 0 99 1\n"
        "  eth0: 5 1 0 0 0 0 0 0 7 1\n  eth1:1 1 0 0 0 0 0 0 2 1\n"
    )
    usage = CgroupCounters(
        tmp_path / "peak", tmp_path / "cpu.stat", True, tmp_path / "io.stat", tmp_path / "dev"
    ).read()
    assert usage is not None
    assert (usage.peak_memory_bytes, usage.cpu_seconds) == (5, 1.5)
    assert usage.profile == {"read_bytes": 11, "written_bytes": 22, "network_bytes": 15}
    (tmp_path / "cpu").write_text("1500000000\n")
    (tmp_path / "blkio").write_text("254:0 Read 10\n254:0 Write 20\n254:0 Total 30\nTotal 30\n")
    old = CgroupCounters(tmp_path / "peak", tmp_path / "cpu", False, tmp_path / "blkio", None).read()
    assert old == Usage(5, 1.5, {"read_bytes": 10, "written_bytes": 20})
    assert CgroupCounters(
        tmp_path / "peak", tmp_path / "cpu", False, tmp_path / "gone", tmp_path / "gone"
    ).read() == Usage(5, 1.5)
    assert CgroupCounters(tmp_path / "gone", tmp_path / "gone", False, tmp_path / "gone", None).read() is None
    assert larger_usage(usage, Usage(4, 2.0, {"read_bytes": 50})).profile == {**usage.profile, "read_bytes": 50}
    assert counters_of(0, "x") is None
    assert counters_of(os.getpid(), "x") is None
    told = {"memory_stats": {"usage": 7}, "cpu_stats": {"cpu_usage": {"total_usage": 2_000_000_000}}}
    assert (usage_from_stats(told).peak_memory_bytes, usage_from_stats(told).cpu_seconds) == (7, 2.0)
    assert usage_from_stats({}) == Usage()
    disks = {"io_service_bytes_recursive": [{"op": "read", "value": 3}, {"op": "Write", "value": 4}]}
    far = usage_from_stats({"blkio_stats": disks, "networks": {"eth0": {"rx_bytes": 5, "tx_bytes": 6}}})
    assert far.profile == {"read_bytes": 3, "written_bytes": 4, "network_bytes": 11}
