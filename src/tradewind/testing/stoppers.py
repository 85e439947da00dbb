"""The conformance suite of stoppers: inherit it, say how yours is made, and pytest runs the rest.

For example::

    class TestMyStopper(StopperConformance):
        def make(self) -> Stopper:
            return MyStopper(settings=MyStopper.Settings())
"""

from __future__ import annotations

import copy
import json
import math
import random
from abc import abstractmethod

from tradewind.stopper.base import LearningCurve, Stopper, StopperSettings

_SEEDS = range(40)


def example_curves(seed: int, count: int = 12) -> list[LearningCurve]:
    """Curves of different lengths, some over, some not, a few with values that are no numbers.

    Args:
        seed: Of their values.
        count: How many.
    """
    rng, made = random.Random(seed), list[LearningCurve]()  # noqa: S311
    for _ in range(count):
        curve, least, pace = LearningCurve(maximise=seed % 2 == 1), rng.random(), rng.uniform(0.5, 6)
        values = [least + math.exp(-step / pace) + rng.gauss(0, 0.02) for step in range(1, rng.randint(2, 30))]
        if rng.random() < 0.2:
            values[-1] = rng.choice([math.nan, math.inf, -math.inf])
        split = rng.randint(0, len(values) - 1)
        points = list(enumerate((-value if curve.maximise else value for value in values), 1))
        curve.extend(points[:split])
        curve.extend(points[split:])
        curve.over = rng.random() < 0.7
        curve.finished = curve.over and rng.random() < 0.7
        made.append(curve)
    return made


class StopperConformance:
    """Checks of every stopper."""

    @abstractmethod
    def make(self) -> Stopper:
        """A stopper with its usual settings."""

    def test_its_settings_have_what_all_stoppers_have(self) -> None:
        """The engine reads metric, steps and files from them."""
        part = type(self.make())
        assert issubclass(part.Settings, StopperSettings)
        json.dumps(part.Settings().model_dump())

    def test_a_trial_alone_is_never_stopped(self) -> None:
        """There is nothing that it could be worse than."""
        for seed in _SEEDS:
            for curve in example_curves(seed):
                assert self.make().hopeless(curve, []) == ""

    def test_the_same_curves_give_the_same_answer_and_stay_as_they_are(self) -> None:
        """Nothing is kept between calls: the same events give the same decisions after a crash."""
        used = self.make()
        for seed in _SEEDS:
            one, *others = example_curves(seed)
            before = copy.deepcopy([vars(curve) for curve in (one, *others)])
            answers = {used.hopeless(one, others), used.hopeless(one, others), self.make().hopeless(one, others)}
            assert len(answers) == 1
            assert [vars(curve) for curve in (one, *others)] == before

    def test_the_order_of_the_others_does_not_matter(self) -> None:
        """Nothing says in which order they come."""
        for seed in _SEEDS:
            one, *others = example_curves(seed)
            assert self.make().hopeless(one, others) == self.make().hopeless(one, others[::-1])

    def test_a_reason_is_one_line(self) -> None:
        """The reason is one line, for tables."""
        for seed in _SEEDS:
            one, *others = example_curves(seed)
            why = self.make().hopeless(one, others)
            assert why == " ".join(why.split())
            assert len(why) < 300

    def test_the_best_at_every_step_goes_on_and_what_is_far_worse_does_not_always(self) -> None:
        """The best curve goes on, and some that are far worse do not."""
        stopped = 0
        for seed in _SEEDS:
            others = [curve for curve in example_curves(seed, 30) if curve.over]
            for offset in (-9.0, 9.0):
                curve = LearningCurve()
                curve.extend((float(step), offset) for step in range(1, 10))
                why = self.make().hopeless(curve, others)
                assert offset > 0 or not why
                stopped += bool(why)
        assert stopped > 0, "it stops nothing, however bad"
