"""The map of what a study's searcher predicts: cost against run time of all configurations, tried or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tradewind.errors import InputError
from tradewind.problem import Trial, TrialState
from tradewind.reporting.study.tables import grid_table
from tradewind.reporting.text_layout import TableColumn, TextTable
from tradewind.reporting.words import compact
from tradewind.searcher.base import MapPoint, MapsAll
from tradewind.store.base import Store
from tradewind.utils.units import count, format_duration, format_money

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

_LINES = 20
"""Configurations in the table of the terminal."""


@dataclass(frozen=True)
class PredictedMap:
    """What is predicted of every configuration, the best first, and what was measured.

    Attributes:
        study: The study's name.
        points: The predictions.
        trials: Trials on the whole input by number, for the points that name one.
        deadline: Seconds, or None.
        basis: What the predictions rest on, in words; may be empty.
    """

    study: str
    points: Sequence[MapPoint]
    trials: Mapping[int, Trial]
    deadline: float | None
    basis: str = ""

    @classmethod
    def load(cls, store: Store, study_id: int, data_folder: Path) -> PredictedMap:
        """Make the study's searcher again, tell it the stored trials and ask it.

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
        return cls(row.name, points, shown, spec.constraints.deadline, searcher.map_basis())

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
        """What ``--json`` says of it."""
        return {
            "deadline": self.deadline,
            "basis": self.basis,
            "points": [{**asdict(point), "configuration": dict(point.configuration)} for point in self.points],
        }


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
    columns = [
        TableColumn("configuration", least=16),
        TableColumn("cost, predicted", right=True),
        *late[:1],
        TableColumn("run time", right=True),
        *late[1:],
        TableColumn("in time", 2),
        TableColumn("measured", 1, right=True),
    ]
    rows, styles = [], []
    for point in predicted.points[:most]:
        seen = predicted.measured(point)
        tail = [format_money(point.cost_p90), format_duration(point.time_p90)] if predicted.ranged else []
        rows.append(
            [
                compact(point.configuration),
                format_money(point.cost),
                *tail[:1],
                format_duration(point.time),
                *tail[1:],
                "yes" if point.in_time else "no",
                f"{format_money(seen[1])}, {format_duration(seen[0])}" if seen else "-",
            ]
        )
        styles.append({} if point.in_time else {len(columns) - 2: "yellow"})
    return grid_table(columns, rows, styles, width)


def print_map(predicted: PredictedMap, console: Console, most: int = _LINES) -> None:
    """Print the map's best lines and what they rest on, as wide as the console.

    Args:
        predicted: The map.
        console: Where to print.
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
