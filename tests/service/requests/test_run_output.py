"""Logs and files of a run that another server carried out, whose data folder is not here."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest
from tests.service.operations.test_serve import Served, command, environment, serving
from tests.service.requests.request_world import World, working, world
from tests.store.conftest import _server as _server
from tests.store.conftest import postgresql_url as postgresql_url
from tests.waiting import eventually

from tradewind.errors import NotFoundError, UnreachableError
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context, open_context
from tradewind.service.requests import run_output
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.shared_values import WorkerQuestionStore

SLOW = """
name: slow
job:
  command: [sh, -c, 'echo begun; sleep {{ seconds }}; echo ended ü']
space:
  nodes: [1]
offers: {provider: [local]}
application:
  fields:
    seconds: {type: number, default: 0, min: 0, max: 60}
"""


@contextmanager
def hidden(folder: Path, hide: Path, *words: str, **more: str) -> Iterator[Served]:
    """A server that has a folder of its own, and cannot see another one, as on another machine."""
    argv = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hide)]
    said, log = folder / "out", folder / "err"
    folder.mkdir()
    with said.open("wb") as out, log.open("wb") as err:
        process = subprocess.Popen(
            [*argv, *command("serve", "--port", "0", *words)],
            env=environment(folder, **more),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
    try:
        eventually(lambda: "listening on" in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield Served(process, said.read_text().partition(" is at ")[2].split()[0], log, said)
    finally:
        process.terminate()
        process.wait(20.0)


def may_hide() -> bool:
    if shutil.which("unshare") is None or os.geteuid() != 0:
        return False
    return subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_servers_show_what_the_other_one_has_run(tmp_path: Path, postgresql_url: str) -> None:
    if not may_hide():
        pytest.skip("a mount namespace takes root: nothing else hides one server's folder from another")
    with closing(open_context(ServiceSettings(), postgresql_url, tmp_path / "here")) as context:
        root = context.accounts.add_user("root", role="admin")
        secret = context.accounts.make_token(root.id, "test")
        context.applications.register(Principal(root.id, root.name, "admin", root.tenant), SLOW, shared=True)
    (tmp_path / "serve.yaml").write_text(f"database: {postgresql_url}\nsecret_key: env:TW_TEST_KEY\n")
    given, words, first = {"TW_TEST_KEY": "k" * 40}, ("--config", str(tmp_path / "serve.yaml")), tmp_path / "first"
    with (
        serving(first, *words, **given),
        hidden(tmp_path / "second", first, *words, "--runs", "0", **given) as other,
        httpx2.Client(base_url=other.url, headers={"Authorization": f"Bearer {secret}"}, timeout=30.0) as client,
    ):
        asked = client.post("/api/v1/requests", json={"application": "slow", "parameters": {"seconds": 4}})
        place = f"/api/v1/requests/{asked.json()['id']}"
        log = f"{place}/logs/stdout"
        eventually(lambda: client.get(log).text == "begun\n", 20.0)
        assert client.get(place).json()["state"] == "executing", "it is seen while it runs"
        eventually(lambda: client.get(place).json()["state"] == "done", 30.0)
        whole = client.get(log)
        assert (whole.text, whole.headers["X-Log-Ended"]) == ("begun\nended ü\n", "true")
        assert client.get(log, params={"offset": 6}).text == "ended ü\n"
        assert "stdout" in [entry["path"] for entry in client.get(f"{place}/files").json()]
        assert client.get(f"{place}/files/stdout").content == "begun\nended ü\n".encode()
        assert client.get(f"{place}/files/%2e%2e/handle.json").status_code == 404


@pytest.fixture
def apart(tmp_path: Path, postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World, Context]]:
    """A server with a worker, and one that looks from elsewhere."""
    with (
        world(tmp_path, postgresql_url) as there,
        closing(open_context(ServiceSettings(), postgresql_url, tmp_path / "elsewhere")) as other,
    ):
        monkeypatch.setattr(other.requests.left, "_is_elsewhere", lambda run: True)
        monkeypatch.setattr(run_output, "_PATIENCE", 1.0)
        yield there, other


def test_a_file_comes_in_parts_and_not_at_all_where_it_is_too_large(
    apart: tuple[World, Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, other = apart
    monkeypatch.setattr(run_output, "_PART", 1000)
    with working(there.context):
        row = there.ended(there.submit())
        stdout = there.context.requests.file(there.root, row.id, "stdout")
        stdout.write_bytes(bytes(range(256)) * 10)
        with other.requests.open(there.ann, row.id, "stdout") as file:
            assert file.read() == bytes(range(256)) * 10
            assert os.fstat(file.fileno()).st_mtime_ns == stdout.stat().st_mtime_ns
        for path in ("nothing", "../handle.json", "/etc/passwd"):
            with pytest.raises(NotFoundError):
                other.requests.open(there.ann, row.id, path)
        monkeypatch.setattr(run_output, "_LARGEST", 2000)
        with pytest.raises(UnreachableError, match="too large to be sent"):
            other.requests.open(there.ann, row.id, "stdout")
        with pytest.raises(NotFoundError):
            other.requests.log(there.bob, row.id)
        assert WorkerQuestionStore(there.context.database).questions() == {}


def test_who_does_not_answer_is_not_waited_for_each_time(apart: tuple[World, Context]) -> None:
    there, other = apart
    with working(there.context):
        row = there.ended(there.submit())
    begun = time.monotonic()
    with pytest.raises(UnreachableError, match="does not answer"):
        other.requests.open(there.ann, row.id, "stdout")
    assert 1.0 <= time.monotonic() - begun < 3.0
    begun = time.monotonic()
    assert other.requests.files(there.ann, row.id) == []
    assert time.monotonic() - begun < 1.0
    assert WorkerQuestionStore(there.context.database).questions() == {}
