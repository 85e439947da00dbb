"""Snapshot of a running search, for displays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tradewind.engine.state_machine.early_stopping import estimated_savings
from tradewind.engine.state_machine.search_machine import SearchMachine
from tradewind.problem import Budget, Constraints, Machine, MachineParameters, Objective, Trial
from tradewind.utils.units import format_money


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """A trial on its way.

    Attributes:
        trial: The trial.
        stage: The run's state in words (``executing``).
        runtime: Seconds it has executed.
        cap_seconds: Seconds at which it will be cut short, or None.
        cost: USD, this run, so far.
        machines: Those that were made for it, or that it was given.
        ending: Why it is being ended, or empty.
        trouble: What keeps it from going on, as its row has it (``its machines are not given back yet: ...``).
    """

    trial: Trial
    stage: str
    runtime: float
    cap_seconds: float | None
    cost: float
    machines: Sequence[Machine] = ()
    ending: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class SearchSnapshot:
    """A running (or finished) search at one moment.

    Attributes:
        name: The study's name.
        searcher: The searcher's name.
        objective: What is wanted.
        constraints: What must hold.
        budget: What may be spent.
        size: Number of candidates, or None where they cannot be counted.
        counts: Ended trials by state.
        running: Trials on their way.
        best: The best feasible trial so far, or None.
        last: The trial that ended last, or None.
        spent: USD, total.
        reserved: USD set aside for the trials on their way.
        elapsed: Wall-clock seconds that the search has used, earlier sessions included.
        message: What the engine is doing, or why it stopped.
        finished: True once the search is over.
        notes: Further facts by name.
        machine_parameters: The parameters that choose machines.
    """

    name: str
    searcher: str
    objective: Objective
    constraints: Constraints
    budget: Budget
    size: int | None
    counts: Mapping[str, int]
    running: Sequence[RunningTrial]
    best: Trial | None
    last: Trial | None
    spent: float
    reserved: float
    elapsed: float
    message: str = ""
    finished: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)
    machine_parameters: MachineParameters = field(default_factory=MachineParameters)


def take_snapshot(machine: SearchMachine) -> SearchSnapshot:
    """The search at this moment."""
    history, problem = machine.history, machine.problem
    running = []
    for run in machine.runs.values():
        trial = history.trials[run.trial]
        cap, _ = machine.cap(trial, run)
        facts = (run.state.value, run.runtime, cap, run.cost, run.machines, machine.active_runs.why_ending(run.run_id))
        running.append(RunningTrial(trial, *facts, machine.active_runs.trouble(run.run_id)))
    return SearchSnapshot(
        name=problem.job.name,
        searcher=machine.policy.searcher,
        objective=problem.objective,
        constraints=problem.constraints,
        budget=problem.budget,
        size=machine.policy.size,
        counts=dict(history.counts),
        running=running,
        best=history.best,
        last=history.last,
        spent=machine.ledger.spent + machine.ledger.metered,
        reserved=machine.ledger.reserved,
        elapsed=machine.elapsed,
        message=machine.stopped.reason if machine.stopped else machine.ending or "searching",
        finished=machine.stopped is not None,
        notes=_notes(machine),
        machine_parameters=problem.machine_parameters,
    )


def _notes(machine: SearchMachine) -> dict[str, str]:
    early_stopping = machine.early_stopping
    if not early_stopping.stopped:
        return {}
    saved = format_money(estimated_savings(early_stopping.finished, early_stopping.stopped))
    return {"early": f"{len(early_stopping.stopped):,} stopped, about {saved} saved"}
