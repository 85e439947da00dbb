"""What forms of the pages say and leave behind."""

from __future__ import annotations

import re

import pytest
from tests.service.live_server import principal
from tests.service.web.page_client import Visitor, words

from tradewind.service.accounts.credentials import MIN_PASSWORD_LENGTH
from tradewind.service.context import Context
from tradewind.service.web.template_filters import exact, rounded, setting


@pytest.mark.slow
@pytest.mark.parametrize(("name", "page"), [("ann", "/account"), ("root", "/admin/users")])
def test_pages_say_how_long_a_password_must_be(shared: Context, name: str, page: str) -> None:
    assert f"At least {MIN_PASSWORD_LENGTH} characters" in words(Visitor(shared, name).get(page).text)


@pytest.mark.slow
def test_what_an_administrator_does_on_a_page_is_noted_once(shared: Context) -> None:
    root = Visitor(shared, "root")
    assert root.post("/admin/backends", {"name": "other", "text": "title: Other\n"}).status_code == 303
    assert root.post("/admin/backends/other/remove").status_code == 303
    rows = shared.audit.page(principal(shared, "root"), user="root", limit=10)
    noted = [row.action for row in rows if row.subject == "backend other"]
    assert noted == ["backend.remove", "backend.set"]


@pytest.mark.slow
def test_a_tenant_that_is_saved_as_it_stands_keeps_its_quota(shared: Context) -> None:
    root, quota = Visitor(shared, "root"), {"dollars": 1234567.89, "memory": 1e15}
    shared.users.set_tenant(principal(shared, "root"), "chemistry", weight=0.12345678, quota=quota)
    page = root.get("/admin/tenants?name=chemistry").text
    names = ("name", "weight", "priority", "dollars", "memory")
    found = {name: re.search(rf'<input[^>]* name="{name}"[^>]* value="([^"]*)"', page) for name in names}
    assert root.post("/admin/tenants", {name: hit[1] for name, hit in found.items() if hit}).status_code == 303
    row = next(row for row in shared.users.tenants(principal(shared, "root")) if row.name == "chemistry")
    assert (row.weight, dict(row.quota)) == (0.12345678, quota)


@pytest.mark.slow
def test_the_preemption_of_a_tenant_is_seen_set_and_ended(shared: Context) -> None:
    root, who = Visitor(shared, "root"), principal(shared, "root")
    form = {"name": "maths", "weight": "2", "within": "2m", "pays": "owner", "exempt": ""}
    assert root.post("/admin/tenants", form).status_code == 303
    row = next(row for row in shared.users.tenants(who) if row.name == "maths")
    assert row.preempt == {"within": 120.0, "pays": "owner", "exempt": 60.0}
    page = root.get("/admin/tenants?name=maths").text
    assert "has a place within 2m 00s of when its work comes" in words(page)
    assert 'name="within" type="text" value="120"' in page
    assert '<option value="owner" selected>' in page
    refused = root.post("/admin/tenants", {**form, "within": "", "exempt": "30s"})
    assert (refused.status_code, "not within which time" in words(refused.text)) == (422, True)
    assert root.post("/admin/tenants", {**form, "within": ""}).status_code == 303
    assert next(row for row in shared.users.tenants(who) if row.name == "maths").preempt == {}


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (2.0, "2"),
        (1234567.5, "1234567.5"),
        (0.00001, "0.00001"),
        (1e22, "1e+22"),
        (0.1, "0.1"),
        (-3.5e14, "-350000000000000"),
    ],
)
def test_a_number_of_a_form_is_all_of_it(number: float, text: str) -> None:
    assert (exact(number), setting(number), float(exact(number))) == (text, text, number)


@pytest.mark.parametrize(
    ("number", "text"), [(0.00012345678901, "0.0001235"), (0.125, "0.125"), (True, "yes"), ("a", "a")]
)
def test_what_a_search_drew_is_cut(number: object, text: str) -> None:
    assert rounded(number) == text


@pytest.mark.slow
@pytest.mark.parametrize("depth", [60, 700, 3_000, 100_000])
@pytest.mark.parametrize("do", ["", "propose"])
def test_a_choice_without_end_breaks_nothing(shared: Context, depth: int, do: str) -> None:
    choice = '{"instance": ' + "[" * depth + "]" * depth + "}"
    sent = {"application": "plate", "p.size": "300", "choice": choice, "kind": "run", "do": do}
    answer = Visitor(shared, "ann").post("/requests/new", sent)
    assert answer.status_code in (200, 303, 422), answer.text[:500]


@pytest.mark.slow
def test_what_was_typed_about_notices_stays_where_one_of_it_is_wrong(shared: Context) -> None:
    eve = Visitor(shared, "eve")
    sent = {"address": "other@example.org", "webhook": "not-a-url", "email": "submitted", "calls": "submitted"}
    answer = eve.post("/account/notices", sent)
    assert answer.status_code == 422
    assert [value in answer.text for value in ("other@example.org", "not-a-url")] == [True, True]
    assert 'id="email-submitted" name="email" value="submitted" checked' in answer.text
    assert 'id="calls-failed" name="calls" value="failed" checked' not in answer.text
    assert shared.notices.ways(principal(shared, "eve")).address == "eve@example.org", "all of it is kept, or nothing"
    wrong = eve.post("/account/notices", {**sent, "address": "nobody", "webhook": ""})
    assert wrong.status_code == 422
    assert shared.notices.ways(principal(shared, "eve")).preferences.email == ("finished", "failed")
