"""The default searcher on small tables of one machine type: failures at one size, and runs that are late."""

from __future__ import annotations

from tradewind.problem import Configuration, Offer, Trial
from tradewind.searcher.default import TradewindSearcher, TradewindSettings
from tradewind.testing import problems
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive

SIZES = (1, 2, 3, 4, 6, 8, 10, 12, 16)


def cluster(failing: tuple[int, ...] = (), *, deadline: float, work: float = 6000.0) -> KnownProblem:
    """Numbers of one machine; the bill falls until 10 of them, as the data of a node fits its memory ever better."""

    def truth(configuration: Configuration, _offer: Offer) -> KnownOutcome:
        nodes = int(configuration["nodes"])
        seconds = work * (1.0 + 2.0 * abs(nodes - 10) / 10.0) / nodes
        return KnownOutcome(seconds, failed="lost a connection" if nodes in failing else "")

    return problems.make_problem(problems.machine_parameters(1, SIZES), truth, deadline=deadline)


def tried(problem: KnownProblem, trials: int, seed: int) -> list[Trial]:
    searcher = TradewindSearcher(settings=TradewindSettings(), problem=problem, seed=seed)
    return drive(searcher, problem, trials, abort=True)


def nodes(trial: Trial) -> int:
    return int(trial.configuration["nodes"])


def test_a_failure_at_eight_machines_does_not_hide_the_best_at_ten() -> None:
    problem = cluster(failing=(8,), deadline=1500.0)
    best = problem.optimum()
    assert best is not None
    assert best[0]["nodes"] == 10
    order = [nodes(trial) for trial in tried(problem, len(SIZES), 0)]
    assert order.index(8) < order.index(10) <= order.index(8) + 2, order


def test_runs_that_are_late_are_expected_to_be_before_they_are_started() -> None:
    """Time falls with every machine: once four are late, fewer are known to be, and come after all that fit."""
    problem = cluster(deadline=1100.0)
    trials = tried(problem, len(SIZES), 0)
    order = [nodes(trial) for trial in trials]
    late = [size for size in SIZES if problem.value(Configuration({**trials[0].configuration, "nodes": size})) is None]
    assert late == [1, 2, 3, 4, 6]
    for trial in trials[order.index(4) + 1 :]:
        likely = trial.proposal.why["probability_feasible"]
        assert isinstance(likely, float)
        assert nodes(trial) not in late or likely < 0.1, f"{nodes(trial)} machines: {likely:.2f}"
    assert max(order.index(size) for size in (8, 10, 12, 16)) < min(order.index(size) for size in (2, 3, 6)), order
