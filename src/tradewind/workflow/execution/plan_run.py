"""Carries out a plan in a folder, or goes on with it: what ``tradewind workflow run`` does, for programs."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tradewind.deployer.provisioner.base import Provisioner
from tradewind.deployer.runner.base import Runner
from tradewind.errors import TradewindError, WorkflowError
from tradewind.problem import Gang
from tradewind.utils.atomic_files import remove_empty
from tradewind.workflow.execution import recovery
from tradewind.workflow.execution.controller import Controller
from tradewind.workflow.execution.events import ExecutionEnding
from tradewind.workflow.execution.journal import FileJournal, JournalRecord, RunHistory, RunJournal
from tradewind.workflow.execution.machines.engine import PilotEngine, plain_provisioner
from tradewind.workflow.execution.machines.limits import check_budget
from tradewind.workflow.execution.machines.rows import FileRows, RunRows
from tradewind.workflow.execution.options import ExecutionOptions, ExecutionProgress
from tradewind.workflow.execution.pilots import PilotSettings
from tradewind.workflow.execution.replanning import check_online
from tradewind.workflow.execution.results import results_of
from tradewind.workflow.execution.run_folder import WorkflowRunFolder, check_commands, check_names, check_subworkflows
from tradewind.workflow.files import Plan, plan_document, write_text
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.platform import needs_of_slot


@dataclass(frozen=True)
class ExecutionResult:
    """A plan that was carried out, as far as it was.

    Attributes:
        ending: The way that it ended.
        results: The document that is also in ``results.json``.
        failures: The tasks that failed for good, with the reason of each.
        reason: Reason that what is left cannot be planned, or that the last machine is gone, where it ended for that.
        limit: The limit of money or time that ended it, or None.
    """

    ending: ExecutionEnding
    results: dict[str, Any]
    failures: dict[str, str]
    reason: str = ""
    limit: TradewindError | None = None


def execute_plan(
    plan: Plan,
    folder: Path,
    runner: Runner,
    *,
    options: ExecutionOptions,
    planner: Planner,
    terms: PilotSettings | None = None,
    provisioner: Provisioner | None = None,
    fresh: bool = False,
    dismiss: bool = False,
    journal: RunJournal | None = None,
    watch: Callable[[ExecutionProgress], None] = lambda progress: None,
    wanted: Callable[[], bool] = lambda: True,
) -> ExecutionResult:
    """Carry out a plan, or go on with it where an earlier call in the same folder was ended.

    Args:
        plan: The plan.
        folder: The run's folder; machines whose runner opens no channel to them must see it under this name.
        runner: Gives the machines; see `WorkflowRunFolder` for what it keeps there.
        options: Settings of the run.
        planner: Plans what is left when a machine or a task is lost.
        terms: Settings of the pilots.
        provisioner: Makes the machines; None where they are there already.
        fresh: Begin anew, whatever has been done there.
        dismiss: End machines of an earlier call that ``runner`` does not know; what runs there is run again.
        journal: Its journal, which is closed at the end; ``journal.jsonl`` in the folder without it.
        watch: Called with the progress some times a second.
        wanted: Returns False once the run is to stop.

    Raises:
        WorkflowError: The plan cannot be carried out like this, or the folder is of another one; or machines of an
            earlier call may still work there that ``runner`` does not know.
        PluginError: The planner is to decide during the run, and does not.
        StudyBusyError: Another process carries it out.
        DeployError: No machine could be had.
        BudgetError: Its machines cost more than they may.
        NoOfferError: One of them cannot be had.
    """
    place = WorkflowRunFolder(folder.absolute())
    journal, made = (journal, []) if journal is not None else _file_journal(place, lenient=fresh)
    try:
        if options.online:
            check_online(planner)
        gpus = any(task.gpus and task.command for task in plan.flow.tasks)
        terms = replace(terms or PilotSettings(), gpus=gpus, gang=_gang(plan, options, gpus=gpus))
        rows = journal if isinstance(journal, RunRows) else FileRows(place.rows)
        engine = PilotEngine(provisioner or plain_provisioner(runner.data_folder), runner, rows)
        if not fresh:
            _check_same(plan, options, journal, place)
        _check(plan, options, engine, terms, journal, place, fresh=fresh)
        if fresh:
            _forget(journal, place, engine, plan, dismissed=dismiss)
        _end_orphans(plan, place, journal, engine, terms, dismissed=dismiss)
        controller = Controller(plan, place, journal, engine, terms, options, planner, plan_digest(plan), watch, wanted)
        return _run(plan, place, controller, engine, journal)
    finally:
        journal.close()
        remove_empty(made)


def _gang(plan: Plan, options: ExecutionOptions, *, gpus: bool) -> Gang | None:
    """The amounts of all machines together; None where all tasks only sleep.

    Each machine waits for what others do, so that two runs which had half of this machine each would wait for ever.
    """
    if not any(task.command for task in plan.flow.tasks):
        return None
    places = range(len(plan.platform.vms)) if options.online else sorted(set(map(int, plan.schedule.vm)))
    vms, each = [plan.platform.vms[place] for place in places], needs_of_slot(plan.flow)
    memory = [vm.slots * each if vm.memory_bytes is None else min(vm.slots * each, vm.memory_bytes) for vm in vms]
    devices = sum(vm.gpus for vm in vms) if gpus else 0
    return Gang("", plan.flow.name, float(sum(vm.slots for vm in vms)), sum(memory), devices)


def _end_orphans(
    plan: Plan,
    place: WorkflowRunFolder,
    journal: RunJournal,
    engine: PilotEngine,
    terms: PilotSettings,
    *,
    dismissed: bool,
) -> None:
    """End machines of earlier sessions that this one does not know, and say so in the journal."""
    names = [vm.name for vm in plan.platform.vms]
    history = _read_journal(journal)
    gone = recovery.end_orphan_pilots(place, history, engine, names, dismissed=dismissed, linger=terms.linger)
    journal.records += journal.write(*gone)


def _run(
    plan: Plan, place: WorkflowRunFolder, controller: Controller, engine: PilotEngine, journal: RunJournal
) -> ExecutionResult:
    """Run it, and write the results into its folder."""
    ending = controller.run()
    results = results_of(plan, controller.history, engine=engine.name, ending=ending.value, now=time.time())
    write_text(place.results, json.dumps(results, indent=1) + "\n")
    journal.finish(ending.value, controller.history.worked)
    return ExecutionResult(ending, results, controller.failed, controller.reason, controller.limit)


def _file_journal(place: WorkflowRunFolder, *, lenient: bool) -> tuple[FileJournal, list[Path]]:
    """The journal in the folder, and the folders that were made for it."""
    made = place.make()
    if place.store_note.exists():
        hint = "tradewind workflow run goes on with it; without one, name another folder"
        raise WorkflowError(f"the run in {place.path} has its journal in a store", hint=hint)
    return FileJournal(place.journal, lenient=lenient), made


def _header(journal: RunJournal) -> JournalRecord | None:
    return next((record for record in journal.records if record["e"] == "run"), None)


def _read_journal(journal: RunJournal, *, lenient: bool = False) -> RunHistory:
    """Read the journal of earlier sessions; leniently, as far as it can be read."""
    history = RunHistory()
    with suppress(KeyError, TypeError) if lenient else nullcontext():
        for record in journal.records:
            history.take(record)
    return history


def _forget(
    journal: RunJournal, folder: WorkflowRunFolder, engine: PilotEngine, plan: Plan, *, dismissed: bool
) -> None:
    """Begin anew; machines of an earlier run that may still be there are given back first."""
    history = _read_journal(journal, lenient=True)
    if history.header is not None:
        recovery.cancel_pilots(engine, history.header["run"], plan.platform.billing)
        recovery.end_orphan_pilots(folder, history, engine, (), dismissed=dismissed, fresh=True)
    journal.clear()
    folder.clear()
    # A machine that still waits in a queue must not find the folder of a new one: no number is given twice.
    journal.records = journal.write(*({"e": "pilot", "vm": vm, "pilot": n} for vm, n in history.pilots.items()))


def plan_digest(plan: Plan) -> str:
    """Digest that identifies a plan, wherever its inputs are."""
    document = plan_document(replace(plan, folder=None))
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _check(
    plan: Plan,
    options: ExecutionOptions,
    engine: PilotEngine,
    terms: PilotSettings,
    journal: RunJournal,
    folder: WorkflowRunFolder,
    *,
    fresh: bool,
) -> None:
    """Check that a run can begin; what was done before it is removed only after that."""
    engine.check(plan.platform.vms, sorted(set(map(int, plan.schedule.vm))), terms.image)
    check_budget(plan.platform, plan.schedule, options)
    check_subworkflows(plan.flow)
    if not options.synthetic:
        check_commands(plan.flow)
    check_names(plan.flow)
    if fresh or _header(journal) is None:
        folder.require(plan.flow, options.inputs, only=range(len(plan.flow)), anew=fresh)


def _check_same(plan: Plan, options: ExecutionOptions, journal: RunJournal, folder: WorkflowRunFolder) -> None:
    """Check that the folder belongs to this plan."""
    header = _header(journal)
    if header is None:
        return
    if header["plan"] != plan_digest(plan):
        raise WorkflowError(
            f"{folder.path} has a run of another plan",
            hint="--fresh removes it, --folder names another folder",
        )
    if header["scale"] != options.scale:
        raise WorkflowError(
            f"the run in {folder.path} was begun with --scale {header['scale']:g}", hint="give it again, or --fresh"
        )
