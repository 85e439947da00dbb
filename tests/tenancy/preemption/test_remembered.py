"""What the preemptor remembers changes no decision, whatever happens in between."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from tests.tenancy.allocators import cluster, policy

from tradewind.tenancy import events as ev
from tradewind.tenancy.allocator import Allocator
from tradewind.tenancy.fairness.base import Fairness
from tradewind.tenancy.fairness.drf import DrfFairness
from tradewind.tenancy.fairness.fair_share import FairShareFairness
from tradewind.tenancy.fairness.strict import StrictFairness
from tradewind.tenancy.preemption.policy import PreemptionPolicy
from tradewind.tenancy.preemption.preemptor import Preemptor, _Deserved, _Moment
from tradewind.tenancy.request_queue import ResourceRequest, Tenant

RULES: list[type[Fairness]] = [FairShareFairness, DrfFairness, StrictFairness]
GRACE, NODE = 4.0, {"cpu": 4.0, "memory": 8.0}


class Forgetful(Preemptor):
    """Finds out everything anew each time, on all nodes."""

    def _share(self, tenant: Tenant, without: Sequence[float] = ()) -> float:
        self._shares.clear()
        return super()._share(tenant, without)

    def _deserved(self, tenant: Tenant, moment: _Moment) -> Sequence[_Deserved]:
        return list(self._find_deserved(tenant, self._moment()))

    def _above(self, moment: _Moment) -> list[Tenant]:
        return super()._above(self._moment())

    def _room(self, request: ResourceRequest, until: float, moment: _Moment) -> dict[str, list[float]]:
        moment.nodes[request.demand] = set(self._pool)
        return self._find_room(request, until)


class World:
    """A cluster to which things happen by chance; a seed gives the same ones as long as the decisions are the same."""

    def __init__(self, seed: int, rule: type[Fairness]) -> None:
        self.by_chance = random.Random(seed)
        self.now, self.count = 0.0, 0
        self.sizes = self.by_chance.choice([(1.0, 2.0, 4.0), (0.5, 1.0, 3.0), (1.3, 2.0)])
        self.likely = self.by_chance.choice([0.0, 0.5, 1.0, 1.0])
        nodes = {f"n{number}": NODE for number in range(self.by_chance.randint(1, 3))}
        self.allocator = cluster(nodes, (), policy(rule, more={"grace": GRACE}))
        self.log: list[object] = []
        self.taken = 0
        for number in range(self.by_chance.randint(2, 5)):
            self.feed(self.tenant(f"t{number}"), ev.JobSubmitted(f"j{number}", f"t{number}"))
        self.feed(*(self.asked("j0") for _ in range(12)))

    def tenant(self, name: str) -> ev.TenantSet:
        within = self.by_chance.choice([5.0, 20.0])
        takes = PreemptionPolicy(within, self.by_chance.choice(["owner", "taker", "cluster"]), within / 4)
        quota = {"cpu": 5.0} if self.by_chance.random() < 0.1 else {}
        weight, preempt = self.by_chance.choice([0.5, 1.0, 3.0]), takes if self.by_chance.random() < 0.6 else None
        return ev.TenantSet(name, weight, self.by_chance.randint(0, 1), quota, preempt)

    def feed(self, *events: ev.AllocatorEvent) -> None:
        out = self.allocator.handle_all(events, self.now)
        self.taken += sum(isinstance(each, ev.PreemptRun) for each in out)
        names = self.allocator.tenants
        self.log.append(
            (self.now, out, [(self.allocator.promised(n), self.allocator.takes_too_early(n)) for n in names])
        )

    def asked(self, job: str, taken: int = 0) -> ev.RequestMade:
        self.count += 1
        demand = {"cpu": self.by_chance.choice(self.sizes), "memory": self.by_chance.choice([0.0, 1.0, 4.0])}
        saves = self.by_chance.random() < self.likely
        return ev.RequestMade(job, f"{job}/{self.count}", demand, repeatable=saves, taken=taken)

    def step(self) -> None:
        """Let something happen."""
        there, pick = self.allocator, self.by_chance
        self.now += pick.choice([0.0, 0.5, 4.0])
        jobs, running = list(there.jobs), [each for each in there.requests.values() if each.node is not None]
        going = [each for each in running if each.stopping]
        match pick.choices(range(10), [40, 16, 20, 2, 2, 1, 1, 1, 2, 12])[0]:
            case 0 if jobs:
                self.feed(*(self.asked(pick.choice(jobs)) for _ in range(pick.randint(1, 4))))
            case 1 if running:
                run = pick.choice(running)
                job = run.job.view.job
                told = [ev.ResultReported(job, 1.0, self.now - run.since)] if job in there.jobs else []
                self.feed(ev.RequestEnded(run.id), *told)
            case 2 if going:
                run = pick.choice(going)
                again = [self.asked(run.job.view.job, run.taken + 1)] if run.job.view.job in there.jobs else []
                self.feed(
                    *[ev.PreemptionDeclined(run.id, "no")] if pick.random() < 0.2 else [ev.RequestEnded(run.id), *again]
                )
            case 3 if there.requests:
                self.feed(ev.RequestWithdrawn(pick.choice(list(there.requests))))
            case 4 if jobs:
                job = pick.choice(jobs)
                changes: list[ev.AllocatorEvent] = [
                    ev.JobPaused(job),
                    ev.JobResumed(job),
                    ev.JobReniced(job, pick.randint(0, 1)),
                ]
                self.feed(pick.choice(changes))
            case 5:
                self.feed(self.tenant(pick.choice(list(there.tenants))))
            case 6:
                self.feed(ev.NodeJoined(f"n{pick.randint(0, 3)}", {**NODE, "cpu": pick.choice([4.0, 4.0, 6.0])}))
            case 7 if len(list(there.pool)) > 1:
                node = pick.choice(list(there.pool))
                self.feed(ev.NodeLost(node) if pick.random() < 0.5 else ev.NodeDrained(node))
            case 8 if jobs:
                job = pick.choice(jobs)
                self.count += 1
                self.feed(ev.JobEnded(job), ev.JobSubmitted(f"new{self.count}", there.jobs[job].tenant.view.name))
            case _:
                self.feed(ev.AllocatorTick())


def forgetful(allocator: Allocator) -> Preemptor:
    rules = allocator.policy.fairness, allocator.policy.priority
    return Forgetful(allocator.tenants, allocator.pool, rules, GRACE)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_decisions_are_those_of_who_looks_anew_each_time(rule: type[Fairness]) -> None:
    taken = 0
    for seed in range(12):
        remembers, forgets = World(seed, rule), World(seed, rule)
        forgets.allocator._preemptor = forgetful(forgets.allocator)
        for _ in range(90):
            remembers.step()
            forgets.step()
            assert remembers.log[-1] == forgets.log[-1], f"seed {seed}"
        taken += remembers.taken
    assert taken > 2
