"""What Cores and an engine say, as events of the allocator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tradewind.tenancy import events as ev
from tradewind.tenancy.messages import (
    CoreMessage,
    MessageBatch,
    ResultMessage,
    RunEndedMessage,
    RunFoundMessage,
    RunRequestMessage,
    RunWithdrawalMessage,
)
from tradewind.tenancy.node_monitor import NodeCapacities
from tradewind.tenancy.request_queue import ResourceRequest
from tradewind.tenancy.resources import ResourceKinds


def known_amounts(amounts: Mapping[str, float], kinds: ResourceKinds) -> dict[str, float]:
    """The amounts of the kinds that this cluster has: a run may have begun on one that had others.

    Args:
        amounts: By name of the resource.
        kinds: The cluster's kinds of resource.
    """
    return {kind: each for kind, each in amounts.items() if kind in kinds.names}


def allocator_events_of(message: CoreMessage, kinds: ResourceKinds) -> list[ev.AllocatorEvent]:
    """What a Core says of its runs and results; nothing where the message is not for the allocator.

    Args:
        message: Of a Core.
        kinds: The cluster's kinds of resource.
    """
    name = str(message.job)
    match message:
        case RunRequestMessage(_, request, demand, chance, seconds):
            return [ev.RequestMade(name, request, demand, chance, seconds)]
        case RunWithdrawalMessage(_, request):
            return [ev.RequestWithdrawn(request), ev.RequestEnded(request)]
        case RunFoundMessage(_, request, demand):
            return [ev.RequestAdopted(name, request, known_amounts(demand, kinds))]
        case RunEndedMessage(_, request):
            return [ev.RequestEnded(request)]
        case ResultMessage(_, value, took, demand, chance):
            return [ev.ResultReported(name, value, took, known_amounts(demand, kinds), chance)]
    return []


def messages_in(message: CoreMessage) -> Iterable[CoreMessage]:
    """The messages that a message is made of, in their order."""
    return message.messages if isinstance(message, MessageBatch) else (message,)


def node_events(
    known: NodeCapacities, found: NodeCapacities, requests: Iterable[ResourceRequest], kinds: ResourceKinds
) -> list[ev.AllocatorEvent]:
    """What has changed about the nodes.

    The engine chose the nodes, not the allocator: which runs are gone with a node only their Cores will say. Until then
    they count as running somewhere, so that no more is started than the other nodes hold.

    Args:
        known: The nodes before.
        found: The nodes now.
        requests: The runs that wait or run.
        kinds: The cluster's kinds of resource.
    """
    lost = [name for name in known if name not in found]
    events: list[ev.AllocatorEvent] = [ev.NodeLost(name) for name in lost]
    for name, capacity in found.items():
        if known.get(name) != capacity:
            events.append(ev.NodeJoined(name, known_amounts(capacity, kinds)))
    events += [
        ev.RequestAdopted(request.job.view.job, request.id, kinds.mapping(request.demand))
        for request in requests
        if request.node in lost
    ]
    return events
