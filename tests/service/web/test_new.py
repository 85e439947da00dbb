"""The pages of a new request as the server makes them: which form comes, what it holds, and what becomes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from tests.service.live import principal
from tests.service.web.stage import people
from tests.service.web.visitor import Visitor, words

from tradewind.service.context import Context, open_context
from tradewind.service.settings import ServiceSettings


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Context]:
    context = open_context(ServiceSettings(), f"sqlite:///{tmp_path}/service.db", tmp_path / "home")
    people(context)
    yield context
    context.close()


@pytest.fixture
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
    assert [field(page, name) for name in ("p.size", "name")] == ["300", "mine"]


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
