"""The problem: everything a searcher may know before the first run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Protocol

from tradewind.problem.candidates import Candidates
from tradewind.problem.configuration import Configuration, stable_hash
from tradewind.problem.job import Job
from tradewind.problem.objective import Budget, Constraints, Objective
from tradewind.problem.offer import Billing, Offer
from tradewind.problem.past import PastStudy
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
class StudyTerms:
    """The conditions that hold for a whole study besides space and objective.

    Attributes:
        billing: How time becomes money.
        parallel: Trials at the same time.
        future_runs: How often the user expects to run the job with the configuration that is found, or None.
        abort: Whether a run is cut short at all, whatever its proposal asks for.
    """

    billing: Billing = field(default_factory=Billing)
    parallel: int = 1
    future_runs: float | None = None
    abort: bool = True


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
        """What makes two proposals the same trial: the machines after selection, and the settings.

        Raises:
            NoOfferError: No provider sells the configuration.
        """
        return self.key_of(self.resolver.resolve(configuration), configuration, fidelity)

    def key_of(self, offer: Offer, configuration: Configuration, fidelity: float = 1.0) -> str:
        """As `trial_key`, with the offer at hand."""
        machine = self.resolver.machine_parameters
        settings = {name: value for name, value in configuration.items() if name not in machine}
        same = len(settings) == len(configuration)
        key = configuration.key if same else Configuration(settings).key
        return _trial_key(offer.key, key, fidelity)

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
