"""kill -9 of the worker at every stage of a request: it ends once, is paid once, and no run is done twice."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.service.requests.crash import POINTS, STAGES
from tests.service.requests.request_world import WorkerProcess, World, working, world
from tests.waiting import eventually

from tradewind.problem import TrialState

pytestmark = pytest.mark.slow

SEARCHED = """
name: searched
job:
  command: [sh, -c, 'echo $TRADEWIND_RUN_ID >> {journal}; sleep 0.4']
space:
  level: 1..20
deploy: {{billing: {{granularity: 1ms}}}}
application: {{}}
"""


def check_once(there: World, number: int) -> None:
    """See that a request with one run was carried out exactly once."""
    row = there.context.requests.get(there.root, number)
    assert (row.state, row.problem) == ("done", "")
    assert row.study_id is not None
    runs = there.context.store.runs(row.study_id)
    trials = there.context.store.trials(row.study_id)
    assert [trial.state for trial in trials] == [TrialState.SUCCEEDED]
    begun = [run for run in there.begun() if run.startswith(there.context.store.study(row.study_id).owner)]
    assert len(begun) == len(runs) == 1
    assert row.cost == pytest.approx(sum(run.cost for run in runs))
    assert row.cost > 0
    events = there.context.requests.events(there.root, number)
    assert [event.stage for event in events].count("done") == 1
    told = [event.stage for event in events if event.stage in STAGES and not event.text.startswith("taken over")]
    assert told == sorted(set(told), key=STAGES.index)
    assert row.hold_holder is None


def check_killed_at(place: str, there: World, seconds: float = 0.3) -> None:
    row = there.submit(parameters={"seconds": seconds})
    with WorkerProcess(there, place) as first:
        assert first.wait() == -signal.SIGKILL
    with working(there.context):
        there.ended(row)
    check_once(there, row.id)
    if place != "finished":
        texts = [event.text for event in there.context.requests.events(there.root, row.id)]
        assert any(text.startswith("taken over from process") for text in texts)


OFTEN = ("begun", "booting", "claimed", "finished", "submitted")
"""Places that are tried by default: before and after something is made, begun and ended."""


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as found:
        yield found


@pytest.mark.parametrize("place", ["executing", "ended"])
def test_a_killed_worker_s_request_is_gone_on_with(there: World, place: str) -> None:
    check_killed_at(place, there)


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        place if place in OFTEN else pytest.param(place, marks=pytest.mark.thorough)
        for place in sorted({*POINTS, *STAGES} - {"executing", "ended"})
    ],
)
def test_a_worker_may_die_anywhere(there: World, place: str) -> None:
    check_killed_at(place, there)


@pytest.mark.slow
def test_a_search_goes_on_where_it_was(tmp_path: Path) -> None:
    """Trial by trial: none is lost, repeated or told twice, and what it may spend stays what it was."""
    with world(tmp_path) as there:
        there.context.applications.register(there.root, SEARCHED.format(journal=there.journal), shared=True)
        wanted = {"budget": {"trials": 8}, "searcher": "exhaustive", "parallel": 2}
        row = there.submit(application="searched", search=wanted)

        def trials_told(count: int) -> bool:
            return int(there.get(row).progress.get("trials", 0)) >= count

        for count in (2, 4):
            with WorkerProcess(there) as worker:
                eventually(partial(trials_told, count), 60)
                worker.kill()
        with working(there.context):
            ended = there.ended(row)
        assert (ended.state, ended.hint) == ("done", "the budget of 8 trials is used up")
        assert ended.study_id is not None
        trials = there.context.store.trials(ended.study_id)
        assert len({trial.key for trial in trials}) == len(trials) == 8
        runs = there.context.store.runs(ended.study_id)
        assert sorted(there.begun()) == sorted(run.run_id for run in runs)
        assert len(runs) == 8
        assert ended.cost == pytest.approx(sum(run.cost for run in runs))
        events = there.context.requests.events(there.root, row.id)
        assert sorted(event.details["trial"] for event in events if "trial" in event.details) == list(range(8))
