"""What forms of the pages say and leave behind."""

from __future__ import annotations

import pytest
from tests.service.live import principal
from tests.service.web.visitor import Visitor, words

from tradewind.service.accounts.passwords import SHORTEST
from tradewind.service.context import Context


@pytest.mark.parametrize(("name", "page"), [("ann", "/account"), ("root", "/admin/users")])
def test_pages_say_how_long_a_password_must_be(shared: Context, name: str, page: str) -> None:
    assert f"At least {SHORTEST} characters" in words(Visitor(shared, name).get(page).text)


def test_what_an_administrator_does_on_a_page_is_noted_once(shared: Context) -> None:
    root = Visitor(shared, "root")
    assert root.post("/admin/backends", {"name": "other", "text": "title: Other\n"}).status_code == 303
    assert root.post("/admin/backends/other/remove").status_code == 303
    rows = shared.audit.page(principal(shared, "root"), user="root", limit=10)
    noted = [row.action for row in rows if row.subject == "backend other"]
    assert noted == ["backend.remove", "backend.set"]


@pytest.mark.parametrize("depth", [60, 700, 3_000, 100_000])
@pytest.mark.parametrize("do", ["", "propose"])
def test_a_choice_without_end_breaks_nothing(shared: Context, depth: int, do: str) -> None:
    choice = '{"instance": ' + "[" * depth + "]" * depth + "}"
    sent = {"application": "plate", "p.size": "300", "choice": choice, "kind": "run", "do": do}
    answer = Visitor(shared, "ann").post("/requests/new", sent)
    assert answer.status_code in (200, 303, 422), answer.text[:500]
