"""Records: all about one study and its trials in JSON documents, to hand on and to take in again.

The first document is the study's, and each of the others a trial's. Of version 2, the study's has these keys::

    record         2
    study          name, problem_key, spec (the whole job YAML: searcher, interpreters, ...), created, state, reason,
                   seed, elapsed, searcher_state
    offers         by instance parameter (without one: by an empty name) the offers of the space, with their prices
    files          files that the job's parts read, by their path below the folder of the job YAML
    left_out       files of that kind that are not in it, with the reason
    versions       of Tradewind, Python, and each part that the job names

and that of a trial these::

    record         2
    number         of the trial, from 0
    state          succeeded | failed | aborted | lost | pending | running
    key            what makes two trials the same
    configuration  value by parameter name
    proposal       abort_cost, abort_time, fidelity, repeat, why; and origin where it went on from another trial
    offer          provider, instance_type, vcpu, memory_gib, price_per_hour, nodes, ...
    observation    objective, cost, runtime, feasible, censored, metrics, profile, reason, earlier_readings; or null
    spent          USD, total
    attempts       runs so far
    created, started, ended      seconds since the epoch, or null
    runs           run_id, attempt, state, reserved, cost, runtime, handle, machines, started, ended,
                   exit_code, reason, fault, usage, folder, offer_key, results, taken and lease where machines
                   were kept, preemption where another tenant got its place, of each; and logs, where they were
                   exported: by file (stdout, stderr, metrics.jsonl, outputs/...) its text or base64, and bytes and cut

Version 1 had documents of trials only, and no logs. NaN and infinities stand as ``{"float": "nan"}``,
``{"float": "inf"}`` and ``{"float": "-inf"}``, so that a record is JSON for every reader. Unknown keys are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from tradewind.errors import RecordError
from tradewind.problem import Fault, Offer, Payer, Run, RunState, Trial, TrialState
from tradewind.store import codec
from tradewind.store.base import StudyRow, StudyState

VERSION = 2
READABLE = (1, 2)
"""The versions that this program reads."""

_YEAR_9999 = 253_402_300_800.0


def _double(value: float) -> float:
    """Refuse whole numbers that no float can hold: everything that calculates would break at them."""
    try:
        float(value)
    except OverflowError:
        raise ValueError("the number is too large") from None
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("a finite number is wanted")
    return value


def _moment(value: float) -> float:
    if abs(_finite(value)) >= _YEAR_9999:
        raise ValueError("it is no moment in seconds since 1970")
    return value


def _storable(text: str) -> str:
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("it has a character that no database takes")
    return text


def _nan_for_null(value: Any) -> Any:
    """Tools that cannot write NaN write null."""
    return math.nan if value is None else value


# Whole numbers stay whole: a record that goes through a study comes out as it went in.
_Number = Annotated[int | float, AfterValidator(_double)]
_Value = str | bool | _Number
_Figure = Annotated[_Number, BeforeValidator(_nan_for_null)]
_Fact = Annotated[_Number | str, BeforeValidator(_nan_for_null)]
_Moment = Annotated[_Number, AfterValidator(_moment)]
_Money = Annotated[_Number, AfterValidator(_finite), Field(ge=0)]
_Time = Annotated[_Number, Field(ge=0)]
_Name = Annotated[str, AfterValidator(_storable)]
_Count = Annotated[int, Field(ge=0, lt=2**31)]
_Wide = Annotated[int, Field(ge=-(2**63), lt=2**63)]


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A record of a trial that was read.

    Attributes:
        place: Which one it was among the trials, from 1.
        trial: The trial.
        runs: All runs of the trial, by attempt.
    """

    place: int
    trial: Trial
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """A record of a study that was read, or is to be written.

    Attributes:
        study: The study, without the number and the owner that it has in a store.
        offers: The offers of its space, by instance parameter (without one by an empty name); None where nobody knew.
        files: Files that the job's parts read: text by path below the folder of the job YAML.
        left_out: Files of that kind that are not in it, with the reason.
        versions: Versions of Tradewind, Python, and the job's parts, by name.
    """

    study: StudyRow
    offers: Mapping[str, Sequence[Offer]] | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _Proposal(_Part):
    abort_cost: _Number | None = None
    abort_time: _Number | None = None
    fidelity: _Number = 1.0
    repeat: bool = False
    why: dict[str, _Fact] = {}
    origin: _Count | None = None


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
    gpus: _Count = 0
    spot: bool = False
    nodes: int = Field(default=1, ge=1, lt=2**31)
    price_date: str = ""
    source: str = ""
    facts: dict[str, _Fact] = {}
    interruptions_per_hour: _Number | None = None


class _Observation(_Part):
    objective: _Number | None = None
    cost: _Money
    runtime: _Time
    feasible: bool
    censored: bool = False
    metrics: dict[str, _Figure] = {}
    profile: dict[str, _Figure] = {}
    reason: str = ""
    earlier_readings: list[dict[str, Any]] = []


class _Handle(_Part):
    run_id: str
    runner: str
    data: dict[str, Any] = {}


class _Machine(_Part):
    id: str
    address: str = ""
    data: dict[str, Any] = {}


class _Usage(_Part):
    peak_memory_bytes: _Wide | None = None
    cpu_seconds: _Number | None = None
    profile: dict[str, _Figure] = {}
    resumed_seconds: _Time = 0.0


class _Taken(_Part):
    cluster: _Name
    seconds: _Time
    expires: _Moment


class _Lease(_Part):
    cluster: _Name
    seconds: _Time
    expires: _Moment
    since: _Moment
    until: _Moment = 0.0
    reserved: _Money = 0.0
    offer_key: str = ""
    hourly: _Money = 0.0
    cost: _Money = 0.0
    ended: _Moment | None = None
    taken_by: str = ""

    @model_validator(mode="after")
    def _over(self) -> Self:
        """Let it be over: machines that another study keeps are nothing to give back for this one."""
        self.ended = self.until if self.ended is None else self.ended
        return self


class _Preemption(_Part):
    tenant: _Name
    pays: Payer = "owner"
    at: _Moment = 0.0
    cost: _Money = 0.0
    why: str = ""


class _Run(_Part):
    run_id: _Name = Field(min_length=1)
    attempt: _Count = 1
    state: Annotated[RunState, Field(strict=False)]
    reserved: _Money = 0.0
    cost: _Money = 0.0
    runtime: _Time = 0.0
    handle: _Handle | None = None
    machines: list[_Machine] = []
    started: _Moment | None = None
    ended: _Moment | None = None
    exit_code: _Wide | None = None
    reason: str = ""
    fault: Annotated[Fault, Field(strict=False)] | None = None
    usage: _Usage = _Usage()
    folder: str = ""
    offer_key: str = ""
    results: str = ""
    taken: _Taken | None = None
    lease: _Lease | None = None
    preemption: _Preemption | None = None


class _Record(_Part):
    record: int
    number: _Count
    state: Annotated[TrialState, Field(strict=False)]
    key: _Name
    configuration: dict[str, _Value]
    proposal: _Proposal = _Proposal()
    offer: _Offer
    observation: _Observation | None = None
    spent: _Money = 0.0
    attempts: _Count = 0
    created: _Moment = 0.0
    started: _Moment | None = None
    ended: _Moment | None = None
    runs: list[_Run] = []


class _Study(_Part):
    name: _Name = Field(min_length=1)
    problem_key: _Name
    spec: dict[str, Any]
    created: _Moment
    state: StudyState = "open"
    reason: str = ""
    seed: _Wide = 0
    elapsed: _Money = 0.0
    searcher_state: dict[str, Any] = {}


class _StudyDocument(_Part):
    study: _Study
    offers: dict[str, list[_Offer]] | None = None
    files: dict[str, str] = {}
    left_out: list[str] = []
    versions: dict[str, str] = {}


def trial_record(trial: Trial, runs: Sequence[Run]) -> dict[str, Any]:
    """The record of a trial."""
    document = {"record": VERSION, **codec.trial_to_json(trial), "runs": [codec.run_to_json(run) for run in runs]}
    plain: dict[str, Any] = codec.encode_nonfinite(document)
    return plain


def study_record(record: StudyRecord) -> dict[str, Any]:
    """The document of a study's record, which stands before those of its trials."""
    row, offers = record.study, record.offers
    document = {
        "record": VERSION,
        "study": {name: getattr(row, name) for name in _Study.model_fields},
        "offers": None if offers is None else {k: [codec.offer_to_json(o) for o in v] for k, v in offers.items()},
        "files": dict(record.files),
        "left_out": list(record.left_out),
        "versions": dict(record.versions),
    }
    plain: dict[str, Any] = codec.encode_nonfinite(document)
    return plain


def is_study_record(document: Any) -> bool:
    """True for the record of a study, as against those of its trials."""
    return isinstance(document, Mapping) and "record" in document and "study" in document


def read_study_record(document: Mapping[str, Any]) -> StudyRecord:
    """Check and read the record of a study.

    Raises:
        RecordError: It is none.
    """
    _check_version(document, "the study's record")
    _check_numbers(document)
    read = _checked(_StudyDocument, document, "the study's record")
    offers = read["offers"]
    return StudyRecord(
        StudyRow(id=0, **read["study"]),
        None if offers is None else {name: tuple(map(codec.offer_from_json, found)) for name, found in offers.items()},
        read["files"],
        read["left_out"],
        read["versions"],
    )


def read_records(documents: Iterable[Mapping[str, Any]]) -> Iterator[TrialRecord]:
    """Check and read records of trials, one after the other.

    Raises:
        RecordError: One is not a record, or its trial's number stands twice; the message has its place, from 1.
    """
    places: dict[int, int] = {}
    for place, document in enumerate(documents, start=1):
        new = _read(document, place)
        first = places.setdefault(new.trial.number, place)
        if first != place:
            raise RecordError(f"record {place}: trial number {new.trial.number} stands in record {first} already")
        yield new


def _read(document: Any, place: int) -> TrialRecord:
    if not isinstance(document, Mapping) or "record" not in document:
        hint = "tradewind export makes records"
        if isinstance(document, Mapping) and {"number", "configuration"} <= document.keys():
            hint = "it was exported as json or jsonl; tradewind export --format records makes records"
        raise RecordError(f"record {place} is no record: it has no key 'record'", hint=hint)
    _check_version(document, f"record {place}")
    if is_study_record(document):
        raise RecordError(f"record {place} is of a study: only the first one of a file is")
    checked = _checked(_Record, document, f"record {place}")
    trial = codec.trial_from_json(checked)
    runs = tuple(codec.run_from_json({**run, "trial": trial.number}) for run in checked["runs"])
    _check_end(place, trial, runs)
    return TrialRecord(place, trial, runs)


def _check_version(document: Mapping[str, Any], what: str) -> None:
    version = document["record"]
    if version not in READABLE or isinstance(version, bool):
        newer = isinstance(version, int) and version > VERSION
        hint = "upgrade Tradewind" if newer else "tradewind export makes records"
        known = " and ".join(map(str, READABLE))
        raise RecordError(f"{what} is of version {version!r}, this program reads {known}", hint=hint)


def _check_numbers(document: Any) -> None:
    """Refuse numbers that no float can hold wherever they stand: the job is read by many, who expect none."""
    if isinstance(document, Mapping):
        for value in document.values():
            _check_numbers(value)
    elif isinstance(document, list):
        for value in document:
            _check_numbers(value)
    elif isinstance(document, int):
        try:
            _double(document)
        except ValueError as error:
            raise RecordError(f"the study's record: {str(document)[:12]}...: {error}") from None


def _checked(model: type[_Part], document: Mapping[str, Any], what: str) -> dict[str, Any]:
    try:
        return model.model_validate(codec.decode_nonfinite(document)).model_dump()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(piece) for piece in first["loc"])
        raise RecordError(f"{what}: {key}: {first['msg'].removeprefix('Value error, ')}") from None


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
