"""Several workers on one study: each trial goes to one of them, and none is lost with a worker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.effort import share
from tests.engine.ask_tell.crowd import CrowdCount, OneOfACrowd

from tradewind import Study
from tradewind.engine.ask_tell import shared_replica, shared_study
from tradewind.engine.ask_tell.proposed_ahead import AheadCount
from tradewind.engine.ask_tell.shared_study import SharedStudy
from tradewind.errors import ConfigurationError, StudyBusyError, StudyNotFoundError
from tradewind.problem import TrialState
from tradewind.store.base import store_at
from tradewind.store.studies import rows
from tradewind.store.studies.study_workers import StudyWorkers
from tradewind.utils.processes import Moment

JOB: dict[str, Any] = {
    "name": "shared",
    "space": {"x": "0..200"},
    "objective": {"minimise": "value"},
    "searcher": "random",
    "budget": {"trials": 12},
}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shared.db'}"


def _tell(study: SharedStudy, asked: Any, **more: Any) -> Any:
    return study.tell(asked, runtime=1.0, metrics={"value": float(asked.configuration["x"])}, **more)


def _expire(study: SharedStudy) -> None:
    """Let a worker's lease end, as if it had said nothing for long."""
    with study._workers.step(lasting=False) as step:
        step.renew(study._token, study._holder, -1.0)


def test_workers_are_handed_different_trials_and_know_what_the_others_found(url: str) -> None:
    with Study.open(url, JOB) as one, Study.open(url, "shared") as two, Study.open(url) as three:
        workers, seen = (one, two, three), list[int]()
        while given := [(worker, asked) for worker in workers for asked in worker.ask()]:
            for worker, asked in given:
                seen.append(asked.number)
                _tell(worker, asked)
        assert sorted(seen) == list(range(12))
        found = [worker.trials for worker in workers]
        assert found[0] == found[1] == found[2]
        assert len({trial.key for trial in found[0]}) == 12
        assert one.best == two.best == three.best
        assert one.spent == two.spent == three.spent == pytest.approx(sum(trial.spent for trial in found[0]))
        assert {worker.finished for worker in workers} == {"the budget of 12 trials is used up"}
    with closing(store_at(url)) as store:
        (study,) = store.find_studies()
        (summary,) = store.summaries()
        assert (study.state, summary.holder, summary.counts) == ("finished", "", {"succeeded": 12})
    with Study(JOB, store=url) as alone:
        assert len(alone.trials) == 12


def test_money_is_set_aside_once_for_all_workers(url: str) -> None:
    job = {**JOB, "budget": {"trials": 30, "dollars": 3.0}}
    with Study.open(url, job) as one, Study.open(url, job) as two:
        while given := [(worker, asked) for worker in (one, two) for asked in worker.ask()]:
            for worker, asked in given:
                worker.tell(asked, runtime=1.0, cost=0.5, metrics={"value": 1.0})
        assert (one.spent, two.spent) == (3.0, 3.0)
        assert len(one.trials) == 6


def test_what_is_given_back_or_lost_is_for_whichever_worker_asks_next(url: str) -> None:
    with Study.open(url, JOB) as one, Study.open(url, JOB) as two:
        first, second = one.ask(2)
        assert one.pending == [first, second]
        one.give_back([first])
        assert two.ask() == [first]
        assert one.pending == [second]
        assert one.tell(second, runtime=1.0, state="lost", reason="the node went").state == TrialState.PENDING
        (again,) = two.ask()
        assert (again.number, again.configuration) == (second.number, second.configuration)
        _tell(two, again)
        with pytest.raises(ConfigurationError, match="told already"):
            _tell(one, second)
        assert _tell(two, first).state == TrialState.SUCCEEDED


def test_a_worker_that_leaves_or_whose_lease_ends_loses_its_trials_to_the_others(url: str) -> None:
    with Study.open(url, JOB) as slow, Study.open(url, JOB) as two:
        (left,) = slow.ask()
        _expire(slow)
        (taken,) = two.ask()
        assert taken == left
        assert _tell(two, taken).state == TrialState.SUCCEEDED
        with pytest.warns(UserWarning, match="told by another worker after its lease"):
            late = slow.tell(left, runtime=5.0, metrics={"value": 99.0})
        assert late.observation is not None
        assert late.observation.runtime == 1.0, "the first result counts"
        (mine,) = slow.ask()
        slow.close()
        with Study.open(url, JOB) as three:
            assert three.ask() == [mine]


def test_a_late_result_counts_where_nobody_has_told_the_trial(url: str) -> None:
    with Study.open(url, JOB) as slow, Study.open(url, JOB) as two:
        (asked,) = slow.ask()
        _expire(slow)
        assert two.ask() == [asked]
        assert _tell(slow, asked).state == TrialState.SUCCEEDED
        with pytest.warns(UserWarning, match="told by another worker"):
            _tell(two, asked)


def test_a_study_is_run_alone_or_by_several(url: str) -> None:
    with Study(JOB, store=url), pytest.raises(StudyBusyError, match=r"being run by process .* alone"):
        Study.open(url, JOB)
    with Study.open(url, JOB), pytest.raises(StudyBusyError, match="several workers"):
        Study(JOB, store=url)
    with Study(JOB, store=url) as alone:
        assert alone.trials == []


def test_who_takes_a_study_by_force_is_noticed_by_its_workers(url: str) -> None:
    with Study.open(url, JOB) as one, closing(store_at(url)) as store:
        (asked,) = one.ask()
        store.hold(one.row.id, "elsewhere:1:1.00@x", 60.0, force=True)
        with pytest.raises(StudyBusyError, match="took it for itself"):
            _tell(one, asked)


def test_names_of_studies_that_are_not_there(url: str) -> None:
    for source, words in ((None, "there is no study at"), ("nothing", "there is no study 'nothing'")):
        with pytest.raises(StudyNotFoundError, match=words):
            Study.open(url, source)


@pytest.mark.parametrize(
    ("store", "source", "lease", "said"),
    [
        (3, None, 120.0, "store=3 is no address"),
        (None, 3, 120.0, "3 is no job"),
        (None, None, "x", "lease='x' is no time"),
        (None, None, -1, "lease=-1 is no time"),
        (None, None, True, "lease=True is no time"),
        (None, None, float("nan"), "lease=nan is no time"),
    ],
)
def test_wrong_arguments_of_open_are_refused_in_one_line(store: Any, source: Any, lease: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        Study.open(store, source, lease=lease)


def test_what_is_enqueued_by_one_worker_is_handed_out_first_by_another(url: str) -> None:
    with Study.open(url, JOB) as one, Study.open(url, JOB) as two:
        one.enqueue({"x": 77})
        assert two.ask()[0].configuration["x"] == 77
        with pytest.warns(UserWarning, match="on its way already"):
            one.enqueue({"x": 77})


def test_a_call_that_fails_half_way_changes_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Study.open(url, JOB) as one, Study.open(url, JOB) as two:
        (asked,) = one.ask()
        wrong: list[dict[str, Any]] = [{"metrics": {"value": "x"}}, {"runtime": -1.0}, {"state": "odd"}]
        for bad in wrong:
            with pytest.raises(ConfigurationError):
                one.tell(asked, **{"runtime": 1.0, "metrics": {"value": 1.0}, **bad})
        assert len(one.trials) == 1  # made anew out of the store
        monkeypatch.setattr(one._machine, "handle", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            _tell(one, asked)
        assert two.trials[0].state == TrialState.RUNNING
        assert _tell(one, asked).state == TrialState.SUCCEEDED
        assert one.trials == two.trials


def test_a_replica_that_could_not_be_made_anew_is_made_anew_by_the_next_call(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Study(JOB, store=url) as alone:
        for asked in alone.ask(3):
            alone.tell(asked, runtime=1.0, metrics={"value": 1.0})
        before = list(alone.trials)
    with Study.open(url, JOB) as one:
        places: list[tuple[object, str]] = [(one._machine, "handle"), (one._workers, "everything")]
        for place in places:
            with monkeypatch.context() as patch:
                patch.setattr(*place, _interrupt)
                with pytest.raises(KeyboardInterrupt):
                    one.ask()
        assert [asked.number for asked in one.ask()] == [3]
        assert one.trials[:3] == before


def _interrupt(*given: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("opened", [Study.open, OneOfACrowd], ids=["proposing", "taking what is ahead"])
def test_optimise_goes_on_with_the_trials_of_a_worker_that_dies(url: str, opened: Callable[..., SharedStudy]) -> None:
    job = {**JOB, "budget": {"trials": 3}}
    with opened(url, job) as two:
        one = opened(url, job)
        (asked,) = one.ask()
        calls: list[int] = []

        def function(x: int) -> float:
            calls.append(x)
            if len(calls) == 2:
                one.close()
            return float(x)

        best = two.optimise(function)
        assert best is not None and best.configuration["x"] == min(calls)
        assert len(calls) == 3
        assert asked.configuration["x"] in calls


def test_what_is_proposed_ahead_goes_to_whoever_asks_and_comes_after_what_was_given_back_or_enqueued(url: str) -> None:
    with OneOfACrowd(url, JOB) as one, OneOfACrowd(url, JOB) as two:
        (first,) = one.ask()
        assert len(one.trials) == 5, "four more than anybody has asked for"
        assert [two.ask()[0].number for _ in range(2)] == [1, 2]
        assert two._machine.history.trials == {}, "it has not taken in what the other one did"
        one.give_back([first])
        two.enqueue({"x": 77})
        assert one.ask() == [first]
        two.ask()
        told = {asked.number: worker for worker in (one, two) for asked in worker.pending}
        assert [asked.configuration["x"] for asked in two.pending][-1] == 77
        for number, worker in told.items():
            worker.tell(number, runtime=1.0, metrics={"value": 1.0})
        seen = set(told)
        while given := [(worker, asked) for worker in (one, two) for asked in worker.ask()]:
            assert not seen & {asked.number for _, asked in given}
            for worker, asked in given:
                seen.add(asked.number)
                _tell(worker, asked)
        assert seen == set(range(12))
        assert {worker.finished for worker in (one, two)} == {"the budget of 12 trials is used up"}
        assert one.trials == two.trials
        assert one.spent == two.spent


def test_who_proposed_a_trial_writes_nothing_over_what_another_one_has_told(url: str) -> None:
    with OneOfACrowd(url, JOB) as one, OneOfACrowd(url, JOB) as two:
        (first,), (second,) = one.ask(), two.ask()
        _tell(two, second)
        _tell(one, first)
        states = {run.trial: run.state.value for run in one._store.runs(one.row.id)}
        assert (states[0], states[1]) == ("done", "done")
        seen = [asked.number for worker in (two, one, two, one) for asked in worker.ask()]
        assert seen == [2, 3, 4, 5]


def _in_the_habit(study: SharedStudy) -> None:
    """Ask and tell so often that the next trial is taken when one is told."""
    for _ in range(5):
        _tell(study, study.ask()[0])


def test_a_worker_that_asks_at_once_each_time_has_its_next_trial_taken_with_what_it_tells(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OneOfACrowd(url, JOB) as one, OneOfACrowd(url, JOB) as two:
        _in_the_habit(one)
        (taken,) = one._own.taken.values()
        assert one.pending == []
        assert taken.number not in {asked.number for asked in two.ask(3)}
        with monkeypatch.context() as patch:
            patch.setattr(one._workers.quick, "take", _interrupt)
            patch.setattr(one._workers, "step", _interrupt)
            assert one.ask() == [taken], "without a word to the store"
        assert one.pending == [taken]
        assert _tell(one, taken).state == TrialState.SUCCEEDED


@pytest.mark.parametrize("how", ["close", "enqueue", "give_back", "optimise", "too late"])
def test_what_was_taken_and_is_not_asked_for_goes_to_others(
    url: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OneOfACrowd(url, JOB) as two:
        one = OneOfACrowd(url, JOB)
        _in_the_habit(one)
        (taken,) = one._own.taken.values()
        if how == "close":
            one.close()
        elif how == "enqueue":
            one.enqueue({"x": 199})
        elif how == "give_back":
            one.give_back([])
        elif how == "optimise":
            one.optimise(float, trials=0)
        else:
            monkeypatch.setattr(type(one._own), "outdated", property(lambda own: bool(own.taken)))
            one._wake.set()
            while one._own.taken:
                time.sleep(0.01)
        assert taken.number in {asked.number for _ in range(4) for asked in two.ask()}
        one.close()


def test_what_a_worker_had_taken_goes_to_others_when_it_dies(url: str) -> None:
    with OneOfACrowd(url, JOB) as two:
        one = OneOfACrowd(url, JOB)
        _in_the_habit(one)
        (taken,) = one._own.taken.values()
        _expire(one)
        numbers = set[int]()
        while given := two.ask():
            numbers |= {asked.number for asked in given}
        assert taken.number in numbers
        one.close()


def test_a_turn_that_fails_or_is_interrupted_loses_neither_the_result_nor_the_next_trial(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OneOfACrowd(url, JOB) as one:
        _in_the_habit(one)
        seen = [asked.number for asked in one.ask()]
        take = one._workers.quick.take

        def stored_but_interrupted(*given: Any) -> Any:
            take(*given)
            raise KeyboardInterrupt

        for fault in (_interrupt, stored_but_interrupted):
            with monkeypatch.context() as patch:
                patch.setattr(one._workers.quick, "take", fault)
                with pytest.raises(KeyboardInterrupt):
                    one.tell(seen[-1], runtime=1.0, metrics={"value": 3.0})
            trial = one.tell(seen[-1], runtime=1.0, metrics={"value": 3.0})
            assert (trial.number, trial.state) == (seen[-1], TrialState.SUCCEEDED)
            seen += [asked.number for asked in one.ask()]
        while given := one.ask():
            seen += [asked.number for asked in given]
        assert sorted(seen) == list(range(5, 12))


def test_one_worker_makes_the_proposals_and_another_one_when_that_one_is_gone(url: str) -> None:
    with OneOfACrowd(url, JOB) as two:
        one = OneOfACrowd(url, JOB)
        one.ask()
        two.ask()
        assert (one._leads, two._leads) == (True, False)
        one.close()
        numbers = {asked.number for _ in range(11) for asked in two.ask()}
        assert numbers == set(range(12)) - {1}
        assert two._leads


def test_a_proposer_whose_clock_is_ahead_keeps_nobody_waiting_once_it_is_gone(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OneOfACrowd(url, JOB) as one, OneOfACrowd(url, JOB) as two:
        one.ask()
        two.ask(4)
        with one._workers.step(lasting=False) as step:
            assert step.lead(one._token, "elsewhere:1:1.00@x", 3600.0)
        monkeypatch.setattr(shared_study, "_PROPOSES", 0.01)
        naps = iter(range(1_000))
        monkeypatch.setattr("tradewind.engine.ask_tell.shared_study.time.sleep", lambda seconds: next(naps))
        assert [asked.number for asked in two.ask()] == [5]
        assert two._leads


def test_a_trial_that_was_given_back_by_an_interrupted_call_goes_to_one_worker(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {**JOB, "budget": {"trials": 5}}
    with OneOfACrowd(url, job) as one, OneOfACrowd(url, job) as two:
        two.ask()  # which proposes all the others
        for _ in range(3):
            _tell(one, one.ask()[0])
        assert one._own.taken.keys() == {4}
        give_back = one._workers.quick.give_back

        def interrupted(*given: Any) -> None:
            give_back(*given)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(one._workers.quick, "give_back", interrupted)
            with pytest.raises(KeyboardInterrupt):
                one.optimise(float, trials=0)
        assert [asked.number for worker in (two, one) for asked in worker.ask()] == [4]


@pytest.mark.parametrize("how", ["dies", "leaves"])
def test_trials_of_a_worker_that_is_gone_are_not_left_for_the_end(
    url: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_replica, "_LIVE_SECONDS", 0.0)
    monkeypatch.setattr(CrowdCount, "size", 20)  # so many that nobody looks for more than the next ones
    job = {**JOB, "budget": {"trials": 120}}
    with OneOfACrowd(url, job) as one, OneOfACrowd(url, job) as two:
        three = OneOfACrowd(url, job)
        _in_the_habit(one)
        _in_the_habit(two)
        if how == "dies":
            (asked,) = three.ask()
            left = asked.number
        else:
            _in_the_habit(three)
            (left,) = three._own.taken
        _in_the_habit(one)
        _in_the_habit(two)
        _expire(three) if how == "dies" else three.close()
        seen = list[int]()
        while left not in seen:
            for worker in (one, two):
                (asked,) = worker.ask()
                seen.append(asked.number)
                _tell(worker, asked)
        assert len(seen) < 40, "while there are 80 others to come"
        three.close()


def test_who_opens_a_study_begins_behind_what_has_ended(url: str) -> None:
    with OneOfACrowd(url, JOB) as one:
        _in_the_habit(one)
        _tell(one, one.ask()[0])
        with OneOfACrowd(url, JOB) as two:
            assert two._owners == two._workers.open()
            last = max(number for number, owner in two._owners.items() if owner == one._token)
            assert two._after == last
            assert two._since == two._seen
            assert two.ask()[0].number == last + 1
        given = one.ask()
        one.give_back(given)
        with OneOfACrowd(url, JOB) as three:
            assert three._since == 0
            assert three.ask() == given


def test_others_tell_while_a_worker_that_opens_the_study_reads_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = {**JOB, "budget": {"trials": 12, "dollars": 3.0}}
    with Study.open(url, job) as one, Study.open(url, job) as two:
        _tell(one, one.ask()[0], cost=0.5)
        (second,) = one.ask()
        read = rows.trial_of
        begun: list[threading.Thread] = []

        def read_while_another_one_tells(row: Any) -> Any:
            if not begun:
                begun.append(threading.Thread(target=lambda: _tell(one, second, cost=0.25)))
                begun[0].start()
                begun[0].join(20)
                assert not begun[0].is_alive(), "it waits for the one that reads"
            return read(row)

        with monkeypatch.context() as patch:
            patch.setattr(rows, "trial_of", read_while_another_one_tells)
            three = Study.open(url, job)
        assert len(begun) == 1
        assert (three.spent, three.trials) == (0.75, two.trials)
        assert [trial.state.value for trial in three.trials] == ["succeeded"] * 2
        three.close()


def test_what_is_enqueued_by_the_job_is_enqueued_once_however_many_open_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {**JOB, "try_first": [{"x": 7}]}
    everything, others = StudyWorkers.everything, list[SharedStudy]()

    def read_before_another_one_opens_it(workers: StudyWorkers) -> Any:
        found = everything(workers)
        if not others:
            monkeypatch.setattr(StudyWorkers, "everything", everything)
            others.append(Study.open(url, job))
            others[0].ask()
        return found

    monkeypatch.setattr(StudyWorkers, "everything", read_before_another_one_opens_it)
    with Study.open(url, job) as one, others[0] as two:
        assert [trial.configuration["x"] for trial in one.trials] == [7]
        assert one.trials == two.trials
        assert one.ask()[0].number == 1


def test_trials_are_proposed_ahead_only_where_no_result_decides_what_is_next(url: str) -> None:
    jobs: list[dict[str, Any]] = [
        {"searcher": "coordinate_descent"},
        {"budget": {"trials": 12, "dollars": 3.0}},
        {"stop": [{"use": "target", "value": -1.0}]},
        {"objective": {"minimise": "runtime"}},
    ]
    for at, more in enumerate(jobs):
        with OneOfACrowd(url, {**JOB, "name": f"job {at}", **more}) as one:
            one.ask()
            assert len(one.trials) == 1


def test_the_number_of_proposals_ahead_follows_the_rate_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    count = AheadCount()
    for changed, seconds, worth in ((3, 0.01, 0), (16, 0.2, 40), (16, 60.0, 0), (500, 0.1, 64)):
        monkeypatch.setattr(Moment, "ago", lambda moment, seconds=seconds: seconds)
        count.caught_up(changed)
        assert count.worth == worth
    count.workers = 50  # the one that proposes comes to it once in a round of all, however slow the store is
    for changed, quick, worth in ((16, True, 200), (16, False, 0), (3, True, 0)):
        monkeypatch.setattr(Moment, "ago", lambda moment: 60.0)
        count.caught_up(changed, quick=quick)
        assert count.worth == worth


def test_who_finds_nothing_ahead_leaves_it_to_one_worker_to_take_in_what_all_have_found(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_study, "_PROPOSES", 3600.0)
    sleep = "tradewind.engine.ask_tell.shared_study.time.sleep"
    with OneOfACrowd(url, JOB) as one, OneOfACrowd(url, JOB) as two, OneOfACrowd(url, JOB) as three:
        one.ask()
        two.ask(4)
        with one._workers.step(lasting=False) as step:  # the one that takes over has begun, and is not done yet
            assert step.lead(one._token, one._holder, -1.0)
            assert step.lead(three._token, three._holder, 3600.0)

        def propose(seconds: float) -> None:
            monkeypatch.setattr(sleep, lambda seconds: None)
            assert three.ask()

        monkeypatch.setattr(sleep, propose)
        assert [asked.number for asked in two.ask()] == [6]
        assert not two._leads and two._machine.history.trials == {}


_WORKER = """
import sys
import time
from tradewind import Study
with Study.open(sys.argv[1], "shared") as study, open(sys.argv[2], "a", buffering=1) as told:
    print("up", flush=True)
    def function(x):
        return float(x)
    while study.finished is None:
        for asked in study.ask():
            study.tell(asked, runtime=1.0, metrics={"value": float(asked.configuration["x"])})
            told.write(f"{asked.number}\\n")
"""


@pytest.mark.slow
def test_no_trial_is_lost_or_run_twice_when_workers_are_killed(url: str, tmp_path: Path) -> None:
    trials, kills = share(150, 60), 3
    Study.open(url, {**JOB, "budget": {"trials": trials}}).close()
    logs = [tmp_path / f"told-{i}" for i in range(4 + kills)]

    def start(log: Path) -> subprocess.Popen[str]:
        made = subprocess.Popen([sys.executable, "-c", _WORKER, url, str(log)], stdout=subprocess.PIPE, text=True)
        assert made.stdout is not None and made.stdout.readline() == "up\n"
        return made

    running = [start(log) for log in logs[:4]]
    for log in logs[4:]:
        victim = running.pop(0)
        os.kill(victim.pid, signal.SIGKILL)
        victim.communicate()
        running.append(start(log))
    for process in running:
        process.communicate(timeout=120)
        assert process.returncode == 0
    with closing(store_at(url)) as store:
        (study,) = store.find_studies()
        found = store.trials(study.id)
        runs = store.runs(study.id)
    assert [trial.number for trial in found] == list(range(trials))
    assert {trial.state for trial in found} == {TrialState.SUCCEEDED}
    assert len({trial.key for trial in found}) == trials
    assert len(runs) == trials and {run.attempt for run in runs} == {1}
    told = [line for log in logs if log.exists() for line in log.read_text().splitlines()]
    assert len(told) == len(set(told))
    assert len(told) >= trials - kills, "but for those that were killed between the store and the log"
