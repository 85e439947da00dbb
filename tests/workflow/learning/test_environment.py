"""The Gymnasium environment: its own checker passes it, its runs keep the rules, and one can learn in it."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import check

gymnasium = pytest.importorskip("gymnasium", reason="the extra 'learning' is not installed")

from gymnasium.utils.env_checker import check_env  # noqa: E402

from tradewind.testing.planners import PLATFORMS, example_flow  # noqa: E402
from tradewind.workflow.learning.environment import ID, WorkflowEnv, example  # noqa: E402

UNSURE = {"noise": 0.3, "unknown": 0.6, "drift": 0.1, "period": 5.0, "failure": 0.1}


def play(env: WorkflowEnv, choose: Any, seed: int) -> tuple[float, dict[str, Any], int]:
    seen, _ = env.reset(seed=seed)
    total, steps, ended = 0.0, 0, False
    info: dict[str, Any] = {}
    while not ended:
        seen, reward, ended, cut, info = env.step(choose(seen))
        assert env.observation_space.contains(seen)
        assert reward <= 0
        assert not cut
        total, steps = total + reward, steps + 1
    return total, info, steps


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, UNSURE])
def test_passes_gymnasiums_own_checker(settings: dict[str, Any]) -> None:
    made = gymnasium.make(ID, settings=settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made.unwrapped, skip_render_check=True)
    assert made.spec.id == ID


@pytest.mark.slow
def test_a_task_goes_to_a_machine_that_it_fits_on_whatever_is_meant() -> None:
    flow = Workflow("two", (Task("large", "a", 8.0, memory_bytes=16 << 30), Task("small", "a", 2.0)), ((), ()))
    vms = (
        Vm("quick", 4.0, 4, memory_bytes=1 << 30),
        Vm("big", memory_bytes=32 << 30),
        Vm("bigger", memory_bytes=64 << 30),
    )
    env = WorkflowEnv(flow, Platform(vms))
    seen, _ = env.reset(seed=1)
    assert seen[3] == 1e6  # the most urgent task, the large one, on the first machine
    play(env, lambda seen: 0, 1)
    assert env.schedule.vm.tolist() == [1, 0]
    play(env, lambda seen: 2, 1)
    assert env.schedule.vm.tolist() == [2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unlike", "late"])
def test_a_run_is_a_schedule_that_keeps_the_rules(kind: str) -> None:
    flow, platform = example_flow(cores=4), PLATFORMS["unlike"]
    if kind == "late":
        flow, platform = example_flow(), PLATFORMS["late"]
    env = WorkflowEnv(flow, platform)
    chance = np.random.default_rng(3)
    total, info, steps = play(env, lambda seen: chance.integers(len(platform.vms)), 1)
    check(flow, platform, env.schedule)
    assert steps == len(flow)
    bound = lower_bound(flow, platform)
    assert info["makespan"] == pytest.approx(env.schedule.makespan)
    first = min(vm.boot_seconds for vm in platform.vms) if kind == "late" else 0.0
    assert -total * bound == pytest.approx(info["makespan"], abs=first + 1e-6)


@pytest.mark.slow
def test_equal_seeds_give_equal_runs_and_failed_tasks_are_given_again() -> None:
    env = WorkflowEnv(settings=UNSURE)
    results = [play(env, lambda seen: np.int64(np.argmin(seen[:4] + seen[4:8])), seed) for seed in (1, 1, 2)]
    assert results[0] == results[1]
    assert results[0] != results[2]
    assert max(play(env, lambda seen: np.int64(3), seed)[2] for seed in range(5)) > 20


@pytest.mark.slow
def test_a_small_loop_learns_in_it() -> None:
    """Cross-entropy over two weights: it comes to use what it sees of the machines."""
    env = WorkflowEnv(settings={"unknown": 0.8})
    machines = len(env.platform.vms)

    def policy(weights: np.ndarray) -> Any:
        def choose(seen: np.ndarray) -> np.int64:
            free, takes, slow = seen[:machines], seen[machines : 2 * machines], seen[3 * machines : 4 * machines]
            return np.int64(np.argmin(weights[0] * free + takes * np.exp(weights[1] * slow)))

        return choose

    def worth(weights: np.ndarray, seeds: range) -> float:
        return float(np.mean([play(env, policy(weights), seed)[0] for seed in seeds]))

    chance, mean, spread = np.random.default_rng(0), np.zeros(2), np.ones(2)
    for generation in range(4):
        drawn = mean + spread * chance.standard_normal((10, 2))
        scores = [worth(each, range(10 * generation, 10 * generation + 6)) for each in drawn]
        best = drawn[np.argsort(scores)[-4:]]
        mean, spread = best.mean(axis=0), best.std(axis=0) + 0.05
    unseen = range(1000, 1030)
    assert worth(mean, unseen) > worth(np.zeros(2), unseen) + 0.3
    assert worth(mean, unseen) > worth(np.array([1.0, 0.0]), unseen)


def test_an_ended_run_takes_no_step() -> None:
    env = WorkflowEnv()
    play(env, lambda seen: np.int64(3), 0)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.int64(0))


@pytest.mark.slow
def test_without_gymnasium_one_line_says_what_to_install() -> None:
    code = "import sys; sys.modules['gymnasium'] = None\nimport tradewind.workflow.learning.environment"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "MissingProgramError: the environment needs gymnasium (pip install 'tradewind[learning]')" in done.stderr


def test_the_example_is_valid() -> None:
    flow, platform = example()
    assert len(flow) == 20
    assert len(platform.vms) == 4
