"""A process that leaves its runs to the next one: nothing is cancelled, nothing is started twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tradewind import plugins
from tradewind.engine.proposals import FixedSearcher
from tradewind.engine.search import Search
from tradewind.engine.search_builder import build_problem, build_search, new_study
from tradewind.errors import StudyBusyError
from tradewind.problem import Run, RunState, TrialState
from tradewind.problem.job_spec.spec import JobSpec, parse_spec
from tradewind.store.base import Store, StudyRow
from tradewind.utils.processes import Moment

pytestmark = pytest.mark.slow

JOB = """
name: left
job:
  command: [sh, -c, 'echo begun >> journal; sleep 0.7; echo ended >> journal']
space:
  instance: {provider: local, vcpu: 1, limit: 1}
deploy: {billing: {granularity: 1ms}}
"""
ALL = [RunState.BOOTING, RunState.BOOTSTRAPPING, RunState.SUBMITTING, RunState.EXECUTING, RunState.COLLECTING]


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    return parse_spec(JOB, base=tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(plugins.create("store", "sql", {}, url=f"sqlite:///{tmp_path}/s.db")) as opened:
        yield opened


@pytest.fixture
def study(spec: JobSpec, store: Store) -> StudyRow:
    return store.create_study(new_study(spec))


def search_of(
    spec: JobSpec, study: StudyRow, store: Store, home: Path, entered: list[tuple[str, RunState]] | None = None
) -> Search:
    """A search for one run, as of a process that has just begun."""
    problem = build_problem(spec, home)
    asked = any(not trial.state.ended for trial in store.trials(study.id))
    searcher = FixedSearcher(problem, problem.candidates.configuration(0), asked=asked)

    def note(run_id: str, stage: RunState) -> None:
        if entered is not None:
            entered.append((run_id, stage))

    return build_search(spec, study, store, home, problem=problem, searcher=searcher, rules=(), entered=note)


def step_until(search: Search, state: RunState) -> None:
    """Go on until the run is in a state."""
    end = time.monotonic() + 30.0
    while not any(run.state == state for run in search.parts.machine.runs.values()):
        assert time.monotonic() < end
        if not search.step():
            search.wait(0.01)


def finish(search: Search) -> None:
    """Go on until the search is over."""
    try:
        while search.parts.machine.stopped is None:
            if not search.step():
                search.wait(0.25)
    finally:
        search.end()


def test_what_one_process_leaves_another_goes_on_with(
    spec: JobSpec, study: StudyRow, store: Store, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    first = search_of(spec, study, store, home)
    first.begin()
    step_until(first, RunState.EXECUTING)
    first.leave()
    first.end()
    assert [trial.state for trial in store.trials(study.id)] == [TrialState.RUNNING]
    entered: list[tuple[str, RunState]] = []
    second = search_of(spec, study, store, home, entered)
    second.begin()
    finish(second)
    (run,) = store.runs(study.id)
    assert (run.state, run.attempt) == (RunState.DONE, 1)
    assert (tmp_path / "journal").read_text() == "begun\nended\n"
    assert [trial.state for trial in store.trials(study.id)] == [TrialState.SUCCEEDED]
    assert entered[-2:] == [(run.run_id, RunState.EXECUTING), (run.run_id, RunState.COLLECTING)]


def test_a_study_is_taken_by_force_and_its_runs_with_it(
    spec: JobSpec, study: StudyRow, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tradewind.engine import search as loop

    home = tmp_path / "home"
    monkeypatch.setattr(loop, "this_process", lambda: "elsewhere:17:1.0")
    first = search_of(spec, study, store, home)
    first.begin()
    step_until(first, RunState.EXECUTING)
    monkeypatch.undo()
    second = search_of(spec, study, store, home)
    with pytest.raises(StudyBusyError, match="being run by process elsewhere:17"):
        second.begin()
    second = search_of(spec, study, store, home)
    second.begin(force=True)
    # The first one, which lives, finds out with its next write, and cancels nothing.
    monkeypatch.setattr(loop, "_SIGN_OF_LIFE", 0.0)
    with pytest.raises(StudyBusyError):
        first.step()
    first.end()
    monkeypatch.undo()
    finish(second)
    (run,) = store.runs(study.id)
    assert run.state == RunState.DONE
    assert (tmp_path / "journal").read_text() == "begun\nended\n"


def test_each_stage_is_told_at_once(spec: JobSpec, study: StudyRow, store: Store, tmp_path: Path) -> None:
    entered: list[tuple[str, RunState]] = []
    search = search_of(spec, study, store, tmp_path / "home", entered)
    search.begin()
    finish(search)
    (run,) = store.runs(study.id)
    assert entered == [(run.run_id, stage) for stage in ALL]


def test_what_was_asked_for_by_an_earlier_process_is_not_proposed_again(
    spec: JobSpec, study: StudyRow, store: Store, tmp_path: Path
) -> None:
    first = search_of(spec, study, store, tmp_path / "home")
    first.begin()
    step_until(first, RunState.EXECUTING)
    first.step(wanted=False)
    finish(first)
    assert [trial.state for trial in store.trials(study.id)] == [TrialState.PENDING]
    second = search_of(spec, study, store, tmp_path / "home")
    second.begin()
    finish(second)
    assert [trial.state for trial in store.trials(study.id)] == [TrialState.SUCCEEDED]
    assert [run.state for run in store.runs(study.id)] == [RunState.CANCELLED, RunState.DONE]


def test_a_search_says_how_long_it_may_wait(spec: JobSpec, study: StudyRow, store: Store, tmp_path: Path) -> None:
    search = search_of(spec, study, store, tmp_path / "home")
    assert search.patience == 0.25
    search.parts.deployer.close()


@pytest.mark.parametrize("clock", ["awake", "day"])
def test_who_wakes_up_asks_whose_the_study_is_before_doing_anything(
    spec: JobSpec, study: StudyRow, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: str
) -> None:
    """A notebook was closed for an hour: meanwhile the study was ended elsewhere, and its machines given back."""
    first = search_of(spec, study, store, tmp_path / "home")
    first.begin()
    step_until(first, RunState.EXECUTING)
    token = store.hold(study.id, "elsewhere:17:1.0", 60.0, force=True)
    asked: list[str] = []

    def poll() -> list[Run]:
        asked.append("poll")
        return []

    monkeypatch.setattr(first.parts.deployer, "poll", poll)
    now = Moment.now()
    first._held = now._replace(**{clock: getattr(now, clock) - 3600.0})
    with pytest.raises(StudyBusyError, match="elsewhere:17"):
        first.step()
    assert asked == []
    first.end()
    store.release(study.id, token)
    finish(search_of_begun(spec, study, store, tmp_path / "home"))


def search_of_begun(spec: JobSpec, study: StudyRow, store: Store, home: Path) -> Search:
    """A search that has taken the study."""
    search = search_of(spec, study, store, home)
    search.begin()
    return search
