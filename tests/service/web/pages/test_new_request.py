"""The pages of a new request as the server makes them: which form comes, what it holds, and what becomes of it."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from tests.service.live_server import principal
from tests.service.web.page_client import Visitor, words
from tests.service.web.sample_server import GREET, STATES, put

from tradewind.errors import ConflictError
from tradewind.service.context import Context

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ann(shared: Context) -> Visitor:
    return Visitor(shared, "ann")


def field(page: str, name: str) -> str:
    """What stands in a field of a page."""
    found = re.search(rf'<input[^>]* name="{re.escape(name)}"[^>]* value="([^"]*)"', page)
    assert found is not None, f"the page has no field {name}"
    return unescape(found[1])


def ask(context: Context, **document: Any) -> int:
    """A request of ann's."""
    return context.requests.submit(principal(context, "ann"), {"application": "plate", **document}).id


def test_a_request_fills_the_form_in_as_it_was(shared: Context, ann: Visitor) -> None:
    number = ask(shared, parameters={"size": 300}, configuration={"instance": "local.c1", "threads": 2}, name="mine")
    page = ann.get(f"/requests/new?again={number}").text
    kept = ("p.size", "name", "choice", "c.instance", "c.threads")
    assert [field(page, name) for name in kept] == ["300", "mine", "own", "local.c1", "2"]


def test_the_best_configuration_of_a_search_is_run_with_one_click(shared: Context, ann: Visitor) -> None:
    who = principal(shared, "ann")
    number = put(shared, who, **{**STATES["search"], "state": "done"})
    page = ann.get(f"/requests/{number}").text
    assert f'href="/requests/new?again={number}&amp;best=1"' in page
    assert "Files and log of the best trial, 9." in words(page)
    form = ann.get(f"/requests/new?again={number}&best=1").text
    assert [field(form, name) for name in ("p.size", "c.threads", "c.instance")] == ["200", "4", "c5.xlarge"]
    assert "Runs with instance c5.xlarge threads 4" in words(form)
    running = put(shared, who, **STATES["search"])
    assert "best=1" not in ann.get(f"/requests/{running}").text
    single = ask(shared, parameters={"size": 300})
    assert ann.get(f"/requests/new?again={single}&best=1").status_code == 404


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ({"resources": {"memory": 500, "cpu": 1}}, "resources.memory"),
        ({"search": {"budget": {"trials": 2, "dollars": 1}, "parallel": 2}}, "search.parallel"),
    ],
)
def test_what_the_form_cannot_show_is_not_lost(shared: Context, ann: Visitor, said: dict[str, Any], key: str) -> None:
    number = ask(shared, **said)
    page = ann.get(f"/requests/new?again={number}").text
    assert "This is the document as it was sent" in words(page)
    assert f"<code>{key}</code>" in page
    text = re.search(r"<textarea[^>]*>(.*?)</textarea>", page, re.DOTALL)
    assert text is not None
    sent = {"document": unescape(text[1]), "key": field(page, "key")}
    assert json.loads(sent["document"]).items() >= said.items()
    made = ann.post("/requests/new/document", sent).headers["location"].rpartition("/")[2]
    assert int(made) != number
    who = principal(shared, "ann")
    assert shared.requests.get(who, int(made)).document == shared.requests.get(who, number).document


def test_a_search_tries_first_what_the_form_says(shared: Context, ann: Visitor) -> None:
    sent = {"application": "plate", "kind": "search", "budget": "$1", "p.size": "300", "do": "start"}
    answer = ann.post("/requests/new", {**sent, "key": "first-1", "try_first": "threads=1\nthreads"})
    assert answer.status_code == 422
    assert "threads: it is not NAME=VALUE,NAME=VALUE" in words(answer.text)
    answer = ann.post("/requests/new", {**sent, "key": "first-2", "try_first": "treads=1"})
    assert "Search.try_first.0: there is no parameter 'treads'" in words(answer.text)
    made = ann.post("/requests/new", {**sent, "key": "first-3", "try_first": "threads=1\nthreads=2"})
    number = int(made.headers["location"].rpartition("/")[2])
    row = shared.requests.get(principal(shared, "ann"), number)
    assert row.document["search"]["try_first"] == [{"threads": "1"}, {"threads": "2"}]
    ends = "The search stops when another trial would not pay for itself within 100 runs."
    assert row.plan["stops"] == ends
    assert ends in words(ann.get(f"/requests/{number}").text)
    assert ends in words(ann.get("/requests/new?application=plate").text)
    page = ann.get(f"/requests/new?again={number}").text
    assert re.search(r'<textarea[^>]* name="try_first"[^>]*>threads=1\nthreads=2</textarea>', page)


# ---------------------------------------------------------------------- sent again


def test_a_form_that_one_came_back_to_makes_another_request(shared: Context, ann: Visitor) -> None:
    sent = {"application": "/greet@1", "key": "came-back", "p.greeting": "first", "do": "start"}
    first = ann.post("/requests/new", sent).headers["location"]
    assert ann.post("/requests/new", sent).headers["location"] == first, "a form that is sent twice is one request"
    changed = {**sent, "p.greeting": "second"}
    answer = ann.post("/requests/new", changed)
    assert answer.status_code == 409
    assert f"Request {first.rpartition('/')[2]} was made from this form" in words(answer.text)
    assert field(answer.text, "p.greeting") == "second"
    second = ann.post("/requests/new", {**changed, "key": field(answer.text, "key")})
    assert second.status_code == 303
    assert second.headers["location"] != first


def test_a_document_that_one_came_back_to_makes_another_request(shared: Context, ann: Visitor) -> None:
    sent = {"document": "application: /greet", "key": "document-came-back"}
    first = ann.post("/requests/new/document", sent).headers["location"]
    changed = {**sent, "document": "{application: /greet, name: second}"}
    answer = ann.post("/requests/new/document", changed)
    assert answer.status_code == 409
    assert f"Request {first.rpartition('/')[2]} was made from this form" in words(answer.text)
    second = ann.post("/requests/new/document", {**changed, "key": field(answer.text, "key")})
    assert second.status_code == 303


def test_another_conflict_keeps_its_words_and_the_key(
    shared: Context, ann: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConflictError("there is no room for it")

    monkeypatch.setattr(shared.requests, "submit", refuse)
    sent = {"application": "/greet@1", "key": "no-room", "p.greeting": "first", "do": "start"}
    page = ann.post("/requests/new", sent).text
    assert "There is no room for it" in words(page)
    assert field(page, "key") == "no-room"


# ---------------------------------------------------------------------- of the same name


@pytest.fixture(scope="module")
def mine(shared: Context) -> str:
    """The title of an application of each tenant that has name and version of a shared one."""
    shared.backends.set(principal(shared, "root"), "local", "own_code: true\n")
    own = GREET.replace("title: Greeting", "title: Our own greeting").replace("default: hello", "default: servus")
    for name in ("ann", "bob"):
        shared.applications.register(principal(shared, name), own)
    return "Our own greeting"


def test_each_of_two_applications_of_one_name_has_its_own_form(shared: Context, ann: Visitor, mine: str) -> None:
    page = ann.get("/requests/new").text
    links = re.findall(r'<a class="card pick" href="([^"]*)">\s*<h2>([^<]*)</h2>', page)
    found = {title: ann.get(unescape(link)).text for link, title in links if "reeting" in title}
    assert {title: (field(form, "application"), field(form, "p.greeting")) for title, form in found.items()} == {
        mine: ("physics/greet@1", "servus"),
        "Greeting": ("/greet@1", "hello"),
    }
    listed = ann.get("/applications").text
    runs = [unescape(link) for link in re.findall(r'href="(/requests/new\?application=[^"]*greet[^"]*)"', listed)]
    assert {field(ann.get(link).text, "application") for link in runs} == {"physics/greet@1", "/greet@1"}


@pytest.mark.parametrize(("address", "title"), [("/greet@1", "Greeting"), ("physics/greet@1", "Our own greeting")])
def test_what_is_sent_runs_the_application_whose_form_it_was(
    shared: Context, ann: Visitor, mine: str, address: str, title: str
) -> None:
    page = ann.get(f"/requests/new?application={address}").text
    sent = {"application": field(page, "application"), "key": address, "p.greeting": "ahoy", "do": "start"}
    made = int(ann.post("/requests/new", sent).headers["location"].rpartition("/")[2])
    row = shared.requests.get(principal(shared, "ann"), made)
    assert row.application_id == shared.applications.get(principal(shared, "ann"), address).id
    again = ann.get(f"/requests/new?again={made}").text
    assert f"<h1>{title}</h1>" in again
    assert (field(again, "application"), field(again, "p.greeting")) == (address, "ahoy")


def test_a_retired_one_leaves_the_shared_one_of_its_name(shared: Context, mine: str) -> None:
    bob = Visitor(shared, "bob")
    listed = unescape(bob.get("/applications").text)
    pages = re.findall(r'<a href="(/applications/greet[^"]*)">([^<]*)</a>', listed)
    own = bob.get(next(link for link, title in pages if title == mine)).text
    action = re.search(r'action="(/applications/greet/retire[^"]*)"', own)
    assert action is not None
    assert bob.post(unescape(action[1])).status_code == 303
    who = principal(shared, "bob")
    assert shared.applications.get(who, "greet@1").shared
    page = bob.get("/requests/new")
    assert page.status_code == 200
    assert "Greeting" in words(page.text)
    assert mine not in page.text
    assert "for all tenants" in words(bob.get("/applications/greet?tenant=").text)


def test_the_page_of_the_shared_one_changes_nothing_of_ones_own(shared: Context, ann: Visitor, mine: str) -> None:
    before = shared.applications.list(principal(shared, "ann"))
    page = ann.get("/applications/greet?tenant=").text
    assert "<h1>Greeting</h1>" in page
    assert "Retire" not in words(page)
    assert ann.post("/applications/greet/retire?tenant=").status_code == 403
    assert shared.applications.list(principal(shared, "ann")) == before


CHOICES = """\
name: choices
job:
  command: [echo, "{{ exact }} {{ order }}"]
space:
  instance: {types: [local.c1]}
application:
  fields:
    exact: {type: choice, title: Exact, choices: [true, false], default: true}
    order: {type: choice, title: Order, choices: [1.0, 2.0], default: 2.0}
    more: {type: integer, title: More, default: 1, when: {exact: [true], order: [2.0]}}
"""


def selected(page: str, name: str) -> str:
    """The value of the option that a choice begins with."""
    block = re.search(rf'<select[^>]* name="{re.escape(name)}".*?</select>', page, re.DOTALL)
    assert block is not None
    found = re.search(r'<option value="([^"]*)" selected', block[0])
    assert found is not None, f"nothing is selected of {name}"
    return found[1]


@pytest.mark.parametrize(
    "given", [{"exact": False, "order": 1.0}, {"exact": "0", "order": "1.0"}, {"exact": 0, "order": 1}]
)
def test_choices_of_truth_and_whole_floats_come_back_as_they_were(
    shared: Context, ann: Visitor, given: dict[str, Any]
) -> None:
    shared.applications.register(principal(shared, "root"), CHOICES, shared=True)
    page = ann.get("/requests/new?application=choices").text
    assert (selected(page, "p.exact"), selected(page, "p.order")) == ("1", "2.0")
    number = ask(shared, application="choices", parameters=given)
    page = ann.get(f"/requests/new?again={number}").text
    assert (selected(page, "p.exact"), selected(page, "p.order")) == ("0", "1.0")


def test_a_request_leads_to_the_application_that_it_is_of(shared: Context, ann: Visitor, mine: str) -> None:
    greet = shared.requests.submit(principal(shared, "ann"), {"application": "/greet@1"})
    assert 'href="/applications/greet%401?tenant="' in ann.get(f"/requests/{greet.id}").text
