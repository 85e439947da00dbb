"""What the form of a new request shows of a proposal: in what each choice differs, charts, and the same as tables."""

from __future__ import annotations

import json
import re

import pytest
from tests.service.applications.past_requests import DOCUMENT, add_runs
from tests.service.live_server import principal
from tests.service.web.page_client import Visitor, words

from tradewind.service.context import Context

pytestmark = pytest.mark.slow


def ask(shared: Context, name: str, runs: int) -> str:
    """The proposal for an application with so many runs."""
    document = DOCUMENT.replace("name: solver", f"name: {name}")
    row = shared.applications.register(principal(shared, "root"), document, shared=True)
    given = [{"size": 100 * (1 + number), "steps": 10} for number in range(runs)]
    add_runs(shared, principal(shared, "ann"), row, given, seed=runs)
    answer = Visitor(shared, "ann").post("/requests/new/proposal", {"application": name, "kind": "run"})
    assert answer.status_code == 200
    return str(answer.text)


def test_a_proposal_says_why_in_words_in_charts_and_as_tables(shared: Context) -> None:
    page = ask(shared, "often", 12)
    text = words(page)
    for mark in ("best known", "cheapest", "fastest"):
        assert f"{mark} " in text
    assert "compared with the best known" in text
    found = re.search(r"<script type=\"application/json\" data-proposal-data>(.*?)</script>", page, re.DOTALL)
    assert found is not None
    charts = json.loads(found[1])
    assert re.findall(r'data-proposal-chart="(\w+)"', page) == ["time", "cost", "distance"]
    assert charts.keys() == {"time", "cost", "distance"}
    assert {"band", "line", "points"} == {layer["kind"] for layer in charts["time"]["layers"]}
    assert page.count("<caption") == 2
    assert re.search(r"in time with|under 1 %", text) is None


@pytest.mark.parametrize(("runs", "said"), [(0, "Nothing is known of"), (1, "not known yet"), (2, "not known yet")])
def test_with_few_runs_it_says_so_and_draws_nothing(shared: Context, runs: int, said: str) -> None:
    page = ask(shared, f"seldom-{runs}", runs)
    assert said in words(page)
    assert "data-proposal-chart" not in page
