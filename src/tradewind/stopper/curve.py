"""Learning curves: what a trial has reported so far, step by step."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable


class LearningCurve:
    """What one trial has reported so far. All values are losses: the smaller, the better.

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
