"""Draws the pictures of the guide to WorkflowSim4RL: ``python pictures.py [FOLDER]``.

``paper3-gantt.svg``: Montage_1000 on the paper's 64 vCPU, the best of 40 episodes of its Q-learning above HEFT's plan.
``paper3-episodes.svg``: 100 episodes of the Q-learning, and the adaptive policy, over HEFT's plan in the same worlds,
where speeds are as stated and where they are not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scenarios import PLATFORMS, Case, graph

from tradewind.plugins import Settings
from tradewind.reporting.charts.document import Chart, ChartAxis, ChartBound, ChartLayer
from tradewind.reporting.charts.picture import draw_chart, write_picture
from tradewind.reporting.workflow.layout import COLOURS
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Workflow
from tradewind.workflow.learning.adaptive import AdaptivePolicy, AdaptiveWeights
from tradewind.workflow.learning.evaluation import simulate_schedule
from tradewind.workflow.learning.learners import QLearner
from tradewind.workflow.planner.heft import HeftPlanner
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule

GRAPH, MACHINES = "Montage_1000", "64 vCPU"
BEST_OF, EPISODES = 40, 100
AROUND = 10
"""Episodes of which the drawn line is the mean."""

JOINED = 0.6
"""Seconds between two tasks of one activity on a machine that are drawn as one bar."""


def joined(flow: Workflow, schedule: Schedule, tasks: Sequence[int]) -> list[tuple[float, float, str]]:
    """Beginning, end and activity of the bars of one machine."""
    bars: list[tuple[float, float, str]] = []
    for task in tasks:
        start, finish, activity = float(schedule.start[task]), float(schedule.finish[task]), flow.tasks[task].activity
        if bars and bars[-1][2] == activity and start - bars[-1][1] <= JOINED:
            bars[-1] = (bars[-1][0], finish, activity)
        else:
            bars.append((start, finish, activity))
    return bars


def gantt(flow: Workflow, platform: Platform, panels: Sequence[tuple[str, Schedule]], path: Path) -> None:
    """Schedules above each other on one axis of time."""
    work: dict[str, float] = {}
    for task in flow.tasks:
        work[task.activity] = work.get(task.activity, 0.0) + task.runtime
    colours = dict(zip(sorted(work, key=lambda name: -work[name]), COLOURS, strict=False))
    order = sorted(range(len(platform.vms)), key=lambda vm: -platform.vms[vm].speed)
    fast = sum(vm.speed > 1 for vm in platform.vms)
    longest = max(schedule.makespan for _, schedule in panels)
    names = [(fast / 2, "m3.2xlarge"), ((fast + len(order)) / 2, "m3.medium")]

    def chart(title: str, schedule: Schedule) -> Chart:
        bars: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in colours}
        for lane, vm in enumerate(order):
            for start, finish, activity in joined(flow, schedule, schedule.order.get(vm, ())):
                bars[activity].append((start, lane + 0.1, finish, lane + 0.9))
        return Chart(
            "gantt", title, ChartAxis("seconds", low=0.0, high=longest * 1.02),
            ChartAxis(low=0.0, high=float(len(order)), labels=names, down=True),
            [ChartLayer("boxes", name, colours[name], rows) for name, rows in bars.items()],
            ChartBound(schedule.makespan, "end"),
        )  # fmt: skip

    def draw(figure: Any) -> None:
        from matplotlib.patches import Patch

        for place, (title, schedule) in enumerate(panels, 1):
            draw_chart(chart(title, schedule), figure.add_subplot(len(panels), 1, place), size=9, legend=False)
        handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8)

    write_picture(path, (9.0, 1.2 + 0.13 * len(order) * len(panels)), draw)


def ratios(case: Case, scenario: str) -> tuple[list[float], list[float]]:
    """Makespans over that of HEFT's plan in the same worlds: of Q-learning by episode, and of the adaptive policy."""
    learner = QLearner(case.flow, case.platform, QLearner.Settings(**case.deviations(scenario)))
    policy = AdaptivePolicy(case.flow, case.platform, AdaptiveWeights(), case.arrays)
    learned, adaptive = [], []
    for number in range(1, EPISODES + 1):
        world = learner.world(number)
        plain = simulate_schedule(case.arrays, case.heft, world).makespan
        learned.append(learner.step().makespan / plain)
        adaptive.append(policy.run(world).makespan / plain)
    return learned, adaptive


def episodes(panels: Sequence[tuple[str, list[float], list[float]]], path: Path) -> None:
    """The ratios by episode, side by side."""
    high = 1.05 * max(max(*learned, *adaptive) for _, learned, adaptive in panels)
    numbers = range(1, EPISODES + 1)

    def layers(name: str, colour: str, values: Sequence[float]) -> list[ChartLayer]:
        means = [(float(at), float(np.mean(values[max(0, at - AROUND) : at]))) for at in numbers]
        dots = [(float(at), value) for at, value in zip(numbers, values, strict=True)]
        return [ChartLayer("points", "", colour, dots, faint=True), ChartLayer("line", name, colour, means)]

    def draw(figure: Any) -> None:
        for place, (title, learned, adaptive) in enumerate(panels, 1):
            drawn = [
                *layers("Q-learning of the paper", "#c1440e", learned),
                *layers("adaptive policy", "#0072b2", adaptive),
            ]
            drawn.append(ChartLayer("line", "HEFT's plan = 1", "#1c2430", [(0.0, 1.0), (float(EPISODES), 1.0)]))
            up = ChartAxis("makespan over that of HEFT's plan in the same world", low=0.0, high=high)
            axes = figure.add_subplot(1, len(panels), place)
            draw_chart(Chart("episodes", title, ChartAxis("episode"), up, drawn), axes, size=8, legend=False)
        handles, names = axes.get_legend_handles_labels()
        known = {name: handle for handle, name in zip(handles, names, strict=True) if name}
        title = f"dots: episodes, lines: mean of the last {AROUND}"
        figure.legend(
            known.values(), known, loc="outside lower center", ncols=3, frameon=False, fontsize=8, title=title
        )

    write_picture(path, (9.0, 4.2), draw)


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    flow, platform = graph(GRAPH), PLATFORMS[MACHINES]
    learner = QLearner(flow, platform, QLearner.Settings())
    best = min((learner.step() for _ in range(BEST_OF)), key=lambda episode: episode.makespan)
    heft = HeftPlanner(settings=Settings()).plan(flow, platform)
    bound = lower_bound(flow, platform)
    panels = [
        (f"Q-learning of the paper, best of {BEST_OF} episodes: {best.makespan:,.0f} s", best.schedule),
        (f"HEFT: {heft.makespan:,.0f} s (no schedule is shorter than {bound:,.0f} s)", heft),
    ]
    case = Case(GRAPH, MACHINES)
    titles = {"known": "Speeds as stated", "unknown": "Speeds not as stated (another draw each episode)"}
    runs = [(title, *ratios(case, scenario)) for scenario, title in titles.items()]
    gantt(flow, platform, panels, folder / "paper3-gantt.svg")
    episodes(runs, folder / "paper3-episodes.svg")
    for title, learned, adaptive in runs:
        mean = [float(np.exp(np.mean(np.log(values)))) for values in (learned, learned[-AROUND:], adaptive)]
        print("{}: Q-learning {:.2f}, its last episodes {:.2f}; adaptive {:.2f}".format(title, *mean))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "docs/guides/pictures")
