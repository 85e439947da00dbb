"""Reads the machines of a workflow from a YAML file, or makes a set that has a name."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from tradewind.errors import InputError, WorkflowError
from tradewind.problem import Billing, Offer, OfferQuery
from tradewind.utils.units import parse_duration, parse_memory, parse_money
from tradewind.utils.yaml_lines import YamlMapping
from tradewind.workflow.platform import Platform, Vm, disk_bytes, gpus_for_tasks
from tradewind.workflow.readers.yaml_lines import YamlValueReader, finite

_KEYS = ("vms", "storage", "bandwidth", "latency", "billing")
_VM_KEYS = ("kind", "offer", "name", "count", "speed", "slots", "price", "boot", "memory", "gpus", "disk")
_BILLING = {"setup": "setup_seconds", "minimum": "minimum_seconds", "granularity": "granularity_seconds"}

_MOST_SLOTS = 1_000_000
"""Most slots of one machine; the simulators count in 32 bits."""

_MOST_MACHINES = 100_000

PAPER3 = {8: (0, 1), 16: (8, 1), 32: (8, 3), 64: (8, 7), 128: (8, 15)}
"""Machines m3.medium and m3.2xlarge in the sets of paper 3, by their vCPUs."""


def paper3(vcpu: int) -> Platform:
    """Make a machine set of paper 3: each machine runs one task at a time.

    Files come from a shared file system at 15 MB/s. Prices are those of us-east-1 on demand.

    Args:
        vcpu: 8, 16, 32, 64 or 128.

    Raises:
        WorkflowError: There is no such set.
    """
    if vcpu not in PAPER3:
        raise WorkflowError(f"paper3 has no set of {vcpu} vCPU", hint=f"there are {', '.join(map(str, PAPER3))}")
    slow, fast = PAPER3[vcpu]
    vms = [Vm(f"m3.medium-{i + 1}", 1.0, 1, 0.067, "m3.medium") for i in range(slow)]
    vms += [Vm(f"m3.2xlarge-{i + 1}", 4.156, 1, 0.532, "m3.2xlarge") for i in range(fast)]
    return Platform(tuple(vms), "shared", 15.0)


def read_platform_yaml(document: YamlMapping, file: str) -> Platform:
    """Read the machines of a document of kinds and counts.

    A document is such as::

        vms:
          - {kind: m3.medium, count: 8, price: $0.067/h}
          - {kind: m3.2xlarge, count: 1, speed: 4.156, slots: 8, price: $0.532/h, boot: 30s, memory: 30GiB}
          - {offer: "aws:us-east-1:c7i.large", count: 2}
        storage: shared      # none, shared or local
        bandwidth: 15        # MB/s
        billing: {minimum: 60s, granularity: 1s}

    Args:
        document: What `tradewind.workflow.readers.yaml_lines.read_yaml_lines` gives.
        file: Its name, for messages.

    Raises:
        WorkflowError: Something in it is wrong; with the line.
    """
    values = YamlValueReader(file)
    values.known(document, _KEYS, "a file of machines")
    rows = values.items(document, "vms")
    vms: list[Vm] = []
    taken: dict[str, int] = {}
    for place, given in enumerate(rows):
        line = rows.lines[place] if rows.lines else None
        if not isinstance(given, YamlMapping):
            raise values.fail("an item of 'vms' is no mapping", line, "write - {kind: small, count: 2, speed: 1}")
        vms += _machines(values, given, taken)
    if not vms:
        raise values.fail("it has no machines under 'vms'", document.at("vms"), "write vms: [{kind: small, count: 2}]")
    storage = values.text(document, "storage", "none")
    if storage not in ("none", "shared", "local"):
        raise values.fail(f"'storage' is {storage!r}", document.at("storage"), "write none, shared or local")
    try:
        return Platform(
            tuple(vms),
            storage,  # type: ignore[arg-type]  # one of the three, as was just seen
            values.parsed(document, "bandwidth", 15.0, _rate, "the bandwidth", "a number of MB/s"),
            values.parsed(document, "latency", 0.0, _seconds, "the latency", "a time"),
            _billing(values, document),
        )
    except WorkflowError as error:
        raise error if error.file else values.fail(error.message, document.at("vms"), error.hint) from None


def _machines(values: YamlValueReader, given: YamlMapping, taken: dict[str, int]) -> list[Vm]:
    """The machines of one row."""
    values.known(given, _VM_KEYS, "a machine")
    kind = values.text(given, "kind") or values.text(given, "name")
    slots, price, memory, gpus = 1, 0.0, 0, 0
    disk: int | None = None
    offer: Offer | None = None
    if given.get("offer") is not None:
        offer = _offer(values, given)
        kind, slots, price = kind or offer.instance_type, max(1, int(offer.vcpu)), offer.price_per_hour
        memory = int(offer.memory_gib * 2**30)
        gpus, disk = gpus_for_tasks(offer), disk_bytes(offer)
    if not kind:
        raise values.fail("a machine has no kind", given.line, "write kind: small, or offer: provider:region:type")
    prefix = values.text(given, "name") or kind
    count = values.count(given, "count", 1, f"the count of {prefix!r}")
    if not 0 <= count <= _MOST_MACHINES:
        hint = f"it is 0 to {_MOST_MACHINES:,}"
        raise values.fail(f"the count of {prefix!r} is {count}", given.at("count"), hint)
    vm = Vm(
        prefix,
        values.number(given, "speed", 1.0, f"the speed of {prefix!r}"),
        values.count(given, "slots", slots, f"the slots of {prefix!r}"),
        values.parsed(given, "price", price, _price, f"the price of {prefix!r}", "a price per hour"),
        kind,
        values.parsed(given, "boot", 0.0, _seconds, f"the boot time of {prefix!r}", "a time"),
    )
    memory = values.parsed(given, "memory", memory, parse_memory, f"the memory of {prefix!r}", "an amount of memory")
    if given.get("memory") is not None and memory <= 0:
        raise values.fail(f"the memory of {prefix!r} is {given.get('memory')}", given.at("memory"), "it is above 0")
    if not 0 < vm.speed < float("inf"):
        raise values.fail(f"the speed of {prefix!r} is {vm.speed:g}", given.at("speed"), "it is above 0")
    if vm.slots < 1:
        raise values.fail(f"{prefix!r} has {vm.slots} slots", given.at("slots"), "it has 1 or more")
    if vm.slots > _MOST_SLOTS:
        raise values.fail(f"{prefix!r} has {vm.slots} slots", given.at("slots"), f"it has {_MOST_SLOTS:,} at most")
    gpus = values.count(given, "gpus", gpus, f"the GPUs of {prefix!r}")
    if not 0 <= gpus <= _MOST_SLOTS:
        raise values.fail(f"{prefix!r} has {gpus} GPUs", given.at("gpus"), f"it has 0 to {_MOST_SLOTS:,}")
    if given.get("disk") is not None:
        disk = values.parsed(given, "disk", 0, parse_memory, f"the disk of {prefix!r}", "an amount of disk")
    first = taken.get(prefix, 0)
    taken[prefix] = first + count
    vm = replace(vm, memory_bytes=memory or None, offer=offer, gpus=gpus, disk_bytes=disk)
    return [replace(vm, name=f"{prefix}-{first + i + 1}") for i in range(count)]


def _offer(values: YamlValueReader, given: YamlMapping) -> Offer:
    """The offer of ``provider:region:type``; either of the first two may be left out."""
    from tradewind.selector.offer_search import find_offers
    from tradewind.utils.paths import data_folder

    text = values.text(given, "offer")
    words = text.split(":")
    if len(words) > 3 or not words[-1]:
        raise values.fail(f"{text!r} is no offer", given.at("offer"), "write provider:region:type")
    provider, region = [*words[:-1], "", ""][:2]
    query = OfferQuery(
        provider=(provider,) if provider else (), region=(region,) if region else (), types=(words[-1],), limit=1
    )
    found = find_offers(query, data_folder())
    if not found:
        hint = "tradewind offers lists what the catalogues sell"
        raise values.fail(f"no catalogue sells {text!r}", given.at("offer"), hint)
    return found[0]


def _billing(values: YamlValueReader, document: YamlMapping) -> Billing:
    given = values.fields(document, "billing")
    values.known(given, tuple(_BILLING), "billing")
    found: dict[str, float] = {}
    for key, attribute in _BILLING.items():
        if given.get(key) is not None:
            found[attribute] = values.parsed(given, key, 0.0, _seconds, f"billing.{key}", "a time")
    if found.get("granularity_seconds", 1.0) <= 0:
        raise values.fail("billing.granularity is 0", given.at("granularity"), "it is above 0, such as 1s")
    return Billing(**found)


def _seconds(value: Any) -> float:
    return parse_duration(value)


def _price(value: Any) -> float:
    text = re.sub(r"\s*(/|per)\s*(h|hr|hour)$", "", str(value).strip())
    return parse_money(text)


def _rate(value: Any) -> float:
    number = float(re.sub(r"\s*MB/s$", "", str(value).strip()))
    if not 0 < number < float("inf"):
        raise InputError(f"{value!r} is no bandwidth", hint="it is a number of MB/s above 0")
    return number


def to_document(platform: Platform) -> dict[str, Any]:
    """Write machines as a document that `from_document` reads."""
    billing = platform.billing
    return {
        "vms": [
            {
                "name": vm.name,
                "kind": vm.kind,
                "speed": vm.speed,
                "slots": vm.slots,
                "price_per_hour": vm.price_per_hour,
                "boot_seconds": vm.boot_seconds,
                **({} if vm.memory_bytes is None else {"memory_bytes": vm.memory_bytes}),
                **({"gpus": vm.gpus} if vm.gpus else {}),
                **({} if vm.disk_bytes is None else {"disk_bytes": vm.disk_bytes}),
                **({} if vm.offer is None else {"offer": vm.offer.to_json()}),
            }
            for vm in platform.vms
        ],
        "storage": platform.storage,
        "bandwidth": platform.bandwidth,
        "latency": platform.latency,
        "billing": {key: getattr(billing, attribute) for key, attribute in _BILLING.items()},
    }


def from_document(document: Any, file: str) -> Platform:
    """Read the machines of a document of `to_document`.

    Raises:
        WorkflowError: The document is no such one.
    """
    try:
        vms = [_machine(row) for row in document["vms"]]
        billed = {key: finite(document["billing"][key], f"billing.{key}") for key in _BILLING}
        if not billed["granularity"]:
            raise ValueError("billing.granularity is 0, not above it")
        billing = Billing(**{attribute: billed[key] for key, attribute in _BILLING.items()})
        storage = document["storage"]
        if storage not in ("none", "shared", "local"):
            raise WorkflowError(f"its storage is {storage!r}", file=file, hint="it is none, shared or local")
        bandwidth, latency = (finite(document[key], f"the {key}") for key in ("bandwidth", "latency"))
        return Platform(tuple(vms), storage, bandwidth, latency, billing)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WorkflowError(f"its machines are not as they should be: {error}", file=file) from None


def _machine(row: Any) -> Vm:
    """The machine of one row of `to_document`.

    Raises:
        ValueError: A figure of it is no number.
    """
    name = str(row["name"])
    memory, offer, disk = row.get("memory_bytes"), row.get("offer"), row.get("disk_bytes")
    return Vm(
        name,
        finite(row["speed"], f"the speed of {name!r}"),
        _slots(row["slots"], name),
        finite(row["price_per_hour"], f"the price of {name!r}"),
        str(row["kind"]),
        finite(row["boot_seconds"], f"the boot time of {name!r}"),
        None if memory is None else int(finite(memory, f"the memory of {name!r}")),
        None if offer is None else Offer.from_json(offer),
        int(finite(row.get("gpus", 0), f"the GPUs of {name!r}")),
        None if disk is None else int(finite(disk, f"the disk of {name!r}")),
    )


def _slots(value: Any, name: str) -> int:
    found = finite(value, f"the number of slots of {name!r}")
    if found != int(found) or not 1 <= found <= _MOST_SLOTS:
        raise ValueError(f"the number of slots of {name!r} is {value!r}, not a whole number from 1 to {_MOST_SLOTS:,}")
    return int(found)
