"""The specification of a study, as a job YAML gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tradewind.errors import SpecError
from tradewind.problem.configuration import stable_hash
from tradewind.problem.division import reject_division_by_zero
from tradewind.problem.expression import Expression
from tradewind.problem.job import Job
from tradewind.problem.objective import Budget, Constraints, Objective
from tradewind.problem.offer import Billing, Offer
from tradewind.problem.parameter import Instance, Parameter
from tradewind.problem.query import OfferQuery
from tradewind.problem.space import Space
from tradewind.problem.spec_offers import named_offers
from tradewind.problem.yaml_source import KeyPath, YamlSource, parse_source, read_source


@dataclass(frozen=True, slots=True)
class PluginChoice:
    """A part that the user chose.

    Attributes:
        name: Its entry-point name.
        settings: The user's settings for it.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StopSpec:
    """A stopping rule that the user chose.

    Attributes:
        name: Its name.
        settings: The user's settings for it.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HookSpec:
    """Something to do before or after a stage of a run: a program or a Python function.

    Attributes:
        command: The program and its arguments, or None.
        python: ``module:function``, or None.
        timeout: Seconds after which it is ended, and counts as failed.
    """

    command: tuple[str, ...] | None = None
    python: str | None = None
    timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """A parameter as declared; an instance has no values before the catalogue is asked.

    Attributes:
        name: Its name.
        kind: ``integer``, ``float``, ``ordinal``, ``categorical``, ``instance`` or ``nodes``.
        when: The parameter exists only where this holds.
        parameter: The parameter, unless it is an instance.
        query: The question to the catalogue, if it is one.
    """

    name: str
    kind: str
    when: Expression | None = None
    parameter: Parameter | None = None
    query: OfferQuery | None = None


@dataclass(frozen=True)
class JobSpec:
    """All that a job YAML says.

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
        longest: Seconds that a run may take which nothing else limits, or None where the YAML says nothing of it.
        fallback: Where a run goes when there are no machines for it.
        spot_attempts: Runs of a trial that may lose their spot machines before it goes elsewhere.
        log_limit: Bytes that are kept of stdout and of stderr, each.
        results: The address of the folder that what runs kept is uploaded to, or empty.
        places: How servers are entered, by the beginning of their address; passwords are references.
        parallel: Trials at the same time.
        seed: Of the searcher.
        stop: Further reasons to stop.
        early_stop: Who gives up running trials for what they report, or None.
        abort: True to cut short runs that can no longer win.
        future_runs: How often the job will run with what is found, or None.
        past: ``all``, ``none``, or the names of the jobs whose earlier studies the searcher may learn from.
        base: The folder of the YAML; relative paths start there.
        file: The YAML's name, for errors.
        source: The document with the line of each key.
        model: The document in its long form.
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
    longest: float | None
    fallback: tuple[Literal["region", "on_demand"], ...]
    spot_attempts: int
    log_limit: int
    results: str
    places: Mapping[str, Mapping[str, str]]
    parallel: int
    seed: int
    stop: tuple[StopSpec, ...]
    early_stop: PluginChoice | None
    abort: bool
    future_runs: float | None
    past: str | tuple[str, ...]
    base: Path
    file: str
    source: YamlSource = field(repr=False, compare=False)
    model: Mapping[str, Any] = field(repr=False, compare=False)

    def document(self) -> dict[str, Any]:
        """The whole specification as a JSON-able document, for the store; `from_json` reads it in any folder."""
        order = list(self.model["space"])  # some databases sort the keys of a document
        return {"version": 1, "base": str(self.base), "file": self.file, "order": order, "job": dict(self.model)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], base: Path | None = None) -> JobSpec:
        """The specification of a document that `document` made.

        Args:
            document: The document.
            base: Another folder for relative paths than the one it was written in.

        Raises:
            SpecError: It is not such a document.
        """
        from tradewind.problem.spec_build import build_spec

        job, file = document.get("job"), str(document.get("file", "<store>"))
        if not isinstance(job, dict) or "base" not in document:
            raise SpecError("is not a stored specification", file=file)
        declared = job.get("space", {})
        job = {**job, "space": {name: declared[name] for name in document.get("order", declared)}}
        # A part that was uninstalled since must not keep anybody from reading the results.
        return build_spec(YamlSource(job, file), base or Path(document["base"]), check_parts=False)

    def error(self, place: KeyPath, message: str, hint: str | None = None) -> SpecError:
        """An error about the value at a place of the YAML (``("stop", 0)``), with its file and line."""
        return self.source.error(place, message, hint)

    def instance_queries(self) -> dict[str, OfferQuery]:
        """The questions to the catalogue, by the name of the instance parameter that wants the answer."""
        return {p.name: p.query for p in self.parameters if p.query is not None}

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
        runner, selector and interpreters; not budget, parallelism, seed, searcher or stopping rules.
        """
        keys = ("space", "where", "offers", "catalogues", "objective", "constraints", "select", "interpret")
        deploy = self.model["deploy"]
        return stable_hash(
            {
                "job": self.job.key,
                **{key: self.model.get(key) for key in keys},
                "billing": deploy["billing"],
                "runner": deploy["runner"],
            }
        )


def load_spec(path: Path, overrides: Mapping[str, Any] | None = None) -> JobSpec:
    """Read a job YAML.

    Args:
        path: The file.
        overrides: Values to replace, by key; ``budget.dollars`` reaches into ``budget``.

    Raises:
        SpecError: Something in it is wrong: with file, line and what to write instead.
    """
    from tradewind.problem.spec_build import build_spec

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
    from tradewind.problem.spec_build import build_spec

    return build_spec(parse_source(text, file).override(overrides or {}), base.absolute())
