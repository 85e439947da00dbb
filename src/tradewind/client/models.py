"""Documents of the service as types; members that a newer server adds are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from tradewind.problem import Offer

OVER = frozenset({"done", "failed", "timed_out", "preempted", "cancelled"})
"""The states of a request that is over."""


class _Info:
    """Something that the server said."""

    __slots__ = ()

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Of the document that the server sent."""
        known = {one.name for one in fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: value for name, value in document.items() if name in known})


@dataclass(frozen=True, slots=True)
class RequestInfo(_Info):
    """A request.

    Attributes:
        id: Number of the request, unique in its service.
        name: What the user calls it.
        kind: ``run`` or ``search``.
        state: ``pending``, ``booting``, ``bootstrapping``, ``submitting``, ``executing``, ``collecting``, or how it
            ended: ``done``, ``failed``, ``timed_out``, ``preempted``, ``cancelled``.
        wanted: What becomes of it: ``run``, ``cancel`` or ``delete``.
        application: ``name@version`` of its application, or empty.
        tenant: Whose it is.
        user: Who made it.
        problem: Why it did not end well; empty where it did, or has not ended.
        hint: What to do about that.
        cost: USD that it has cost so far, total.
        reserved: USD of the tenant's quota that are set aside for it.
        study: Its study, once it has one.
        created: Seconds since the epoch.
        updated: When anything of it last changed, seconds since the epoch.
        started: When it was first carried out.
        ended: When it was over.
        progress: How far it is, for people.
        parameters: The values that it was made with, by the names of its form's fields.
        document: What was asked; empty in lists.
        plan: What was decided before it began; empty in lists.
    """

    id: int
    name: str
    kind: str
    state: str
    wanted: str = "run"
    application: str = ""
    tenant: str = ""
    user: str = ""
    problem: str = ""
    hint: str = ""
    cost: float = 0.0
    reserved: float = 0.0
    study: int | None = None
    created: float = 0.0
    updated: float = 0.0
    started: float | None = None
    ended: float | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    document: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """True once nothing more happens to the request by itself."""
        return self.state in OVER

    @property
    def ok(self) -> bool:
        """True if the request has ended well."""
        return self.state == "done"


@dataclass(frozen=True, slots=True)
class EventInfo(_Info):
    """Something that happened to a request.

    Attributes:
        id: Number of the event; later events have larger ones.
        request: The request's number.
        at: Seconds since the epoch.
        stage: The request's state from then on.
        text: What happened, in words.
        details: Facts by name.
    """

    id: int
    request: int
    at: float
    stage: str
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogPartInfo(_Info):
    """A part of a log.

    Attributes:
        text: What was written.
        next: The offset in bytes to go on with.
        ended: Nothing more will come after it.
        run: Of this run; empty before there is one.
        trial: Of this trial of a search.
    """

    text: str
    next: int
    ended: bool = False
    run: str = ""
    trial: int | None = None


@dataclass(frozen=True, slots=True)
class FileInfo(_Info):
    """A file that a run has left.

    Attributes:
        path: Its path, with ``/``.
        size: Bytes.
    """

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class ApplicationInfo(_Info):
    """A version of an application.

    Attributes:
        name: Name under which it is registered.
        version: 1 for the first.
        reference: ``name@version``.
        tenant: Whose it is; empty where all tenants see it.
        author: Who registered it.
        trusted: Whether that was an administrator.
        state: ``active`` or ``retired``.
        created: Seconds since the epoch.
        document: The YAML that it was registered with; empty in lists.
    """

    name: str
    version: int
    reference: str
    tenant: str = ""
    author: str = ""
    trusted: bool = False
    state: str = "active"
    created: float = 0.0
    document: str = ""


@dataclass(frozen=True, slots=True)
class FormFieldInfo(_Info):
    """A field of a form.

    Attributes:
        name: The key of its value among the parameters.
        type: ``integer``, ``number``, ``text``, ``choice``, ``boolean`` or ``file``.
        title: What stands beside it.
        help: A sentence that explains it.
        default: Its value where it is left alone.
        required: Whether a value must be given.
        min: The least number, or the fewest characters.
        max: The greatest number, the most characters, or the most MiB.
        choices: The values of a choice.
        unit: What the number counts.
    """

    name: str
    type: str
    title: str = ""
    help: str = ""
    default: float | int | str | bool | None = None
    required: bool = True
    min: float | None = None
    max: float | None = None
    choices: Sequence[float | int | str | bool] = ()
    unit: str = ""


@dataclass(frozen=True, slots=True)
class FormInfo:
    """The form of an application.

    Attributes:
        application: ``name@version``.
        title: What people call the application.
        description: What it does.
        fields: The fields, in order.
        space: The parameters of the configuration that may be chosen.
        objective: What is wanted.
        deadline: Seconds that a run may take where nobody says otherwise.
        backend: Where it runs where nobody says otherwise.
        json_schema: JSON Schema (draft 2020-12) of the parameters.
    """

    application: str
    title: str
    description: str
    fields: tuple[FormFieldInfo, ...]
    space: Sequence[str]
    objective: str
    deadline: float | None
    backend: str
    json_schema: Mapping[str, Any]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FormInfo:
        """Of the document that the server sent."""
        plain = {name: document[name] for name in cls.__dataclass_fields__ if name != "fields"}
        return cls(**plain, fields=tuple(FormFieldInfo.from_json(one) for one in document["fields"]))


@dataclass(frozen=True, slots=True)
class CandidateInfo:
    """A configuration that is proposed.

    Attributes:
        configuration: The value of each parameter of the space.
        offer: The machines, with their price.
        runtime: Expected seconds; None where nothing is known.
        runtime_low: 5 % quantile of it.
        runtime_high: 95 % quantile of it.
        cost: Expected USD, this run.
        cost_low: 5 % quantile of it.
        cost_high: 95 % quantile of it.
        objective: Expected value of what the application is to minimise or maximise; None where nothing is known.
        objective_low: 5 % quantile of it.
        objective_high: 95 % quantile of it.
        chance: That the run succeeds, in time and within every bound.
        reason: What it rests on, in a few words.
        trying: True where it is worth a run to learn from, and the best known comes second.
        marks: By what it stands out: ``try``, ``best``, ``cheapest``, ``fastest``.
        difference: How it differs from the best known, in words; empty where an older server does not say it.
        likelihood: How likely it is to keep deadline and bounds, in words; likewise.
    """

    configuration: Mapping[str, Any]
    offer: Offer
    runtime: float | None = None
    runtime_low: float | None = None
    runtime_high: float | None = None
    cost: float | None = None
    cost_low: float | None = None
    cost_high: float | None = None
    objective: float | None = None
    objective_low: float | None = None
    objective_high: float | None = None
    chance: float | None = None
    reason: str = ""
    trying: bool = False
    marks: Sequence[str] = ()
    difference: str = ""
    likelihood: str = ""

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> CandidateInfo:
        """Of the document that the server sent."""
        from tradewind.problem import Offer

        plain = {n: document[n] for n in cls.__dataclass_fields__ if n != "offer" and n in document}
        return cls(**plain, offer=Offer.from_json(document["offer"]))


@dataclass(frozen=True, slots=True)
class ProposalInfo:
    """A proposal for the parameters of an application.

    Attributes:
        application: ``name@version``.
        backend: Where it would run.
        parameters: The job parameters that it is for.
        deadline: Seconds that the run may take.
        candidates: The configurations: one to learn from, if there is any, then the best first.
        runs: Runs of the application that it rests on; 0 where it was never run.
        searcher: Who proposes; empty for the default.
        basis: What it rests on, one sentence each.
        advice: What you may do about it; empty where nothing is better.
        metric: What the application is to minimise or maximise: ``cost``, ``runtime`` or a metric of its own; empty
            where an older server does not say it.
        goal: ``minimise`` or ``maximise``; likewise.
    """

    application: str
    backend: str
    parameters: Mapping[str, Any]
    deadline: float | None
    candidates: tuple[CandidateInfo, ...]
    runs: int
    searcher: str = ""
    basis: Sequence[str] = ()
    advice: str = ""
    metric: str = ""
    goal: str = ""

    @property
    def best(self) -> CandidateInfo:
        """The best known: the first that is not there to learn from, if there is another."""
        return next((one for one in self.candidates if not one.trying), self.candidates[0])

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ProposalInfo:
        """Of the document that the server sent."""
        plain = {n: document[n] for n in cls.__dataclass_fields__ if n != "candidates" and n in document}
        return cls(**plain, candidates=tuple(CandidateInfo.from_json(one) for one in document["candidates"]))


@dataclass(frozen=True, slots=True)
class StudyInfo(_Info):
    """A study as a whole.

    Attributes:
        id: Number of the study in the store.
        name: The job's name.
        state: ``running``, ``stopped``, ``finished`` or ``interrupted``.
        reason: Why it ended, in words.
        objective: ``metric`` and ``goal``.
        deadline: Seconds that a run may take.
        budget: ``dollars``, ``hours`` and ``trials``.
        searcher: Who proposes.
        counts: Trials by state.
        spent: USD over all runs, total.
        best: The best feasible trial.
        request: The request that it is of.
        created: Seconds since the epoch.
    """

    id: int
    name: str
    state: str
    reason: str = ""
    objective: Mapping[str, Any] = field(default_factory=dict)
    deadline: float | None = None
    budget: Mapping[str, Any] = field(default_factory=dict)
    searcher: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    spent: float = 0.0
    best: Mapping[str, Any] | None = None
    request: int | None = None
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class UploadInfo(_Info):
    """Progress of the upload of a request's results.

    Attributes:
        state: ``none`` (they go nowhere), ``later`` (no run has ended yet), ``waiting``, ``done`` or ``failed``.
        address: The folder that they go to; there is a folder for each run in it.
        problem: Why they are not there yet.
    """

    state: str
    address: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class UserInfo(_Info):
    """The user whom the token belongs to.

    Attributes:
        name: The user's name.
        role: ``admin`` or ``user``.
        tenant: Whose requests the user sees and makes.
    """

    name: str
    role: str
    tenant: str
