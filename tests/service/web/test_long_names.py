"""Names as people make them: long, in other scripts; and what a page says where there is little to show."""

from __future__ import annotations

import re

import pytest
from tests.service.live_server import principal
from tests.service.web.page_client import Visitor, words
from tests.service.web.sample_data import study
from tests.service.web.sample_server import put

from tradewind.service.context import Context

ARABIC = "دراسة التكلفة!"


@pytest.mark.slow
def test_a_name_of_a_page_is_shortened_in_lists_and_keeps_its_direction(shared: Context) -> None:
    number = study(shared, "z" * 3000, 3, ago=60.0)
    study(shared, ARABIC, 3, ago=50.0)
    ann = Visitor(shared, "ann")
    for address, most in (("/studies", 120), (f"/studies/{number}", 300), ("/cluster", 120)):
        shown = re.sub(r'title="z+"', "", ann.get(address).text)
        assert max(map(len, re.findall("z{9,}", shown)), default=most - 1) <= most - 1, address
    assert f"<bdi>{ARABIC}</bdi>" in ann.get("/studies").text


@pytest.mark.slow
def test_a_long_name_of_a_request_is_shortened_in_the_list(shared: Context) -> None:
    number = put(shared, principal(shared, "ann"), name="y" * 200, state="done")
    ann = Visitor(shared, "ann")
    assert "y" * 200 not in re.sub(r'title="y+"', "", ann.get("/requests").text)
    assert "y" * 200 in words(ann.get(f"/requests/{number}").text)


@pytest.mark.slow
def test_the_list_says_what_stands_behind_a_study(shared: Context) -> None:
    study(shared, "searched", 3, ago=60.0)
    assert "the lowest cost within 30m · searcher gp" in words(Visitor(shared, "ann").get("/studies").text)


@pytest.mark.slow
def test_an_example_is_not_where_a_default_stands(shared: Context) -> None:
    page = Visitor(shared, "ann").get("/requests/new?application=plate").text
    budget = re.search(r'<input id="f-budget"[^>]*>', page)
    assert budget is not None
    assert 'placeholder="none"' in budget[0]


def test_what_a_server_carries_out_needs_no_command(shared: Context) -> None:
    young, hand = study(shared, "queued", 0, ago=60.0), study(shared, "by hand", 0, ago=60.0, tenant="")
    root = principal(shared, "root")
    assert shared.studies.figures(root, young)["words"] == ["Nothing has been tried yet."]
    assert "tradewind tune starts the search." in shared.studies.figures(root, hand)["words"]
