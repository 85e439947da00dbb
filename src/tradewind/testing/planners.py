"""The conformance suite of planners: inherit it, say how yours is made, and pytest runs the rest.

For example::

    class TestMyPlanner(PlannerConformance):
        def make(self, seed: int = 0) -> Planner:
            return MyPlanner(settings=MyPlanner.Settings(), seed=seed)
"""

from __future__ import annotations

import json
import subprocess
import sys
from abc import abstractmethod
from dataclasses import replace

import numpy as np
import pytest

from tradewind.errors import WorkflowError
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.planner.base import Online, Planner
from tradewind.workflow.platform import Platform, Storage, Vm
from tradewind.workflow.schedule import Schedule, check
from tradewind.workflow.simulator.reference import ScheduleDirector, simulate
from tradewind.workflow.simulator.world import World

_CLOSE = 1e-6


def example_flow(tasks: int = 24, *, cores: int = 1) -> Workflow:
    """A made-up workflow: several roots, joins, files of different sizes, run times of different lengths.

    Args:
        tasks: How many tasks.
        cores: Every fifth task uses as many.
    """
    parents = tuple(
        tuple(sorted({(i * 7) % i, i // 2, (i * i) % i} - {i})) if i > tasks // 6 else () for i in range(tasks)
    )
    made = tuple(
        Task(
            f"t{i}", f"a{i % 4}", (i * 37 % 11) / 2.0 + 0.5, (*(f"f{p}" for p in parents[i]), "given"), (f"f{i}",),
            cores if i % 5 == 0 else 1,
        )
        for i in range(tasks)
    )  # fmt: skip
    return Workflow("made", made, parents, {"given": 3_000_000, **{f"f{i}": 1_500_000 * (i % 6) for i in range(tasks)}})


def wide_flow(tasks: int = 150) -> Workflow:
    """Tasks that wait for nothing."""
    return Workflow("wide", tuple(Task(str(i), "a", 1.0 + i % 7) for i in range(tasks)), ((),) * tasks)


def deep_flow(tasks: int = 150) -> Workflow:
    """One task after the other, written in reverse order."""
    parents = (*((i + 1,) for i in range(tasks - 1)), ())
    return Workflow("deep", tuple(Task(str(i), "a", 1.0 + i % 3) for i in range(tasks)), parents)


def idle_flow() -> Workflow:
    """Tasks that take no time, beside those that do; children stand before their parents."""
    tasks = (Task("last", "a", 0.0), Task("middle", "a", 0.0), Task("long", "a", 2.0), Task("first", "a", 0.0))
    return Workflow("idle", tasks, ((1, 2), (3,), (3,), ()))


PLATFORMS = {
    "alike": Platform((Vm("a"), Vm("b"), Vm("c"))),
    "unlike": Platform((Vm("slow", 1.0, 1, 0.1), Vm("fast", 4.0, 1, 0.5), Vm("wide", 2.0, 4, 0.6)), "shared"),
    "late": Platform((Vm("a", 1.0, 2, 0.1, boot_seconds=5.0), Vm("b", 3.0, 1, 0.2, boot_seconds=60.0)), "shared"),
    "local": Platform((Vm("a", 1.0, 2, 0.1), Vm("b", 2.0, 1, 0.2), Vm("c", 2.0, 4, 0.3)), "local", 1.0, 0.25),
    "alone": Platform((Vm("only", 2.0, 4, 0.1, boot_seconds=1.0),), "local", 1.0),
}
"""Machines by what is special about them; all but ``alike`` have one with room for a task of four cores."""


class PlannerConformance:
    """Checks of every planner: schedules that keep the rules, the same from the same seed."""

    @abstractmethod
    def make(self, seed: int = 0) -> Planner:
        """The planner under test."""

    @pytest.mark.parametrize(
        "flow", [example_flow(), wide_flow(), deep_flow(), idle_flow()], ids=lambda flow: flow.name
    )
    @pytest.mark.parametrize("kind", list(PLATFORMS))
    def test_keeps_the_rules(self, flow: Workflow, kind: str) -> None:
        """Every task once, after its parents, on a machine that is up and has a free slot, for as long as it takes."""
        self._expect_valid(flow, PLATFORMS[kind])

    @pytest.mark.parametrize("kind", ["unlike", "local", "alone"])
    def test_places_tasks_of_several_cores(self, kind: str) -> None:
        """A task of four cores gets four at the same time."""
        if kind == "unlike":
            self._expect_valid(example_flow(cores=4), PLATFORMS[kind])
        self._expect_valid(example_flow(cores=2), PLATFORMS[kind])

    def test_places_tasks_where_they_fit(self) -> None:
        """A task is on a machine that has the memory for it, and at the time of nothing that would be too much."""
        flow, needs = example_flow(), (1, 12, 2, None, 30)
        tasks = tuple(
            replace(task, memory_bytes=None if (gib := needs[place % 5]) is None else gib << 30)
            for place, task in enumerate(flow.tasks)
        )
        mixed = replace(flow, tasks=tasks)
        storages: tuple[Storage, ...] = ("none", "shared", "local")
        for storage in storages:
            vms = (
                Vm("small", 4.0, 4, 0.1, memory_bytes=8 << 30), Vm("tiny", 4.0, 1, memory_bytes=1 << 29),
                Vm("large", 1.0, 2, 0.5, memory_bytes=64 << 30), Vm("middle", 2.0, 2, 0.2, memory_bytes=24 << 30),
            )  # fmt: skip
            platform = Platform(vms, storage).holding(mixed)
            found = self._expect_valid(mixed, platform)
            assert all(platform.fits(mixed)[task, vm] for task, vm in enumerate(found.vm))
            planner = self.make()
            if isinstance(planner, Online):
                real = simulate(
                    mixed,
                    platform,
                    planner.director(mixed, platform),
                    World(noise=0.5, failure=0.3, seed=1, last_ends_well=True),
                )
                check(mixed, platform, real)

    def test_one_task(self) -> None:
        """A workflow may be a single task."""
        one = Workflow("one", (Task("a", "a", 3.0),), ((),))
        found = self._expect_valid(one, Platform((Vm("a"),)))
        assert found.makespan == pytest.approx(3.0)

    def test_gives_the_same_plan_from_the_same_seed(self) -> None:
        """Random numbers come from the planner's own generator; those of others are left alone."""
        flow, platform = example_flow(), PLATFORMS["unlike"]
        before = np.random.get_state()[1].tolist()  # type: ignore[index]
        one, other = self.make(seed=7).plan(flow, platform), self.make(seed=7).plan(flow, platform)
        assert (one.vm.tolist(), one.start.tolist()) == (other.vm.tolist(), other.start.tolist())
        planner = self.make(seed=7)
        again = [planner.plan(flow, platform).start.tolist() for _ in range(2)]
        assert again == [one.start.tolist()] * 2
        assert np.random.get_state()[1].tolist() == before  # type: ignore[index]

    def test_says_when_a_task_fits_nowhere(self) -> None:
        """The task is named, in one line."""
        flow = Workflow("big", (Task("small", "a", 1.0), Task("huge", "a", 1.0, cores=9)), ((), (0,)))
        with pytest.raises(WorkflowError, match="'huge'") as caught:
            self.make().plan(flow, PLATFORMS["unlike"])
        assert "\n" not in str(caught.value)

    def test_decides_during_a_run(self) -> None:
        """A planner that is `Online` also keeps the rules where tasks take longer, fail and are repeated."""
        planner = self.make()
        if not isinstance(planner, Online):
            assert "Online" not in type(planner).capabilities()
            return
        for flow in (example_flow(), wide_flow(), deep_flow(), idle_flow()):
            for platform in PLATFORMS.values():
                for world in (World(), World(noise=0.5, failure=0.3, seed=1, last_ends_well=True)):
                    real = simulate(flow, platform, planner.director(flow, platform), world)
                    check(flow, platform, real)

    def test_plans_the_same_without_numba(self) -> None:
        """The compiled loops do what the plain ones do."""
        planner = self.make(seed=3)
        part = type(planner)
        words = [part.__module__, part.__qualname__, planner.settings.model_dump_json(), "3"]
        done = subprocess.run([sys.executable, "-c", _PLAIN, *words], capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        found = planner.plan(example_flow(), PLATFORMS["unlike"])
        assert json.loads(done.stdout) == [found.vm.tolist(), found.start.tolist(), found.finish.tolist()]

    def test_is_described(self) -> None:
        """The part and all its settings have a line of description."""
        part = type(self.make())
        assert part.summary()
        assert all(field.description for field in part.Settings.model_fields.values())

    def _expect_valid(self, flow: Workflow, platform: Platform) -> Schedule:
        found = self.make().plan(flow, platform)
        check(flow, platform, found)
        ready_at = np.array([vm.boot_seconds for vm in platform.vms])
        assert (found.start >= ready_at[found.vm] - _CLOSE).all(), "a task begins before its machine is up"
        least = platform.seconds(flow)[np.arange(len(flow)), found.vm]
        spans = found.finish - found.start
        assert (spans >= least - _CLOSE).all(), "a task takes less time than it needs"
        if platform.storage != "local":
            assert (spans <= least + _CLOSE).all(), "a task takes more time than it needs"
        assert found.makespan >= lower_bound(flow, platform) * (1.0 - _CLOSE)
        # Whoever follows the plan is not later than it says.
        real = simulate(flow, platform, ScheduleDirector(found))
        assert (real.finish <= found.finish + _CLOSE).all(), "who follows the plan is later than it says"
        return found


_PLAIN = """
import importlib, json, sys
sys.modules["numba"] = None
from tradewind.testing.planners import PLATFORMS, example_flow
module, name, given, seed = sys.argv[1:]
part = getattr(importlib.import_module(module), name)
planner = part(settings=part.Settings.model_validate_json(given), seed=int(seed))
found = planner.plan(example_flow(), PLATFORMS["unlike"])
print(json.dumps([found.vm.tolist(), found.start.tolist(), found.finish.tolist()]))
"""
