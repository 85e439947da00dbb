"""Tables for the terminal: they fit its width by leaving out the least important columns, never by wrapping.

Only configurations are on lines of their own where they would be cut: cut ones look all alike.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tradewind.problem import (
    UNINTERRUPTED_COST,
    UNINTERRUPTED_RUNTIME,
    MachineParameters,
    Objective,
    Observation,
    Offer,
    Trial,
)
from tradewind.reporting.study.data import StudyGoal, read_goal
from tradewind.reporting.text_layout import TableColumn, TextTable, cells
from tradewind.reporting.words import compact, cost_word, machine_words, tells_machine, value_words
from tradewind.store.base import StudySummary
from tradewind.utils.units import (
    bill_column,
    count,
    format_bill,
    format_duration,
    format_memory,
    format_money,
    printable,
    shortened,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tradewind.reporting.study.data import StudyData

STYLES = {
    "succeeded": "green",
    "failed": "red",
    "aborted": "yellow",
    "lost": "magenta",
    "running": "cyan",
    "pending": "bright_black",
    "infeasible": "yellow",
}
"""Colour of each state."""


_LONGEST_NAME = 100
"""Characters of a study's name, also where there is room: jobs have no longer ones, programs may."""

_WHOLE = 2000
"""Characters of a table's line where there is no terminal that would have to show it."""


_NO_MACHINE = MachineParameters()


@dataclass(frozen=True, slots=True)
class TrialLine:
    """A line in a table of trials.

    Attributes:
        number: Number of the trial.
        state: State of the trial; ``infeasible`` for one that succeeded and broke a constraint.
        configuration: Values of the parameters by name.
        objective: The value of the objective, or None.
        cost: USD this run, or None.
        runtime: Seconds, or None.
        why: Reason that it failed, was aborted or is infeasible; else empty.
        best: True for the best of the study.
        share: Share of the input that was run.
        machine: The machines, where the configuration does not name them by itself; else empty.
    """

    number: int
    state: str
    configuration: Mapping[str, Any]
    objective: float | None = None
    cost: float | None = None
    runtime: float | None = None
    why: str = ""
    best: bool = False
    share: float = 1.0
    machine: str = ""

    @classmethod
    def of(
        cls, trial: Trial, best: int | None = None, machine_parameters: MachineParameters = _NO_MACHINE
    ) -> TrialLine:
        """The line of a trial.

        Args:
            trial: The trial.
            best: Number of the best trial.
            machine_parameters: The parameters of its space that choose machines.
        """
        seen, machine = trial.observation, _machine(trial.configuration, trial.offer, machine_parameters)
        if seen is None:
            more: dict[str, Any] = {"share": trial.proposal.fidelity, "machine": machine}
            cost = trial.spent if trial.attempts else None
            return cls(trial.number, trial.state.value, dict(trial.configuration), cost=cost, **more)
        return cls(
            trial.number,
            trial.outcome,
            dict(trial.configuration),
            seen.objective,
            seen.cost,
            seen.runtime,
            seen.reason,
            trial.number == best,
            trial.proposal.fidelity,
            machine,
        )

    @classmethod
    def row(cls, data: StudyData, row: int) -> TrialLine:
        """The line of a row of a study's data."""
        state = "infeasible" if data.infeasible[row] else str(data.states[row])
        objective, cost, runtime = (float(c[row]) for c in (data.objective, data.cost, data.runtime))
        return cls(
            int(data.number[row]),
            state,
            data.configuration(row),
            objective if objective == objective else None,
            cost if cost == cost else None,
            runtime if runtime == runtime else None,
            data.reason(row),
            row == data.best_row,
            float(data.floats["fidelity"][row]),
            _machine(data.configuration(row), data.offer(row), data.machine_parameters),
        )


def _machine(configuration: Mapping[str, Any], offer: Offer, chooses: MachineParameters) -> str:
    """The machines in words, but for their region, where a configuration does not name them by itself."""
    return "" if tells_machine(configuration, offer, chooses) else machine_words(replace(offer, region=""))


def studies(summaries: Sequence[StudySummary], width: int, done: Mapping[int, int] | None = None) -> TextTable:
    """All studies: name, state, trials by state, best, money spent of the budget, and when it began.

    Args:
        summaries: The studies.
        width: Columns that there are.
        done: Of runs of workflows, the number of tasks that are done, by id of the study.
    """
    columns = [
        TableColumn("id", 4, right=True),
        TableColumn("study", least=12),
        TableColumn("state"),
        TableColumn("trials", 1),
        TableColumn("best", right=True),
        TableColumn("spent, total", 2, right=True),
        TableColumn("searcher", 5),
        TableColumn("started", 3),
    ]
    grid = TextTable(columns, [], width=width)
    for summary in summaries:
        study, goal = summary.study, read_goal(summary.study.spec)
        started = time.strftime("%Y-%m-%d %H:%M", time.localtime(study.created))
        state = state_words(summary)
        grid.rows.append(
            [
                str(study.id),
                shortened(study.name, _LONGEST_NAME),
                state,
                _progress(summary, (done or {}).get(study.id, 0)),
                best_words(summary.best, goal.objective),
                spent_words(summary.spent, goal),
                goal.searcher or str(study.spec.get("workflow", {}).get("planner") or "-"),
                started,
            ]
        )
        grid.styles.append({2: {"running": "cyan", "finished": "green"}.get(state, "yellow")})
    return grid


def state_words(summary: StudySummary) -> str:
    """``running`` while a live process holds the study, else its stored state."""
    if summary.running_since is not None:
        return "running"
    return "stopped" if summary.study.state == "open" and summary.counts else summary.study.state


def best_words(best: Trial | None, objective: Objective) -> str:
    """The best value, or ``-``."""
    if best is None or best.observation is None:
        return "-"
    return value_words(objective.metric, best.observation.objective)


def spent_words(spent: float, goal: StudyGoal) -> str:
    """``$1.20 of $5.00``, and ``simulated`` where nobody has paid it."""
    limit = goal.budget.dollars
    of = f" of {format_money(limit)}" if limit is not None else ""
    return format_money(spent) + of + (", simulated" if goal.simulated and spent else "")


def _progress(summary: StudySummary, done: int) -> str:
    """Trials by state; of a run of a workflow its tasks."""
    if summary.study.kind == "workflow":
        return f"{done:,} of {count(summary.study.spec['workflow']['tasks'], 'task')}"
    return _counts(summary.counts)


def _counts(counts: Mapping[str, int]) -> str:
    marks = {"succeeded": "✓", "failed": "✗", "aborted": "⊘", "lost": "?", "running": "▶", "pending": "…"}
    words = [f"{counts[state]:,}{mark}" for state, mark in marks.items() if counts.get(state)]
    return " ".join(words) or "0"


def trials(lines: Sequence[TrialLine], objective: Objective, width: int) -> TextTable:
    """Trials: number, state, configuration, objective, cost, run time, and why not; the share of the input, if any.

    Machines have a column where configurations do not name them.
    """
    plain = objective.metric in ("cost", "runtime")
    parts = any(line.share < 1.0 for line in lines)
    machines = any(line.machine for line in lines)
    unit, bill = bill_column(line.cost for line in lines)
    columns = [
        TableColumn("trial", right=True),
        TableColumn("state"),
        *([TableColumn("machine")] if machines else []),
        TableColumn("configuration", least=16, below=True),
        *([TableColumn("input", 1, right=True)] if parts else []),
        *([] if plain else [TableColumn(objective.metric, 1, right=True)]),
        TableColumn(f"cost, {unit}", 2 if objective.metric != "cost" else 0, right=True),
        TableColumn("run time", 1, right=True),
        TableColumn("why", 3, least=12),
    ]
    if not any(line.why for line in lines):
        columns.pop()
    grid = TextTable(columns, [], width=width)
    for line in lines:
        bound = "≥" if line.state == "aborted" else ""
        values = [] if plain else [value_words(objective.metric, line.objective)]
        texts = [
            f"{'★ ' if line.best else ''}{line.number}",
            line.state,
            *([line.machine] if machines else []),
            compact(line.configuration),
            *([share_words(line.share)] if parts else []),
            *values,
            bound + bill(line.cost) if line.cost is not None else "-",
            bound + format_duration(line.runtime) if line.runtime is not None else "-",
            " ".join(line.why.split()),
        ]
        grid.rows.append(texts[: len(columns)])
        grid.styles.append({1: STYLES.get(line.state, ""), **({0: "bold green"} if line.best else {})})
    return grid


def kept_lines(summary: StudySummary) -> list[str]:
    """A line for each machine, or group of them, that a study keeps for its next trial."""
    lines = []
    for lease in summary.kept:
        until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(lease.until))
        what = f"the machines of {lease.cluster} ({lease.offer_key}), {format_money(lease.hourly)} per hour"
        lines.append(f"kept for the next trial: {what}, until {until}")
    return lines


def print_trials(console: Console, lines: Sequence[TrialLine], objective: Objective) -> None:
    """Print a table of trials; what is equal in all of them is said once above it."""
    shared, rest = _split_shared(lines)
    machine = lines[0].machine if len(lines) > 1 and len({line.machine for line in lines}) == 1 else ""
    if machine:
        rest = [replace(line, machine="") for line in rest]
    if alike := ", ".join(filter(None, [machine, compact(shared)])):
        console.print(f"all trials below: {alike}", markup=False)
    with _room(console) as width:
        console.print(trials(rest, objective, width))


def _split_shared(lines: Sequence[TrialLine]) -> tuple[dict[str, Any], list[TrialLine]]:
    """The parameters that all of several trials share, and the trials without them; each keeps one at least."""
    first = lines[0].configuration if len(lines) > 1 else {}
    missing = object()
    shared = {
        name: value
        for name, value in first.items()
        if all(one.configuration.get(name, missing) == value for one in lines)
    }
    if any(line.configuration.keys() <= shared.keys() for line in lines):
        return {}, list(lines)
    return shared, [
        replace(line, configuration={n: v for n, v in line.configuration.items() if n not in shared}) for line in lines
    ]


@contextmanager
def _room(console: Console) -> Iterator[int]:
    """The width that a table has: a pipe or a file takes all of it, unless ``COLUMNS`` says otherwise."""
    before = console.width
    if console.file is sys.stdout and not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = max(before, _WHOLE)
    try:
        yield console.width
    finally:
        console.width = before


def share_words(share: float) -> str:
    """``all``, or a percentage of the input."""
    return "all" if share >= 1.0 else f"{100 * share:.3g} %"


def grid_table(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], styles: Sequence[Mapping[int, str]], width: int
) -> TextTable:
    """A table of any columns that fits.

    Args:
        columns: With what may be cut or left out.
        rows: A text for each column.
        styles: Of each row, by column.
        width: Characters.
    """
    return TextTable(list(columns), [list(row) for row in rows], [dict(style) for style in styles], width)


def facts(pairs: Sequence[tuple[str, str]], width: int) -> Table:
    """Names and values, one pair a line; long values wrap inside their column."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    longest = [max((cells(pair[i]) for pair in pairs), default=0) for i in (0, 1)]
    table.width = min(width, 4 + sum(longest))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(_text(name), _text(value))
    return table


def bullets(sentences: Sequence[str]) -> Table:
    """Sentences, each behind a dot; long ones wrap beside it."""
    from rich.table import Table

    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for sentence in sentences:
        table.add_row("•", _text(sentence))
    return table


def best_facts(trial: Trial, objective: Objective) -> list[tuple[str, str]]:
    """The recommended configuration, setting by setting, and what it did."""
    pairs = [(name, str(value)) for name, value in trial.configuration.items()]
    seen = trial.observation
    if seen is not None:
        if objective.metric not in ("cost", "runtime"):
            pairs.append((objective.metric, value_words(objective.metric, seen.objective)))
        pairs += [("cost", format_bill(seen.cost, cost_word(seen))), ("run time", format_duration(seen.runtime))]
        if seen.expected:
            cost, seconds = seen.metrics[UNINTERRUPTED_COST], seen.metrics[UNINTERRUPTED_RUNTIME]
            pairs.append(("uninterrupted", f"{format_bill(cost)}, {format_duration(seconds)}"))
        pairs += usage_facts(seen)
    return [*pairs, *offer_facts(trial.offer)]


def usage_facts(seen: Observation) -> list[tuple[str, str]]:
    """Names and values of the resources that a run used, as far as its runner knows."""
    memory, seconds = seen.profile.get("peak_memory_bytes"), seen.profile.get("cpu_seconds")
    known = memory is not None and math.isfinite(memory)  # in records of others NaN stands for what nobody knew
    pairs = [("memory", f"{format_memory(memory)} at its peak")] if known else []
    if seconds is not None:
        pairs.append(("CPU time", format_duration(seconds)))
    if (load := seen.profile.get("load_cpu_seconds")) is not None:
        share = seen.profile.get("load_cpu_share")
        words = f"{format_duration(load)} of CPU time" + ("" if share is None else f", {share:.0%} of its CPUs")
        pairs.append(("load generator", words))
    if warning := load_warning(seen):
        pairs.append(("warning", warning))
    return pairs


_FULL_SHARE = 0.9


def load_warning(seen: Observation | None) -> str:
    """Warn that a load generator was the bottleneck, not the application; empty where that is not known."""
    share = 0.0 if seen is None else seen.profile.get("load_cpu_share", 0.0)
    if not share >= _FULL_SHARE:
        return ""
    return f"the load generator used {share:.0%} of its CPUs: it was measured, not the application; raise job.load.cpus"


def offer_facts(offer: Offer) -> list[tuple[str, str]]:
    """The machines of an offer, with their price."""
    place = f" in {offer.region}" if offer.region else ""
    spot = ", spot" if offer.spot else ""
    size = f"{offer.vcpu:g} vCPU, {offer.memory_gib:g} GiB" + (f", {offer.gpus} GPU" if offer.gpus else "")
    each = f" ({format_money(offer.price_per_hour)} per hour and node)" if offer.nodes > 1 else ""
    rate = offer.interruptions_per_hour
    taken = "not known, none counted" if rate is None else f"{rate:.3g} per hour and machine"
    return [
        ("machines", f"{offer.nodes} × {offer.instance_type} of {offer.provider}{place}{spot} ({size} each)"),
        ("price", f"{format_money(offer.hourly)} per hour{each}"),
        *([("interruptions", taken)] if offer.spot else []),
    ]


def _text(words: str, style: str = "") -> Any:
    """Text as it is: brackets in a job's name are no markup, and no control character reaches the terminal."""
    from rich.text import Text

    return Text(printable(words), style=style)
