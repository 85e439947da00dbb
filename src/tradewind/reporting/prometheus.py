"""Writes metrics in the text format of Prometheus: those of a cluster, and a builder for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Media type of the text format."""

_HELP = {
    "tradewind_cluster_up": "1 while a process runs the cluster.",
    "tradewind_cluster_capacity": "What all nodes have together.",
    "tradewind_cluster_free": "What is free on a node.",
    "tradewind_cluster_decisions_total": "Runs that the allocator has started since the cluster was.",
    "tradewind_tenant_dominant_share": "Largest share of any resource that a tenant uses.",
    "tradewind_tenant_weight": "A tenant's weight.",
    "tradewind_tenant_running": "Runs of a tenant that run.",
    "tradewind_tenant_waiting": "Runs of a tenant that wait.",
    "tradewind_tenant_usage_seconds_total": "Amount times seconds that a tenant has used since the start.",
    "tradewind_search_trials": "Ended trials of a search.",
    "tradewind_search_spent_dollars": "USD that a search has spent; 0 where its runs are simulated.",
    "tradewind_search_running": "Runs of a search that run.",
}


class Exposition:
    """Collects figures, and writes them as Prometheus reads them: each metric's lines together, with its help and type.

    Args:
        words: Help text of each metric, by its name.
    """

    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = words
        self._lines: dict[str, list[str]] = {}
        self._kinds: dict[str, Literal["counter", "gauge", "histogram"]] = {}

    def add(self, metric: str, value: float, **labels: object) -> None:
        """Add a figure: a counter if its name ends so, else a gauge.

        Args:
            metric: Name of the metric.
            value: The number.
            labels: Labels that distinguish it from others of that name.
        """
        self._kinds.setdefault(metric, "counter" if metric.endswith("_total") else "gauge")
        self._lines.setdefault(metric, []).append(f"{metric}{_labels(labels)} {value:.10g}")

    def add_histogram(
        self, metric: str, bounds: Sequence[float], counts: Sequence[int], total: float, **labels: object
    ) -> None:
        """Add a histogram.

        Args:
            metric: Name of the metric.
            bounds: The upper bounds of its buckets, rising.
            counts: How many fell into each of them, and behind them how many were larger.
            total: The sum of what was counted.
            labels: Labels that distinguish it from others of that name.
        """
        self._kinds[metric] = "histogram"
        lines = self._lines.setdefault(metric, [])
        below = 0
        for bound, count in zip([*(f"{bound:g}" for bound in bounds), "+Inf"], counts, strict=True):
            below += count
            lines.append(f"{metric}_bucket{_labels({**labels, 'le': bound})} {below}")
        lines.append(f"{metric}_sum{_labels(labels)} {total:.10g}")
        lines.append(f"{metric}_count{_labels(labels)} {below}")

    def text(self) -> str:
        """Return the metrics as text, ready to send."""
        blocks = []
        for metric, lines in self._lines.items():
            head = [f"# HELP {metric} {self._words[metric]}", f"# TYPE {metric} {self._kinds[metric]}"]
            blocks.append("\n".join([*head, *lines, ""]))
        return "".join(blocks)


def metrics_text(document: Mapping[str, Any]) -> str:
    """Return the metrics of a cluster (`tradewind.tenancy.shared_cluster.cluster_snapshot`) in the text format."""
    written = Exposition(_HELP)
    cluster = document.get("name", "")
    written.add("tradewind_cluster_up", 1 if document.get("holder") else 0, cluster=cluster)
    written.add("tradewind_cluster_decisions_total", document.get("decisions", 0), cluster=cluster)
    for kind, amount in document.get("total", {}).items():
        written.add("tradewind_cluster_capacity", amount, cluster=cluster, resource=kind)
    for node, each in document.get("nodes", {}).items():
        for kind in each["has"]:
            free = each["free"].get(kind, 0.0)
            written.add("tradewind_cluster_free", free, cluster=cluster, node=node, resource=kind)
    for tenant, each in document.get("tenants", {}).items():
        written.add("tradewind_tenant_dominant_share", each["share"], cluster=cluster, tenant=tenant)
        for figure in ("weight", "running", "waiting"):
            written.add(f"tradewind_tenant_{figure}", each[figure], cluster=cluster, tenant=tenant)
        for kind, amount in each["usage"].items():
            written.add("tradewind_tenant_usage_seconds_total", amount, cluster=cluster, tenant=tenant, resource=kind)
    for job in document.get("jobs", ()):
        labels = {"cluster": cluster, "tenant": job["tenant"], "search": job["id"], "name": job["name"]}
        written.add("tradewind_search_running", job["running"], **labels)
        for metric, key in (("tradewind_search_trials", "trials"), ("tradewind_search_spent_dollars", "spent")):
            if job.get(key) is not None:
                written.add(metric, job[key], **labels)
    return written.text()


def _labels(labels: Mapping[str, object]) -> str:
    words = ",".join(f'{name}="{_escaped(str(text))}"' for name, text in labels.items())
    return f"{{{words}}}" if words else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
