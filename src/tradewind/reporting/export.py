"""A study as a document, and its trials as CSV and JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from typing import IO, Any

from tradewind.reporting.goal import read_goal
from tradewind.reporting.study.tables import state_words
from tradewind.store.base import Store, StudySummary
from tradewind.store.studies.tabular import flat_rows, trial_document


def summary_document(summary: StudySummary) -> dict[str, Any]:
    """A study as a whole: what was wanted, how far it is, what it has spent, and its best trial."""
    study = summary.study
    goal = read_goal(study.spec)
    return {
        "id": study.id,
        "name": study.name,
        "state": state_words(summary),
        "reason": study.reason,
        "objective": {"metric": goal.objective.metric, "goal": goal.objective.goal},
        "deadline": goal.constraints.deadline,
        "budget": {"dollars": goal.budget.dollars, "hours": goal.budget.hours, "trials": goal.budget.trials},
        "searcher": goal.searcher,
        "counts": dict(summary.counts),
        "spent": summary.spent,
        "reserved": summary.reserved,
        "elapsed": study.elapsed,
        "created": study.created,
        "running_since": summary.running_since,
        "holder": summary.holder,
        "best": trial_document(summary.best) if summary.best is not None else None,
    }


def write_csv(store: Store, study_id: int, stream: IO[str], *, guarded: bool = False) -> int:
    """Write all trials as CSV with a heading.

    Args:
        store: An open store.
        study_id: The study's number in it.
        stream: Where to.
        guarded: Put an apostrophe before words that a spreadsheet would carry out as a formula. For files that people
            get of others; a program would read another word than was written.

    Returns:
        How many trials.
    """
    found = flat_rows(store, study_id)
    if guarded:
        found = [{_unspoken(name): _unspoken(value) for name, value in row.items()} for row in found]
    names = list(found[0]) if found else ["number", "state", "configuration"]
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return len(found)


def _unspoken(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def write_json_lines(found: Iterator[Mapping[str, Any]], stream: IO[str]) -> int:
    """Write documents as JSON, one a line; returns how many."""
    written = 0
    for one in found:
        stream.write(json.dumps(one, ensure_ascii=False, default=str) + "\n")
        written += 1
    return written


def write_json(found: Iterator[Mapping[str, Any]], stream: IO[str]) -> int:
    """Write documents as one JSON array, one a line, without holding them all; returns how many."""
    written = 0
    stream.write("[")
    for one in found:
        stream.write(("\n" if not written else ",\n") + json.dumps(one, ensure_ascii=False, default=str))
        written += 1
    stream.write("\n]\n" if written else "]\n")
    return written
