"""Takes snapshots of a search, for those who watch it."""

from __future__ import annotations

from tradewind.engine.early import saved
from tradewind.engine.snapshot import RunningTrial, Snapshot
from tradewind.engine.state import SearchMachine
from tradewind.units import format_money


def take_snapshot(machine: SearchMachine) -> Snapshot:
    """The search at this moment."""
    book, problem = machine.book, machine.problem
    running = []
    for run in machine.runs.values():
        trial = book.trials[run.trial]
        cap, _ = machine.cap(trial, run)
        facts = (run.state.value, run.runtime, cap, run.cost, run.machines, machine.underway.why_ending(run.run_id))
        running.append(RunningTrial(trial, *facts, machine.underway.trouble(run.run_id)))
    return Snapshot(
        name=problem.job.name,
        searcher=machine.policy.searcher,
        objective=problem.objective,
        constraints=problem.constraints,
        budget=problem.budget,
        size=machine.policy.size,
        counts=dict(book.counts),
        running=running,
        best=book.best,
        last=book.last,
        spent=machine.ledger.spent + machine.ledger.metered,
        reserved=machine.ledger.reserved,
        elapsed=machine.elapsed,
        message=machine.stopped.reason if machine.stopped else machine.ending or "searching",
        finished=machine.stopped is not None,
        notes=_notes(machine),
    )


def _notes(machine: SearchMachine) -> dict[str, str]:
    early = machine.early
    if not early.stopped:
        return {}
    return {
        "early": f"{len(early.stopped):,} stopped, about {format_money(saved(early.finished, early.stopped))} saved"
    }
