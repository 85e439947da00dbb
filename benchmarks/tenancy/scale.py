"""The allocator at a scale that no test machine has, in simulated time.

    python benchmarks/tenancy/scale.py

- 1,000 tenants with a search of 100 trials each, ten at once, on 5,000 machines of 16 CPUs: how long the whole takes,
  and the allocator's time for each run that it starts.
- The cost of a decision (a run ends, the next one is started) against the number of runs that wait, 10^2 to 10^5.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import deque

import numpy as np

from tradewind import plugins
from tradewind.tenancy import events as ev
from tradewind.tenancy.allocator import AllocationPolicy, Allocator
from tradewind.tenancy.simulator import RecordedTrials, SimulatedJob, simulate

TENANTS, TRIALS, NODES = 1000, 100, 5000
DEMANDS = [{"cpu": cpu, "memory": memory} for cpu in (1.0, 2.0, 4.0, 8.0) for memory in (2.0, 8.0)]


def policy(priority: str) -> AllocationPolicy:
    return AllocationPolicy(plugins.create("fairness", "drf", {}), plugins.create("priority", priority, {}))


def whole(priority: str, parallel: int) -> None:
    """Print a row: everything once."""
    rng = np.random.default_rng(0)
    jobs = [
        SimulatedJob(
            f"j{t}",
            f"t{t}",
            RecordedTrials(rng.random(TRIALS).tolist(), rng.lognormal(4, 0.5, TRIALS).tolist()),
            DEMANDS[t % len(DEMANDS)],
            parallel,
            submitted=float(t % 60),
        )
        for t in range(TENANTS)
    ]
    nodes = {f"n{i}": {"cpu": 16.0, "memory": 64.0} for i in range(NODES)}
    tenants = [ev.TenantSet(f"t{t}", 1 + t % 3) for t in range(TENANTS)]
    began = time.perf_counter()
    found = simulate(nodes, tenants, jobs, policy(priority))
    took = time.perf_counter() - began
    assert found.starts == TENANTS * TRIALS
    each = found.thinking / found.starts * 1000
    print(f"| {priority} | {parallel} | {took:.1f} s | {each:.3f} ms | {found.busiest * 1000:.1f} ms |", flush=True)


def decision(waiting: int, decisions: int = 2000) -> float:
    """Median milliseconds of a call in which one run ends and the next is started, with so many that wait."""
    made = Allocator(policy("least_attained"))
    kinds = made.policy.kinds
    made.pool.join_all([(f"n{i}", kinds.amounts({"cpu": 16.0, "memory": 64.0})) for i in range(NODES)])
    tenants = min(1000, waiting)
    running: deque[str] = deque()
    events: list[ev.AllocatorEvent] = []
    room = NODES * 4 + 1000
    for t in range(tenants):
        events += [ev.TenantSet(f"t{t}", 1 + t % 3), ev.JobSubmitted(f"j{t}", f"t{t}")]
    demand = {"cpu": 4.0, "memory": 8.0}
    events += [ev.RequestMade(f"j{k % tenants}", f"r{k}", demand) for k in range(room - 1000 + waiting)]
    running.extend(each.request for each in made.handle_all(events, 0.0) if isinstance(each, ev.StartRun))
    assert sum(len(job.waiting) for job in made.jobs.values()) == waiting
    times = []
    for k in range(decisions):
        over = running.popleft()
        job = made.requests[over].job.view.job
        now = 1.0 + k
        began = time.perf_counter()
        out = made.handle_all(
            [ev.RequestEnded(over), ev.ResultReported(job, 1.0, 1.0), ev.RequestMade(job, f"again{k}", demand)], now
        )
        times.append(time.perf_counter() - began)
        started = [each.request for each in out if isinstance(each, ev.StartRun)]
        assert len(started) == 1
        running.extend(started)
    return statistics.median(times) * 1000


def main() -> None:
    """Print the tables of README.md."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=("whole", "queue"))
    options = parser.parse_args()
    if options.only != "queue":
        print("| priority | runs at once | in all | a run started | slowest call |\n|---|---:|---:|---:|---:|")
        for priority, parallel in (("least_attained", 10), ("gain", 10), ("least_attained", 40)):
            whole(priority, parallel)
        print()
    if options.only != "whole":
        print("| runs that wait | a decision |\n|---:|---:|")
        for waiting in (100, 1000, 10_000, 100_000):
            print(f"| {waiting:,} | {decision(waiting):.3f} ms |", flush=True)


if __name__ == "__main__":
    main()
