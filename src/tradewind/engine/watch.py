"""Takes snapshots of a search, for those who watch it."""

from __future__ import annotations

from tradewind.engine.state_machine.early_stopping import estimated_savings
from tradewind.engine.state_machine.search_machine import SearchMachine
from tradewind.engine.state_machine.snapshot import RunningTrial, SearchSnapshot
from tradewind.utils.units import format_money


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
    )


def _notes(machine: SearchMachine) -> dict[str, str]:
    early_stopping = machine.early_stopping
    if not early_stopping.stopped:
        return {}
    return {
        "early": f"{len(early_stopping.stopped):,} stopped, about {format_money(estimated_savings(early_stopping.finished, early_stopping.stopped))} saved"
    }
