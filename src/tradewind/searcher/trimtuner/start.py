"""The first runs: all parts of a few configurations, then the smallest part of others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tradewind.problem import COST, RUNTIME, Candidates, Problem, Proposal, Trial, TrialState


@dataclass(frozen=True, slots=True)
class InitialDesign:
    """The order in which configurations are first run in parts.

    Attributes:
        reference: The configurations.
        order: Their places, in the order of starting.
        starts: How many are run on every share but the whole.
        fractions: All shares, the smallest first.
        beyond: The smallest share that is too much for a configuration, by its key (`infeasible_shares`).
    """

    reference: Candidates
    order: Sequence[int]
    starts: int
    fractions: Sequence[float]
    beyond: Mapping[str, float]

    @property
    def parts(self) -> tuple[float, ...]:
        """The shares below 1, the smallest first; 1 alone where none is given."""
        return tuple(share for share in self.fractions if share < 1.0) or (1.0,)

    @property
    def length(self) -> int:
        """How many runs are started with, whatever they show."""
        return self.starts * len(self.parts)

    def runs(self, taken: Collection[str], *, first: bool = True, others: bool = True) -> Iterator[Proposal]:
        """What to start with.

        Args:
            taken: Keys of trials that are not to be proposed: the same run, or a whole one of the configuration.
            first: All parts of the first configurations, up to the one that is too much.
            others: The smallest part of each configuration, then the next one, up to whole runs.
        """
        plan = [(i, s) for i in self.order[: self.starts] for s in self.parts if s <= self._most(i)] if first else []
        yield from self._proposals(plan + [(i, s) for s in self.fractions for i in self.order if others], taken)

    def wholes(self, taken: Collection[str]) -> Iterator[Proposal]:
        """Whole runs, of those first that no part has shown to be too much."""
        yield from self._proposals([(i, 1.0) for i in sorted(self.order, key=lambda i: self._most(i) < 1.0)], taken)

    def _most(self, place: int) -> float:
        return self.beyond.get(self.reference.configuration(place).key, 1.0)

    def _proposals(self, plan: Sequence[tuple[int, float]], taken: Collection[str]) -> Iterator[Proposal]:
        given: set[str] = set()
        for i, share in plan:
            key = self.reference.key(i, share)
            whole = self.reference.key(i)
            if {key, whole} & given or key in taken or whole in taken:
                continue
            given.add(key)
            why: dict[str, float | str] = {"stage": "start", "fraction": share}
            yield Proposal(self.reference.configuration(i), fidelity=share, why=why)


def infeasible_shares(problem: Problem, history: Sequence[Trial]) -> dict[str, float]:
    """The smallest share that failed, or was too slow or too dear for the whole, by key of the configuration."""
    limits = problem.constraints
    most = [t for t in limits.thresholds if t.metric in (COST, RUNTIME) and t.at_most is not None]
    upper = replace(limits, thresholds=tuple(replace(t, at_least=None) for t in most))
    found: dict[str, float] = {}
    for trial in history:
        seen, share = trial.observation, trial.proposal.fidelity
        if seen is None:
            continue
        wrong = trial.state != TrialState.SUCCEEDED
        if wrong or upper.broken(seen.runtime, {COST: seen.cost, RUNTIME: seen.runtime}):
            key = trial.configuration.key
            found[key] = min(share, found.get(key, 1.0))
    return found
