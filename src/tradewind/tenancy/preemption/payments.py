"""Money for runs that are taken: set aside within the quota of the tenant that pays them."""

from __future__ import annotations

from collections.abc import Mapping

from tradewind.store.clusters.cluster_store import ClusterStore, TenantRow
from tradewind.tenancy.events import PreemptRun
from tradewind.tenancy.request_queue import ResourceRequest
from tradewind.utils.units import format_money


class PreemptionPayments:
    """Keeps tenants within the dollars of their quota when they pay for the runs that they take.

    Args:
        store: Where searches, requests and runs are.
        grace: Seconds that a run may take to end.
    """

    def __init__(self, store: ClusterStore, grace: float) -> None:
        self._store, self._grace = store, grace
        self._promised: dict[str, tuple[str, float]] = {}  # run -> who pays, and how much

    def why_unpaid(
        self, order: PreemptRun, tenant: TenantRow | None, requests: Mapping[str, ResourceRequest], now: float
    ) -> str:
        """Set aside what a run may cost until it is gone; why that cannot be, in words, or an empty text.

        Args:
            order: Which run is taken, and who pays.
            tenant: The tenant that gets the place.
            requests: The runs of the cluster that are not gone.
            now: The time on the allocator's clock.
        """
        quota = None if tenant is None else tenant.quota.get("dollars")
        run = requests.get(order.request)
        if quota is None or run is None or order.pays != "taker":
            return ""
        self._promised = {name: each for name, each in self._promised.items() if name in requests}
        cost = run.price * (now - run.since + self._grace) / 3600.0
        searches, others = self._store.spending(order.tenant)
        promised = sum(dollars for name, dollars in self._promised.values() if name == order.tenant)
        left = max(0.0, quota - sum(searches.values()) - others - promised)
        if cost > left:
            return f"{format_money(left)} of its quota are left, and the run costs {format_money(cost)}"
        self._promised[order.request] = order.tenant, cost
        return ""
