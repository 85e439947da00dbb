"""Check that a job's run time scales with the share of the input that it is given to work on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tradewind.utils.units import format_duration

_APART = 1.5
"""Shares that differ by this factor are compared whatever else is known; so are numbers of machines."""

_UNMOVED = 1.05
"""A run on a larger share that takes less than this times as long shows no effect of the share."""

_DIVIDED = 1.2
"""Fewer machines that take this times as long on an equal share show that work is divided among them."""

_OWED = 1.1
"""Shares that are nearer to each other are compared where the divided work alone would take this times as long."""


@dataclass(frozen=True, slots=True)
class TimedRun:
    """A run on a share of the input, for the comparison of times.

    Attributes:
        share: Share of the input.
        nodes: Number of nodes.
        seconds: Run time.
        cut: True where the run was cut short at that time.
    """

    share: float
    nodes: int
    seconds: float
    cut: bool = False

    @property
    def took(self) -> str:
        """The run time in words."""
        return f"{'took more than' if self.cut else 'took'} {format_duration(self.seconds)}"


@dataclass(frozen=True, slots=True)
class InputScaling:
    """Result of the check for the runs of one group.

    Attributes:
        words: Sentence on how the times failed to rise with the share; empty where they rose.
        sure: True where fewer machines took longer on an equal share: then it is no start of the job that takes all
            the time, since more machines do not shorten it.
    """

    words: str
    sure: bool = False


def check_input_scaling(runs: Sequence[TimedRun], label: str) -> InputScaling | None:
    """Compare the two runs on equal machines whose shares differ most; None where there are no two to compare.

    Short runs are cut at the deadline of the whole, so that often only shares are left that hardly differ: start-up
    that takes nearly all the time hides the difference of such two. They are compared where other runs on an equal
    share show how much of the time is work: by Ernest's model fewer machines take longer for that alone.

    Args:
        runs: Of one instance type and one combination of settings, those that succeeded and those that were cut short.
        label: The type and the settings in words.
    """
    pairs = []
    for i, less in enumerate(runs):
        for j, more in enumerate(runs):
            if less.nodes != more.nodes or less.share >= more.share or not _comparable(less, more):
                continue
            owed, other = max(_owed(runs, less, more), default=(1.0, None), key=lambda found: found[0])
            ratio = round(more.share / less.share, 9)
            if ratio >= _APART or (owed >= _OWED and not more.cut):
                pairs.append((-ratio, i, j, other if owed >= _OWED else None))
    if not pairs:
        return None
    ratio, i, j, other = min(pairs, key=lambda pair: pair[:3])
    less, more = runs[i], runs[j]
    if more.seconds >= _UNMOVED * less.seconds:
        return InputScaling("") if -ratio >= _APART else None
    words = f"on {less.nodes} x {label}, {less.share:.2%} {less.took} and {more.share:.2%} {more.took}"
    if other is None:
        return InputScaling(words)
    return InputScaling(f"{words}, while {other.share:.2%} on {other.nodes} of them {other.took}", sure=True)


def _comparable(less: TimedRun, more: TimedRun) -> bool:
    """True when it is known which of two runs took longer, as far as that counts."""
    return not less.cut and (not more.cut or more.seconds >= _UNMOVED * less.seconds)


def _owed(runs: Sequence[TimedRun], less: TimedRun, more: TimedRun) -> Iterator[tuple[float, TimedRun]]:
    """Least factor by which the larger share takes longer, by each run on other machines, and that run.

    In time = θ0 + θ1·s/m + θ2·m + θ3·ln m with θ ≥ 0 only the second term falls with the machines, so that what fewer
    of them take longer on an equal share is a lower bound of it; a run that was cut short took even longer.
    """
    for one in (less, more):
        for other in runs:
            quick, slow = (one, other) if one.nodes > other.nodes else (other, one)
            if other.share != one.share or quick.cut or quick.nodes < _APART * slow.nodes:
                continue
            if slow.seconds < _DIVIDED * quick.seconds:
                continue
            per_share = (slow.seconds - quick.seconds) / (quick.share * (1.0 / slow.nodes - 1.0 / quick.nodes))
            # No more than all of its time is work, whatever a cliff in memory made of the slower run.
            grows = min(per_share / less.nodes, less.seconds / less.share) * (more.share - less.share)
            yield 1.0 + grows / less.seconds, other
