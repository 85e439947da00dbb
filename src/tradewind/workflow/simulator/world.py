"""Deviations from a plan: noise, machines that drift and move, failures, delays of the workflow system."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from tradewind.errors import WorkflowError
from tradewind.plugins import Settings
from tradewind.workflow.graph import Workflow

Moment = Literal["engine", "queue", "post"]

MOST_DEVIATION = 3.0
"""The most that the standard deviation of a logarithm may be: one time in three, a factor of twenty or more."""

_FARTHEST = 700.0
"""Ln of the largest speed factor, and of one over the least."""

MOST_PERIODS = 1_000_000
"""Periods of changing speeds that one task may go through: more take for ever."""


@dataclass(frozen=True)
class World:
    """Deviations of tasks and machines from what is known of them; none without arguments.

    Everything is drawn from the seed together with the task, machine and attempt: two schedules of the same workflow
    meet the same luck.

    Attributes:
        noise: Standard deviation of ln(run time / expected), for each attempt of a task.
        unknown: Standard deviation of ln(speed / stated speed), once for each machine.
        drift: Standard deviation of the change of ln(speed) of each machine in each ``period``.
        period: Seconds between changes of speed and between possible migrations.
        migration: Chance of each machine to be moved in each period; it then stands still for ``pause`` seconds.
        pause: Seconds that a live migration takes.
        failure: Chance of an attempt to fail; it has then used a uniform share of its time.
        retries: Times that a task is tried again; where the last attempt fails, too, the task has failed for good.
        delays: Seconds that the workflow system takes before a task is ready (``engine``), between its placement and
            its start (``queue``), and after its end before its children know of it (``post``). A list has one figure
            for each depth, the last for all below.
        seed: Seed of all random draws.
        last_ends_well: True where the last attempt never fails: a policy learns from runs that come to their end.

    Raises:
        WorkflowError: A deviation is more than `MOST_DEVIATION`, a chance no chance, or a time no time; or no machine
            would ever work: each is moved in every period, for all of it.
    """

    noise: float = 0.0
    unknown: float = 0.0
    drift: float = 0.0
    period: float = 60.0
    migration: float = 0.0
    pause: float = 0.0
    failure: float = 0.0
    retries: int = 3
    delays: Mapping[Moment, float | Sequence[float]] = field(default_factory=dict)
    seed: int = 0
    last_ends_well: bool = False
    _walks: dict[int, list[float]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("noise", "unknown", "drift"):
            if not 0 <= getattr(self, name) <= MOST_DEVIATION:
                hint = "it is the standard deviation of a logarithm: 0.2 is about 20 % up or down"
                raise WorkflowError(f"{name} is {getattr(self, name):g}, not 0 to {MOST_DEVIATION:g}", hint=hint)
        for name in ("migration", "failure"):
            if not 0 <= getattr(self, name) <= 1:
                raise WorkflowError(f"{name} is {getattr(self, name):g}", hint="it is a chance: 0 to 1")
        if not (0 < self.period < math.inf and 0 <= self.pause < math.inf):
            raise WorkflowError(
                f"a period of {self.period:g} s with a pause of {self.pause:g} s is none",
                hint="the period is above 0, the pause 0 or more",
            )
        if self.migration >= 1 and self.pause >= self.period:
            raise WorkflowError(
                f"no task would ever end: each machine is moved every {self.period:g} s, and stands still for "
                f"{self.pause:g} s then",
                hint="a pause shorter than the period, or a chance of migration below 1",
            )

    def delay(self, moment: Moment, flow: Workflow, task: int) -> float:
        """Seconds of one of the system's delays for a task."""
        given = self.delays.get(moment, 0.0)
        if isinstance(given, int | float):
            return float(given)
        return float(given[min(int(flow.depth[task]), len(given) - 1)]) if given else 0.0

    def duration(
        self, task: int, vm: int, begin: float, attempt: int, fetching: float, running: float
    ) -> tuple[float, bool]:
        """Compute the seconds that an attempt occupies its machine, and if it fails at the end of them.

        Args:
            task: The task.
            vm: The machine.
            begin: Time at which it begins, in seconds.
            attempt: Number of attempts before this one.
            fetching: Seconds for its inputs.
            running: Seconds at the stated speed.
        """
        factor, share = self.luck(task, attempt)
        fails = share is not None
        work = running * factor
        if share is not None:
            work *= share
        if not (self.unknown or self.drift or self.migration):
            return fetching + work, fails
        return fetching + self._at_real_speed(vm, begin + fetching, work), fails

    def luck(self, task: int, attempt: int) -> tuple[float, float | None]:
        """Draw the run time of an attempt over the expected one, and the share after which it fails, or None.

        Args:
            task: The task.
            attempt: Number of attempts before this one.
        """
        if not (self.noise or self.failure):
            return 1.0, None
        luck = random.Random(f"{self.seed}/task/{task}/{attempt}")  # noqa: S311
        factor = luck.lognormvariate(0.0, self.noise) if self.noise else 1.0
        may_fail = attempt < self.retries or not self.last_ends_well
        fails = may_fail and luck.random() < self.failure
        return factor, luck.random() if fails else None

    def speed(self, vm: int, place: int) -> tuple[float, float]:
        """Draw a machine's speed factor in one ``period``, and the time until which it stands still in it.

        Args:
            vm: The machine.
            place: Number of the period, from 0.
        """
        # A walk of many large steps leaves the numbers that a computer has.
        factor = math.exp(max(-_FARTHEST, min(_FARTHEST, self._walked(vm, place))))
        moved = self.migration and random.Random(f"{self.seed}/move/{vm}/{place}").random() < self.migration  # noqa: S311
        return factor, place * self.period + (self.pause if moved else 0.0)

    def _walked(self, vm: int, place: int) -> float:
        """Ln of a machine's speed factor in a period: a random walk from the machine's own deviation."""
        walk = self._walks.get(vm)
        if walk is None:
            first = random.Random(f"{self.seed}/vm/{vm}")  # noqa: S311
            walk = self._walks[vm] = [first.gauss(0.0, self.unknown) if self.unknown else 0.0]
        if not self.drift:
            return walk[0]
        for step in range(len(walk), place + 1):
            walk.append(walk[-1] + random.Random(f"{self.seed}/drift/{vm}/{step}").gauss(0.0, self.drift))  # noqa: S311
        return walk[place]

    def _at_real_speed(self, vm: int, begin: float, work: float) -> float:
        """Seconds that so much work takes on a machine whose speed changes from period to period."""
        now, left, place = begin, work, int(begin / self.period)
        last = place + MOST_PERIODS
        while True:
            if place > last:
                raise WorkflowError(
                    f"a task of {work:.3g} s goes through more than {MOST_PERIODS:,} periods of {self.period:g} s",
                    hint="give a longer period",
                )
            speed, still_until = self.speed(vm, place)
            # The end of a period may be rounded to before the beginning of the next: it is counted, not calculated.
            place += 1
            end = place * self.period
            now = max(now, min(still_until, end))
            possible = max(0.0, end - now) * speed
            if left <= possible:
                return now + left / speed - begin
            left -= possible
            now = max(now, end)

    def stuck(self, flow: Workflow, ready: Sequence[int]) -> WorkflowError:
        """The error of a simulation in which nothing runs and nothing is placed."""
        names = ", ".join(flow.tasks[task].id for task in ready[:3])
        return WorkflowError(
            f"workflow {flow.name} stands still: {names or 'no task'} is ready and was placed nowhere",
            hint="the plan's order on a machine may contradict the graph, or no machine has enough slots",
        )


class WorldSettings(Settings):
    """Deviations of run times and machines while a policy learns; none without settings."""

    noise: float = Field(0.0, ge=0, le=3, description="Standard deviation of ln(run time / expected) of each attempt")
    unknown: float = Field(0.0, ge=0, le=3, description="Standard deviation of ln(speed / stated) of each machine")
    drift: float = Field(0.0, ge=0, le=3, description="Standard deviation of the change of ln(speed) in each period")
    period: float = Field(60.0, gt=0, description="Seconds between changes of speed and possible migrations")
    migration: float = Field(0.0, ge=0, le=0.9, description="Chance of each machine to be moved in each period")
    pause: float = Field(10.0, ge=0, description="Seconds that a machine stands still when it is moved")
    failure: float = Field(0.0, ge=0, lt=1, description="Chance of an attempt to fail")

    def world(self, seed: int) -> World:
        """The world of one seed."""
        return World(
            self.noise, self.unknown, self.drift, self.period, self.migration, self.pause, self.failure, seed=seed,
            last_ends_well=True,
        )  # fmt: skip

    @property
    def varying(self) -> bool:
        """True when speeds are not as stated or change."""
        return bool(self.unknown or self.drift or (self.migration and self.pause))

    @property
    def certain(self) -> bool:
        """True when nothing deviates."""
        return not (self.noise or self.failure or self.varying)
