"""The problem: everything a searcher may know before the first run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import NoOfferError
from tradewind.problem.columns.offer_features import Features
from tradewind.problem.columns.resolved_offers import ResolvedOffers
from tradewind.problem.columns.row_numbers import RowNumbers, Rows
from tradewind.problem.configuration import Configuration, stable_hash
from tradewind.problem.job import Job
from tradewind.problem.objective import Budget, Constraints, JobParameters, Objective
from tradewind.problem.offer import Billing, MachineParameters, Offer
from tradewind.problem.parameter import Nodes
from tradewind.problem.space import Codes, Space
from tradewind.problem.trial import Trial


@dataclass(frozen=True, slots=True)
class PastStudy:
    """An earlier study of the store: of the same job, of the same job with other parameters, or of another job.

    Attributes:
        name: The job's name.
        parameters: The job's parameters, and the share of the input that its full runs took.
        trials: Its trials that ended and inform, by number; their configurations may be of another space.
        problem_key: Hash of its problem: equal keys mean that every figure can be compared.
        objective: What was wanted.
        constraints: What had to hold; ``feasible`` of an observation is meant by these.
        billing: How time became money.
    """

    name: str
    parameters: JobParameters
    trials: tuple[Trial, ...]
    problem_key: str = ""
    objective: Objective = field(default_factory=Objective)
    constraints: Constraints = field(default_factory=Constraints)
    billing: Billing = field(default_factory=Billing)

    @property
    def values(self) -> Mapping[str, float | str]:
        """The job's parameters by name."""
        return self.parameters.values


class Candidates:
    """A finite list of configurations, each trial once, with the columns that searchers compute on.

    It is made by `of_space` or `of_list`.

    Attributes:
        hourly: USD per hour of all nodes together, shape (n,).
    """

    def __init__(
        self,
        problem: Problem,
        offers: ResolvedOffers,
        offer_of: NDArray[np.intp],
        rows: NDArray[np.intp] | None,
        listed: Sequence[Configuration] | None,
    ) -> None:
        self._problem = problem
        self._offers = offers
        self._offer_of = offer_of
        self._rows = rows  # row of space.codes by candidate
        self._listed = listed
        self.hourly: NDArray[np.float64] = offers.hourly[offer_of]
        self._answers: dict[str, int | None] = {}

    @cached_property
    def features(self) -> Features:
        """Numbers for models, shape (n, k), about in [0, 1]."""
        space = self._problem.space
        if self._listed is not None:
            return space.encode(self._listed)
        return space.encode_codes(space.codes[self._rows])

    def __len__(self) -> int:
        return len(self._offer_of)

    def configuration(self, i: int) -> Configuration:
        """The i-th configuration."""
        if self._listed is not None:
            return self._listed[i]
        assert self._rows is not None
        space = self._problem.space
        return space.configuration(space.codes[self._rows[i]])

    def offer(self, i: int) -> Offer:
        """The i-th configuration's offer."""
        return self._offers[int(self._offer_of[i])]

    @property
    def sizes(self) -> NDArray[np.float64]:
        """USD per hour, vCPUs and GiB of all nodes together of each configuration, shape (n, 3); no offer is made."""
        return self._offers.sizes[self._offer_of]

    @property
    def fact_names(self) -> set[str]:
        """The names of all facts of the offers."""
        return self._offers.fact_names

    @property
    def different_offers(self) -> int:
        """The number of different offers that candidates come to."""
        return int(np.count_nonzero(np.bincount(self._offer_of)))

    def cheapest_offers(self, most: int | None = None) -> list[tuple[Offer, int]]:
        """Each offer that candidates come to, and the number of these; the cheapest by the hour first, then by key.

        Args:
            most: So many of them, or all: others are not made.
        """
        counts = np.bincount(self._offer_of)
        used = np.flatnonzero(counts)
        counts = counts[used]
        hourly = self._offers.hourly[used]
        if most is not None and most < len(used):
            # All that cost as much as the last one: of these, the key decides.
            near = hourly <= np.partition(hourly, most - 1)[most - 1]
            used, counts = used[near], counts[near]
        found = [(self._offers[int(place)], int(count)) for place, count in zip(used, counts, strict=True)]
        return sorted(found, key=lambda item: (item[0].hourly, item[0].key))[:most]

    def key(self, i: int, fidelity: float = 1.0) -> str:
        """The i-th configuration's trial key."""
        return self._problem.key_of(self.offer(i), self.configuration(i), fidelity)

    def index(self, configuration: Configuration) -> int | None:
        """The candidate that a configuration is the same trial as, or None."""
        if configuration.key not in self._answers:
            self._answers[configuration.key] = self._find(configuration)
        return self._answers[configuration.key]

    def _find(self, configuration: Configuration) -> int | None:
        space = self._problem.space
        if not (configuration.keys() <= set(space.names) and space.required <= configuration.keys()):
            return None
        try:
            offer = self._problem.resolver.resolve(configuration)
        except NoOfferError:
            return None
        if self._listed is not None:
            return self._by_key.get(self._problem.key_of(offer, configuration))
        place = self._offers.index(offer)
        row = self._problem.space.place(configuration)
        if place is None or row is None:
            return None
        settings = _settings(self._problem)
        number = self._numbers.of(np.array([[place, *(row[i] for i in settings)]], dtype=np.int64))[0]
        order, ordered = self._sorted
        at = int(np.searchsorted(ordered, number))
        return int(order[at]) if number >= 0 and at < len(ordered) and ordered[at] == number else None

    @cached_property
    def _by_key(self) -> dict[str, int]:
        return {self.key(i): i for i in range(len(self))}

    @cached_property
    def _numbers(self) -> RowNumbers:
        assert self._rows is not None
        settings = _settings(self._problem)
        return RowNumbers(np.column_stack([self._offer_of, self._problem.space.codes[self._rows][:, settings]]))

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.intp], Rows]:
        """The candidates in the order of their numbers, and these numbers."""
        order = np.argsort(self._numbers.numbers)
        return order, self._numbers.numbers[order]

    @classmethod
    def of_space(cls, problem: Problem) -> Candidates:
        """Every allowed configuration of an enumerable space that a provider sells."""
        space = problem.space
        codes = space.codes
        settings = _settings(problem)
        machine = [i for i in range(len(space.names)) if i not in settings]
        # Few different machine choices stand for many configurations: the selector is asked once for each.
        _, first, which = np.unique(RowNumbers(codes[:, machine]).numbers, return_index=True, return_inverse=True)
        offers = _resolve_codes(problem, codes[first])
        offer_of = offers.place[which]
        merged = RowNumbers(np.column_stack([offer_of, codes[:, settings]]))
        _, rows = np.unique(merged.numbers, return_index=True)
        rows = np.sort(rows[offer_of[rows] >= 0])
        if not len(rows):
            raise NoOfferError("no configuration of the space is sold by any provider")
        return cls(problem, offers, offer_of[rows], rows, None)

    @classmethod
    def of_list(cls, problem: Problem, configurations: Sequence[Configuration]) -> Candidates:
        """The given configurations; those that no provider sells and repetitions are left out."""
        offers = resolve_each(problem.resolver, configurations)
        place = offers.place
        kept: dict[tuple[int, str], int] = {}
        for i, configuration in enumerate(configurations):
            if place[i] >= 0:
                # Two that differ in neither have the same key, which is a hash of both.
                kept.setdefault((int(place[i]), problem.settings_key(configuration)), i)
        rows = np.array(list(kept.values()), dtype=np.intp)
        return cls(problem, offers, place[rows], None, [configurations[i] for i in rows])


def _settings(problem: Problem) -> list[int]:
    """Indices of the parameters that choose no machines."""
    machine = problem.resolver.machine_parameters
    return [i for i, name in enumerate(problem.space.names) if name not in machine]


def _resolve_codes(problem: Problem, codes: Codes) -> ResolvedOffers:
    """The offers of some rows of an enumerable space."""
    if isinstance(problem.resolver, ResolvesCodes):
        return problem.resolver.resolve_codes(problem.space, codes)
    return resolve_each(problem.resolver, [problem.space.configuration(row) for row in codes])


def resolve_each(resolver: Resolver, configurations: Iterable[Configuration]) -> ResolvedOffers:
    """The offers of some configurations, each asked for by itself.

    Args:
        resolver: The selector.
        configurations: The configurations.
    """

    def found() -> Iterator[Offer | None]:
        for configuration in configurations:
            try:
                yield resolver.resolve(configuration)
            except NoOfferError:
                yield None

    return ResolvedOffers.of_offers(found())


class Resolver(Protocol):
    """A selector, as a problem uses it."""

    @property
    def machine_parameters(self) -> tuple[str, ...]:
        """Names of the parameters that choose machines; all others are settings of the application."""
        ...

    def resolve(self, configuration: Configuration) -> Offer:
        """The offer that a configuration stands for.

        Raises:
            NoOfferError: No provider sells it.
        """
        ...


@runtime_checkable
class ResolvesCodes(Protocol):
    """A selector that answers for many rows of a finite space at once, as `Resolver.resolve` does for each."""

    def resolve_codes(self, space: Space, codes: Codes) -> ResolvedOffers:
        """The offers of rows of a space's codes."""
        ...


@dataclass(frozen=True, slots=True)
class StudyTerms:
    """The conditions that hold for a whole study besides space and objective.

    Attributes:
        billing: How time becomes money.
        parallel: Trials at the same time.
        future_runs: How often the user expects to run the job with the configuration that is found, or None.
        abort: Whether a run is cut short at all, whatever its proposal asks for.
        checkpoint_seconds: Seconds of work between two checkpoints of the program, or None where a run that is
            interrupted begins anew.
        value_per_hour: USD that an hour of a run is worth where the run time is the objective, or None.
        least_improvement: Share of the best that a further trial must be expected to improve it by, or None.
    """

    billing: Billing = field(default_factory=Billing)
    parallel: int = 1
    future_runs: float | None = None
    abort: bool = True
    checkpoint_seconds: float | None = None
    value_per_hour: float | None = None
    least_improvement: float | None = None


@dataclass(frozen=True)
class Problem:
    """A job, its space, what is wanted of it and what it may cost to find out.

    Attributes:
        job: The job.
        space: What may be chosen.
        objective: What is wanted.
        constraints: What must hold.
        budget: What the search may spend.
        resolver: The selector.
        terms: Billing, parallelism, expected future runs.
        past: Earlier studies, the oldest first, for searchers that learn from them.
    """

    job: Job
    space: Space
    objective: Objective
    constraints: Constraints
    budget: Budget
    resolver: Resolver
    terms: StudyTerms = field(default_factory=StudyTerms)
    past: tuple[PastStudy, ...] = ()

    def trial_key(self, configuration: Configuration, fidelity: float = 1.0) -> str:
        """Key that two proposals of the same trial share: the machines after selection, and the settings.

        Raises:
            NoOfferError: No provider sells the configuration.
        """
        return self.key_of(self.resolver.resolve(configuration), configuration, fidelity)

    def key_of(self, offer: Offer, configuration: Configuration, fidelity: float = 1.0) -> str:
        """As `trial_key`, with the offer at hand."""
        return _trial_key(offer.key, self.settings_key(configuration), fidelity)

    def settings_key(self, configuration: Configuration) -> str:
        """Key of the values of a configuration that choose no machines."""
        machine = self.resolver.machine_parameters
        settings = {name: value for name, value in configuration.items() if name not in machine}
        return configuration.key if len(settings) == len(configuration) else Configuration(settings).key

    @property
    def machine_parameters(self) -> MachineParameters:
        """The parameters that choose machines."""
        counts = tuple(p.name for p in self.space.parameters if isinstance(p, Nodes))
        return MachineParameters(self.resolver.machine_parameters, counts)

    @cached_property
    def candidates(self) -> Candidates:
        """All configurations that can be bought, each trial once; for an enumerable space only."""
        return Candidates.of_space(self)

    def with_past(self, job: Job, constraints: Constraints, past: tuple[PastStudy, ...]) -> Problem:
        """The same space for the same job with other parameters; candidates that were listed already are shared.

        Args:
            job: The job with its parameters.
            constraints: What must hold.
            past: Earlier studies.
        """
        other = replace(self, job=job, constraints=constraints, past=past)
        if "candidates" in self.__dict__:
            other.__dict__["candidates"] = self.candidates
        return other

    def pool(self, configurations: Sequence[Configuration]) -> Candidates:
        """Some configurations as candidates, those that no provider sells and repetitions left out."""
        return Candidates.of_list(self, configurations)


# The searcher, the engine and its intake ask for the same key one after the other; 1 and 1.0 have different ones.
@lru_cache(maxsize=1024, typed=True)
def _trial_key(offer: str, settings: str, fidelity: float) -> str:
    return stable_hash({"offer": offer, "settings": settings, "fidelity": fidelity})
