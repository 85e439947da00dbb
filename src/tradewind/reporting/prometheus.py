"""A cluster's figures in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    "tradewind_search_spent_dollars": "USD that a search has spent.",
    "tradewind_search_running": "Runs of a search that run.",
}


def metrics_text(document: Mapping[str, Any]) -> str:
    """The figures of a cluster (`tradewind.tenancy.watching.snapshot_of`), as Prometheus reads them."""
    rows: dict[str, list[str]] = {}

    def add(metric: str, value: float, **labels: object) -> None:
        words = ",".join(f'{name}="{_escaped(str(text))}"' for name, text in labels.items())
        rows.setdefault(metric, []).append(f"{metric}{{{words}}} {value:.10g}" if words else f"{metric} {value:.10g}")

    cluster = document.get("name", "")
    add("tradewind_cluster_up", 1 if document.get("holder") else 0, cluster=cluster)
    add("tradewind_cluster_decisions_total", document.get("decisions", 0), cluster=cluster)
    for kind, amount in document.get("total", {}).items():
        add("tradewind_cluster_capacity", amount, cluster=cluster, resource=kind)
    for node, each in document.get("nodes", {}).items():
        for kind in each["has"]:
            add("tradewind_cluster_free", each["free"].get(kind, 0.0), cluster=cluster, node=node, resource=kind)
    for tenant, each in document.get("tenants", {}).items():
        add("tradewind_tenant_dominant_share", each["share"], cluster=cluster, tenant=tenant)
        for figure in ("weight", "running", "waiting"):
            add(f"tradewind_tenant_{figure}", each[figure], cluster=cluster, tenant=tenant)
        for kind, amount in each["usage"].items():
            add("tradewind_tenant_usage_seconds_total", amount, cluster=cluster, tenant=tenant, resource=kind)
    for job in document.get("jobs", ()):
        labels = {"cluster": cluster, "tenant": job["tenant"], "search": job["id"], "name": job["name"]}
        add("tradewind_search_running", job["running"], **labels)
        for metric, key in (("tradewind_search_trials", "trials"), ("tradewind_search_spent_dollars", "spent")):
            if job.get(key) is not None:
                add(metric, job[key], **labels)
    blocks = []
    for metric, lines in rows.items():
        kind = "counter" if metric.endswith("_total") else "gauge"
        blocks.append("\n".join([f"# HELP {metric} {_HELP[metric]}", f"# TYPE {metric} {kind}", *lines, ""]))
    return "".join(blocks)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
