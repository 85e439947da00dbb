"""A small writer of SVG, and the scales of a chart."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

Words = Callable[[float], str]


class Svg:
    """A drawing that scales with its page; colours come from the page's style sheet, by class.

    Args:
        width: Units across.
        height: Units down.
        title: Description for those who do not see it.
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width = width
        self.height = height
        self._parts = [
            f'<svg viewBox="0 0 {_n(width)} {_n(height)}" role="img" aria-label="{escape(title)}" '
            'xmlns="http://www.w3.org/2000/svg" class="chart">'
        ]

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        """A straight line."""
        self._parts.append(f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" class="{style}"/>')

    def path(self, points: list[tuple[float, float]], style: str, *, closed: bool = False) -> None:
        """A line through points."""
        if points:
            way = "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points) + ("Z" if closed else "")
            self._parts.append(f'<path d="{way}" class="{style}"/>')

    def rect(self, x: float, y: float, width: float, height: float, style: str, title: str = "") -> None:
        """A rectangle; ``title`` shows when the pointer rests on it."""
        body = (
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(max(width, 0))}" height="{_n(max(height, 0))}" class="{style}"'
        )
        self._parts.append(f"{body}><title>{escape(title)}</title></rect>" if title else body + "/>")

    def text(self, x: float, y: float, words: str, style: str = "", *, anchor: str = "start", turn: float = 0) -> None:
        """Words, from (``start``), around (``middle``) or up to (``end``) a point."""
        turned = f' transform="rotate({_n(turn)} {_n(x)} {_n(y)})"' if turn else ""
        self._parts.append(
            f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}" class="{style}"{turned}>{escape(words)}</text>'
        )

    def mark(self, kind: str, x: float, y: float, title: str = "", size: float = 4.5) -> None:
        """The mark of one outcome, by shape and by colour.

        Args:
            kind: ``feasible`` (disc), ``infeasible`` (triangle), ``failed`` (cross), ``aborted`` (diamond), ``lost``
                (plus), ``best`` (star) or ``front`` (ring).
            x: Place across.
            y: Place down.
            title: Shown when the pointer rests on it.
            size: Half its width.
        """
        way = "M" + "M".join(
            "L".join(f"{_n(x + a * size)} {_n(y + b * size)}" for a, b in part) for part in _SHAPES[kind]
        )
        close = "" if kind in ("failed", "lost") else "Z"
        body = f'<path d="{way}{close}" class="mark {kind}"'
        self._parts.append(f"{body}><title>{escape(title)}</title></path>" if title else body + "/>")

    def render(self) -> str:
        """The drawing as text."""
        return "".join(self._parts) + "</svg>"


def _ring(corners: int, radii: tuple[float, ...], turn: float = -90.0) -> list[tuple[float, float]]:
    angles = [math.radians(turn + 360.0 * i / corners) for i in range(corners)]
    return [(radii[i % len(radii)] * math.cos(a), radii[i % len(radii)] * math.sin(a)) for i, a in enumerate(angles)]


_SHAPES: dict[str, list[list[tuple[float, float]]]] = {
    "feasible": [_ring(12, (0.95,))],
    "infeasible": [_ring(3, (1.25,))],
    "failed": [[(-0.9, -0.9), (0.9, 0.9)], [(-0.9, 0.9), (0.9, -0.9)]],
    "aborted": [_ring(4, (1.15,))],
    "lost": [[(-1, 0), (1, 0)], [(0, -1), (0, 1)]],
    "best": [_ring(10, (2.1, 0.9))],
    "front": [_ring(16, (1.0,))],
}


def _n(value: float) -> str:
    """A coordinate, to a tenth of a unit."""
    return f"{value:.1f}".removesuffix(".0")


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis: maps values to places in the drawing.

    Attributes:
        low: The value at ``start``.
        high: The value at ``end``.
        start: Place of ``low``.
        end: Place of ``high``.
        log: True for a logarithmic axis.
        unit: What the labels count in, such as 60 for minutes.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    unit: float = 1.0

    def __call__(self, value: float) -> float:
        """The place of a value; one beyond the axis stands at its end."""
        value = min(max(value, self.low), self.high)
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.start + (self.end - self.start) * ((value - low) / (high - low) if high > low else 0.5)

    def ticks(self, about: int = 5) -> list[float]:
        """Round values of the axis, about so many."""
        low, high = self.low / self.unit, self.high / self.unit
        if not (self.log and high / low >= 8):
            return [value * self.unit for value in _steps(low, high, about)]
        decades = math.log10(high / low)
        factors = (1, 2, 5) if decades <= 1.7 else (1, 3) if decades <= 2.6 else (1,)
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [f * 10.0**p for p in powers for f in factors if low <= f * 10.0**p <= high]
        every = max(1, math.ceil(len(found) / (about + 3)))
        return [value * self.unit for value in found[::every]]


def _steps(low: float, high: float, about: int) -> list[float]:
    span = high - low
    if span <= 0:
        return [low]
    rough = span / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


MOST = sys.float_info.max / 1000
"""The end of an axis: the length of one between this and its negative, and ten times of it, is still a number."""


def span(values: list[float], *, log: bool, zero: bool = False) -> tuple[float, float]:
    """A range that holds all values with a little air; from zero with ``zero`` on a linear axis."""
    known = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    if not known:
        return (0.1, 1.0) if log else (0.0, 1.0)
    low, high = (min(max(value, -MOST), MOST) for value in (min(known), max(known)))
    if log:
        return low / 1.15, high * 1.15
    air = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return (0.0 if zero and low >= 0 else low - air), high + air


def time_unit(longest: float) -> tuple[float, str]:
    """Seconds of the unit that suits times up to ``longest`` seconds, and its name."""
    return (3600.0, "hours") if longest >= 7200 else (60.0, "minutes") if longest >= 180 else (1.0, "seconds")
