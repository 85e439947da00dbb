"""What runs kept goes to the user's folder, whole, whatever is killed or down meanwhile."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import deployer_over, drive, request_for, row
from tests.engines.files import Server, objects, sftp, webdav
from tests.waiting import eventually

from tradewind.cli.app import run as command
from tradewind.deployer import result_uploads as module
from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.result_uploads import SUMS, ResultUploader, upload_run
from tradewind.deployer.storage import open_storage
from tradewind.deployer.storage.base import LocalStorage
from tradewind.errors import DeployError, UnreachableError
from tradewind.problem import Run, RunRequest, RunState
from tradewind.utils.retries import Backoff

__all__ = ["objects", "sftp", "webdav"]
pytestmark = pytest.mark.xdist_group("places")

JOB = ("sh", "-c", "echo hello; echo oops >&2; mkdir -p $TRADEWIND_OUTPUTS/sub; echo kept > $TRADEWIND_OUTPUTS/sub/a")


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[], Deployer]]:
    made: list[Deployer] = []

    def deployer() -> Deployer:
        made.append(deployer_over(tmp_path, results=ResultUploader(tmp_path / "uploads")))
        return made[-1]

    yield deployer
    for each in made:
        each.close()


def asking(folder: Path, to: str, **changes: Any) -> RunRequest:
    return request_for(folder, JOB, results=to, env={"TRADEWIND_STUDY": "my study"}, **changes)


def complete(folder: Path) -> bool:
    """True when all is there, as ``sha256sum -c`` sees it."""
    if not (folder / SUMS).is_file():
        return False
    words = ["sha256sum", "--check", "--strict", "--quiet", SUMS]
    return subprocess.run(words, cwd=folder, capture_output=True, timeout=30).returncode == 0


def test_all_that_a_run_kept_is_there_with_its_checksums(make: Callable[[], Deployer], tmp_path: Path) -> None:
    deployer = make()
    deployer.launch(row(), asking(tmp_path, str(tmp_path / "results")))
    ended = drive(deployer)[-1]
    there = tmp_path / "results" / "my study" / "run-1"
    assert (ended.state, ended.results) == (RunState.DONE, str(there))
    deployer.close()
    assert complete(there)
    found = {path.relative_to(there).as_posix() for path in there.rglob("*") if path.is_file()}
    assert found == {"stdout", "stderr", "outputs/sub/a", "run.json", SUMS}
    assert (there / "stdout").read_text() == "hello\n"
    facts = json.loads((there / "run.json").read_text())
    assert (facts["state"], facts["configuration"], facts["cost"]) == ("done", {"x": 1}, ended.cost)
    assert not list((tmp_path / "uploads").iterdir())


@pytest.mark.parametrize("kind", ["webdav", "sftp", "objects"])
def test_to_servers(kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server: Server = request.getfixturevalue(kind)[0]
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    results = ResultUploader(tmp_path / "uploads")
    run, asked = finished(tmp_path, server.address, places=server.places)
    where = results.offer(run, asked)
    results.close()
    assert results.waiting == {}
    assert where == f"{server.address}/my%20study/run-1"
    place = open_storage(where, server.places)
    place.fetch(tmp_path / "back")
    place.close()
    assert complete(tmp_path / "back")
    assert (tmp_path / "back" / "outputs" / "a").read_text() == "kept"
    upload_run(json.loads(json.dumps(content(asked, where))))  # once more changes nothing


def finished(folder: Path, to: str, run_id: str = "run-1", **changes: Any) -> tuple[Run, RunRequest]:
    """A run that has ended, with its files."""
    asked = asking(folder, to, run_id=run_id, **changes)
    (asked.folder / "outputs").mkdir(parents=True)
    (asked.folder / "stdout").write_text("hello")
    (asked.folder / "outputs" / "a").write_text("kept")
    return Run(run_id, 0, state=RunState.DONE), asked


def content(asked: RunRequest, to: str) -> dict[str, Any]:
    places = {place: dict(access) for place, access in asked.places.items()}
    return {"folder": str(asked.folder), "to": to, "places": places, "run": {"run_id": "run-1"}}


def test_the_checksums_come_last_and_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    put, remove = LocalStorage.put, LocalStorage.remove

    def noted_put(self: LocalStorage, source: Path, name: str) -> None:
        done.append(name)
        put(self, source, name)

    def noted_remove(self: LocalStorage, name: str) -> None:
        done.append(f"-{name}")
        remove(self, name)

    monkeypatch.setattr(LocalStorage, "put", noted_put)
    monkeypatch.setattr(LocalStorage, "remove", noted_remove)
    _, asked = finished(tmp_path, "")
    note = content(asked, str(tmp_path / "to"))
    upload_run(note)
    upload_run(note)
    assert done == ["outputs/a", "run.json", "stdout", SUMS]
    (asked.folder / "stdout").write_text("other")
    upload_run(note)
    assert done[4:] == [f"-{SUMS}", "outputs/a", "run.json", "stdout", SUMS]
    assert complete(tmp_path / "to")


def test_a_server_that_is_down_keeps_nobody_and_loses_nothing(
    make: Callable[[], Deployer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "_BACKOFF", Backoff((0.05,)))
    down = [True]
    put = LocalStorage.put

    def refuse(self: LocalStorage, source: Path, name: str) -> None:
        if down[0]:
            raise UnreachableError("the server does not answer")
        put(self, source, name)

    monkeypatch.setattr(LocalStorage, "put", refuse)
    first = make()
    first.launch(row(), asking(tmp_path, str(tmp_path / "results")))
    ended = drive(first)[-1]
    assert (ended.state, ended.exit_code) == (RunState.DONE, 0)
    with caplog.at_level(logging.WARNING):
        first.close()
    assert "the next start tries again: the server does not answer" in caplog.text
    assert [path.name for path in (tmp_path / "uploads").iterdir()] == ["run-1.json"]
    second = make()
    second.sweep(set())  # as at the start of the same command
    down[0] = False

    def poll() -> bool:
        second.poll()
        return complete(Path(ended.results))

    eventually(poll)
    second.close()
    assert not list((tmp_path / "uploads").iterdir())


def test_links_of_the_job_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    _, asked = finished(tmp_path, "")
    (asked.folder / "outputs" / "link").symlink_to(tmp_path / "secret")
    (asked.folder / "outputs" / "folder").symlink_to(tmp_path)
    (asked.folder / "stderr").symlink_to(tmp_path / "secret")
    upload_run(content(asked, str(tmp_path / "to")))
    found = {path.relative_to(tmp_path / "to").as_posix() for path in (tmp_path / "to").rglob("*") if path.is_file()}
    assert found == {"stdout", "outputs/a", "run.json", SUMS}


def test_names_that_are_no_text_are_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, asked = finished(tmp_path, "")
    outputs = os.fsencode(asked.folder / "outputs")
    good = {"model.bin", "r\u00e9sum\u00e9 \u00a0 1.csv", "back\\slash"}
    for name in (*map(os.fsencode, good), b"r\xe9sultat.csv", b"two\nlines"):
        Path(os.fsdecode(outputs + b"/" + name)).write_bytes(name)
    upload_run(content(asked, str(tmp_path / "to")))
    assert complete(tmp_path / "to")
    found = {path.name for path in (tmp_path / "to" / "outputs").iterdir()}
    assert found == {"a", *good}
    facts = json.loads((tmp_path / "to" / "run.json").read_text())
    assert facts["left_out"] == ["outputs/r\\xe9sultat.csv", "outputs/two\nlines"]
    assert r"their names are no text: 'outputs/r\\xe9sultat.csv', 'outputs/two\nlines'" in caplog.text


def test_outputs_that_a_job_has_made_a_link_are_not_followed(tmp_path: Path) -> None:
    _, asked = finished(tmp_path, str(tmp_path / "to"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "key").write_text("not the run's")
    shutil.rmtree(asked.folder / "outputs", ignore_errors=True)
    (asked.folder / "outputs").symlink_to(tmp_path / "elsewhere")
    upload_run(content(asked, str(tmp_path / "to")))
    assert "key" not in {path.name for path in (tmp_path / "to").rglob("*")}


def test_files_that_are_gone_are_no_success_and_undo_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run, asked = finished(tmp_path, str(tmp_path / "to"))
    there = tmp_path / "to" / "my study" / "run-1"
    upload_run(content(asked, str(there)))
    sums = (there / SUMS).read_text()
    shutil.rmtree(asked.folder)
    with pytest.raises(DeployError, match="is gone") as caught:
        upload_run(content(asked, str(there)))
    assert not caught.value.retryable
    assert complete(there) and (there / SUMS).read_text() == sums
    (tmp_path / "uploads").mkdir()
    note = {**content(asked, str(there)), "run": {"run_id": run.run_id}}
    (tmp_path / "uploads" / "run-1.json").write_text(json.dumps(note))
    results = ResultUploader(tmp_path / "uploads")
    results.resume()
    results.close()
    assert results.waiting == {}
    assert f"run run-1: its files are not uploaded, and it is given up: the run's folder {asked.folder}" in caplog.text
    assert [path.name for path in (tmp_path / "uploads").iterdir()] == ["run-1.given-up"]
    assert (there / SUMS).read_text() == sums


def test_a_folder_that_cannot_be_read_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, asked = finished(tmp_path, "")
    (asked.folder / "outputs" / "closed").mkdir()
    look = os.scandir

    def refusing(place: Any) -> Any:
        if Path(place).name == "closed":
            raise PermissionError(13, "Permission denied", str(place))
        return look(place)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(PermissionError, match="closed"):
        upload_run(content(asked, str(tmp_path / "to")))
    assert not (tmp_path / "to").exists()


def test_nothing_to_upload(tmp_path: Path) -> None:
    results = ResultUploader(tmp_path / "uploads")
    run, asked = finished(tmp_path, "")
    assert results.offer(run, asked) == ""
    assert results.offer(run, asking(tmp_path, str(tmp_path / "to"), run_id="never")) == ""
    results.resume()
    results.close()
    assert not (tmp_path / "uploads").exists()


def test_a_bug_or_a_note_that_cannot_be_written_is_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "uploads").write_text("in the way")
    results = ResultUploader(tmp_path / "uploads")
    run, asked = finished(tmp_path, str(tmp_path / "to"))

    def bug(content: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(module, "upload_run", bug)
    results.offer(run, asked)
    results.close()
    assert results.waiting == {"run-1": "ZeroDivisionError: oops"}
    assert "note of its upload cannot be written" in caplog.text


_CONTROLLER = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
import tests.deployer.test_result_uploads as here
here.controller(Path({folder!r}))
"""


def controller(folder: Path) -> None:
    """A process that uploads many runs, slowly."""
    put = LocalStorage.put

    def slow(self: LocalStorage, source: Path, name: str) -> None:
        time.sleep(0.005)
        put(self, source, name)

    LocalStorage.put = slow  # type: ignore[method-assign]
    results = ResultUploader(folder / "uploads")
    print("ready", flush=True)
    for i in range(1000):
        run, asked = finished(folder, str(folder / "results"), f"run-{i}")
        results.offer(run, asked)
        print(f"run-{i}", flush=True)
        time.sleep(0.01)


@pytest.mark.slow
def test_kill_nine_loses_no_upload(tmp_path: Path) -> None:
    for turn in range(2):
        folder = tmp_path / str(turn)
        folder.mkdir()
        code = _CONTROLLER.format(root=str(Path(__file__).parents[2]), folder=str(folder))
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.1 + 0.15 * turn)
            os.kill(process.pid, signal.SIGKILL)
            offered = process.stdout.read().split()
        assert offered
        there = folder / "results" / "my study"
        for done in there.glob(f"*/{SUMS}"):
            assert complete(done.parent), "what has its checksums is whole"
        results = ResultUploader(folder / "uploads")
        results.resume()
        results.close()
        assert results.waiting == {}
        assert all(complete(there / run_id) for run_id in offered)


YAML = """\
name: sort
job:
  command: [sh, -c, "echo hello"]
space: {level: 1..9}
objective: {minimise: runtime}
budget: {trials: 2}
searcher: random
deploy: {results: kept/here}
"""


def test_a_whole_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.yaml").write_text(YAML)
    monkeypatch.chdir(tmp_path)
    assert command(["tune", "job.yaml", "--quiet"]) == 0
    folders = sorted((tmp_path / "kept" / "here" / "sort").iterdir())
    assert len(folders) == 2 and all(complete(folder) for folder in folders)
    capsys.readouterr()
    assert command(["export", "sort", "--format", "records"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [run["results"] for record in records for run in record.get("runs", [])] == [
        str(folder) for folder in folders
    ]
    digest = hashlib.sha256(b"hello\n").hexdigest()
    assert f"{digest}  stdout\n" in (folders[0] / SUMS).read_text()
