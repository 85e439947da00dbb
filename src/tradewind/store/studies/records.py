"""Records: everything about one trial in one JSON document, to hand on and to take in again.

A record of version 1 has these keys::

    record         1
    number         of the trial, from 0
    state          succeeded | failed | aborted | lost | pending | running
    key            what makes two trials the same
    configuration  value by parameter name
    proposal       abort_cost, abort_time, fidelity, repeat, why
    offer          provider, instance_type, vcpu, memory_gib, price_per_hour, nodes, ...
    observation    objective, cost, runtime, feasible, censored, metrics, profile, reason; or null
    spent          USD, total
    attempts       runs so far
    created, started, ended      seconds since the epoch, or null
    runs           run_id, attempt, state, reserved, cost, runtime, handle, machines, started, ended,
                   exit_code, reason, fault, usage, folder, offer_key, results of each

NaN and infinities stand as ``{"float": "nan"}``, ``{"float": "inf"}`` and ``{"float": "-inf"}``, so that a record is
JSON for every reader. Unknown keys are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tradewind.errors import RecordError
from tradewind.problem import Fault, Run, RunState, Trial, TrialState
from tradewind.store import codec

VERSION = 1


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("a finite number is wanted")
    return value


def _nan_for_null(value: Any) -> Any:
    """Tools that cannot write NaN write null."""
    return math.nan if value is None else value


# Whole numbers stay whole: a record that goes through a study comes out as it went in.
_Number = int | float
_Value = str | bool | int | float
_Figure = Annotated[_Number, BeforeValidator(_nan_for_null)]
_Fact = Annotated[_Number | str, BeforeValidator(_nan_for_null)]
_Moment = Annotated[_Number, AfterValidator(_finite)]
_Money = Annotated[_Number, AfterValidator(_finite), Field(ge=0)]
_Time = Annotated[_Number, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A record that was read.

    Attributes:
        place: Which one it was, from 1.
        trial: The trial.
        runs: All runs of the trial, by attempt.
    """

    place: int
    trial: Trial
    runs: tuple[Run, ...]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _Proposal(_Part):
    abort_cost: _Number | None = None
    abort_time: _Number | None = None
    fidelity: _Number = 1.0
    repeat: bool = False
    why: dict[str, _Fact] = {}


class _Offer(_Part):
    provider: str
    instance_type: str
    vcpu: _Number
    memory_gib: _Number
    price_per_hour: _Money
    region: str = ""
    category: str = "general"
    family: str = ""
    arch: str = ""
    gpus: int = 0
    spot: bool = False
    nodes: int = Field(default=1, ge=1)
    price_date: str = ""
    source: str = ""
    facts: dict[str, _Fact] = {}


class _Observation(_Part):
    objective: _Number | None = None
    cost: _Money
    runtime: _Time
    feasible: bool
    censored: bool = False
    metrics: dict[str, _Figure] = {}
    profile: dict[str, _Figure] = {}
    reason: str = ""


class _Handle(_Part):
    run_id: str
    runner: str
    data: dict[str, Any] = {}


class _Machine(_Part):
    id: str
    address: str = ""
    data: dict[str, Any] = {}


class _Usage(_Part):
    peak_memory_bytes: int | None = None
    cpu_seconds: _Number | None = None
    profile: dict[str, _Figure] = {}


class _Run(_Part):
    run_id: str = Field(min_length=1)
    attempt: int = 1
    state: Annotated[RunState, Field(strict=False)]
    reserved: _Money = 0.0
    cost: _Money = 0.0
    runtime: _Time = 0.0
    handle: _Handle | None = None
    machines: list[_Machine] = []
    started: _Moment | None = None
    ended: _Moment | None = None
    exit_code: int | None = None
    reason: str = ""
    fault: Annotated[Fault, Field(strict=False)] | None = None
    usage: _Usage = _Usage()
    folder: str = ""
    offer_key: str = ""
    results: str = ""


class _Record(_Part):
    record: int
    number: int = Field(ge=0, lt=2**31)
    state: Annotated[TrialState, Field(strict=False)]
    key: str
    configuration: dict[str, _Value]
    proposal: _Proposal = _Proposal()
    offer: _Offer
    observation: _Observation | None = None
    spent: _Money = 0.0
    attempts: int = 0
    created: _Moment = 0.0
    started: _Moment | None = None
    ended: _Moment | None = None
    runs: list[_Run] = []


def trial_record(trial: Trial, runs: Sequence[Run]) -> dict[str, Any]:
    """The record of a trial."""
    document = {"record": VERSION, **codec.trial_to_json(trial), "runs": [codec.run_to_json(run) for run in runs]}
    plain: dict[str, Any] = codec.encode_nonfinite(document)
    return plain


def read_records(documents: Iterable[Mapping[str, Any]]) -> list[TrialRecord]:
    """Check and read records.

    Raises:
        RecordError: One is not a record; the message has its place, from 1.
    """
    found: dict[int, TrialRecord] = {}
    for place, document in enumerate(documents, start=1):
        new = _read(document, place)
        if found.setdefault(new.trial.number, new) is not new:
            first = found[new.trial.number].place
            raise RecordError(f"record {place}: trial number {new.trial.number} stands in record {first} already")
    return list(found.values())


def check_run_ids(records: Sequence[TrialRecord], known: Collection[str]) -> None:
    """Make sure that no run is there twice.

    Args:
        records: The new records.
        known: The ids of the runs that the study has.

    Raises:
        RecordError: A run is there twice.
    """
    seen = set(known)
    for item in records:
        for run in item.runs:
            if run.run_id in seen:
                raise RecordError(f"record {item.place}: the run {run.run_id!r} belongs to another trial already")
            seen.add(run.run_id)


def _read(document: Any, place: int) -> TrialRecord:
    if not isinstance(document, Mapping) or "record" not in document:
        raise RecordError(f"record {place} is no record: it has no key 'record'", hint="tradewind export makes records")
    version = document["record"]
    if version != VERSION:
        hint = (
            "upgrade Tradewind" if isinstance(version, int) and version > VERSION else "tradewind export makes records"
        )
        raise RecordError(f"record {place} is of version {version!r}, this program reads {VERSION}", hint=hint)
    try:
        checked = _Record.model_validate(codec.decode_nonfinite(document)).model_dump()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(piece) for piece in first["loc"])
        raise RecordError(f"record {place}: {key}: {first['msg']}") from None
    trial = codec.trial_from_json(checked)
    runs = tuple(codec.run_from_json({**run, "trial": trial.number}) for run in checked["runs"])
    _check_end(place, trial, runs)
    return TrialRecord(place, trial, runs)


def _check_end(place: int, trial: Trial, runs: Sequence[Run]) -> None:
    """Make sure that nothing of an ended trial goes on, and that its money was spent by its runs.

    The ledger of a study adds up what its runs have cost, and a run that has not ended is one that is looked for.

    Raises:
        RecordError: A run has not ended, or there is none.
    """
    if not trial.state.ended:
        return
    if going := next((run for run in runs if not run.state.ended), None):
        raise RecordError(
            f"record {place}: the trial is {trial.state.value}, and its run {going.run_id!r} is {going.state.value}"
        )
    if trial.spent > 0 and not runs:
        raise RecordError(f"record {place}: spent is {trial.spent:g} USD, and there is no run that it was spent on")
