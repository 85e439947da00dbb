"""The process of a run of `WorkflowLocalRunner`: plans the workflow, carries the plan out and writes what it measured.

It is called with the run's folder, in which ``workflow.json`` says what to do.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from tradewind.deployer.environment import METRICS
from tradewind.errors import TradewindError
from tradewind.problem import Offer, WorkflowJob
from tradewind.utils.atomic_files import write_atomically

ORDER, BEGUN, RESULT = "workflow.json", "begun.json", "makespan.json"
"""Files of the run's folder: what to do, when tasks could begin, and the makespan."""

_LINGER_SECONDS = 5.0
"""Seconds that machines outlive this process, should it be killed."""


class _Progress:
    """Notes the beginning of a run, and says when it is to stop."""

    def __init__(self, folder: Path, wall_seconds: float | None, scale: float) -> None:
        self._folder, self._wall, self._scale = folder, wall_seconds, scale
        self._begun: float | None = None
        self.stopped = False

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Take a signal."""
        self.stopped = True

    def watch(self, progress: Any) -> None:
        """Take the progress of the run."""
        if progress.seconds is not None and self._begun is None:
            self._begun = time.time() - progress.seconds
            write_atomically(self._folder / BEGUN, json.dumps({"at": self._begun, "scale": self._scale}))

    @property
    def seconds(self) -> float:
        """Seconds of the plan's time since tasks could begin."""
        return 0.0 if self._begun is None else max(0.0, time.time() - self._begun) / self._scale

    @property
    def timed_out(self) -> bool:
        """True when the run's time is over."""
        return self._wall is not None and self.seconds > self._wall

    def wanted(self) -> bool:
        """False once the run is to stop."""
        return not (self.stopped or self.timed_out)


def main(folder: Path) -> int:
    """Plan and run the workflow of a run's folder.

    Args:
        folder: The folder.

    Returns:
        The exit code: 0, or 1 with the reason in stderr.
    """
    order = json.loads((folder / ORDER).read_text(encoding="utf-8"))
    progress = _Progress(folder, order["wall_seconds"], order["scale"])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, progress.stop)
    try:
        results, reason = _carry_out(order, folder, progress)
    except TradewindError as error:
        results, reason = {}, str(error)
    actual = results.get("actual")
    if actual is not None and not reason:
        planned = results["planned"]["makespan"]
        metrics = {**{name: value for name, value in actual.items() if name != "cost"}, "planned_makespan": planned}
        (folder / METRICS).write_text(json.dumps(metrics) + "\n", encoding="utf-8")
    makespan = actual["makespan"] if actual is not None else progress.seconds
    # Looked at once: the result and the reason must not contradict each other.
    timed_out = bool(reason) and progress.timed_out
    makespan = min(makespan, order["wall_seconds"]) if timed_out else makespan
    document = {"makespan": makespan, "timed_out": timed_out, "reason": reason}
    write_atomically(folder / RESULT, json.dumps(document))
    if reason:
        sys.stderr.write(reason + "\n")
    return 1 if reason else 0


def _carry_out(order: Mapping[str, Any], folder: Path, progress: _Progress) -> tuple[Mapping[str, Any], str]:
    """Plan, and carry the plan out; its results, and the reason that it has not ended well or an empty text."""
    from tradewind import plugins
    from tradewind.workflow.advice.offers import MachineAssumptions
    from tradewind.workflow.execution.events import ExecutionEnding
    from tradewind.workflow.execution.options import ExecutionOptions
    from tradewind.workflow.execution.pilots import PilotSettings
    from tradewind.workflow.execution.plan_run import execute_plan
    from tradewind.workflow.execution.task_states import RetryLimits
    from tradewind.workflow.files import Plan, folder_of, without_commands
    from tradewind.workflow.job.preparation import WorkflowPreparation
    from tradewind.workflow.schedule import check
    from tradewind.workflow.simulator.compiled import replay_plan

    job, offer = WorkflowJob(**order["workflow"]), Offer.from_json(order["offer"])
    preparation = WorkflowPreparation(order["seed"], Path(order["data_folder"]))
    flow, planner = preparation.flow(job), preparation.planner(job)
    platform = MachineAssumptions(order["speeds"]).platform(offer, flow)
    schedule = replay_plan(flow, platform, planner.plan(flow, platform))
    check(flow, platform, schedule)
    inputs = Path(order["inputs"]) if order["inputs"] else folder_of(Path(job.file))
    plan = Plan(flow, platform, schedule, type(planner).name, inputs)
    plan = plan if order["commands"] else without_commands(plan)
    options = ExecutionOptions(
        inputs,
        RetryLimits(retries=order["retries"]),
        isolated=order["isolate"],
        synthetic=order["synthetic"] or not order["commands"],
        scale=order["scale"],
        give_back=False,
        ahead=None,  # all machines are paid from the beginning to the end
    )
    runner = plugins.create("runner", "process", {}, data_folder=folder / "machines")
    carried = execute_plan(
        plan,
        folder / "workflow",
        runner,
        options=options,
        planner=planner,
        terms=PilotSettings(linger=_LINGER_SECONDS, poll_seconds=0.5),
        watch=progress.watch,
        wanted=progress.wanted,
    )
    if carried.ending is ExecutionEnding.DONE:
        return carried.results, ""
    if carried.failures:
        (task, reason), *others = carried.failures.items()
        return carried.results, f"task {task!r} failed: {reason}" + (f" (and {len(others)} more)" if others else "")
    return carried.results, carried.reason or f"it was {carried.ending.value}"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
