"""The map of what a study's searcher predicts: cost against run time of all configurations, tried or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.errors import InputError, MissingProgramError
from tradewind.problem import COST, Configuration, Problem, Trial, TrialState
from tradewind.reporting.study.charts import axes_frame
from tradewind.reporting.study.series import wants_log
from tradewind.reporting.study.tables import grid_table
from tradewind.reporting.svg import Scale, Svg, span, time_unit
from tradewind.reporting.text_layout import TableColumn, TextTable
from tradewind.reporting.words import compact, configuration_words
from tradewind.searcher.base import MapPoint, MapsAll
from tradewind.store.base import Store
from tradewind.utils.dependencies import install_command
from tradewind.utils.units import bill_column, count, format_bill, format_duration, format_money

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console


_LINES = 20
"""Configurations in the table of the terminal."""


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


_WIDTH, _HEIGHT = 720.0, 420.0

_STYLE = (
    "<style>svg{background:#fff;font-family:system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
    "text{font-size:13px;fill:#5b6675}.strong{fill:#1c2430;font-weight:600}.label{fill:#1c2430}"
    ".grid{stroke:#e9edf1}.axis{stroke:#5b6675}.deadline{stroke:#c1440e;stroke-width:1.6;stroke-dasharray:5 4}"
    ".late{fill:#d55e00;fill-opacity:.07}.whisker{stroke:#5b6675;stroke-width:1}"
    ".feasible{fill:#0072b2;fill-opacity:.7}.infeasible{fill:none;stroke:#c98500;stroke-width:1.6}"
    ".aborted{fill:none;stroke:#a3528a;stroke-width:1.6}.best{fill:#007d5a;stroke:#fff;stroke-width:1}</style>"
)
"""For a drawing on its own: in a page the page's colours hold."""

_LEGEND = [
    ("feasible", "predicted in time"),
    ("infeasible", "predicted late"),
    ("best", "predicted best"),
    ("aborted", "measured"),
]


def map_svg(predicted: PredictedMap, *, alone: bool = False) -> str:
    """Cost against run time of all configurations as predicted, with the deadline and what was measured.

    A line to the right of a point reaches to the time that one in ten runs is expected to exceed.

    Args:
        predicted: The map.
        alone: True for a file of its own, with colours and white ground.
    """
    x, y, unit_name = _scales(predicted)
    svg = Svg(_WIDTH, _HEIGHT, "Predicted cost and run time of all configurations")
    titles = f"run time of a whole run, {unit_name}", "cost of a run"
    axes_frame(svg, x, y, titles, (lambda v: f"{v / x.unit:.4g}", format_money))
    if predicted.deadline is not None and x.low < predicted.deadline < x.high:
        at = x(predicted.deadline)
        svg.rect(at, y.end, x.end - at, y.start - y.end, "late")
        svg.line(at, y.start, at, y.end, "deadline")
        left = at > (x.start + x.end) / 2
        words = f"deadline {format_duration(predicted.deadline)}"
        svg.text(at + (-6 if left else 6), y.end + 12, words, "strong", anchor="end" if left else "start")
    best = next((point for point in predicted.points if point.in_time), None)
    for point in reversed(predicted.points):
        if point.time_p90 is not None and point.time_p90 > point.time:
            svg.line(x(point.time), y(point.cost), x(point.time_p90), y(point.cost), "whisker")
    for point in reversed(predicted.points):
        kind = "best" if point is best else "feasible" if point.in_time else "infeasible"
        svg.mark(kind, x(point.time), y(point.cost), _title(predicted, point), 5.5 if point is best else 3.4)
    for point in predicted.points:
        seen = predicted.measured(point)
        if seen is not None:
            svg.mark("aborted", x(seen[0]), y(seen[1]), _title(predicted, point), 5.0)
    across = x.start
    for kind, words in _LEGEND:
        svg.mark(kind, across + 6, _HEIGHT - 8, size=4.5 if kind != "best" else 3.6)
        svg.text(across + 16, _HEIGHT - 4, words)
        across += 34 + 7.2 * len(words)
    drawn = svg.render()
    return drawn.replace(">", f">{_STYLE}", 1) if alone else drawn


def _scales(predicted: PredictedMap) -> tuple[Scale, Scale, str]:
    seen = [found for point in predicted.points if (found := predicted.measured(point)) is not None]
    times = [point.time for point in predicted.points] + [time for time, _ in seen]
    times += [point.time_p90 for point in predicted.points if point.time_p90 is not None]
    costs = [point.cost for point in predicted.points] + [cost for _, cost in seen]
    near = [predicted.deadline] if predicted.deadline and predicted.deadline < 8 * max(times) else []
    log_x, log_y = wants_log(times), wants_log(costs)
    unit, name = time_unit(max([*times, *near]))
    x = Scale(*span([*times, *near], log=log_x), 84, _WIDTH - 20, log_x, unit)
    return x, Scale(*span(costs, log=log_y), _HEIGHT - 75, 34, log_y), name


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
        MissingProgramError: PNG is wanted and matplotlib is not installed.
    """
    if file.suffix.lower() not in (".svg", ".png"):
        raise InputError(f"cannot write the map as {file.name}", hint="the name must end in .svg or .png")
    try:
        if file.suffix.lower() == ".svg":
            file.write_text(map_svg(predicted, alone=True), encoding="utf-8")
        else:
            _write_png(predicted, file)
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}", hint="choose another file") from None
    return file


def _write_png(predicted: PredictedMap, file: Path) -> None:
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingProgramError("PNG charts need matplotlib", hint=install_command("plots")) from None
    from tradewind.reporting.study.png import STYLE

    with mpl.rc_context(STYLE):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 5.4), dpi=130)
        FigureCanvasAgg(figure)
        _draw(predicted, figure.add_subplot())
        figure.savefig(file)


def _draw(predicted: PredictedMap, axes: Axes) -> None:
    from tradewind.reporting.study.png import words_axis

    x, y, name = _scales(predicted)
    axes.set_xscale("log" if x.log else "linear")
    axes.set_yscale("log" if y.log else "linear")
    axes.set_xlim(x.low / x.unit, x.high / x.unit)
    axes.set_ylim(y.low, y.high)
    best = next((point for point in predicted.points if point.in_time), None)
    for point in predicted.points:
        if point.time_p90 is not None:
            ends = [point.time / x.unit, point.time_p90 / x.unit]
            axes.plot(ends, [point.cost, point.cost], color="#5b6675", linewidth=0.8, alpha=0.6, zorder=1)
    look: dict[bool, dict[str, Any]] = {
        True: {"marker": "o", "c": "#0072b2", "alpha": 0.75, "linewidths": 0, "s": 24, "label": "predicted in time"},
        False: {"marker": "^", "facecolors": "none", "edgecolors": "#c98500", "s": 28, "label": "predicted late"},
    }
    for ok, how in look.items():
        shown = [point for point in predicted.points if point.in_time is ok and point is not best]
        if shown:
            axes.scatter([p.time / x.unit for p in shown], [p.cost for p in shown], zorder=2, **how)
    seen = [found for point in predicted.points if (found := predicted.measured(point)) is not None]
    if best is not None:
        star: dict[str, Any] = {"marker": "*", "c": "#007d5a", "s": 190, "edgecolors": "white", "zorder": 3}
        axes.scatter([best.time / x.unit], [best.cost], label="predicted best", **star)
    if seen:
        diamond: dict[str, Any] = {"marker": "D", "facecolors": "none", "edgecolors": "#a3528a", "s": 40, "zorder": 4}
        axes.scatter([t / x.unit for t, _ in seen], [c for _, c in seen], label="measured", **diamond)
    if predicted.deadline is not None and x.low < predicted.deadline < x.high:
        label = f"deadline {format_duration(predicted.deadline)}"
        axes.axvline(predicted.deadline / x.unit, color="#c1440e", linestyle="--", linewidth=1.4, label=label)
    bars = "; bars: one in ten runs is longer" if predicted.ranged else ""
    axes.set_title(f"{predicted.study}: predicted {COST} and run time{bars}")
    axes.set_xlabel(f"run time of a whole run, {name}")
    axes.set_ylabel("cost of a run")
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    words_axis(axes.xaxis, lambda value: f"{value:.4g}", x.log)
    words_axis(axes.yaxis, format_money, y.log)
