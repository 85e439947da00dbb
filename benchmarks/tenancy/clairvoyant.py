"""What shares schedules can reach that know how long each run will take: a beam search over those without preemption.

A schedule decides whenever a run ends which tenants' next runs start, in their order; it may let places wait, as long
as a given part of the cluster is used. Those are kept that are nearest to the weights: over windows of ten mean run
times and no others, or all the time, which makes windows of any length good. What it finds can be reached by whoever
knows all lengths; that nothing better can be is not proven.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tradewind.tenancy.simulator import SimulatedRun

STEP, WINDOW = 0.5, 20
"""Mean run times between two windows, and the steps of a window."""

_SORTED = 0.1
"""Mean run times after which schedules are compared."""

_SPARE = 2.0
"""Mean run times of the whole cluster that may be unused at any time, beside what may be all the time."""

_SHARP = 8
"""Power of deviations that are added up: with a large one the largest decides."""


@dataclass(slots=True)
class _State:
    """A schedule up to a time.

    Attributes:
        now: The time.
        started: How many runs of each tenant were started.
        running: When each run ends, and whose it is; in order.
        used: By tenant, of what was started, up to its end.
        free: Share of the cluster.
        first: Tenants before this one start nothing more at this moment.
        steps: What each tenant had used at the last steps.
        score: The sum over windows.
        run: The tenant and the start of the run that was started last.
        before: The schedule before that.
    """

    now: float
    started: tuple[int, ...]
    running: tuple[tuple[float, int], ...]
    used: tuple[float, ...]
    free: float
    first: int = 0
    steps: tuple[tuple[float, ...], ...] = ()
    score: float = 0.0
    run: tuple[int, float, float] | None = None
    before: _State | None = None


class _Beam:
    def __init__(
        self,
        shares: Sequence[float],
        wanted: Sequence[float],
        lengths: Sequence[Sequence[float]],
        least: float,
        *,
        only_windows: bool,
        width: int,
    ) -> None:
        self.shares, self.lengths, self.least, self.width = shares, lengths, least, width
        self.only_windows = only_windows
        self.wanted = [each / sum(wanted) for each in wanted]

    def best(self, end: float) -> list[SimulatedRun]:
        """The runs of the best schedule up to a time."""
        zero = (0.0,) * len(self.shares)
        states = [_State(0.0, (0,) * len(zero), (), zero, 1.0, steps=(zero,))]
        for moment in range(1, int(end / _SORTED) + 1):
            states = self._up_to(states, moment * _SORTED)
        runs, last = [], min(states, key=self._promise)
        while last.before is not None:
            if last.run is not None:
                tenant, began, ended = last.run
                runs.append(SimulatedRun(f"t{tenant}", began, ended, self.shares[tenant]))
            last = last.before
        return runs[::-1]

    def _up_to(self, states: list[_State], until: float) -> list[_State]:
        """The best schedules that go on to a time, or beyond it."""
        there: dict[tuple[object, ...], _State] = {}
        while states:
            following: dict[tuple[object, ...], _State] = {}
            for state in states:
                for each in self._after(state) if state.now < until else (state,):
                    found = there if each.now >= until else following
                    same = (each.started, each.running, each.now, each.first)
                    if same not in found or each.score < found[same].score:
                        found[same] = each
            states = self._sorted(following, 3)
        return self._sorted(there, 1)

    def _sorted(self, found: dict[tuple[object, ...], _State], times: int) -> list[_State]:
        """The best of those with as much room each: one that empties the cluster has nothing to show for it yet."""
        alike: dict[float, list[_State]] = {}
        for state in found.values():
            alike.setdefault(round(state.free, 3), []).append(state)
        return [each for states in alike.values() for each in sorted(states, key=self._promise)[: times * self.width]]

    def _after(self, state: _State) -> Iterator[_State]:
        """A schedule with one more run, or as it is when the next one ends."""
        for tenant in range(state.first, len(self.shares)):
            share = self.shares[tenant]
            if share > state.free + 1e-9:
                continue
            ends = state.now + self.lengths[tenant][state.started[tenant]]
            started, used = list(state.started), list(state.used)
            started[tenant] += 1
            used[tenant] += share * (ends - state.now)
            running = tuple(sorted((*state.running, (ends, tenant))))
            yield _State(
                state.now, tuple(started), running, tuple(used), state.free - share, tenant, state.steps, state.score,
                (tenant, state.now, ends), state,
            )  # fmt: skip
        if not state.running:
            return
        (now, tenant), running = state.running[0], state.running[1:]
        after = _State(
            now, state.started, running, state.used, state.free + self.shares[tenant], 0, state.steps, state.score,
            None, state,
        )  # fmt: skip
        if self.only_windows:
            self._count_windows(state, after)
        else:
            after.score += (now - state.now) * self._off(after) ** _SHARP
        yield after

    def _count_windows(self, state: _State, after: _State) -> None:
        """Add to the score what windows are off that end between two times."""
        for number in range(int(state.now / STEP) + 1, int(after.now / STEP) + 1):
            after.steps = (*after.steps[-WINDOW:], self._used_by(state, number * STEP))
            if number >= WINDOW:
                part = [b - a for a, b in zip(after.steps[0], after.steps[-1], strict=True)]
                whole = sum(part) or 1.0
                off = max(abs(p / whole - w) for p, w in zip(part, self.wanted, strict=True))
                after.score += (20 * off) ** _SHARP

    def _used_by(self, state: _State, moment: float) -> tuple[float, ...]:
        """What each tenant has used by a time at which nothing has ended since."""
        used = list(state.used)
        for ends, whose in state.running:
            used[whose] -= self.shares[whose] * (ends - moment)
        return tuple(used)

    def _off(self, state: _State) -> float:
        """The distance of a tenant's use from its share of what was used."""
        used = self._used_by(state, state.now)
        return 2 * max(abs(each - part * sum(used)) for each, part in zip(used, self.wanted, strict=True))

    def _promise(self, state: _State) -> float:
        """The score, and how far the schedule is from the weights all in all."""
        idle = max(0.0, self.least * state.now - sum(self._used_by(state, state.now)) - _SPARE)
        return state.score + self._off(state) ** _SHARP + 1e6 * idle


def reachable(
    shares: Sequence[float],
    wanted: Sequence[float],
    lengths: Sequence[Sequence[float]],
    end: float,
    least: float,
    *,
    only_windows: bool,
    width: int = 30,
) -> list[SimulatedRun]:
    """The runs of the best schedule that was found.

    Args:
        shares: Of the cluster, of a run of each tenant.
        wanted: Weights.
        lengths: Of the runs of each tenant, in their order.
        end: When the schedule may end.
        least: The part of the cluster that is used, but for two mean run times.
        only_windows: Nothing counts but windows of ten mean run times.
        width: Schedules of as much room that are kept at a time.
    """
    return _Beam(shares, wanted, lengths, least, only_windows=only_windows, width=width).best(end)
