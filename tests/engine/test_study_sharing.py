"""A study and threads, forks, pickles and interrupts."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest
from tests.effort import EVERYTHING
from tests.engine.ask_tell.crowd import OneOfACrowd

from tradewind import Study, report
from tradewind.engine.ask_tell.asked_trial import TrialEnd
from tradewind.engine.ask_tell.shared_study import SharedStudy
from tradewind.errors import ConfigurationError

JOB: dict[str, Any] = {
    "name": "shared",
    "space": {"x": "0..200"},
    "objective": {"minimise": "value"},
    "searcher": {"use": "random"},
    "budget": {"trials": 24},
}


def test_several_threads_share_a_study() -> None:
    seen: list[int] = []

    def work(study: Study) -> None:
        while given := study.ask(2):
            for asked in given:
                seen.append(asked.number)
                study.tell(asked, runtime=1.0, metrics={"value": float(asked.configuration["x"])})

    with Study(JOB) as study, ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(work, study) for _ in range(4)]:
            each.result()
        assert sorted(seen) == list(range(24))
        assert all(trial.state.ended for trial in study.trials)
        assert study.finished


def test_functions_in_several_threads_report_for_their_own_trials() -> None:
    together = threading.Barrier(3)

    def function(x: int) -> None:
        together.wait(30)  # all three are under way at the same time
        report(value=x)
        together.wait(30)

    with Study({**JOB, "budget": {"trials": 3}}) as study, ThreadPoolExecutor(3) as pool:
        for each in [pool.submit(study.optimise, function, 1) for _ in range(3)]:
            each.result()
        found = {trial.configuration["x"]: trial.observation.objective for trial in study.trials if trial.observation}
    assert len(found) == 3
    assert all(value == x for x, value in found.items())
    assert "TRADEWIND_METRICS" not in os.environ


def in_a_fork(work: Callable[[], str]) -> str:
    """What a function says in a child that is a copy of this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(child, 0)
    return text


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_reads_and_changes_nothing() -> None:
    with Study(JOB) as study:
        asked = study.ask()[0]

        def child() -> str:
            words = [str(len(study.trials))]
            for call in (study.ask, lambda: study.tell(asked, runtime=1.0, metrics={"value": 1.0})):
                try:
                    call()
                except ConfigurationError as error:
                    words.append(str(error))
            study.close()  # leaves the parent's hold alone
            return "|".join(words)

        trials, asking, telling = in_a_fork(child).split("|")
        assert trials == "1"
        assert "belongs to process" in asking
        assert "hand the results to it" in telling
        study.tell(asked, runtime=1.0, metrics={"value": 7.0})
        assert study.best is not None
        assert study.best.observation is not None
        assert study.best.observation.objective == 7.0


def test_a_study_cannot_be_pickled_and_what_it_gives_out_can() -> None:
    with Study(JOB) as study:
        for copying in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(ConfigurationError, match=r"cannot be pickled.*what `ask` returned"):
                copying(study)
        asked = study.ask()[0]
        there = pickle.loads(pickle.dumps(asked))
        assert there == asked
        study.tell(there, runtime=1.0, metrics={"value": 1.0})


def test_a_study_that_was_closed_says_so() -> None:
    study = Study(JOB)
    asked = study.ask()[0]
    study.close()
    study.close()
    for call in (study.ask, lambda: study.tell(asked, runtime=1.0)):
        with pytest.raises(ConfigurationError, match="was closed"):
            call()
    assert len(study.trials) == 1


def test_what_is_given_back_comes_again_first() -> None:
    with Study(JOB) as study:
        first, second = study.ask(2)
        assert study.pending == [first, second]
        study.give_back([first])
        assert study.pending == [second]
        assert study.ask()[0] == first
        study.tell(second, runtime=1.0, metrics={"value": 1.0})
        study.give_back([second])  # was told: stays so
        assert study.pending == [first]


class Interrupting:
    """Raises a KeyboardInterrupt at the n-th line that the product runs in the engine."""

    def __init__(self, line: int) -> None:
        self.left = line
        self.raised = False

    def __enter__(self) -> Interrupting:
        sys.settrace(self._called)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if "/tradewind/engine/" in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and not self.raised:
            self.left -= 1
            if self.left <= 0:
                self.raised = True
                raise KeyboardInterrupt
        return self._line


def _alone(job: dict[str, Any]) -> Study:
    return Study(job)


def _one_of_several(job: dict[str, Any]) -> SharedStudy:
    return Study.open(None, job)


def _one_of_a_crowd(job: dict[str, Any]) -> SharedStudy:
    return OneOfACrowd(None, job)


def ask_and_tell_interrupted(line: int, opened: Callable[[dict[str, Any]], Study | SharedStudy] = _alone) -> bool:
    """One ask and one tell of a study, with an interrupt at a line of them; False where they have fewer lines.

    The promises: nothing that was told is lost, no trial is lost or told twice, and the money is right.
    """
    job = {**JOB, "name": f"interrupted {line}", "budget": {"trials": 4}}
    with opened(job) as study:
        first = study.ask()[0]
        interrupting = Interrupting(line)
        given: list[Any] = []
        try:
            with interrupting:
                given = study.ask()
        except KeyboardInterrupt:
            assert not given
        if not interrupting.raised:
            try:
                with interrupting:
                    study.tell(first, runtime=1.0, cost=0.5, metrics={"value": 3.0})
            except KeyboardInterrupt:
                study.tell(first, runtime=1.0, cost=0.5, metrics={"value": 3.0})
        else:
            study.tell(first, runtime=1.0, cost=0.5, metrics={"value": 3.0})
        study.give_back(study.pending)
        told = 1
        while given := study.ask():
            study.tell(given[0], runtime=1.0, cost=0.5, metrics={"value": 4.0})
            told += 1
        assert told == 4
        assert study.finished
        assert study.spent == pytest.approx(2.0)
        assert [trial.number for trial in study.trials if trial.state.ended] == [0, 1, 2, 3]
        stored = study._store.trials(study.row.id)
        assert [trial.observation.objective for trial in stored if trial.observation] == [3.0, 4.0, 4.0, 4.0]
    return interrupting.raised


@pytest.mark.parametrize("line", [1, 7, 20, 33, 48, 61, 90, 120, 160, 200, 260, 320])
def test_an_interrupt_at_some_line_loses_nothing(line: int) -> None:
    assert ask_and_tell_interrupted(line), "there are fewer lines"


OPENED: list[Callable[[dict[str, Any]], Study | SharedStudy]] = [_alone, _one_of_several, _one_of_a_crowd]


@pytest.mark.parametrize("state", ["succeeded", "lost"])
@pytest.mark.parametrize("opened", OPENED)
def test_a_tell_that_is_interrupted_on_its_way_back_can_be_repeated(
    opened: Callable[[dict[str, Any]], Study | SharedStudy], state: TrialEnd
) -> None:
    with opened({**JOB, "name": f"way back {opened.__name__} {state}"}) as study:
        counting = Interrupting(10**9)
        asked = study.ask()[0]
        with counting:
            study.tell(asked, runtime=1.0, metrics={"value": 1.0}, state=state)
        lines, stored = 10**9 - counting.left, 0
        for back in range(12):
            asked = study.ask()[0]
            spent = study.spent
            try:
                with Interrupting(lines - back):
                    study.tell(asked, runtime=1.0, cost=0.5, metrics={"value": 1.0}, state=state)
            except KeyboardInterrupt:
                stored += spent < study.spent
                trial = study.tell(asked, runtime=1.0, cost=0.5, metrics={"value": 2.0}, state=state)
                assert trial.number == asked.number
            assert study.spent == pytest.approx(spent + 0.5)
            if state == "succeeded":
                with pytest.raises(ConfigurationError, match="told already"):
                    study.tell(asked, runtime=1.0)
        assert stored > 2


def test_wrong_arguments_are_refused_alike_by_a_study_and_by_one_of_several_workers() -> None:
    wrong: list[Callable[[Any], object]] = [
        lambda study: study.ask("2"),
        lambda study: study.ask(1.5),
        lambda study: study.ask(None),
        lambda study: study.ask(True),
        lambda study: study.tell("0", runtime=1.0),
        lambda study: study.tell(True, runtime=1.0),
        lambda study: study.give_back(None),
        lambda study: study.give_back([3]),
        lambda study: study.optimise(3),
        lambda study: study.optimise(abs, "3"),
        lambda study: study.optimise(abs, True),
        lambda study: study.enqueue(3),
    ]
    said: list[list[str]] = []
    for opened in OPENED:
        words: list[str] = []
        with opened({**JOB, "name": f"wrong {opened.__name__}"}) as study:
            for call in wrong:
                with pytest.raises(ConfigurationError) as refused:
                    call(study)
                words.append(str(refused.value))
            assert study.ask()[0].number == 0
        said.append(words)
    assert said[0] == said[1] == said[2]


@pytest.mark.slow
@pytest.mark.parametrize("opened", OPENED)
def test_an_interrupt_at_any_line_loses_nothing(opened: Callable[[dict[str, Any]], Study | SharedStudy]) -> None:
    """Some of the lines: all of them would take minutes."""
    line, step = 2, 13 if EVERYTHING else 97
    while ask_and_tell_interrupted(line, opened):
        line += step
    assert line > 300


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handling of Ctrl-C: a shell that runs tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_waits_until_what_belongs_together_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    with Study(JOB) as study:
        handle = study._machine.handle

        def handling(*given: Any) -> Any:
            os.kill(os.getpid(), signal.SIGINT)
            return handle(*given)

        monkeypatch.setattr(study._machine, "handle", handling)
        with pytest.raises(KeyboardInterrupt):
            study.ask()
        assert not study._damaged
        monkeypatch.undo()
        assert study.ask()[0].number == 0
