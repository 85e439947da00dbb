"""Trials as documents and as flat rows: what exports, answers of the service and data frames are made of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tradewind.problem import Trial
from tradewind.store.base import Store

_PAGE = 2000
_KINDS = {"config": "configuration", "metric": "metrics", "profile": "profile"}
"""Prefixes of the flat columns, and the objects of a document that they come from."""


def trial_documents(store: Store, study_id: int) -> Iterator[dict[str, Any]]:
    """Each trial as a JSON-able document with ``configuration`` and ``metrics`` as objects.

    Args:
        store: An open store.
        study_id: The study's number in it.
    """
    since = 0
    while page := store.trials(study_id, since=since, limit=_PAGE):
        yield from (trial_document(trial) for trial in page)
        since = page[-1].number + 1


def trial_document(trial: Trial) -> dict[str, Any]:
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


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def flat_rows(store: Store, study_id: int) -> list[dict[str, Any]]:
    """Each trial as one flat row.

    Settings are ``config.<parameter>``, metrics ``metric.<name>`` and low-level metrics ``profile.<name>``. All rows
    have the same keys in the same order; a value that a trial does not have is None.

    Args:
        store: An open store.
        study_id: The study's number in it.
    """
    flat = [_flat(one) for one in trial_documents(store, study_id)]
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


def flat_columns(store: Store, study_id: int) -> dict[str, list[Any]]:
    """The same as `flat_rows`, by column: `frames` makes data frames of it.

    Args:
        store: An open store.
        study_id: The study's number in it.
    """
    found = flat_rows(store, study_id)
    return {name: [row[name] for row in found] for name in (found[0] if found else ())}


def frame_columns(store: Store, study_id: int) -> Mapping[str, Sequence[Any]]:
    """`flat_columns` with the parameters as ``param.<name>``, too, and the number of machines as ``nodes``.

    Args:
        store: An open store.
        study_id: The study's number in it.
    """
    found = flat_columns(store, study_id)
    if not found:
        return store.columns(study_id)
    chosen = {f"param.{name.removeprefix('config.')}": v for name, v in found.items() if name.startswith("config.")}
    return {**found, "nodes": found["machines"], **chosen}
