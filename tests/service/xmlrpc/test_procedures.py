"""The procedures over HTTP, as stdlib's client calls them."""

from __future__ import annotations

import base64
import xmlrpc.client
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import share
from tests.service.live_server import move, principal
from tests.service.module_server import House, house
from tests.service.xmlrpc.test_codec_calls import BOMBS, param

from tradewind.errors import NotFoundError, TooManyError
from tradewind.service.accounts.identity import Principal
from tradewind.service.xmlrpc.endpoint import _refusal
from tradewind.service.xmlrpc.procedures import NAMES

FIGURE_4 = {
    "resources": {"nodes": 2, "memory": 64, "cpu": 1, "time": 100},
    "scheduler": {"name": "htcondor"},
    "template": "executable = run.sh\narguments = {{ key1 }}\nqueue\n",
    "user_data": {"key1": "value1"},
}


class Rpc:
    """Calls over one client of the test, with these headers."""

    def __init__(self, client: TestClient, headers: dict[str, str]) -> None:
        self.client, self.headers = client, headers

    def __call__(self, method: str, *arguments: Any) -> Any:
        return self.send(xmlrpc.client.dumps(arguments, method, allow_none=True).encode())

    def send(self, body: bytes) -> Any:
        answer = self.client.post("/RPC2", content=body, headers={**self.headers, "Content-Type": "text/xml"})
        assert answer.status_code in (200, 401, 429), answer.text
        assert answer.headers["content-type"].startswith("text/xml")
        return xmlrpc.client.loads(answer.content, use_builtin_types=True)[0][0]


def fault(work: Any, *arguments: Any) -> xmlrpc.client.Fault:
    """The fault that a call ends with."""
    with pytest.raises(xmlrpc.client.Fault) as caught:
        work(*arguments)
    return caught.value


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server for all tests of this module."""
    with house(tmp_path_factory.mktemp("xmlrpc")) as opened:
        yield opened


@pytest.fixture(scope="module")
def ann_rpc(here: House) -> Rpc:
    """Calls of a user."""
    return Rpc(here.client, here.ann)


@pytest.mark.slow
def test_a_request_from_its_beginning_to_its_end(ann_rpc: Rpc, here: House) -> None:
    hello = here.hello
    number = ann_rpc("submit", {"application": hello, "parameters": {"words": "grüße"}}, "my-key")
    assert ann_rpc("submit", {"application": hello, "parameters": {"words": "grüße"}}, "my-key") == number
    status = ann_rpc("status", number)
    assert (status["id"], status["status"], status["application"]) == (number, "pending", hello)
    assert status["document"]["parameters"]["words"] == "grüße"
    assert isinstance(status["status_updated_at"], int)
    assert ann_rpc("list")[0]["id"] == number
    assert ann_rpc("list", {"states": ["done"]}) == []
    assert ann_rpc("log", number) == {"text": "", "next": 0, "run": "", "ended": False}
    assert ann_rpc("cancel", number) is True
    assert ann_rpc("status", number)["status"] == "cancelled"
    assert "cancelled by ann" in ann_rpc("status", number)["problem"]
    assert fault(ann_rpc, "cancel", number).faultCode == 409
    assert ann_rpc("retry", number, "again") is True
    assert ann_rpc("retry", number, "again") is True
    like = ann_rpc("resubmit", number, {"name": "like it"}, "one more")
    assert ann_rpc("resubmit", number, {"name": "like it"}, "one more") == like != number
    assert ann_rpc("status", like)["name"] == "like it"
    assert fault(ann_rpc, "retry", number).faultCode == 409
    move(here.context.requests, number, "done")
    assert fault(ann_rpc, "retry", number).faultCode == 409
    assert ann_rpc("delete", number) is True
    assert fault(ann_rpc, "status", number).faultCode == 404


@pytest.mark.slow
def test_figure_4_of_the_publication_is_taken_as_it_stands(here: House) -> None:
    admin = Principal(0, "root", "admin", "operations")
    here.context.backends.set(admin, "pool", {"deploy": {"runner": {"use": "htcondor"}}, "own_code": True})
    rpc = Rpc(here.client, here.root)
    number = rpc("submit", FIGURE_4)
    status = rpc("status", number)
    assert {name: status[name] for name in ("resources", "template", "user_data")} == {
        name: FIGURE_4[name] for name in ("resources", "template", "user_data")
    }
    assert status["scheduler"]["name"] == "htcondor"
    assert status["status"] == "pending"


@pytest.mark.slow
def test_other_tenants_are_not_there(here: House, ann_rpc: Rpc) -> None:
    number = ann_rpc("submit", {"application": here.hello})
    other = Rpc(here.client, here.bob)
    assert other("list") == []
    for method in ("status", "cancel", "delete", "retry", "log"):
        found = fault(other, method, number)
        assert (found.faultCode, found.faultString) == (
            fault(other, method, 999).faultCode,
            fault(other, method, 999).faultString,
        )


@pytest.mark.slow
def test_the_right_configuration(ann_rpc: Rpc) -> None:
    found = ann_rpc("optimal_configuration", "hello", {"words": "a"}, {"count": 2})
    assert found["configuration"]["nodes"] in (1, 2)
    assert found["offer"]["provider"] == "local"
    assert len(found["candidates"]) == 2
    assert found["runs"] == 0
    assert fault(ann_rpc, "optimal_configuration", "hello", {"times": 1000}).faultString.startswith("input.form: times")
    assert fault(ann_rpc, "optimal_configuration", "hello", {}, {"count": 0}).faultCode == 422
    assert fault(ann_rpc, "optimal_configuration", "nothing").faultCode == 404


@pytest.mark.slow
def test_applications_with_their_forms(ann_rpc: Rpc, here: House) -> None:
    (found,) = ann_rpc("applications")
    assert (found["reference"], found["title"]) == (here.hello, "Say hello")
    assert [(field["name"], field["type"], field["default"]) for field in found["fields"]] == [
        ("words", "text", "hello"),
        ("times", "integer", 1),
    ]


@pytest.mark.slow
def test_every_procedure_tells_what_it_is(ann_rpc: Rpc) -> None:
    names = ann_rpc("system.listMethods")
    paper = {"submit", "status", "list", "cancel", "delete", "optimal_configuration", "applications"}
    assert paper | {"system.listMethods", "system.methodHelp", "system.methodSignature"} <= set(names)
    for name in names:
        help_ = ann_rpc("system.methodHelp", name)
        signatures = ann_rpc("system.methodSignature", name)
        most = max(len(one) for one in signatures) - 1
        assert len(help_) > 20
        assert {word for one in signatures for word in one} <= {"int", "string", "boolean", "struct", "array"}
        arguments = [line for line in help_.splitlines() if line.partition(":")[0].isidentifier() and ": " in line]
        assert len(arguments) == most, f"{name} does not say what each argument is"
    assert fault(ann_rpc, "system.methodHelp", "nothing").faultCode == 404


WRONG: list[tuple[str, tuple[Any, ...], str]] = [
    ("nothing", (), "no procedure"),
    ("__init__", (), "no procedure"),
    ("system_list_methods", (), "no procedure"),
    ("status", (), "takes 1 arguments, and got 0"),
    ("status", (1, 2), "takes 1 arguments, and got 2"),
    ("submit", ({}, "", 1), "takes 1 to 2 arguments"),
    ("status", ("1",), "must be of the type int"),
    ("status", (True,), "must be of the type int"),
    ("status", (None,), "must be of the type int"),
    ("submit", ([],), "must be of the type struct"),
    ("submit", ({}, 1), "must be of the type string"),
    ("submit", ({},), "application"),
    ("submit", ({"application": "a\ud7ff"},), "no application"),
    ("list", ({"states": "done"},), "wrong type"),
    ("list", ({"states": [1]},), "must be strings"),
    ("list", ({"colour": "red"},), "no 'colour'"),
    ("list", ({"before": True},), "wrong type"),
    ("log", (1, "stdout", "0"), "must be of the type int"),
]


@pytest.mark.slow
def test_wrong_calls_are_faults(ann_rpc: Rpc) -> None:
    for method, arguments, words in WRONG:
        found = fault(ann_rpc, method, *arguments)
        assert found.faultCode in (404, 422), (method, arguments)
        assert words in found.faultString, (method, arguments)


@pytest.mark.slow
def test_bombs(ann_rpc: Rpc) -> None:
    for bomb in BOMBS.values():
        assert fault(ann_rpc.send, bomb).faultCode == 422


def test_a_number_beyond_what_a_database_counts(ann_rpc: Rpc) -> None:
    assert fault(ann_rpc.send, param("<i8>9223372036854775807</i8>", "status")).faultCode == 404


def test_a_text_that_is_too_long_to_be_looked_for(ann_rpc: Rpc) -> None:
    assert fault(ann_rpc, "list", {"text": "a" * 60_000}).faultCode == 422


def test_nobody_calls_without_a_name(here: House) -> None:
    client, token = here.client, here.ann["Authorization"].removeprefix("Bearer ")
    wrong = ["", "Bearer tw_x", "Basic", "Basic !", "Digest x", basic("ann", "x"), basic("bob", token), basic("", "")]
    wrong += ["Basic " + base64.b64encode(b"no colon").decode(), "Basic " + base64.b64encode(b"\xff:\xff").decode()]
    for header in wrong:
        rpc = Rpc(client, {"Authorization": header} if header else {})
        assert fault(rpc, "system.listMethods").faultCode == 401, header
    answer = client.post("/RPC2", content=param("1", "list"))
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")
    for header in (basic("ann", token), basic("ANN", token), here.ann["Authorization"]):
        assert Rpc(client, {"Authorization": header})("system.listMethods")


def test_a_password_is_checked_once_and_forgotten_with_its_session(here: House) -> None:
    here.context.accounts.add_user("carol", password="correct horse battery")
    rpc = Rpc(here.client, {"Authorization": basic("carol", "correct horse battery")})
    assert rpc("list") == []
    assert rpc("list") == []
    assert len(here.context.accounts.sessions(principal(here.context, "carol"))) == 1
    here.context.users.change(principal(here.context, "root"), "carol", password="another horse battery")
    assert fault(rpc, "list").faultCode == 401


def test_get_is_no_call(here: House) -> None:
    assert here.client.get("/RPC2", headers=here.ann).status_code == 405


def basic(name: str, secret: str) -> str:
    """The header of HTTP Basic."""
    return "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()


_PLAIN = st.none() | st.booleans() | st.integers(-(2**31), 2**31 - 1) | st.floats(allow_nan=False, allow_infinity=False)
_TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), max_size=10)
_KEYS = st.sampled_from(
    ["application", "parameters", "configuration", "resources", "search", "template", "user_data", "hooks", "name",
     "backend", "scheduler", "results", "notify", "states", "before", "limit", "count", "deadline", "nodes", "budget"]
)  # fmt: skip
_ANY = st.recursive(
    _PLAIN | _TEXT | st.just("hello"), lambda x: st.lists(x, max_size=3) | st.dictionaries(_KEYS | _TEXT, x, max_size=4)
)


@pytest.mark.slow
@settings(max_examples=share(120), deadline=None)
@given(st.sampled_from(sorted(NAMES)), st.lists(_ANY, max_size=3))
def test_anything_ends_with_a_value_or_a_fault_that_is_the_callers(
    ann_rpc: Rpc, method: str, arguments: list[Any]
) -> None:
    try:
        ann_rpc(method, *arguments)
    except xmlrpc.client.Fault as found:
        assert 400 <= found.faultCode < 500, found.faultString


@pytest.mark.slow
@settings(max_examples=share(80), deadline=None)
@given(_ANY, st.sampled_from(["application", "template"]))
def test_documents_of_any_shape_are_judged(ann_rpc: Rpc, value: Any, kind: str) -> None:
    document = {**(value if isinstance(value, dict) else {"parameters": value}), kind: "hello"}
    try:
        assert isinstance(ann_rpc("submit", document), int)
    except xmlrpc.client.Fault as found:
        assert 400 <= found.faultCode < 500, found.faultString


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ({"limit": -1}, "limit of filters must be from 1 to 500"),
        ({"limit": 0}, "limit of filters must be from 1 to 500"),
        ({"limit": 501}, "limit of filters must be from 1 to 500"),
        ({"before": 0}, "before of filters must be from 1"),
    ],
)
def test_filters_have_the_bounds_of_rest(ann_rpc: Rpc, filters: dict[str, int], words: str) -> None:
    found = fault(ann_rpc, "list", filters)
    assert (found.faultCode, words in found.faultString) == (422, True)


def test_numbers_of_nothing_are_refused(ann_rpc: Rpc) -> None:
    assert "request of status is 0" in fault(ann_rpc, "status", 0).faultString
    assert "offset of log is -1" in fault(ann_rpc, "log", 1, "stdout", -1).faultString


def test_too_many_attempts_are_said_by_http_too() -> None:
    error = TooManyError("too many attempts")
    error.wait = 12.5
    answer = _refusal(error)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "13")
    assert _refusal(NotFoundError("there is none")).status_code == 200, "other faults are answers of XML-RPC itself"
