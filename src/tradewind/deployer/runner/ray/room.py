"""Why a run waits in a Ray cluster, from what its nodes have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def fitting_nodes(wanted: Mapping[str, float], nodes: Sequence[Mapping[str, float]]) -> int:
    """How many nodes are large enough, were they free.

    Args:
        wanted: What a run asks for on each of its nodes, by Ray's names.
        nodes: What the nodes have in all.
    """
    return sum(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes)


def shortage(wanted: Mapping[str, float], count: int, nodes: Sequence[Mapping[str, float]]) -> str:
    """What there is too little of for a run that needs so many nodes, in words.

    Args:
        wanted: What it asks for on each.
        count: How many nodes it needs.
        nodes: What the nodes have in all.
    """
    most = {name: max((node.get(name, 0) for node in nodes), default=0) for name in wanted}
    return (
        f"nodes with {_words(wanted)}: {fitting_nodes(wanted, nodes)} of the {count} needed; "
        f"the most that one has: {_words(most)}"
    )


def why_waits(wanted: Mapping[str, float], count: int, nodes: Sequence[Mapping[str, float]]) -> str:
    """Why a run has no node: there is none, or not as many, or they are taken.

    Args:
        wanted: What it asks for on each.
        count: How many nodes it needs.
        nodes: What the nodes have in all.
    """
    if not wanted:
        return ""
    if fitting_nodes(wanted, nodes) < count:
        return shortage(wanted, count, nodes)
    return f"{_words(wanted)}{f' on each of {count} nodes' if count > 1 else ''}: taken by others for now"


def _words(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_amount(name, amount)}" for name, amount in amounts.items())


def _amount(name: str, amount: float) -> str:
    return f"{amount / 2**30:.3g} GiB" if name in ("memory", "object_store_memory") else f"{amount:g}"
