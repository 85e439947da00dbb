"""Coordinate descent: improves one parameter at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tradewind import plugins
from tradewind.errors import ConfigurationError, NoOfferError, SpecError
from tradewind.problem import (
    Candidates,
    Categorical,
    Configuration,
    Parameter,
    Problem,
    Proposal,
    Trial,
    TrialState,
    Value,
)
from tradewind.searcher.base import ContinuousSpaces, NothingLeft, ProposesMany, Searcher, SearchState
from tradewind.searcher.candidate_pool import REFERENCE_SIZES, no_candidate_found

_MISSES = 50
"""Turns without any allowed configuration after which no more random starts are looked for."""

Rank = tuple[int, float]
"""The rank of a trial, smaller is better.

(0, loss) feasible, (1, seconds) infeasible, (2, 0) cut short, (3, 0) failed, (4, 0) too dear.
"""


class CoordinateDescentSettings(plugins.Settings):
    """Settings of the start and the steps of coordinate descent."""

    start: Literal["cheapest", "centre", "random"] | dict[str, bool | int | float | str] = Field(
        default="cheapest",
        description="cheapest (by price per hour), centre, random, or the values of a configuration.",
    )
    restarts: int | None = Field(
        default=None, ge=0, description="New random starts after a local optimum; without it, until nothing is left."
    )
    max_levels: int = Field(
        default=8, ge=2, description="A parameter with more values is walked along in steps, not tried value by value."
    )
    first_step: float = Field(default=0.25, gt=0, le=1, description="First step, as a share of the parameter's range.")
    least_step: float = Field(default=0.01, gt=0, le=1, description="Steps are halved down to this share.")


@dataclass
class _Walk:
    """A descent followed as far as the known trials lead.

    Attributes:
        known: Rank by trial key.
        seen: Trial keys that the walk has asked for.
        missing: Configurations whose result decides the next move.
        stage: The present move of the walk, in words.
    """

    known: Mapping[str, Rank]
    seen: set[str] = field(default_factory=set)
    missing: list[Configuration] = field(default_factory=list)
    stage: str = ""


class CoordinateDescentSearcher(Searcher, ProposesMany, ContinuousSpaces):
    """Improves one parameter at a time, and starts again elsewhere when none improves.

    All values of one parameter are tried with the others held, the best is kept, and the next parameter follows; a
    parameter with many values, or a real one, is walked along in steps that are halved when neither direction
    improves. It is the coordinate search of paper 3's baselines (Wright, "Coordinate descent algorithms",
    Mathematical Programming 151, 2015, algorithm 1, with an exact line search over the levels).

    Every call follows the walk again from its start through the trials that are known, so that the walk depends on
    nothing but the problem, the seed and those trials.
    """

    Settings = CoordinateDescentSettings
    settings: CoordinateDescentSettings

    def __init__(self, *, settings: plugins.Settings, problem: Problem, seed: int = 0) -> None:
        super().__init__(settings=settings, problem=problem, seed=seed)
        if isinstance(self.settings.start, dict):
            try:
                problem.space.check(self.settings.start)
            except ConfigurationError as error:
                raise SpecError(f"searcher.start: {error.message}", hint=error.hint) from error

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """Propose the untried values of the parameter whose turn it is."""
        if self._first is None:
            return no_candidate_found(state)
        waiting = {trial.key for trial in state.pending}
        walk = _Walk({**{trial.key: self._rank(trial) for trial in self.history}})
        left = state.money_left
        for start in self._starts(walk, left):
            self._descend(start, walk, left)
            if walk.missing:
                break
        fresh = [c for c in walk.missing if self._key(c) not in waiting]
        if fresh:
            return [Proposal(c, why={"stage": walk.stage}) for c in fresh[:count]]
        if walk.missing:
            return NothingLeft(f"{walk.stage}: waits for the trials that are running", final=False)
        if self.settings.restarts is not None:
            done = f"no parameter improves any more, after {self.settings.restarts} further starts"
            return NothingLeft(done, final=not state.pending)
        return self.nothing_left(state)

    # ------------------------------------------------------------------ the walk

    def _descend(self, start: Configuration, walk: _Walk, money: float | None) -> None:
        """Follow one descent; leaves ``walk.missing`` empty when it ends in a local optimum."""
        ranks = self._need([start], walk, money, "start")
        if ranks is None:
            return
        here, rank = start, ranks[0]
        step = self.settings.first_step
        while True:
            before, stepped = here, False
            for parameter in self.problem.space.parameters:
                if parameter.name not in here:
                    continue
                stepped = stepped or self._in_steps(parameter)
                line = self._line(here, parameter, step)
                ranks = self._need(line, walk, money, f"along {parameter.name}")
                if ranks is None:
                    return
                for configuration, other in zip(line, ranks, strict=True):
                    if other < rank:
                        here, rank = configuration, other
            if here == before:
                step /= 2.0
                if not stepped or step < self.settings.least_step:
                    return

    def _need(self, line: list[Configuration], walk: _Walk, money: float | None, stage: str) -> list[Rank] | None:
        """The ranks of some configurations, or None when some are not known yet."""
        ranks: list[Rank] = []
        missing: list[Configuration] = []
        for configuration in line:
            key = self._key(configuration)
            walk.seen.add(key)
            rank = walk.known.get(key)
            if rank is None and not self._payable(configuration, money):
                rank = (4, 0.0)
            if rank is None:
                missing.append(configuration)
            else:
                ranks.append(rank)
        if missing:
            walk.missing, walk.stage = missing, stage
            return None
        return ranks

    def _line(self, here: Configuration, parameter: Parameter, step: float) -> list[Configuration]:
        """Configurations that differ in one parameter, each trial once, the present one left out."""
        place = (here.key, parameter.name, step)
        if place not in self._lines:
            self._lines[place] = list(self._reachable(here, parameter, step))
        return self._lines[place]

    @cached_property
    def _lines(self) -> dict[tuple[str, str, float], list[Configuration]]:
        return {}

    def _reachable(self, here: Configuration, parameter: Parameter, step: float) -> Iterator[Configuration]:
        own = self._key(here)
        keys = {own}
        for value in self._values(parameter, here[parameter.name], step):
            try:
                other = self.problem.space.complete({**here, parameter.name: value}, self._otherwise)
                key = self._key(other)
            except (ConfigurationError, NoOfferError):
                continue
            if key not in keys:
                keys.add(key)
                yield other

    def _in_steps(self, parameter: Parameter) -> bool:
        levels = parameter.levels
        return levels is None or (len(levels) > self.settings.max_levels and len(parameter.feature_names()) == 1)

    def _values(self, parameter: Parameter, now: Value, step: float) -> list[Value]:
        levels = parameter.levels
        if not self._in_steps(parameter) or isinstance(parameter, Categorical):
            assert levels is not None
            return [_plain(v) for v in levels]
        at = float(parameter.features(np.array([now], dtype=object))[0, 0])
        goals = np.clip([at - step, at + step], 0.0, 1.0)
        if levels is None:
            return [_plain(v) for v in parameter.draw(goals)]
        places = parameter.features(levels)[:, 0]
        # A step shorter than the distance between two levels still moves by one level.
        lower, upper = np.flatnonzero(places < at), np.flatnonzero(places > at)
        found = []
        for side, goal in ((lower, goals[0]), (upper, goals[1])):
            if len(side):
                found.append(_plain(levels[side[np.argmin(np.abs(places[side] - goal))]]))
        return found

    # ------------------------------------------------------------------ starts

    def _starts(self, walk: _Walk, money: float | None) -> Iterator[Configuration]:
        if self._first is None:
            return
        yield self._first
        for number, configuration in enumerate(self._fresh(walk, money)):
            if self.settings.restarts is not None and number >= self.settings.restarts:
                return
            yield configuration

    def _fresh(self, walk: _Walk, money: float | None) -> Iterator[Configuration]:
        """Random configurations that the walk has not come across, known or payable.

        A descent from one that the money left does not pay would walk through others like it, and so would that from
        each of a million.
        """
        if self.problem.space.enumerable:
            candidates = self.problem.candidates
            payable = self.affordable(SearchState(money_left=money), candidates.hourly)
            known = (candidates.index(trial.configuration) for trial in self.history)
            payable[[i for i in known if i is not None]] = True
            for i in self._shuffled[payable[self._shuffled]]:
                if candidates.key(int(i)) not in walk.seen:
                    yield candidates.configuration(int(i))
            return
        misses = 0
        for turn in range(1_000):
            if turn not in self._drawn:
                rng = np.random.default_rng([self.seed & 0xFFFFFFFF, turn])
                pool = self.problem.pool(self.problem.space.sample(rng, 4))
                self._drawn[turn] = pool.configuration(0) if len(pool) else None
            drawn = self._drawn[turn]
            misses = misses + 1 if drawn is None else 0
            if misses > _MISSES:
                return
            if drawn is not None and (self._key(drawn) in walk.known or self._payable(drawn, money)):
                yield drawn

    @cached_property
    def _drawn(self) -> dict[int, Configuration | None]:
        """The random starts by turn: where the constraints leave little, each takes long to find."""
        return {}

    @cached_property
    def _shuffled(self) -> NDArray[np.intp]:
        rng = np.random.default_rng([self.seed & 0xFFFFFFFF])
        return rng.permutation(len(self.problem.candidates))

    @cached_property
    def _first(self) -> Configuration | None:
        """The start of the first descent; None where no draw of the space is allowed and sold."""
        wanted = self.settings.start
        if isinstance(wanted, dict):
            return self.problem.space.check(wanted)
        rng = np.random.default_rng([self.seed & 0xFFFFFFFF, 1])
        some = self._some(rng)
        if not len(some):
            return None
        if wanted == "cheapest":
            return some.configuration(int(np.argmin(some.hourly)))
        if wanted == "centre":
            middle = (some.features.min(axis=0) + some.features.max(axis=0)) / 2.0
            return some.configuration(int(np.argmin(((some.features - middle) ** 2).sum(axis=1))))
        return some.configuration(int(rng.integers(len(some))))

    def _some(self, rng: np.random.Generator) -> Candidates:
        """The configurations that the start is one of: all, or some of a space that cannot be listed."""
        if self.problem.space.enumerable:
            return self.problem.candidates
        found = self.problem.pool(())
        for count in REFERENCE_SIZES:
            found = self.problem.pool(self.problem.space.sample(rng, count))
            if len(found):
                break
        return found

    # ------------------------------------------------------------------ trials

    @cached_property
    def _otherwise(self) -> dict[str, Value]:
        """A middle value for each parameter that a change makes active."""
        middle = np.array([0.5])
        return {p.name: _plain(p.draw(middle)[0]) for p in self.problem.space.parameters}

    @cached_property
    def _keys(self) -> dict[str, str]:
        return {}

    def _key(self, configuration: Configuration) -> str:
        if configuration.key not in self._keys:
            self._keys[configuration.key] = self.problem.trial_key(configuration)
        return self._keys[configuration.key]

    def _payable(self, configuration: Configuration, money: float | None) -> bool:
        if money is None:
            return True
        hourly = np.array([self.problem.resolver.resolve(configuration).hourly])
        return bool(self.affordable(SearchState(money_left=money), hourly)[0])

    def _rank(self, trial: Trial) -> Rank:
        seen = trial.observation
        if seen is None or trial.state == TrialState.FAILED or (seen.objective is None and not seen.censored):
            return (3, 0.0)
        if trial.state == TrialState.ABORTED or seen.objective is None:
            return (2, 0.0)
        if not seen.feasible:
            return (1, self.problem.constraints.miss(seen.runtime, seen.figures))
        loss = self.problem.objective.loss(seen.objective)
        return (0, loss) if np.isfinite(loss) else (3, 0.0)


def _plain(value: object) -> Value:
    plain = value.item() if isinstance(value, np.generic) else value
    assert isinstance(plain, str | int | float | bool)
    return plain
