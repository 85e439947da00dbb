"""Asks an engine which nodes there are, while the cluster goes on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from typing import Protocol

NodeCapacities = Mapping[str, Mapping[str, float]]
"""What each node has, by its name."""


class NodeSource(Protocol):
    """Says which nodes there are: a runner with the capability ``ListsNodes``."""

    def nodes(self) -> NodeCapacities:
        """Capacity by node."""
        ...


class LimitedNodes:
    """Nodes of which no more than some amounts are used, and which have what the engine does not know of.

    Args:
        nodes: The nodes.
        most: The most of each resource that is used on each node, by name.
        more: What each node has besides, by name: licences, places in a queue.
    """

    def __init__(self, nodes: NodeSource, most: Mapping[str, float], more: Mapping[str, float] | None = None) -> None:
        self._nodes, self._most, self._more = nodes, most, more or {}

    def nodes(self) -> NodeCapacities:
        """Capacity by node."""
        return {
            node: {
                kind: min(amount, self._most.get(kind, amount)) for kind, amount in {**capacity, **self._more}.items()
            }
            for node, capacity in self._nodes.nodes().items()
        }


class NodeMonitor:
    """Asks for the nodes in a thread: engines take seconds to answer, and longer when they are down.

    Args:
        nodes: Who is asked.
    """

    def __init__(self, nodes: NodeSource) -> None:
        self._nodes = nodes
        self._asking: threading.Thread | None = None
        self._answers: queue.SimpleQueue[NodeCapacities | Exception] = queue.SimpleQueue()

    def ask(self) -> None:
        """Begin to ask, unless an answer is on its way."""
        if self._asking is None:
            self._asking = threading.Thread(target=self._ask, name="nodes", daemon=True)
            self._asking.start()

    def _ask(self) -> None:
        try:
            self._answers.put(self._nodes.nodes())
        except Exception as error:  # raised where the answer is taken
            self._answers.put(error)

    def answer(self) -> NodeCapacities | None:
        """The nodes, once for each answer; None while there is none.

        Raises:
            DeployError: The engine cannot be reached.
        """
        try:
            found = self._answers.get_nowait()
        except queue.Empty:
            return None
        if self._asking is not None:
            self._asking.join()
        self._asking = None
        if isinstance(found, Exception):
            raise found
        return found

    def end(self, seconds: float) -> None:
        """Wait so long for an answer that is on its way; who still asks then is left to itself."""
        if self._asking is not None:
            self._asking.join(seconds)
