"""The median stopping rule."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pydantic import Field

from tradewind.stopper.base import LearningCurve, Stopper, StopperSettings
from tradewind.utils.units import count


class MedianSettings(StopperSettings):
    """Settings of `MedianStopper`."""

    trials: int = Field(5, ge=1, description="Nothing is stopped before so many trials can be compared with")


class MedianStopper(Stopper):
    """Stops a trial that is worse than the usual one was by then: the median stopping rule.

    A trial is stopped at step s when its best value up to s is worse than the median of the means, up to s, of the
    trials that have ended: Golovin et al., "Google Vizier: A Service for Black-Box Optimization" (KDD 2017), section
    3.2.1. Trials that were cut short count up to the step that they reached.
    """

    name = "median"
    Settings = MedianSettings
    settings: MedianSettings

    def hopeless(self, curve: LearningCurve, others: Sequence[LearningCurve]) -> str:
        """Compare with the median; see `Stopper.hopeless`."""
        step = curve.step
        ended = [other for other in others if other.over and (other.finished or other.step >= step)]
        means = [mean for other in ended if (mean := other.average(step)) is not None]
        if len(means) < self.settings.trials:
            return ""
        median, own = statistics.median(means), curve.best(step)
        if own <= median:
            return ""
        return (
            f"its best by step {step:g} is {curve.value(own):.4g}, and the median of {count(len(means), 'trial')} "
            f"{curve.value(median):.4g}"
        )
