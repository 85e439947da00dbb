"""Population-based training: members train in turns; the worst go on from checkpoints of the best, a little changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from pydantic import Field

from tradewind import plugins
from tradewind.errors import ConfigurationError, NoOfferError
from tradewind.problem import Configuration, Float, Integer, Parameter, Proposal, Trial, Value
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.searcher.halving.asha import DIGITS, ContinuingSearcher

_MEMBER, _TURN = "member", "turn"
_TRIES = 50
"""Changed copies that are made of a configuration until one is allowed, sold and new."""


class PbtSettings(plugins.Settings):
    """Settings of `PbtSearcher`."""

    population: int = Field(10, ge=2, le=10_000, description="Members of the population.")
    turns: int = Field(5, ge=1, le=1000, description="Turns of each member; a turn is 1/turns of the input.")
    quantile: float = Field(
        0.25, gt=0, le=0.5, description="Share of the worst that copy one of the same share of the best."
    )
    resample: float = Field(0.25, ge=0, le=1, description="Probability that a value of a copy is drawn anew.")
    change: float = Field(0.2, gt=0, le=1, description="Otherwise numbers go so far up or down: 0.2 is ×1.2 or ×0.8.")


class PbtSearcher(ContinuingSearcher):
    """Trains a population, in which the worst take over from the best: population-based training.

    Jaderberg et al., "Population Based Training of Neural Networks" (2017), Algorithm 1, with truncation selection
    (section 4.1.1) and its exploration: before each turn a member that is among the worst quarter of those that have
    come as far goes on from the checkpoint of one of the best quarter, with values multiplied by 1.2 or 0.8 or drawn
    anew; the others go on from their own. Nobody waits for the whole population: a member is compared with those that
    have ended the same turn. The program trains up to the share of the input that it is given
    (``TRADEWIND_FRACTION``), from what it finds in its checkpoint.
    """

    name = "pbt"
    fewer_by = "fewer turns"
    Settings = PbtSettings
    settings: PbtSettings

    @property
    def least_trials(self) -> int:
        """See `ContinuingSearcher.least_trials`."""
        return self.settings.turns

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """Propose the next turn of members that have ended one, those that are behind first."""
        rng = self.rng(state)
        last = self._last()
        seats = [place for trial in state.pending if (place := self._seat(trial)) is not None]
        busy = {member for member, _ in seats}
        ready = [m for m in sorted(last) if m not in busy and self._turn(last[m]) < self.settings.turns]
        leads = max((self._turn(last[m]) for m in ready if self.rank(last[m]) is not None), default=0)
        ahead = max((turn for _, turn in seats), default=0)
        spare = self.spare(state, self.settings.turns - max(leads, ahead, 1))
        proposals: list[Proposal] = []
        if spare is not None and spare <= 0 and max(leads, ahead) > 0:
            if ahead >= leads:
                return NothingLeft("it waits for the trials that run", final=False)
            first = self.ranked([last[m] for m in ready if self._turn(last[m]) == leads])[0]
            ready, count = sorted(ready, key=lambda m: last[m] is not first), 1
        else:
            count = count if spare is None else min(count, max(1, spare))
            missing = [m for m in range(self.settings.population) if m not in {*last, *busy}]
            proposals = self._begin(state, rng, missing, count)
            ready.sort(key=lambda each: self._turn(last[each]))
        for member in ready:
            if len(proposals) == count:
                break
            if (following := self._follow(member, last[member], state, rng, proposals)) is not None:
                proposals.append(following)
        if proposals:
            return proposals
        if state.pending:
            return NothingLeft("it waits for the trials that run", final=False)
        return NothingLeft("every member has ended its turns") if last else self.nothing_left(state)

    def origins(self, state: SearchState) -> list[int]:
        """List the trials that members may yet go on from: their own, and the best of turns that others are at."""
        pending = [trial for trial in state.pending if self._seat(trial) is not None]
        last = self._last()
        at = dict.fromkeys(range(self.settings.population), 1)  # the turn that each member ends next, or has ended
        at |= {member: self._turn(trial) for member, trial in last.items()}
        at |= {place[0]: place[1] for trial in pending if (place := self._seat(trial)) is not None}
        busy = {place[0] for trial in pending if (place := self._seat(trial)) is not None}
        own = [last[member].number for member in last if member not in busy]
        few = max(1, math.ceil(self.settings.quantile * self.settings.population))
        found: list[int] = []
        for turn in range(self.settings.turns - 1, min(at.values()) - 1, -1):
            peers = self.ranked([trial for trial in self.history if self._turn(trial) == turn])
            found += [trial.number for place, trial in enumerate(peers) if place <= few or trial.number in own]
        return found

    def _last(self) -> dict[int, Trial]:
        """The trial that each member has ended last; one that has begun anew is at its first turn again."""
        return {place[0]: trial for trial in self.history if (place := self._seat(trial)) is not None}

    def _begin(
        self, state: SearchState, rng: np.random.Generator, missing: Sequence[int], count: int
    ) -> list[Proposal]:
        """The first turns of members that have not begun."""
        new = self.fresh(state, rng, min(count, len(missing)), set())
        return [
            Proposal(each, fidelity=self._share(1), why=_why(member, 1, "new"))
            for member, each in zip(missing, new, strict=False)
        ]

    def _follow(
        self, member: int, trial: Trial, state: SearchState, rng: np.random.Generator, before: Sequence[Proposal]
    ) -> Proposal | None:
        """The next turn of a member: from its own checkpoint, or from that of a better one."""
        turn = self._turn(trial)
        peers = [each for each in self.history if self._seat(each) is not None and self._turn(each) == turn]
        ranked = self.ranked(peers)
        taken = self.taken(state) | {self._key(each.configuration, turn + 1) or "" for each in before}
        few = max(1, math.ceil(self.settings.quantile * len(peers)))
        best = [each for each in ranked[:few] if each.number != trial.number]
        worst = trial not in ranked or (len(ranked) > few and trial in ranked[-few:])
        if worst and best:
            model = best[int(rng.integers(len(best)))]
            copy = self._explored(model.configuration, turn + 1, taken, state, rng)
            if copy is not None:
                why = _why(member, turn + 1, f"goes on from trial {model.number}, changed")
                return Proposal(copy, fidelity=self._share(turn + 1), why=why, origin=model.number)
        if self.rank(trial) is None:  # there is nothing to go on from
            return next(iter(self._begin(state, rng, [member], 1)), None)
        own: Configuration | None = trial.configuration
        if self._key(trial.configuration, turn + 1) in taken or not self._payable(trial.configuration, state):
            own = self._explored(trial.configuration, turn + 1, taken, state, rng)
        if own is None:
            return None
        why = _why(member, turn + 1, f"goes on from trial {trial.number}")
        return Proposal(own, fidelity=self._share(turn + 1), why=why, origin=trial.number)

    def _explored(
        self, model: Configuration, turn: int, taken: set[str], state: SearchState, rng: np.random.Generator
    ) -> Configuration | None:
        """A changed copy of a configuration that is allowed, payable and new; None where none is found."""
        drawn = self.problem.space.sample(rng, _TRIES)
        copies = [self._copy(model, each, rng) for each in drawn]
        for values in (*copies, *drawn):  # where hardly anything near is left, another place
            try:
                configuration = self.problem.space.check(values)
                key = self._key(configuration, turn)
            except ConfigurationError:
                continue
            if key is not None and key not in taken and self._payable(configuration, state):
                return configuration
        return None

    def _copy(self, model: Configuration, drawn: Configuration, rng: np.random.Generator) -> Mapping[str, Value]:
        """The values of a configuration, some of them those of another one that was drawn, the others changed."""
        values: dict[str, Value] = {}
        for name, value in model.items():
            anew = rng.random() < self.settings.resample
            factor = 1.0 + self.settings.change * float(rng.choice((-1.0, 1.0)))
            values[name] = drawn.get(name, value) if anew else changed(self.problem.space[name], value, factor)
        return values

    def _key(self, configuration: Configuration, turn: int) -> str | None:
        """The trial key of a configuration at a turn; None where nobody sells it."""
        try:
            offer = self.problem.resolver.resolve(configuration)
        except NoOfferError:
            return None
        return self.problem.key_of(offer, configuration, self._share(turn))

    def _payable(self, configuration: Configuration, state: SearchState) -> bool:
        if not self.sold(configuration):
            return False
        return bool(self.affordable(state, np.array([self.problem.resolver.resolve(configuration).hourly]))[0])

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """The share of the input after each turn; the last is 1."""
        return tuple(round(turn / self.settings.turns, DIGITS) for turn in range(1, self.settings.turns + 1))

    def _share(self, turn: int) -> float:
        return self.shares[turn - 1]

    def _seat(self, trial: Trial) -> tuple[int, int] | None:
        """The member and the turn of a trial; None for one that is not of the population."""
        member, turn = (trial.proposal.why.get(name) for name in (_MEMBER, _TURN))
        return (int(member), int(turn)) if isinstance(member, int | float) and isinstance(turn, int | float) else None

    def _turn(self, trial: Trial) -> int:
        place = self._seat(trial)
        return 0 if place is None else place[1]


def changed(parameter: Parameter, value: Value, factor: float) -> Value:
    """A number multiplied by a factor, within its range; of listed values the next one up or down; text as it is.

    Args:
        parameter: The parameter.
        value: Its value.
        factor: The factor.
    """
    if isinstance(value, str | bool):
        return value
    if isinstance(parameter, Float | Integer):
        number = min(max(float(value) * factor, float(parameter.low)), float(parameter.high))
        if parameter.levels is not None:
            return parameter.level(parameter.place(number))
        return round(number) if isinstance(parameter, Integer) else number
    levels = [] if parameter.levels is None else parameter.levels.tolist()
    if value not in levels:
        return value
    place = levels.index(value) + (1 if factor > 1 else -1)
    return parameter.level(min(max(place, 0), len(levels) - 1))


def _why(member: int, turn: int, stage: str) -> Mapping[str, float | str]:
    return {"stage": f"member {member}, turn {turn}: {stage}", _MEMBER: float(member), _TURN: float(turn)}
