"""The page of a cluster, and its answer over REST, name the runs that were taken last, to each only what is its own."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.service.test_clusters_machines_offers import SNAPSHOT
from tests.service.web.page_client import Visitor, words

from tradewind.service.context import Context
from tradewind.store.base import this_process
from tradewind.store.clusters.cluster_store import TAKINGS


def taking(owner: str, tenant: str, search: int, **more: Any) -> dict[str, Any]:
    return {
        "at": time.time(), "owner": owner, "search": search, "name": f"job-of-{owner}", "trial": 3, "tenant": tenant,
        "for": 70 + search, "why": "had no place 50.0 s after its work came", "pays": "taker", **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def taken(shared: Context) -> Context:
    """A cluster on which runs were taken: from physics, for physics, and between two others."""
    snapshot = {
        **SNAPSHOT,
        TAKINGS: [
            taking("physics", "biology", 11),
            taking("biology", "physics", 12, pays="owner"),
            taking("biology", "history", 13),
        ],
    }
    token = shared.cluster.hold("default", this_process(), 60.0, {"engine": "slurm"})
    shared.cluster.renew("default", token, 60.0, snapshot)
    return shared


def test_a_tenant_sees_what_was_taken_from_it_and_for_it_and_no_name_of_others(taken: Context) -> None:
    page = Visitor(taken, "ann").get("/cluster").text
    said = words(page)
    assert "Runs that were stopped for other tenants" in said
    assert (
        "trial 3 of search 11 (job-of-physics) of physics was stopped for another tenant, which had no place 50.0 s "
        "after its work came; another tenant pays what it had cost"
    ) in said
    assert (
        "a run of another tenant was stopped for search 82 of physics, which had no place 50.0 s after its work came; "
        "another tenant pays what it had cost"
    ) in said
    assert said.count("was stopped for") == 2
    for hidden in ("biology", "history", "search 81", "search 12", "search 13"):
        assert hidden not in said
    assert words(Visitor(taken, "ann").get("/cluster?part=1").text).count("was stopped for") == 2


def test_an_administrator_sees_all_of_it(taken: Context) -> None:
    said = words(Visitor(taken, "root").get("/cluster").text)
    assert "trial 3 of search 13 (job-of-biology) of biology was stopped for search 83 of history" in said
    assert "search 81 of biology, which" in said
    assert said.count("was stopped for") == 3


def test_the_answer_over_rest_says_the_same(taken: Context) -> None:
    answer = Visitor(taken, "ann").client.get("/api/v1/clusters/default").json()
    mine, theirs = answer["takings"]
    assert (mine["owner"], mine["search"], mine["tenant"], mine["for"]) == ("physics", 11, "another tenant", None)
    assert (theirs["owner"], theirs["search"], theirs["name"], theirs["trial"]) == ("another tenant", None, "", None)
    assert (theirs["tenant"], theirs["for"]) == ("physics", 82)
    text = json.dumps(answer)
    assert "biology" not in text
    assert "history" not in text
    (everything, *_) = Visitor(taken, "root").client.get("/api/v1/clusters").json()
    assert [each["for"] for each in everything["takings"]] == [81, 82, 83]
