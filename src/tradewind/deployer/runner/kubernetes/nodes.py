"""The nodes of a Kubernetes cluster that take our pods, and what they have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tradewind.deployer.runner.kubernetes.settings import KubernetesSettings

Document = dict[str, Any]

_KEEPS_OFF = ("NoSchedule", "NoExecute")


def nodes_of(nodes: Iterable[Document], settings: KubernetesSettings) -> dict[str, dict[str, float]]:
    """What each node has for pods (its allocatable amounts), by its name.

    Args:
        nodes: The nodes as the API has them; those without the labels of `settings` are left out already.
        settings: Which taints pods put up with, what a GPU is called, and which share of an offer a pod requests.

    Returns:
        ``cpu``, ``memory`` in GiB, and ``gpu`` where there are some, of the nodes that are ready, not cordoned, and
        without a taint that keeps our pods off. Where pods request a share of their offers, more offers fit: amounts
        are those of the offers.
    """
    share = settings.request_share or 1.0
    found = {}
    for node in nodes:
        if not _takes_pods(node, settings.tolerations):
            continue
        has = node["status"].get("allocatable", {})
        amounts = {
            "cpu": _amount(has.get("cpu", "0")) / share,
            "memory": _amount(has.get("memory", "0")) / 2**30 / share,
            "gpu": _amount(has.get(settings.gpu_resource, "0")),
        }
        found[node["metadata"]["name"]] = {name: amount for name, amount in amounts.items() if amount}
    return found


def _takes_pods(node: Document, tolerations: Iterable[Mapping[str, str | int]]) -> bool:
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions") or ())
    spec = node.get("spec", {})
    taints = [taint for taint in spec.get("taints") or () if taint["effect"] in _KEEPS_OFF]
    kept_off = any(not any(_tolerates(each, taint) for each in tolerations) for taint in taints)
    return ready and not spec.get("unschedulable") and not kept_off


def _tolerates(toleration: Mapping[str, str | int], taint: Mapping[str, str]) -> bool:
    """As Kubernetes has it: without a key all taints, without an effect all effects."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key", "") in ("", taint["key"])
    return (toleration.get("key"), toleration.get("value", "")) == (taint["key"], taint.get("value", ""))


def _amount(quantity: str | int) -> float:
    """A quantity as Kubernetes writes it: ``3920m``, ``16Gi``."""
    from kubernetes.utils import parse_quantity

    return float(parse_quantity(quantity))  # type: ignore[no-untyped-call]
