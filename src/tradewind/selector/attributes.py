"""Attributes that configurations ask for, and offers as columns to compare them with; the base of most selectors."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import InputError, NoOfferError, SpecError
from tradewind.plugins import Settings
from tradewind.problem import Codes, Configuration, Instance, Nodes, Offer, Space, Value
from tradewind.problem.columns.named_offers import NamedOffers
from tradewind.problem.columns.resolved_offers import ResolvedOffers
from tradewind.problem.columns.row_numbers import RowNumbers
from tradewind.problem.offer import OfferColumns, attributes_of, fact_names_of, keys_of
from tradewind.problem.problem import resolve_each
from tradewind.selector.base import Selector
from tradewind.selector.canonical_words import canonical_value
from tradewind.utils.suggestions import did_you_mean
from tradewind.utils.units import parse_memory

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]
WantedAttributes = Mapping[str, Value]
"""Wanted values by attribute."""

_KEPT_DISTANCES = 1024
"""Columns of distances that are kept: a search asks for the same few values in all combinations."""

_UNKNOWN = -2
"""The place of an offer that was not looked for yet."""

_KEPT_ANSWERS = 100_000
"""Answers that are kept: of a range of real numbers each proposal is a new question."""

_CANONICAL = {"memory_gib": "memory", "price_per_hour": "price", "instance_type": "type", "gpu": "gpus"}


def canonical_attribute(attribute: str) -> str:
    """Translate the names of an attribute that has several into one (``memory_gib`` to ``memory``)."""
    return _CANONICAL.get(attribute, attribute)


@dataclass(frozen=True, slots=True)
class OfferColumn:
    """One attribute over all offers.

    Attributes:
        numbers: Values of the offers, NaN where an offer has none; None for words.
        words: Values of the offers in lower case, empty where an offer has none; None for numbers.
    """

    numbers: Numbers | None
    words: NDArray[np.object_] | None

    @property
    def shift(self) -> float:
        """Amount added before the logarithm: 1 where zero is among the values (no accelerator), else 0."""
        assert self.numbers is not None
        return 1.0 if np.nanmin(self.numbers) <= 0 else 0.0


class OfferTable:
    """Offers as columns, cheapest first.

    Args:
        offers: Offers of one node, by their keys in any order, or as columns.

    Attributes:
        offers: The offers, by price and then by key.
    """

    def __init__(self, offers: Mapping[str, Offer] | OfferColumns) -> None:
        self.offers: Sequence[Offer]
        if isinstance(offers, OfferColumns):
            self.offers = offers.cheapest_first()
        else:
            order = sorted((offer.price_per_hour, key) for key, offer in offers.items())
            self.offers = tuple(offers[key] for _, key in order)
        self._columns: dict[str, OfferColumn] = {}
        self._distances: dict[tuple[str, Value], Numbers] = {}

    @cached_property
    def _places(self) -> dict[str, int]:
        return {key: place for place, key in enumerate(keys_of(self.offers))}

    @cached_property
    def everything(self) -> Mask:
        """A mask of all offers."""
        return np.ones(len(self.offers), dtype=bool)

    def place(self, offer: Offer) -> int:
        """The place of the offer of the table that has another one's key; -1 where there is none."""
        return self._places.get(offer.key, -1)

    def known(self, offer: Offer) -> Offer:
        """The offer of the table that has another one's key."""
        return self.offers[self._places[offer.key]]

    def only(self, offer: Offer) -> Mask:
        """A mask of one offer."""
        mask = ~self.everything
        mask[self._places[offer.key]] = True
        return mask

    def column(self, attribute: str) -> OfferColumn:
        """One attribute of all offers."""
        if attribute not in self._columns:
            self._columns[attribute] = _column(attribute, attributes_of(self.offers, attribute))
        return self._columns[attribute]

    def knows(self, attribute: str) -> bool:
        """True when an offer has such an attribute."""
        return any(value is not None for value in attributes_of(self.offers, attribute))

    def equal(self, attribute: str, value: Value) -> Mask:
        """Mask of the offers whose attribute has a value: numbers up to rounding, words in any case and spelling."""
        column = self.column(attribute)
        if column.numbers is None:
            assert column.words is not None
            same: Mask = column.words == canonical_value(attribute, value)
            return same
        number = as_number(attribute, value)
        if number is None:
            return ~self.everything
        return np.isclose(column.numbers, number, rtol=1e-9, atol=1e-12)

    def at_least(self, attribute: str, value: Value) -> Mask:
        """Mask of the offers whose attribute has at least a value; for words, that value."""
        column = self.column(attribute)
        number = as_number(attribute, value)
        if column.numbers is None or number is None:
            return self.equal(attribute, value)
        enough: Mask = column.numbers >= number - 1e-9 * abs(number)
        return enough

    def at_most(self, attribute: str, value: Value) -> Mask:
        """Mask of the offers whose attribute has at most a value; for words, that value."""
        column = self.column(attribute)
        number = as_number(attribute, value)
        if column.numbers is None or number is None:
            return self.equal(attribute, value)
        enough: Mask = column.numbers <= number + 1e-9 * abs(number)
        return enough

    def distance(self, attribute: str, value: Value) -> Numbers:
        """Distance of each offer from a value: doublings for numbers, 0 or 1 for words; infinite where unknown."""
        if (attribute, value) not in self._distances:
            if len(self._distances) >= _KEPT_DISTANCES:
                self._distances.clear()
            self._distances[attribute, value] = self._distance(attribute, value)
        return self._distances[attribute, value]

    def _distance(self, attribute: str, value: Value) -> Numbers:
        column = self.column(attribute)
        number = as_number(attribute, value)
        if column.numbers is None or number is None:
            return np.where(self.equal(attribute, value), 0.0, 1.0)
        shift = column.shift if number > 0 else 1.0
        if number + shift <= 0:
            raise NoOfferError(f"no offer has {attribute} {value}", hint="it must be zero or more")
        with np.errstate(divide="ignore", invalid="ignore"):
            away = np.abs(np.log2(column.numbers + shift) - math.log2(number + shift))
        # Rounding makes equally far offers tie on every machine, whatever its logarithm's last bit.
        return np.where(np.isnan(away), np.inf, np.round(away, 9))


def _column(attribute: str, values: Sequence[float | str | None]) -> OfferColumn:
    if any(isinstance(value, str) for value in values) or all(value is None for value in values):
        said = {value: "" if value is None else canonical_value(attribute, value) for value in set(values)}
        return OfferColumn(None, np.array([said[value] for value in values], dtype=object))
    return OfferColumn(np.array([math.nan if value is None else float(value) for value in values]), None)


def as_number(attribute: str, value: Value) -> float | None:
    """Read a wanted value as a number, where it is one; memory may be written with its unit."""
    if isinstance(value, bool | int | float):
        return float(value)
    if attribute == "memory":
        try:
            return parse_memory(value) / (1 << 30)
        except InputError:
            return None
    try:
        return float(value)
    except ValueError:
        return {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}.get(value.lower())


class AttributeSelector(Selector):
    """Compares attributes of offers with the values of parameters.

    Answers are kept: a second configuration with the same machine parameters costs a look-up.
    """

    def __init__(self, *, settings: Settings, offers: Sequence[Offer], space: Space) -> None:
        super().__init__(settings=settings, offers=offers, space=space)
        self._instances = {p.name: p for p in space.parameters if isinstance(p, Instance)}
        self._nodes = [p.name for p in space.parameters if isinstance(p, Nodes)]
        self._attributes = {
            p.name: canonical_attribute(p.attribute) for p in space.parameters if p.attribute is not None
        }
        self.table = OfferTable(self._every_offer())
        self._kept: dict[tuple[tuple[str, Value], ...], Offer | NoOfferError] = {}
        for name, attribute in self._attributes.items():
            if self.table.offers and not self.table.knows(attribute):
                raise self._unknown(f"{name}: no offer has the attribute", attribute)

    def _every_offer(self) -> Mapping[str, Offer] | OfferColumns:
        """The offers that were given, and those of the parameters that are none of these."""
        if isinstance(self.offers, OfferColumns) and all(map(self._shares, self._instances.values())):
            return self.offers
        listed = [offer for p in self._instances.values() for offer in p.offers.values()]
        # Mostly they are the same objects, whose keys are made of many words each time, and sorted by price.
        given, there = {offer.key: offer for offer in self.offers}, set(map(id, self.offers))
        others = {offer.key: offer for offer in listed if id(offer) not in there}
        return given | {key: offer for key, offer in others.items() if key not in given}

    def _shares(self, instance: Instance) -> bool:
        """True where the offers of a parameter are the columns that were given."""
        return isinstance(instance.offers, NamedOffers) and instance.offers.source is self.offers

    def _unknown(self, what: str, attribute: str) -> SpecError:
        known = {"vcpu", "memory", "price", "gpus", "provider", "region", "category", "family", "arch", "type", "spot"}
        known |= fact_names_of(self.table.offers)
        return SpecError(f"{what} {attribute!r}", hint=did_you_mean(attribute, sorted(known), "known:"))

    @abstractmethod
    def choose(self, asked: WantedAttributes, among: Mask) -> Offer | None:
        """Choose the offer of one node for the asked attributes, out of those in a mask; None where nothing will do."""

    def resolve(self, configuration: Configuration) -> Offer:
        """Find the offer for a configuration, with its number of nodes.

        Raises:
            NoOfferError: No provider sells it.
        """
        nodes = [int(configuration[name]) for name in self._nodes if name in configuration]
        if len(nodes) > 1:
            raise SpecError(f"{' and '.join(self._nodes)} both choose the number of machines", hint="keep one")
        answer = self._machine(configuration)
        return answer.times(nodes[0]) if nodes else answer

    def _machine(self, configuration: Configuration) -> Offer:
        """The offer of one node for a configuration.

        Raises:
            NoOfferError: No provider sells it.
        """
        key = tuple(
            (name, configuration[name]) for name in (*self._instances, *self._attributes) if name in configuration
        )
        if key not in self._kept:
            if len(self._kept) >= _KEPT_ANSWERS:
                self._kept.clear()
            self._kept[key] = self._answer(dict(key))
        answer = self._kept[key]
        if isinstance(answer, NoOfferError):
            raise NoOfferError(answer.message, hint=answer.hint)
        return answer

    def resolve_codes(self, space: Space, codes: Codes) -> ResolvedOffers:
        """Find the offers of many configurations: what chooses the machine type is asked once, the nodes are numbers.

        Args:
            space: The space that the codes are of.
            codes: Rows of them, shape (n, parameters).

        Raises:
            SpecError: Two parameters choose the number of machines.
        """
        counts = [i for i, name in enumerate(space.names) if name in self._nodes]
        if type(self).resolve is not AttributeSelector.resolve or ((codes[:, counts] >= 0).sum(axis=1) > 1).any():
            return resolve_each(self, (space.configuration(row) for row in codes))
        nodes = np.ones(len(codes), dtype=np.intp)
        for i in counts:
            listed = space.levels[i]
            assert listed is not None
            active = codes[:, i] >= 0
            nodes[active] = listed[codes[active, i]]
        kinds = [i for i, name in enumerate(space.names) if name in self._instances or name in self._attributes]
        _, first, which = np.unique(RowNumbers(codes[:, kinds]).numbers, return_index=True, return_inverse=True)
        return ResolvedOffers(self.table.offers, self._machine_places(space, codes[first])[which], nodes)

    def _machine_places(self, space: Space, codes: Codes) -> NDArray[np.intp]:
        """The place in the table of the machine type of each row, -1 where no provider sells it."""
        places = np.full(len(codes), _UNKNOWN, dtype=np.intp)
        if len(self._instances) == 1 and not self._attributes:
            # Nothing is asked of the one offer that is named: no configuration need be made.
            [named] = self._instances.values()
            column = codes[:, space.names.index(named.name)]
            places[column >= 0] = self._places_of(named)[column[column >= 0]]
        for i in np.flatnonzero(places == _UNKNOWN):
            try:
                places[i] = self.table.place(self._machine(space.configuration(codes[i])))
            except NoOfferError:
                places[i] = -1
        return places

    def _places_of(self, instance: Instance) -> NDArray[np.intp]:
        """The place in the table of the offer of each value of a parameter."""
        if isinstance(instance.offers, NamedOffers) and instance.offers.source is self.table.offers:
            return instance.offers.places
        # Mostly they are the same objects, whose keys are made of many words each time.
        known = {id(offer): place for place, offer in enumerate(self.table.offers)}
        own = [instance.offers.get(str(value)) for value in instance.values]
        places = (_UNKNOWN if one is None else known.get(id(one), _UNKNOWN) for one in own)
        return np.fromiter(places, dtype=np.intp, count=len(own))

    def _answer(self, values: Mapping[str, Value]) -> Offer | NoOfferError:
        if not self.table.offers:
            return NoOfferError("the catalogue sells nothing", hint="loosen 'offers', or name another provider")
        asked = {self._attributes[name]: value for name, value in values.items() if name in self._attributes}
        if len(values) == 1 and not asked:
            # Nothing is asked of the one offer that is named: among tens of thousands, a mask for each would be slow.
            [(name, value)] = values.items()
            if (own := self._instances[name].offers.get(str(value))) is not None:
                return own if self._shares(self._instances[name]) else self.table.known(own)
        among = self.table.everything
        for name in self._instances:
            if name in values:
                among = among & self._named(self._instances[name], values[name], bool(asked))
        offer = self.choose(asked, among) if among.any() else None
        if offer is not None:
            return offer
        wanted = " ".join(f"{name}={value}" for name, value in values.items())
        return NoOfferError(f"no provider sells {wanted}", hint=self._nearest_hint(asked, among))

    def _named(self, instance: Instance, value: Value, asked: bool) -> Mask:
        """Mask of the offers of an instance: its own, or all regions' where further attributes are asked for."""
        own = instance.offers.get(str(value))
        if own is None:
            return self.table.equal("type", value)
        if not asked:
            return self.table.only(own)
        return self.table.equal("type", own.instance_type) & self.table.equal("provider", own.provider)

    def _nearest_hint(self, asked: WantedAttributes, among: Mask) -> str:
        if not among.any():
            among = self.table.everything
        offer = nearest_offer(self.table, asked, among, priorities=(), weights={})
        shown = ", ".join(f"{name} {_shown(offer.attribute(name))}" for name in asked)
        where = f" in {offer.region}" if offer.region else ""
        return f"the nearest is {offer.instance_type} of {offer.provider}{where}" + (f" with {shown}" if shown else "")


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def nearest_offer(
    table: OfferTable, asked: WantedAttributes, among: Mask, *, priorities: Sequence[str], weights: Mapping[str, float]
) -> Offer:
    """Find the nearest offer of a mask that has at least one.

    Args:
        table: Offers to choose from.
        asked: Wanted values by attribute.
        among: Mask of the offers that may be chosen.
        priorities: Attributes whose distance decides by itself, the first before the second, before all others.
        weights: Factor of the distance of the other attributes; 1 where not given.
    """
    place = np.flatnonzero(among)
    for attribute in priorities:
        if attribute in asked:
            away = table.distance(attribute, asked[attribute])[place]
            place = place[away == away.min()]
    total = np.zeros(len(place))
    for attribute, value in asked.items():
        weight = weights.get(attribute, 1.0)
        if attribute not in priorities and weight > 0:
            total += weight * table.distance(attribute, value)[place]
    # The table is sorted by price and name, and argmin takes the first: ties go to the cheapest, then by name.
    return table.offers[int(place[np.argmin(np.round(total, 9))])]
