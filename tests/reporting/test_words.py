from __future__ import annotations

import pytest

from tradewind.problem import MachineParameters, Offer
from tradewind.reporting.words import choice_words, configuration_words, machine_words, reason_key, tells_machine

OFFER = Offer("aws", "c5.large", 2, 4, 0.1, region="us-east-1")
ATTRIBUTES = MachineParameters(("cat", "cpus", "prov"))
NAMED = MachineParameters(("instance", "nodes"), ("nodes",))


@pytest.mark.parametrize(
    ("configuration", "nodes", "machine", "words"),
    [
        (
            {"cat": "CPU", "cpus": 1, "prov": "GCE", "level": 3},
            1,
            ATTRIBUTES,
            "c5.large of aws in us-east-1 (cat=CPU cpus=1 prov=GCE) with level=3",
        ),
        ({"cpus": 1}, 1, ATTRIBUTES, "c5.large of aws in us-east-1 (cpus=1)"),
        ({"instance": "c5.large", "nodes": 2}, 2, NAMED, "2 × c5.large of aws in us-east-1"),
        (
            {"instance": "aws/us-east-1/c5.large/spot", "x": 1},
            1,
            NAMED,
            "c5.large of aws in us-east-1 with x=1",
        ),
        # Two machines were asked for, and two CPUs: only the first is said by "2 ×".
        ({"n": 2, "cpus": 2}, 2, MachineParameters(("n", "cpus"), ("n",)), "2 × c5.large of aws in us-east-1 (cpus=2)"),
        ({"level": 3}, 1, MachineParameters(), "level=3"),
        ({}, 1, MachineParameters(), ""),
    ],
)
def test_the_machine_comes_first_then_what_led_to_it(
    configuration: dict[str, object], nodes: int, machine: MachineParameters, words: str
) -> None:
    assert choice_words(configuration, OFFER.times(nodes), machine) == words


def test_a_configuration_that_names_its_machine_stays_as_it_is() -> None:
    named = {"instance": "c5.large", "nodes": 2, "level": 3}
    assert tells_machine(named, OFFER.times(2), NAMED)
    assert configuration_words(named, OFFER.times(2), NAMED) == "instance=c5.large nodes=2 level=3"
    assert not tells_machine({"cpus": 1}, OFFER, ATTRIBUTES)
    assert configuration_words({"cpus": 1}, OFFER, ATTRIBUTES) == "c5.large of aws in us-east-1 (cpus=1)"
    only_nodes = MachineParameters(("nodes",), ("nodes",))
    assert tells_machine({"nodes": 2}, OFFER.times(2), only_nodes), "there is only one type"


def test_spot_machines_are_called_so() -> None:
    spot = Offer("aws", "c5.large", 2, 4, 0.1, spot=True, nodes=3)
    assert machine_words(spot) == "3 × c5.large (spot) of aws"


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("no file '/tmp/a/b.csv'", "no file '/tmp/c/b.csv'", True),
        ("folder /tmp/tmpq1 is full", "folder /tmp/tmpq2 is full", True),
        ("runs/a/1/x.py:3: ValueError: y", "runs/b/2/x.py:3: ValueError: y", True),
        ("s3://bucket/1/out is gone", "s3://bucket/2/out is gone", True),
        ("container 0123456789abcdef died", "container fedcba9876543210 died", True),
        ("tw-0123456789-00001-1 is lost", "tw-0123456789-00002-2 is lost", True),
        ("exit code 1", "exit code 2", False),
        ("ratio 3/4 is low", "ratio 3/5 is low", False),
        ("/a/x.py:3: ValueError", "/a/x.py:4: ValueError", False),
    ],
)
def test_reasons_are_equal_but_for_paths_and_ids(one: str, other: str, equal: bool) -> None:
    assert (reason_key(one) == reason_key(other)) is equal
