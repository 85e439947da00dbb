"""The promise of preemption over simulated time: places within the bound, and never the same ones in turns."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.tenancy.allocators import policy

from tradewind.tenancy import events as ev
from tradewind.tenancy.fairness.base import Fairness
from tradewind.tenancy.fairness.drf import DrfFairness
from tradewind.tenancy.fairness.fair_share import FairShareFairness
from tradewind.tenancy.fairness.fifo import FifoFairness
from tradewind.tenancy.fairness.strict import StrictFairness
from tradewind.tenancy.preemption.policy import MOST_TAKEN, PreemptionPolicy
from tradewind.tenancy.preemption.preemptor import OFTEN_TAKEN
from tradewind.tenancy.simulator import ClusterSimulation, RecordedTrials, SimulatedJob, simulate

GRACE = 5.0
RULES = st.sampled_from([FairShareFairness, DrfFairness, FifoFairness, StrictFairness])
SIZES = st.sampled_from([0.5, 1.0, 2.0, 3.0, 4.0])
WEIGHTS = st.sampled_from([0.5, 1.0, 2.0])
POLICIES = st.builds(
    lambda within, part: PreemptionPolicy(within, exempt=part * within),
    st.sampled_from([6.0, 20.0, 40.0, 80.0]),
    st.sampled_from([0.0, 0.25, 0.5]),
)


@dataclass(frozen=True)
class Came:
    """A tenant that comes with runs of a size; its search has so many, some at a time."""

    size: float
    weight: float
    after: float
    seconds: float
    parallel: int
    checkpoints: bool
    runs: int = 20
    stopping: float = 3.0


def came(after: float, seconds: list[float], **fixed: Any) -> st.SearchStrategy[Came]:
    return st.builds(
        Came, SIZES, WEIGHTS, st.floats(0.0, after), st.sampled_from(seconds), st.sampled_from([1, 4, 10]),
        st.booleans(), **{name: st.just(each) for name, each in fixed.items()},
    )  # fmt: skip


OWNERS = st.lists(came(100.0, [7.0, 30.0, 200.0, 1000.0]), min_size=1, max_size=4)


def job_of(name: str, tenant: str, it: Came, at: float, *, repeatable: bool = True) -> SimulatedJob:
    seconds = [it.seconds * (1.0 + 0.02 * (n % 7)) for n in range(it.runs)]
    return SimulatedJob(
        name, tenant, RecordedTrials([1.0] * it.runs, seconds), {"cpu": it.size}, parallel=it.parallel, submitted=at,
        repeatable=repeatable, checkpoints=it.checkpoints, stopping=it.stopping,
    )  # fmt: skip


def simulated(
    rule: type[Fairness], nodes: int, owners: list[Came], newcomers: list[tuple[Came, PreemptionPolicy]]
) -> tuple[ClusterSimulation, list[SimulatedJob]]:
    """Owners come one after the other, then the newcomers do."""
    tenants, jobs, at = list[ev.TenantSet](), list[SimulatedJob](), 0.0
    for number, (it, how) in enumerate([*((each, None) for each in owners), *newcomers]):
        at += it.after
        name = f"t{number}"
        tenants.append(ev.TenantSet(name, it.weight, preempt=how))
        jobs.append(job_of(name, name, it, at))
    rules = policy(rule, more={"grace": GRACE})
    return simulate({f"n{n}": {"cpu": 4.0} for n in range(nodes)}, tenants, jobs, rules, record=True), jobs


def waited(found: ClusterSimulation, job: SimulatedJob) -> float:
    begun = found.outcomes[job.job].begun
    assert begun is not None
    return begun - job.submitted


def exempt(how: PreemptionPolicy, taken: int) -> float:
    """Seconds for which a run is exempt whose trial was taken so often."""
    more = taken - OFTEN_TAKEN + 1
    return max(how.exempt, GRACE) * 2.0**more if more > 0 else how.exempt


def test_a_trial_that_saves_nothing_ends_however_often_others_come() -> None:
    """Its program begins anew each time, though its job says that it has checkpoints."""
    tenants = [ev.TenantSet("A"), ev.TenantSet("B", preempt=PreemptionPolicy(10.0, exempt=0.0))]
    long = Came(4.0, 1.0, 0.0, 1000.0, 1, checkpoints=True, runs=1)
    guest = Came(4.0, 1.0, 0.0, 5.0, 1, checkpoints=True, runs=1)
    jobs = [job_of("a", "A", long, 0.0), *(job_of(f"b{n}", "B", guest, 20.0 * n + 10.0) for n in range(300))]
    jobs[0].forgets = True
    found = simulate({"n": {"cpu": 4.0}}, tenants, jobs, policy(DrfFairness, more={"grace": GRACE}))
    often = [each.taken for each in found.preemptions]
    assert often == list(range(len(often)))
    assert OFTEN_TAKEN < len(often) <= OFTEN_TAKEN + 8, "1000 s are less than 5 s, doubled eight times"
    assert found.outcomes["a"].runs == 1


def at_most(how: PreemptionPolicy) -> float:
    """The bound where no run had been taken before, and nobody else came."""
    return max(how.within, how.exempt + GRACE)


# Runs that need all of the node; nodes of which each is one tenant's; tenants that have no more than their shares, and
# leave a quarter of each node.
WHOLE = Came(4.0, 1.0, 0.0, 1000.0, 4, checkpoints=True)
HALVES = Came(0.5, 1.0, 100.0, 200.0, 10, checkpoints=False)
LARGE = Came(2.0, 1.0, 50.0, 60.0, 4, checkpoints=False)
QUARTERS = Came(3.0, 1.0, 10.0, 1000.0, 1, checkpoints=False)
USUAL = PreemptionPolicy(40.0, exempt=20.0)


@settings(max_examples=30, deadline=None)
@example(DrfFairness, 1, [WHOLE], WHOLE, USUAL)
@example(DrfFairness, 2, [HALVES, HALVES], LARGE, USUAL)
@example(FairShareFairness, 2, [HALVES, HALVES], LARGE, USUAL)
@example(DrfFairness, 3, [QUARTERS] * 3, LARGE, USUAL)
@example(FairShareFairness, 3, [QUARTERS] * 3, LARGE, USUAL)
@given(RULES, st.integers(1, 3), OWNERS, came(100.0, [20.0, 60.0, 300.0], runs=6), POLICIES)
def test_who_comes_has_a_place_within_its_bound_also_where_all_have_their_shares(
    rule: type[Fairness], nodes: int, owners: list[Came], newcomer: Came, how: PreemptionPolicy
) -> None:
    found, jobs = simulated(rule, nodes, owners, [(newcomer, how)])
    promised = found.outcomes[jobs[-1].job].promised
    if promised is None:
        assert waited(found, jobs[-1]) == 0.0, "all may be taken: only who needs no promise has none"
    else:
        assert waited(found, jobs[-1]) <= promised + 1e-6
        assert promised <= at_most(how) + 1e-6
    assert all(found.outcomes[job.job].runs == len(job.trials.values) for job in jobs), "a result of each trial"  # type: ignore[attr-defined]


@settings(max_examples=15, deadline=None)
@given(
    RULES, st.integers(1, 2), OWNERS,
    st.lists(st.tuples(came(60.0, [20.0, 60.0, 300.0], runs=6), POLICIES), min_size=2, max_size=4),
)  # fmt: skip
def test_of_several_that_come_each_waits_for_those_before_it(
    rule: type[Fairness], nodes: int, owners: list[Came], newcomers: list[tuple[Came, PreemptionPolicy]]
) -> None:
    found, jobs = simulated(rule, nodes, owners, newcomers)
    for job, (_, how) in zip(jobs[len(owners) :], newcomers, strict=True):
        ended = job.submitted + waited(found, job)
        often = max((each.taken + 1 for each in found.preemptions if each.at <= ended), default=0)
        longest = max(exempt(other, often) for _, other in newcomers)
        assert waited(found, job) <= at_most(how) + (len(newcomers) - 1) * (longest + GRACE) + 1e-6


@settings(max_examples=10, deadline=None)
@example(DrfFairness, [replace(WHOLE, size=1.0, parallel=10)], [USUAL], replace(LARGE, size=3.0, seconds=300.0), 70.0)
@given(
    RULES, st.lists(came(50.0, [200.0, 1000.0], runs=8), min_size=1, max_size=3), st.lists(POLICIES, min_size=3),
    came(10.0, [5.0, 60.0], runs=3), st.floats(20.0, 200.0),
)  # fmt: skip
def test_who_comes_again_and_again_takes_no_more_than_its_share_each_time_and_everything_ends(
    rule: type[Fairness], owners: list[Came], policies: list[PreemptionPolicy], guest: Came, every: float
) -> None:
    """All tenants take, owners too; one comes fifteen times, whether or not its work before has ended."""
    tenants, jobs, at = list[ev.TenantSet](), list[SimulatedJob](), 0.0
    for number, it in enumerate(owners):
        at += it.after
        tenants.append(ev.TenantSet(f"o{number}", it.weight, preempt=policies[number % len(policies)]))
        jobs.append(job_of(f"o{number}", f"o{number}", it, at))
    how = policies[-1]
    tenants.append(ev.TenantSet("guest", guest.weight, preempt=how))
    jobs += [job_of(f"g{n}", "guest", guest, at + n * every) for n in range(15)]
    found = simulate({"m": {"cpu": 4.0}, "n": {"cpu": 4.0}}, tenants, jobs, policy(rule, more={"grace": GRACE}))
    assert all(found.outcomes[job.job].runs == len(job.trials.values) for job in jobs)  # type: ignore[attr-defined]
    arrivals = {job.tenant: [job.submitted] for job in reversed(jobs)}
    guests, over = [job for job in jobs if job.tenant == "guest"], 0.0
    for earlier, job in pairwise(guests):
        over = max(over, found.outcomes[earlier.job].done or 0.0)
        arrivals["guest"] += [job.submitted] if over < job.submitted else []
    got: defaultdict[tuple[str, float], set[str]] = defaultdict(set)
    for each in found.preemptions:
        got[each.taker, max(at for at in arrivals[each.taker] if at <= each.at)].add(each.wanted)
        assert each.tenant != each.taker
        often, least = each.taken, next(row.preempt for row in tenants if row.tenant == each.taker)
        assert least is not None
        assert each.ran >= exempt(least, often) - 1e-6
    sizes = {job.tenant: job.demand["cpu"] for job in jobs}
    weights = {row.tenant: row.weight for row in tenants}
    for (tenant, _), places in got.items():
        due = weights[tenant] / (weights[tenant] + min(each for name, each in weights.items() if name != tenant))
        assert len(places) <= max(1, int(8.0 * due / sizes[tenant] + 1e-6)), (
            "its share once, for each time that it came"
        )
    often_taken = [each.taken for each in found.preemptions if not _saves(each.request, jobs)]
    assert max(often_taken, default=0) < MOST_TAKEN


def _saves(request: str, jobs: list[SimulatedJob]) -> bool:
    return next(job for job in jobs if job.job == request.split("/")[0]).checkpoints


SHORT = Came(2.0, 0.5, 0.0, 7.0, 1, checkpoints=False)


@settings(max_examples=10, deadline=None)
@example(
    FairShareFairness, [SHORT, replace(SHORT, size=3.0), SHORT],
    Came(0.5, 0.5, 1.0, 20.0, 1, checkpoints=False, runs=6), PreemptionPolicy(6.0, exempt=0.0),
)  # fmt: skip
@given(RULES, OWNERS, came(100.0, [20.0, 300.0], runs=6), POLICIES)
def test_where_nothing_may_be_taken_nothing_is_promised_but_what_is_free(
    rule: type[Fairness], owners: list[Came], newcomer: Came, how: PreemptionPolicy
) -> None:
    tenants, jobs, at = list[ev.TenantSet](), list[SimulatedJob](), 0.0
    for number, it in enumerate([*owners, newcomer]):
        at += it.after
        tenants.append(ev.TenantSet(f"t{number}", it.weight, preempt=how))
        jobs.append(job_of(f"t{number}", f"t{number}", it, at, repeatable=False))
    found = simulate({"n": {"cpu": 4.0}}, tenants, jobs, policy(rule, more={"grace": GRACE}))
    assert not found.preemptions
    for job in jobs:
        if (promised := found.outcomes[job.job].promised) is not None:
            assert waited(found, job) <= promised + 1e-6, "by a place that is free, and was only kept for others"


@pytest.mark.parametrize("rule", [FairShareFairness, DrfFairness, FifoFairness, StrictFairness])
def test_a_taken_run_that_comes_back_does_not_take_from_the_taker(rule: type[Fairness]) -> None:
    """Two tenants whose runs need all of the cluster, and who both take: the place changes hands once, not in turns."""
    tenants = [ev.TenantSet(name, preempt=PreemptionPolicy(10.0, exempt=2.0)) for name in ("A", "B")]
    one = Came(4.0, 1.0, 0.0, 500.0, 1, checkpoints=True, runs=2)
    jobs = [job_of(name, name, one, at) for name, at in (("A", 0.0), ("B", 100.0))]
    found = simulate({"n": {"cpu": 4.0}}, tenants, jobs, policy(rule, more={"grace": GRACE}))
    assert [(each.at, each.tenant, each.taker) for each in found.preemptions] == [(105.0, "A", "B")]


def test_who_has_used_more_over_time_takes_nothing_yet_for_coming_again() -> None:
    """Under shares over time; the one that keeps no account gives it a place each time."""
    taken = {}
    for rule in (FairShareFairness, DrfFairness):
        tenants = [ev.TenantSet("A"), ev.TenantSet("B", preempt=PreemptionPolicy(10.0, exempt=2.0))]
        long = Came(4.0, 1.0, 0.0, 400.0, 4, checkpoints=True, runs=4)
        large = Came(4.0, 1.0, 0.0, 300.0, 1, checkpoints=True, runs=1)
        jobs = [job_of("A", "A", long, 0.0), job_of("b0", "B", large, 100.0), job_of("b1", "B", large, 430.0)]
        found = simulate({"n": {"cpu": 4.0}}, tenants, jobs, policy(rule, more={"grace": GRACE}))
        taken[rule.name] = [each.at for each in found.preemptions]
        assert found.outcomes["b1"].runs == 1
    assert taken["drf"] == [105.0, 435.0]
    assert len(taken["fair_share"]) == 2
    assert taken["fair_share"][1] >= 405.0 + 300.0, "when A has had as much as B paid for and used"
