"""The conformance suite of callbacks: inherit it, say how yours is made and read, and pytest runs the rest.

For example::

    class TestMyCallback(CallbackConformance):
        def make(self, study: StudyFacts) -> Callback:
            return MyCallback(settings=MyCallback.Settings(), study=study)

        def read(self, study: StudyFacts) -> dict[int, LoggedTrial]:
            return my_reader(study.owner)
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tradewind.callback.base import BegunTrial, Callback, EndedTrial, SessionEnd, StudyFacts
from tradewind.problem import Observation, Proposal, Run, RunState, TrialState
from tradewind.testing.problems import pending, table_problem

_SERIES = {"loss": [(1, 3.0), (2, 2.0), (4, 0.5)]}


@dataclass(frozen=True, slots=True)
class LoggedTrial:
    """A trial as the tool's own reader finds it.

    Attributes:
        parameters: By name the value, as a text or a number.
        points: By metric its steps and values, in order.
        status: ``running``, ``good``, ``bad`` or ``cut``.
    """

    parameters: Mapping[str, object] = field(default_factory=dict)
    points: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    status: str = ""


class CallbackConformance:
    """Checks of every callback."""

    @abstractmethod
    def make(self, study: StudyFacts) -> Callback:
        """A callback with its usual settings, that writes where `read` reads."""

    @abstractmethod
    def read(self, study: StudyFacts) -> Mapping[int, LoggedTrial]:
        """The trials of a study as the tool itself reads them, by number; each once, or the reader raises."""

    @pytest.fixture
    def study(self, tmp_path: Path) -> StudyFacts:
        """A study that no other test has."""
        owner = f"tw-{secrets.token_hex(5)}"
        return StudyFacts(7, "me/sort", owner, "random", 3, 1e9, table_problem(), tmp_path, tmp_path / "home")

    def ended(self, study: StudyFacts, number: int, state: TrialState = TrialState.SUCCEEDED) -> EndedTrial:
        """A trial that has ended."""
        candidates = study.problem.candidates
        trial = pending(study.problem, Proposal(candidates.configuration(number % len(candidates))), number)
        seen = Observation(0.5, 0.25, 60.0, state is TrialState.SUCCEEDED, metrics={"loss": 0.5, "top/1": 2.0})
        if state is TrialState.FAILED:
            seen = replace(seen, objective=None, metrics={}, reason="the program exited with code 3")
        return EndedTrial(
            replace(
                trial,
                state=state,
                observation=None if state is TrialState.LOST else seen,
                spent=0.75,
                attempts=2,
                created=1e9,
                started=1e9 + number,
                ended=1e9 + number + 60,
            ),
            Run(f"{study.owner}-{number}", number, 2, RunState.DONE),
            _SERIES if state is TrialState.SUCCEEDED else {},
        )

    def test_a_trial_is_there_with_parameters_machines_metrics_and_steps(self, study: StudyFacts) -> None:
        """The tool's own reader finds all of it."""
        callback, one = self.make(study), self.ended(study, 0)
        assert set(callback.open()) == set()
        callback.log(one)
        found = self.read(study)[0]
        given = {**dict(one.trial.configuration), **one.machines}
        assert {name: str(found.parameters[name]) for name in given} == {k: str(v) for k, v in given.items()}
        assert list(found.points["loss"]) == _SERIES["loss"]
        for name, value in {"cost": 0.25, "runtime": 60.0, "spent": 0.75, "top/1": 2.0}.items():
            assert [point for _, point in found.points[name]] == [value]
        assert found.status == "good"

    def test_a_result_that_is_not_the_last_report_comes_behind_it(self, study: StudyFacts) -> None:
        """The best of all steps, for example, which the job takes for the result."""
        callback, one = self.make(study), self.ended(study, 0)
        callback.open()
        callback.log(replace(one, series={"loss": [(1, 0.5), (2, 0.75)]}))
        assert list(self.read(study)[0].points["loss"]) == [(1, 0.5), (2, 0.75), (2, 0.5)]

    @pytest.mark.parametrize(
        ("state", "status"), [(TrialState.FAILED, "bad"), (TrialState.LOST, "bad"), (TrialState.ABORTED, "cut")]
    )
    def test_the_status_says_how_it_ended(self, study: StudyFacts, state: TrialState, status: str) -> None:
        """A trial that failed or was cut short is there, too, and looks like one."""
        callback = self.make(study)
        callback.open()
        callback.log(self.ended(study, 0, state))
        assert self.read(study)[0].status == status

    def test_the_next_process_finds_what_is_there(self, study: StudyFacts) -> None:
        """Trials that are there are not given again."""
        first = self.make(study)
        first.open()
        for number in (0, 12):
            first.log(self.ended(study, number))
        first.close(SessionEnd("interrupted", "by the user", 2, 1.5))
        again = self.make(study)
        assert set(again.open()) == {0, 12}
        again.log(self.ended(study, 3))
        again.close(SessionEnd("finished", "the budget is used up", 3, 2.25, self.ended(study, 3).trial))
        assert set(self.read(study)) == {0, 3, 12}

    def test_a_trial_that_is_given_twice_is_there_once(self, study: StudyFacts) -> None:
        """As after a kill between the two."""
        for _ in range(2):
            callback = self.make(study)
            callback.open()
            callback.log(self.ended(study, 1))
        assert list(self.read(study)[1].points["loss"]) == _SERIES["loss"]

    def begun(self, study: StudyFacts, number: int, points: int) -> BegunTrial:
        """A trial whose run has reported so many points."""
        one = self.ended(study, number)
        trial = replace(one.trial, state=TrialState.RUNNING, observation=None, ended=None, spent=0.0, attempts=1)
        return BegunTrial(trial, one.run, {"loss": _SERIES["loss"][:points]} if points else {})

    def test_a_trial_that_runs_is_there_with_its_parameters_and_steps(self, study: StudyFacts) -> None:
        """Steps come as they are reported, and the end adds what is missing."""
        callback, one = self.make(study), self.ended(study, 1)
        callback.open()
        callback.begin(self.begun(study, 1, 0))
        found = self.read(study)[1]
        assert found.status == "running"
        given = {**dict(one.trial.configuration), **one.machines}
        assert {name: str(found.parameters[name]) for name in given} == {k: str(v) for k, v in given.items()}
        for points in (1, 2, 2):
            callback.report(self.begun(study, 1, points))
            assert list(self.read(study)[1].points["loss"]) == _SERIES["loss"][:points]
        callback.log(one)
        found = self.read(study)[1]
        assert (found.status, list(found.points["loss"])) == ("good", _SERIES["loss"])

    def test_the_next_process_goes_on_with_a_trial_that_runs(self, study: StudyFacts) -> None:
        """Nothing of it is doubled though it is given again."""
        for points in (1, 2):
            callback = self.make(study)
            assert set(callback.open()) == set()
            callback.begin(self.begun(study, 1, 0))
            callback.report(self.begun(study, 1, points))
        callback = self.make(study)
        assert set(callback.open()) == set()
        callback.log(self.ended(study, 1))
        found = self.read(study)
        assert list(found) == [1]
        assert (found[1].status, list(found[1].points["loss"])) == ("good", _SERIES["loss"])
        assert set(self.make(study).open()) == {1}

    def test_a_session_that_ends_leaves_a_trial_that_runs_for_the_next(self, study: StudyFacts) -> None:
        """Nothing says that the trial has ended: its run is repeated or goes on."""
        callback = self.make(study)
        callback.open()
        callback.begin(self.begun(study, 1, 0))
        callback.close(SessionEnd("interrupted", "by the user", 0, 0.0))
        again = self.make(study)
        assert set(again.open()) == set()
        again.begin(self.begun(study, 1, 0))
        again.report(self.begun(study, 1, 1))
        assert self.read(study)[1].status == "running"

    def test_what_a_repeated_run_reports_takes_the_place_of_the_first(self, study: StudyFacts) -> None:
        """Steps of both would be no curve."""
        callback = self.make(study)
        callback.open()
        begun = self.begun(study, 1, 0)
        callback.begin(begun)
        callback.report(replace(begun, series={"loss": [(1, 7.0), (2, 6.0)]}))
        callback.begin(replace(begun, trial=replace(begun.trial, attempts=2)))
        callback.report(self.begun(study, 1, 2))
        callback.log(self.ended(study, 1))
        found = self.read(study)
        assert list(found) == [1]
        assert list(found[1].points["loss"]) == _SERIES["loss"]

    def test_studies_of_the_same_name_are_kept_apart(self, study: StudyFacts) -> None:
        """A study that is begun anew has its own trials 0, 1, ..."""
        other = replace(study, owner=f"{study.owner}x", id=8)
        for one in (study, other):
            callback = self.make(one)
            assert set(callback.open()) == set()
            callback.log(self.ended(one, 0))
        assert set(self.read(study)) == set(self.read(other)) == {0}

    def test_odd_names_and_values_are_taken(self, study: StudyFacts) -> None:
        """Programs name their metrics as they like, and report what is no number."""
        callback, one = self.make(study), self.ended(study, 0)
        odd = {"val@0.5": 1.0, "../up": 2.0, "über alles": 3.0, "": 4.0, "x" * 400: 5.0, "bad": float("nan")}
        assert one.trial.observation is not None
        seen = replace(one.trial.observation, metrics={**odd, "worst": float("inf")}, reason="no\nluck " * 2000)
        callback.open()
        callback.log(replace(one, trial=replace(one.trial, observation=seen)))
        assert set(self.read(study)) == {0}

    def test_it_says_where_it_writes(self, study: StudyFacts) -> None:
        """In one line."""
        callback = self.make(study)
        callback.open()
        assert callback.place
        assert "\n" not in callback.place
