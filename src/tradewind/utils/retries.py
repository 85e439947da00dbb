"""Pauses between the attempts at something that may fail for a while."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts, in seconds; the last one goes on.

    Iterating gives them without an end: ``for pause in Backoff.doubling(1, 8): ...``.

    Attributes:
        pauses: The seconds, at least one entry.
    """

    pauses: tuple[float, ...]

    @classmethod
    def doubling(cls, first: float, longest: float) -> Backoff:
        """Pauses that double from attempt to attempt.

        Args:
            first: Seconds after the first failure, above 0.
            longest: Seconds that no pause exceeds.
        """
        pauses = [first]
        while pauses[-1] < longest:
            pauses.append(min(2 * pauses[-1], longest))
        return cls(tuple(pauses))

    def pause(self, failures: int) -> float:
        """Seconds to wait now.

        Args:
            failures: Attempts that had failed before the one that has failed now.
        """
        return self.pauses[min(failures, len(self.pauses) - 1)]

    def __iter__(self) -> Iterator[float]:
        return itertools.chain(self.pauses, itertools.repeat(self.pauses[-1]))
