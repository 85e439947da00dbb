"""Shows a study and its trials: as tables in a notebook, and in few words on a console."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, SupportsIndex, overload

from tradewind.problem import COST, RUNTIME, Objective, Trial, TrialState
from tradewind.utils.notebook import box_html, facts_html, note_html, table_html
from tradewind.utils.units import (
    bill_column,
    count,
    format_bill,
    format_duration,
    format_money,
    format_setting,
    format_settings,
    printable,
)

if TYPE_CHECKING:
    from tradewind.engine.study import Study

_BEST = 5
"""Trials in the table of a study."""

_ROWS = 40
"""Trials in the table of a list; of a longer one the first and the last half of them."""

_COLUMNS = 12
"""Parameters with a column each; more are written into one."""


class TrialList(list[Trial]):
    """A list of trials that shows itself as a table.

    Args:
        trials: The trials.
        objective: What they were run for.
        best: The number of the best one, which has a star.
    """

    def __init__(self, trials: Iterable[Trial] = (), objective: Objective | None = None, best: int | None = None):
        super().__init__(trials)
        self.objective = objective or Objective()
        self.best = best

    @overload
    def __getitem__(self, index: SupportsIndex) -> Trial: ...
    @overload
    def __getitem__(self, index: slice) -> TrialList: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Trial | TrialList:
        """A trial; a part of the list shows itself, too."""
        found = super().__getitem__(index)
        return TrialList(found, self.objective, self.best) if isinstance(found, list) else found

    def __repr__(self) -> str:
        lines = [_line(trial, self.objective, starred=trial.number == self.best) for trial in _ends(self)]
        if left_out := len(self) - len(lines):
            lines.insert(len(lines) // 2, f"... {left_out:,} more ...")
        return "\n".join([f"{count(len(self), 'trial')}{':' if self else ''}", *(f"  {line}" for line in lines)])

    def _repr_html_(self) -> str:
        shown = _ends(self)
        left_out = len(self) - len(shown)
        notes = [note_html(f"the first and the last {_ROWS // 2}; {left_out:,} are left out")] if left_out else []
        tables = [trials_table(shown, self.objective, self.best)] if shown else []
        return box_html(count(len(self), "trial"), *tables, *notes)


def _ends(trials: Sequence[Trial]) -> list[Trial]:
    if len(trials) <= _ROWS:
        return list(trials)
    return [*trials[: _ROWS // 2], *trials[-(_ROWS // 2) :]]


def _line(trial: Trial, objective: Objective, *, starred: bool) -> str:
    seen = trial.observation
    values = [] if seen is None else [format_bill(seen.cost), format_duration(seen.runtime)]
    if seen is not None and objective.metric not in (COST, RUNTIME):
        values.insert(0, f"{objective.metric} {objective.format(seen.objective)}")
    if seen is not None and seen.reason:
        values.append(seen.reason)
    words = ", ".join([format_settings(trial.configuration), *values])
    return printable(f"{'*' if starred else ' '}{trial.number:>4}  {trial.outcome:<10}  {words}")


def trials_table(trials: Sequence[Trial], objective: Objective, best: int | None) -> str:
    """Trials as a table of HTML: a column for each parameter, the objective, cost, run time, and why not.

    Args:
        trials: The trials, in the order of the rows.
        objective: What they were run for.
        best: The number of the best one, which has a star.
    """
    names = list(dict.fromkeys(name for trial in trials for name in trial.configuration))
    apart = len(names) <= _COLUMNS
    metric = [] if objective.metric in (COST, RUNTIME) else [objective.metric]
    why = any(trial.observation is not None and trial.observation.reason for trial in trials)
    middle = names if apart else ["configuration"]
    unit, bill = bill_column(trial.observation.cost for trial in trials if trial.observation is not None)
    cost = "cost" if unit == "this run" else f"cost, {unit}"
    heads = ["trial", "state", *middle, *metric, cost, "run time", *(["why"] if why else [])]
    rows = []
    for trial in trials:
        seen = trial.observation
        given = trial.configuration
        values = [format_setting(given[name]) if name in given else "" for name in names]
        bound = "≥ " if trial.state is TrialState.ABORTED else ""
        rows.append(
            [
                f"{'★ ' if trial.number == best else ''}{trial.number}",
                trial.outcome,
                *(values if apart else [format_settings(trial.configuration)]),
                *([objective.format(seen.objective) if seen else "-"] if metric else []),
                bound + bill(seen.cost) if seen else "-",
                bound + format_duration(seen.runtime) if seen else "-",
                *([seen.reason if seen else ""] if why else []),
            ]
        )
    numbers = {index + 2 for index, name in enumerate(names) if apart and _are_numbers(trials, name)}
    figures = range(2 + len(middle), 2 + len(middle) + len(metric) + 2)
    return table_html(heads, rows, right={0, *numbers, *figures})


def _are_numbers(trials: Sequence[Trial], name: str) -> bool:
    values = [trial.configuration[name] for trial in trials if name in trial.configuration]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def best_trials(trials: Iterable[Trial], objective: Objective, best: Trial | None, most: int) -> list[Trial]:
    """The best feasible trials on the whole input, ``best`` first.

    Args:
        trials: All trials.
        objective: What is wanted.
        best: The best of the study; where configurations were repeated, it need not be that with the best value.
        most: How many, at most.
    """
    valued = [
        (best is None or trial.number != best.number, objective.loss(seen.objective), seen.runtime, trial.number, trial)
        for trial in trials
        if (seen := trial.observation) is not None
        and seen.feasible
        and seen.objective is not None
        and trial.proposal.fidelity >= 1.0
    ]
    return [found[-1] for found in sorted(valued, key=lambda found: found[:-1])[:most]]


def study_facts(study: Study, objective: Objective) -> list[tuple[str, str]]:
    """Names and values of a study that are wanted at a glance."""
    best, trials, budget = study.best, study.trials, study.spec.budget
    pairs = []
    if best is not None and best.observation is not None:
        pairs.append(("best configuration", format_settings(best.configuration)))
        pairs.append((f"best {objective.metric}", objective.format(best.observation.objective)))
    else:
        pairs.append(("best configuration", "none yet"))
    of = f" of {format_money(budget.dollars)}" if budget.dollars is not None else ""
    pairs.append(("spent", format_money(study.spent) + of))
    counts: dict[str, int] = {}
    for trial in trials:
        counts[trial.outcome] = counts.get(trial.outcome, 0) + 1
    of = f" of {budget.trials:,}" if budget.trials is not None else ""
    states = ", ".join(f"{number:,} {state}" for state, number in counts.items())
    pairs.append(("trials", f"{len(trials):,}{of}{f' ({states})' if states else ''}"))
    pairs.append(("finished", study.finished or "no"))
    return pairs


def study_html(study: Study, objective: Objective) -> str:
    """A study as HTML: its facts, and its best trials."""
    found = best_trials(study.trials, objective, study.best, _BEST)
    number = study.best.number if study.best is not None else None
    tables = [note_html("the best trials"), trials_table(found, objective, number)] if found else []
    return box_html(f"Study {study.row.name}", facts_html(study_facts(study, objective)), *tables)


def study_text(study: Study, objective: Objective) -> str:
    """A study in one line."""
    facts = ", ".join(f"{name}: {value}" for name, value in study_facts(study, objective))
    return printable(f"<Study {study.row.name}; {facts}>")
