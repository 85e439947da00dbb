"""An offer: what a provider sells, and how it bills."""

from __future__ import annotations

import fnmatch
import functools
import math
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NANO = 1_000_000_000
"""Nano-dollars in a dollar: money is added up in whole nano-dollars, so that no cent is lost to rounding."""


DISK = "disk_gib"
"""The fact of an offer that says how much disk one of its machines has for tasks, in GiB."""


def round_money(usd: float) -> float:
    """Round an amount of money to the nano-dollar."""
    return round(usd * NANO) / NANO


@dataclass(frozen=True, slots=True)
class Offer:
    """A priced choice of machines: so many nodes of one instance type, of one provider, in one region.

    Attributes:
        provider: ``aws``, ``gcp``, ``azure``, ``local``, ... as the catalogue is named.
        instance_type: The provider's own name for it.
        vcpu: Virtual CPUs of one node; a part of one is allowed.
        memory_gib: Memory of one node, in GiB.
        price_per_hour: USD per node and hour.
        region: The provider's region, or empty.
        category: ``general``, ``compute``, ``memory``, ``storage``, ``accelerated`` or ``burstable``.
        family: The provider's family (``c7i``), or empty.
        arch: ``x86_64``, ``arm64``, or empty where unknown.
        gpus: Accelerators of one node.
        spot: True for capacity that may be taken back.
        nodes: How many machines.
        price_date: ISO date on which the price was read, or empty.
        source: Where the price is from.
        facts: Further facts by name; numbers become features of the model.
        interruptions_per_hour: Times per hour that a spot machine is taken back, on average, one node; None where
            nobody knows.
    """

    provider: str
    instance_type: str
    vcpu: float
    memory_gib: float
    price_per_hour: float
    region: str = ""
    category: str = "general"
    family: str = ""
    arch: str = ""
    gpus: int = 0
    spot: bool = False
    nodes: int = 1
    price_date: str = ""
    source: str = ""
    facts: Mapping[str, float | str] = field(default_factory=dict)
    interruptions_per_hour: float | None = None

    @property
    def hourly(self) -> float:
        """USD per hour for all nodes together."""
        return self.price_per_hour * self.nodes

    @property
    def key(self) -> str:
        """Key that two offers of the same machines share, whatever their price today."""
        kind = "/spot" if self.spot else ""
        return f"{self.provider}/{self.region}/{self.instance_type}{kind}x{self.nodes}"

    def interruptions(self, checkpoint_seconds: float | None = None) -> Interruptions | None:
        """The interruptions of a run on these machines; None on demand, and where the rate is unknown or zero.

        Args:
            checkpoint_seconds: Seconds of work between two checkpoints, or None where an interrupted run begins anew.
        """
        if not self.spot or not self.interruptions_per_hour:
            return None
        return Interruptions(self.interruptions_per_hour * self.nodes, checkpoint_seconds)

    def times(self, nodes: int) -> Offer:
        """The same offer for ``nodes`` machines."""
        if nodes == self.nodes:
            return self
        # `replace` takes three times as long, and large spaces have hundreds of thousands.
        return Offer(
            self.provider, self.instance_type, self.vcpu, self.memory_gib, self.price_per_hour, self.region,
            self.category, self.family, self.arch, self.gpus, self.spot, nodes, self.price_date, self.source,
            self.facts, self.interruptions_per_hour,
        )  # fmt: skip

    def attribute(self, name: str) -> float | str | None:
        """A fact by the name that YAML, filters and constraints use (``vcpu``, ``memory``, ``price``, ...)."""
        name = ALIASES.get(name, name)
        if name in _ATTRIBUTES:
            value: float | str = getattr(self, name)
            return value
        return self.facts.get(name)

    @property
    def scores(self) -> dict[str, float]:
        """The facts that say how quick a node is: figures of benchmarks, of which more is better."""
        return {
            name: float(value)
            for name, value in self.facts.items()
            if isinstance(value, int | float) and value > 0 and is_score(name)
        }

    def to_json(self) -> dict[str, Any]:
        """A JSON-able document."""
        return {**asdict(self), "facts": dict(self.facts)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Offer:
        """The offer of a document that `to_json` made; keys of newer versions are ignored."""
        return cls(**{k: v for k, v in document.items() if k in cls.__dataclass_fields__})


_BENCHMARKS = re.compile(
    r"core_?mark|stress_?ng|geek_?bench|(^|_)gb[3-9]_|pass_?mark|spec_?(cpu|int|fp|rate|speed)|unix_?bench|linpack"
    r"|(^|_)hpl(_|$)|sysbench|mem(ory)?_?bandwidth|bw_mem|mem_?bench|(^|_)stream(_|$)|openssl|static_web|llm_speed"
    r"|(^|_)score$"
)
_NO_SCORES = re.compile(
    r"time|elapsed|latency|seconds|duration|(^|_)(ms|us|ns)$|threads|cores|version|date|vcpu|(^|_)ratio"
)


@functools.lru_cache(maxsize=4096)
def is_score(name: str) -> bool:
    """True for the name of a fact that says how quick a machine is: a benchmark's, or one that ends in ``score``."""
    return bool(_BENCHMARKS.search(name.lower())) and not _NO_SCORES.search(name.lower())


_ATTRIBUTES = frozenset(Offer.__dataclass_fields__) - {"facts"}
ALIASES = {"memory": "memory_gib", "price": "price_per_hour", "type": "instance_type", "gpu": "gpus"}
"""Names of attributes in YAML, filters and constraints, and those of the fields of `Offer`."""


class OfferColumns(Sequence[Offer]):
    """Offers that are kept as columns, each key once: one is made when it is looked at."""

    @abstractmethod
    def attributes(self, name: str) -> list[float | str | None]:
        """A fact of each offer, as `Offer.attribute` has it."""

    @abstractmethod
    def fact_names(self) -> set[str]:
        """The names of all facts of these offers."""

    @abstractmethod
    def coded(self, name: str) -> tuple[list[float | str | None], NDArray[np.intp]]:
        """Values of a fact, and the place of each offer's among them: of few machine types there are few values."""

    @abstractmethod
    def keys(self) -> list[str]:
        """The key of each offer, as `Offer.key` has it."""

    @abstractmethod
    def key_ranks(self) -> NDArray[np.int64]:
        """Numbers that are in the order of the keys."""

    @abstractmethod
    def take(self, places: Iterable[int]) -> OfferColumns:
        """The offers at some places, in that order."""

    @abstractmethod
    def cheapest_first(self) -> OfferColumns:
        """The same offers by price, and by `Offer.key` where it is the same."""

    @abstractmethod
    def with_interruptions(self, per_hour: float) -> OfferColumns:
        """The same offers, where spot machines whose rate is not known are taken back so many times per hour."""


def attributes_of(offers: Iterable[Offer], name: str) -> list[float | str | None]:
    """A fact of many offers, as `Offer.attribute` has it of each.

    Args:
        offers: The offers.
        name: The fact's name.
    """
    if isinstance(offers, OfferColumns):
        return offers.attributes(name)
    name = ALIASES.get(name, name)
    if name in _ATTRIBUTES:
        return list(map(attrgetter(name), offers))
    return [offer.facts.get(name) for offer in offers]


def keys_of(offers: Iterable[Offer]) -> list[str]:
    """The key of each of some offers, as `Offer.key` has it."""
    return offers.keys() if isinstance(offers, OfferColumns) else [offer.key for offer in offers]


def fact_names_of(offers: Iterable[Offer]) -> set[str]:
    """The names of all facts of some offers."""
    return offers.fact_names() if isinstance(offers, OfferColumns) else {name for one in offers for name in one.facts}


@dataclass(frozen=True, slots=True)
class MachineParameters:
    """The parameters of a space that choose machines.

    Attributes:
        names: All of them, in the order of the space.
        counts: Those that are numbers of machines.
    """

    names: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()

    def said_by(self, offer: Offer, name: str, value: object) -> bool:
        """True where the offer's type, or its number of machines, is the value of a parameter."""
        if name in self.counts:
            return value == offer.nodes
        text = str(value).removesuffix("/spot")
        return name in self.names and (text == offer.instance_type or text.endswith(f"/{offer.instance_type}"))


@dataclass(frozen=True, slots=True)
class Billing:
    """Rule by which a provider turns time into money.

    Attributes:
        setup_seconds: Seconds billed for each run before the job starts (boot and installation).
        minimum_seconds: The least that is billed for a run.
        granularity_seconds: Time is rounded up to a multiple of this; it must be above zero.
    """

    setup_seconds: float = 0.0
    minimum_seconds: float = 0.0
    granularity_seconds: float = 1.0

    def billed_seconds(self, runtime: float) -> float:
        """Seconds that a run of ``runtime`` seconds is billed for."""
        total = max(self.setup_seconds + max(0.0, runtime), self.minimum_seconds)
        # Without the tolerance, 0.1 + 0.2 seconds at a granularity of 0.1 would be billed as 0.4.
        units = total / self.granularity_seconds
        units = math.ceil(units - min(0.5, 1e-9 * max(1.0, units)))
        return units * self.granularity_seconds

    @property
    def shortest_billed(self) -> float:
        """The least seconds that a run is billed for, however short it is."""
        return self.billed_seconds(0.0) or self.granularity_seconds

    def cost(self, runtime: float, hourly: float) -> float:
        """USD that a run costs.

        Args:
            runtime: Seconds that the job ran.
            hourly: USD per hour for all nodes together.
        """
        return round_money(self.billed_seconds(runtime) / 3600.0 * hourly)

    def further_cost(self, before: float, seconds: float, hourly: float) -> float:
        """USD of further seconds of machines that have been billed for some already.

        Rounding and the least that is billed count once for the machines, not for each part of their time.

        Args:
            before: Seconds that they have been billed for, set-up included.
            seconds: Further seconds.
            hourly: USD per hour for all nodes together.
        """
        plain = replace(self, setup_seconds=0.0)
        return round_money(plain.cost(before + max(0.0, seconds), hourly) - plain.cost(before, hourly))

    def costs(self, runtimes: Iterable[float], hourly: Iterable[float]) -> list[float]:
        """USD of several runs, each with its own seconds and USD per hour; see `cost`."""
        return [self.cost(float(seconds), float(rate)) for seconds, rate in zip(runtimes, hourly, strict=True)]

    def longest_run(self, money: float, hourly: float) -> float:
        """The longest run, in seconds, that costs at most ``money`` USD; below zero if none does."""
        if hourly <= 0 or money == math.inf:
            return math.inf
        unit = self.granularity_seconds / 3600.0 * hourly
        # Amounts are rounded to the nano-dollar: what was computed as the price of n units must pay n units.
        units = math.floor(money / unit + max(1e-9, min(0.5, 0.5 / NANO / unit)))
        while units > 0 and round_money(units * unit) > round_money(money):
            units -= 1
        billed = units * self.granularity_seconds
        return billed - self.setup_seconds if billed >= max(self.minimum_seconds, self.setup_seconds) else -1.0

    def unit_cost(self, hourly: float) -> float:
        """USD of the smallest billing unit."""
        return round_money(self.granularity_seconds / 3600.0 * hourly)


_MOST_EXPECTED_SECONDS = 1e12
"""What is expected to take longer does not end in practice; exponentials of it would overflow."""


@dataclass(frozen=True, slots=True)
class Interruptions:
    """Interruptions of a run on machines that may be taken back, and the time that they are expected to add.

    They come at a constant rate, independent of each other (a Poisson process), also while machines are set up. An
    interrupted run gets other machines, which are set up anew, and goes on from its last checkpoint, or begins anew
    where there is none. All seconds are paid for.

    Attributes:
        per_hour: Interruptions per hour of all machines of the run together: a run that loses one loses all.
        checkpoint_seconds: Seconds of work between two checkpoints, or None where an interrupted run begins anew.
    """

    per_hour: float
    checkpoint_seconds: float | None = None

    @property
    def _rate(self) -> float:
        return self.per_hour / 3600.0

    def _part(self, work: float, setup: float) -> float:
        """Expected seconds of a part of the work that begins anew when it is interrupted: e^λs (e^λw - 1) / λ."""
        if self._rate * (setup + work) > 600.0:
            return math.inf
        return math.exp(self._rate * setup) * math.expm1(self._rate * work) / self._rate

    def expected_runtime(self, work: float, setup: float = 0.0) -> float:
        """Seconds from the first start of the program to its end, on average; infinite for what never ends.

        Args:
            work: Seconds that the run takes without interruptions.
            setup: Seconds that new machines need before the program starts.
        """
        length = self.checkpoint_seconds
        if length is None or length >= work:
            found = self._part(work, setup)
        else:
            whole = math.floor(work / length)
            found = whole * self._part(length, setup) + self._part(work - whole * length, setup)
        return found if found <= _MOST_EXPECTED_SECONDS else math.inf

    def expected_seconds(self, work: float, setup: float = 0.0) -> float:
        """Seconds for which machines are paid, set-up of all of them included, on average.

        Args:
            work: Seconds that the run takes without interruptions.
            setup: Seconds that new machines need before the program starts.
        """
        return self._part(setup, 0.0) + self.expected_runtime(work, setup)

    def work_within(self, seconds: float, setup: float = 0.0) -> float:
        """Seconds of work whose expected run time is ``seconds``: the inverse of `expected_runtime`.

        Args:
            seconds: The expected run time.
            setup: Seconds that new machines need before the program starts.
        """
        length, done = self.checkpoint_seconds, 0.0
        if not math.isfinite(seconds):
            return seconds
        if length is not None and seconds > (each := self._part(length, setup)):
            whole = math.floor(seconds / each)
            done, seconds = whole * length, seconds - whole * each
        return done + math.log1p(self._rate * max(0.0, seconds) * math.exp(-self._rate * setup)) / self._rate


HOURS_PER_MONTH = 730.0

BAND_SHARES = {"<5%": 0.025, "5-10%": 0.075, "10-15%": 0.125, "15-20%": 0.175, ">20%": 0.25}
"""The middle of the bands in which Amazon gives the share of machines that are taken back within a month. The last has
no end: 25 % is taken for it."""


def hourly_interruptions(monthly_share: float) -> float:
    """Interruptions per hour of a machine, of the share that is interrupted within a month.

    Amazon's Spot Instance Advisor gives the "frequency of interruption": the share of spot capacity that was reclaimed
    during the last month, in bands (below 5 %, 5-10 %, 10-15 %, 15-20 %, above 20 %). At a constant rate λ a machine is
    interrupted within a month with probability 1 - e^-λ730.

    Args:
        monthly_share: The share, from 0 to below 1.
    """
    return -math.log1p(-monthly_share) / HOURS_PER_MONTH


def with_interruptions(offers: Sequence[Offer], per_hour: float | None) -> Sequence[Offer]:
    """The same offers; spot machines whose catalogue does not know how often they are taken back get a rate.

    Args:
        offers: The offers.
        per_hour: Interruptions per hour of one machine, or None where nobody knows.
    """
    if per_hour is None:
        return offers
    if isinstance(offers, OfferColumns):
        return offers.with_interruptions(per_hour)
    return [
        replace(offer, interruptions_per_hour=per_hour)
        if offer.spot and offer.interruptions_per_hour is None
        else offer
        for offer in offers
    ]


def interruptions_note(offers: Iterable[Offer]) -> str:
    """A sentence on what cost and run time of spot machines count, or an empty text where there are none.

    Args:
        offers: Machines whose figures are shown.
    """
    spot = [offer for offer in offers if offer.spot]
    unknown = list(dict.fromkeys(one.instance_type for one in spot if one.interruptions_per_hour is None))
    if unknown:
        return (
            f"How often spot machines are taken back is not known ({', '.join(unknown[:3])}): their cost and run time "
            "count no interruptions; deploy.interruptions_per_hour says it."
        )
    return "Cost and run time of spot machines are those expected with interruptions." if spot else ""


_OPEN = (None, None)


@dataclass(frozen=True, slots=True)
class OfferQuery:
    """Bounds on offers; an empty tuple and None do not restrict.

    Attributes:
        provider: Names of catalogues to ask.
        region: Regions.
        types: Instance types, with ``*`` and ``?`` as wildcards.
        category: Categories.
        family: Families.
        arch: Processor architectures.
        vcpu: Least and greatest vCPU of a node.
        memory: Least and greatest memory of a node, GiB.
        price: Least and greatest USD per node and hour.
        gpus: Least and greatest number of accelerators of a node; without it, offers with accelerators are left out
            unless ``types`` or ``category`` names them.
        spot: True for spot offers only, False for on demand only, None for both.
        limit: Keep this many: as many of each provider, different types before further regions, the cheapest first.
    """

    provider: tuple[str, ...] = ()
    region: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    vcpu: tuple[float | None, float | None] = (None, None)
    memory: tuple[float | None, float | None] = (None, None)
    price: tuple[float | None, float | None] = (None, None)
    gpus: tuple[float | None, float | None] = (None, None)
    spot: bool | None = False
    limit: int | None = None

    def matches(self, offer: Offer) -> bool:
        """True when the offer is within all bounds."""
        # One condition after the other: a catalogue asks this of thousands of machine types.
        if self.spot is not None and offer.spot != self.spot:
            return False
        if self.region and offer.region not in self.region:
            return False
        if self.provider and offer.provider not in self.provider:
            return False
        if self.category and offer.category not in self.category:
            return False
        if self.family and offer.family not in self.family:
            return False
        if self.arch and offer.arch not in self.arch:
            return False
        if self.types and not any(fnmatch.fnmatchcase(offer.instance_type, pattern) for pattern in self.types):
            return False
        if self.gpus == _OPEN and offer.gpus and not (self.types or "accelerated" in self.category):
            return False
        return (
            _within(offer.vcpu, self.vcpu)
            and _within(offer.memory_gib, self.memory)
            and _within(offer.price_per_hour, self.price)
            and _within(offer.gpus, self.gpus)
        )


def _within(value: float, bounds: tuple[float | None, float | None]) -> bool:
    low, high = bounds
    return (low is None or value >= low) and (high is None or value <= high)


def _memory(gib: float) -> str:
    """GiB in the unit in which it is short, which is that of the user: 59.6046 is what 64GB come to."""
    for unit, size in (("GiB", 2**30), ("GB", 10**9), ("MiB", 2**20), ("MB", 10**6)):
        number = gib * 2**30 / size
        shown = round(number, 2)
        # What was written has been cut to whole bytes.
        if shown >= 1 and abs(number - shown) * size < 1:
            return f"{shown:.10g}{unit}"
    return f"{gib:.3g}GiB"


def describe_query(query: OfferQuery) -> str:
    """A query as the user would write it."""
    words = []
    for one in fields(query):
        value = getattr(query, one.name)
        if one.name == "spot":
            words += [] if value is False else [f"spot={'any' if value is None else 'true'}"]
        elif isinstance(value, tuple) and one.name in ("vcpu", "memory", "price", "gpus"):
            written = _memory if one.name == "memory" else "{:g}".format
            low, high = ("" if end is None else written(end) for end in value)
            words += [f"{one.name}={low if low == high else f'{low}..{high}'}"] if low or high else []
        elif isinstance(value, tuple):
            words += [f"{one.name}={','.join(value)}"] if value else []
        elif value is not None:
            words.append(f"{one.name}={value}")
    return " ".join(words) or "the query"
