"""Turns of requests: each server carries out so many at a time, and tenants get their shares of that."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Sequence

from tradewind.service.requests.offered_places import OfferedPlaces
from tradewind.service.requests.state import REQUESTS, request_allowance
from tradewind.store.service.request_values import TenantQueueState

_ONE = {REQUESTS: 1.0}


class RequestTurns:
    """Chooses the request whose turn it is, as a shared cluster chooses the next run.

    A request counts with the time for which it is carried out: the tenant that has used least for its weight is next,
    and within a tenant the oldest request. What a tenant used counts from when it came: one that was away has nothing
    saved up.

    Args:
        runs: How many requests this server carries out at a time.
        clock: Seconds that never go back.

    Attributes:
        weights: The weights of the tenants that were seen.
    """

    def __init__(self, runs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.weights: dict[str, float] = {}
        # More than can be given at a time: a tenant that has work is never seen without, which would be a new arrival.
        self._most = max(runs, 1) + 1
        self._places = OfferedPlaces({REQUESTS: float(max(runs, 1))}, clock)
        self._numbers = itertools.count()
        self._turns: dict[str, list[str]] = {}  # tenant -> the turns that it waits for, or has and does not use yet
        self._chosen: tuple[int, str] | None = None  # the request, and its turn
        self._used: dict[int, str] = {}  # request that is carried out -> its turn

    def choose(self, lines: Sequence[TenantQueueState]) -> tuple[int, float] | None:
        """Choose the next request, and the USD that it may cost in all (0 for no limit); None when all have to wait."""
        self._chosen, allowed = None, dict[str, tuple[int, float]]()
        for line in sorted(lines, key=lambda each: each.first):
            dollars, why = request_allowance(line)
            if line.cluster and not why:  # it only has to be handed over, and takes no place here
                return line.first, dollars
            if not (line.cluster or why):
                allowed[line.tenant] = line.first, dollars
        self.weights |= {line.tenant: line.weight for line in lines}
        self._ask(allowed)
        given = self._places.given(turn for turns in self._turns.values() for turn in turns)
        for tenant, (number, dollars) in allowed.items():
            if (turn := next((turn for turn in self._turns[tenant] if turn in given), None)) is not None:
                self._chosen = number, turn
                return number, dollars
        return None

    def rest(self) -> None:
        """Take all turns back that are not used: nothing waits."""
        self._ask(())

    def begin(self, number: int, tenant: str) -> None:
        """A request is carried out here: the one that was chosen, or one that another process had begun."""
        chosen, self._chosen = self._chosen, None
        if chosen is not None and chosen[0] == number:
            self._turns[tenant].remove(chosen[1])
            self._used[number] = chosen[1]
            return
        turn = self._used[number] = self._new()
        self._places.adopt(turn, tenant, tenant, _ONE, self.weights.get(tenant, 1.0))

    def end(self, number: int) -> None:
        """A request is not carried out here any more."""
        self._places.end(self._used.pop(number))

    def _ask(self, tenants: Collection[str]) -> None:
        """Have these tenants wait for turns, and no others."""
        for tenant in self._turns.keys() - set(tenants):
            for turn in self._turns.pop(tenant):
                self._places.give_up(turn)
        new = [(tenant, self._new()) for tenant in tenants for _ in range(len(self._turns.get(tenant, ())), self._most)]
        for tenant, turn in new:
            self._turns.setdefault(tenant, []).append(turn)
        self._places.ask([(turn, tenant, tenant, _ONE) for tenant, turn in new], self.weights)

    def _new(self) -> str:
        return f"turn {next(self._numbers)}"
