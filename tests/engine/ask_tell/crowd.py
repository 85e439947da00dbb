"""A worker that always has trials proposed ahead, as among many that are quick."""

from __future__ import annotations

import math

from tradewind.engine.ask_tell.proposed_ahead import AheadCount
from tradewind.engine.ask_tell.shared_study import SharedStudy


class CrowdCount(AheadCount):
    """Finds many changes of others whenever it looks."""

    size = 4

    def caught_up(self, changed: int, *, quick: bool = False) -> None:
        self.worth, self.many = self.size, True


class OneOfACrowd(SharedStudy):
    def _open(self) -> None:
        super()._open()
        self._ahead = CrowdCount()
        self._ahead.caught_up(0)
        self._own.at_once = self._own.kept = math.inf  # however long the machine stands still
