"""Shows a search while it runs, and its report at the end, on the terminal.

The live view has money, time and trials, the best so far, and the running trials; the report has the recommendation,
the best trials, a plot and the reasons.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Sequence
from textwrap import wrap
from typing import IO, TYPE_CHECKING, Any, Self

from tradewind.engine.state_machine.snapshot import RunningTrial, SearchSnapshot
from tradewind.problem import MachineParameters, Objective, Trial, TrialState
from tradewind.reporting.study import tables
from tradewind.reporting.study.data import StudyData
from tradewind.reporting.study.effects import ParameterEffects, parameter_effects
from tradewind.reporting.study.explanation import explain_choice
from tradewind.reporting.study.pareto import front, front_table, sentence, title
from tradewind.reporting.study.series import best_so_far, wants_log
from tradewind.reporting.study.tables import share_words
from tradewind.reporting.text_layout import step_plot
from tradewind.reporting.words import (
    comparative,
    configuration_words,
    cost_word,
    goal_words,
    metric_scale,
    percent,
    value_words,
)
from tradewind.utils.units import count, format_bill, format_duration, format_money, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text


_INTERVAL = 0.125
_LAST = 4
_RUNNING = 8
_REASON = 3
"""Lines of what keeps a run open."""

_CURVE = 400
_NAME = 8
"""Columns of a row's name, with the space behind it."""

_LONGEST, _SHORTEST, _STEP = 40, 8, 4
"""Columns of a bar at most and at least, and by how many it grows."""


class LiveView:
    """Shows a search while it runs. On a terminal a picture that is redrawn in place; else one line a trial.

    Use it as a context manager and call `update` as often as you like: it draws at most eight times a second.

    Args:
        quiet: Show nothing at all.
        history: Trials of earlier sessions, so that "better than the first" is true after resuming.
        stream: Where to print; standard output when None.
        live: False for plain lines on a terminal as well; None to ask the stream.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        history: Sequence[Trial] = (),
        stream: IO[str] | None = None,
        live: bool | None = None,
    ) -> None:
        self._quiet = quiet
        self._stream = stream
        self._wanted = live
        self._live: Live | None = None
        self._console: Console | None = None
        self._drawn = -1.0
        self._ended: int | None = None
        self._number: int | None = None
        self._state: TrialState | None = None
        self._announced = -1
        self._told: set[str] = set()  # what kept trials from going on
        self._values: list[float] = []
        self._curve: list[tuple[float, float]] = []
        self._recent: deque[Trial] = deque(maxlen=_LAST)
        self._pending: SearchSnapshot | None = None
        # Which of two values is better is known with the first snapshot only: the curve waits for it.
        self._earlier: list[tuple[float, float]] = []
        spent = 0.0
        for trial in sorted((one for one in history if one.state.ended), key=lambda one: one.ended or 0.0):
            spent += trial.spent
            value = self._remember(trial)
            if value is not None:
                self._earlier.append((spent, value))

    def __enter__(self) -> Self:
        from rich.console import Console

        if self._quiet:
            return self
        self._console = Console(file=self._stream, highlight=False)
        if self._console.is_terminal if self._wanted is None else self._wanted:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=True, redirect_stderr=True)
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            if self._pending is not None:
                self._draw(self._pending)
            self._live.stop()
            self._live = None

    def update(self, snapshot: SearchSnapshot) -> None:
        """Take note of a moment of the search, and show it if it is time to.

        Args:
            snapshot: The search now.
        """
        if self._quiet:
            return
        missed = self._note(snapshot)
        if self._live is None:
            if missed:
                self._plain(snapshot, missed)
            self._announce(snapshot)
            return
        now = time.monotonic()
        self._pending = snapshot
        if snapshot.finished or now - self._drawn >= _INTERVAL:
            self._drawn = now
            self._draw(snapshot)

    # ------------------------------------------------------------------ what happened so far

    def _note(self, snapshot: SearchSnapshot) -> int:
        """Remember a trial that has ended since; returns how many have."""
        for point in self._earlier:
            self._extend(*point, snapshot.objective)
        self._earlier = []
        ended = sum(count for state, count in snapshot.counts.items() if TrialState(state).ended)
        last = snapshot.last
        before = self._ended if self._ended is not None else (ended - 1 if last is not None else ended)
        fresh = last is not None and (last.number, last.state) != (self._number, self._state)
        self._ended = ended
        best = snapshot.best
        if last is not None and fresh:
            self._number, self._state = last.number, last.state
            self._remember(last)
            value = best.observation.objective if best is not None and best.observation is not None else None
            if value is not None:
                self._extend(snapshot.spent, value, snapshot.objective)
            return max(1, ended - before)
        return 0

    def _remember(self, trial: Trial) -> float | None:
        """Take note of an ended trial; returns its value if it is a feasible one on the whole input."""
        self._recent.append(trial)
        seen = trial.observation
        if seen is None or seen.objective is None or not _feasible(trial) or trial.proposal.fidelity < 1.0:
            return None
        self._values.append(seen.objective)
        return seen.objective

    def _extend(self, spent: float, value: float, objective: Objective) -> None:
        """Add a point to the curve if it is better; of very many points every other one is let go."""
        if not self._curve or objective.better(value, self._curve[-1][1]):
            self._curve.append((spent, value))
        if len(self._curve) > _CURVE:
            del self._curve[1:-1:2]

    # ------------------------------------------------------------------ plain lines

    def _plain(self, snapshot: SearchSnapshot, ended: int) -> None:
        assert self._console is not None
        assert snapshot.last is not None
        more = f" (and {ended - 1} more)" if ended > 1 else ""
        best = snapshot.best
        line = f"{_ended_words(snapshot.last, snapshot)}{more}"
        if best is not None and best.observation is not None:
            line += f"; best {value_words(snapshot.objective.metric, best.observation.objective)}"
        limit = f" of {format_money(snapshot.budget.dollars)}" if snapshot.budget.dollars is not None else ""
        line += f"; {format_money(snapshot.spent)}{limit} total"
        self._console.print(line, markup=False, soft_wrap=True)

    def _announce(self, snapshot: SearchSnapshot) -> None:
        """Say what a trial that begins is expected to cost and to save, and what keeps one that does not: once each."""
        assert self._console is not None
        for one in snapshot.running:
            if one.trouble and one.trouble not in self._told:
                self._told.add(one.trouble)
                self._console.print(f"trial {one.trial.number}: {one.trouble}", markup=False, soft_wrap=True)
            if one.trial.number > self._announced:
                self._announced = one.trial.number
                if words := _expected_words(one.trial, snapshot):
                    line = f"next: trial {one.trial.number}, {words}: {_words(one.trial, snapshot.machine_parameters)}"
                    self._console.print(line, markup=False, soft_wrap=True)

    # ------------------------------------------------------------------ the picture

    def _draw(self, snapshot: SearchSnapshot) -> None:
        assert self._live is not None
        self._live.update(self._picture(snapshot), refresh=True)

    def _picture(self, snapshot: SearchSnapshot) -> RenderableType:
        from rich.console import Group

        width = self._live.console.width if self._live is not None else 80
        height = self._live.console.height if self._live is not None else 24
        parts: list[Any] = [self._title(snapshot), *_bars(snapshot, width), *self._best(snapshot)]
        room = height - len(parts) - 2
        running = list(snapshot.running)
        shown = running[: max(1, min(_RUNNING, room - 1))]
        for one in shown:
            parts += _running_lines(one, width, snapshot)[: max(1, height - len(parts) - 2)]
        if len(running) > len(shown):
            parts.append(_line(f"  and {len(running) - len(shown)} more running", "bright_black"))
        room = height - len(parts) - 2
        recent = list(self._recent)[-max(0, min(_LAST, room)) :] if room > 0 else []
        parts += [_ended_line(trial, snapshot) for trial in reversed(recent)]
        parts += self._plot(snapshot, width, height - len(parts) - 2)
        if snapshot.message:
            parts.append(_line(snapshot.message, "bold" if snapshot.finished else "bright_black"))
        return Group(*parts)

    def _title(self, snapshot: SearchSnapshot) -> Text:
        size = f" · {count(snapshot.size, 'configuration')}" if snapshot.size else ""
        deadline = snapshot.constraints.deadline
        limit = f" · deadline {format_duration(deadline)}" if deadline else ""
        goal = f"{snapshot.objective.goal} {snapshot.objective.metric}"
        return _line(f"{snapshot.name} · {goal}{limit} · {snapshot.searcher}{size}", "bold")

    def _best(self, snapshot: SearchSnapshot) -> list[Any]:
        best, objective = snapshot.best, snapshot.objective
        if best is None or best.observation is None or best.observation.objective is None:
            return [_line("best    none feasible yet", "yellow")]
        seen, value = best.observation, best.observation.objective
        shown = format_bill(value, cost_word(seen)) if objective.metric == "cost" else objective.format(value)
        words = f"best    {shown}"
        words += f" in {format_duration(seen.runtime)}" if objective.metric != "runtime" else ""
        lines = [_line(f"{words}  (trial {best.number})", "bold green")]
        lines.append(_line(f"        {_words(best, snapshot.machine_parameters)}", "green"))
        gain = self._gain(value, objective)
        return [*lines, _line(f"        {gain}", "bright_black")] if gain else lines

    def _gain(self, value: float, objective: Objective) -> str:
        """``42 % cheaper than the first, 17 % cheaper than the median``."""
        if len(self._values) < 2:
            return ""
        words = []
        for name, reference in (("first", self._values[0]), ("median", statistics.median(self._values))):
            if reference > 0 and objective.better(value, reference):
                words.append(f"{percent(abs(value - reference) / reference)} {comparative(objective)} than the {name}")
        return ", ".join(words)

    def _plot(self, snapshot: SearchSnapshot, width: int, room: int) -> list[Any]:
        if len(self._curve) < 2 or room < 6:
            return []
        from tradewind.reporting.study.series import wants_log
        from tradewind.reporting.text_layout import step_plot

        values = [value for _, value in self._curve]
        heading, y_words = metric_scale(snapshot.objective.metric, values)
        lines = step_plot(
            [spent for spent, _ in self._curve],
            values,
            width=min(width, 90),
            height=min(7, room - 2),
            end=snapshot.spent,
            x_words=format_money,
            y_words=y_words,
            log=wants_log(values, 3.0),
        )
        return [_line(f"best {heading} against money spent", "bright_black"), *(_line(line, "cyan") for line in lines)]


def _feasible(trial: Trial) -> bool:
    return trial.state is TrialState.SUCCEEDED and trial.observation is not None and trial.observation.feasible


def _line(words: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(printable(words), style=style, no_wrap=True, overflow="ellipsis")


def _bars(snapshot: SearchSnapshot, width: int) -> list[Any]:
    """Bars for money, time and trials; without a limit only the figure."""
    budget = snapshot.budget
    ended = sum(snapshot.counts.values())
    seconds = budget.hours * 3600.0 if budget.hours is not None else None
    trials = budget.trials if budget.trials is not None else snapshot.size
    ahead = f" + {format_money(snapshot.reserved)}" if snapshot.reserved > 0 else ""
    of_money = f" of {format_money(budget.dollars)}" if budget.dollars is not None else ""
    of_time = f" of {format_duration(seconds)}" if seconds is not None else ""
    of_trials = f" of {trials:,}" if trials is not None else ""
    money = [f"{format_money(snapshot.spent)}{ahead}{word}{of_money}" for word in (" reserved" if ahead else "", "")]
    count = [f"{ended:,}{of_trials}{split}" for split in _splits(snapshot)]
    rows = [
        ("money", snapshot.spent, snapshot.reserved, budget.dollars, _fitting(money, width)),
        ("time", snapshot.elapsed, 0.0, seconds, f"{format_duration(snapshot.elapsed)}{of_time}"),
        ("trials", float(ended), float(len(snapshot.running)), trials, _fitting(count, width)),
    ]
    room = _room([words for _, _, _, limit, words in rows if limit], width)
    rows += [(name, 0.0, 0.0, None, words) for name, words in snapshot.notes.items()]
    return [_bar(*row, room if _beside(row[-1], width) >= room else 0) for row in rows]


def _fitting(choices: Sequence[str], width: int) -> str:
    """The first of some words, from long to short, that leave room for a bar; or that fit without; else the last."""
    rooms = (width - _NAME - 1 - _SHORTEST, width - _NAME)
    return next((words for room in rooms for words in choices if len(words) <= room), choices[-1])


def _room(words: Sequence[str], width: int) -> int:
    """Length of the bars: all alike, and as long as the words beside them permit.

    In steps, so that they stay as they are while a figure beside them gets or loses a digit. A row whose words leave no
    room for the shortest bar has none, and does not count.
    """
    rooms = [room for each in words if (room := _beside(each, width)) >= _SHORTEST]
    return min([_LONGEST, *rooms]) // _STEP * _STEP


def _beside(words: str, width: int) -> int:
    return width - _NAME - 1 - len(words)


def _splits(snapshot: SearchSnapshot) -> tuple[str, str, str]:
    """Words for the trials that ended badly, from long to short: by state, together, and none."""
    bad = {state: count for state, count in snapshot.counts.items() if state != "succeeded" and count}
    if not bad:
        return "", "", ""
    by_state = ", ".join(f"{count} {state}" for state, count in bad.items())
    return f" ({by_state})", f" ({sum(bad.values())} not succeeded)", ""


def _bar(name: str, done: float, ahead: float, limit: float | None, words: str, room: int) -> Text:
    from rich.text import Text

    line = Text(f"{name:<{_NAME - 1}} ", no_wrap=True, overflow="ellipsis")
    if limit and room:
        full = min(room, round(room * done / limit))
        light = min(room, round(room * (done + ahead) / limit)) - full
        line.append("━" * full, style="cyan")
        line.append("━" * light, style="yellow dim")
        line.append("─" * (room - full - light), style="bright_black")
        line.append(" ")
    return line.append(words)


def _running_lines(one: RunningTrial, width: int, snapshot: SearchSnapshot) -> list[Text]:
    """A trial on its way: a line, and those below it that a reason takes which is too long for it."""
    import textwrap

    cap = f" / {format_duration(one.cap_seconds)}" if one.cap_seconds is not None else ""
    stage = "ending" if one.ending else one.stage
    words = f"▶ {one.trial.number:<5} {stage:<10} {format_duration(one.runtime)}{cap}  {format_money(one.cost)}"
    # Why it ends, or what keeps it, is news; what is tried there has been on the screen before.
    why = " ".join((one.trouble or one.ending).split())
    if why and len(words) + 2 + len(why) <= width:
        return [_line(f"{words}  {why}", "yellow")]
    below = textwrap.wrap(why, max(20, width - _NAME), max_lines=_REASON, placeholder=" …")
    first = _line(f"{words}  {_words(one.trial, snapshot.machine_parameters)}", "yellow" if why else "cyan")
    hope = _expected_words(one.trial, snapshot)
    if hope and not why:
        return [first, _line(" " * _NAME + hope, "bright_black")]
    return [first, *(_line(" " * _NAME + line, "yellow") for line in below)]


def _expected_words(trial: Trial, snapshot: SearchSnapshot) -> str:
    """Expected cost and saving of a trial, where its searcher says so."""
    why, metric = trial.proposal.why, snapshot.objective.metric
    spend, saving = why.get("expected_spend"), why.get("expected_saving", why.get("expected_improvement"))
    if not isinstance(spend, float):
        return ""
    words = f"expected to cost {format_money(spend)}"
    if not isinstance(saving, float):
        return words
    best = None if snapshot.best is None else snapshot.best.observation
    if metric == "cost":
        beside = None if best is None else best.objective
        return f"{words} and to save {format_bill(saving, 'a run', beside=beside)}"
    if metric == "runtime":
        return f"{words} and to save {f'{1000 * saving:.2g} ms' if saving < 0.01 else format_duration(saving)}"
    return f"{words} and to improve {metric} by {value_words(metric, saving)}"


_MARKS = {"succeeded": ("✓", ""), "failed": ("✗", "red"), "aborted": ("⊘", "yellow"), "lost": ("?", "magenta")}


def _ended_line(trial: Trial, snapshot: SearchSnapshot) -> Text:
    mark, style = _MARKS.get(trial.state.value, ("·", ""))
    if trial.state is TrialState.SUCCEEDED and not _feasible(trial):
        mark, style = "△", "yellow"
    return _line(f"{mark} {_ended_words(trial, snapshot).removeprefix('trial ')}", style)


def _words(trial: Trial, chooses: MachineParameters) -> str:
    """The configuration of a trial, behind its machines where it does not name them by itself."""
    return configuration_words(trial.configuration, trial.offer, chooses)


def _ended_words(trial: Trial, snapshot: SearchSnapshot) -> str:
    """``trial 12 succeeded: $0.0041 this run, 7.2 s, workers=4``."""
    seen, objective = trial.observation, snapshot.objective
    state, chosen = trial.state.value, _words(trial, snapshot.machine_parameters)
    if seen is None:
        return f"trial {trial.number} {state}: {chosen}"
    if trial.state is TrialState.SUCCEEDED and not seen.feasible:
        state = "infeasible"
    if trial.proposal.fidelity < 1.0:
        state += f" on {share_words(trial.proposal.fidelity)} of the input"
    bound = "at least " if seen.censored else ""
    words = f"{bound}{format_bill(seen.cost, cost_word(seen))}, {format_duration(seen.runtime)}"
    if objective.metric not in ("cost", "runtime") and seen.objective is not None:
        words = f"{objective.metric} {value_words(objective.metric, seen.objective)}, {words}"
    reason = f" ({' '.join(seen.reason.split())})" if seen.reason else ""
    return f"trial {trial.number} {state}: {words}, {chosen}{reason}"


_BEST = 8


def print_report(data: StudyData, console: Console) -> None:
    """Print the whole report, as wide as the console.

    Args:
        data: The study.
        console: Where to print.
    """
    effects = parameter_effects(data)
    objective = data.goal.objective
    _heading(data, console)
    _title(console, "Why this configuration" if data.best_row is not None else "What happened")
    console.print(tables.bullets(explain_choice(data, effects)))
    if data.best is not None:
        _title(console, "Recommended")
        console.print(tables.facts(tables.best_facts(data.best, objective), console.width))
    rows = [int(row) for row in data.ranking[:_BEST]]
    if rows:
        _title(console, f"Best {len(rows)} of {count(int(data.feasible.sum()), 'feasible trial')}")
        lines = [tables.TrialLine.row(data, row) for row in rows]
        tables.print_trials(console, lines, objective)
    traded = front(data)
    if traded.wanted:
        _title(console, title(traded))
        console.print(tables.bullets([sentence(traded)]))
        if len(traded.rows):
            console.print(front_table(data, traded, console.width))
    plot = curve_lines(data, console.width)
    if plot:
        heading, _ = metric_scale(objective.metric, best_so_far(data).best.tolist())
        _title(console, f"Best {heading} so far, against money spent in total")
        for line in plot:
            console.print(line, markup=False, highlight=False)
    _effects(effects, objective.metric, console)


def curve_lines(data: StudyData, width: int, height: int = 8) -> list[str]:
    """Best-so-far against money spent, as lines of text; none where it has fewer than two steps."""
    curve = best_so_far(data)
    if len(curve.spent) < 2:
        return []
    _, y_words = metric_scale(data.goal.objective.metric, curve.best.tolist())
    return step_plot(
        curve.spent.tolist(),
        curve.best.tolist(),
        width=min(width, 100),
        height=height,
        end=curve.end,
        x_words=format_money,
        y_words=y_words,
        log=wants_log(curve.best, 3.0),
    )


def _title(console: Console, words: str) -> None:
    console.print()
    console.print(words, style="bold", markup=False, highlight=False)


def _heading(data: StudyData, console: Console) -> None:
    study, goal = data.study, data.goal
    parts = [f"study {study.name} (id {study.id})", tables.state_words(data.summary), goal_words(goal.objective)]
    if goal.constraints.deadline:
        parts.append(f"deadline {format_duration(goal.constraints.deadline)}")
    parts += [str(threshold) for threshold in goal.constraints.thresholds]
    if goal.budget.dollars is not None:
        parts.append(f"budget {format_money(goal.budget.dollars)} total")
    if goal.searcher:
        parts.append(f"searcher {goal.searcher}")
    console.print(" · ".join(parts), style="bold", markup=False, highlight=False)


def _effects(effects: ParameterEffects | None, metric: str, console: Console) -> None:
    if effects is None:
        return
    _title(console, "What each parameter does")
    widest = max(len(name) for name in effects.names)
    for one in effects.found:
        head, *rest = wrap(one.words(metric), max(20, console.width - widest - 2))
        console.print(f"{one.parameter:<{widest}}  {head}", markup=False, highlight=False)
        for line in rest:
            console.print(f"{'':<{widest}}  {line}", markup=False, highlight=False)
