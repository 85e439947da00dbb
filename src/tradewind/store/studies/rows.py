"""Studies, trials and runs as rows of the tables, and back."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from tradewind.errors import StoreError
from tradewind.problem import Offer, Run, RunState, Trial, TrialState
from tradewind.store import codec
from tradewind.store.base import StudyRow
from tradewind.store.sql.schema import runs, studies, trials

ENDED_RUN_STATES = tuple(state.value for state in RunState if state.ended)
"""The states of a run to which nothing more will happen."""

WAS_TAKEN = runs.c.details.like('%"preemption":%')
"""The condition of a run whose place another tenant got."""

STUDY_FIELDS = tuple(StudyRow.__dataclass_fields__)
CHANGEABLE_STUDY_FIELDS = frozenset(STUDY_FIELDS) - {"id", "created", "kind"}
_DOCUMENTS = frozenset({"spec", "searcher_state"})

STUDY_COLUMNS = [studies.c[name] for name in STUDY_FIELDS]
TRIAL_COLUMNS = [
    trials.c[name]
    for name in (
        *("number", "state", "key", "spent", "attempts", "created", "started", "ended"),
        *("configuration", "proposal", "offer", "observation"),
    )
]
RUN_COLUMNS = [column for column in runs.c if column.name != "study_id"]
_RUN_FIELDS = tuple(column.name for column in RUN_COLUMNS)


def study_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a study as the values of its columns.

    Raises:
        StoreError: A field cannot be changed or does not exist.
    """
    unknown = sorted(set(fields) - CHANGEABLE_STUDY_FIELDS - {"created", "kind"})
    if unknown:
        raise StoreError(
            f"a study's {unknown[0]!r} cannot be changed", hint=f"fields: {', '.join(sorted(CHANGEABLE_STUDY_FIELDS))}"
        )
    return {
        name: codec.dumps(value) if name in _DOCUMENTS else storable_text(value) if isinstance(value, str) else value
        for name, value in fields.items()
    }


def study_of(row: Any) -> StudyRow:
    """The study of a row of `STUDY_COLUMNS`."""
    values = dict(zip(STUDY_FIELDS, row, strict=True))
    for name in _DOCUMENTS:
        values[name] = json.loads(values[name])
    return StudyRow(**values)


def trial_values(study_id: int, trial: Trial) -> dict[str, Any]:
    """A trial as the values of its columns."""
    observation, offer = trial.observation, trial.offer
    return {
        "study_id": study_id,
        "number": trial.number,
        "state": trial.state.value,
        "key": trial.key,
        "objective": _number(observation.objective) if observation else None,
        "cost": _number(observation.cost) if observation else None,
        "runtime": _number(observation.runtime) if observation else None,
        "feasible": bool(observation.feasible) if observation else None,
        "censored": bool(observation.censored) if observation else None,
        "fidelity": float(trial.proposal.fidelity),
        "spent": float(trial.spent),
        "price_per_hour": _number(offer.price_per_hour),
        "nodes": offer.nodes,
        "provider": storable_text(offer.provider),
        "instance_type": storable_text(offer.instance_type),
        "attempts": trial.attempts,
        "created": trial.created,
        "started": trial.started,
        "ended": trial.ended,
        "configuration": _document(trial.configuration, dict),
        "proposal": _document(trial.proposal, codec.proposal_to_json),
        "offer": _document(offer, codec.offer_to_json),
        "observation": codec.dumps(codec.observation_to_json(observation)) if observation else None,
    }


_KEPT: dict[int, tuple[object, str]] = {}
_MOST_KEPT = 1024


def _document(value: Any, plain: Callable[[Any], Any]) -> str:
    """The JSON text of a part of a trial; the parts are frozen, and the same ones at each write of it."""
    known = _KEPT.get(id(value))
    if known is not None and known[0] is value:
        return known[1]
    if len(_KEPT) >= _MOST_KEPT:
        _KEPT.clear()
    written = codec.dumps(plain(value))
    _KEPT[id(value)] = (value, written)
    return written


def trial_of(row: Any) -> Trial:
    """The trial of a row of `TRIAL_COLUMNS`."""
    number, state, key, spent, attempts, created, started, ended, configuration, proposal, offer, observation = row
    # One call for the three documents: it halves the time of reading 100,000 trials.
    values, proposed, observed = codec.loads(f"[{configuration},{proposal},{observation or 'null'}]")
    return Trial(
        number,
        codec.proposal_from_json(proposed, values),
        _offer_of(offer),
        TrialState(state),
        key,
        codec.observation_from_json(observed) if observed is not None else None,
        spent,
        attempts,
        created,
        started,
        ended,
    )


@functools.lru_cache(maxsize=4096)
def _offer_of(document: str) -> Offer:
    """Many trials have the same offer: each is read once."""
    return codec.offer_from_json(json.loads(document))


def run_values(study_id: int, run: Run) -> dict[str, Any]:
    """A run as the values of its columns."""
    return {
        "study_id": study_id,
        "run_id": run.run_id,
        "trial": run.trial,
        "attempt": run.attempt,
        "state": run.state.value,
        "reserved": float(run.reserved),
        "cost": float(run.cost),
        "runtime": float(run.runtime),
        "started": run.started,
        "ended": run.ended,
        "exit_code": run.exit_code,
        "details": codec.dumps(codec.details_to_json(run)),
    }


def run_of(row: Any) -> Run:
    """The run of a row of `RUN_COLUMNS`."""
    values = dict(zip(_RUN_FIELDS, row, strict=True))
    return codec.run_from_json({**values, **codec.loads(values["details"])})


def storable_text(words: str) -> str:
    """Words as any database takes them: no NUL, no lone surrogate (from an output that was not UTF-8)."""
    return words.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _number(value: float | None) -> float | None:
    """A float, None for NaN: SQLite has none, and PostgreSQL sorts it above all."""
    return None if value is None or math.isnan(value) else float(value)
