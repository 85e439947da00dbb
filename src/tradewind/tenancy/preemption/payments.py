"""Money for runs that are taken: set aside within the quota of the tenant that pays them."""

from __future__ import annotations

from collections.abc import Mapping

from tradewind.store.clusters.cluster_store import ClusterStore, TenantRow
from tradewind.store.clusters.tenant_spending import PreemptionPromise
from tradewind.tenancy.events import PreemptRun
from tradewind.tenancy.request_queue import ResourceRequest
from tradewind.utils.units import format_money


class PreemptionPayments:
    """Keeps tenants within the dollars of their quota when they pay for the runs that they take.

    What is set aside is in the store before a run is taken, so that nobody else, such as who submits a search at the
    same moment, counts on it too.

    Args:
        store: Where searches, requests and runs are.
        cluster: The name of the cluster.
        grace: Seconds that a run may take to end.
    """

    def __init__(self, store: ClusterStore, cluster: str, grace: float) -> None:
        self._store, self._cluster, self._grace = store, cluster, grace
        self._promised: set[str] = set()

    def why_unpaid(
        self,
        order: PreemptRun,
        tenant: TenantRow | None,
        run: ResourceRequest | None,
        study: int | None,
        now: float,
    ) -> str:
        """Set aside what a run may cost until it is gone; why that cannot be, in words, or an empty text.

        Args:
            order: Which run is taken, and who pays.
            tenant: The tenant that gets the place.
            run: The run; None where it is gone.
            study: Its study.
            now: The time on the allocator's clock.
        """
        quota = None if tenant is None else tenant.quota.get("dollars")
        if quota is None or run is None or order.pays != "taker" or order.request in self._promised:
            return ""
        cost = run.price * (now - run.since + self._grace) / 3600.0
        trial = int(order.request.split("/")[1])
        wanted = PreemptionPromise(self._cluster, order.request, order.tenant, study, trial, cost)
        if (left := self._store.promise(wanted, quota)) is not None:
            return f"{format_money(left)} of its quota are left, and the run costs {format_money(cost)}"
        self._promised.add(order.request)
        return ""

    def begin(self) -> None:
        """Forget what a cluster of this name had promised when it died: what its searches have noted counts by that."""
        self._store.forget_promises(self._cluster, ())

    def forget(self, going_on: Mapping[str, ResourceRequest]) -> None:
        """Forget what was promised for runs that are gone: what they have cost is known."""
        if self._promised and not self._promised <= going_on.keys():
            self._store.forget_promises(self._cluster, going_on.keys())
            self._promised &= going_on.keys()
