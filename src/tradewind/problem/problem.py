"""The problem: everything a searcher may know before the first run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import ConfigurationError, NoOfferError
from tradewind.problem.configuration import Configuration, stable_hash
from tradewind.problem.job import Job
from tradewind.problem.objective import Budget, Constraints, Objective
from tradewind.problem.offer import Billing, Offer
from tradewind.problem.parameter import Features
from tradewind.problem.space import Space


class Resolver(Protocol):
    """What a problem needs of a selector."""

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


@dataclass(frozen=True, slots=True)
class Terms:
    """The conditions that hold for a whole study besides space and objective.

    Attributes:
        billing: How time becomes money.
        parallel: Trials at the same time.
        future_runs: How often the user expects to run the job with the configuration that is found, or None.
    """

    billing: Billing = field(default_factory=Billing)
    parallel: int = 1
    future_runs: float | None = None


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
    """

    job: Job
    space: Space
    objective: Objective
    constraints: Constraints
    budget: Budget
    resolver: Resolver
    terms: Terms = field(default_factory=Terms)

    def trial_key(self, configuration: Configuration, fidelity: float = 1.0) -> str:
        """What makes two proposals the same trial: the machines after selection, and the settings.

        Raises:
            NoOfferError: No provider sells the configuration.
        """
        return self.key_of(self.resolver.resolve(configuration), configuration, fidelity)

    def key_of(self, offer: Offer, configuration: Configuration, fidelity: float = 1.0) -> str:
        """As `trial_key`, with the offer at hand."""
        machine = self.resolver.machine_parameters
        settings = {name: value for name, value in configuration.items() if name not in machine}
        return stable_hash({"offer": offer.key, "settings": Configuration(settings).key, "fidelity": fidelity})

    @cached_property
    def candidates(self) -> Candidates:
        """All configurations that can be bought, each trial once; for an enumerable space only."""
        return Candidates.of_space(self)

    def pool(self, configurations: Sequence[Configuration]) -> Candidates:
        """Some configurations as candidates, those that no provider sells and repetitions left out."""
        return Candidates.of_list(self, configurations)


class Candidates:
    """A finite list of configurations with the columns that searchers compute on.

    Attributes:
        hourly: USD per hour of all nodes together, shape (n,).
        features: Numbers for models, shape (n, k), about in [0, 1].
    """

    def __init__(
        self,
        problem: Problem,
        offers: Sequence[Offer],
        offer_of: NDArray[np.intp],
        features: Features,
        rows: NDArray[np.intp] | None,
        listed: Sequence[Configuration] | None,
    ) -> None:
        self._problem = problem
        self._offers = offers
        self._offer_of = offer_of
        self._rows = rows  # row of space.codes by candidate
        self._listed = listed
        self.features = features
        self.hourly: NDArray[np.float64] = np.array([o.hourly for o in offers])[offer_of]
        self._index: dict[str, int] | None = None

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

    def key(self, i: int, fidelity: float = 1.0) -> str:
        """The i-th configuration's trial key."""
        return self._problem.key_of(self.offer(i), self.configuration(i), fidelity)

    def index(self, configuration: Configuration) -> int | None:
        """The candidate that a configuration is the same trial as, or None."""
        if self._index is None:
            self._index = {}
        if configuration.key not in self._index:
            self._index[configuration.key] = self._find(configuration)
        place = self._index[configuration.key]
        return None if place < 0 else place

    def _find(self, configuration: Configuration) -> int:
        problem = self._problem
        try:
            offer = problem.resolver.resolve(configuration)
        except NoOfferError:
            return -1
        machine = problem.resolver.machine_parameters
        mine = {k: v for k, v in configuration.items() if k not in machine}
        same = [i for i, o in enumerate(self._offers) if o.key == offer.key]
        near = np.flatnonzero(np.isin(self._offer_of, same))
        if self._rows is not None:  # compare levels, not objects: there may be a million
            try:
                code = np.array(problem.space.code(configuration))
            except ConfigurationError:
                return -1
            settings = [i for i, name in enumerate(problem.space.names) if name not in machine]
            near = near[(problem.space.codes[self._rows[near]][:, settings] == code[settings]).all(axis=1)]
        for i in near:
            other = self.configuration(int(i))
            if {k: v for k, v in other.items() if k not in machine} == mine:
                return int(i)
        return -1

    @classmethod
    def of_space(cls, problem: Problem) -> Candidates:
        """Every allowed configuration of an enumerable space."""
        space = problem.space
        codes = space.codes
        machine = [i for i, name in enumerate(space.names) if name in problem.resolver.machine_parameters]
        settings = [i for i in range(len(space.names)) if i not in machine]
        # Few different machine choices stand for many configurations: the selector is asked once for each.
        chosen, which = np.unique(codes[:, machine], axis=0, return_inverse=True)
        first = np.full(len(chosen), -1)
        first[which.ravel()[::-1]] = np.arange(len(codes))[::-1]
        offers, place = _resolve(problem, [space.configuration(codes[i]) for i in first])
        offer_of = place[which.ravel()]
        merged = np.column_stack([offer_of, codes[:, settings]])
        _, rows = np.unique(merged, axis=0, return_index=True)
        rows = np.sort(rows[offer_of[rows] >= 0])
        if not len(rows):
            raise NoOfferError("no configuration of the space is sold by any provider")
        return cls(problem, offers, offer_of[rows], space.encode_codes(codes[rows]), rows, None)

    @classmethod
    def of_list(cls, problem: Problem, configurations: Sequence[Configuration]) -> Candidates:
        """The given configurations."""
        offers, place = _resolve(problem, configurations)
        kept: dict[str, int] = {}
        for i, configuration in enumerate(configurations):
            if place[i] >= 0:
                kept.setdefault(problem.key_of(offers[place[i]], configuration), i)
        rows = np.array(list(kept.values()), dtype=np.intp)
        listed = [configurations[i] for i in rows]
        return cls(problem, offers, place[rows], problem.space.encode(listed), None, listed)


def _resolve(problem: Problem, configurations: Sequence[Configuration]) -> tuple[list[Offer], NDArray[np.intp]]:
    """The different offers of some configurations, and each one's place among them; -1 where there is none."""
    offers: dict[str, Offer] = {}
    place = np.full(len(configurations), -1, dtype=np.intp)
    for i, configuration in enumerate(configurations):
        try:
            offer = problem.resolver.resolve(configuration)
        except NoOfferError:
            continue
        offers.setdefault(offer.key, offer)
        place[i] = list(offers).index(offer.key)
    return list(offers.values()), place
