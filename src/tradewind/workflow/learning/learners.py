"""The methods of learning behind one contract: run episodes, keep what was learned, and give a policy."""

from __future__ import annotations

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from tradewind.plugins import Settings as AnySettings
from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.learning.adaptive import NAMES, AdaptivePolicy, AdaptiveWeights
from tradewind.workflow.learning.arrays import EpisodeArrays
from tradewind.workflow.learning.q_learning import QLearningSettings, QPolicy
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule
from tradewind.workflow.simulator.reference import Director
from tradewind.workflow.simulator.world import World, WorldSettings

TESTING = 1_000_000_000
"""Seeds of worlds from here on are for tests; no episode is drawn from them."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One simulated run that was learned from.

    Attributes:
        number: Number of the episode, from 1.
        schedule: The schedule that it ended with.
        seconds: Time that simulating it and learning from it took.
        state: State of the learner after it, as a document that the method can go on from.
    """

    number: int
    schedule: Schedule
    seconds: float
    state: Mapping[str, Any] = field(default_factory=dict)

    @property
    def makespan(self) -> float:
        """Seconds of the run."""
        return self.schedule.makespan

    @property
    def serial(self) -> float:
        """Seconds that its tasks took in sum: what paper 3's table shows."""
        return float((self.schedule.finish - self.schedule.start).sum())


class Learner(ABC):
    """Learns from one simulated run after the other.

    Args:
        flow: The workflow.
        platform: The machines that its tasks run on.
        settings: Settings of the method, the deviations of the worlds among them.
        seed: Seed of all random choices.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[WorldSettings]]

    def __init__(self, flow: Workflow, platform: Platform, settings: AnySettings, seed: int = 0) -> None:
        self.flow, self.platform, self.seed = flow, platform, seed
        self.episodes = 0
        self._settings: WorldSettings = self.Settings.model_validate(settings.model_dump())
        self._start()

    @property
    def certain(self) -> bool:
        """True when nothing deviates in the worlds that it learns in."""
        return self._settings.certain

    @property
    def fingerprint(self) -> str:
        """A short name of its settings and seed, the number of episodes aside."""
        said = self._settings.model_dump_json(exclude={"episodes"}) + str(self.seed)
        return hashlib.sha256(said.encode()).hexdigest()[:8]

    def world(self, number: int) -> World:
        """The world of an episode; no two methods of one seed differ in it."""
        return self._settings.world(self.seed * 1_000_003 % TESTING + number)

    def drawn(self, seed: int) -> World:
        """A world of the same deviations from any seed."""
        return self._settings.world(seed)

    @property
    def nominal(self) -> World:
        """The world in which nothing deviates."""
        return World()

    def step(self) -> Episode:
        """Run one episode and learn from it."""
        begun = time.perf_counter()
        schedule, state = self._learn()
        self.episodes += 1
        return Episode(self.episodes, schedule, time.perf_counter() - begun, state)

    def recall(self, episode: Episode) -> None:
        """Learn from an episode that was run before; after all of them, the learner is as it was."""
        self._recall(episode)
        self.episodes += 1

    @abstractmethod
    def renew(self) -> None:
        """Go on with the run times that the workflow has now; the episodes recalled until here had others.

        What was learned stays; only times that were remembered are replaced.
        """

    @abstractmethod
    def _start(self) -> None:
        """Prepare for the first episode."""

    @abstractmethod
    def _learn(self) -> tuple[Schedule, dict[str, Any]]:
        """Run one episode; returns its schedule and the state after it."""

    @abstractmethod
    def _recall(self, episode: Episode) -> None:
        """Take what an episode taught."""

    @abstractmethod
    def run(self, world: World) -> Schedule:
        """Simulate the policy as it is now in a world, without learning more between runs."""

    @abstractmethod
    def director(self) -> Director:
        """The policy as it is now, for one run."""

    @abstractmethod
    def lines(self) -> Iterator[Sequence[str | float]]:
        """Write what was learned as the rows of a table with a heading."""


class QLearner(Learner):
    """Q-learning as paper 3 has it."""

    name = "q_learning"
    Settings = QLearningSettings

    def _start(self) -> None:
        settings = QLearningSettings.model_validate(self._settings.model_dump())
        self.policy = QPolicy(self.flow, self.platform, settings, self.seed)
        self.policy.collect(self.world(0))

    def renew(self) -> None:
        """See `Learner.renew`."""
        self.policy.collect(self.world(0))

    def _learn(self) -> tuple[Schedule, dict[str, Any]]:
        done = self.policy.learn(self.world(self.episodes + 1))
        return done, self.policy.state()

    def _recall(self, episode: Episode) -> None:
        self.policy.see(episode.schedule)
        self.policy.restore(episode.state)

    def run(self, world: World) -> Schedule:
        """See `Learner.run`."""
        return self.policy.run(world)

    def director(self) -> Director:
        """See `Learner.director`."""
        return self.policy.director()

    def lines(self) -> Iterator[Sequence[str | float]]:
        """See `Learner.lines`."""
        return self.policy.lines()


class CrossEntropy:
    """Draws generations of candidates from a normal distribution, which moves to the best of each.

    Rubinstein and Kroese, "The Cross-Entropy Method", Springer, 2004, algorithm 2.2, with a step that is smaller than
    the whole way, since what a candidate comes to is partly luck.

    Args:
        mean: Mean of the first generation, shape (n,).
        spread: The standard deviation of each number at the beginning.
        size: Number of candidates in a generation; the first is the mean itself.
        seed: Seed of the draws.
        step: Share of the way to the best that is gone in a generation.

    Attributes:
        mean: The middle of the distribution.
        spread: Standard deviations of the distribution.
        generation: Number of generations whose scores are known.
    """

    def __init__(
        self, mean: Sequence[float] | Numbers, spread: Sequence[float] | Numbers, *, size: int, seed: int,
        step: float = 0.5,
    ) -> None:  # fmt: skip
        self.mean, self.spread = np.array(mean, dtype=float), np.array(spread, dtype=float)
        self.generation = 0
        self._size, self._seed, self._step = size, seed, step

    def ask(self) -> Numbers:
        """The candidates of this generation, one a row; the same as often as it is asked."""
        draws = np.random.default_rng((self._seed, self.generation)).standard_normal((self._size, len(self.mean)))
        draws[0] = 0.0
        # Each draw stands beside its mirror image: the middle is then not moved by which side was drawn more.
        half = (self._size - 1) // 2
        draws[1 + half : 1 + 2 * half] = -draws[1 : 1 + half]
        return np.asarray(self.mean + draws * self.spread)

    def tell(self, scores: Sequence[float] | Numbers) -> None:
        """Take the scores of the candidates, the smaller the better, and go on to the next generation."""
        candidates = self.ask()
        best = candidates[np.argsort(np.asarray(scores), kind="stable")[: max(2, self._size // 3)]]
        self.mean = self.mean + self._step * (best.mean(axis=0) - self.mean)
        self.spread = np.maximum((1.0 - self._step) * self.spread + self._step * best.std(axis=0), 0.02)
        self.generation += 1


class AdaptiveSettings(WorldSettings):
    """Settings of the adaptive policy."""

    episodes: int = Field(0, ge=0, description="Simulated runs to learn weights from; 0 takes those that come with it")
    population: int = Field(10, ge=4, le=1000, description="Weights that are compared in each world")


SPREAD = AdaptiveWeights(0.7, 0.7, 0.5, 0.7, 0.3, 0.1, 0.2, 0.3)
"""Standard deviations with which weights are varied at first; of those above 0 the logarithm."""


class AdaptiveLearner(Learner):
    """Weights of the adaptive policy, by the cross-entropy method over simulated worlds.

    Each generation meets one world: its candidates differ by what they do in it, not by their luck.
    """

    name = "adaptive"
    Settings = AdaptiveSettings

    def _start(self) -> None:
        settings = AdaptiveSettings.model_validate(self._settings.model_dump())
        self._size = settings.population
        self._arrays = EpisodeArrays(self.flow, self.platform)
        spread = [getattr(SPREAD, name) for name in NAMES]
        self._search = CrossEntropy(AdaptiveWeights().free, spread, size=self._size, seed=self.seed)
        self._scores: list[float] = []

    def renew(self) -> None:
        """See `Learner.renew`: makespans of a generation that is not complete do not compare with those to come."""
        self._scores = []

    @property
    def weights(self) -> AdaptiveWeights:
        """The weights that would be followed now: the middle of the search, or those it began with."""
        return AdaptiveWeights.of_free(self._search.mean) if self._search.generation else AdaptiveWeights()

    def _learn(self) -> tuple[Schedule, dict[str, Any]]:
        weights = AdaptiveWeights.of_free(self._search.ask()[len(self._scores)])
        policy = AdaptivePolicy(self.flow, self.platform, weights, self._arrays)
        done = policy.run(self.world(self._search.generation + 1))
        self._tell(done.makespan)
        return done, {"weights": asdict(weights), "mean": asdict(self.weights), "generation": self._search.generation}

    def _tell(self, makespan: float) -> None:
        self._scores.append(makespan)
        if len(self._scores) == self._size:
            self._search.tell(self._scores)
            self._scores = []

    def _recall(self, episode: Episode) -> None:
        self._tell(episode.makespan)

    def _policy(self) -> AdaptivePolicy:
        return AdaptivePolicy(self.flow, self.platform, self.weights, self._arrays)

    def run(self, world: World) -> Schedule:
        """See `Learner.run`."""
        return self._policy().run(world)

    def director(self) -> Director:
        """See `Learner.director`."""
        return self._policy().director()

    def lines(self) -> Iterator[Sequence[str | float]]:
        """See `Learner.lines`."""
        yield "weight", "value", "spread"
        for place, name in enumerate(NAMES):
            yield name, float(np.round(getattr(self.weights, name), 6)), float(np.round(self._search.spread[place], 6))


LEARNERS: dict[str, type[Learner]] = {each.name: each for each in (AdaptiveLearner, QLearner)}
