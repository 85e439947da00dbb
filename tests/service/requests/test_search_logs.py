"""The logs of a search: those of its trials, one after the other, until it is over."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import sqlalchemy as sa
from tests.service.live_server import served
from tests.service.requests.request_world import World, world

from tradewind.problem import Configuration, Offer, Proposal, Run, RunState, Trial, TrialState
from tradewind.service.requests.run_files import RunLogPart
from tradewind.store import codec
from tradewind.store.base import Change, StudyRow
from tradewind.store.service.requests import RequestRow
from tradewind.store.sql.schema import requests

OFFER = Offer("local", "local.c1", 1.0, 1.0, 0.045)


class Search:
    """A search whose trials print what a test says.

    Args:
        there: Where it is.
        folder: The runs' folders are below it.
    """

    def __init__(self, there: World, folder: Path) -> None:
        self.there, self._folder = there, folder
        self.row: RequestRow = there.submit(search={"budget": {"trials": 3}})
        self.study = there.context.store.create_study(StudyRow(0, "s", "s", {}, time.time(), owner="tw-s"))
        self._set(study_id=self.study.id, state="executing")

    def _set(self, **fields: object) -> None:
        with self.there.context.database.write() as connection:
            connection.execute(sa.update(requests).where(requests.c.id == self.row.id).values(**fields))

    def trial(self, number: int, text: str, *, ended: bool = True) -> None:
        """A trial that has printed something."""
        folder = self._folder / f"run{number}"
        folder.mkdir(exist_ok=True)
        (folder / "stdout").write_text(text)
        chosen = Configuration({"n": number})
        state = TrialState.SUCCEEDED if ended else TrialState.RUNNING
        run_state = RunState.DONE if ended else RunState.EXECUTING
        run = Run(f"r{number}", number, state=run_state, started=100.0 + number, folder=str(folder))
        trial = Trial(number, Proposal(chosen), OFFER, state, chosen.key, created=1.0)
        self.there.context.store.write(self.study.id, Change([trial], [run]))

    def end(self, best: int | None = None) -> None:
        """It is over, with or without a best trial."""
        self._set(state="done", progress=codec.dumps({} if best is None else {"best": {"trial": best}}))

    def log(self, after: RunLogPart | None = None) -> RunLogPart:
        """Its log, from its last run or where a part ended."""
        offset, run = (after.next, after.run) if after is not None else (0, "")
        return self.there.context.requests.log(self.there.ann, self.row.id, "stdout", offset, run=run)


@pytest.fixture
def search(tmp_path: Path) -> Iterator[Search]:
    with world(tmp_path) as there:
        yield Search(there, tmp_path)


def test_a_log_goes_on_with_the_next_trial_from_its_beginning(search: Search) -> None:
    search.trial(0, "trial zero\n" * 20)
    first = search.log()
    assert (first.text, first.ended, first.run, first.trial) == ("trial zero\n" * 20, False, "r0", 0)
    idle = search.log(first)
    assert (idle.text, idle.ended, idle.next) == ("", False, first.next), "the search is not over"
    search.trial(1, "one: short\n")
    search.trial(2, "two: be", ended=False)
    second = search.log(idle)
    assert (second.text, second.run, second.trial) == ("one: short\n", "r1", 1), "none is left out"
    third = search.log(second)
    assert (third.text, third.run, third.ended) == ("two: be", "r2", False)
    search.trial(2, "two: begun\n")
    search.end()
    last = search.log(third)
    assert (last.text, last.ended) == ("gun\n", True)


@pytest.mark.slow
def test_a_trial_that_runs_is_read_to_its_end_before_the_next(search: Search) -> None:
    search.trial(0, "be", ended=False)
    part = search.log()
    search.trial(1, "other\n")
    part = search.log(part)
    assert (part.text, part.run) == ("", "r0")
    search.trial(0, "begun\n")
    part = search.log(part)
    assert (part.text, part.run) == ("gun\n", "r0")
    assert search.log(part).text == "other\n"


def test_the_log_of_a_search_that_is_over_ends_with_its_last_trial(search: Search) -> None:
    search.trial(0, "zero\n")
    search.trial(1, "one\n")
    search.end()
    last = search.log()
    assert (last.text, last.ended, last.run) == ("one\n", True, "r1")
    before = search.log(RunLogPart("", 5, False, "r0", 0))
    assert (before.text, before.ended, before.run) == ("one\n", True, "r1")


def test_of_a_search_that_is_over_the_best_trial_is_shown(search: Search) -> None:
    for number in range(3):
        search.trial(number, f"trial {number}\n")
    there, number = search.there, search.row.id
    assert search.log().run == "r2", "it has begun last"
    search.end(best=1)
    shown = search.log()
    assert (shown.text, shown.ended, shown.run) == ("trial 1\n", True, "r1")
    for trial, text in ((None, b"trial 1\n"), (2, b"trial 2\n")):
        with there.context.requests.open(there.ann, number, "stdout", trial=trial) as file:
            assert file.read() == text


def test_a_run_that_is_gone_gives_way_to_the_last(search: Search) -> None:
    search.trial(0, "zero\n")
    part = search.log(RunLogPart("", 3, False, "gone", 7))
    assert (part.text, part.run) == ("zero\n", "r0")


def test_one_trial_ends_with_it(search: Search) -> None:
    search.trial(0, "zero\n")
    there = search.there
    assert there.context.requests.log(there.ann, search.row.id, trial=0).ended


def test_another_attempt_at_a_trial_is_read_from_its_beginning(search: Search) -> None:
    search.trial(0, "zero again\n")
    there = search.there
    assert there.context.requests.log(there.ann, search.row.id, offset=5, trial=0, run="before").text == "zero again\n"
    assert there.context.requests.log(there.ann, search.row.id, offset=5, trial=0, run="r0").text == "again\n"


@pytest.mark.slow
def test_a_reader_of_the_stream_who_comes_back_loses_nothing_and_reads_nothing_twice(search: Search) -> None:
    """Each trial's log begins at 0 again: an offset alone does not say of which one it is."""
    texts = ["zero is long\n", "one\n", "two\n"]
    for number, text in enumerate(texts):
        search.trial(number, text)
    place = f"/api/v1/requests/{search.row.id}/logs/stdout"
    there = search.there
    token = there.context.accounts.make_token(there.ann.user_id, "test")
    signed = {"Authorization": f"Bearer {token}"}
    with served(there.context) as url, httpx2.Client(base_url=url, headers=signed) as client:

        def events(last: str) -> Iterator[tuple[str, str]]:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
            with client.stream("GET", f"{place}?run=r0", headers=headers) as answer:
                known = ""
                for line in answer.iter_lines():
                    name, _, value = line.partition(": ")
                    known = value if name == "id" else known
                    if name == "data" and "text" in (part := json.loads(value)):
                        yield known, part["text"]

        read, known = [], ""
        for _ in texts:
            known, text = next(events(known))
            read.append(text)
        assert read == texts
        assert client.get(place, headers={"Last-Event-ID": "r0:x"}).status_code == 422
