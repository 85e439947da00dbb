"""Ends the machines of a workflow's run that nobody goes on with."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind import plugins
from tradewind.deployer.runner.base import ThisMachine
from tradewind.engine.cleanup.study_teardown import sweep_machines
from tradewind.errors import TradewindError
from tradewind.problem import Billing, Run, RunState, Trial
from tradewind.store.base import Change, Store, StudyRow

if TYPE_CHECKING:
    from tradewind.deployer.lifecycle.deployer import Deployer

NO_PROVISIONER = {"use": "none"}
"""Choice of a run whose engine has machines of its own."""


def end_machines(
    store: Store, study: StudyRow, data_folder: Path, token: str, chosen: Collection[str], reason: str
) -> tuple[list[str], list[str]]:
    """End some of the open machines of a run, with the tasks on them, and let their rows say so with what they cost.

    The run can be gone on with: its next session finds what the machines have left, and runs again what was lost.

    Args:
        store: Where it is kept.
        study: Its study.
        data_folder: Folder of runners and provisioners that have none of the run's.
        token: Of who holds the study.
        chosen: The ids of the machines' runs.
        reason: Why, in words, for the rows.

    Returns:
        What was given back, and what could not be, in words.
    """
    if not study.owner:  # its journal has no record: nothing was ever asked for
        return [], []
    rows = {run.run_id: run for run in store.runs(study.id, open_only=True)}
    runner = study.spec["workflow"]["runner"]
    host = study.spec["workflow"].get("host", socket.gethostname())
    if issubclass(plugins.load("runner", runner["use"]), ThisMachine) and host != socket.gethostname():
        return [], [f"its machines are processes of {host}: give the command there"] if chosen else []
    try:
        with contextlib.closing(_deployer(study, data_folder)) as deployer:
            words, problems = sweep_machines(deployer, set(rows) - set(chosen))
            now = deployer.clock.now()
    except TradewindError as error:
        return [], [str(error)]
    if not problems and chosen:
        prices = {trial.number: trial for trial in store.trials(study.id)}
        ended = [_ended(rows[run_id], prices[rows[run_id].trial], reason, now) for run_id in sorted(chosen)]
        trials = [_trial(prices[run.trial], run) for run in ended]
        store.write(study.id, Change(trials, ended), token)
    return words, problems


def workflow_parts(study: StudyRow) -> list[tuple[str, Mapping[str, Any]]]:
    """The parts that give the machines of a run: kind, and choice with ``use``, ``data_folder`` and settings."""
    facts = study.spec["workflow"]
    return [("runner", facts["runner"]), ("provisioner", facts.get("provisioner") or NO_PROVISIONER)]


def make_workflow_part(kind: str, choice: Mapping[str, Any], data_folder: Path) -> Any:
    """Make a part of `workflow_parts`."""
    settings = {key: value for key, value in choice.items() if key not in ("use", "data_folder")}
    return plugins.create(
        kind, str(choice["use"]), settings, data_folder=Path(choice.get("data_folder") or data_folder)
    )


def _deployer(study: StudyRow, data_folder: Path) -> Deployer:
    from tradewind.deployer.lifecycle.deployer import Deployer

    made = {kind: make_workflow_part(kind, choice, data_folder) for kind, choice in workflow_parts(study)}
    return Deployer(provisioner=made["provisioner"], runner=made["runner"], billing=Billing(), owner=study.owner)


def _ended(run: Run, trial: Trial, reason: str, now: float) -> Run:
    seconds = max(0.0, now - run.started) if run.started is not None else 0.0
    cost = run.cost or seconds / 3600.0 * trial.offer.hourly
    return replace(
        run, state=RunState.CANCELLED, ended=now, runtime=run.runtime or seconds, cost=cost, reserved=0.0, reason=reason
    )


def _trial(trial: Trial, run: Run) -> Trial:
    from tradewind.problem import TrialState

    return replace(trial, state=TrialState.SUCCEEDED, spent=trial.spent + run.cost, ended=run.ended)
