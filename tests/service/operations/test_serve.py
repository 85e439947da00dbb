"""``tradewind serve`` as a process: how it starts, what it says when it cannot, and how it ends."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from tests.engines.ssh import free_port
from tests.service.notification_receivers import certificate
from tests.waiting import eventually

from tradewind.cli.app import run
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context, open_context
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.request_queries import add_events
from tradewind.store.service.requests import NewRequestEvent

SLOW_APPLICATION = """
name: nap
job: {command: [sh, -c, "echo begun >> {journal}; sleep 60"]}
space: {instance: {types: [local.c1]}}
deploy: {billing: {granularity: 1ms}}
application: {}
"""

PATIENCE = 60.0
"""Seconds that a loaded machine may take for a start."""


_NO_AUTHORITY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@dataclass
class Served:
    """A server that runs.

    Attributes:
        process: Its process.
        url: Where it listens.
        log: Its standard error.
        said: Its standard output.
    """

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    said: Path

    def get(self, path: str, **more: Any) -> httpx2.Response:
        # Over plain HTTP: to read the certificates of all authorities for each call takes longer than the call.
        return httpx2.get(f"{self.url}{path}", timeout=20.0, verify=_NO_AUTHORITY, **more)

    def worker(self) -> psutil.Process:
        """The worker's process, once there is one."""
        parent = psutil.Process(self.process.pid)
        eventually(lambda: bool(parent.children()))
        return parent.children()[0]

    def end(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal; the exit code, and how many seconds it took."""
        started = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(PATIENCE), time.monotonic() - started


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "tradewind", *words]


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRADEWIND_")}
    return {**kept, "TRADEWIND_HOME": str(folder / "home"), "TRADEWIND_SERVICE_ALLOW_ROOT": "true", **more}


@contextmanager
def serving(folder: Path, *words: str, **more: str) -> Iterator[Served]:
    """A server, until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("err-*")))
    said, log = folder / f"out-{number}", folder / f"err-{number}"
    with said.open("wb") as out, log.open("wb") as err:
        argv = command("serve", "--port", "0", *words)
        process = subprocess.Popen(
            argv, env=environment(folder, **more), stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
    try:
        eventually(lambda: " is at " in said.read_text() or process.poll() is not None)
        found = re.search(r"is at (\S+) ", said.read_text())
        assert found is not None, log.read_text()
        served = Served(process, found[1], log, said)
        eventually(lambda: "listening on" in log.read_text())
        yield served
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10.0)


def refused(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code and the words of a server that does not start."""
    loggers = [logging.getLogger(name) for name in ("", "tradewind", "uvicorn.error")]
    before = [(list(logger.handlers), logger.level) for logger in loggers]
    try:
        code = run(["serve", *words])
    finally:
        for logger, (handlers, level) in zip(loggers, before, strict=True):
            logger.handlers[:] = handlers
            logger.setLevel(level)
    return code, capfd.readouterr().err


@pytest.mark.slow
def test_it_starts_answers_and_ends(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        assert served.get("/healthz").text == "alive\n"
        eventually(lambda: served.get("/readyz").status_code == 200)
        eventually(lambda: 'tradewind_thread_restarts_total{thread="email"} 0' in served.get("/metrics").text)
        worker = served.worker()
        said = [line for line in served.said.read_text().splitlines() if "runs as root" not in line]
        assert said[0] == f"Tradewind is at {served.url} (Ctrl-C ends it)"
        assert "tradewind user add admin" in said[1]
        assert "password" not in served.said.read_text()
        code, seconds = served.end()
        assert (code, seconds < 12.0) == (0, True)
        assert not worker.is_running()
    assert "Traceback" not in served.log.read_text()


@pytest.mark.thorough
@pytest.mark.slow
def test_settings_reach_it_and_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    file = tmp_path / "tradewind.yaml"
    database = f"sqlite:///{tmp_path}/elsewhere/service.db"
    file.write_text(f"database: {database}\nruns: 7\nlog_format: json\nhost: '::1'\nstop_seconds: 60\n")
    more = {"TRADEWIND_SERVICE_CONFIG": str(file), "TRADEWIND_SERVICE_RUNS": "0"}
    with serving(tmp_path, "--set", "public_url=https://tw.example.org", **more) as served:
        assert served.url == "https://tw.example.org"
        lines = [json.loads(line) for line in served.log.read_text().splitlines()]
        address = lines[-1]["address"]
        assert address.startswith("http://[::1]:")
        assert any("this server only answers" in line["message"] for line in lines)
        assert psutil.Process(served.process.pid).children() == []
        assert (tmp_path / "elsewhere/service.db").exists()
        assert not (tmp_path / "home" / "tradewind.db").exists()
        with socket.create_connection(("::1", int(address.rpartition(":")[2])), 10.0) as slow:
            slow.sendall(b"POST /RPC2 HTTP/1.1\r\nHost: tw.example.org\r\nContent-Length: 1000\r\n\r\n<")
            time.sleep(0.5)
            served.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            assert served.process.poll() is None  # it waits for the call that is open
            code, seconds = served.end()
    assert (code, seconds < 5.0) == (130, True)


@pytest.mark.slow
def test_a_worker_is_started_again_and_ends_with_its_server(tmp_path: Path) -> None:
    """kill -9 of the worker: another one is started. Of the server: nobody would look after that one, so it ends."""
    with serving(tmp_path) as served:
        first = served.worker()
        first.kill()
        server = psutil.Process(served.process.pid)
        eventually(lambda: [child.pid for child in server.children()] not in ([], [first.pid]))
        eventually(lambda: 'tradewind_worker_restarts_total{worker="worker"} 1' in served.get("/metrics").text)
        assert "worker was ended by signal 9; it is started again" in served.log.read_text()
        eventually(lambda: served.get("/readyz").status_code == 200)
        eventually(lambda: 'tradewind_thread_restarts_total{thread="email"} 0' in served.get("/metrics").text)
        worker = served.worker()
        eventually(lambda: "the worker begins" in served.log.read_text())
        served.process.kill()
        served.process.wait(10.0)
        eventually(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)
        eventually(lambda: "the server is gone" in served.log.read_text())


def seed(folder: Path) -> tuple[Context, Principal]:
    """The database of a server, with a user and an application that takes a minute."""
    folder.mkdir(parents=True, exist_ok=True)
    context = open_context(ServiceSettings(), f"sqlite:///{folder}/home/tradewind.db", folder / "home")
    user = context.accounts.add_user("root", role="admin")
    root = Principal(user.id, "root", "admin", "root")
    context.applications.register(root, SLOW_APPLICATION.replace("{journal}", str(folder / "journal")), shared=True)
    return context, root


@pytest.mark.slow
def test_streams_end_and_runs_are_handed_back(tmp_path: Path) -> None:
    """SIGTERM while a stream is open and a request is carried out: one ends properly, the other waits for the next."""
    context, root = seed(tmp_path)
    secret = context.accounts.make_token(root.user_id, "test")
    with serving(tmp_path) as served:
        number = context.requests.submit(root, {"application": "nap"}).id
        eventually(lambda: (tmp_path / "journal").exists())
        got: list[bytes] = []
        ends: list[str] = []

        def watch() -> None:
            headers = {"Authorization": f"Bearer {secret}", "Accept": "text/event-stream"}
            with httpx2.stream("GET", f"{served.url}/api/v1/events", headers=headers, timeout=PATIENCE) as answer:
                got.extend(answer.iter_raw())
            ends.append("properly")  # a connection that breaks would raise

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        eventually(lambda: bool(got))
        code, seconds = served.end()
        thread.join(10.0)
        assert (code, ends) == (0, ["properly"])
        assert seconds < 12.0
    row = context.requests.get(root, number)
    assert (row.over, row.hold_expires) == (False, 0.0), served.log.read_text()
    with serving(tmp_path) as served:
        eventually(lambda: context.requests.get(root, number).hold_holder != row.hold_holder)
        context.requests.cancel(root, number)
        eventually(lambda: context.requests.get(root, number).state == "cancelled")
        assert served.end()[0] == 0
    context.close()


@pytest.mark.thorough
@pytest.mark.slow
def test_who_does_not_read_does_not_hold_the_end_up(tmp_path: Path) -> None:
    """A stream with more to say than the system keeps for somebody who never reads it."""
    context, root = seed(tmp_path)
    secret = context.accounts.make_token(root.user_id, "test")
    number = context.requests.submit(root, {"application": "nap"}).id
    with context.database.write() as connection:
        add_events(connection, number, [NewRequestEvent("pending", "x" * 1000)] * 20_000)
    with serving(tmp_path, "--runs", "0") as served, socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(("127.0.0.1", httpx2.URL(served.url).port or 0))
        head = f"GET /api/v1/events?since=0 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {secret}\r\n"
        reader.sendall(f"{head}Accept: text/event-stream\r\n\r\n".encode())
        time.sleep(2.0)
        code, seconds = served.end()
    assert (code, seconds < 8.0) == (0, True)
    log = served.log.read_text()
    assert "Traceback" not in log
    assert "it reads too slowly" in log
    context.close()


def test_a_port_in_use(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = refused(capfd, "--port", str(port))
    assert (code, len(said.splitlines())) == (16, 1)
    assert f"port {port} of 127.0.0.1 is in use by another program" in said
    assert not (tmp_path / "home").exists()


def test_a_host_of_another_machine(capfd: pytest.CaptureFixture[str]) -> None:
    code, said = refused(capfd, "--host", "192.0.2.1", "--port", "0")
    assert (code, len(said.splitlines())) == (3, 1)
    assert "'192.0.2.1' is no address of this machine" in said


def test_a_database_that_is_down(capfd: pytest.CaptureFixture[str]) -> None:
    address = f"postgresql://tw:hunter2@127.0.0.1:{free_port()}/tw"
    code, said = refused(capfd, "--port", "0", "--database", address)
    assert (code, len(said.splitlines())) == (12, 1)
    assert "does not answer" in said and "is the database running?" in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("other", "does not belong to the certificate"),
        ("missing", "cannot be read: No such file"),
        ("garbage", "cannot be used"),
        ("none", "there is a tls_key but no tls_certificate"),
    ],
)
def test_a_certificate_that_is_wrong(tmp_path: Path, which: str, words: str) -> None:
    from tradewind.errors import InputError
    from tradewind.service.operations.http_server import tls_context

    chain, key = certificate(tmp_path / "one")
    (tmp_path / "garbage.pem").write_text("no certificate")
    settings = {
        "other": ServiceSettings(tls_certificate=chain, tls_key=certificate(tmp_path / "two")[1]),
        "missing": ServiceSettings(tls_certificate=tmp_path / "none.pem", tls_key=key),
        "garbage": ServiceSettings(tls_certificate=tmp_path / "garbage.pem", tls_key=key),
        "none": ServiceSettings(tls_key=key),
    }
    with pytest.raises(InputError, match=words):
        tls_context(settings[which])


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A service manager that is told how things are, as systemd is."""
    place = Path(f"/tmp/tw-notify-{os.getpid()}-{abs(hash(tmp_path)) % 10**9}")  # such paths must be short
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(place))
        bound.settimeout(PATIENCE)
        try:
            yield bound, str(place)
        finally:
            place.unlink()


@pytest.mark.slow
def test_https_a_renewed_certificate_and_a_service_manager(tmp_path: Path, manager: tuple[socket.socket, str]) -> None:
    chain, key = certificate(tmp_path / "tls")
    words = ("--tls-certificate", str(chain), "--tls-key", str(key), "--runs", "0")
    with serving(tmp_path, *words, NOTIFY_SOCKET=manager[1]) as served:
        assert manager[0].recv(100) == b"READY=1"
        assert served.url.startswith("https://127.0.0.1:")
        first = chain.read_text()
        assert httpx2.get(f"{served.url}/healthz", verify=ssl.create_default_context(cafile=chain)).status_code == 200
        certificate(tmp_path / "tls")  # another one in its place
        served.process.send_signal(signal.SIGHUP)
        eventually(lambda: "the certificate was read again" in served.log.read_text())
        assert chain.read_text() != first
        assert httpx2.get(f"{served.url}/healthz", verify=ssl.create_default_context(cafile=chain)).status_code == 200
        key.write_text("broken")
        served.process.send_signal(signal.SIGHUP)
        eventually(lambda: "the old certificate is kept" in served.log.read_text())
        assert httpx2.get(f"{served.url}/healthz", verify=ssl.create_default_context(cafile=chain)).status_code == 200
        assert served.end()[0] == 0
        assert manager[0].recv(100) == b"STOPPING=1"


@pytest.mark.slow
def test_on_a_terminal_the_first_administrator_gets_a_password(tmp_path: Path) -> None:
    from tradewind.service.operations.server import start_messages

    context = open_context(ServiceSettings(), f"sqlite:///{tmp_path}/service.db", tmp_path / "home")
    try:
        lines = list(start_messages(context, "http://127.0.0.1:1", terminal=True))
        password = lines[-1].split()[-1]
        session = context.accounts.sign_in("admin", password, "127.0.0.1")
        assert context.accounts.by_session(session.secret)[0].is_admin
        assert len(password.replace("-", "")) == 16
        again = list(start_messages(context, "http://127.0.0.1:1", terminal=True))
        assert again == ["Tradewind is at http://127.0.0.1:1 (Ctrl-C ends it)"]
    finally:
        context.close()
