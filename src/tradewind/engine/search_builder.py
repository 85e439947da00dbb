"""Puts a search together from a specification: every part that it names, made and fitted to the others."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tradewind import plugins
from tradewind.engine.cleanup.old_checkpoints import OldCheckpoints
from tradewind.engine.deployment import (
    build_deployer,
    checkpoint_folder,
    resolve_setting_paths,
    run_request_factory,
    run_span,
)
from tradewind.engine.past_studies import with_past_studies
from tradewind.engine.preflight import check_budget, check_limits, check_offers, check_runner
from tradewind.engine.proposals import first_proposals
from tradewind.engine.records.trial_callbacks import callbacks_of
from tradewind.engine.report_listener import ReportListener, why_reports_unavailable
from tradewind.engine.search import LaunchGate, RunRequestFactory, Search, SearchComponents
from tradewind.engine.state_machine.early_stopping import judged_metric
from tradewind.engine.state_machine.events import PricedProposal
from tradewind.engine.state_machine.retry_policy import fallback_finder
from tradewind.engine.state_machine.search_machine import SearchMachine
from tradewind.engine.state_machine.search_policy import FallbackFinder, KeepPolicy, SearchPolicy, no_fallback
from tradewind.engine.state_machine.snapshot import SearchSnapshot
from tradewind.engine.state_machine.stopping_rules import StoppingRule, make_stopping_rules
from tradewind.errors import StudyBusyError
from tradewind.problem import Categorical, Instance, Offer, OfferQuery, Ordinal, Problem, RunOutput, Space
from tradewind.problem.offer import OfferColumns, with_interruptions
from tradewind.problem.template import names_in
from tradewind.searcher.base import PricesAborts, Searcher
from tradewind.store.base import Store, StudyRow

if TYPE_CHECKING:
    from tradewind.deployer.folder_versions import FolderVersions
    from tradewind.deployer.lifecycle.deployer import Deployer
    from tradewind.deployer.lifecycle.run_context import StageListener
    from tradewind.deployer.runner.base import Runner
    from tradewind.interpreter.base import Interpreter
    from tradewind.problem.job_spec.spec import JobSpec
    from tradewind.selector.base import Selector
    from tradewind.stopper.base import Stopper


def build_stopper(spec: JobSpec, problem: Problem) -> Stopper | None:
    """The stopper of a specification, or None.

    Args:
        spec: The specification.
        problem: The optimization problem of the study.

    Raises:
        SpecError: Nothing says what it is to judge by, or the runner cannot tell what its runs report.
    """
    if spec.early_stop is None:
        return None
    with spec.placed(("early_stop",)):
        stopper: Stopper = plugins.create("stopper", spec.early_stop.name, spec.early_stop.settings)
        judged_metric(problem, stopper.settings)
    runner = cast("type[Runner]", plugins.load("runner", spec.runner.name))
    why, hint = why_reports_unavailable(runner, spec.runner.name, stopper.settings.file)
    if why:
        raise spec.error(("early_stop",), f"early_stop: {why}", hint)
    return stopper


def build_stopping_rules(spec: JobSpec) -> list[StoppingRule]:
    """The stopping rules of a specification, for one search.

    Raises:
        SpecError: A name or a setting is unknown or wrong.
    """
    with spec.placed(("stop",)):
        return make_stopping_rules([(rule.name, rule.settings) for rule in spec.stop])


def build_listener(stopper: Stopper | None, problem: Problem, runner: Runner) -> ReportListener | None:
    """The listener for the reports of runs, where a stopper needs them.

    Args:
        stopper: The stopper, or None.
        problem: The problem.
        runner: Who runs them.
    """
    return (
        None
        if stopper is None
        else ReportListener(runner, stopper.settings, judged_metric(problem, stopper.settings)[0])
    )


def build_problem(spec: JobSpec, data_folder: Path) -> Problem:
    """The problem of a specification, with the catalogue's offers in its space.

    Args:
        spec: The specification.
        data_folder: Where refreshed prices are kept.

    Raises:
        NoOfferError: An instance parameter finds no offer.
        SpecError: The constraints leave nothing.
    """
    found = _instance_offers(spec, data_folder)
    space = spec.build_space(found)
    wanted = _different(list(found.values()) or [_free_offers(spec, space, data_folder)])
    name = spec.selector.name
    settings = _anchored(spec, "selector", name, spec.selector.settings)
    with spec.placed(("select",)):
        resolver: Selector = plugins.create("selector", name, settings, offers=wanted, space=space)
    return compose_problem(spec, space, resolver)


def _different(answers: Sequence[Sequence[Offer]]) -> Sequence[Offer]:
    """The offers of some answers of the catalogues, each key once."""
    if len(answers) == 1 and isinstance(answers[0], OfferColumns):
        return answers[0]
    return list({offer.key: offer for offers in answers for offer in offers}.values())


def offers_of(spec: JobSpec, problem: Problem) -> dict[str, tuple[Offer, ...]]:
    """The offers that a problem was built with, as `JobSpec.known_offers` has them.

    Args:
        spec: The specification.
        problem: Its problem, from `build_problem`.
    """
    found = {p.name: tuple(p.offers.values()) for p in problem.space.parameters if isinstance(p, Instance)}
    found = found or {"": tuple(cast("Selector", problem.resolver).offers)}
    # In the order of the catalogues' answers.
    return {name: tuple(sorted(each, key=lambda o: (o.price_per_hour, o.key))) for name, each in found.items()}


def compose_problem(spec: JobSpec, space: Space, resolver: Selector) -> Problem:
    """The problem of a specification in a space whose offers were chosen before."""
    return Problem(
        job=spec.job,
        space=space,
        objective=spec.objective,
        constraints=spec.constraints,
        budget=spec.budget,
        resolver=resolver,
        terms=spec.terms,
    )


def _instance_offers(spec: JobSpec, data_folder: Path) -> Mapping[str, Sequence[Offer]]:
    """The offers of each instance parameter: those that the study came with, or the catalogues' present ones."""
    from tradewind.selector.offer_search import find_offers, require_gpus

    queries, rate = spec.instance_queries(), spec.interruptions_per_hour
    if spec.known_offers is not None:
        return {name: with_interruptions(spec.known_offers.get(name, ()), rate) for name in queries}
    given = _catalogue_settings(spec)
    for name, query in queries.items():
        require_gpus(query, bounds=name)
    found = {name: with_interruptions(find_offers(query, data_folder, given), rate) for name, query in queries.items()}
    # Columns are of one answer; of several, the selector compares the offers.
    return found if len(found) == 1 else {name: list(offers) for name, offers in found.items()}


def _free_offers(spec: JobSpec, space: Space, data_folder: Path) -> Sequence[Offer]:
    """The offers for a space without an instance parameter: what ``offers`` asks for, or this whole machine."""
    from tradewind.selector.offer_search import find_offers, require_offers

    rate = spec.interruptions_per_hour
    if spec.known_offers is not None:
        return with_interruptions(spec.known_offers.get("", ()), rate)
    given = _catalogue_settings(spec)
    chooses = any(p.attribute is not None for p in space.parameters)
    if chooses or spec.offers != OfferQuery():
        found = require_offers(spec.offers, data_folder, given, bounds="the bounds of 'offers'")
        return with_interruptions(found, rate)
    local = find_offers(OfferQuery(provider=("local",)), data_folder, given)
    return [max(local, key=lambda offer: (offer.vcpu, offer.memory_gib))]


def build_searcher(spec: JobSpec, problem: Problem) -> Searcher:
    """The searcher of a specification.

    Raises:
        SpecError: It does not take its settings, with the line of the one that it names (``searcher.start: ...``), or
            not this problem.
    """
    name = spec.searcher.name
    settings = _anchored(spec, "searcher", name, spec.searcher.settings)
    with spec.placed(("searcher",)):
        searcher: Searcher = plugins.create("searcher", name, settings, problem=problem, seed=spec.seed)
    return searcher


def _catalogue_settings(spec: JobSpec) -> dict[str, Mapping[str, Any]]:
    return {name: _anchored(spec, "catalogue", name, settings) for name, settings in spec.catalogues.items()}


def _anchored(spec: JobSpec, kind: str, name: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    return resolve_setting_paths(spec.base, kind, name, settings)


def study_document(spec: JobSpec) -> dict[str, Any]:
    """The stored form of a specification: all of it, and in plain keys what every reader needs."""
    return {
        **spec.document(),
        "objective": {"metric": spec.objective.metric, "goal": spec.objective.goal},
        "constraints": {
            "deadline": spec.constraints.deadline,
            "thresholds": [asdict(threshold) for threshold in spec.constraints.thresholds],
        },
        "budget": asdict(spec.budget),
        "searcher": spec.searcher.name,
        "parallel": spec.parallel,
    }


def new_owner() -> str:
    """A tag for everything that the runs of a study create; no other study has it."""
    return f"tw-{secrets.token_hex(5)}"


def new_study(spec: JobSpec, *, name: str | None = None, suffix: str = "") -> StudyRow:
    """The row of a study that is not stored yet.

    Args:
        spec: The specification.
        name: The study's name; the job's without it.
        suffix: Added to the problem's key, for studies that are not searches.
    """
    return StudyRow(
        id=0,
        name=name or spec.name,
        problem_key=spec.problem_key + suffix,
        spec=study_document(spec),
        created=time.time(),
        seed=spec.seed,
        owner=new_owner(),
    )


def find_or_new_study(spec: JobSpec, store: Store, *, fresh: bool = False) -> tuple[StudyRow, bool]:
    """The newest study of the same name and problem, or the row of a new one, which `build_search` stores.

    A study goes on with the present budget, searcher and parallelism; only the problem must be the same.

    Args:
        spec: The specification.
        store: The store.
        fresh: Make a new one in any case.

    Returns:
        The study, and whether it is new.
    """
    names = () if fresh else study_names(spec.name, DEFAULT_TENANT)
    found = [study for name in names for study in store.find_studies(name, spec.problem_key)]
    newest = max(found, key=lambda study: study.id, default=None)
    return (new_study(spec), True) if newest is None else (replace(newest, spec=study_document(spec)), False)


DEFAULT_TENANT = "default"
"""Whose searches on a cluster are those of a user who names no tenant."""


def study_names(job: str, tenant: str) -> tuple[str, ...]:
    """The names that the studies of a job may have: a cluster's, and for who names no tenant those of ``tune``, too.

    Args:
        job: The job's name.
        tenant: Whose searches on a cluster.
    """
    return (f"{tenant}/{job}", job) if tenant == DEFAULT_TENANT else (f"{tenant}/{job}",)


def refuse_queued(spec: JobSpec, study: StudyRow, store: Store) -> None:
    """Refuse a study that a search of a cluster's queue goes on with, or one that waits for a study of that name.

    Args:
        spec: The specification.
        study: The study's row; a new one has the id 0.
        store: The store.

    Raises:
        StudyBusyError: It is one.
    """
    if (number := store.queued_search(study.id, DEFAULT_TENANT, spec.name)) is None:
        return
    which = f"the study {study.name!r} (id {study.id}) is that of search {number}" if study.id else (
        f"search {number} of the name {spec.name!r} waits"
    )  # fmt: skip
    raise StudyBusyError(
        f"{which} on a cluster, which is not over",
        hint=f"tradewind queue shows it, tradewind cancel {number} ends it; --fresh begins another study",
    )


def find_or_create_study(spec: JobSpec, store: Store, *, fresh: bool = False) -> tuple[StudyRow, bool]:
    """As `find_or_new_study`, and a new one is stored; of several processes at once one does so."""
    study, _ = find_or_new_study(spec, store, fresh=fresh)
    return stored_study(study, spec, store, fresh=fresh)


def stored_study(study: StudyRow, spec: JobSpec, store: Store, *, fresh: bool) -> tuple[StudyRow, bool]:
    """A new study's row with its id, and True; one that is stored already, or another process's, and False.

    Args:
        study: The row; a new one has the id 0.
        spec: The specification.
        store: The store.
        fresh: Without it, what another process has stored meanwhile for the same name and problem is used.
    """
    if study.id:
        return study, False
    if fresh:
        return store.create_study(study), True
    kept, new = store.find_or_create_study(study)
    return replace(kept, spec=study_document(spec)), new


def build_search(
    spec: JobSpec,
    study: StudyRow,
    store: Store,
    data_folder: Path,
    *,
    problem: Problem | None = None,
    searcher: Searcher | None = None,
    observer: Callable[[SearchSnapshot], None] | None = None,
    rules: Sequence[StoppingRule] | None = None,
    gate: LaunchGate | None = None,
    entered: StageListener | None = None,
    limits: Callable[[RunRequestFactory], RunRequestFactory] | None = None,
    fresh: bool = True,
    keep: Callable[[StudyRow], StudyRow] | None = None,
    enqueued: Sequence[PricedProposal] | None = None,
) -> Search:
    """A search that is ready to run.

    Args:
        spec: The specification.
        study: The study's row. One that is not stored yet (id 0) is stored here as soon as nothing more can be refused:
            a search that cannot begin leaves no study behind. `Search.study` is the row.
        store: Where it is kept.
        data_folder: For runs, runners and refreshed prices.
        problem: The problem, if it was built already.
        searcher: The searcher, if it is not the specification's.
        observer: Called with snapshots.
        rules: When to stop, if not by the specification's rules.
        gate: Who gives leave to each run, where the search shares a cluster with others.
        entered: Told of each stage that a run enters.
        limits: Changes what makes the requests of runs: who shares machines may be given less than an offer has, and
            is of a tenant.
        fresh: Without it, the study of the same name and problem that another process has stored meanwhile is used.
        keep: Stores the row of a new study and gives it its id, where more is to be written with it.
        enqueued: What the user wants tried before all that the searcher proposes, if not what the specification has.
    """

    def build(row: StudyRow) -> SearchComponents:
        parts = _parts(spec, row, store, data_folder, problem, searcher, entered, rules, gated=gate is not None)
        if enqueued is not None:
            parts = replace(parts, enqueued=enqueued)
        elif searcher is None and spec.wanted_first:
            first = first_proposals(spec, parts.problem, store.trials(row.id) if row.id else ())
            parts = replace(parts, enqueued=list(first.proposals.values()))
        return parts if limits is None else replace(parts, request=limits(parts.request))

    parts = build(study)
    if not study.id:
        row, new = (keep(study), True) if keep is not None else stored_study(study, spec, store, fresh=fresh)
        if not new:
            parts.deployer.close()
        parts = replace(parts, study=row) if new else build(row)
    return Search(parts, observer, gate)


def _parts(
    spec: JobSpec,
    study: StudyRow,
    store: Store,
    data_folder: Path,
    problem: Problem | None,
    searcher: Searcher | None,
    entered: StageListener | None,
    rules: Sequence[StoppingRule] | None,
    *,
    gated: bool,
) -> SearchComponents:
    problem = problem or build_problem(spec, data_folder)
    check_runner(spec, problem)
    searches = searcher is None
    if searches:
        problem = with_past_studies(problem, spec, study, store)
    searcher = searcher or build_searcher(spec, problem)
    deployer, policy = _deployment(spec, study, problem, searcher, data_folder, entered)
    policy = replace(policy, rules=policy.rules if rules is None else rules, gated=gated)
    if searches and not study.id:
        check_budget(problem, policy)
    return SearchComponents(
        study=study,
        problem=problem,
        machine=SearchMachine(problem, policy),
        searcher=searcher,
        deployer=deployer,
        store=store,
        request=run_request_factory(spec, study, data_folder, deployer.clock.now),
        read=build_metrics_reader(spec),
        listener=build_listener(policy.stopper, problem, deployer.runner),
        code=_folder_versions(spec, study, data_folder, deployer.runner),
        callbacks=callbacks_of(spec, problem, data_folder) if spec.callbacks else None,
        old_checkpoints=_old_checkpoints(spec, study, data_folder),
    )


def _old_checkpoints(spec: JobSpec, study: StudyRow, data_folder: Path) -> OldCheckpoints | None:
    folder = checkpoint_folder(data_folder, study.owner)
    return None if spec.checkpoint is None else OldCheckpoints(folder, *spec.checkpoint_limits)


def _folder_versions(spec: JobSpec, study: StudyRow, data_folder: Path, runner: Runner) -> FolderVersions | None:
    """The versions of the program's folder, which trials are recorded with; None where nothing of it is run."""
    from tradewind.deployer.folder_versions import FolderVersions
    from tradewind.deployer.runner.base import Simulates

    if isinstance(runner, Simulates) or not study.owner:
        return None
    record = data_folder / "code" / "versions" / f"{study.owner}.json"
    return FolderVersions(spec.job.workdir, record, skip=data_folder, outputs=spec.job.outputs)


def check_search(spec: JobSpec, study: StudyRow, problem: Problem, searcher: Searcher, data_folder: Path) -> None:
    """Refuse what `build_search` refuses, without a search; the searcher has been made.

    Args:
        spec: The specification.
        study: The study's row; the budget of a new one (id 0) must pay a run.
        problem: The problem.
        searcher: The searcher.
        data_folder: For runners and refreshed prices.

    Raises:
        BudgetError: The budget pays no run.
        SpecError: The job cannot run as written, or could cost without end.
    """
    check_runner(spec, problem)
    callbacks_of(spec, problem, data_folder)
    deployer, policy = _deployment(spec, study, problem, searcher, data_folder)
    deployer.close()
    if not study.id:
        check_budget(problem, policy)


def _deployment(
    spec: JobSpec,
    study: StudyRow,
    problem: Problem,
    searcher: Searcher,
    data_folder: Path,
    entered: StageListener | None = None,
) -> tuple[Deployer, SearchPolicy]:
    """The deployer and the policy of a search, once nothing of the job has to be refused."""
    deployer = build_deployer(spec, study.owner, data_folder, entered)
    check_limits(spec, problem)
    check_offers(spec, problem, deployer)
    return deployer, _policy(spec, study, problem, searcher, deployer, data_folder)


def ask_tell_machine(spec: JobSpec, problem: Problem, searcher: Searcher, owner: str) -> SearchMachine:
    """Make the state machine of a search whose runs somebody else carries out, as many as that one asks for.

    Args:
        spec: The specification.
        problem: The problem.
        searcher: The searcher.
        owner: The study's owner tag.
    """
    policy = SearchPolicy(
        owner=owner,
        retries=spec.retries,
        abort=spec.abort,
        priced_aborts=isinstance(searcher, PricesAborts),
        rules=build_stopping_rules(spec),
        searcher=searcher.name,
    )
    machine = SearchMachine(problem, policy)
    machine.parallel = 0
    return machine


def _policy(
    spec: JobSpec, study: StudyRow, problem: Problem, searcher: Searcher, deployer: Deployer, data_folder: Path
) -> SearchPolicy:
    """The policy of the state machine."""
    return SearchPolicy(
        owner=study.owner,
        retries=spec.retries,
        abort=spec.abort,
        priced_aborts=isinstance(searcher, PricesAborts),
        rules=build_stopping_rules(spec),
        room=deployer.room,
        kill_seconds=deployer.kill_seconds,
        longest=spec.longest,
        elsewhere=_fallback_finder(spec, problem, deployer, data_folder),
        spot_attempts=spec.spot_attempts,
        exit_codes=accepted_exit_codes(spec),
        searcher=searcher.name or type(searcher).__name__,
        size=len(problem.candidates) if problem.space.enumerable else None,
        stopper=build_stopper(spec, problem),
        architectures=_architectures(spec, problem, deployer),
        keep=None if spec.keep is None else KeepPolicy(spec.keep, partial(run_span, spec)),
    )


def _architectures(spec: JobSpec, problem: Problem, deployer: Deployer) -> frozenset[str]:
    """The architectures of the offers, where a run on one of them tells whether the program is for it; else none.

    Hosts that the user has may be others than the offers say; and a text that the configuration chooses may choose the
    program.
    """
    from tradewind.deployer.provisioner.base import MakesMachines

    given = deployer.provisioner.gives_machines and not isinstance(deployer.provisioner, MakesMachines)
    job, listed = spec.job, [each for each in problem.space.parameters if isinstance(each, Categorical | Ordinal)]
    words = {each.name for each in listed if any(isinstance(value, str) for value in each.values)}
    chooses = any(names_in(word) for word in (*job.command[:1], job.image or ""))
    chooses |= any(names_in(word) & words for word in (*job.command, *job.env.values()))
    if given or chooses:
        return frozenset()
    return frozenset(offer.arch for offer in cast("Selector", problem.resolver).offers)


def _fallback_finder(spec: JobSpec, problem: Problem, deployer: Deployer, data_folder: Path) -> FallbackFinder:
    """Other offers of the machines that a study uses, where its provisioner makes any."""
    from tradewind.deployer.provisioner.base import MakesMachines
    from tradewind.selector.offer_search import find_offers

    if not isinstance(deployer.provisioner, MakesMachines) or not spec.fallback:
        return no_fallback
    given = _catalogue_settings(spec)
    mine = cast("Selector", problem.resolver).offers
    types = tuple(sorted({offer.instance_type for offer in mine}))
    providers = tuple(sorted({offer.provider for offer in mine}))
    regions = tuple(sorted({offer.region for offer in mine if offer.region}))
    query = OfferQuery(provider=providers, region=regions, types=types, spot=None)
    others = with_interruptions(find_offers(query, data_folder, given), spec.interruptions_per_hour)
    found = {offer.key: offer for offer in (*mine, *others)}
    possible = [offer for offer in found.values() if not deployer.provisioner.refuses(offer)]
    return fallback_finder(possible, spec.fallback)


def accepted_exit_codes(spec: JobSpec) -> frozenset[int]:
    """Exit codes of the program that the user's interpreters take for success.

    Raises:
        PluginError: There is no such interpreter.
    """
    from tradewind.interpreter.base import AcceptsExitCodes

    return frozenset(
        code for part in _interpreters(spec) if isinstance(part, AcceptsExitCodes) for code in part.accepted
    )


def _interpreters(spec: JobSpec) -> list[Interpreter]:
    """The interpreters of a specification, in its order."""
    return [plugins.create("interpreter", choice.name, choice.settings, base=spec.base) for choice in spec.interpret]


def build_metrics_reader(spec: JobSpec) -> Callable[[RunOutput], dict[str, float]]:
    """Reads the metrics of a run with the interpreters of a specification, one after the other.

    What a program calls its metrics is its own affair: of names that no database takes, only the odd characters go.
    """
    from tradewind.interpreter.base import run_interpreters
    from tradewind.store.studies.rows import storable_text

    chain = _interpreters(spec)
    return lambda output: {storable_text(name): value for name, value in run_interpreters(chain, output).items()}
