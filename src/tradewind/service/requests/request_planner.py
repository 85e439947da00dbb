"""Plans requests: checks that a new one can be carried out, and builds its specification when it is."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind import plugins
from tradewind.engine.preflight import ending_words
from tradewind.engine.proposals import first_proposals
from tradewind.engine.search_builder import build_problem
from tradewind.errors import (
    BudgetError,
    ConfigurationError,
    ConflictError,
    DeployError,
    ForbiddenError,
    InputError,
    NoOfferError,
    NotFoundError,
    UnreachableError,
)
from tradewind.problem import Configuration, Problem
from tradewind.problem.job_spec.spec import JobSpec, build_spec
from tradewind.problem.yaml_source import YamlSource
from tradewind.service.accounts.identity import Principal
from tradewind.service.applications.backends import Backend
from tradewind.service.applications.form import deadline_of
from tradewind.service.applications.spec_composition import compose_spec
from tradewind.service.applications.uploaded_files import shared_job_folder, write_job_files
from tradewind.service.applications.validation import CheckedApplication, check_application
from tradewind.service.http.outbound_requests import parse_outbound_url
from tradewind.service.requests import virtual_cluster_request
from tradewind.service.requests.request_document import (
    ParsedRequest,
    RequestModel,
    SearchModel,
    VirtualClusterRequestModel,
    read_document,
)
from tradewind.service.requests.state import DOLLARS
from tradewind.store.service.request_values import RequestKind, RequestRow
from tradewind.tenancy import code_snapshots
from tradewind.utils.ssrf_guard import resolve_addresses
from tradewind.utils.user_functions import is_reference

if TYPE_CHECKING:
    from tradewind.service.applications.application_service import ApplicationService
    from tradewind.service.applications.backends import BackendService
    from tradewind.service.applications.proposals import ProposalService
    from tradewind.service.results.result_storage import ResultStorageService
    from tradewind.service.settings import ServiceSettings
    from tradewind.store.clusters.cluster_store import ClusterStore
    from tradewind.store.service.applications import ApplicationRow

_NAMELESS = "request"

CODE = "code"
"""Key in a request's plan: the digest of the snapshot of its program's folder."""

STOPS = "stops"
"""Key in the plan of a search: when it ends by itself, in words."""


@dataclass(frozen=True)
class PlannerDependencies:
    """Services needed to plan a request.

    Attributes:
        settings: The server's settings.
        applications: The applications.
        backends: The backends that they run on.
        proposals: Proposals for what the user leaves open.
        results: Locations that results may be uploaded to.
        cluster: The shared clusters.
        data_folder: Folder for the folders of jobs.
    """

    settings: ServiceSettings
    applications: ApplicationService
    backends: BackendService
    proposals: ProposalService
    results: ResultStorageService
    cluster: ClusterStore
    data_folder: Path


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """A checked document that can be carried out, as its request keeps it.

    Attributes:
        document: The document, with checked values of its form, and files by their digests.
        kind: ``run`` or ``search``.
        name: Name for people.
        application_id: The version of the application, or None.
        cluster: The shared cluster that it goes to, or empty.
        plan: Decisions so far: the backend, and the USD that it may cost.
    """

    document: Mapping[str, Any]
    kind: RequestKind
    name: str
    application_id: int | None = None
    cluster: str = ""
    plan: Mapping[str, Any] = field(default_factory=dict)


class RequestPlanner:
    """Plans requests: checks documents, and builds specifications.

    Args:
        dependencies: Services that it needs.
    """

    def __init__(self, dependencies: PlannerDependencies) -> None:
        self._dependencies = dependencies

    # ------------------------------------------------------------------ when it is asked

    def accept(self, who: Principal, document: Mapping[str, Any]) -> AcceptedRequest:
        """Check that a document can be carried out for a user.

        Raises:
            InputError: Something in it is wrong.
            NotFoundError: The application, the backend or the cluster is not there for this user.
            ForbiddenError: The user may not run this there.
            NoOfferError: The backend has nothing that was asked for.
        """
        asked = read_document(document)
        if asked.model.notify.webhook:
            self._check_webhook(asked.model.notify.webhook)
        if asked.model.results:
            self._dependencies.results.destination(who.user_id, asked.model.results, is_admin=who.is_admin)
        if asked.figure is not None:
            return self._accept_figure(who, asked, asked.figure)
        assert asked.own is not None
        return self._accept_own(who, asked, asked.own)

    def _check_webhook(self, url: str) -> None:
        """Check that a webhook goes to no address inside; one whose name is not known now may be later."""
        target = parse_outbound_url(url)
        with contextlib.suppress(UnreachableError):
            resolve_addresses(target.host, target.port, private=self._dependencies.settings.private_addresses)

    def _accept_own(self, who: Principal, asked: ParsedRequest, own: RequestModel) -> AcceptedRequest:
        applications = self._dependencies.applications
        row = applications.get(who, own.application)
        backend = self._dependencies.backends.choose(who, row, own.backend)
        values = applications.values(who, row, own.parameters)
        document = {**asked.document, "parameters": values}
        spec = composed = applications.spec(row, values, backend, resources=_resources(own))
        plan: dict[str, Any] = {"backend": backend.name, "admin": who.is_admin}
        if own.search is not None:
            spec = search_spec(spec, own.search)
            _check_tried_first(spec, own.search, build_problem(spec, self._dependencies.data_folder))
            dollars = spec.budget.dollars
            plan |= {STOPS: ends} if (ends := ending_words(spec, advice=False)) else {}
        else:
            _check_configuration(build_problem(spec, self._dependencies.data_folder), own.configuration or {})
            dollars = own.budget
        if own.cluster:
            self._check_cluster(own.cluster, row)
        kind: RequestKind = "run" if own.search is None else "search"
        plan = _with_dollars(plan, dollars) | _kept_code(composed, self._dependencies.data_folder)
        return AcceptedRequest(document, kind, own.name or row.name, row.id, own.cluster, plan)

    def _check_cluster(self, name: str, application: ApplicationRow) -> None:
        """Check that a cluster exists and may run an application: the backend's runner gives way to the cluster's.

        Raises:
            NotFoundError: There is none of that name.
            ForbiddenError: It runs no programs of ordinary users, and this is one.
        """
        known = {one.name: bool(one.settings.get("own_code")) for one in self._dependencies.cluster.clusters()}
        if name not in known:
            raise NotFoundError(f"there is no cluster {name!r}", hint="an administrator starts one")
        if not application.trusted and not known[name]:
            others = [other for other, open_to_all in known.items() if open_to_all]
            hint = f"choose {' or '.join(others)}" if others else "ask an administrator to register the application"
            raise ForbiddenError(f"the cluster {name} runs only programs of its administrators", hint=hint)

    def _accept_figure(
        self, who: Principal, asked: ParsedRequest, figure: VirtualClusterRequestModel
    ) -> AcceptedRequest:
        backends = self._dependencies.backends
        virtual_cluster_request.check_hooks(figure, allowed=who.is_admin or self._dependencies.settings.user_hooks)
        backend = backends.choose(who, None, virtual_cluster_request.backend_of(figure, backends.list(who)))
        known = self._once(figure, who.is_admin, figure.name or _NAMELESS)
        files = virtual_cluster_request.files_of(figure)
        folder = shared_job_folder(files, self._dependencies.data_folder / "applications")
        problem = build_problem(self._spec_of_figure(figure, known, backend, folder), self._dependencies.data_folder)
        cheapest_candidate(problem)
        plan = {"backend": backend.name, "admin": who.is_admin}
        name = figure.name or _NAMELESS
        return AcceptedRequest(asked.document, "run", name, plan=_with_dollars(plan, figure.budget))

    def _once(self, figure: VirtualClusterRequestModel, trusted: bool, name: str) -> CheckedApplication:
        """Make the document an application that is used once, checked as those of the same user are."""
        source = YamlSource(virtual_cluster_request.application_of(figure, name), "request")
        return check_application(source, trusted=trusted, hooks=trusted or self._dependencies.settings.user_hooks)

    def _spec_of_figure(
        self, figure: VirtualClusterRequestModel, known: CheckedApplication, backend: Backend, folder: Path
    ) -> JobSpec:
        return compose_spec(known, {}, backend, folder, resources=figure.resources.given())

    # ------------------------------------------------------------------ when it is carried out

    def prepare(self, row: RequestRow) -> tuple[JobSpec, Configuration | None]:
        """Build the specification of a request and write its files; for a single run, settle its configuration, too.

        Raises:
            TradewindError: It cannot be carried out (any more).
        """
        asked = read_document(row.document)
        backend = self._dependencies.backends.by_name(str(row.plan.get("backend", "")))
        folder = job_folder(self._dependencies.data_folder, row.id)
        if asked.figure is not None:
            known = self._once(asked.figure, bool(row.plan.get("admin")), row.name)
            write_job_files(virtual_cluster_request.files_of(asked.figure), folder)
            spec = single_run_spec(self._spec_of_figure(asked.figure, known, backend, folder))
            problem = build_problem(spec, self._dependencies.data_folder)
            return self._sent(row, spec, asked), problem.candidates.configuration(cheapest_candidate(problem))
        own = asked.own
        assert own is not None
        assert row.application_id is not None
        application: ApplicationRow = self._dependencies.applications.by_id(row.application_id)
        if row.cluster:
            self._check_cluster(row.cluster, application)  # it may have been started anew since
        given = self._dependencies.applications
        spec = given.spec(application, own.parameters, backend, resources=_resources(own), folder=folder)
        if own.search is not None:
            return self._with_code(row, self._sent(row, search_spec(spec, own.search), asked)), None
        spec = single_run_spec(spec)
        who = Principal(row.user_id, row.user, "user", row.tenant)
        chosen = self._dependencies.proposals.settle(who, application, spec, own.configuration)
        return self._with_code(row, self._sent(row, spec, asked)), chosen

    def expect(self, row: RequestRow, spec: JobSpec, configuration: Configuration) -> dict[str, float]:
        """Predict time and cost of a run before it begins, to be compared with what it takes.

        Args:
            row: The request.
            spec: Specification of the request.
            configuration: The configuration of its run.

        Returns:
            ``runtime`` and ``cost`` with ``_low`` and ``_high``; empty where nothing is known.
        """
        if row.application_id is None:
            return {}
        who = Principal(row.user_id, row.user, "user", row.tenant)
        application = self._dependencies.applications.by_id(row.application_id)
        found = self._dependencies.proposals.predict(who, application, spec, configuration)
        names = (f"{figure}{end}" for figure in ("runtime", "cost") for end in ("", "_low", "_high"))
        return {name: value for name in names if (value := getattr(found, name, None)) is not None}

    def _with_code(self, row: RequestRow, spec: JobSpec) -> JobSpec:
        """Have the program run from the snapshot that was kept with the request; a cluster does that by itself."""
        digest = str(row.plan.get(CODE, ""))
        if not digest or row.cluster:
            return spec
        data_folder = self._dependencies.data_folder
        tree = code_snapshots.lay_out(
            code_snapshots.archive_path(digest, data_folder), code_folder(data_folder, row).name, data_folder,
            workdir=spec.job.workdir, hint="give all servers the same files there, and resubmit the request",
        )  # fmt: skip
        return JobSpec.from_json(code_snapshots.run_from(spec.document(), tree))

    def cluster_code(self, row: RequestRow) -> dict[str, dict[str, str]]:
        """Return the options by which a cluster runs the code that was kept with a request."""
        digest = str(row.plan.get(CODE, ""))
        archive = code_snapshots.archive_path(digest, self._dependencies.data_folder)
        return {"code": {"archive": str(archive), "digest": digest}} if digest else {}

    def _sent(self, row: RequestRow, spec: JobSpec, asked: ParsedRequest) -> JobSpec:
        """Add the location that its results are uploaded to."""
        admin = bool(row.plan.get("admin"))
        found = self._dependencies.results.destination(row.user_id, asked.model.results or "", is_admin=admin)
        if not found.results:
            return spec
        places = {**spec.places, **{address: dict(one) for address, one in found.places.items()}}
        return change_spec(spec, {"deploy": {"results": found.results, "places": places}})


def job_folder(data_folder: Path, number: int) -> Path:
    """Return the folder of a request's job: its program finds the job's files there."""
    return data_folder / "requests" / str(number) / "job"


def code_folder(data_folder: Path, row: RequestRow) -> Path:
    """Return the folder that the code of a request is laid out as; no other request has it."""
    return code_snapshots.tree_path(f"request-{row.id}-{str(row.plan.get(CODE, ''))[:12]}", data_folder)


def _kept_code(spec: JobSpec, data_folder: Path) -> dict[str, str]:
    """Keep the program's folder as it is now, where an application has one: that of a request's files is its own."""
    if spec.job.workdir == spec.base.resolve() or not code_snapshots.runs_code(spec):
        return {}
    try:
        kept = code_snapshots.take_snapshot(spec.job.workdir, data_folder, purpose="kept with the request")
    except DeployError as error:
        raise ConflictError(error.message, hint=error.hint) from error  # the administrator's to mend
    return {CODE: kept.digest}


def _resources(own: RequestModel) -> dict[str, float] | None:
    return own.resources.given() if own.resources is not None else None


def _with_dollars(plan: Mapping[str, Any], dollars: float | None) -> dict[str, Any]:
    return {**plan, **({DOLLARS: dollars} if dollars is not None else {})}


def change_spec(spec: JobSpec, changes: Mapping[str, Any], *, anew: tuple[str, ...] = ()) -> JobSpec:
    """Change a specification: mappings are merged, but for the keys of ``anew``, which are replaced."""
    document = copy.deepcopy(spec.source.document)
    for key, value in changes.items():
        there = document.get(key)
        merge = isinstance(value, Mapping) and isinstance(there, dict) and key not in anew
        document[key] = there | value if merge else value
    return build_spec(YamlSource(document, spec.source.file, spec.source.lines), spec.base)


def single_run_spec(spec: JobSpec) -> JobSpec:
    """Build the specification of one run: what the application says of searches is left out, and the deadline holds."""
    nothing = {"abort": False, "parallel": 1, "stop": [], "early_stop": None, "budget": {}}
    return change_spec(spec, {**nothing, **_held_deadline(spec)}, anew=("budget",))


def _held_deadline(spec: JobSpec) -> dict[str, Any]:
    """Return the change by which no run outlives its deadline, also where nothing else cuts it short."""
    deadline = deadline_of(spec)
    return {} if deadline is None else {"deploy": {"longest": deadline}}


def search_spec(spec: JobSpec, search: SearchModel) -> JobSpec:
    """Build the specification of a search.

    Raises:
        InputError: Nothing says what it may spend.
        SpecError: Something of it does not go with the application.
    """
    if is_reference(search.searcher or ""):
        hint = f"one of {', '.join(plugins.names('searcher'))}"
        raise InputError(f"search.searcher: the server would run {search.searcher}", hint=hint)
    given = search.budget.model_dump(exclude_none=True)
    changes: dict[str, Any] = {"budget": given} if given else {}
    kept = ("parallel", "searcher", "seed", "try_first")
    changes |= {key: value for key in kept if (value := getattr(search, key)) is not None}
    if search.objective is not None:
        changes["objective"] = search.objective
    if search.deadline is not None:
        changes["constraints"] = {"deadline": search.deadline}
    made = change_spec(spec, changes, anew=("budget", "searcher", "objective")) if changes else spec
    if not made.abort and (held := _held_deadline(made)):
        made = change_spec(made, held)
    if made.budget.dollars is None and made.budget.trials is None and made.budget.hours is None:
        raise InputError("search: nothing says what it may spend", hint="write search: {budget: $2}")
    return made


def _check_configuration(problem: Problem, given: Mapping[str, Any]) -> None:
    """Check that values are in the space.

    Raises:
        ConfigurationError: A value is not.
    """
    space = problem.space
    chosen = {}
    for name, value in given.items():
        if name not in space:
            known = ", ".join(space.names)
            raise ConfigurationError(f"there is no parameter {name!r} in the space", hint=f"known: {known}")
        chosen[name] = space[name].coerce(value)
    if len(chosen) == len(space.names):
        problem.resolver.resolve(space.check(chosen))


def _check_tried_first(spec: JobSpec, search: SearchModel, problem: Problem) -> None:
    """Check that what is wanted first, by the request or else by the application, can be tried.

    Raises:
        InputError: A value is not in the space, nobody sells it, or the budget does not leave so many trials.
    """
    own = [(f"search.try_first.{i}", values) for i, values in enumerate(search.try_first or ())]
    try:
        first_proposals(replace(spec, try_first=()) if own else spec, problem, (), own)
    except BudgetError as error:
        raise InputError(error.message, hint=error.hint) from None


def cheapest_candidate(problem: Problem) -> int:
    """Return the index of the cheapest candidate.

    Raises:
        NoOfferError: There is none.
    """
    candidates = problem.candidates
    if not len(candidates):
        raise NoOfferError("the backend has no machines like these", hint="ask for less with resources")
    return int(candidates.hourly.argmin())
