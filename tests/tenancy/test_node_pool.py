"""The nodes: where a demand fits, and that nothing is forgotten."""

from __future__ import annotations

import random

import pytest

from tradewind.tenancy.node_pool import NodePool
from tradewind.tenancy.resources import ResourceKinds

KINDS = ResourceKinds(("cpu", "memory"))


def test_the_tightest_node_is_taken() -> None:
    pool = NodePool(KINDS)
    for name, cpu, memory in (("large", 16, 64), ("small", 4, 8), ("tiny", 1, 2)):
        pool.join(name, (cpu, memory))
    assert pool.fit((2, 2)) == "small"
    pool.take("small", (3, 1))
    assert pool.fit((2, 2)) == "large"
    assert pool.fit((1, 1)) == "tiny"
    pool.take("tiny", (1, 1))
    assert pool.fit((1, 1)) == "small"
    assert pool.fit((17, 1)) is None
    pool.keep("large")
    assert pool.fit((2, 2)) is None
    pool.unkeep("large")
    pool.close("large")
    assert pool.fit((2, 2)) is None
    assert pool.roomiest((2, 2)) == "small"


def test_nodes_come_and_go_at_random() -> None:
    chance = random.Random(4)
    pool, model = NodePool(KINDS), dict[str, list[float]]()
    for _ in range(2000):
        name = f"n{chance.randrange(12)}"
        if name not in model:
            model[name] = [float(chance.randint(1, 9)), float(chance.randint(1, 9))]
            pool.join(name, tuple(model[name]))
        elif chance.random() < 0.2:
            del model[name]
            pool.lose(name)
        else:
            model[name][0] -= 0.25
            pool.take(name, (0.25, 0.0))
    pool.lose("never there")
    assert set(pool) == set(model)
    for name, (cpu, memory) in model.items():
        assert pool.free(name) == pytest.approx({k: v for k, v in (("cpu", cpu), ("memory", memory)) if v})


def test_joining_all_at_once_is_joining_each() -> None:
    one, other = NodePool(KINDS), NodePool(KINDS)
    nodes = [("a", (4.0, 8.0)), ("b", (2.0, 2.0))]
    one.join_all(nodes)
    for name, capacity in nodes:
        other.join(name, capacity)
    assert one.total == other.total == (6.0, 10.0)
    assert [one.free(name) for name in one] == [other.free(name) for name in other]


def test_a_core_leaves_room_for_runs() -> None:
    pool = NodePool(KINDS)
    pool.join_all([("a", (4.0, 8.0)), ("b", (4.0, 8.0))])
    assert pool.fit_core((1.0, 1.0), [(4.0, 5.0)]) == "a"
    pool.take("a", (1.0, 1.0), core=True)
    for _ in range(3):
        node = pool.fit_core((1.0, 1.0), [(4.0, 5.0)])
        assert node == "a"
        pool.take(node, (1.0, 1.0), core=True)
    assert pool.fit_core((1.0, 1.0), [(4.0, 5.0)]) is None
    assert pool.could_hold((4.0, 5.0))
    assert not pool.could_hold((5.0, 5.0))
