"""Optuna's samplers as searchers.

Parameters become Optuna's distributions (`optuna_distribution`), their values are translated there and back, and bounds
become constraints (`constraint_excess`). `check_options` refuses options with which a sampler cannot search.
"""

from __future__ import annotations

import copy
import inspect
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from tradewind import plugins
from tradewind.errors import ConfigurationError, MissingProgramError, NoOfferError, SpecError
from tradewind.problem import (
    Categorical,
    Configuration,
    Float,
    Instance,
    Integer,
    Observation,
    Parameter,
    Problem,
    Proposal,
    Trial,
    TrialState,
    Value,
)
from tradewind.searcher.base import ContinuousSpaces, NothingLeft, ProposesMany, Searcher, SearchState
from tradewind.utils.dependencies import install_command, optuna_log

if TYPE_CHECKING:
    import optuna

    from tradewind.searcher.optuna_storage import ForkedStorage

    MakeSampler = Callable[[Mapping[str, Any]], optuna.samplers.BaseSampler]
    """Makes the sampler with some options."""

_ROUNDS = 9
"""Suggestions asked for: enough that a sampler that was hurried has begun to learn from its trials."""

_AT_MOST = {"n_ei_candidates": 4, "n_startup_trials": 2, "population_size": 4, "popsize": 6}
"""Options that only put off the moment at which a sampler begins to work by itself, or make it slow."""

_PLAIN = ("QMCSampler", "RandomSampler")
"""Samplers that look at all of their options when they are made."""

_NEVER_FITTED = "GPSampler"
"""Fitting it takes longer than a check may, and its options are all used before that."""

_SAMPLERS = {
    "cmaes": "CmaEsSampler",
    "gp": "GPSampler",
    "nsgaii": "NSGAIISampler",
    "qmc": "QMCSampler",
    "random": "RandomSampler",
    "tpe": "TPESampler",
}

_NEEDS = {"cmaes": "cmaes", "gp": "torch"}
"""Packages that Optuna needs for a sampler besides its own dependencies."""

_KEEPS_NOTES = ("cmaes", "nsgaii", "qmc")
"""Samplers that write notes into a trial when it is asked for: past trials are asked for again, with their values."""

_TRIES = {"gp": 3}
"""Suggestions asked for of samplers that take a second for each, and hardly give another one the next time."""

_LISTED = 20_000
"""Combinations up to which a search for any open configuration precedes the question to the sampler."""

_POOL = 2048
_NAME = "tradewind"
_CONSTRAINTS = "tradewind:constraints"
_JUST_BEYOND = 1e-6
"""The excess of a run that was cut at a bound: zero would be within it."""


class OptunaSettings(plugins.Settings):
    """Settings of the sampler, and of how trials enter its study."""

    sampler: Literal["tpe", "gp", "cmaes", "random", "qmc", "nsgaii"] = Field(
        default="tpe", description="Optuna's sampler; gp needs the package torch as well."
    )
    options: dict[str, bool | int | float | str | None] = Field(
        default_factory=dict,
        description="Settings of the sampler by Optuna's names, such as n_startup_trials; its seed is the study's.",
    )
    tries: int | None = Field(
        default=None,
        ge=1,
        description="Suggestions asked for until one is new, allowed, sold and affordable (20, with gp 3); after that "
        "the open configuration that is nearest to the first of them is taken.",
    )
    aborted: Literal["pruned", "bound"] = Field(
        default="pruned",
        description="What a run that was cut short is told as: a pruned trial with the value it had reached, or a "
        "finished one with that value (samplers other than tpe leave pruned trials out).",
    )


def _require(sampler: str = "tpe") -> None:
    """Refuse a sampler whose packages are not installed."""
    wanted = dict.fromkeys(["optuna", _NEEDS.get(sampler, "optuna")])
    missing = [name for name in wanted if not plugins.installed(name)]
    if missing:
        raise MissingProgramError(
            f"the searcher optuna with the sampler {sampler} needs {' and '.join(missing)}, not installed here",
            hint=install_command("optuna", *(name for name in missing if name != "optuna")),
        )


@dataclass
class _Kept:
    """A study of trials that have ended, kept from one question to the next.

    Attributes:
        study: Optuna's study; its sampler is the one that saw the trials.
        storage: Storage of the study.
        trials: Trials that the study has, in order.
    """

    study: optuna.Study
    storage: ForkedStorage
    trials: list[Trial]


class OptunaSearcher(Searcher, ProposesMany, ContinuousSpaces):
    """Any of Optuna's samplers: TPE, GP, CMA-ES, NSGA-II, quasi-random or random (Akiba et al., KDD 2019).

    Every proposal is asked of a study that has the trials in the order of their numbers, and the sampler is seeded by
    `trial_seed`, so that neither the order of telling nor a restart matters. Deadline and bounds on metrics are
    Optuna's constraints, failed trials are failed ones, pending ones run. Parameters with an order and numbers of
    machines are suggested by their place in the list.
    """

    Settings = OptunaSettings
    needs = (_require,)
    settings: OptunaSettings

    def __init__(self, *, settings: plugins.Settings, problem: Problem, seed: int = 0) -> None:
        super().__init__(settings=settings, problem=problem, seed=seed)
        _require(self.settings.sampler)
        self._kept: _Kept | None = None
        if "seed" in self.settings.options:
            raise SpecError("searcher.options.seed: the sampler's seed is the study's", hint="remove it")
        with _silent():
            kind, options = _SAMPLERS[self.settings.sampler], self.settings.options
            check_options(kind, options, lambda some: self._sampler(0, some), note=_CONSTRAINTS)

    # ------------------------------------------------------------------ asking

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """Propose the sampler's suggestions, as far as they are new, allowed, sold and affordable."""
        if self.problem.space.combinations <= _LISTED and not len(self.open_candidates(state)[1]):
            return self.nothing_left(state)
        taken = self.taken(state)
        chosen: list[Proposal] = []
        with _silent():
            study = self._study(state)
            for place in range(count):
                proposal = self._next(study, state, taken, state.proposed + place)
                if proposal is None:
                    break
                chosen.append(proposal)
                taken.add(self.problem.trial_key(proposal.configuration))
        return chosen or self.nothing_left(state)

    def _next(self, study: optuna.Study, state: SearchState, taken: set[str], number: int) -> Proposal | None:
        from optuna.trial import TrialState as OptunaState

        study.sampler = self._sampler(number)
        first: dict[str, Value] = {}
        for _ in range(self.settings.tries or _TRIES.get(self.settings.sampler, 20)):
            trial = study.ask()
            values = self._suggest(trial)
            configuration = self._open(values, state, taken)
            if configuration is not None:
                return Proposal(configuration, why={"stage": f"suggested by {self.settings.sampler}"})
            study.tell(trial, state=OptunaState.FAIL)
            first = first or values
        configuration = self._nearest(first, state, taken, number)
        if configuration is None:
            return None
        self._add(study, configuration, None, TrialState.RUNNING)
        return Proposal(configuration, why={"stage": f"nearest to the suggestion of {self.settings.sampler}"})

    def _open(self, values: Mapping[str, Value], state: SearchState, taken: set[str]) -> Configuration | None:
        """The configuration of some values, if it may be proposed."""
        try:
            configuration = self.problem.space.check(values)
            offer = self.problem.resolver.resolve(configuration)
        except (ConfigurationError, NoOfferError):
            return None
        payable = self.affordable(state, np.array([offer.hourly]))[0]
        return configuration if payable and self.problem.key_of(offer, configuration) not in taken else None

    def _nearest(
        self, wanted: Mapping[str, Value], state: SearchState, taken: set[str], number: int
    ) -> Configuration | None:
        """The open candidate whose features are nearest to some values; the first of several."""
        space = self.problem.space
        if space.enumerable:
            candidates, free = self.open_candidates(state)
        else:
            rng = np.random.default_rng([self.seed & 0xFFFFFFFF, number])
            candidates = self.problem.pool(space.sample(rng, _POOL))
            free = np.flatnonzero(self.affordable(state, candidates.hourly))
        # Rounded, so that ties are broken by order and not by the last bit of a sum.
        distance = np.round(((candidates.features[free] - space.encode([wanted])[0]) ** 2).sum(axis=1), 9)
        for place in np.argsort(distance, kind="stable"):
            if candidates.key(int(free[place])) not in taken:
                return candidates.configuration(int(free[place]))
        return None

    # ------------------------------------------------------------------ the study

    def _sampler(self, number: int, options: Mapping[str, Any] | None = None) -> optuna.samplers.BaseSampler:
        """The sampler for one trial, with the options of the settings if no others are given."""
        import optuna

        name, seed = self.settings.sampler, trial_seed(self.seed, number)
        kind = getattr(optuna.samplers, _SAMPLERS[name])
        given: dict[str, Any] = {"seed": seed, **(self.settings.options if options is None else options)}
        takes = inspect.signature(kind).parameters
        if name in ("cmaes", "qmc"):
            given["independent_sampler"] = optuna.samplers.RandomSampler(seed=seed)
        if name == "qmc":  # one sequence for the whole study
            given["seed"] = trial_seed(self.seed, 0)
        if "warn_independent_sampling" in takes:
            given["warn_independent_sampling"] = False
        if "constraints_func" in takes and not _names_constraints():
            given["constraints_func"] = lambda trial: trial.user_attrs[_CONSTRAINTS]
        sampler: optuna.samplers.BaseSampler = kind(**given)
        return sampler

    def _study(self, state: SearchState) -> optuna.Study:
        """A study in memory that knows all trials, in the order of their numbers; to be asked once."""
        import optuna

        known = [trial for _, trial in sorted({t.number: t for t in (*state.pending, *self.history)}.items())]
        ended = next((i for i, trial in enumerate(known) if not trial.state.ended), len(known))
        kept = self._kept_of(known[:ended])
        # New suggestions and pending trials enter a copy of the study, which is thrown away with them.
        sampler = copy.deepcopy(kept.study.sampler) if self.settings.sampler in _KEEPS_NOTES else kept.study.sampler
        study = optuna.load_study(study_name=_NAME, storage=kept.storage.fork(), sampler=sampler)
        for trial in known[ended:]:
            self._add_known(study, trial)
        return study

    def _kept_of(self, ended: list[Trial]) -> _Kept:
        """The study of trials to which nothing more will happen: the one of the last question, if they begin with its.

        Building it anew at each question would take time that grows with the square of the trials.
        """
        import optuna

        from tradewind.searcher.optuna_storage import ForkedStorage

        kept = self._kept
        if kept is None or kept.trials != ended[: len(kept.trials)]:
            goals: dict[str, Literal["minimize", "maximize"]] = {"minimise": "minimize", "maximise": "maximize"}
            direction = goals[self.problem.objective.goal]
            storage = ForkedStorage()
            study = optuna.create_study(
                storage=storage, sampler=self._sampler(0), direction=direction, study_name=_NAME
            )
            kept = self._kept = _Kept(study, storage, [])
        for trial in ended[len(kept.trials) :]:
            self._add_known(kept.study, trial)
            kept.trials.append(trial)
        return kept

    def _add_known(self, study: optuna.Study, trial: Trial) -> None:
        """Add a trial of this study, unless it was of a part of the input, or of a space that has changed since."""
        if trial.proposal.fidelity != 1.0:
            return
        try:
            configuration = self.problem.space.check(trial.configuration)
        except ConfigurationError:
            return
        self._add(study, configuration, trial.observation, trial.state)

    def _add(
        self, study: optuna.Study, configuration: Configuration, seen: Observation | None, state: TrialState
    ) -> None:
        """Add a trial to the study."""
        from optuna.trial import TrialState as OptunaState
        from optuna.trial import create_trial

        outcome, value = self._optuna_result(seen, state)
        broken = self._violations(seen) if outcome in (OptunaState.COMPLETE, OptunaState.PRUNED) else {}
        parameters = [p for p in self.problem.space.parameters if p.name in configuration]
        values = {p.name: to_optuna(p, configuration[p.name]) for p in parameters}
        if self.settings.sampler in _KEEPS_NOTES:
            study.enqueue_trial(values)
            trial = study.ask()
            _ = trial.relative_params  # the notes are written when these are first looked at
            for parameter in parameters:
                suggest_value(trial, parameter)
            trial.set_user_attr(_CONSTRAINTS, list(broken.values()))
            if _names_constraints():
                for name, violation in broken.items():
                    trial.set_constraint(name, violation)
            if outcome == OptunaState.PRUNED and value is not None:
                trial.report(value, self._step(seen))
            if outcome != OptunaState.RUNNING:
                study.tell(trial, value if outcome == OptunaState.COMPLETE else None, outcome)
            return
        more: dict[str, Any] = {"constraints": broken} if _names_constraints() else {}
        if not _names_constraints():
            more["system_attrs"] = {"constraints": list(broken.values())}
        reached = {self._step(seen): value} if outcome == OptunaState.PRUNED and value is not None else {}
        ended = create_trial(
            state=outcome,
            value=value if outcome == OptunaState.COMPLETE else None,
            intermediate_values=reached,
            params=values,
            distributions={p.name: optuna_distribution(p) for p in parameters},
            **more,
        )
        study.add_trial(ended)

    def _optuna_result(
        self, seen: Observation | None, state: TrialState
    ) -> tuple[optuna.trial.TrialState, float | None]:
        from optuna.trial import TrialState as OptunaState

        if not state.ended:
            return OptunaState.RUNNING, None
        pruned = state == TrialState.ABORTED and self.settings.aborted == "pruned"
        value = None if seen is None else seen.objective
        if pruned and seen is not None and value is None:
            value = seen.metrics.get(self.problem.objective.metric)  # the last that it reported
        value = None if value is None or not math.isfinite(value) else value
        if pruned:
            return OptunaState.PRUNED, value
        if state == TrialState.FAILED or value is None:
            return OptunaState.FAIL, None
        return OptunaState.COMPLETE, value

    @staticmethod
    def _step(seen: Observation | None) -> int:
        """The step of the last value that a trial reported before it was stopped early."""
        return 0 if seen is None else int(seen.metrics.get("step", 0))

    def _violations(self, seen: Observation | None) -> dict[str, float]:
        """Excess of a trial over each of its bounds, as a share of the bound; zero or less where it keeps one.

        A run that was cut at a bound is beyond it, however exactly it was cut.
        """
        constraints, found = self.problem.constraints, dict[str, float]()
        if seen is None:
            return {}
        if constraints.deadline is not None:
            found["deadline"] = constraint_excess(seen.runtime, constraints.deadline)
        for i, threshold in enumerate(constraints.thresholds):
            value = seen.figures.get(threshold.metric, math.nan)
            if threshold.at_most is not None:
                found[f"{i} {threshold.metric} at most"] = constraint_excess(value, threshold.at_most)
            if threshold.at_least is not None:
                found[f"{i} {threshold.metric} at least"] = constraint_excess(-value, -threshold.at_least)
        if seen.censored:
            found = {name: _JUST_BEYOND if abs(excess) < _JUST_BEYOND else excess for name, excess in found.items()}
        return found

    def _suggest(self, trial: optuna.Trial) -> dict[str, Value]:
        """A value for each parameter that is active, in order."""
        space = self.problem.space
        chosen: dict[str, Value] = {}
        for parameter in space.parameters:
            if parameter.when is None or space.holds(parameter.when, chosen):
                chosen[parameter.name] = from_optuna(parameter, suggest_value(trial, parameter))
        return chosen


def trial_seed(seed: int, number: int) -> int:
    """Seed of the sampler for a trial: the study's seed for the first, and far apart from it for all others.

    Args:
        seed: Seed of the study.
        number: Number of the trial.
    """
    return (seed + 0x9E3779B1 * number) & 0xFFFFFFFF


def _names_constraints() -> bool:
    """True from Optuna 5 on, where a trial names its constraints itself; before, a function of the sampler does."""
    import optuna

    return hasattr(optuna.trial.FrozenTrial, "set_constraint")


@contextmanager
def _silent() -> Iterator[None]:
    """Optuna's log and its warnings of experimental features, off for as long as it is used here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with optuna_log(logging.CRITICAL):
            yield


def check_options(kind: str, options: Mapping[str, Any], make: MakeSampler, *, note: str) -> None:
    """Refuse options that the sampler cannot search with.

    Optuna looks at most of them only when they are used, which may be after ten paid trials; so a sampler is used here
    for a moment, on a study that is thrown away.

    Args:
        kind: The sampler's name in Optuna.
        options: Options by Optuna's names.
        make: Makes the sampler from options.
        note: The name under which a trial has its constraints, for versions of Optuna where a function looks there.

    Raises:
        SpecError: The sampler refuses the options, or fails with them.
    """
    try:
        make(options)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"searcher.options: Optuna's {kind} does not take them: {error}",
            hint="the names are those of the sampler's arguments",
        ) from error
    if not options or kind in _PLAIN or (failure := _failure(kind, options, make, note)) is None:
        return
    guilty = [name for name, value in options.items() if _failure(kind, {name: value}, make, note) is not None]
    what = ", ".join(f"{name}: {options[name]!r}" for name in guilty) or "them together"
    raise SpecError(
        f"searcher.options: Optuna's {kind} cannot search with {what} ({failure})",
        hint=f"the documentation of Optuna's {kind} says which values these may have",
    ) from failure


def _failure(kind: str, options: Mapping[str, Any], make: MakeSampler, note: str) -> Exception | None:
    """The error of a sampler that is used for a moment; None if there is none."""
    import optuna

    try:
        study = optuna.create_study(sampler=make(_hurried(kind, options)))
        for _ in range(_ROUNDS):
            trial = study.ask()
            share, number = trial.suggest_float("share", 0.0, 1.0), trial.suggest_int("number", 1, 8)
            kind_of = trial.suggest_categorical("kind", ["a", "b"])
            trial.set_user_attr(note, [])
            study.tell(trial, share + number + (kind_of == "a"))
    except Exception as error:  # whatever it is, the search would end with it
        return error
    return None


def _hurried(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The same options, of the same types, with which the sampler soon does all that it can do."""
    import optuna

    takes = inspect.signature(getattr(optuna.samplers, kind)).parameters
    hurried = {**{name: most for name, most in _AT_MOST.items() if name in takes}, **options}
    for name, most in _AT_MOST.items():
        value = options.get(name)
        if isinstance(value, int | float):
            hurried[name] = type(value)(min(value, most))
    if kind == _NEVER_FITTED and isinstance(hurried["n_startup_trials"], int | float):
        hurried["n_startup_trials"] = _ROUNDS + 1
    return hurried


def optuna_distribution(parameter: Parameter) -> optuna.distributions.BaseDistribution:
    """Optuna's distribution of a parameter's values: categories, places in a list, or numbers."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(parameter, Float) and parameter.step is None:
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    if isinstance(parameter, Integer) and parameter.step == 1:
        return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
    count = int(parameter.count)
    if isinstance(parameter, Categorical | Instance):
        return CategoricalDistribution([parameter.level(i) for i in range(count)])
    return IntDistribution(0, count - 1)


def suggest_value(trial: optuna.Trial, parameter: Parameter) -> Any:
    """Optuna's suggestion for a parameter, as Optuna knows it."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    wanted = optuna_distribution(parameter)
    if isinstance(wanted, FloatDistribution):
        return trial.suggest_float(parameter.name, wanted.low, wanted.high, log=wanted.log)
    if isinstance(wanted, IntDistribution):
        return trial.suggest_int(parameter.name, wanted.low, wanted.high, log=wanted.log)
    assert isinstance(wanted, CategoricalDistribution)
    return trial.suggest_categorical(parameter.name, wanted.choices)


def to_optuna(parameter: Parameter, value: Value) -> Any:
    """Translate a value into Optuna's: the place in its list where a parameter is suggested by place."""
    if not _by_place(parameter):
        return value
    if isinstance(parameter, Float):
        return parameter.place(float(value))
    if isinstance(parameter, Integer):
        return (int(value) - int(parameter.low)) // parameter.step
    levels = parameter.levels
    assert levels is not None
    return [parameter.level(i) for i in range(len(levels))].index(value)


def from_optuna(parameter: Parameter, value: Any) -> Value:
    """Translate a value of Optuna's into the parameter's; real numbers are rounded to 12 digits, as everywhere."""
    if isinstance(parameter, Float) and parameter.step is None:
        return min(max(float(f"{value:.12g}"), float(parameter.low)), float(parameter.high))
    return parameter.coerce(parameter.level(int(value)) if _by_place(parameter) else value)


def _by_place(parameter: Parameter) -> bool:
    """Say if Optuna is asked for a place in the list of values.

    It counts steps in floats, which large whole numbers outgrow.
    """
    if isinstance(parameter, Float):
        return parameter.step is not None
    if isinstance(parameter, Integer):
        return parameter.step != 1
    return not isinstance(parameter, Categorical | Instance)


def constraint_excess(value: float, bound: float) -> float:
    """Share of a bound (of 1 for 0) by which a value is above it; a missing value is as bad as twice the bound.

    The excesses of all bounds are added up: none may outweigh the others by its unit.
    """
    if not math.isfinite(value):
        return 1.0 if math.isnan(value) or value > 0 else -1.0
    return (value - bound) / (abs(bound) or 1.0)
