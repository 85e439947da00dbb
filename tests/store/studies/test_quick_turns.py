"""Turns of workers that need not know what others have found, on SQLite and on PostgreSQL."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.effort import share
from tests.engine.ask_tell.crowd import OneOfACrowd

from tradewind import Study
from tradewind.errors import StoreError, StudyBusyError
from tradewind.problem import Run, RunState, Trial, TrialState
from tradewind.store.sql.database import group_commit_of
from tradewind.store.sql.raw_driver import SharedSync
from tradewind.store.studies.quick_turns import QuickTurns, Told, Wanted

JOB: dict[str, Any] = {
    "name": "shared",
    "space": {"x": {"type": "float", "low": 0, "high": 1}},
    "objective": {"minimise": "value"},
    "searcher": "random",
    "budget": {"trials": 5},
}
OpenStore = Callable[..., Any]


@pytest.fixture(params=["sqlite_url", "postgresql_url"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


def told(trial: Trial, runs: Any) -> Told:
    """The trial, and its run, as they have ended."""
    (run,) = runs
    assert isinstance(run, Run)
    ended = replace(run, state=RunState.DONE, ended=time.time(), runtime=1.0, cost=0.25)
    return Told(replace(trial, state=TrialState.SUCCEEDED, ended=ended.ended, spent=0.25), ended)


def test_a_turn_tells_a_trial_once_and_takes_the_next_ones_in_order(url: str, open_store: OpenStore) -> None:
    store = open_store(url)
    with OneOfACrowd(url, JOB) as study:
        study.ask()  # which proposes four more
        turns: QuickTurns = store.workers(study.row.id).quick
        turn = turns.take("me", None, Wanted(2, 9), 5)
        assert turn is not None and turn.done and not turn.waits
        assert [trial.number for trial, _ in turn.taken] == [1, 2]
        assert (turn.newest, turn.left, turn.proposer.token) == (4, 2, study._token)
        first, second = (told(*taken) for taken in turn.taken)
        after = turns.take("me", first, Wanted(1, 9, after=2), 5)
        assert after is not None and after.done and after.number > turn.number
        assert [trial.number for trial, _ in after.taken] == [3]
        again = turns.take("me", first, Wanted(0, 0), 5)
        assert again is not None and not again.done and not again.taken
        assert store.trials(study.row.id)[1] == first.trial
        assert store.runs(study.row.id, trial=1) == [first.run]
        assert turns.take("me", second, Wanted(0, 0), None).done  # type: ignore[union-attr]
        assert {trial.number for trial in study.trials if trial.state.ended} == {1, 2}


def test_who_tells_the_last_trial_and_who_finds_something_given_back_is_to_look_at_all(
    url: str, open_store: OpenStore
) -> None:
    store = open_store(url)
    with OneOfACrowd(url, JOB) as study:
        first = study.ask()
        workers = store.workers(study.row.id)
        study.give_back(first)
        turn = workers.quick.take("me", None, Wanted(1, 0), 5)
        assert turn is not None and turn.waits and not turn.taken
        assert study.ask() == first
        turn = workers.quick.take("me", None, Wanted(9, 0, since=turn.number), 5)
        assert turn is not None and len(turn.taken) == 4
        for taken in turn.taken:
            assert workers.quick.take("me", told(*taken), Wanted(0, 0), 5).done
        assert workers.open() == {0: study._token}
        last = told(store.trials(study.row.id)[0], store.runs(study.row.id, trial=0))
        ended = workers.quick.take("me", last, Wanted(0, 0), 5)
        assert ended is not None and not ended.done
        assert workers.quick.take("me", last, Wanted(0, 0), 6).done, "more trials are to come"


def test_only_what_is_still_ones_own_is_given_back(url: str, open_store: OpenStore) -> None:
    store = open_store(url)
    with OneOfACrowd(url, JOB) as study:
        study.ask()
        workers = store.workers(study.row.id)
        workers.quick.take("me", None, Wanted(2, 0), 5)
        workers.quick.take("you", None, Wanted(1, 0), 5)
        workers.quick.give_back("me", [1, 3, 0])
        assert workers.open() == {0: study._token, 1: "ahead", 2: "me", 3: "you", 4: "ahead"}


def test_what_is_given_back_while_the_connection_breaks_is_given_back(
    postgresql_url: str, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(postgresql_url)
    with OneOfACrowd(postgresql_url, JOB) as study:
        study.ask()
        workers = store.workers(study.row.id)
        workers.quick.take("me", None, Wanted(1, 0), 5)
        together, answers = workers.quick._database.together, iter([False, True, False, False])
        monkeypatch.setattr(
            workers.quick._database, "together", lambda given: together(given) if next(answers) else None
        )
        workers.quick.give_back("me", [1])
        assert workers.open()[1] == "ahead"
        with pytest.raises(StoreError, match="lost twice"):
            workers.quick.give_back("me", [1])


def test_a_look_finds_what_a_turn_would_and_takes_nothing(url: str, open_store: OpenStore) -> None:
    store = open_store(url)
    with OneOfACrowd(url, JOB) as study:
        first = study.ask()
        quick: QuickTurns = store.workers(study.row.id).quick
        found = quick.look(Wanted(1, 0))
        assert (found.done, found.taken, found.left, found.waits, found.newest) == (True, (), 1, False, 4)
        assert found.is_proposed_for and found.proposer.token == study._token
        assert quick.look(Wanted(1, 0, after=4)).left == 0
        study.give_back(first)
        assert quick.look(Wanted(1, 0)).waits
        turn = quick.take("me", None, Wanted(1, 0, since=quick.look(Wanted(1, 0)).number), 5)
        assert turn is not None and [trial.number for trial, _ in turn.taken] == [1]


def test_a_study_that_was_taken_by_force_has_no_turns(url: str, open_store: OpenStore) -> None:
    store = open_store(url)
    with OneOfACrowd(url, JOB) as study:
        study.ask()
        workers = store.workers(study.row.id)
        turn = workers.quick.take("me", None, Wanted(1, 0), 5)
        store.hold(study.row.id, "elsewhere:1:1.00@x", 60.0, force=True)
        before = store.trials(study.row.id)
        for what in (None, told(*turn.taken[0])):
            with pytest.raises(StudyBusyError, match="took it for itself"):
                workers.quick.take("me", what, Wanted(1, 0), 5)
        assert store.trials(study.row.id) == before


_WORKER = """
import sys
import threading
from tests.engine.ask_tell.crowd import OneOfACrowd
with OneOfACrowd(sys.argv[1], "shared") as study, open(sys.argv[2], "a", buffering=1) as log:
    print("up", flush=True)
    while study.finished is None:
        for asked in study.ask():
            log.write(f"asked {asked.number}\\n")
            study.tell(asked, runtime=1.0, metrics={"value": asked.configuration["x"]})
            log.write(f"told {asked.number}\\n")
"""


def _events(log: Path) -> list[tuple[str, int]]:
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [(line.split()[0], int(line.split()[1])) for line in lines]


@pytest.mark.slow
def test_workers_killed_at_any_moment_lose_no_trial_and_none_is_handed_out_twice(
    url: str, open_store: OpenStore, tmp_path: Path
) -> None:
    trials, kills, rng = share(400, 150), share(8, 3), random.Random(7)
    Study.open(url, {**JOB, "budget": {"trials": trials}}).close()
    logs = [tmp_path / f"log-{i}" for i in range(4 + kills)]

    def start(log: Path) -> subprocess.Popen[str]:
        made = subprocess.Popen([sys.executable, "-c", _WORKER, url, str(log)], stdout=subprocess.PIPE, text=True)
        assert made.stdout is not None and made.stdout.readline() == "up\n"
        return made

    running = [(log, start(log)) for log in logs[:4]]
    killed: set[Path] = set()
    for log in logs[4:]:
        old, victim = running.pop(rng.randrange(4))
        wanted = len(_events(old)) + rng.randrange(6)
        while victim.poll() is None and len(_events(old)) < wanted:
            time.sleep(0.001)
        victim.kill()
        victim.communicate()
        killed.add(old)
        running.append((log, start(log)))
    for _, process in running:
        process.communicate(timeout=120)
        assert process.returncode == 0
    store = open_store(url)
    (study,) = store.find_studies()
    found, runs = store.trials(study.id), store.runs(study.id)
    assert study.state == "finished"
    assert [trial.number for trial in found] == list(range(trials))
    assert {trial.state for trial in found} == {TrialState.SUCCEEDED}
    assert len({trial.key for trial in found}) == trials
    assert [(run.trial, run.attempt, run.state) for run in sorted(runs, key=lambda run: run.trial)] == [
        (number, 1, RunState.DONE) for number in range(trials)
    ]
    asked: dict[int, list[Path]] = {}
    for log in logs:
        for what, number in _events(log):
            if what == "asked":
                asked.setdefault(number, []).append(log)
    # Who is killed between the store and its log has left no word of it.
    assert all(len([log for log in who if log not in killed]) <= 1 for who in asked.values())
    told_by = [number for log in logs for what, number in _events(log) if what == "told"]
    assert len(told_by) == len(set(told_by)) >= trials - len(killed)


def test_a_turn_that_was_committed_as_another_thread_was_interrupted_is_not_done_twice(
    sqlite_url: str, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are one transaction: who is not interrupted finds its trial told, and no second one taken for it."""
    store = open_store(sqlite_url)
    with OneOfACrowd(sqlite_url, {**JOB, "budget": {"trials": 50}}) as study:
        study.ask()
        workers = store.workers(study.row.id)
        taken: dict[str, Any] = {name: workers.quick.take(name, None, Wanted(1, 0), 50) for name in "ab"}
        committed, interrupts, come = SharedSync.committed, [KeyboardInterrupt], list[Any]()

        def interrupted_after_the_commit(syncs: SharedSync, log: Any) -> None:
            if interrupts:
                raise interrupts.pop()
            committed(syncs, log)

        def tell(name: str) -> None:
            try:
                come.append(workers.quick.take(name, told(*taken[name].taken[0]), Wanted(1, 0), 50))
            except KeyboardInterrupt as error:
                come.append(error)

        monkeypatch.setattr(SharedSync, "committed", interrupted_after_the_commit)
        threads = [threading.Thread(target=tell, args=(name,)) for name in taken]
        path = Path(sqlite_url.removeprefix("sqlite:///")).resolve()
        group = group_commit_of(str(path), direct=True)
        with group._turn:  # both of them wait, and are taken together
            for each in threads:
                each.start()
            while len(group._waiting) < 2:
                time.sleep(0.001)
        for each in threads:
            each.join(30)
        (turn,) = (each for each in come if not isinstance(each, KeyboardInterrupt))
        assert len(come) == 2
        assert turn.done
        assert len(turn.taken) == 1
        owners = list(workers.open().values())
        assert (owners.count("a"), owners.count("b")) == (1, 1)
