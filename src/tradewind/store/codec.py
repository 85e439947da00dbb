"""Trials and runs as JSON documents, and back.

The documents hold the dataclasses' fields by their names. The functions copy and check nothing that JSON would
not: they are on the path of every write. Records that a user hands in are checked by `tradewind.store.studies.records`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from tradewind.errors import RecordError
from tradewind.problem import (
    Configuration,
    Fault,
    Handle,
    Machine,
    MachineLease,
    Observation,
    Offer,
    Proposal,
    Run,
    RunPreemption,
    RunState,
    TakenMachines,
    Trial,
    TrialState,
    Usage,
)

_SCALARS = frozenset({str, int, float, bool, type(None)})
_OFFER = tuple(Offer.__dataclass_fields__)
_PROPOSAL = tuple(name for name in Proposal.__dataclass_fields__ if name != "configuration")
_OBSERVATION = tuple(Observation.__dataclass_fields__)
_USAGE = tuple(Usage.__dataclass_fields__)
_TAKEN = tuple(TakenMachines.__dataclass_fields__)
_LEASE = tuple(MachineLease.__dataclass_fields__)
_PREEMPTION = tuple(RunPreemption.__dataclass_fields__)


def dumps(document: Any) -> str:
    """JSON text of a document: ASCII only, NaN and infinities as Python writes them, numpy scalars as numbers."""
    return _encode(document)


def loads(written: str) -> Any:
    """The document of what `dumps` wrote; halves of characters in it, which no answer can have, are question marks."""
    if "\\ud" in written:  # so begin both halves of a pair: only those that stand alone are replaced
        written = json.dumps(json.loads(written), ensure_ascii=False).encode("utf-8", "replace").decode()
    return json.loads(written)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


# `json.dumps` makes an encoder for each call, which takes as long as the encoding.
_encode = json.JSONEncoder(separators=(",", ":"), default=_plain).encode


def encode_nonfinite(document: Any) -> Any:
    """The document with each NaN or infinity written as ``{"float": "nan"}``, so that any JSON reader takes it."""
    try:
        json.dumps(document, allow_nan=False, default=_plain)
    except ValueError:
        return _strict(document)
    return document


def _strict(document: Any) -> Any:
    if isinstance(document, float):
        return document if math.isfinite(document) else {"float": str(float(document))}
    if isinstance(document, Mapping):
        return {key: _strict(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [_strict(value) for value in document]
    return document


def decode_nonfinite(document: Any) -> Any:
    """The document that `encode_nonfinite` was given."""
    if type(document) in _SCALARS:
        return document
    if isinstance(document, Mapping):
        if len(document) == 1 and document.get("float") in ("nan", "inf", "-inf"):
            return float(document["float"])
        return {key: decode_nonfinite(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [decode_nonfinite(value) for value in document]
    return document


def _fields(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    document = {}
    for name in names:
        field = getattr(value, name)
        document[name] = dict(field) if type(field) not in _SCALARS and isinstance(field, Mapping) else field
    return document


def _known(document: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The fields that this version has: keys of newer versions are ignored, missing ones have their default."""
    return {name: document[name] for name in names if name in document}


def offer_to_json(offer: Offer) -> dict[str, Any]:
    """An offer as a document."""
    return _fields(offer, _OFFER)


def offer_from_json(document: Mapping[str, Any]) -> Offer:
    """The offer of a document that `offer_to_json` made."""
    return Offer(**_known(document, _OFFER))


def proposal_to_json(proposal: Proposal) -> dict[str, Any]:
    """A proposal as a document, without its configuration, which stands beside it."""
    document = _fields(proposal, _PROPOSAL)
    if proposal.origin is None:
        del document["origin"]
    return document


def proposal_from_json(document: Mapping[str, Any], configuration: Mapping[str, Any]) -> Proposal:
    """The proposal of a document that `proposal_to_json` made, with its configuration."""
    return Proposal(Configuration(configuration), **_known(document, _PROPOSAL))


def observation_to_json(observation: Observation) -> dict[str, Any]:
    """An observation as a document."""
    document = _fields(observation, _OBSERVATION)
    if not observation.earlier_readings:
        del document["earlier_readings"]  # few trials have any
    return document


def observation_from_json(document: Mapping[str, Any]) -> Observation:
    """The observation of a document that `observation_to_json` made."""
    fields = _known(document, _OBSERVATION)
    if "earlier_readings" in fields:
        fields["earlier_readings"] = tuple(fields["earlier_readings"])
    return Observation(**fields)


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """A trial as a document: ``number``, ``state``, ``key``, ``configuration``, ``proposal``, ``offer``, ..."""
    return {
        "number": trial.number,
        "state": trial.state.value,
        "key": trial.key,
        "configuration": dict(trial.configuration),
        "proposal": proposal_to_json(trial.proposal),
        "offer": offer_to_json(trial.offer),
        "observation": observation_to_json(trial.observation) if trial.observation else None,
        "spent": trial.spent,
        "attempts": trial.attempts,
        "created": trial.created,
        "started": trial.started,
        "ended": trial.ended,
    }


def trial_from_json(document: Mapping[str, Any]) -> Trial:
    """The trial of a document that `trial_to_json` made.

    Raises:
        RecordError: A field is missing or is nothing that a trial can have.
    """
    try:
        observation = document["observation"]
        return Trial(
            document["number"],
            proposal_from_json(document["proposal"], document["configuration"]),
            offer_from_json(document["offer"]),
            TrialState(document["state"]),
            document["key"],
            observation_from_json(observation) if observation is not None else None,
            document["spent"],
            document["attempts"],
            document["created"],
            document["started"],
            document["ended"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _not_one("trial", error) from error


def details_to_json(run: Run) -> dict[str, Any]:
    """The fields of a run that the database has no use for."""
    handle = run.handle
    document: dict[str, Any] = {
        "handle": {"run_id": handle.run_id, "runner": handle.runner, "data": dict(handle.data)} if handle else None,
        "machines": [{"id": m.id, "address": m.address, "data": dict(m.data)} for m in run.machines],
        "reason": run.reason,
        "fault": run.fault.value if run.fault else None,
        "usage": _fields(run.usage, _USAGE),
        "folder": run.folder,
        "offer_key": run.offer_key,
        "results": run.results,
        "code": run.code,
    }
    if run.taken is not None:  # few runs have any
        document["taken"] = _fields(run.taken, _TAKEN)
    if run.lease is not None:
        document["lease"] = _fields(run.lease, _LEASE)
    if run.preemption is not None:
        document["preemption"] = _fields(run.preemption, _PREEMPTION)
    return document


def run_to_json(run: Run) -> dict[str, Any]:
    """A run as a document: ``run_id``, ``trial``, ``attempt``, ``state``, ``cost``, ``handle``, ``machines``, ..."""
    return {
        "run_id": run.run_id,
        "trial": run.trial,
        "attempt": run.attempt,
        "state": run.state.value,
        "reserved": run.reserved,
        "cost": run.cost,
        "runtime": run.runtime,
        "started": run.started,
        "ended": run.ended,
        "exit_code": run.exit_code,
        **details_to_json(run),
    }


def run_from_json(document: Mapping[str, Any]) -> Run:
    """The run of a document that `run_to_json` made.

    Raises:
        RecordError: A field is missing or is nothing that a run can have.
    """
    try:
        handle, fault = document["handle"], document["fault"]
        taken, lease = document.get("taken"), document.get("lease")
        preemption = document.get("preemption")
        return Run(
            run_id=document["run_id"],
            trial=document["trial"],
            attempt=document["attempt"],
            state=RunState(document["state"]),
            reserved=document["reserved"],
            cost=document["cost"],
            runtime=document["runtime"],
            handle=Handle.from_json(handle) if handle is not None else None,
            machines=tuple(Machine(m["id"], m["address"], m["data"]) for m in document["machines"]),
            started=document["started"],
            ended=document["ended"],
            exit_code=document["exit_code"],
            reason=document["reason"],
            fault=Fault(fault) if fault is not None else None,
            usage=Usage(**_known(document["usage"], _USAGE)),
            folder=document["folder"],
            offer_key=document.get("offer_key", ""),
            results=document.get("results", ""),
            code=document.get("code", ""),
            taken=TakenMachines(**_known(taken, _TAKEN)) if taken else None,
            lease=MachineLease(**_known(lease, _LEASE)) if lease else None,
            preemption=RunPreemption(**_known(preemption, _PREEMPTION)) if preemption else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _not_one("run", error) from error


def _not_one(what: str, error: Exception) -> RecordError:
    if isinstance(error, KeyError):
        return RecordError(f"this is no {what}: it has no {error.args[0]!r}")
    return RecordError(f"this is no {what}: {error}")
