"""The nodes of a Kubernetes cluster that take our pods, and what they have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tradewind.deployer.runner.kubernetes.settings import KubernetesSettings

NodeDocument = dict[str, Any]

_KEEPS_OFF = ("NoSchedule", "NoExecute")


def nodes_of(
    nodes: Iterable[NodeDocument], pods: Iterable[NodeDocument], settings: KubernetesSettings
) -> dict[str, dict[str, float]]:
    """What each node has for our pods, by its name: its allocatable amounts less what others' pods request there.

    Args:
        nodes: The nodes as the API has them; those without the labels of `settings` are left out already.
        pods: Pods of others that have not ended, wherever they are.
        settings: Which taints pods put up with, what a GPU is called, and which share of an offer a pod requests.

    Returns:
        ``cpu``, ``memory`` in GiB, and ``gpu`` where there are some, of the nodes that are ready, not cordoned, and
        without a taint that keeps our pods off. Where pods request a share of their offers, more offers fit: amounts
        are those of the offers.
    """
    share = settings.request_share or 1.0
    kinds = {"cpu": "cpu", "memory": "memory", "gpu": settings.gpu_resource}
    units = {"cpu": share, "memory": 2**30 * share, "gpu": 1.0}
    taken: dict[tuple[str, str], float] = {}
    for pod in pods:
        for theirs, amount in _requested(pod["spec"], kinds.values()).items():
            place = pod["spec"].get("nodeName", ""), theirs
            taken[place] = taken.get(place, 0.0) + amount
    found = {}
    for node in nodes:
        if not _takes_pods(node, settings.tolerations):
            continue
        name, has = node["metadata"]["name"], node["status"].get("allocatable", {})
        left = {
            kind: max(0.0, _node_amount(has.get(theirs, "0")) - taken.get((name, theirs), 0.0)) / units[kind]
            for kind, theirs in kinds.items()
        }
        found[name] = {kind: amount for kind, amount in left.items() if amount}
    return found


def _requested(spec: NodeDocument, kinds: Iterable[str]) -> dict[str, float]:
    """What a pod requests of a node, as the scheduler counts it ("Resource sharing within containers").

    Its containers run together, with the init containers that go on (sidecars); the other init containers run before,
    one by one, beside the sidecars that were started by then. The pod's overhead is added.
    """
    found = {}
    for kind in kinds:
        together, before = 0.0, 0.0
        for each in spec.get("initContainers") or ():
            amount = _request(each, kind)
            if each.get("restartPolicy") == "Always":
                together += amount
            before = max(before, together if each.get("restartPolicy") == "Always" else together + amount)
        together += sum(_request(each, kind) for each in spec.get("containers") or ())
        found[kind] = max(before, together) + _node_amount((spec.get("overhead") or {}).get(kind, "0"))
    return found


def _request(container: NodeDocument, kind: str) -> float:
    return _node_amount((container.get("resources", {}).get("requests") or {}).get(kind, "0"))


def _takes_pods(node: NodeDocument, tolerations: Iterable[Mapping[str, str | int]]) -> bool:
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


def _node_amount(quantity: str | int) -> float:
    """A quantity as Kubernetes writes it: ``3920m``, ``16Gi``."""
    from kubernetes.utils import parse_quantity

    return float(parse_quantity(quantity))  # type: ignore[no-untyped-call]
