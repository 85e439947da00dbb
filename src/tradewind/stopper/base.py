"""The contract of a stopper."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from tradewind import plugins


class LearningCurve:
    """The values that one trial has reported so far. All values are losses: the smaller, the better.

    Programs report every step of millions, and the curves of all trials are kept: a point takes 32 bytes.

    Args:
        maximise: The reported values are to be large; they are kept with their sign turned.
        fidelity: Share of the input that the trial works on; only curves of equal share are compared.

    Attributes:
        steps: The steps, growing.
        losses: The loss at each of them; infinite where the value was no finite number.
        fresh: The place of the first point that came with the last `extend`.
        over: True once the trial has ended, be it by itself or because it was stopped.
        finished: True once it has run to its end.
    """

    def __init__(self, *, maximise: bool = False, fidelity: float = 1.0) -> None:
        self.maximise = maximise
        self.fidelity = fidelity
        self.steps = array("d")
        self.losses = array("d")
        self.fresh = 0
        self.over = self.finished = False
        self._sums = array("d")
        self._bests = array("d")

    def extend(self, points: Iterable[tuple[float, float]]) -> bool:
        """Add what was reported since; a step that is not beyond the one before it, or is no number, is passed over.

        Args:
            points: Pairs of step and value.

        Returns:
            True when there is anything new.
        """
        self.fresh = len(self.steps)
        for step, value in points:
            if not math.isfinite(step) or (self.steps and step <= self.steps[-1]):
                continue
            loss = (-value if self.maximise else value) if math.isfinite(value) else math.inf
            self.steps.append(step)
            self.losses.append(loss)
            self._sums.append(loss + (self._sums[-1] if self._sums else 0.0))
            self._bests.append(min(loss, self._bests[-1]) if self._bests else loss)
        return len(self.steps) > self.fresh

    @property
    def step(self) -> float:
        """The last step; the curve must have one."""
        return self.steps[-1]

    def best(self, step: float) -> float:
        """The least loss up to a step, that one included; infinite where nothing was reported by then."""
        count = bisect_right(self.steps, step)
        return self._bests[count - 1] if count else math.inf

    def average(self, step: float) -> float | None:
        """The mean loss up to a step, that one included; None where nothing was reported by then."""
        count = bisect_right(self.steps, step)
        return self._sums[count - 1] / count if count else None

    def arrival(self, step: float) -> float | None:
        """The loss when the trial came to a step, or past it; None while it has not."""
        place = bisect_left(self.steps, step)
        return self.losses[place] if place < len(self.steps) else None

    def value(self, loss: float) -> float:
        """A loss as the program would report it."""
        return -loss if self.maximise else loss


class StopperSettings(plugins.Settings):
    """Common settings of all stoppers: the values that they judge by, and the place of those."""

    metric: str = Field("", description="The reported metric to judge by; the objective's without it")
    goal: Literal["minimise", "maximise"] | None = Field(
        None,
        description="Whether that is to be small or large; known of the objective and of a metric with a bound",
    )
    first_step: float = Field(1.0, gt=0, description="No run is stopped before it has come to this step")
    last_step: float | None = Field(
        None, gt=0, description="No run is stopped at this step or after it; the last step of a whole run saves nothing"
    )
    file: Literal["metrics", "stdout", "stderr"] = Field(
        "metrics", description="metrics (what tradewind.report() wrote), or JSON lines of stdout or stderr"
    )
    pattern: str = Field(
        "",
        description="With stdout or stderr: a pattern instead of JSON lines, with a group (?P<value>...) and, if the "
        "line tells the step, (?P<step>...)",
    )
    step: str = Field("step", description="Key of a JSON line that counts the steps; lines without it count on")
    every: float = Field(1.0, gt=0, description="Seconds between two looks at what the runs have reported")

    @model_validator(mode="after")
    def _pattern_fits(self) -> Self:
        if not self.pattern:
            return self
        try:
            groups = set(re.compile(self.pattern).groupindex)
        except re.error as error:
            raise ValueError(f"cannot read the pattern {self.pattern!r}: {error}") from None
        if "value" not in groups:
            raise ValueError(f"the pattern {self.pattern!r} has no group named value; write (?P<value>...)")
        if self.file == "metrics":
            raise ValueError("a pattern is for stdout or stderr; set file: stdout")
        return self


class Stopper(plugins.Plugin, ABC):
    """Says which running trials have no prospects, by what they and the others have reported.

    It is a function of the curves alone: it keeps nothing, draws no random numbers and reads no clock, so that the same
    events in the same order give the same decisions. The engine sees to what holds for every stopper: no trial is
    stopped before ``first_step`` or from ``last_step`` on, nor while it is no worse at its step than the best trial was
    there, nor while it keeps the bound that it is judged by.

    Args:
        settings: Its settings; their model derives from `StopperSettings`.
    """

    Settings = StopperSettings

    def __init__(self, *, settings: StopperSettings) -> None:
        self.settings = settings

    @abstractmethod
    def hopeless(self, curve: LearningCurve, others: Sequence[LearningCurve]) -> str:
        """The reason to stop a running trial where it is now.

        Args:
            curve: What it has reported so far, one point at least; those from ``curve.fresh`` on are new.
            others: The curves of the other trials on the same share of the input: of those that run, that have run to
                their end, and that were cut short; not of those that failed. None of them is empty.

        Returns:
            The reason in words, or an empty text: it goes on.
        """
