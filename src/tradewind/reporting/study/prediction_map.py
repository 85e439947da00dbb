"""The map of what a study's searcher predicts: cost against run time of all configurations, tried or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.errors import InputError
from tradewind.problem import COST, Configuration, Problem, Trial, TrialState
from tradewind.reporting.charts.document import Chart, ChartAxis, ChartBound, ChartLayer, ChartTable, time_axis
from tradewind.reporting.charts.picture import write_chart
from tradewind.reporting.study.series import wants_log
from tradewind.reporting.study.tables import grid_table
from tradewind.reporting.text_layout import TableColumn, TextTable
from tradewind.reporting.words import compact, configuration_words
from tradewind.searcher.base import MapPoint, MapsAll
from tradewind.store.base import Store
from tradewind.utils.units import bill_column, count, format_bill, format_duration

if TYPE_CHECKING:
    from rich.console import Console


_LINES = 20
"""Configurations in the table of the terminal."""

_ROWS = 100
"""Configurations in the table beside the chart."""


@dataclass(frozen=True)
class PredictedMap:
    """Predicted cost and run time of every configuration, the best first, beside the measured ones.

    Attributes:
        study: The study's name.
        points: The predictions.
        trials: Trials on the whole input by number, for the points that name one.
        deadline: Seconds, or None.
        basis: What the predictions rest on, in words; may be empty.
        words: Writes a configuration of the study, with its machines where it does not name them by itself.
    """

    study: str
    points: Sequence[MapPoint]
    trials: Mapping[int, Trial]
    deadline: float | None
    basis: str = ""
    words: Callable[[Configuration], str] = compact

    @classmethod
    def load(cls, store: Store, study_id: int, data_folder: Path) -> PredictedMap:
        """Make the study's searcher again, feed it the stored trials and ask it for its map.

        Args:
            store: An open store.
            study_id: The study's number in it.
            data_folder: Where refreshed prices are kept.

        Raises:
            InputError: The searcher predicts no map, or knows too little for one yet.
            StudyNotFoundError: There is no such study.
        """
        from tradewind.engine.past_studies import with_past_studies
        from tradewind.engine.search_builder import build_problem, build_searcher
        from tradewind.problem.job_spec.spec import JobSpec

        row = store.study(study_id)
        spec = JobSpec.from_json(row.spec)
        problem = with_past_studies(build_problem(spec, data_folder), spec, row, store)
        searcher = build_searcher(spec, problem)
        if not isinstance(searcher, MapsAll):
            raise InputError(
                f"the searcher {spec.searcher.name} of study {row.name} predicts no map of all configurations",
                hint=f"searchers that do: {', '.join(_mappers())}",
            )
        trials = {trial.number: trial for trial in store.trials(study_id)}
        for trial in trials.values():
            searcher.tell(trial)
        points = list(searcher.predict_map())
        if not points:
            raise InputError(
                f"the searcher {spec.searcher.name} of study {row.name} cannot predict yet",
                hint="let the search run on until its first runs have ended",
            )
        shown = {point.trial: trials[point.trial] for point in points if point.trial is not None}
        words = partial(_words, problem)
        return cls(row.name, points, shown, spec.constraints.deadline, searcher.map_basis(), words)

    @cached_property
    def ranged(self) -> bool:
        """True when the searcher also predicts what one in ten runs exceeds."""
        return any(point.time_p90 is not None for point in self.points)

    def measured(self, point: MapPoint) -> tuple[float, float] | None:
        """Seconds and USD of the run of a point's configuration that succeeded, or None."""
        trial = self.trials.get(point.trial) if point.trial is not None else None
        if trial is None or trial.observation is None or trial.state is not TrialState.SUCCEEDED:
            return None
        return trial.observation.runtime, trial.observation.cost

    def document(self) -> dict[str, Any]:
        """Return the map as the document that ``--json`` prints."""
        return {
            "deadline": self.deadline,
            "basis": self.basis,
            "points": [{**asdict(point), "configuration": dict(point.configuration)} for point in self.points],
        }


def _words(problem: Problem, configuration: Configuration) -> str:
    offer = problem.resolver.resolve(configuration)
    return configuration_words(configuration, offer, problem.machine_parameters)


def _mappers() -> list[str]:
    """The names of the installed searchers that predict a map."""
    from tradewind import plugins

    broken = {part.name for part in plugins.broken() if part.kind == "searcher"}
    return [
        n for n in plugins.names("searcher") if n not in broken and issubclass(plugins.load("searcher", n), MapsAll)
    ]


def map_table(predicted: PredictedMap, width: int, most: int = _LINES) -> TextTable:
    """The best predictions, as a table that fits a terminal.

    Args:
        predicted: The map.
        width: Characters.
        most: Lines at most.
    """
    late = (
        [TableColumn("1 in 10 above", 4, right=True), TableColumn("1 in 10 longer", 3, right=True)]
        if predicted.ranged
        else []
    )
    unit, bill = bill_column(point.cost for point in predicted.points[:most])
    columns = [
        TableColumn("#", right=True),
        TableColumn("configuration", least=16, below=True),
        TableColumn("cost, predicted" if unit == "this run" else f"cost, {unit}, predicted", right=True),
        *late[:1],
        TableColumn("run time", right=True),
        *late[1:],
        TableColumn("in time", 2),
        TableColumn("measured", 1, right=True),
    ]
    rows, styles = [], []
    for place, point in enumerate(predicted.points[:most], 1):
        seen = predicted.measured(point)
        tail = [bill(point.cost_p90), format_duration(point.time_p90)] if predicted.ranged else []
        rows.append(
            [
                str(place),
                predicted.words(point.configuration),
                bill(point.cost),
                *tail[:1],
                format_duration(point.time),
                *tail[1:],
                "yes" if point.in_time else "no",
                f"{bill(seen[1])}, {format_duration(seen[0])}" if seen else "-",
            ]
        )
        styles.append({} if point.in_time else {len(columns) - 2: "yellow"})
    return grid_table(columns, rows, styles, width)


def print_map(predicted: PredictedMap, console: Console, most: int = _LINES) -> None:
    """Print the map's best lines and what they rest on, as wide as the console.

    Args:
        predicted: The map.
        console: Console that is printed on.
        most: Lines at most.
    """
    total = len(predicted.points)
    in_time = sum(point.in_time for point in predicted.points)
    words = f"study {predicted.study}: {count(total, 'configuration')} predicted, {len(predicted.trials):,} of them run"
    if predicted.deadline is not None:
        words += f", {in_time:,} expected within {format_duration(predicted.deadline)}"
    console.print(words, style="bold", markup=False, highlight=False)
    console.print(map_table(predicted, console.width, most))
    if total > most:
        console.print(f"{total - most:,} more: --json has all", style="bright_black", markup=False, highlight=False)
    if predicted.basis:
        console.print(predicted.basis, markup=False, highlight=False)


def map_chart(predicted: PredictedMap) -> Chart:
    """Chart cost against run time of all configurations as predicted, with the deadline and what was measured.

    A line to the right of a point reaches to the time that one in ten runs is expected to exceed.
    """
    points, deadline = predicted.points, predicted.deadline
    seen = [(point, found) for point in points if (found := predicted.measured(point)) is not None]
    times = [point.time for point in points] + [time for _, (time, _) in seen]
    times += [point.time_p90 for point in points if point.time_p90 is not None]
    costs = [point.cost for point in points] + [cost for _, (_, cost) in seen]
    near = deadline if deadline and deadline < 8 * max(times) else None
    best = next((point for point in points if point.in_time), None)
    late = [(p.time, p.cost, p.time_p90, p.cost) for p in points if p.time_p90 is not None and p.time_p90 > p.time]
    groups = [
        ("predicted late", "infeasible", [point for point in points if not point.in_time]),
        ("predicted in time", "feasible", [point for point in points if point.in_time and point is not best]),
        ("predicted best", "best", [] if best is None else [best]),
    ]
    layers = [ChartLayer("segments", "", "soft", late, faint=True)] if late else []
    layers += [
        ChartLayer("points", name, look, [(p.time, p.cost) for p in group], [_title(predicted, p) for p in group])
        for name, look, group in groups
        if group
    ]
    if seen:
        layers.append(
            ChartLayer(
                "points",
                "measured",
                "aborted",
                [ran for _, ran in seen],
                [_title(predicted, point) for point, _ in seen],
            )
        )
    unit, bill = bill_column(point.cost for point in points[:_ROWS])
    rows = [
        [predicted.words(p.configuration), format_duration(p.time), bill(p.cost), "yes" if p.in_time else "no"]
        for p in points[:_ROWS]
    ]
    return Chart(
        "predicted-map",
        "Predicted cost and run time of all configurations",
        time_axis("run time of a whole run", max([*times, near or 0.0]), log=wants_log(times)),
        ChartAxis("cost of a run", "money", log=wants_log(costs)),
        layers,
        ChartBound(near, f"deadline {format_duration(near)}") if near else None,
        note=" ".join(filter(None, [predicted.basis, "A bar: one in ten runs is longer." if late else ""])),
        table=ChartTable(["configuration", "run time", f"cost, {unit}", "in time"], rows),
        height=420,
    )


def _title(predicted: PredictedMap, point: MapPoint) -> str:
    figures = f"predicted {format_bill(point.cost)}, {format_duration(point.time)}"
    lines = [predicted.words(point.configuration), figures]
    if point.time_p90 is not None:
        lines.append(f"one in ten above {format_bill(point.cost_p90)}, {format_duration(point.time_p90)}")
    seen = predicted.measured(point)
    if seen is not None:
        lines.append(f"measured {format_bill(seen[1])}, {format_duration(seen[0])} (trial {point.trial})")
    return "\n".join(lines)


def write_map(predicted: PredictedMap, file: Path) -> Path:
    """Write the drawing as SVG or PNG, by the ending of the file's name.

    Args:
        predicted: The map.
        file: The file to write, ``.svg`` or ``.png``.

    Returns:
        The file.

    Raises:
        InputError: Another ending, or the file cannot be written.
        MissingProgramError: matplotlib is not installed.
    """
    if file.suffix.lower() not in (".svg", ".png"):
        raise InputError(f"cannot write the map as {file.name}", hint="the name must end in .svg or .png")
    return write_chart(map_chart(predicted), file, f"{predicted.study}: predicted {COST} and run time")
