"""Tells who waits for runs when one of them has ended, in the driver of a Ray cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Any

_ASK_SECONDS = 5.0
_AGAIN_SECONDS = 0.25
_REMEMBERED = 10_000


class RunEndNotifier:
    """One question to the keeper, however many wait for runs.

    It is asked while somebody waits. Who waits for runs that the keeper does not have is not told anything.

    Args:
        ask: Asks the keeper for the names of runs that have ended since a moment, which is told by what it last gave
            (None at first), for some seconds at most; gives the present moment and the names.
    """

    def __init__(self, ask: Callable[[Any, float], tuple[Any, list[str]]]) -> None:
        self._ask = ask
        self._moment: Any = None
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[frozenset[str], Callable[[], None]]] = {}
        self._ended: dict[str, None] = {}  # in their order
        self._asks = False

    def await_one(self, who: str, names: Collection[str], tell: Callable[[], None]) -> None:
        """Have somebody told once when one of some runs has ended, or when he waits for others instead.

        Args:
            who: Who waits.
            names: The runs, as keepers call them.
            tell: Called from any thread.
        """
        with self._lock:
            before = self._waiting.pop(who, None)
            over = any(name in self._ended for name in names)
            if not over:
                self._waiting[who] = frozenset(names), tell
            begins = not self._asks and bool(self._waiting)
            self._asks = self._asks or begins
        if before is not None:
            before[1]()
        if over:
            tell()
        if begins:
            threading.Thread(target=self._listen, name="tradewind-endings", daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                self._moment, names = self._ask(self._moment, _ASK_SECONDS)
            except Exception:  # the keeper is gone, or the cluster: who waits looks by himself every now and then
                time.sleep(_AGAIN_SECONDS)
                names = []
            with self._lock:
                self._ended |= dict.fromkeys(names)
                while len(self._ended) > _REMEMBERED:
                    del self._ended[next(iter(self._ended))]
                told = [who for who, (wanted, _) in self._waiting.items() if not wanted.isdisjoint(names)]
                calls = [self._waiting.pop(who)[1] for who in told]
                self._asks = bool(self._waiting)
                goes_on = self._asks
            for call in calls:
                call()
            if not goes_on:
                return
