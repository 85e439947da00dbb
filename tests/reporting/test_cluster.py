"""A cluster on the terminal, and for Prometheus."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from tradewind.reporting.cluster import jobs_table, screen, tenants_table
from tradewind.reporting.prometheus import metrics_text


@pytest.fixture
def document() -> dict[str, Any]:
    return {
        "name": "main",
        "settings": {"engine": "process", "fairness": "drf", "priority": "gain"},
        "holder": "host:1:0.0",
        "age": 0.2,
        "total": {"cpu": 8.0, "memory": 32.0},
        "nodes": {"n1": {"has": {"cpu": 8.0, "memory": 32.0}, "free": {"cpu": 2.0, "memory": 20.0}}},
        "decisions": 17,
        "tenants": {
            'phys"ics': {
                "weight": 2.0, "share": 0.5, "used": {"cpu": 4.0}, "usage": {"cpu": 7200.0}, "running": 4, "waiting": 1,
            },
            "bio": {"weight": 1.0, "share": 0.25, "used": {"cpu": 2.0}, "usage": {}, "running": 2, "waiting": 9},
        },
        "jobs": [
            {
                "id": i, "tenant": "bio", "name": "fold [red]", "state": "running", "nice": 0, "submitted": 1e9,
                "running": 2, "waiting": 3, "why": "it has stopped improving and gives way", "trials": 12, "most": 50,
                "best": 0.0123, "metric": "loss", "spent": 1.5, "budget": None,
            }
            for i in range(30)
        ],
    }  # fmt: skip


@pytest.mark.parametrize("width", [80, 140])
def test_the_screen_fits_and_says_who_gave_way(document: dict[str, Any], width: int) -> None:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(screen(document, width, 24))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    text = out.getvalue()
    assert "cpu 6 of 8" in " ".join(text.split())
    assert "██████████░░░░░░░░░░" in text
    assert "12/50" in text
    assert "more: tradewind queue" in text
    if width > 100:
        assert "it has stopped improving and gives way" in text
        assert "fold [red]" in text


def test_how_long_such_searches_usually_take_stands_beside_how_far_it_is(document: dict[str, Any]) -> None:
    first, second, third, *_ = document["jobs"]
    first["usual"] = second["usual"] = third["usual"] = {"searches": 3, "results": 40.5}
    del second["most"], third["most"], third["trials"]
    out = io.StringIO()
    Console(file=out, width=80, highlight=False).print(screen(document, 80, 24))
    words = out.getvalue().split()
    assert [words.count(each) for each in ("12/50/~40", "12/~40", "0/~40")] == [1, 1, 1]
    assert max(map(len, out.getvalue().splitlines())) <= 80


def test_what_its_runs_wait_for_stands_behind_why_a_search_waits(document: dict[str, Any]) -> None:
    document["jobs"][0]["trouble"] = "it waits: 2 of 2 CPUs are used by others"
    out = io.StringIO()
    Console(file=out, width=200).print(screen(document, 200, 24))
    assert "it has stopped improving and gives way; it waits: 2 of 2 CPUs are used by others" in out.getvalue()


def test_a_best_that_costs_less_than_a_cent_is_told_for_many_runs(document: dict[str, Any]) -> None:
    document["jobs"][0] |= {"metric": "cost", "best": 0.0000675}
    out = io.StringIO()
    Console(file=out, width=160, highlight=False).print(jobs_table(document["jobs"][:1], 160))
    assert "$0.0675 per 1,000 runs" in out.getvalue()


def test_an_empty_cluster_has_a_screen() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(screen({"name": "new", "holder": ""}, 80))
    assert "not running" in out.getvalue()


def test_what_tenants_used() -> None:
    row = {
        "tenant": "bio", "weight": 1.0, "priority": 0, "quota": {"cpu": 4.0, "memory": 0.5}, "searches": 2,
        "requests": 3, "runs": 7, "dollars": 0.25, "seconds": {"cpu": 7200.0},
    }  # fmt: skip
    out = io.StringIO()
    Console(file=out, width=100, highlight=False).print(tenants_table([row]))
    assert "cpu 4, memory 512 MiB" in out.getvalue()
    assert "2.000" in out.getvalue()
    assert "$0.25" in out.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_bill_of_a_tenant_is_cut_on_a_narrow_terminal(width: int) -> None:
    quota = {"cpu": 16.0, "memory": 64.0, "gpu": 4.0, "dollars": 100.0}
    row = {
        "tenant": "physics-department-1", "weight": 2.0, "priority": 0, "quota": quota, "searches": 12, "requests": 3,
        "runs": 1234, "dollars": 1234.5, "seconds": {"cpu": 7200.0 * 1000, "memory": 7200.0 * 4000},
    }  # fmt: skip
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(tenants_table([row, {**row, "tenant": "bio"}], width))
    text = out.getvalue()
    assert text.count("$1,234.50") == 2
    assert text.count("2000.000") == 2
    assert max(len(line) for line in text.splitlines()) <= width
    one = "".join(line[: text.index("weight")].strip() for line in text.splitlines()[1:])
    assert "physics-department-1" in one, "two names of the same beginning can be told apart"


def test_metrics_are_as_prometheus_reads_them(document: dict[str, Any]) -> None:
    text = metrics_text(document)
    assert 'tradewind_tenant_dominant_share{cluster="main",tenant="phys\\"ics"} 0.5' in text
    assert 'tradewind_cluster_free{cluster="main",node="n1",resource="cpu"} 2' in text
    assert text.count("# TYPE tradewind_search_trials gauge") == 1
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            assert name.startswith("tradewind_")
            float(value)


@pytest.mark.parametrize("width", [40, 60, 80, 119, 120, 140])
def test_long_names_push_no_figure_off_the_screen(document: dict[str, Any], width: int) -> None:
    document["tenants"]["Universität-Zürich-Institut"] = document["tenants"].pop("bio")
    for job in document["jobs"]:
        job |= {"tenant": "Universität-Zürich-Institut", "name": "a-very-long-name-of-a-search-" * 4}
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(screen(document, width, 24))
    text = out.getvalue()
    assert max(map(cell_len, text.splitlines())) <= width
    for figure in ("12/50", "0.0123", "running  ", "50%", "25%", "Universit", "a-very-lo"):
        assert figure in text
    assert ("$1.50" in text) is (width >= 80), "what it has cost gives way first"


def test_the_runs_that_were_taken_last_say_whose_for_whom_why_and_who_pays(document: dict[str, Any]) -> None:
    taken = {
        "at": 1e9, "owner": "bio", "search": 7, "name": "fold", "trial": 3, "tenant": "physics", "for": 9,
        "why": "had no place 50.0 s after its work came", "pays": "taker",
    }  # fmt: skip
    document["takings"] = [{**taken, "trial": n, "at": 1e9 + n} for n in range(5)]
    out = io.StringIO()
    Console(file=out, width=80, highlight=False).print(screen(document, 80, 40))
    text = " ".join(out.getvalue().split())
    said = "trial 4 of search 7 (fold) of bio was stopped for search 9 of physics, which had no place 50.0 s"
    assert said in text
    assert "physics pays what it had cost." in text
    assert "trial 2 of" in text
    assert "trial 1 of" not in text, "the last three"
