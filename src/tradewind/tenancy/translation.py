"""What Cores and an engine say, as events of the allocator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tradewind.tenancy import events as ev
from tradewind.tenancy.lookout import Capacities
from tradewind.tenancy.messages import Drops, Gone, Learned, Message, Runs, Several, Wants
from tradewind.tenancy.queue import Request
from tradewind.tenancy.resources import Kinds


def known_amounts(amounts: Mapping[str, float], kinds: Kinds) -> dict[str, float]:
    """The amounts of the kinds that this cluster has: a run may have begun on one that had others.

    Args:
        amounts: By name of the resource.
        kinds: The cluster's kinds of resource.
    """
    return {kind: each for kind, each in amounts.items() if kind in kinds.names}


def events_of(message: Message, kinds: Kinds) -> list[ev.Event]:
    """What a Core says of its runs and results; nothing where the message is not for the allocator.

    Args:
        message: Of a Core.
        kinds: The cluster's kinds of resource.
    """
    name = str(message.job)
    match message:
        case Wants(_, request, demand, chance, seconds):
            return [ev.Asked(name, request, demand, chance, seconds)]
        case Drops(_, request):
            return [ev.Withdrawn(request), ev.Ended(request)]
        case Runs(_, request, demand):
            return [ev.Adopted(name, request, known_amounts(demand, kinds))]
        case Gone(_, request):
            return [ev.Ended(request)]
        case Learned(_, value, took, demand, chance):
            return [ev.Told(name, value, took, known_amounts(demand, kinds), chance)]
    return []


def parts_of(message: Message) -> Iterable[Message]:
    """The messages that a message is made of, in their order."""
    return message.messages if isinstance(message, Several) else (message,)


def node_events(known: Capacities, found: Capacities, requests: Iterable[Request], kinds: Kinds) -> list[ev.Event]:
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
    events: list[ev.Event] = [ev.NodeLost(name) for name in lost]
    for name, capacity in found.items():
        if known.get(name) != capacity:
            events.append(ev.NodeJoined(name, known_amounts(capacity, kinds)))
    events += [
        ev.Adopted(request.job.view.job, request.id, kinds.mapping(request.demand))
        for request in requests
        if request.node in lost
    ]
    return events
