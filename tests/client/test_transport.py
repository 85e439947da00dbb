"""The wire of the client: refusals, silence, addresses, and the format of streams."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import share

from tradewind import errors
from tradewind.client import Client
from tradewind.client.tokens import keep_tokens
from tradewind.client.transport import ServerSentEvent, _parse, error_of
from tradewind.errors import TradewindError
from tradewind.service.http.event_hub import SSE_HEARTBEAT, sse_message
from tradewind.service.http.responses import http_status, problem_document


def every_error() -> list[TradewindError]:
    """One of each kind that a server may answer with."""
    found: list[type[TradewindError]] = [TradewindError]
    for kind in found:
        found += [child for child in kind.__subclasses__() if child.__module__ == "tradewind.errors"]
    made = []
    for kind in found:
        if "code" in vars(kind):
            error = kind.__new__(kind)
            TradewindError.__init__(error, f"something is {kind.code}", hint="do this")
            for name, value in {"line": None, "file": None, "fields": {"a": "b"}}.items():
                if isinstance(error, errors.InputError):
                    setattr(error, name, value)
            made.append(error)
    return made


@pytest.mark.parametrize("error", every_error(), ids=lambda e: e.code)
def test_every_error_arrives_as_itself(error: TradewindError) -> None:
    document = json.loads(json.dumps(problem_document(error)))
    arrived = error_of(http_status(error), document, wait=3.0)
    assert type(arrived) is type(error)
    assert (arrived.message, arrived.hint, str(arrived)) == (error.message, error.hint, str(error))
    assert arrived.exit_code == error.exit_code
    if isinstance(arrived, errors.TooManyError | errors.BusyError):
        assert arrived.wait == 3.0
    if isinstance(arrived, errors.FormError):
        assert arrived.fields == {"a": "b"}


@pytest.mark.parametrize(
    ("status", "document", "kind"),
    [
        (422, {"code": "input.spec.newer", "title": "x"}, errors.SpecError),
        (404, {"code": "moon", "title": "x"}, errors.NotFoundError),
        (502, {}, errors.ServiceError),
        (401, {}, errors.SignInError),
        (404, {"code": ["a"], "title": {"a": 1}}, errors.NotFoundError),
    ],
)
def test_what_a_newer_server_or_a_proxy_says(status: int, document: dict[str, Any], kind: type[TradewindError]) -> None:
    assert type(error_of(status, document)) is kind


def answering(*answers: httpx2.Response | Exception, **options: Any) -> tuple[Client, list[httpx2.Request]]:
    """A client whose calls are answered with these, and what it has sent."""
    sent: list[httpx2.Request] = []
    waiting = iter(answers)

    def handle(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        answer = next(waiting)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Client("http://server.test/", "tw_x", transport=httpx2.MockTransport(handle), **options), sent


ME = httpx2.Response(200, json={"name": "ann", "role": "user", "tenant": "physics", "newer": 1})
BUSY = httpx2.Response(503, json={"code": "service.busy", "title": "busy", "status": 503}, headers={"Retry-After": "0"})


def test_calls_that_change_nothing_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    monkeypatch.setattr("time.sleep", naps.append)
    client, sent = answering(httpx2.ConnectError("refused"), BUSY, ME)
    assert client.me().name == "ann"
    assert len(sent) == 3
    assert len(naps) == 2
    client, sent = answering(*[httpx2.ConnectError("refused")] * 3)
    with pytest.raises(errors.ServiceError, match="does not answer: refused") as caught:
        client.me()
    assert "tradewind serve" in str(caught.value)
    assert len(sent) == 3


def test_calls_that_change_something_are_not() -> None:
    client, sent = answering(httpx2.ReadError("broken"))
    with pytest.raises(errors.ServiceError, match="broken"):
        client.cancel(1)
    assert len(sent) == 1


def test_a_submission_is_repeated_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    made = httpx2.Response(201, json={"id": 1, "name": "", "kind": "run", "state": "pending"})
    client, sent = answering(httpx2.ReadError("broken"), made)
    assert client.submit(application="a").id == 1
    assert len({request.headers["idempotency-key"] for request in sent}) == 1
    assert json.loads(sent[0].content) == {"application": "a"}
    assert sent[0].headers["authorization"] == "Bearer tw_x"


MADE = httpx2.Response(201, json={"id": 1, "name": "", "kind": "run", "state": "pending"})
PROXY = httpx2.Response(502, text="<html>Bad Gateway")
AWAY = httpx2.Response(503, json={"code": "store", "title": "the store does not answer", "status": 503})
REFUSED = httpx2.ConnectError("refused")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses; time passes in nothing else."""
    naps: list[float] = []
    monkeypatch.setattr("time.sleep", naps.append)
    monkeypatch.setattr("time.monotonic", lambda: sum(naps))
    return naps


def test_a_server_that_was_there_is_waited_for(clock: list[float]) -> None:
    client, sent = answering(ME, *[REFUSED] * 8, PROXY, AWAY, ME)
    assert (client.me().name, client.me().name) == ("ann", "ann")
    assert len(sent) == 12
    client, sent = answering(ME, *[REFUSED] * 99, patience=20.0)
    client.me()
    with pytest.raises(errors.ServiceError, match="does not answer: refused"):
        client.me()
    assert 20.0 <= sum(clock) - clock[0] < 40.0
    client, sent = answering(ME, REFUSED)
    client.me()
    with pytest.raises(errors.ServiceError, match="does not answer: refused"):
        client.cancel(1)
    assert len(sent) == 2, "what changes something is not sent twice"


def test_what_a_proxy_says_of_a_server_that_is_away(clock: list[float]) -> None:
    client, _ = answering(*[PROXY] * 3)
    with pytest.raises(errors.ServiceError, match="does not answer: HTTP status 502 of a proxy"):
        client.me()
    client, sent = answering(PROXY, MADE)
    assert client.submit(application="a").id == 1
    assert len({request.headers["idempotency-key"] for request in sent}) == 1


def test_a_submission_whose_answer_was_lost_is_asked_for_until_it_is_known(clock: list[float]) -> None:
    client, sent = answering(httpx2.ReadError("broken"), *[REFUSED] * 9, MADE)
    assert client.submit(application="a").id == 1
    assert len({request.headers["idempotency-key"] for request in sent}) == 1
    client, sent = answering(httpx2.ReadError("broken"), *[REFUSED] * 99, patience=5.0)
    with pytest.raises(errors.ServiceError, match="does not answer") as caught:
        client.submit(application="a")
    assert sent[0].headers["idempotency-key"] in str(caught.value.hint)


@pytest.mark.parametrize("kind", ["LocalProtocolError", "PoolTimeout", "ProxyError", "UnsupportedProtocol"])
def test_a_call_that_was_never_sent_is_no_sign_of_a_server(kind: str, clock: list[float]) -> None:
    client, sent = answering(*[getattr(httpx2, kind)("illegal header value")] * 99)
    with pytest.raises(errors.ServiceError, match="illegal header value"):
        client.me()
    assert len(sent) == 3


@pytest.mark.parametrize("kind", ["ReadError", "WriteError", "ReadTimeout", "WriteTimeout", "RemoteProtocolError"])
def test_who_breaks_off_was_there(kind: str, clock: list[float]) -> None:
    client, sent = answering(getattr(httpx2, kind)("broken"), *[REFUSED] * 9, ME)
    assert client.me().name == "ann"
    assert len(sent) == 11


def test_no_token_goes_elsewhere() -> None:
    client, sent = answering(httpx2.Response(302, headers={"Location": "http://evil.test/"}))
    with pytest.raises(errors.ServiceError, match="sends calls on to http://evil"):
        client.me()
    assert len(sent) == 1


@pytest.mark.parametrize("url", ["", "server", "ftp://server", "http://", "file:///etc/passwd"])
def test_wrong_addresses(url: str) -> None:
    with pytest.raises(errors.InputError, match="no address"):
        Client(url)


@pytest.mark.parametrize("token", ["a b", "tw_\n", "tw_é"])
def test_wrong_tokens(token: str) -> None:
    with pytest.raises(errors.InputError, match="token"):
        Client("http://server.test", token)


def test_the_token_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200, json={})

    def asked(url: str, *token: str) -> str | None:
        with Client(url, *token, transport=httpx2.MockTransport(answer)) as client:
            client._transport.call("GET", "/me")
        return sent[-1].headers.get("authorization")

    with pytest.raises(errors.SignInError, match=r"no token for https://server.test .tradewind login https://server"):
        Client("https://server.test/")
    keep_tokens({"https://server.test": "tw_kept"})
    assert asked("https://server.test") == asked(" https://server.test/ ") == "Bearer tw_kept"
    with pytest.raises(errors.SignInError, match=r"no token for https://other.test"):
        Client("https://other.test")
    assert asked("https://server.test", "tw_given") == "Bearer tw_given"
    assert asked("https://server.test", "") is None
    monkeypatch.setenv("TRADEWIND_TOKEN", "tw_environment")
    assert asked("https://server.test") == asked("https://other.test") == "Bearer tw_environment"


def test_wrong_certificates(tmp_path: Any) -> None:
    with pytest.raises(errors.InputError, match="cannot be read"):
        Client("https://server.test", "x", verify=str(tmp_path / "none.pem"))


def test_no_answer_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = answering(httpx2.Response(500, text="<html>"))
    with pytest.raises(errors.ServiceError, match="HTTP status 500"):
        client.me()


_JSON = st.recursive(st.none() | st.integers() | st.text(max_size=9), lambda x: st.lists(x, max_size=2), max_leaves=4)
_EVENT = st.tuples(
    st.dictionaries(st.text(max_size=5), _JSON, max_size=2), st.integers(0, 2**60), st.sampled_from(["", "log", "end"])
)


@pytest.mark.slow
@settings(max_examples=share(50))
@given(st.lists(_EVENT, max_size=4))
def test_what_the_server_writes_is_read(events: list[tuple[dict[str, Any], int, str]]) -> None:
    stream = SSE_HEARTBEAT + b"".join(
        sse_message(data, number=number, kind=kind) + SSE_HEARTBEAT for data, number, kind in events
    )
    lines = iter(stream.decode().split("\n"))
    found = list(_parse(lines))
    assert found == [ServerSentEvent(kind or "message", str(number), data) for data, number, kind in events]


@pytest.mark.slow
def test_the_client_is_light() -> None:
    """Programs that only submit need not load what searches need."""
    code = (
        "import sys, tradewind.client\n"
        "tradewind.client.Client('http://server.test', 'tw_x')\n"
        "print(*[m for m in ('numpy', 'sqlalchemy', 'fastapi', 'pydantic', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.split(), done.stderr) == ([], "")
