"""Runs that start only with somebody's leave: who shares a cluster with others asks for each of them."""

from __future__ import annotations


class LaunchPermits:
    """Which trials wait for leave to run, and which have it."""

    def __init__(self) -> None:
        self._asked: set[int] = set()
        self._given: set[int] = set()

    def waits(self) -> bool:
        """True when a trial has asked for leave and has not been started."""
        return bool(self._asked)

    def ask(self, number: int) -> bool:
        """Note that leave for a trial is asked for; False when it was before."""
        new = number not in self._asked
        self._asked.add(number)
        return new

    def give(self, number: int) -> None:
        """A trial may run; one that does not wait any more gains nothing by it."""
        if number in self._asked:
            self._given.add(number)

    def may(self, number: int) -> bool:
        """True when a trial has leave."""
        return number in self._given

    def drop(self, number: int) -> bool:
        """Forget a trial, which has been started or is not wanted any more; False when nothing was asked for it."""
        self._given.discard(number)
        known = number in self._asked
        self._asked.discard(number)
        return known

    def drop_all(self) -> list[int]:
        """Forget all trials, and say which there were."""
        found = sorted(self._asked)
        self._asked.clear()
        self._given.clear()
        return found
