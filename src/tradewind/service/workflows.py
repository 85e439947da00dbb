"""Gantt charts of workflows that requests carry out: the plan and the run, task by task."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from tradewind.errors import InputError, NotFoundError, WorkflowError
from tradewind.reporting.workflow.layout import page_document
from tradewind.service.accounts.identity import Principal

if TYPE_CHECKING:
    from tradewind.service.requests.request_service import RequestService
    from tradewind.store.base import Store

JOURNAL, RESULTS = "journal.jsonl", "results.json"

_MOST_BYTES = 64 << 20
_MOST_CORES = 4096
_MOST_TASKS = 200_000
_WRONG = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)


class WorkflowChartService:
    """Plans and runs of workflows among the files of requests, and runs in the store.

    Args:
        requests: The service of requests, which decides who may read a file.
        store: The store of the runs.
    """

    def __init__(self, requests: RequestService, store: Store) -> None:
        self._requests, self._store = requests, store

    def stored(self, study_id: int) -> dict[str, Any]:
        """Build the chart of a run in the store, while it goes on as well.

        Args:
            study_id: Its study, which the user may see.

        Returns:
            As `gantt`; ``path`` is the name of the run.

        Raises:
            StudyNotFoundError: It is no run of a workflow.
            WorkflowError: Something in it is wrong.
        """
        from tradewind.workflow.execution.stored.stored_run import StoredRun

        run = StoredRun.load(self._store, study_id)
        name = f"the plan of study {study_id}"
        critical = _critical(run.text.encode(), name)
        found = _checked(lambda: _marked(run.gantt(time.time()), critical), name)
        goes_on = run.ending == "running"
        running = sorted(each.task for each in run.history.open()) if goes_on else []
        return {**found, "ending": run.ending, "running": running, "path": run.study.name}

    def found(self, who: Principal, number: int) -> list[str]:
        """List the plans, results and journals among a request's files, by path; of one run only what says most.

        Raises:
            NotFoundError: There is no such request, or it is another tenant's.
        """
        paths = [PurePosixPath(entry.path) for entry in self._requests.files(who, number)]
        runs = {path.parent for path in paths if path.name in (JOURNAL, RESULTS)}
        ran = {_plan_beside(folder) for folder in runs}
        shown = [_best(folder, paths) for folder in sorted(runs)]
        shown += [path for path in paths if path.suffix == ".json" and path.name != RESULTS and path not in ran]
        return [
            str(path)
            for path in shown
            if path.suffix != ".json" or path.name == RESULTS or self._is_plan(who, number, path)
        ]

    def gantt(self, who: Principal, number: int, path: str) -> dict[str, Any]:
        """Build the chart of a workflow's plan and run.

        Args:
            who: The user who asks.
            number: The request.
            path: A plan, results or journal among its files, as `found` names it.

        Returns:
            `tradewind.reporting.workflow.layout.page_document` with ``ending`` (how the run ended; ``running`` while
            it goes on, empty for a plan that was not run), ``running`` (tasks that run now) and ``path``.

        Raises:
            NotFoundError: There is no such request or file, or it is another tenant's.
            WorkflowError: It is none of these, or something in it is wrong.
        """
        name = PurePosixPath(path)
        text = self._read(who, number, path)
        if name.name == JOURNAL:
            plan = str(_plan_beside(name.parent))
            goes_on = not self._requests.get(who, number).over
            found = _running(self._read(who, number, plan), plan, text, path, goes_on=goes_on)
        else:
            plan = str(_plan_beside(name.parent)) if name.name == RESULTS else ""
            found = draw_chart(
                text, path, self._read(who, number, plan) if plan and self._has(who, number, plan) else b""
            )
        return {**found, "path": path}

    def _read(self, who: Principal, number: int, path: str) -> bytes:
        with self._requests.open(who, number, path) as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise WorkflowError(f"it is larger than {_MOST_BYTES >> 20} MiB", file=path)
        return text

    def _has(self, who: Principal, number: int, path: str) -> bool:
        try:
            self._requests.open(who, number, path).close()
        except NotFoundError:
            return False
        return True

    def _is_plan(self, who: Principal, number: int, path: PurePosixPath) -> bool:
        from tradewind.workflow.schedule import FORMAT

        try:
            with self._requests.open(who, number, str(path)) as file:
                return f'"format": "{FORMAT}"'.encode() in file.read(200)
        except NotFoundError:
            return False


def draw_chart(text: bytes, file: str, plan: bytes = b"") -> dict[str, Any]:
    """Draw the chart of a plan, or of the results of a run.

    Args:
        text: Content of the file.
        file: Name of the file, for messages.
        plan: The plan of a run, where it is known: results do not have its critical path.

    Raises:
        WorkflowError: It is neither, or something in it is wrong.
    """
    from tradewind.workflow.execution import results
    from tradewind.workflow.schedule import FORMAT

    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WorkflowError(f"it is no JSON: {error}", file=file) from None
    kind = document.get("format") if isinstance(document, dict) else None
    if kind == FORMAT:
        return _planned(text, file)
    if kind == results.FORMAT:
        ending = str(document.get("ending", ""))
        critical = _critical(plan, file) if plan else frozenset()

        def make() -> dict[str, Any]:
            return _marked(results.results_gantt(document), critical)

        return {**_checked(make, file), "ending": ending, "running": []}
    hint = "tradewind workflow plan writes a plan, tradewind workflow run the results"
    raise WorkflowError("it is neither a plan nor the results of a run", file=file, hint=hint)


def _planned(text: bytes, file: str) -> dict[str, Any]:
    from tradewind.workflow.diagrams import gantt_document
    from tradewind.workflow.files import parse_plan

    plan = parse_plan(text, file)

    def make() -> dict[str, Any]:
        return gantt_document(plan.flow, plan.platform, plan.schedule, title=f"{plan.flow.name} by {plan.planner}")

    return {**_checked(make, file), "ending": "", "running": []}


def _running(plan_text: bytes, plan_file: str, text: bytes, file: str, *, goes_on: bool) -> dict[str, Any]:
    """Draw the chart of a run that goes on, or was ended before it wrote its results."""
    from tradewind.workflow.execution import results
    from tradewind.workflow.execution.journal import read_history
    from tradewind.workflow.files import parse_plan

    plan, history = parse_plan(plan_text, plan_file), read_history(text, file)
    now = time.time() if goes_on else history.last
    open_ = {each.task for each in history.open()}

    def make() -> dict[str, Any]:
        document = results.history_gantt(plan, history, engine="its machines", ending="running", now=now)
        return _marked(document, _critical(plan_text, plan_file))

    ending, running = ("running", sorted(open_)) if goes_on else ("interrupted", [])
    return {**_checked(make, file), "ending": ending, "running": running}


def _critical(plan_text: bytes, file: str) -> frozenset[str]:
    """Find the tasks of a plan's critical path."""
    from tradewind.workflow.diagrams import critical_chain
    from tradewind.workflow.files import parse_plan

    plan = parse_plan(plan_text, file)
    return frozenset(plan.flow.tasks[place].id for place in critical_chain(plan.flow, plan.schedule))


def _marked(document: dict[str, Any], critical: frozenset[str]) -> dict[str, Any]:
    for row in document["tasks"]:
        row["critical"] = row["task"] in critical
    return document


def _checked(make: Any, file: str) -> dict[str, Any]:
    """Lay out a document of somebody's file: whatever is in it, the answer is a chart or an error of one line."""
    try:
        document: Mapping[str, Any] = make()
        if len(document["tasks"]) > _MOST_TASKS:
            raise WorkflowError(f"it has more than {_MOST_TASKS:,} tasks, which no page shows", file=file)
        if any(not 1 <= int(task.get("cores") or 1) <= _MOST_CORES for task in document["tasks"]):
            raise WorkflowError(f"a task has no cores, or more than {_MOST_CORES:,}", file=file)
        found = page_document(document)
        json.dumps(found, allow_nan=False)
    except WorkflowError:
        raise
    except InputError as error:
        raise WorkflowError(error.message, file=file) from None
    except _WRONG as error:
        raise WorkflowError(
            f"it is not as tradewind workflow run writes it: {type(error).__name__} {str(error)[:80]}", file=file
        ) from None
    return found


def _plan_beside(folder: PurePosixPath) -> PurePosixPath:
    """Find the plan of a run's folder: ``plan.json`` beside ``plan.run``."""
    return folder.with_name(folder.name.removesuffix(".run") + ".json") if folder.name else PurePosixPath("plan.json")


def _best(folder: PurePosixPath, paths: list[PurePosixPath]) -> PurePosixPath:
    done = folder / RESULTS
    return done if done in paths else folder / JOURNAL
