"""Decides which trials of a file of records a study takes, and under which numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tradewind.errors import RecordError
from tradewind.problem import Trial
from tradewind.store.studies.records import TrialRecord

_MOST = 2**31 - 1
"""The largest number of a trial."""


class RecordIntake:
    """Decides which of some records are new to a study.

    Args:
        runs: The runs that the study has, as pairs of run id and trial number.
        trials: The trials that it has.

    Attributes:
        new: Number of records that are to be inserted, so far.
        known: Number of records whose trials the study has.
        unfinished: Number of records whose trials had not ended.
        renumbered: New numbers by old ones, once `renumber` was called.
    """

    def __init__(self, runs: Iterable[tuple[str, int]], trials: Iterable[Trial]) -> None:
        self._runs = dict(runs)
        ran = set(self._runs.values())
        self._mine: set[str] = set()
        self._numbers: set[int] = set()
        self._keys: dict[int, str] = {}
        self._without_runs: set[str] = set()
        for trial in trials:
            self._numbers.add(trial.number)
            self._keys[trial.number] = trial.key
            if trial.number not in ran:
                self._without_runs.add(_content(trial))
        self._colliding: list[TrialRecord] = []
        self.new = self.known = self.unfinished = 0
        self.renumbered: dict[int, int] = {}

    def take(self, records: Sequence[TrialRecord]) -> list[TrialRecord]:
        """Choose the records to insert now; those whose number is taken are kept for `renumber`.

        Raises:
            RecordError: A run stands in two trials.
        """
        found = []
        for record in records:
            if not record.trial.state.ended:
                self.unfinished += 1
            elif self._has(record):
                self.known += 1
            elif record.trial.number in self._numbers:
                self._colliding.append(record)
            else:
                self._numbers.add(record.trial.number)
                found.append(record)
        self.new += len(found)
        return found

    def renumber(self) -> list[TrialRecord]:
        """Give the records whose number was taken the numbers after all others.

        Raises:
            RecordError: There are no numbers left.
        """
        following = max(self._numbers, default=-1) + 1
        if self._colliding and following + len(self._colliding) > _MOST:
            raise RecordError(f"no number is left for trial {self._colliding[0].trial.number}, whose own one is taken")
        found = []
        for number, record in enumerate(sorted(self._colliding, key=lambda one: one.trial.number), start=following):
            self.renumbered[record.trial.number] = number
            runs = tuple(replace(run, trial=number) for run in record.runs)
            found.append(TrialRecord(record.place, replace(record.trial, number=number), runs))
        self.new += len(found)
        return found

    def _has(self, record: TrialRecord) -> bool:
        """True for a trial of the study: its runs are there, or all that it has where it was never run."""
        if not record.runs:
            return _content(record.trial) in self._without_runs
        numbers = {self._runs.get(run.run_id) for run in record.runs}
        if len(numbers) == 1 and (number := numbers.pop()) is not None and self._keys.get(number) == record.trial.key:
            return True
        for run in record.runs:
            if run.run_id in self._runs or run.run_id in self._mine:
                raise RecordError(f"record {record.place}: the run {run.run_id!r} belongs to another trial already")
            self._mine.add(run.run_id)
        return False


def _content(trial: Trial) -> str:
    """Contents of a trial but its number; as a text, since NaN equals nothing."""
    return repr(replace(trial, number=0))
