"""Draws the pictures of the guide to WorkflowSim4RL: ``python pictures.py [FOLDER]``.

``paper3-gantt.svg``: Montage_1000 on the paper's 64 vCPU, the best of 40 episodes of its Q-learning above HEFT's plan.
``paper3-episodes.svg``: 100 episodes of the Q-learning, and the adaptive policy, over HEFT's plan in the same worlds,
where speeds are as stated and where they are not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scenarios import PLATFORMS, Case, graph
from tradewind.reporting.svg import Scale, Svg

from tradewind.plugins import Settings
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

WIDTH, LEFT, RIGHT = 900.0, 92.0, 24.0
LANE, GAP = 11.0, 2.0
JOINED = 0.6
"""Seconds between two tasks of one activity on a machine that are drawn as one bar."""

STYLE = """
svg{font-family:system-ui,sans-serif;font-size:13px}
.page{fill:#fff}.ink{fill:#1c2430}.soft{fill:#5b6675}.head{fill:#1c2430;font-weight:600;font-size:14px}
.grid{stroke:#dfe4ea;stroke-width:1}.lane{fill:#f3f5f8}.end{stroke:#1c2430;stroke-width:1.6;stroke-dasharray:4 3}
.dot{fill:#c1440e;fill-opacity:.45}.q{stroke:#c1440e;stroke-width:2.2;fill:none}
.dota{fill:#0072b2;fill-opacity:.45}.a{stroke:#0072b2;stroke-width:3;fill:none}
.heft{stroke:#1c2430;stroke-width:1.6;stroke-dasharray:5 4;fill:none}
.qk{fill:#c1440e}.ak{fill:#0072b2}
@media (prefers-color-scheme:dark){
.page{fill:#12181f}.ink,.head{fill:#e6ebf0}.soft{fill:#a9b4c0}.grid{stroke:#2a333d}.lane{fill:#1b232c}
.end,.heft{stroke:#e6ebf0}.dot,.qk{fill:#ff8a5c}.q{stroke:#ff8a5c}.dota,.ak{fill:#5fb4ec}.a{stroke:#5fb4ec}}
"""


def finished(drawing: Svg, extra: str = "") -> str:
    """The drawing with its colours, as a file of its own."""
    head, rest = drawing.render().split(">", 1)
    page = f'<rect class="page" width="{drawing.width:g}" height="{drawing.height:g}"/>'
    return f"{head}><style>{(STYLE + extra).strip()}</style>{page}{rest}\n"


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


def gantt(flow: Workflow, platform: Platform, panels: Sequence[tuple[str, Schedule]]) -> str:
    """Schedules above each other on one axis of time."""
    work: dict[str, float] = {}
    for task in flow.tasks:
        work[task.activity] = work.get(task.activity, 0.0) + task.runtime
    colours = {activity: place for place, activity in enumerate(sorted(work, key=lambda name: -work[name]))}
    order = sorted(range(len(platform.vms)), key=lambda vm: -platform.vms[vm].speed)
    fast = sum(vm.speed > 1 for vm in platform.vms)
    tall = len(order) * (LANE + GAP)
    height = 46 + len(panels) * (tall + 34) + 58
    drawing = Svg(WIDTH, height, f"{flow.name} on {len(order)} machines: " + ", ".join(title for title, _ in panels))
    longest = max(schedule.makespan for _, schedule in panels)
    x = Scale(0.0, longest * 1.02, LEFT, WIDTH - RIGHT)
    top = 14.0
    for title, schedule in panels:
        drawing.text(LEFT, top + 12, title, "head")
        top += 20
        for tick in x.ticks(8):
            drawing.line(x(tick), top, x(tick), top + tall, "grid")
        drawing.text(LEFT - 8, top + fast * (LANE + GAP) / 2 + 4, "m3.2xlarge", "soft", anchor="end")
        drawing.text(LEFT - 8, top + (fast + len(order)) * (LANE + GAP) / 2 + 4, "m3.medium", "soft", anchor="end")
        for lane, vm in enumerate(order):
            y = top + lane * (LANE + GAP)
            drawing.rect(x(0), y, x(longest) - x(0), LANE, "lane")
            for start, finish, activity in joined(flow, schedule, schedule.order.get(vm, ())):
                drawing.rect(x(start), y, x(finish) - x(start), LANE, f"t{colours[activity]}")
        drawing.line(x(schedule.makespan), top - 4, x(schedule.makespan), top + tall, "end")
        top += tall + 14
    for tick in x.ticks(8):
        drawing.text(x(tick), top + 4, f"{tick:g}", "soft", anchor="middle")
    drawing.text(LEFT - 8, top + 4, "seconds", "soft", anchor="end")
    across = LEFT
    for activity, place in colours.items():
        if across + 18 + 7.4 * len(activity) > WIDTH - RIGHT:
            across, top = LEFT, top + 20
        drawing.rect(across, top + 18, 11, 11, f"t{place}")
        drawing.text(across + 16, top + 28, activity, "ink")
        across += 34 + 7.4 * len(activity)
    return finished(drawing, "".join(f".t{place}{{fill:{COLOURS[place]}}}" for place in colours.values()))


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


def episodes(panels: Sequence[tuple[str, list[float], list[float]]]) -> str:
    """The ratios by episode, side by side."""
    width, height, top, bottom = (WIDTH - 52 - RIGHT - 36) / 2, 350.0, 60.0, 280.0
    drawing = Svg(WIDTH, height, "makespan over that of HEFT's plan, by episode: " + ", ".join(p[0] for p in panels))
    high = max(max(*learned, *adaptive) for _, learned, adaptive in panels)
    y = Scale(0.0, high * 1.05, bottom, top)
    for place, (title, learned, adaptive) in enumerate(panels):
        left = 52 + place * (width + 36)
        x = Scale(0.0, float(EPISODES), left, left + width)
        drawing.text(left, 22, title, "head")
        for tick in y.ticks(5):
            drawing.line(left, y(tick), left + width, y(tick), "grid")
            drawing.text(left - 6, y(tick) + 4, f"{tick:g}", "soft", anchor="end")
        for tick in x.ticks(5):
            drawing.text(x(tick), bottom + 18, f"{tick:g}", "soft", anchor="middle")
        drawing.text(left + width / 2, bottom + 38, "episode", "soft", anchor="middle")
        for values, dot, line in ((learned, "dot", "q"), (adaptive, "dota", "a")):
            for number, value in enumerate(values, 1):
                drawing.rect(x(number) - 1.5, y(value) - 1.5, 3, 3, dot)
            means = [(x(number), y(float(np.mean(values[max(0, number - AROUND) : number]))))
                     for number in range(1, EPISODES + 1)]  # fmt: skip
            drawing.path(means, line)
        drawing.line(left, y(1.0), left + width, y(1.0), "heft")
    for across, words, style in ((52, "Q-learning of the paper", "qk"), (262, "adaptive policy", "ak")):
        drawing.rect(across, 38, 14, 4, style)
        drawing.text(across + 20, 45, words, "ink")
    drawing.line(412, 40, 436, 40, "heft")
    drawing.text(442, 45, "HEFT's plan = 1", "ink")
    note = f"makespan over that of HEFT's plan in the same world; dots: episodes, lines: mean of the last {AROUND}"
    drawing.text(52, height - 12, note, "soft")
    return finished(drawing)


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
    drawn = {"paper3-gantt.svg": gantt(flow, platform, panels), "paper3-episodes.svg": episodes(runs)}
    for name, text in drawn.items():
        (folder / name).write_text(text, encoding="utf-8")
        print(f"{folder / name}: {len(text.encode()) / 1000:.0f} kB")
    for title, learned, adaptive in runs:
        mean = [float(np.exp(np.mean(np.log(values)))) for values in (learned, learned[-AROUND:], adaptive)]
        print("{}: Q-learning {:.2f}, its last episodes {:.2f}; adaptive {:.2f}".format(title, *mean))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "docs/guides/pictures")
