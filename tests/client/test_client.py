"""The Python client against a server that really listens, with a worker that really carries requests out."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from tests.service.live_server import not_uploaded, served
from tests.service.module_server import House, house

from tradewind import errors
from tradewind.client import Client, EventInfo, LogPartInfo, UploadInfo
from tradewind.service.requests.worker import RequestWorker
from tradewind.service.settings import ServiceSettings

pytestmark = pytest.mark.slow

SLOW = """\
name: slow
application: {}
job:
  command: [sh, -c, "echo one; echo 1,2 > table.csv; sleep 1; echo two; echo oh >&2"]
  outputs: [table.csv]
space:
  nodes: [1]
offers:
  provider: [local]
"""


@dataclass(frozen=True)
class Place:
    """A server with a worker."""

    house: House
    url: str

    def client(self, name: str = "ann", **options: object) -> Client:
        """A client of one of its users."""
        headers: dict[str, str] = getattr(self.house, name)
        return Client(self.url, headers["Authorization"].removeprefix("Bearer "), **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One for all tests of this module."""
    settings = ServiceSettings(event_seconds=0.02, beat_seconds=0.5, runs=2)
    with house(tmp_path_factory.mktemp("client"), settings) as here, served(here.context) as url:
        stop = threading.Event()
        worker = threading.Thread(target=RequestWorker(here.context).run, args=(stop,), daemon=True)
        worker.start()
        opened = Place(here, url)
        with opened.client("root") as root:
            root.register(SLOW, shared=True)
        yield opened
        stop.set()
        worker.join(20.0)


def test_from_the_form_to_the_files(place: Place, tmp_path: Path) -> None:
    with place.client() as client:
        assert client.me().tenant == "physics"
        assert "hello" in [one.name for one in client.applications()]
        form = client.form("hello")
        assert [(one.name, one.type, one.default) for one in form.fields][:1] == [("words", "text", "hello")]
        proposal = client.propose("hello", {"words": "hi"}, count=1)
        assert proposal.best.offer.provider == "local"
        request = client.submit(application="slow", configuration={"nodes": 1}, name="my run")
        assert (request.state, request.over) == ("pending", False)
        done = client.wait(request.id, timeout=60.0)
        assert (done.state, done.ok, done.problem) == ("done", True, "")
        stages = [event.stage for event in client.history(request.id)]
        assert stages[0] == "pending"
        assert stages[-1] == "done"
        assert "executing" in stages
        assert "".join(client.logs(request.id)) == "one\ntwo\n"
        assert client.log(request.id, "stderr").text == "oh\n"
        assert client.log(request.id, offset=4).text == "two\n"
        table = next(file for file in client.files(request.id) if file.path.endswith("table.csv"))
        saved = client.download(request.id, table.path, tmp_path)
        assert (saved.name, saved.read_text(), saved.stat().st_size) == ("table.csv", "1,2\n", table.size)
        assert list(tmp_path.glob(".*.part")) == []
        assert client.study(done.study or 0).counts == {"succeeded": 1}
        assert done.study in [study.id for study in client.studies(single_runs=True, limit=5)]
        assert done.study not in [study.id for study in client.studies(limit=5)], "a single run is no search"


def test_files_go_into_a_folder_that_is_named_as_one(tmp_path: Path) -> None:
    answers = httpx2.MockTransport(lambda request: httpx2.Response(200, content=request.url.path.encode()))
    folder = tmp_path / "deep" / "results"
    with Client("http://127.0.0.1:1", "x", transport=answers) as client:
        saved = [client.download(1, f"outputs/{name}", f"{folder}/") for name in ("a.csv", "b.csv")]
        assert saved == [folder / "a.csv", folder / "b.csv"]
        assert (folder / "a.csv").read_text().endswith("/outputs/a.csv")
        assert client.download(1, "outputs/c.csv", tmp_path / "c") == tmp_path / "c"


def test_a_followed_log_names_each_further_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {("", 0): LogPartInfo("a\n", 2, False, "r0", 0), ("r0", 2): LogPartInfo("b\n", 2, True, "r1", 1)}
    with Client("http://127.0.0.1:1", "x") as client:
        monkeypatch.setattr(client, "log", lambda *_, offset, run, **__: parts[run, offset])
        assert list(client.logs(1, follow=True)) == ["a\n", "trial 1\nb\n"]
        assert list(client.logs(1)) == ["a\n"], "without follow it is the log of one run"


def test_a_log_is_followed_while_the_program_runs(place: Place) -> None:
    with place.client() as client:
        request = client.submit(application="slow")
        times: list[float] = []
        pieces: list[str] = []
        for piece in client.logs(request.id, follow=True):
            times.append(time.monotonic())
            pieces.append(piece)
        assert "".join(pieces) == "one\ntwo\n"
        assert times[-1] - times[0] > 0.5, "it came all at once, and not while it was written"


def test_events_come_as_they_happen(place: Place) -> None:
    with place.client() as client, place.client() as other:
        seen: list[EventInfo] = []
        wanted: list[int] = []
        asking, began = threading.Lock(), threading.Event()

        def listen() -> None:
            for event in other.events():
                seen.append(event)
                began.set()
                with asking:
                    if event.stage == "done" and event.request in wanted:
                        return

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        while not began.wait(0.5):  # what is asked before it listens it need not hear of
            client.wait(client.submit(application="hello").id, timeout=60.0)
        with asking:
            request = client.submit(application="hello")
            wanted.append(request.id)
        assert client.wait(request.id, timeout=60.0).ok
        thread.join(20.0)
        assert not thread.is_alive()
        mine = [event.stage for event in seen if event.request == request.id]
        assert (mine[0], mine[-1]) == ("pending", "done")
        assert [event.stage for event in client.events(request.id)] == mine


def test_wait_asks_where_there_are_no_streams(place: Place) -> None:
    """As behind a proxy that keeps streams back."""

    class NoStreams(httpx2.HTTPTransport):
        asked = 0

        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            if "event-stream" in request.headers.get("accept", ""):
                NoStreams.asked += 1
                return httpx2.Response(200, json=[])
            return super().handle_request(request)

    with place.client(transport=NoStreams()) as client:
        request = client.submit(application="slow")
        assert client.wait(request.id, timeout=60.0, poll=0.1).ok
        assert NoStreams.asked == 1
        again = client.submit(application="slow")
        with pytest.raises(TimeoutError, match=f"request {again.id} is"):
            client.wait(again.id, timeout=0.2, poll=0.05)
        assert client.wait(again.id, timeout=60.0, poll=0.1).ok


def test_cancel_retry_resubmit_delete(place: Place) -> None:
    with place.client() as client:
        request = client.submit(application="slow", name="short life")
        client.cancel(request.id)
        cancelled = client.wait(request.id, timeout=30.0)
        assert cancelled.state == "cancelled"
        assert cancelled.problem.startswith("cancelled")
        again = client.retry(request.id)
        assert again.state == "pending"
        assert client.wait(request.id, timeout=60.0).ok
        with pytest.raises(errors.ConflictError):
            client.retry(request.id)
        new = client.resubmit(request.id, {"application": "hello", "name": None})
        assert (new.application.partition("@")[0], new.id != request.id) == ("hello", True)
        client.wait(new.id, timeout=60.0)
        assert [one.id for one in client.requests(text="short life")] == [request.id]
        client.delete(request.id)
        with pytest.raises(errors.NotFoundError):
            client.get(request.id)


def test_a_large_file_comes_in_pieces(place: Place, tmp_path: Path) -> None:
    (tmp_path / "mesh.dat").write_bytes(b"0123456789" * 500_000)
    with place.client() as client:
        found = client.upload(tmp_path / "mesh.dat")
    assert (found["name"], found["size"]) == ("mesh.dat", 5_000_000)
    assert found["file"] == f"sha256:{hashlib.sha256(b'0123456789' * 500_000).hexdigest()}"


def test_an_upload_is_tried_again(place: Place) -> None:
    with place.client() as client, place.client("bob") as bob:
        request = client.submit(application="hello", configuration={"nodes": 1})
        client.wait(request.id, timeout=60.0)
        assert client.upload_state(request.id).state == "none"
        with pytest.raises(errors.ConflictError, match="go nowhere"):
            client.upload_again(request.id)
        address = not_uploaded(place.house.context, request.id, "failed", "it does not let us in")
        assert client.upload_state(request.id) == UploadInfo("failed", address, "it does not let us in")
        assert client.upload_again(request.id) == UploadInfo("waiting", address, "")
        with pytest.raises(errors.NotFoundError):
            bob.upload_again(request.id)


def test_the_same_key_is_the_same_request(place: Place) -> None:
    with place.client() as client:
        document = {"application": "hello", "name": "keyed"}
        assert client.submit(document, key="k").id == client.submit(document, key="k").id
        assert client.submit(document).id != client.submit(document).id


def test_a_broken_connection_makes_one_request_of_one_call(place: Place) -> None:
    class Breaks(httpx2.HTTPTransport):
        calls = 0

        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            answer = super().handle_request(request)
            Breaks.calls += 1
            if Breaks.calls == 1:
                answer.read()
                raise httpx2.RemoteProtocolError("the answer was lost")
            return answer

    with place.client(transport=Breaks()) as client:
        request = client.submit(application="hello", name="lost answer")
        assert Breaks.calls == 2
        assert [one.id for one in client.requests(text="lost answer")] == [request.id]


def test_lists_go_on_over_pages(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.client.transport._PAGE", 2)
    with place.client() as client:
        made = [client.submit(application="hello", name="many").id for _ in range(5)]
        assert [one.id for one in client.requests(text="many")] == made[::-1]
        assert [one.id for one in client.requests(text="many", limit=3)] == made[:1:-1]
        assert list(client.requests(states=["failed"])) == []


def test_errors_are_those_of_the_server(place: Place) -> None:
    with place.client() as client, place.client("bob") as bob:
        request = client.submit(application="hello")
        with pytest.raises(errors.NotFoundError, match="no such request") as missing:
            bob.get(request.id)
        assert missing.value.hint == "the list of requests shows all of yours"
        with pytest.raises(errors.FormError) as form:
            client.submit(application="hello", parameters={"times": 1000})
        assert set(form.value.fields) == {"times"}
        assert form.value.exit_code == 3
        with pytest.raises(errors.SpecError) as spec:
            client.register("name: x\napplication: {}\njob: {command: ['true']}\nspaces: {}\n")
        assert spec.value.line == 4
        with pytest.raises(errors.ForbiddenError):
            client.register(SLOW, shared=True)
        with pytest.raises(errors.InputError, match="cannot be sent as JSON"):
            client.submit({"application": object()})
        with pytest.raises(errors.NotFoundError):
            client.download(request.id, "outputs/nothing", "nowhere")
        with pytest.raises(errors.NotFoundError):
            next(iter(bob.events(request.id)))
        with pytest.raises(errors.NotFoundError):
            bob.wait(request.id)
    with Client(place.url, "tw_wrong") as nobody, pytest.raises(errors.SignInError):
        nobody.me()


def test_a_file_is_handed_in(place: Place, tmp_path: Path) -> None:
    (tmp_path / "mesh.dat").write_bytes(b"\x00\xff" * 10)
    with place.client() as client:
        value = client.upload(tmp_path / "mesh.dat")
        assert (value["name"], value["size"]) == ("mesh.dat", 20)
        assert value["file"].startswith("sha256:")
        with pytest.raises(errors.InputError, match="cannot be read"):
            client.upload(tmp_path / "nothing")


def test_versions_of_an_application(place: Place) -> None:
    with place.client() as client:
        first = client.register(SLOW.replace("slow", "mine"))
        second = client.register(SLOW.replace("slow", "mine").replace("sleep 1", "sleep 2"))
        assert (first.reference, second.reference) == ("mine@1", "mine@2")
        assert "sleep 2" in client.application("mine").document
        client.retire("mine@2")
        assert client.application("mine").reference == "mine@1"
        with pytest.raises(errors.ConflictError):
            client.application("mine@2")


@pytest.mark.parametrize("word", ["retry", "resubmit"])
def test_a_retry_and_a_resubmission_are_asked_for_again_with_the_same_key(word: str) -> None:
    keys: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        keys.append(request.headers["Idempotency-Key"])
        if len(keys) == 1:
            raise httpx2.RemoteProtocolError("the answer was lost")
        return httpx2.Response(404, json={"code": "service.not-found", "title": "there is no such request"})

    client = Client("http://localhost:1", token="tw_x", transport=httpx2.MockTransport(answer))
    with client, pytest.raises(errors.NotFoundError):
        getattr(client, word)(7)
    assert len(keys) == 2
    assert keys[0] == keys[1]
