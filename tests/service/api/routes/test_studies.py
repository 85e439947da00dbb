"""Studies over REST: which are listed, and how the large answers are sent."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.service.live_server import move
from tests.service.module_server import House, house

from tradewind.engine.search_builder import new_study, study_document
from tradewind.problem import Configuration, Observation, Offer, Proposal, Trial, TrialState
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.store.base import Change, StudyRow
from tradewind.store.clusters.cluster_store import JobRow

pytestmark = pytest.mark.slow

TRIALS = 2_000
SPEC: dict[str, Any] = {"objective": {"minimise": "cost"}, "budget": {"trials": TRIALS}, "searcher": {"use": "gp"}}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server for all tests of this module."""
    with house(tmp_path_factory.mktemp("studies")) as opened:
        yield opened


@pytest.fixture(scope="module")
def large(here: House) -> int:
    """A study of many trials."""
    row = here.context.store.create_study(StudyRow(0, "zip", "key", SPEC, 100.0, owner="tw-zip"))
    offer = Offer("local", "c1", 1, 2.0, 0.05)
    trials = [
        Trial(
            number, Proposal(Configuration({"size": number})), offer, TrialState.SUCCEEDED, f"k{number}",
            Observation(1.0 / (number + 1), 0.1, 10.0 + number, True), 0.1, ended=100.0 + number,
        )
        for number in range(TRIALS)
    ]  # fmt: skip
    here.context.store.write(row.id, Change(trials=trials))
    here.context.cluster.submit(JobRow(0, "physics", "zip", {}, study_id=row.id))
    return row.id


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [("gzip", True), ("br, gzip;q=0.5", True), ("*", True), ("", False), ("br", False), ("gzip;q=0.0", False)],
)
def test_a_large_answer_is_packed_for_whom_unpacks_it(here: House, large: int, accepted: str, packed: bool) -> None:
    headers = {**here.ann, "Accept-Encoding": accepted}
    with here.client.stream("GET", f"/api/v1/studies/{large}/trials", headers=headers) as answer:
        raw = b"".join(answer.iter_raw())
        assert (answer.headers.get("content-encoding") == "gzip") is packed
        assert "Accept-Encoding" in answer.headers["vary"]
        tag = answer.headers["etag"]
    text = gzip.decompress(raw) if packed else raw
    assert json.loads(text)["total"] == TRIALS
    assert (len(raw) < len(text) / 3) is packed
    again = here.client.get(f"/api/v1/studies/{large}/trials", headers={**headers, "If-None-Match": tag})
    assert again.status_code == 304


def test_a_small_answer_is_sent_as_it_is(here: House, large: int) -> None:
    headers = {**here.ann, "Accept-Encoding": "gzip"}
    answer = here.client.get(f"/api/v1/studies/{large}/trials?limit=3", headers=headers)
    assert "content-encoding" not in answer.headers
    assert answer.json()["next"] == 3


def test_single_runs_are_listed_when_asked_for(here: House, large: int) -> None:
    made = here.client.post("/api/v1/requests", json={"application": here.hello}, headers=here.ann).json()
    run = here.context.store.create_study(StudyRow(0, "run", "key", SPEC, 200.0, owner="tw-run"))
    move(here.context.requests, made["id"], "done", study_id=run.id)
    plain = here.client.get("/api/v1/studies", headers=here.ann).json()
    every = here.client.get("/api/v1/studies?single_runs=true", headers=here.ann).json()
    assert [one["id"] for one in plain] == [large]
    assert [one["id"] for one in every] == [run.id, large]


def test_half_a_character_in_what_a_study_has_breaks_no_answer(here: House) -> None:
    offer, seen = Offer("local", "c1", 1, 2.0, 0.05), Observation(1.0, 0.1, 10.0, True, metrics={"a\ud800": 1.0})
    row = here.context.store.create_study(StudyRow(0, "odd", "key", SPEC, 300.0, owner="tw-odd"))
    ended = Trial(0, Proposal(Configuration({"size": 1})), offer, TrialState.SUCCEEDED, "k", seen, 0.1, ended=100.0)
    here.context.store.write(row.id, Change(trials=[ended]))
    made = here.client.post("/api/v1/requests", json={"application": here.hello}, headers=here.ann).json()
    best = {"best": {"metrics": {"a\ud800": 1.0}}}
    move(here.context.requests, made["id"], "done", study_id=row.id, progress=best)
    for path in ("requests", f"requests/{made['id']}", "studies", f"studies/{row.id}", f"studies/{row.id}/trials"):
        for who in (here.ann, here.root):
            answer = here.client.get(f"/api/v1/{path}", headers=who)
            assert answer.status_code == 200, path
    shown = here.client.get(f"/api/v1/requests/{made['id']}", headers=here.ann).json()
    assert shown["progress"] == {"best": {"metrics": {"a?": 1.0}}}


def test_a_search_of_a_cluster_goes_on_over_rest(here: House) -> None:
    spec = parse_spec("name: on\njob: {command: [a]}\nspace: {x: 1..9}\nbudget: {trials: 3}\n", base=Path.cwd())
    study = here.context.store.create_study(new_study(spec, name="physics/on"))
    wanted = JobRow(0, "physics", "on", study_document(spec), study_id=study.id, state="done")
    job = here.context.cluster.submit(wanted)
    place = f"/api/v1/studies/{study.id}/continue"
    for body in ({"trials": 0}, {"trials": 2.5}, {"dollars": -1}, {"hours": 3}):
        assert here.client.post(place, json=body, headers=here.ann).status_code == 422
    assert here.client.post(place, headers=here.bob).status_code == 404
    answer = here.client.post(place, json={"trials": 9}, headers=here.ann)
    assert (answer.status_code, answer.json()["state"], answer.json()["id"]) == (200, "queued", job.id)
    assert here.context.cluster.job(job.id).spec["budget"]["trials"] == 9
    assert "cannot go on from here" in here.client.post(place, json={"trials": 12}, headers=here.ann).text
