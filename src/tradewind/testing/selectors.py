"""Conformance suites for selectors and catalogues: inherit one, say how yours is made, and pytest runs the rest.

For example::

    class TestMySelector(SelectorConformance):
        def make(self, offers, space):
            return MySelector(settings=MySelector.Settings(), offers=offers, space=space)
"""

from __future__ import annotations

import json
import math
import socket
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tradewind.errors import FetchError, NoOfferError
from tradewind.problem import (
    Budget,
    Categorical,
    Configuration,
    Constraints,
    Expression,
    Instance,
    Integer,
    Job,
    Nodes,
    Objective,
    Offer,
    Ordinal,
    Problem,
    Space,
)
from tradewind.selector.base import Selector
from tradewind.selector.catalogue.base import Catalogue, DescribesOffers, Refreshable


def example_offers() -> list[Offer]:
    """Offers of two providers: two sizes in three categories each, all at different prices."""
    ratios = {"compute": 2, "general": 4, "memory": 8}
    return [
        Offer(
            provider=provider,
            instance_type=f"{category}-{vcpu}",
            vcpu=float(vcpu),
            memory_gib=float(vcpu * ratio),
            price_per_hour=round(vcpu * (0.03 + 0.003 * ratio) * factor, 6),
            region="here",
            category=category,
        )
        for provider, factor in (("east", 1.0), ("west", 1.1))
        for category, ratio in ratios.items()
        for vcpu in (2, 8)
    ]


def attribute_space() -> Space:
    """Attributes that `example_offers` sell exactly, machines, and a setting of the application."""
    return Space(
        [
            Categorical(name="provider", values=("east", "west"), attribute="provider"),
            Categorical(name="category", values=("compute", "general", "memory"), attribute="category"),
            Ordinal(name="cpus", values=(2, 8), attribute="vcpu"),
            Nodes(name="nodes", values=(1, 4)),
            Integer(name="workers", low=1, high=2),
        ]
    )


def instance_space(offers: Sequence[Offer]) -> Space:
    """The offers by name, machines, and a setting of the application."""
    by_name = {f"{offer.provider}.{offer.instance_type}": offer for offer in offers}
    return Space(
        [
            Instance(name="instance", values=tuple(by_name), offers=by_name),
            Nodes(name="nodes", values=(1, 2)),
            Integer(name="workers", low=1, high=2),
        ]
    )


def problem_of(selector: Selector) -> Problem:
    """A problem around a selector, to ask for candidates and trial keys."""
    return Problem(
        job=Job(name="conformance", command=("true",)),
        space=selector.space,
        objective=Objective(),
        constraints=Constraints(),
        budget=Budget(dollars=1.0),
        resolver=selector,
    )


class SelectorConformance:
    """Checks of every selector."""

    @abstractmethod
    def make(self, offers: Sequence[Offer], space: Space) -> Selector:
        """A selector with its default settings."""

    def test_takes_the_named_instance(self) -> None:
        """An instance and a number of machines are taken as they are."""
        offers = example_offers()
        selector = self.make(offers, instance_space(offers))
        for name, offer in ((f"{o.provider}.{o.instance_type}", o) for o in offers):
            got = selector.resolve(Configuration({"instance": name, "nodes": 2, "workers": 1}))
            assert got == offer.times(2)

    def test_takes_what_is_sold_exactly(self) -> None:
        """Attributes that an offer has exactly give that offer."""
        space = attribute_space()
        selector = self.make(example_offers(), space)
        for code in space.codes:
            configuration = space.configuration(code)
            got = selector.resolve(configuration)
            wanted = (configuration["provider"], configuration["category"], configuration["cpus"])
            assert (got.provider, got.category, got.vcpu) == wanted
            assert got.nodes == configuration["nodes"]

    def test_only_sells_what_the_catalogue_has(self) -> None:
        """Every answer is one of the offers that were given."""
        space = attribute_space()
        offers = example_offers()
        selector = self.make(offers, space)
        for code in space.codes:
            assert selector.resolve(space.configuration(code)).times(1) in offers

    def test_is_a_pure_function(self) -> None:
        """The answer does not hang on earlier questions, on the order of offers, or on the object."""
        space = attribute_space()
        offers = example_offers()
        first, second = self.make(offers, space), self.make(offers[::-1], space)
        configurations = [space.configuration(code) for code in space.codes]
        forward = [first.resolve(configuration) for configuration in configurations]
        assert forward == [first.resolve(configuration) for configuration in configurations]
        assert forward[::-1] == [second.resolve(configuration) for configuration in configurations[::-1]]

    def test_breaks_ties_the_same_way(self) -> None:
        """Equal offers of two providers give the same answer, whatever order they are listed in."""
        twins = [
            Offer(provider, "twin", vcpu=2, memory_gib=4, price_per_hour=0.1, region=region)
            for provider in ("east", "west")
            for region in ("a", "b")
        ]
        space = Space([Ordinal(name="cpus", values=(2,), attribute="vcpu")])
        answers = {self.make([*twins[i:], *twins[:i]], space).resolve(Configuration({"cpus": 2})).key for i in range(4)}
        assert len(answers) == 1

    def test_machine_parameters(self) -> None:
        """The machines are chosen by the instance, the nodes and the attributes; the rest are settings."""
        selector = self.make(example_offers(), attribute_space())
        assert set(selector.machine_parameters) == {"provider", "category", "cpus", "nodes"}
        space = attribute_space()
        one, two = (space.configuration(code) for code in space.codes[:2])
        assert one["workers"] != two["workers"]
        assert selector.resolve(one) == selector.resolve(two)

    def test_same_machines_and_settings_are_one_trial(self) -> None:
        """Trial keys tell settings apart, and nothing but settings where the offer is the same."""
        selector = self.make(example_offers(), attribute_space())
        problem = problem_of(selector)
        keys: dict[str, tuple[str, Any]] = {}
        for code in selector.space.codes:
            configuration = selector.space.configuration(code)
            what = (selector.resolve(configuration).key, configuration["workers"])
            assert keys.setdefault(problem.trial_key(configuration), what) == what
        assert len(set(keys.values())) == len(keys) == len(problem.candidates)

    def test_nothing_to_sell_is_no_offer(self) -> None:
        """An empty catalogue is a typed refusal with advice."""
        selector = self.make([], attribute_space())
        with pytest.raises(NoOfferError) as caught:
            selector.resolve(
                Configuration({"provider": "east", "category": "memory", "cpus": 2, "nodes": 1, "workers": 1})
            )
        assert caught.value.hint

    def test_inactive_parameters_do_not_count(self) -> None:
        """A machine parameter that the configuration leaves out restricts nothing."""
        space = Space(
            [
                Categorical(name="big", values=("yes", "no")),
                Ordinal(name="cpus", values=(2, 8), attribute="vcpu", when=Expression("big == 'yes'")),
            ]
        )
        selector = self.make(example_offers(), space)
        cheapest = min(example_offers(), key=lambda offer: (offer.price_per_hour, offer.key))
        assert selector.resolve(Configuration({"big": "no"})) == cheapest
        assert selector.resolve(Configuration({"big": "yes", "cpus": 8})).vcpu == 8

    def test_thousands_of_offers(self) -> None:
        """A hundred questions about four thousand offers, two CPU seconds at most; by name, no square of them."""
        offers = [
            Offer("many", f"type-{i}", vcpu=1 + i % 96, memory_gib=1.0 + i % 700, price_per_hour=0.01 + i * 1e-5)
            for i in range(4000)
        ]
        cpus = Ordinal(name="cpus", values=tuple(range(1, 97)), attribute="vcpu")
        start = time.process_time()
        by_attribute = self.make(offers, Space([cpus, Nodes(name="nodes", values=(1,))]))
        for count in range(1, 97):
            assert by_attribute.resolve(Configuration({"cpus": count, "nodes": 1})).vcpu == count
        assert time.process_time() - start < 2.0

        def by_name(count: int) -> float:
            """CPU seconds of finding each of so many offers by its name, whatever else the machine does."""
            space = instance_space(offers[:count])
            start = time.process_time()
            selector = self.make(offers[:count], space)
            for i in range(count):
                name = f"many.type-{i}"
                assert selector.resolve(Configuration({"instance": name, "nodes": 1, "workers": 1})) == offers[i]
            return time.process_time() - start

        few, many = (min(by_name(count) for _ in range(2)) for count in (500, 4000))
        assert many < 32 * few, "8 times the offers: about 8 times the work, not 64 times"


class CatalogueConformance:
    """Checks of every catalogue.

    Attributes:
        unreachable: For a catalogue that can be refreshed: settings under which its endpoint does not answer.
    """

    unreachable: Mapping[str, Any] = {"base_url": "http://127.0.0.1:9", "retries": 0}

    @abstractmethod
    def make(self, data_folder: Path, settings: Mapping[str, Any]) -> Catalogue:
        """A catalogue with some settings besides those that it cannot do without."""

    @pytest.fixture
    def catalogue(self, tmp_path: Path) -> Catalogue:
        """The catalogue with its default settings, over an empty data folder that is not there yet."""
        return self.make(tmp_path / "data", {})

    def test_sells_something_sensible(self, catalogue: Catalogue) -> None:
        """Every offer is one node with a name, CPUs, memory and a price above zero; or it describes others' offers."""
        offers = catalogue.offers()
        assert bool(offers) != isinstance(catalogue, DescribesOffers)
        for offer in offers:
            assert offer.provider
            assert offer.instance_type
            assert offer.nodes == 1
            assert offer.vcpu > 0
            assert offer.memory_gib > 0
            assert math.isfinite(offer.price_per_hour)
            assert offer.price_per_hour > 0
            assert offer.gpus >= 0
            assert offer.category == offer.category.lower()
            assert offer.source

    def test_lists_each_offer_once(self, catalogue: Catalogue) -> None:
        """No two offers are the same machines in the same region."""
        keys = [offer.key for offer in catalogue.offers()]
        assert len(set(keys)) == len(keys)

    def test_is_offline_and_leaves_nothing_behind(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Listing opens no connection and writes no file."""

        def refuse(*_: object) -> None:
            raise AssertionError("a catalogue lists its offers without the network")

        monkeypatch.setattr(socket.socket, "connect", refuse)
        catalogue = self.make(tmp_path / "data", {})
        assert catalogue.offers() or isinstance(catalogue, DescribesOffers)
        assert not (tmp_path / "data").exists()

    def test_describing_changes_facts_alone(self, catalogue: Catalogue) -> None:
        """Describing the offers of others adds to their facts, and changes nothing else."""
        if isinstance(catalogue, DescribesOffers):
            offers = example_offers()
            described = catalogue.describe(offers)
            assert [replace(offer, facts={}) for offer in described] == [replace(o, facts={}) for o in offers]
            assert all(dict(old.facts).items() <= new.facts.items() for old, new in zip(offers, described, strict=True))

    def test_answers_the_same_again(self, catalogue: Catalogue, tmp_path: Path) -> None:
        """Two listings, and two catalogues, are equal."""
        assert list(catalogue.offers()) == list(catalogue.offers())
        assert list(self.make(tmp_path / "data", {}).offers()) == list(catalogue.offers())

    def test_offers_survive_json(self, catalogue: Catalogue) -> None:
        """Offers are stored with trials, as JSON."""
        for offer in catalogue.offers():
            assert Offer.from_json(json.loads(json.dumps(offer.to_json()))) == offer

    def test_is_described(self, catalogue: Catalogue) -> None:
        """The part and all its settings have a line of description."""
        part = type(catalogue)
        assert part.summary()
        assert all(field.description for field in part.Settings.model_fields.values())

    def test_keeps_old_prices_when_the_endpoint_is_away(self, tmp_path: Path) -> None:
        """A refresh that fails says so in one line and changes nothing."""
        catalogue = self.make(tmp_path / "data", {})
        if not isinstance(catalogue, Refreshable):
            assert "Refreshable" not in type(catalogue).capabilities()
            return
        before = list(catalogue.offers())
        away = self.make(tmp_path / "data", self.unreachable)
        assert isinstance(away, Refreshable)
        with pytest.raises(FetchError) as caught:
            list(away.refresh())
        assert "\n" not in str(caught.value)
        assert list(away.offers()) == before == list(catalogue.offers())
