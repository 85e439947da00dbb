"""Scores of machines in the default searcher: what is known of a machine before it has run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tradewind import plugins
from tradewind.problem import Configuration, Instance, Nodes, Offer, Proposal
from tradewind.searcher.default import TradewindSearcher
from tradewind.testing import problems
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive, evaluate

pytestmark = pytest.mark.slow

SIZES = (2, 4, 8, 16)


def twins(*, quick: Sequence[str] = ("b",), known: bool = True, cores: int = 1) -> KnownProblem:
    """Two types of each size that differ in their score alone: by scores, those of b are 1.6 times as quick.

    Args:
        quick: The families that really are.
        known: False to leave the scores out.
        cores: 0 for scores of one core, 1 for scores of all.
    """
    sold = {}
    for vcpu in SIZES:
        for family, score in (("a", 10.0), ("b", 16.0)):
            facts = {"coremark": score * vcpu**cores} if known else {}
            sold[f"{family}{vcpu}"] = Offer("p", f"{family}{vcpu}", vcpu, 4.0 * vcpu, 0.05 * vcpu, facts=facts)
    parameters = [Instance(name="instance", values=tuple(sold), offers=sold), Nodes(name="nodes", values=(1, 2, 4))]

    def truth(_c: Configuration, offer: Offer) -> KnownOutcome:
        speed = 1.6 if offer.instance_type[0] in quick else 1.0
        return KnownOutcome(60.0 + 6000.0 / speed / (offer.vcpu * offer.nodes) ** 0.9)

    return problems.make_problem(parameters, truth, deadline=900.0)


def make(problem: KnownProblem) -> TradewindSearcher:
    made = plugins.create("searcher", "tradewind", {}, problem=problem, seed=0)
    assert isinstance(made, TradewindSearcher)
    return made


def expected(searcher: TradewindSearcher, instance: str, nodes: int = 2) -> float:
    return float(searcher.explain(Configuration({"instance": instance, "nodes": nodes}))["expected_cost"])


def after(problem: KnownProblem, *ran: str) -> TradewindSearcher:
    searcher = make(problem)
    for number, name in enumerate(ran):
        searcher.tell(evaluate(problem, Proposal(Configuration({"instance": name, "nodes": 1})), number))
    return searcher


@pytest.mark.parametrize("cores", [0, 1])
def test_the_quicker_of_two_that_cost_the_same_runs_first(cores: int) -> None:
    assert str(drive(make(twins(cores=cores)), twins(cores=cores), 1)[0].configuration["instance"]) == "b2"
    assert str(drive(make(twins(known=False)), twins(known=False), 1)[0].configuration["instance"]) == "a2"


def test_after_one_run_the_quicker_is_expected_to_cost_less() -> None:
    searcher = after(twins(), "a2")
    for size in SIZES[1:]:
        assert expected(searcher, f"b{size}") < 0.95 * expected(searcher, f"a{size}")
    plain = after(twins(known=False), "a2")
    assert expected(plain, "b8") == pytest.approx(expected(plain, "a8"), rel=0.05)


def test_scores_that_mislead_are_dropped() -> None:
    """What those of a higher score really cost is believed after a few runs of both kinds."""
    searcher = after(twins(quick=("a",)), "a2", "b2", "a4", "b4", "a8")
    assert expected(searcher, "a16") < expected(searcher, "b16")


def test_scores_of_other_machines_change_nothing_but_a_feature() -> None:
    """Dealt out over the sizes, they cannot be scores of these machines: the prior is the one without."""
    rng = np.random.default_rng(3)
    family = twins().space.parameters[0]
    assert isinstance(family, Instance)
    right = list(family.offers.values())
    dealt = rng.permutation(len(right))
    sold = {
        o.instance_type: Offer("p", o.instance_type, o.vcpu, o.memory_gib, o.price_per_hour, facts=right[j].facts)
        for o, j in zip(right, dealt, strict=True)
    }
    problem = problems.make_problem([Instance(name="instance", values=tuple(sold), offers=sold)], twins().truth)
    assert make(problem)._map.speed_column is None
    assert make(twins())._map.speed_column is not None


def test_right_scores_save_money() -> None:
    def money(problem: KnownProblem) -> float:
        optimum = problem.optimum()
        assert optimum is not None
        best = 1.05 * optimum[1]

        def good(trial: object) -> bool:
            seen = trial.observation  # type: ignore[attr-defined]
            return bool(seen and seen.feasible and seen.objective <= best)

        return sum(t.spent for t in drive(make(problem), problem, 40, abort=True, until=good))

    assert money(twins()) <= 0.9 * money(twins(known=False))
