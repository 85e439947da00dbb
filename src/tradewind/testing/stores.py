"""The conformance suite for stores.

Inherit it, name the class ``Test...`` and give one fixture::

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self, tmp_path):
            with contextlib.closing(MyStore(settings=..., url=...)) as store:
                yield store
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tradewind.errors import RecordError, StoreError, StudyBusyError, StudyNotFoundError
from tradewind.problem import (
    Configuration,
    Fault,
    Handle,
    Machine,
    Observation,
    Offer,
    Proposal,
    Run,
    RunState,
    Trial,
    TrialState,
    Usage,
)
from tradewind.store.base import Change, ImportedTrials, Store, StudyLine, StudyRow, StudyTotals, process_of_this_host

ELSEWHERE = "another-host.example:17:1.00"
"""A holder that no test host can see."""


def study_row(name: str = "job", **fields: object) -> StudyRow:
    """A study to insert."""
    plain = StudyRow(
        id=0,
        name=name,
        problem_key="0123456789abcdef",
        spec={"objective": {"metric": "cost", "goal": "minimise"}, "text": "größer ≥ 3"},
        created=1_800_000_000.25,
        seed=7,
        searcher_state={"rng": [1, 2, 3], "scale": 0.1},
        owner="tw-owner",
    )
    return replace(plain, **fields)  # type: ignore[arg-type]


def trial(number: int, objective: float | None = None, *, feasible: bool = True) -> Trial:
    """A trial: pending, or succeeded with an objective."""
    offer = Offer("aws", "c7i.large", 2, 4.0, 0.08925, region="eu-central-1", nodes=3, facts={"ghz": 3.2, "cpu": "x"})
    configuration = Configuration({"workers": number, "codec": "zstd", "level": 0.5, "fast": True})
    pending = Trial(
        number,
        Proposal(configuration, abort_cost=1.5, why={"expected_cost": 0.25, "stage": "erste Runde"}),
        offer,
        TrialState.PENDING,
        key=f"{number:016x}",
        created=1_800_000_000.125 + number,
    )
    if objective is None:
        return pending
    seen = Observation(objective, objective, 61.5, feasible, metrics={"loss": 0.25}, profile={"cpu": 0.5}, reason="é")
    return replace(
        pending,
        state=TrialState.SUCCEEDED,
        observation=seen,
        spent=objective,
        attempts=1,
        started=1_800_000_001.0,
        ended=1_800_000_062.5,
    )


def run(number: int, attempt: int = 1, state: RunState = RunState.DONE, cost: float = 0.125) -> Run:
    """A run of a trial."""
    name = f"run-{number}-{attempt}"
    return Run(
        run_id=name,
        trial=number,
        attempt=attempt,
        state=state,
        reserved=0.5,
        cost=cost,
        runtime=61.5,
        handle=Handle(name, "process", {"pid": 4711, "deep": {"list": [1, "zwei", None]}}),
        machines=(Machine("i-1", "10.0.0.1", {"zone": "a"}), Machine("i-2")),
        started=1_800_000_001.0,
        ended=1_800_000_062.5 if state.ended else None,
        exit_code=0 if state.ended else None,
        reason="wörtlich\n\x1b[0m",
        fault=Fault.INFRASTRUCTURE if state is RunState.PREEMPTED else None,
        usage=Usage(1 << 33, 12.5, {"cache-misses": 17.0}),
        folder="/tmp/runs/x",  # noqa: S108
    )


class StoreConformance:
    """Checks of every store."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        """An open, empty store; an implementer gives it."""
        raise NotImplementedError("give the fixture 'store'")

    @pytest.fixture
    def study(self, store: Store) -> StudyRow:
        """A study in it."""
        return store.create_study(study_row())

    # Studies

    def test_a_study_comes_back_as_it_was(self, store: Store) -> None:
        """A study comes back as it was."""
        made = store.create_study(study_row())
        assert made == study_row(id=made.id)
        assert store.study(made.id) == made

    def test_each_study_has_a_number_of_its_own(self, store: Store) -> None:
        """Each study has a number of its own."""
        assert len({store.create_study(study_row()).id for _ in range(3)}) == 3

    def test_studies_are_found_by_name_and_problem_the_newest_first(self, store: Store) -> None:
        """Studies are found by name and problem the newest first."""
        first = store.create_study(study_row("a"))
        second = store.create_study(study_row("b"))
        third = store.create_study(study_row("a", problem_key="f" * 16))
        assert store.find_studies() == [third, second, first]
        assert store.find_studies("a") == [third, first]
        assert store.find_studies("a", first.problem_key) == [first]
        assert store.find_studies(problem_key=first.problem_key) == [second, first]
        assert store.find_studies("c") == []

    def test_studies_with_runs_that_have_not_ended(self, store: Store, study: StudyRow) -> None:
        """Studies with runs that have not ended."""
        other = store.create_study(study_row("other"))
        assert store.open_studies() == set()
        store.write(study.id, Change([trial(0)], [run(0, state=RunState.EXECUTING)]))
        store.write(other.id, Change([trial(0)], [replace(run(0), run_id="other")]))
        assert store.open_studies() == {study.id}

    def test_a_study_that_is_not_there(self, store: Store) -> None:
        """A study that is not there."""
        calls: list[Callable[[], object]] = [
            lambda: store.study(99),
            lambda: store.trials(99),
            lambda: store.runs(99),
            lambda: store.columns(99),
            lambda: store.export_records(99),
            lambda: store.import_records(study_row(id=99), iter([])),
            lambda: store.hold(99, ELSEWHERE, 10),
            lambda: store.write(99, Change([trial(0)])),
        ]
        for call in calls:
            with pytest.raises(StudyNotFoundError):
                call()

    def test_fields_of_a_study_change(self, store: Store, study: StudyRow) -> None:
        """Fields of a study change."""
        changed = {"state": "finished", "reason": "budget", "elapsed": 12.5, "searcher_state": {"n": 1}}
        store.write(study.id, Change(study=changed))
        assert store.study(study.id) == replace(study, **changed)  # type: ignore[arg-type]

    def test_a_field_that_a_study_does_not_have(self, store: Store, study: StudyRow) -> None:
        """A field that a study does not have."""
        with pytest.raises(StoreError, match="colour"):
            store.write(study.id, Change([trial(0)], study={"colour": "red"}))
        assert store.trials(study.id) == []

    # Trials and runs

    def test_trials_and_runs_come_back_as_they_were(self, store: Store, study: StudyRow) -> None:
        """Trials and runs come back as they were."""
        trials = [trial(0), trial(1, 0.5), trial(2, 0.75, feasible=False)]
        runs = [run(1), run(2, 1, RunState.PREEMPTED), run(2, 2)]
        store.write(study.id, Change(trials, runs))
        assert store.trials(study.id) == trials
        assert store.runs(study.id) == runs

    def test_figures_that_are_not_finite_come_back(self, store: Store, study: StudyRow) -> None:
        """Figures that are not finite come back."""
        odd = Observation(math.inf, 0.5, 1.0, False, metrics={"loss": math.nan, "low": -math.inf})
        why: dict[str, float | str] = {"expected_saving": math.nan, "expected_cost": math.inf}
        given = replace(trial(0, 1.0), observation=odd, proposal=Proposal(Configuration({"a": 1}), why=why))
        store.write(study.id, Change([given]))
        (found,) = store.trials(study.id)
        assert found.observation is not None
        assert repr(found.observation) == repr(odd)
        assert repr(found.proposal) == repr(given.proposal)

    def test_a_trial_and_a_run_are_replaced(self, store: Store, study: StudyRow) -> None:
        """A trial and a run are replaced."""
        store.write(study.id, Change([trial(0)], [run(0, state=RunState.EXECUTING)]))
        store.write(study.id, Change([trial(0, 0.5)], [run(0)]))
        assert store.trials(study.id) == [trial(0, 0.5)]
        assert store.runs(study.id) == [run(0)]

    def test_a_part_of_the_trials(self, store: Store, study: StudyRow) -> None:
        """A part of the trials."""
        store.write(study.id, Change([trial(number) for number in (2, 0, 1, 3)]))
        assert [t.number for t in store.trials(study.id)] == [0, 1, 2, 3]
        assert [t.number for t in store.trials(study.id, since=2)] == [2, 3]
        assert [t.number for t in store.trials(study.id, since=1, limit=2)] == [1, 2]

    def test_a_part_of_the_runs(self, store: Store, study: StudyRow) -> None:
        """A part of the runs."""
        runs = [run(0), run(1, 1, RunState.PREEMPTED), run(1, 2, RunState.EXECUTING), run(2, 1, RunState.PENDING)]
        store.write(study.id, Change([trial(number) for number in range(3)], runs))
        assert store.runs(study.id, open_only=True) == runs[2:]
        assert store.runs(study.id, trial=1) == runs[1:3]
        assert store.runs(study.id, trial=1, open_only=True) == runs[2:3]
        assert store.runs(study.id, trial=7) == []

    def test_studies_do_not_see_each_other(self, store: Store, study: StudyRow) -> None:
        """Studies do not see each other."""
        other = store.create_study(study_row("other"))
        store.write(study.id, Change([trial(0, 0.5)], [run(0)]))
        store.write(other.id, Change([trial(0)], [run(0, cost=9.0)]))
        assert store.trials(study.id) == [trial(0, 0.5)]
        assert store.runs(study.id) == [run(0)]
        assert store.trials(other.id) == [trial(0)]

    def test_a_write_is_all_or_nothing(self, store: Store, study: StudyRow) -> None:
        """A write is all or nothing."""
        orphan = replace(run(0), run_id="orphan", trial=5)
        with pytest.raises(StoreError):
            store.write(study.id, Change([trial(0, 0.5)], [run(0), orphan], {"state": "finished"}))
        assert store.trials(study.id) == []
        assert store.runs(study.id) == []
        assert store.study(study.id) == study

    def test_the_columns_of_a_study(self, store: Store, study: StudyRow) -> None:
        """The columns of a study."""
        given = [trial(1, 0.5), trial(0)]
        store.write(study.id, Change(given))
        columns = store.columns(study.id)
        assert list(columns["number"]) == [0, 1]
        assert list(columns["state"]) == ["pending", "succeeded"]
        assert list(columns["key"]) == [given[1].key, given[0].key]
        assert list(columns["objective"]) == list(columns["cost"]) == [None, 0.5]
        assert list(columns["runtime"]) == [None, 61.5]
        assert list(columns["feasible"]) == [None, True]
        assert list(columns["censored"]) == [None, False]
        assert list(columns["spent"]) == [0.0, 0.5]
        assert list(columns["fidelity"]) == [1.0, 1.0]
        assert list(columns["price_per_hour"]) == [0.08925, 0.08925]
        assert list(columns["nodes"]) == [3, 3]
        assert list(columns["provider"]) == ["aws", "aws"]
        assert list(columns["instance_type"]) == ["c7i.large", "c7i.large"]
        assert list(columns["created"]) == [given[1].created, given[0].created]
        assert list(columns["started"]) == [None, given[0].started]
        assert list(columns["ended"]) == [None, given[0].ended]
        assert [json.loads(text) for text in columns["configuration"]] == [
            dict(given[1].configuration),
            dict(given[0].configuration),
        ]
        assert len(columns) == 18

    def test_the_columns_of_an_empty_study(self, store: Store, study: StudyRow) -> None:
        """The columns of an empty study."""
        columns = store.columns(study.id)
        assert len(columns) == 18
        assert all(len(values) == 0 for values in columns.values())

    # Summaries

    def test_a_summary_counts_and_adds_up(self, store: Store, study: StudyRow) -> None:
        """A summary counts and adds up."""
        runs = [run(0, cost=0.1), run(1, cost=0.2), run(2, state=RunState.EXECUTING, cost=0.4)]
        store.write(study.id, Change([trial(0, 0.1), trial(1, 0.2), trial(2)], runs))
        (summary,) = store.summaries()
        assert summary.study == study
        assert dict(summary.counts) == {"succeeded": 2, "pending": 1}
        assert summary.spent == 0.7
        assert summary.reserved == 0.5

    def test_the_summary_of_an_empty_study(self, store: Store, study: StudyRow) -> None:
        """The summary of an empty study."""
        (summary,) = store.summaries()
        assert (dict(summary.counts), summary.spent, summary.reserved, summary.best) == ({}, 0.0, 0.0, None)
        assert (summary.running_since, summary.holder) == (None, "")

    @pytest.mark.parametrize(
        ("objective", "best"),
        [
            ({"metric": "cost", "goal": "minimise"}, 1),
            ({"metric": "speed", "goal": "maximise"}, 2),
            ({"maximise": "speed"}, 2),
            ({"minimise": "cost"}, 1),
            (None, 1),
        ],
    )
    def test_the_best_trial_is_feasible_and_follows_the_goal(
        self, store: Store, objective: dict[str, str] | None, best: int
    ) -> None:
        """The best trial is feasible and follows the goal."""
        study = store.create_study(study_row(spec={"objective": objective}))
        ended = [trial(0, 0.1, feasible=False), trial(1, 0.5), trial(2, 0.75), trial(3, 9.0, feasible=False)]
        observation = Observation(math.nan, 1.0, 1.0, True)
        store.write(study.id, Change([*ended, replace(trial(4, 1.0), observation=observation), trial(5)]))
        (summary,) = store.summaries([study.id])
        assert summary.best == ended[best]

    def test_an_aborted_trial_is_never_the_best(self, store: Store, study: StudyRow) -> None:
        """An aborted trial is never the best."""
        aborted = replace(trial(0, 0.1), state=TrialState.ABORTED)
        store.write(study.id, Change([aborted, trial(1, 0.5)]))
        assert store.summaries()[0].best == trial(1, 0.5)

    def test_of_equals_the_shortest_run_then_the_first_is_the_best(self, store: Store, study: StudyRow) -> None:
        """Of equal objectives the one with the shortest run time is the best, and of those the first."""
        store.write(study.id, Change([trial(2, 0.5), trial(1, 0.5)]))
        assert store.summaries()[0].best == trial(1, 0.5)
        quick = replace(trial(3, 0.5), observation=Observation(0.5, 0.5, 1.0, True))
        store.write(study.id, Change([quick]))
        assert store.summaries()[0].best == quick

    def test_a_trial_on_a_part_of_the_input_is_never_the_best(self, store: Store, study: StudyRow) -> None:
        """A trial on a part of the input is never the best, and the columns tell it from the others."""
        part = replace(trial(0, 0.1), proposal=replace(trial(0, 0.1).proposal, fidelity=0.25))
        store.write(study.id, Change([part, trial(1, 0.5)]))
        assert store.summaries()[0].best == trial(1, 0.5)
        assert list(store.columns(study.id)["fidelity"]) == [0.25, 1.0]

    def test_summaries_of_some_studies(self, store: Store) -> None:
        """Summaries of some studies."""
        made = [store.create_study(study_row(name)) for name in "abc"]
        assert [s.study.name for s in store.summaries()] == ["c", "b", "a"]
        assert [s.study.name for s in store.summaries([made[0].id, made[2].id])] == ["c", "a"]
        assert store.summaries([]) == []

    def test_a_list_of_studies_says_who_holds_them(self, store: Store) -> None:
        """A list of studies has the newest first, and says who holds which."""
        assert store.list_studies() == []
        made = [store.create_study(replace(study_row(name), owner=f"tw{name}")) for name in "aba"]
        store.hold(made[1].id, ELSEWHERE, 60)
        store.hold(made[0].id, ELSEWHERE, -1)
        lines = [StudyLine(each.id, each.name, "open", each.owner) for each in made]
        lines[1] = replace(lines[1], holder="another-host.example:17")
        assert store.list_studies() == lines[::-1]
        assert store.list_studies("a") == [lines[2], lines[0]]
        assert store.list_studies(limit=2) == [lines[2], lines[1]]
        assert store.list_studies("c") == []

    def test_totals_are_over_all_studies(self, store: Store, study: StudyRow) -> None:
        """Totals count studies by the state that people see, and add up what all runs have cost."""
        empty = store.create_study(study_row("b"))

        def totals(unpaid: bool = False) -> StudyTotals:
            return store.totals(lambda spec: unpaid)

        assert totals() == StudyTotals({"open": 2}, 0.0, 0.0)
        store.write(study.id, Change([trial(0)], [run(0, cost=0.25), run(0, 2, RunState.EXECUTING, cost=0.5)]))
        assert totals() == StudyTotals({"open": 1, "stopped": 1}, 0.75, 0.5)
        token = store.hold(empty.id, ELSEWHERE, 60)
        assert totals().states == {"running": 1, "stopped": 1}
        store.write(empty.id, Change([trial(0)], [run(0, cost=1.0)], study={"state": "finished"}), token)
        store.release(empty.id, token)
        assert totals() == StudyTotals({"finished": 1, "stopped": 1}, 1.75, 0.5)
        assert totals(unpaid=True) == StudyTotals({"finished": 1, "stopped": 1}, 0.0, 0.0, 1.75)

    # Holds

    def test_only_one_process_holds_a_study(self, store: Store, study: StudyRow) -> None:
        """Only one process holds a study."""
        store.hold(study.id, ELSEWHERE, 60)
        with pytest.raises(StudyBusyError, match=r"another-host\.example:17"):
            store.hold(study.id, "third-host.example:18:1.00", 60)
        store.hold(study.id, "third-host.example:18:1.00", 60, force=True)
        assert store.summaries()[0].holder == "third-host.example:18"

    def test_a_released_study_is_free(self, store: Store, study: StudyRow) -> None:
        """A released study is free."""
        store.release(study.id, store.hold(study.id, ELSEWHERE, 60))
        store.hold(study.id, "third-host.example:18:1.00", 60)

    def test_a_hold_runs_out(self, store: Store, study: StudyRow) -> None:
        """A hold runs out."""
        lost = store.hold(study.id, ELSEWHERE, -1)
        token = store.hold(study.id, "third-host.example:18:1.00", 60)
        with pytest.raises(StudyBusyError):
            store.renew(study.id, lost, 60)
        store.release(study.id, lost)
        store.renew(study.id, token, 60)

    def test_a_renewed_hold_does_not_run_out(self, store: Store, study: StudyRow) -> None:
        """A renewed hold does not run out."""
        token = store.hold(study.id, ELSEWHERE, -1)
        store.renew(study.id, token, 60)
        with pytest.raises(StudyBusyError):
            store.hold(study.id, "third-host.example:18:1.00", 60)

    def test_a_dead_process_of_this_host_holds_nothing(self, store: Store, study: StudyRow) -> None:
        """A dead process of this host holds nothing."""
        store.hold(study.id, process_of_this_host(2**22 + 1, 1.0), 3600)
        store.hold(study.id, ELSEWHERE, 60)

    def test_a_process_number_that_is_used_again_holds_nothing(self, store: Store, study: StudyRow) -> None:
        """A process number that is used again holds nothing."""
        store.hold(study.id, process_of_this_host(os.getpid(), 12345.0), 3600)
        store.hold(study.id, ELSEWHERE, 60)

    def test_a_write_needs_the_hold(self, store: Store, study: StudyRow) -> None:
        """A write needs the hold."""
        lost = store.hold(study.id, ELSEWHERE, -1)
        store.write(study.id, Change([trial(0)]), lost)
        token = store.hold(study.id, "third-host.example:18:1.00", 60)
        with pytest.raises(StudyBusyError, match="no longer"):
            store.write(study.id, Change([trial(1)], study={"state": "finished"}), lost)
        store.write(study.id, Change([trial(2)]), token)
        assert [t.number for t in store.trials(study.id)] == [0, 2]
        assert store.study(study.id).state == "open"

    def test_a_summary_shows_who_holds_the_study(self, store: Store, study: StudyRow) -> None:
        """A summary shows who holds the study."""
        token = store.hold(study.id, ELSEWHERE, 60)
        (summary,) = store.summaries()
        assert summary.holder == "another-host.example:17"
        assert summary.running_since is not None
        store.release(study.id, token)
        assert store.summaries()[0].holder == ""

    # Records

    def test_records_go_to_another_study_and_back(self, store: Store, study: StudyRow) -> None:
        """Records go to another study and back."""
        odd = replace(trial(2, 1.0), observation=Observation(None, 1.0, math.inf, False, metrics={"x": math.nan}))
        runs = [run(0), run(1, 1, RunState.PREEMPTED), run(1, 2), run(2)]
        store.write(study.id, Change([trial(0, 0.5), trial(1, 0.75), odd], runs))
        records = json.loads(json.dumps(list(store.export_records(study.id)), allow_nan=False))
        other = store.create_study(study_row("other"))
        assert store.import_records(other, iter(records)) == ImportedTrials(other, 3)
        assert repr(store.trials(other.id)) == repr(store.trials(study.id))
        assert store.runs(other.id) == runs
        assert list(store.export_records(other.id)) == records

    def test_a_study_is_made_with_its_records(self, store: Store, study: StudyRow) -> None:
        """A study is made with its records."""
        store.write(study.id, Change([trial(0, 0.5), trial(1, 0.75)], [run(0), run(1)]))
        records = list(store.export_records(study.id))
        done = store.import_records(study_row("new", state="finished", elapsed=9.0), iter(records))
        assert (done.new, store.study(done.study.id)) == (2, done.study)
        assert (done.study.name, done.study.state, done.study.elapsed) == ("new", "finished", 9.0)
        assert list(store.export_records(done.study.id)) == records

    def test_a_trial_whose_number_is_taken_gets_another_one(self, store: Store, study: StudyRow) -> None:
        """A trial whose number is taken gets another one, and is known by its runs from then on."""
        store.write(study.id, Change([trial(0, 0.5), trial(1, 0.75)], [run(0), run(1)]))
        records = list(store.export_records(study.id))
        other = store.create_study(study_row("other"))
        mine = replace(run(0), run_id="mine")
        store.write(other.id, Change([trial(0, 9.0)], [mine]))
        assert store.import_records(other, iter(records)) == ImportedTrials(other, 2, renumbered={0: 2})
        assert store.trials(other.id) == [trial(0, 9.0), trial(1, 0.75), replace(trial(0, 0.5), number=2)]
        assert store.runs(other.id) == [mine, run(1), replace(run(0), trial=2)]
        assert store.import_records(other, iter(records)) == ImportedTrials(other, 0, known=2)

    def test_a_trial_that_has_not_ended_is_not_imported(self, store: Store, study: StudyRow) -> None:
        """A trial that has not ended is not imported."""
        store.write(study.id, Change([trial(0)], [run(0, state=RunState.EXECUTING)]))
        records = list(store.export_records(study.id))
        other = store.create_study(study_row("other"))
        assert store.import_records(other, iter(records)) == ImportedTrials(other, 0, unfinished=1)
        assert store.runs(other.id) == []

    def test_a_bad_record_and_nothing_is_imported(self, store: Store, study: StudyRow) -> None:
        """A bad record and nothing is imported, nor is the study made."""
        store.write(study.id, Change([trial(0, 0.5), trial(1, 0.75)], [run(0), run(1)]))
        good, bad = store.export_records(study.id)
        other = store.create_study(study_row("other"))
        for taker in (other, study_row("new")):
            with pytest.raises(RecordError, match="record 2"):
                store.import_records(taker, iter([good, {**bad, "state": "splendid"}]))
        assert store.find_studies("new") == []
        assert store.trials(other.id) == []
