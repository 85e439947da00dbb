"""The line that shows where the run of a plan is."""

from __future__ import annotations

import pytest

from tradewind.cli.workflow.run import plan_comparison, progress_text
from tradewind.workflow.execution.options import ExecutionProgress

PROGRESS = ExecutionProgress(
    done=620, running=18, failed=0, tasks=1000, up=18, back=5, later=2, machines=25, seconds=75.0, left=3900.0,
    cost=1.59, notes=(),
)  # fmt: skip
TIMES = "1m 15s, 1h 05m left by the plan"
ALL = f"620 of 1,000 tasks done, 18 running, 18 of 25 machines (5 given back, 2 later), $1.59 this run so far, {TIMES}"


@pytest.mark.parametrize(
    ("most", "words"),
    [
        (None, f"[##############----------] {ALL}"),
        (159, ALL),
        (110, f"620 of 1,000 tasks done, 18 running, 18 of 25 machines, $1.59 this run so far, {TIMES}"),
        (85, f"620 of 1,000 tasks done, 18 running, $1.59 this run, {TIMES}"),
        (79, f"620 of 1,000 tasks done, $1.59 this run, {TIMES}"),
        (60, "620 of 1,000 tasks done, $1.59 this run, 1m 15s"),
    ],
)
def test_what_matters_least_is_left_out_where_the_terminal_is_narrow(most: int | None, words: str) -> None:
    assert progress_text(PROGRESS, most=most) == words


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (20.0, "The run took 50.0 % longer than planned."),
        (60.0, "The run took 50.0 % less than planned."),
        (0.0, "The plan knows no run times: plan again with --measured."),
    ],
)
def test_a_run_beside_its_plan(seconds: float, said: str) -> None:
    planned = {"makespan": seconds, "serial": 1.0, "utilisation": 1.0, "cost": 0.0}
    actual = {**planned, "makespan": 30.0}
    counts = {"attempts": 1, "tasks": [1], "machines_lost": [], "replans": 0}
    results = {"planned": planned, "actual": actual, "kept_cost": 0.0, **counts}
    assert said in plan_comparison(results).splitlines()
