"""A run of a workflow as the store has it: its plan, its journal put together, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tradewind.errors import InputError, RecordError
from tradewind.store.base import Store, StudyRow, StudySummary
from tradewind.store.workflows.workflow_store import WorkflowStore
from tradewind.workflow.execution.journal import AttemptRecord, RunHistory
from tradewind.workflow.execution.results import history_gantt, results_of
from tradewind.workflow.execution.run_folder import WorkflowRunFolder
from tradewind.workflow.files import Plan, parse_plan


@dataclass
class StoredRun:
    """A run in the store.

    Attributes:
        summary: Its study, and what its machines have cost.
        folder: The run's folder.
        text: The plan as it is stored.
        plan: The plan.
        history: Its journal, put together.
        records: Number of the journal's records that `history` has.
    """

    summary: StudySummary
    folder: WorkflowRunFolder
    text: str
    plan: Plan
    history: RunHistory = field(default_factory=RunHistory)
    records: int = 0

    @classmethod
    def load(cls, store: Store, study_id: int) -> StoredRun:
        """Read a run.

        Raises:
            StudyNotFoundError: It is none.
            RecordError: Something in it is wrong.
        """
        with closing(WorkflowStore(store.url)) as rows:
            row = rows.run(study_id)
            plan = parse_plan(row.plan.encode(), f"the plan of study {study_id}")
            run = cls(store.summaries([study_id])[0], WorkflowRunFolder(Path(row.folder)), row.plan, plan)
            run.take(rows)
        return run

    def take(self, rows: WorkflowStore) -> None:
        """Read what was written since.

        Raises:
            RecordError: A record is none.
        """
        for record in rows.records(self.study.id, since=self.records):
            try:
                self.history.take(record)
            except (KeyError, TypeError):
                what = f"record {self.records} of the run is no record of a journal"
                raise RecordError(what, file=f"study {self.study.id}") from None
            self.records += 1

    @property
    def study(self) -> StudyRow:
        """The run's study."""
        return self.summary.study

    @property
    def facts(self) -> Mapping[str, Any]:
        """Facts in its study: ``planner``, ``tasks``, ``machines``, ``folder``, ``runner``."""
        found: Mapping[str, Any] = self.study.spec["workflow"]
        return found

    @property
    def engine(self) -> str:
        """Name of the engine of its last session."""
        return str(self.facts["runner"]["use"])

    @property
    def ending(self) -> str:
        """``running`` while a process carries it out, else the way that its last session ended."""
        if self.summary.holder:
            return "running"
        return self.history.ending or "interrupted"

    @property
    def imported(self) -> bool:
        """True for a run that came from another store, which has its machines."""
        return not self.study.owner

    def results(self, now: float) -> dict[str, Any]:
        """Make the document of planned and actual times, as ``results.json`` has it.

        Args:
            now: The time, in seconds since the epoch: machines that are there are paid until then.
        """
        return results_of(self.plan, self.history, engine=self.engine, ending=self.ending, now=now)

    def gantt(self, now: float) -> dict[str, Any]:
        """Make the document of the chart of planned and actual times; tasks that run end now.

        Args:
            now: The time, in seconds since the epoch.
        """
        until = now if self.summary.holder else self.history.last
        return history_gantt(self.plan, self.history, engine=self.engine, ending=self.ending, now=until)

    def attempts(self, task: str) -> list[AttemptRecord]:
        """The attempts at a task, in order.

        Raises:
            InputError: The workflow has no such task.
        """
        if task not in self.plan.flow.index:
            from tradewind.utils.suggestions import closest_match

            near = closest_match(task, list(self.plan.flow.index))
            hint = f"did you mean {near!r}?" if near else "tradewind status --all lists its tasks"
            raise InputError(f"there is no task {task!r} in run {self.study.name}", hint=hint)
        return [each for each in self.history.attempts.values() if each.task == task]
