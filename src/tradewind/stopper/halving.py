"""Asynchronous successive halving."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from tradewind.stopper.base import LearningCurve, Stopper, StopperSettings

_ROUND = 1e-9
"""What rounding may take from a product of steps or from a share of trials."""


class HalvingSettings(StopperSettings):
    """Settings of `SuccessiveHalvingStopper`."""

    eta: float = Field(
        3.0, gt=1, le=100, description="One in eta goes on at each rung; the rungs are first_step times powers of eta"
    )


class SuccessiveHalvingStopper(Stopper):
    """Lets one trial in eta go on at each rung of steps: asynchronous successive halving (ASHA).

    Li et al., "A System for Massively Parallel Hyperparameter Tuning" (MLSys 2020), Algorithm 2, without brackets, and
    with its choice turned round: there a trial pauses at each rung until it is among the best 1/eta of those that came
    so far. A run cannot be paused here, so it is judged once, when it comes to the rung: it goes on if it is among the
    best 1/eta that have come by then, itself included, and always as long as fewer than eta have come. Nobody waits.
    """

    name = "successive_halving"
    Settings = HalvingSettings
    settings: HalvingSettings

    def hopeless(self, curve: LearningCurve, others: Sequence[LearningCurve]) -> str:
        """Compare with those that came to the rung; see `Stopper.hopeless`."""
        rung = self._rung(curve.step)
        if rung is None or (curve.fresh and curve.steps[curve.fresh - 1] >= rung):
            return ""  # it was judged there before
        own = curve.arrival(rung)
        assert own is not None
        came = [loss for other in others if (loss := other.arrival(rung)) is not None]
        total = len(came) + 1
        if total < self.settings.eta:
            return ""
        better, room = sum(loss < own for loss in came), max(1, int(total / self.settings.eta + _ROUND))
        if better < room:
            return ""
        return f"{better} of the {total} trials that came to step {rung:g} were better there, and {room} may go on"

    def _rung(self, step: float) -> float | None:
        """The last rung that a trial has come to, less what rounding may have added to it; None before the first."""
        rung = self.settings.first_step * (1.0 - _ROUND)
        if step < rung:
            return None
        while rung * self.settings.eta <= step:
            rung *= self.settings.eta
        return rung
