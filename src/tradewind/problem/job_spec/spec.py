"""The specification of a study, as a job YAML gives it."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from tradewind import plugins
from tradewind.errors import ConfigurationError, SpecError
from tradewind.problem.columns.named_offers import named_offers
from tradewind.problem.configuration import Value, stable_hash
from tradewind.problem.expression import Expression
from tradewind.problem.job import Job
from tradewind.problem.job_spec.choices import (
    NEVER,
    USUAL_IMPROVEMENT,
    USUAL_RUNS,
    HookSpec,
    ParameterSpec,
    PluginChoice,
    StopSpec,
)
from tradewind.problem.job_spec.contradictions import contradictions
from tradewind.problem.job_spec.load_model import LoadModel
from tradewind.problem.job_spec.model import (
    CategoricalModel,
    ChoiceModel,
    FloatModel,
    InstanceModel,
    IntegerModel,
    JobFile,
    NodesModel,
    ObjectiveModel,
    OrdinalModel,
    PlaceModel,
    QueryModel,
)
from tradewind.problem.job_spec.part_checks import wrong_parts
from tradewind.problem.job_spec.validation_errors import first_error, spec_errors
from tradewind.problem.job_spec.workflow_model import workflow_job
from tradewind.problem.objective import COST, Budget, Constraints, JobParameters, Objective, Threshold
from tradewind.problem.offer import Billing, MachineParameters, Offer, OfferQuery
from tradewind.problem.parameter import Categorical, Float, Instance, Integer, Nodes, Ordinal, Parameter
from tradewind.problem.problem import StudyTerms
from tradewind.problem.run import Load
from tradewind.problem.space import Space, reject_division_by_zero
from tradewind.problem.yaml_source import MAPPING, KeyPath, YamlSource, parse_source, plain_document, read_source
from tradewind.utils.paths import expand
from tradewind.utils.user_functions import anchored_reference, is_reference


@dataclass(frozen=True)
class JobSpec:
    """Contents of a job YAML.

    Attributes:
        name: The job's name.
        job: The job; its folder is absolute.
        parameters: The declared parameters, in order.
        where: Constraints between them.
        offers: Which offers may be used at all.
        catalogues: The user's settings for catalogues, by name.
        objective: What is wanted.
        constraints: What must hold.
        budget: What may be spent.
        billing: How time becomes money.
        runner: Who runs the job.
        provisioner: Who makes machines.
        selector: How a configuration becomes an offer.
        searcher: Who proposes.
        interpret: How metrics are read, in order.
        hooks: By ``before_<stage>``, ``after_<stage>`` and ``on_error``.
        retries: Repetitions of a run that the infrastructure failed.
        keep: Seconds that machines are kept at most for the next trial on the same offer, or None.
        longest: Seconds that a run may take which nothing else limits, or None where the YAML says nothing of it.
        fallback: Where a run goes when there are no machines for it.
        spot_attempts: Runs of a trial that may lose their spot machines before it goes elsewhere.
        interruptions_per_hour: Of a spot machine whose catalogue does not know, or None.
        checkpoint: Seconds between two checkpoints of the program, or None.
        checkpoint_limits: The checkpoints of ended trials that stay: whole runs, and such that wait to go on, or None.
        log_limit: Bytes that are kept of stdout and of stderr, each.
        results: The address of the folder that what runs kept is uploaded to, or empty.
        places: How servers are entered, by the beginning of their address; passwords are references.
        parallel: Trials at the same time.
        seed: Of the searcher.
        try_first: Values of some or all parameters, for each configuration that is tried before all others.
        baseline: Values of some or all parameters of the configuration that the user uses today, or None; it is tried
            before all others.
        stop: Further reasons to stop.
        early_stop: Who gives up running trials for what they report, or None.
        callbacks: Where the trials are written, too, while they run.
        said_abort: What the job says of cutting short runs that can no longer win; None where it says nothing.
        said_future_runs: What the job says of how often it will run with what is found, or None.
        value: USD that an hour of a run is worth, or None.
        said_least_improvement: What the job says of the least improvement that a trial must be expected to bring, as a
            share of the best, or None.
        past: ``all``, ``none``, or the names of the jobs whose earlier studies the searcher may learn from.
        base: The folder of the YAML; relative paths start there.
        file: The YAML's name, for errors.
        source: The document with the line of each key.
        model: The document in its long form.
        known_offers: The offers of the space, by instance parameter (without one: by an empty name), of a study that
            came with them; None where the catalogues are asked.
    """

    name: str
    job: Job
    parameters: tuple[ParameterSpec, ...]
    where: tuple[Expression, ...]
    offers: OfferQuery
    catalogues: Mapping[str, Mapping[str, Any]]
    objective: Objective
    constraints: Constraints
    budget: Budget
    billing: Billing
    runner: PluginChoice
    provisioner: PluginChoice
    selector: PluginChoice
    searcher: PluginChoice
    interpret: tuple[PluginChoice, ...]
    hooks: Mapping[str, tuple[HookSpec, ...]]
    retries: int
    keep: float | None
    longest: float | None
    fallback: tuple[Literal["region", "on_demand"], ...]
    spot_attempts: int
    interruptions_per_hour: float | None
    checkpoint: float | None
    checkpoint_limits: tuple[int, int | None]
    log_limit: int
    results: str
    places: Mapping[str, Mapping[str, str]]
    parallel: int
    seed: int
    try_first: tuple[Mapping[str, Value], ...]
    baseline: Mapping[str, Value] | None
    stop: tuple[StopSpec, ...]
    early_stop: PluginChoice | None
    callbacks: tuple[PluginChoice, ...]
    said_abort: bool | None
    said_future_runs: float | None
    value: float | None
    said_least_improvement: float | None
    past: str | tuple[str, ...]
    base: Path
    file: str
    source: YamlSource = field(repr=False, compare=False)
    model: Mapping[str, Any] = field(repr=False, compare=False)
    known_offers: Mapping[str, tuple[Offer, ...]] | None = field(default=None, repr=False, compare=False)

    def document(self) -> dict[str, Any]:
        """The whole specification as a JSON-able document, for the store; `from_json` reads it in any folder."""
        order = list(self.model["space"])  # some databases sort the keys of a document
        job = {**self.model, "abort": self.abort}  # a record does not change with what a searcher says later
        found = {"version": 1, "base": str(self.base), "file": self.file, "order": order, "job": job}
        if self.known_offers is not None:
            found["known_offers"] = {
                name: [offer.to_json() for offer in offers] for name, offers in self.known_offers.items()
            }
        return found

    @property
    def terms(self) -> StudyTerms:
        """The conditions that hold for a whole study."""
        return StudyTerms(
            self.billing,
            self.parallel,
            self.future_runs,
            self.abort,
            self.checkpoint,
            value_per_hour=self.value,
            least_improvement=self.least_improvement,
        )

    @property
    def future_runs(self) -> float | None:
        """Runs of the job with what is found: as the job says, or else 100; None where nothing is to be weighed."""
        if self.said_future_runs is not None:
            return self.said_future_runs
        return USUAL_RUNS if self._weighs else None

    @property
    def least_improvement(self) -> float | None:
        """Share by which a trial must be expected to improve the best: as the job says, or 1 % unless money decides."""
        if self.said_least_improvement is not None:
            return self.said_least_improvement
        money = self.objective.metric == COST or self.value is not None
        return USUAL_IMPROVEMENT if self._weighs and not money and not self.objective.also else None

    @property
    def _weighs(self) -> bool:
        """True where a search of which nothing is said ends once a trial does not pay."""
        return not self.uses_whole_budget and self._searcher_weighs

    @cached_property
    def _searcher_weighs(self) -> bool:
        part: Any = plugins.load("searcher", self.searcher.name)
        return bool(part.weighs_by_default)

    @property
    def uses_whole_budget(self) -> bool:
        """True with ``stop: never``."""
        return any(rule.name == NEVER for rule in self.stop)

    @property
    def wanted_first(self) -> dict[KeyPath, Mapping[str, Value]]:
        """Values of each configuration that is tried before all others, by its place in the YAML."""
        found: dict[KeyPath, Mapping[str, Value]] = {} if self.baseline is None else {("baseline",): self.baseline}
        return found | {("try_first", i): values for i, values in enumerate(self.try_first)}

    def is_baseline(self, configuration: Mapping[str, Any]) -> bool:
        """True for a configuration with all values of ``baseline``; an instance may be named by its type alone.

        Args:
            configuration: The values of a trial, as the store has them.
        """
        if self.baseline is None:
            return False
        declared = {p.name: p.parameter for p in self.parameters}
        return all(
            name in configuration and _same_value(declared.get(name), wanted, configuration[name])
            for name, wanted in self.baseline.items()
        )

    @cached_property
    def abort(self) -> bool:
        """True to cut short runs that can no longer win: as the job says, or else as its searcher does.

        Raises:
            PluginError: The job does not say, and its searcher cannot be loaded.
        """
        if self.said_abort is not None:
            return self.said_abort
        part: Any = plugins.load("searcher", self.searcher.name)
        return bool(part.abort_by_default(self.searcher.settings))

    @classmethod
    def from_json(cls, document: Mapping[str, Any], base: Path | None = None) -> JobSpec:
        """The specification of a document that `document` made.

        Args:
            document: The document.
            base: Another folder for relative paths than the one it was written in.

        Raises:
            SpecError: It is not such a document.
        """
        job, file = document.get("job"), str(document.get("file", "<store>"))
        if not isinstance(job, dict) or "base" not in document:
            raise SpecError("is not a stored specification", file=file)
        declared = job.get("space", {})
        job = {**job, "space": {name: declared[name] for name in document.get("order", declared)}}
        # A part that was uninstalled since must not keep anybody from reading the results.
        spec = build_spec(YamlSource(job, file), base or Path(document["base"]), check_parts=False)
        offers = document.get("known_offers")
        if offers is None:
            return spec
        read = {name: tuple(Offer.from_json(offer) for offer in found) for name, found in offers.items()}
        return replace(spec, known_offers=read)

    def error(self, place: KeyPath, message: str, hint: str | None = None) -> SpecError:
        """An error about the value at a place of the YAML (``("stop", 0)``), with its file and line."""
        return self.source.error(place, message, hint)

    @contextmanager
    def placed(self, place: KeyPath) -> Iterator[None]:
        """Give the errors of a part that is made within, and that say no file, the line at which the YAML names it.

        A message that begins with keys below the place (``searcher.start: ...``) gets the line of these.

        Args:
            place: The place.

        Raises:
            SpecError: What the making of the part raised.
        """
        try:
            yield
        except SpecError as error:
            if error.file:
                raise
            named = tuple(error.message.partition(":")[0].split("."))
            place = named if named[: len(place)] == place else place
            raise self.error(place, error.message, error.hint) from error

    def instance_queries(self) -> dict[str, OfferQuery]:
        """The questions to the catalogue, by the name of the instance parameter that wants the answer."""
        return {p.name: p.query for p in self.parameters if p.query is not None}

    @property
    def machine_parameters(self) -> MachineParameters:
        """The parameters that choose machines, as the space declares them."""
        counts = tuple(p.name for p in self.parameters if p.kind == "nodes")
        chosen = {p.name for p in self.parameters if p.kind == "instance" or (p.parameter and p.parameter.attribute)}
        return MachineParameters(tuple(p.name for p in self.parameters if p.name in chosen or p.name in counts), counts)

    def build_space(self, offers: Mapping[str, Sequence[Offer]]) -> Space:
        """The space, once the catalogue has answered.

        Args:
            offers: The offers that were found, by name of the instance parameter.

        Returns:
            The space. An instance's value is the bare type where one provider in one region sells it, otherwise
            ``provider/region/type``, with ``/spot`` where only that makes the difference.

        Raises:
            NoOfferError: An instance parameter has no offers.
            SpecError: The constraints allow nothing, or compare what cannot be compared.
        """
        parameters: list[Parameter] = []
        for declared in self.parameters:
            if declared.query is not None:
                found = named_offers(declared.name, declared.query, offers.get(declared.name, ()))
                parameters.append(Instance(name=declared.name, when=declared.when, values=tuple(found), offers=found))
            else:
                assert declared.parameter is not None
                parameters.append(declared.parameter)
        try:
            space = Space(parameters, self.where)
            reject_division_by_zero(space)
            if space.enumerable:
                _ = space.codes
        except SpecError as error:
            if error.line is not None:
                raise
            raise self.error(("where",) if self.where else ("space",), error.message, error.hint) from None
        return space

    @property
    def problem_key(self) -> str:
        """A hash of all that makes results comparable.

        It covers the job, the declared space with its constraints and offers, objective, constraints, billing,
        interruptions where the job says something of them, runner, selector and interpreters; not budget, parallelism,
        seed, searcher or stopping rules.
        """
        return stable_hash(self._problem())

    def problem_differences(self, other: JobSpec) -> list[str]:
        """The keys in which another specification's problem is not this one's, as ``problem_key`` counts them.

        Args:
            other: The other specification.
        """
        mine, theirs = self._problem(), other._problem()
        return [key for key in mine if stable_hash(mine[key]) != stable_hash(theirs[key])]

    def _problem(self) -> dict[str, Any]:
        keys = ("space", "where", "offers", "catalogues", "objective", "constraints", "select", "interpret")
        deploy = self.model["deploy"]
        return {
            "job": self.job.key,
            **{key: _without_folders(self.model.get(key)) for key in keys},
            "billing": {**deploy["billing"], **_interruptions(deploy)},
            "runner": _without_folders(deploy["runner"]),
        }


def _interruptions(deploy: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide what interruptions cost; how many checkpoints stay does not."""
    every = {"checkpoint": deploy["checkpoint"]["every"]} if "checkpoint" in deploy else {}
    return {**{name: deploy[name] for name in ("interruptions_per_hour",) if name in deploy}, **every}


def _same_value(parameter: Parameter | None, wanted: Any, value: Any) -> bool:
    """True where a value as the user wrote it is a stored one; None stands for an instance."""
    if parameter is None:
        return set(str(wanted).split("/")) <= set(str(value).split("/"))
    try:
        return bool(parameter.coerce(wanted) == value)
    except ConfigurationError:
        return False


def load_spec(path: Path, overrides: Mapping[str, Any] | None = None) -> JobSpec:
    """Read a job YAML.

    Args:
        path: The file.
        overrides: Values to replace, by key; ``budget.dollars`` reaches into ``budget``.

    Raises:
        SpecError: Something in it is wrong: with file, line and what to write instead.
    """
    return build_spec(read_source(path).override(overrides or {}), path.absolute().parent)


def parse_spec(text: str, *, file: str = "<text>", base: Path, overrides: Mapping[str, Any] | None = None) -> JobSpec:
    """Read a job YAML from text.

    Args:
        text: The YAML.
        file: The name that errors give it.
        base: The folder that relative paths start in.
        overrides: Values to replace, by key.

    Raises:
        SpecError: Something in it is wrong.
    """
    return build_spec(parse_source(text, file).override(overrides or {}), base.absolute())


def parse_mapping(
    document: Mapping[str, Any], *, file: str = MAPPING, base: Path, overrides: Mapping[str, Any] | None = None
) -> JobSpec:
    """Read what a job YAML would say from a mapping; errors name keys and no lines, which nobody has written.

    Args:
        document: The mapping; values of numpy, ranges and paths are turned into those of YAML.
        file: The name that errors give it.
        base: The folder that relative paths start in.
        overrides: Values to replace, by key.

    Raises:
        SpecError: Something in it is wrong.
    """
    import yaml

    source = parse_source(yaml.safe_dump(plain_document(document, file=file), sort_keys=False), file)
    return build_spec(replace(source, lines={}).override(overrides or {}), base.absolute())


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}")
_RESERVED = {"fraction", "min", "max", "abs", "True", "False", "None"}


def build_spec(source: YamlSource, base: Path, *, check_parts: bool = True) -> JobSpec:
    """The specification of a document.

    Args:
        source: The document.
        base: The folder that relative paths start in.
        check_parts: False to leave the names and settings of plugins unchecked.

    Raises:
        SpecError: Something is wrong; the first thing in the file is named.
    """
    try:
        # A key whose lines are all commented out is not there.
        model = JobFile.model_validate({key: value for key, value in source.document.items() if value is not None})
    except ValidationError as error:
        raise first_error(spec_errors(error, JobFile, source)) from None
    _check_name(model.name, source)
    spec = _spec(model, source, base)
    problems = contradictions(spec)
    if check_parts:
        problems += wrong_parts(model, source, base)
    if problems:
        raise first_error(problems)
    return spec


def _check_name(name: str, source: YamlSource) -> None:
    if not _JOB_NAME.fullmatch(name) or name.isdigit():
        hint = "letters, digits, space, '.', '_' and '-', at most 100, and not only digits"
        raise source.error(("name",), f"name: {name!r} is no name for a job", hint)


def _spec(model: JobFile, source: YamlSource, base: Path) -> JobSpec:
    workdir = (base / expand(model.job.workdir)).resolve()
    billing, constraints = model.deploy.billing, model.constraints
    document = model.model_dump(mode="json", exclude_none=True)
    document["job"]["workdir"] = str(workdir)
    _anchor_parts(document, base)
    document["job"]["secrets"] = secrets = {k: _secret(v, base) for k, v in model.job.secrets.items()}
    return JobSpec(
        name=model.name,
        job=_job(model, workdir, secrets),
        parameters=_parameters(model, source),
        where=tuple(Expression(text) for text in model.where),
        offers=_query(model.offers),
        catalogues={anchored_reference(name, base): dict(given) for name, given in model.catalogues.items()},
        objective=_objective(model.objective),
        constraints=Constraints(
            constraints.deadline,
            tuple(Threshold(name, one.at_least, one.at_most) for name, one in sorted(constraints.metrics.items())),
        ),
        budget=Budget(model.budget.dollars, model.budget.hours, model.budget.trials),
        billing=Billing(billing.setup, billing.minimum, billing.granularity),
        runner=_choice(model.deploy.runner, base),
        provisioner=_choice(model.deploy.provisioner, base),
        selector=_choice(model.select, base),
        searcher=_choice(model.searcher, base),
        interpret=tuple(_choice(one, base) for one in model.interpret),
        hooks={
            stage: tuple(HookSpec(tuple(h.command) if h.command else None, h.python, h.timeout) for h in hooks)
            for stage, hooks in model.deploy.hooks.items()
        },
        retries=model.deploy.retries,
        keep=model.deploy.keep,
        longest=model.deploy.longest,
        fallback=tuple(model.deploy.fallback),
        spot_attempts=model.deploy.spot_attempts,
        interruptions_per_hour=model.deploy.interruptions_per_hour,
        checkpoint=saves.every if (saves := model.deploy.checkpoint) else None,
        checkpoint_limits=(saves.keep, saves.waiting) if saves else (0, None),
        log_limit=model.deploy.log_limit,
        results=_results(model.deploy.results, base),
        places={address: _place(one, base) for address, one in model.deploy.places.items()},
        parallel=model.parallel,
        seed=model.seed,
        try_first=tuple(model.try_first),
        baseline=model.baseline,
        stop=tuple(StopSpec(one.use, dict(one.model_extra or {})) for one in model.stop),
        early_stop=_choice(model.early_stop, base) if model.early_stop else None,
        callbacks=tuple(_choice(one, base) for one in model.callbacks),
        said_abort=model.abort,
        said_future_runs=model.future_runs,
        value=model.value,
        said_least_improvement=model.least_improvement,
        past=model.past if isinstance(model.past, str) else tuple(model.past),
        base=base,
        file=source.file,
        source=source,
        model=document,
    )


def _job(model: JobFile, workdir: Path, secrets: Mapping[str, str]) -> Job:
    job = model.job
    return Job(
        name=model.name,
        command=tuple(job.command),
        workdir=workdir,
        env=dict(job.env),
        secrets=dict(secrets),
        inputs=tuple(job.inputs),
        outputs=tuple(job.outputs),
        image=job.image,
        parameters=JobParameters(dict(job.parameters), job.fraction),
        load=_load(job.load) if job.load else None,
        ports=tuple(job.ports),
        workflow=workflow_job(job.workflow, model.space),
    )


def _load(given: LoadModel) -> Load:
    ready = given.ready
    return Load(
        tuple(given.command),
        given.image,
        dict(given.env),
        given.port,
        ready.path,
        ready.log,
        ready.within,
        given.cpus,
        given.memory,
    )


def _secret(reference: str, base: Path) -> str:
    if reference.startswith("file:"):
        return f"file:{(base / expand(reference.removeprefix('file:'))).resolve()}"
    return reference


def _results(address: str | None, base: Path) -> str:
    if not address or "://" in address:
        return address or ""
    return str((base / expand(address)).resolve())


def _place(model: PlaceModel, base: Path) -> dict[str, str]:
    given = {key: str(value) for key, value in model.model_dump(exclude_none=True).items() if value}
    for key in ("identity", "known_hosts"):
        if key in given:
            given[key] = str(base / expand(given[key]))
    if "password" in given:
        given["password"] = _secret(given["password"], base)
    return given


def _choice(model: ChoiceModel, base: Path) -> PluginChoice:
    return PluginChoice(anchored_reference(model.use, base), dict(model.model_extra or {}))


def _anchor_parts(document: dict[str, Any], base: Path) -> None:
    """Give files of the user's own parts their whole path: whoever reads the document may be in another folder."""
    deploy = document["deploy"]
    choices = [deploy["runner"], deploy["provisioner"], document["select"], document["searcher"]]
    choices += [*document["interpret"], *document["callbacks"], *filter(None, [document.get("early_stop")])]
    for choice in choices:
        choice["use"] = anchored_reference(choice["use"], base)
    document["catalogues"] = {anchored_reference(name, base): v for name, v in document["catalogues"].items()}


def _without_folders(part: Any) -> Any:
    """The choice of parts without the folders of their files, which say nothing of the problem."""
    if isinstance(part, list):
        return [_without_folders(one) for one in part]
    if isinstance(part, Mapping) and is_reference(str(part.get("use", ""))):
        return {**part, "use": str(part["use"]).rpartition("/")[2]}
    return part


def _objective(model: ObjectiveModel) -> Objective:
    also = tuple(_objective(one) for one in model.also)
    if model.maximise is not None:
        return Objective(model.maximise, "maximise", also)
    return Objective(str(model.minimise), "minimise", also)


_QUERY_LISTS = ("provider", "region", "types", "category", "family", "arch")
_QUERY_RANGES = ("vcpu", "memory", "price", "gpus")


def _query(*models: QueryModel) -> OfferQuery:
    """The query of the first model; what it leaves out is taken from those after it."""
    given: dict[str, Any] = {}
    for model in reversed(models):
        given |= {key: value for key in QueryModel.model_fields if (value := getattr(model, key)) is not None}
    listed: dict[str, Any] = {key: tuple(given[key]) for key in (*_QUERY_LISTS, *_QUERY_RANGES) if key in given}
    spot = given.get("spot", False)
    return OfferQuery(**listed, spot=None if spot == "any" else spot, limit=given.get("limit"))


# ---------------------------------------------------------------------- parameters


def _parameters(model: JobFile, source: YamlSource) -> tuple[ParameterSpec, ...]:
    made: list[ParameterSpec] = []
    problems: list[SpecError] = []
    for name, one in model.space.items():
        place: KeyPath = ("space", name)
        try:
            _check_parameter_name(name, one.type)
            made.append(_parameter(name, one, model.offers))
        except SpecError as error:
            problems.append(source.error(place, f"space.{error.message}", error.hint))
    for kind in ("instance", "nodes"):
        twice = [p.name for p in made if p.kind == kind]
        if len(twice) > 1:
            message = f"space: {' and '.join(twice)} both choose the {kind}"
            problems.append(source.error(("space", twice[1]), message, "keep one of them"))
    if problems:
        raise first_error(problems)
    return tuple(made)


def _check_parameter_name(name: str, kind: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or name in _RESERVED:
        plain = re.sub(r"\W+", "_", name).strip("_")
        ok = plain and _NAME.fullmatch(plain) and plain not in _RESERVED and not keyword.iskeyword(plain)
        rule = "letters, digits and _ only, at most 100, and no word of Python"
        hint = f"write {plain}" if ok and plain != name else rule
        raise SpecError(f"{name}: {name!r} is no name for a parameter", hint=hint)
    if name in ("instance", "nodes") and kind != name:
        raise SpecError(f"{name}: a parameter of this name is of type {name}, not {kind}", hint="give it another name")


def _parameter(name: str, model: Any, offers: QueryModel) -> ParameterSpec:
    when = Expression(model.when) if model.when else None
    if isinstance(model, InstanceModel):
        if model.values is not None and model.types is not None:
            raise SpecError(f"{name}: values and types are the same thing", hint="keep one of them")
        own = model.model_copy(update={"types": model.values}) if model.values is not None else model
        if own.types == []:
            raise SpecError(f"{name}: the list of instance types is empty")
        return ParameterSpec(name, model.type, when, query=_query(own, offers))
    return ParameterSpec(name, model.type, when, parameter=_made(name, model, when))


def _made(name: str, model: Any, when: Expression | None) -> Parameter:
    if isinstance(model, NodesModel):
        return Nodes(name=name, when=when, values=_node_counts(name, model))
    common = {"name": name, "when": when, "attribute": model.attribute}
    match model:
        case IntegerModel():
            return Integer(**common, low=model.low, high=model.high, step=model.step, log=model.log)
        case FloatModel():
            return Float(**common, low=model.low, high=model.high, step=model.step, log=model.log)
        case OrdinalModel():
            return Ordinal(**common, values=tuple(model.values))
        case CategoricalModel():
            return Categorical(**common, values=tuple(model.values))
    raise AssertionError(model)  # pragma: no cover


def _node_counts(name: str, model: NodesModel) -> tuple[int, ...]:
    if model.values is not None:
        if model.low is not None or model.high is not None:
            raise SpecError(f"{name}: has both values and a range", hint="keep one of them")
        return tuple(model.values)
    if model.high is None:
        raise SpecError(f"{name}: the number of machines is missing", hint="write [1, 2, 4, 8] or 1..8")
    low = model.low or 1
    if low > model.high:
        raise SpecError(f"{name}: low {low} is above high {model.high}", hint="swap them")
    return tuple(range(low, model.high + 1))
