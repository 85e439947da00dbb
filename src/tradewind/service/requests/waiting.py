"""Why a request waits, for all who ask: a thousand that ask about theirs cost the database no more than one."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from tradewind.service.requests.state import request_allowance
from tradewind.store.service.claims import ClaimStore
from tradewind.store.service.request_values import RequestRow, TenantQueueState

_WAIT_CACHE_SECONDS = 1.0
_MOST_TENANTS = 1_000


class WaitReasons:
    """What the tenants' requests wait for, read once a second at most for each of them.

    Args:
        claims: The requests that wait.
    """

    def __init__(self, claims: ClaimStore) -> None:
        self._claims = claims
        self._known: dict[str, tuple[float, TenantQueueState, Sequence[int]]] = {}
        self._lock = threading.Lock()

    def why(self, row: RequestRow) -> str:
        """What a request that nobody carries out waits for, in words."""
        line, numbers = self._of(row.tenant)
        _, why = request_allowance(replace(line, first=row.id, plan=row.plan, cost=row.cost))
        before = bisect_left(numbers, row.id)
        others = f"{before} of {row.tenant} {'is' if before == 1 else 'are'} before it" if before else ""
        return "; ".join(each for each in (why, others) if each) or "waits for a free place"

    def _of(self, tenant: str) -> tuple[TenantQueueState, Sequence[int]]:
        now = time.monotonic()
        with self._lock:
            known = self._known.get(tenant)
        if known is None or known[0] < now:
            known = (now + _WAIT_CACHE_SECONDS, *self._claims.queue(tenant))
            with self._lock:
                if len(self._known) >= _MOST_TENANTS:
                    self._known.clear()
                self._known[tenant] = known
        return known[1], known[2]
