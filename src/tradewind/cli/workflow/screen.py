"""What is seen of a plan while it is carried out, and at its end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from tradewind.workflow.execution.options import ExecutionProgress

_BAR = 24
_STEPS = 10


class ProgressLine:
    """One line that is redrawn in place on a terminal; elsewhere a line for each tenth of the tasks.

    Args:
        quiet: Show nothing.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live = sys.stdout.isatty() and not quiet
        self._width = 0
        self._step = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live and self._width:
            sys.stdout.write("\n")
            sys.stdout.flush()

    def show(self, progress: ExecutionProgress) -> None:
        """Show where the run is."""
        if self._quiet:
            return
        if self._live:
            for note in progress.notes:
                self._write(note + "\n")
            room = shutil.get_terminal_size().columns - 1
            self._write(progress_text(progress, most=room)[:room])
            return
        for note in progress.notes:
            sys.stdout.write(note + "\n")
        step = progress.done * _STEPS // max(1, progress.tasks)
        if step != self._step:
            self._step = step
            sys.stdout.write(progress_text(progress, bar=False) + "\n")
        sys.stdout.flush()

    def _write(self, text: str) -> None:
        sys.stdout.write("\r" + text.rstrip("\n").ljust(self._width) + ("\n" if text.endswith("\n") else ""))
        self._width = 0 if text.endswith("\n") else len(text)
        sys.stdout.flush()


def progress_text(progress: ExecutionProgress, *, bar: bool = True, most: int | None = None) -> str:
    """Progress in one line.

    Args:
        progress: Where the run is.
        bar: Begin with a bar.
        most: Columns that there are: what matters least is left out until the rest fits. None has room for all.
    """
    from tradewind.utils.units import count, format_duration, format_money

    full = progress.done * _BAR // max(1, progress.tasks)
    money = format_money(progress.cost)
    absent = [f"{progress.back} given back"] if progress.back else []
    absent += [f"{progress.later} later"] if progress.later else []
    up = f"{progress.up} of {count(progress.machines, 'machine')}" if progress.done < progress.tasks else ""
    words = {
        "bar": f"[{'#' * full}{'-' * (_BAR - full)}] " if bar else "",
        "done": f"{progress.done:,} of {count(progress.tasks, 'task')} done",
        "running": f", {progress.running} running" if progress.running else "",
        "failed": f", {progress.failed} failed" if progress.failed else "",
        "machines": f", {up}" if up else "",
        "absent": f" ({', '.join(absent)})" if up and absent else "",
        "money": f", {money} this run so far",
        "time": ", waiting for machines" if progress.seconds is None else f", {format_duration(progress.seconds)}",
        "left": f", {format_duration(progress.left)} left by the plan" if progress.left else "",
    }
    shorter = {"bar": "", "absent": "", "money": f", {money} this run", "machines": "", "running": "", "left": ""}
    for name, short in shorter.items():
        if most is None or len("".join(words.values())) <= most:
            break
        words[name] = short
    return "".join(words.values())


def plan_comparison(results: Mapping[str, Any]) -> str:
    """The figures of the plan and of its run, side by side."""
    from tradewind.utils.units import count, format_money

    planned, actual = results["planned"], results["actual"]
    rows = [("", "planned", "actual")]
    rows += [
        (words, f"{planned[name]:.3f} s", f"{actual[name]:.3f} s")
        for name, words in (("makespan", "makespan"), ("serial", "serial time"))
    ]
    rows.append(("utilisation", f"{100 * planned['utilisation']:.1f} %", f"{100 * actual['utilisation']:.1f} %"))
    rows.append(("cost this run", format_money(planned["cost"]), format_money(actual["cost"])))
    # By the plan each machine is paid from its first task to its last; really it was there before and after.
    rows.append(("as machines were held", "", format_money(results["kept_cost"])))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    text = [
        f"{first:<{widths[0]}}  {second:>{widths[1]}}  {third:>{widths[2]}}".rstrip() for first, second, third in rows
    ]
    share = actual["makespan"] / planned["makespan"] - 1.0 if planned["makespan"] > 0 else 0.0
    text.append(f"The run took {abs(share) * 100:.1f} % {'longer' if share >= 0 else 'less'} than planned.")
    retried = results["attempts"] - len(results["tasks"])
    lost = len(results["machines_lost"])
    if retried or lost or results["replans"]:
        text.append(
            f"{count(retried, 'attempt')} more than tasks, {count(lost, 'machine')} lost, "
            f"planned again {count(results['replans'], 'time')}."
        )
    return "\n".join(text)
