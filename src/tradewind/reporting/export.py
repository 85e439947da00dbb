"""Studies and trials as documents, and all trials as flat rows, for CSV, JSON, Parquet and data frames."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from typing import IO, Any

from tradewind.problem import Trial
from tradewind.reporting.goal import read_goal
from tradewind.reporting.tables import state_words
from tradewind.store.base import Store, StudySummary

_PAGE = 2000
_KINDS = {"config": "configuration", "metric": "metrics", "profile": "profile"}
"""Prefixes of the flat columns, and the objects of a document that they come from."""


def documents(store: Store, study_id: int) -> Iterator[dict[str, Any]]:
    """Each trial as a JSON-able document with ``configuration`` and ``metrics`` as objects.

    Args:
        store: An open store.
        study_id: The study's number in it.
    """
    since = 0
    while page := store.trials(study_id, since=since, limit=_PAGE):
        yield from (document(trial) for trial in page)
        since = page[-1].number + 1


def document(trial: Trial) -> dict[str, Any]:
    """One trial as a JSON-able document."""
    seen, offer = trial.observation, trial.offer
    return {
        "number": trial.number,
        "state": trial.state.value,
        "key": trial.key,
        "objective": _finite(seen.objective) if seen else None,
        "cost": _finite(seen.cost) if seen else None,
        "runtime": _finite(seen.runtime) if seen else None,
        "feasible": seen.feasible if seen else None,
        "censored": seen.censored if seen else None,
        "reason": seen.reason if seen else "",
        "spent": trial.spent,
        "attempts": trial.attempts,
        "fidelity": trial.proposal.fidelity,
        "provider": offer.provider,
        "region": offer.region,
        "instance_type": offer.instance_type,
        "machines": offer.nodes,
        "vcpu": offer.vcpu,
        "memory_gib": offer.memory_gib,
        "price_per_hour": offer.price_per_hour,
        "created": trial.created,
        "started": trial.started,
        "ended": trial.ended,
        "configuration": dict(trial.configuration),
        "metrics": {name: _finite(value) for name, value in seen.metrics.items()} if seen else {},
        "profile": {name: _finite(value) for name, value in seen.profile.items()} if seen else {},
    }


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
        "best": document(summary.best) if summary.best is not None else None,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def rows(store: Store, study_id: int) -> list[dict[str, Any]]:
    """Each trial as one flat row.

    Settings are ``config.<parameter>``, metrics ``metric.<name>`` and low-level metrics ``profile.<name>``. All rows
    have the same keys in the same order; a value that a trial does not have is None.

    Args:
        store: An open store.
        study_id: The study's number in it.
    """
    flat = [_flat(one) for one in documents(store, study_id)]
    names: dict[str, None] = {}
    for row in flat:
        names.update(dict.fromkeys(row))
    plain = [name for name in names if "." not in name]
    order = plain + [name for kind in _KINDS for name in names if name.startswith(f"{kind}.")]
    return [{name: row.get(name) for name in order} for row in flat]


def _flat(trial: Mapping[str, Any]) -> dict[str, Any]:
    row = {name: value for name, value in trial.items() if name not in _KINDS.values()}
    for kind, field in _KINDS.items():
        row |= {f"{kind}.{name}": value for name, value in trial[field].items()}
    return row


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
    found = rows(store, study_id)
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


def columns(store: Store, study_id: int) -> dict[str, list[Any]]:
    """The same as `rows`, by column: `tradewind.store.frames` makes data frames of it.

    Args:
        store: An open store.
        study_id: The study's number in it.
    """
    found = rows(store, study_id)
    return {name: [row[name] for row in found] for name in (found[0] if found else ())}
