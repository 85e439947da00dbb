"""The PARIS searcher: two reference runs, a prediction for every configuration, the best of them tried."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tradewind import plugins
from tradewind.errors import SpecError
from tradewind.problem import Configuration, Offer, Problem, Proposal, Trial, TrialState
from tradewind.searcher.base import (
    Concludes,
    Explains,
    LearnsFromPast,
    LetsRunsEnd,
    MapPoint,
    MapsAll,
    NothingLeft,
    PricesAborts,
    ProposesMany,
    Searcher,
    SearchState,
)
from tradewind.searcher.forecast import (
    ForecastVerifier,
    TableForecast,
    application_settings,
    full_input_runs,
    require_few_settings_combinations,
    require_time_objective,
    successful_seconds,
)
from tradewind.searcher.paris.forest import Pair, ReferenceChoice, TimeForest, choose_pairs, require_forest_packages
from tradewind.searcher.paris.workload_table import (
    WorkloadTable,
    count_aborted,
    csv_measurements,
    is_usable_counter,
    machine_choices,
    machine_facts,
    machine_labels,
    machine_of,
    machines_by_name,
    past_measurements,
)
from tradewind.searcher.surrogate.gp import Array
from tradewind.utils.units import count as count_of

_MANY = 20_000
"""Machine choices that are predicted at most."""


class ParisSettings(plugins.Settings):
    """Settings of PARIS's offline table, references and checks."""

    table: Path | None = Field(
        default=None,
        description="CSV of runs besides earlier studies: workload, instance, nodes, runtime (s), provider if wanted, "
        "any counters.",
    )
    references: tuple[str, str] | None = Field(
        default=None,
        description="The two machine choices to run first, as 4xm5.large, or 4xaws/m5.large where several providers "
        "sell such a type; without it those that predicted best.",
    )
    meet: Literal["p90", "mean"] = Field(
        default="p90", description="What must meet the deadline: the time that one in ten runs exceeds, or the mean."
    )
    trees: int = Field(default=100, ge=10, description="Trees of each forest.")
    least_workloads: int = Field(default=3, ge=2, description="Workloads that must have run on both references.")
    reference_pool: int = Field(default=48, ge=2, description="Machine choices that references are chosen from.")
    pairs_tried: int = Field(default=6, ge=1, description="Pairs of references that the forest compares.")
    training_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Share of the budget (dollars or trials) after which no further references are run.",
    )
    most_settings: int = Field(
        default=16, ge=1, description="Combinations of the application's settings, each with reference runs of its own."
    )
    verify: int = Field(default=2, ge=0, description="Runs after that of the predicted best.")


@dataclass(frozen=True, slots=True)
class SettingsWorkload:
    """One combination of the application's settings: a workload of its own.

    Attributes:
        words: Values of the settings in words.
        rows: The candidate of each machine choice, by its place in the table.
    """

    words: str
    rows: Mapping[int, int]


class ParisSearcher(Searcher, ProposesMany, LearnsFromPast, Explains, MapsAll, Concludes, PricesAborts, LetsRunsEnd):
    """PARIS: predicts cost and time of all machines from two reference runs and other workloads' runs.

    Yadwadkar et al., SoCC 2017. A table of other workloads (earlier studies, a CSV file) trains one random forest for
    the mean and one for the 90th percentile of the time relative to a reference, from a fingerprint (times and
    counters on two references) and the description of the target. The pair of references is the one with the
    least leave-one-workload-out error, since the paper's is not published. A reference run that costs more than the
    best so far is not cut short for that, since it teaches; the runs after it are.

    Raises:
        SpecError: The table is too small, the space has too many settings, or the objective is neither cost nor
            runtime.
        RecordError: The CSV file is wrong.
        MissingProgramError: scikit-learn or quantile-forest is not installed.
    """

    Settings = ParisSettings
    weighs_by_default = False
    needs = (require_forest_packages,)
    settings: ParisSettings

    def __init__(self, *, settings: plugins.Settings, problem: Problem, seed: int = 0) -> None:
        super().__init__(settings=settings, problem=problem, seed=seed)
        self._forecast_of: tuple[tuple[int, ...], TableForecast | None] | None = None
        require_time_objective(problem, "paris")
        if not problem.resolver.machine_parameters:
            raise SpecError(
                "the paris searcher chooses machines, and the space has no parameter that does",
                hint="add one of type instance or nodes, or take the searcher gp",
            )
        require_few_settings_combinations(problem, self.settings.most_settings, "paris", "two reference runs")
        require_forest_packages()
        if len(self._rows) > _MANY:
            raise SpecError(
                f"the paris searcher predicts at most {_MANY:,} machine choices, the space has {len(self._rows):,}",
                hint="narrow the query of the instance parameter",
            )
        if len(self._rows) > 1:
            self._require_table()

    def _require_table(self) -> None:
        least, found = self.settings.least_workloads, self._table.most_together
        if found < least:
            left_out, remedy = self._left_out("run other jobs over the same machines first")
            raise SpecError(
                f"the paris searcher needs {least} other workloads that ran on the same two of these machine choices, "
                f"and its table has {found}{left_out}",
                hint=f"{remedy}, or give table: a CSV of their runs",
            )
        if self.settings.references is not None:
            self._given(self.settings.references)

    def _given(self, names: tuple[str, str]) -> Pair:
        places = machines_by_name(self._table.machines)
        for name in names:
            if name not in places:
                raise SpecError(
                    f"the paris searcher: the reference {name!r} is no machine choice of the space, or of several "
                    "providers",
                    hint=f"wanted such as {next(iter(places))}",
                )
        pair = places[names[0]], places[names[1]]
        if pair[0] == pair[1] or len(self._table.together(pair)) < self.settings.least_workloads:
            left_out, remedy = self._left_out("choose other references")
            raise SpecError(
                f"the paris searcher: fewer than {self.settings.least_workloads} workloads of the table ran on both "
                f"{names[0]} and {names[1]}{left_out}",
                hint=f"{remedy}, or leave the references out",
            )
        return pair

    def _left_out(self, remedy: str) -> tuple[str, str]:
        """Number of runs that the table lacks since they were cut short, in words, and the remedy for the user."""
        cut = count_aborted(self.problem.past, self._table.machines)
        if not cut:
            return "", remedy
        were = f"{count_of(cut, 'run')} of earlier searches on these machines {'was' if cut == 1 else 'were'}"
        return f"; {were} cut short and left out", "run the jobs that make the table with abort: false and --fresh"

    # ------------------------------------------------------------------ what is known before the first run

    @cached_property
    def _rows(self) -> list[list[int]]:
        """The candidates of each machine choice."""
        return machine_choices(self.problem.candidates)

    @cached_property
    def _offers(self) -> list[Offer]:
        """The offer of each machine choice."""
        return [self.problem.candidates.offer(rows[0]) for rows in self._rows]

    @cached_property
    def _table(self) -> WorkloadTable:
        runs = list(past_measurements(self.problem.past, self.problem.resolver.machine_parameters))
        if self.settings.table is not None:
            runs += csv_measurements(self.settings.table)
        return WorkloadTable.of(runs, [machine_of(offer) for offer in self._offers])

    @cached_property
    def _facts(self) -> Array:
        return machine_facts(self._offers)

    @cached_property
    def _choices(self) -> list[ReferenceChoice]:
        """The pairs of references, the best first."""
        own = self.settings
        hourly = np.array([offer.hourly for offer in self._offers])
        if own.references is not None:
            return [ReferenceChoice(self._given(own.references), float("nan"), True)]
        return choose_pairs(
            self._table,
            self._facts,
            hourly,
            pool=own.reference_pool,
            tried=own.pairs_tried,
            least=own.least_workloads,
        )

    @cached_property
    def _tasks(self) -> list[SettingsWorkload]:
        candidates, found = self.problem.candidates, dict[str, dict[int, int]]()
        words: dict[str, str] = {}
        for place, rows in enumerate(self._rows):
            for row in rows:
                own = application_settings(self.problem, candidates.configuration(row))
                words.setdefault(own.key, ", ".join(f"{name}={value}" for name, value in own.items()))
                found.setdefault(own.key, {}).setdefault(place, row)
        ordered = sorted(found, key=lambda key: min(found[key].values()))
        return [SettingsWorkload(words[key], found[key]) for key in ordered]

    # ------------------------------------------------------------------ asking

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """Propose the references of each combination of settings; then the predicted best, and a few more."""
        candidates = self.problem.candidates
        payable = self.affordable(state, candidates.hourly)
        if not payable.any():
            return self.nothing_left(state)
        if len(self._rows) == 1:
            return self._only_machine(state, count)
        measured, running = full_input_runs(candidates, self.history), full_input_runs(candidates, state.pending)
        spent = self._share_is_spent(measured, running)
        chosen: list[Proposal] = []
        apart: set[int] = set()
        waits = False
        for task in self._tasks:
            begun = any(row in measured or row in running for row in task.rows.values())
            if spent and not begun:
                continue
            choice, tried = self._references(task, measured, running, payable)
            apart |= tried
            for i, place in enumerate(choice.pair if choice is not None else ()):
                row = task.rows[place]
                waits = waits or row in running
                if choice is not None and row not in measured and row not in running and len(chosen) < count:
                    chosen.append(Proposal(candidates.configuration(row), why=self._reason(choice, i, task)))
        if chosen:
            return chosen
        if waits:
            return NothingLeft("the reference runs have not ended", final=False)
        forecast = self._forecast
        if forecast is None:
            reason = f"no pair of reference runs succeeded; configurations run: {len(measured)}"
            return NothingLeft(reason, final=not state.pending)
        return ForecastVerifier(self, forecast, self.settings.verify, apart).ask(state, count)

    def _only_machine(self, state: SearchState, count: int) -> list[Proposal] | NothingLeft:
        """Propose each combination of settings: with a single machine choice there is nothing to predict."""
        candidates, free = self.open_candidates(state)
        why: dict[str, float | str] = {"stage": "the only machine choice"}
        chosen = [Proposal(candidates.configuration(int(row)), why=why) for row in free[:count]]
        return chosen or self.nothing_left(state)

    def _references(
        self,
        task: SettingsWorkload,
        measured: Mapping[int, Trial],
        running: Collection[int],
        payable: NDArray[np.bool_],
    ) -> tuple[ReferenceChoice | None, set[int]]:
        """The pair to run, or that has run, and the candidates that were run as references.

        Only the first trials count, up to those that completed a pair: later ones check the prediction.
        """
        own = sorted((measured[row].number, row) for row in task.rows.values() if row in measured)
        nothing = np.zeros(len(payable), dtype=bool)  # what could be paid has not run for that
        for count in range(2, len(own)):
            first = {row: measured[row] for _, row in own[:count]}
            choice = self._pair(task, first, (), nothing)
            if choice is not None and all(task.rows[place] in first for place in choice.pair):
                return choice, set(first)
        first = {row: measured[row] for _, row in own}
        return self._pair(task, first, running, payable), set(first)

    def _pair(
        self,
        task: SettingsWorkload,
        measured: Mapping[int, Trial],
        running: Collection[int],
        payable: NDArray[np.bool_],
    ) -> ReferenceChoice | None:
        """The best pair none of whose runs went wrong.

        Where a reference was cut short, pairs with a machine that is slower in the table are not taken.
        """
        slow: set[int] = set()
        short: set[int] = set()
        for choice in self._choices:
            rows = [task.rows[place] for place in choice.pair if place in task.rows]
            if len(rows) < 2 or not all(payable[row] or row in measured or row in running for row in rows):
                continue
            places = list(zip(choice.pair, rows, strict=True))
            if any(place in slow and row not in measured for place, row in places):
                continue
            wrong = {place for place, row in places if row in measured and successful_seconds(measured[row]) is None}
            if not wrong:
                return choice
            for place in wrong - short:
                if measured[task.rows[place]].state == TrialState.ABORTED:
                    short.add(place)
                    slow |= set(self._table.slower(place))
        return None

    def _share_is_spent(self, measured: Mapping[int, Trial], running: Mapping[int, Trial]) -> bool:
        """True when what references may use up is used up: those of the first settings are always run."""
        share, budget = self.settings.training_share, self.problem.budget
        spent = sum(t.spent for t in measured.values())
        if budget.dollars is not None and measured and spent >= share * budget.dollars:
            return True
        count = len(measured) + len(running)
        return budget.trials is not None and count > 0 and count >= share * budget.trials

    def _reason(self, choice: ReferenceChoice, i: int, task: SettingsWorkload) -> dict[str, float | str]:
        why: dict[str, float | str] = {"stage": f"reference {i + 1} of 2"}
        if task.words:
            why["stage"] = f"reference {i + 1} of 2 for {task.words}"
        if not choice.screened:
            why["left_out_error"] = choice.error
        why["pair"] = self.references_words()
        return why

    def references_words(self) -> str:
        """Explain in one sentence the choice of the pair of references."""
        choices = self._choices
        names = machine_labels(self._table.machines)
        best = choices[0]
        words = f"{names[best.pair[0]]} and {names[best.pair[1]]}"
        if self.settings.references is not None:
            return f"{words}, as the settings say"
        if best.screened:
            return f"{words}, the only pair that enough workloads ran on"
        errors = [choice.error for choice in choices if not choice.screened]
        workloads = len(self._table.together(best.pair))
        return (
            f"{words} predict a workload that was left out with {np.expm1(best.error):.1%} error on average over "
            f"{workloads} workloads; of the {len(errors)} pairs compared, from {np.expm1(min(errors)):.1%} to "
            f"{np.expm1(max(errors)):.1%}, they are the cheapest that is not clearly worse than the best"
        )

    # ------------------------------------------------------------------ predicting

    @property
    def _forecast(self) -> TableForecast | None:
        """Predictions of the candidates whose references have run; None where none have."""
        numbers = tuple(trial.number for trial in self.history)
        if self._forecast_of is None or self._forecast_of[0] != numbers:
            self._forecast_of = numbers, self._predicted()
        return self._forecast_of[1]

    def _predicted(self) -> TableForecast | None:
        measured = full_input_runs(self.problem.candidates, self.history)
        payable = np.zeros(len(self.problem.candidates), dtype=bool)  # only pairs that have run predict
        rows: list[int] = []
        time: list[float] = []
        late: list[float] = []
        for task in self._tasks:
            choice, _ = self._references(task, measured, (), payable)
            if choice is None or not all(task.rows[place] in measured for place in choice.pair):
                continue
            first, second = (measured[task.rows[place]] for place in choice.pair)
            for row, mean, high in self._of_task(task, choice.pair, first, second):
                seen = measured[row].observation if row in (task.rows[p] for p in choice.pair) else None
                rows.append(row)
                time.append(mean if seen is None else seen.runtime)
                late.append(high if seen is None else seen.runtime)
        if not rows:
            return None
        cautious = self.settings.meet == "p90"
        return TableForecast(self.problem, np.array(rows), np.array(time), np.array(late), cautious)

    def _of_task(
        self, task: SettingsWorkload, pair: Pair, first: Trial, second: Trial
    ) -> Iterator[tuple[int, float, float]]:
        """Row, mean and 90th percentile of the seconds for each candidate of a task."""
        assert first.observation is not None and second.observation is not None
        one, two = first.observation, second.observation
        nan = float("nan")
        shared = [
            name
            for name in self._table.common_counters(pair)
            if is_usable_counter(one.profile.get(name, nan)) and is_usable_counter(two.profile.get(name, nan))
        ]
        counters = {name: (float(one.profile[name]), float(two.profile[name])) for name in shared}
        logs = tuple(float(np.log(max(seen.runtime, 1e-9))) for seen in (one, two))
        mean, late = self._forest(pair, tuple(shared)).predict(self._facts, (logs[0], logs[1]), counters)
        for place, row in task.rows.items():
            yield row, float(np.exp(mean[place])), float(np.exp(late[place]))

    def _forest(self, pair: Pair, counters: tuple[str, ...]) -> TimeForest:
        if (pair, counters) not in self._forests:
            self._forests[pair, counters] = TimeForest.fit(
                self._table, self._facts, pair, trees=self.settings.trees, seed=self.seed, counters=counters
            )
        return self._forests[pair, counters]

    @cached_property
    def _forests(self) -> dict[tuple[Pair, tuple[str, ...]], TimeForest]:
        return {}

    def predict_map(self) -> Sequence[MapPoint]:
        """Predict every configuration, the best first."""
        forecast = self._forecast
        return [] if forecast is None else forecast.points(full_input_runs(self.problem.candidates, self.history))

    def map_basis(self) -> str:
        """Name the references, and how well their like predicted other workloads."""
        return "References: " + self.references_words() if len(self._rows) > 1 else ""

    def explain(self, configuration: Configuration) -> Mapping[str, float | str]:
        """Expected cost and time, the time that one in ten runs exceeds, and the references."""
        row = self.problem.candidates.index(configuration)
        forecast = self._forecast
        if row is None or forecast is None or row not in forecast.rows:
            return {}
        place = int(np.flatnonzero(forecast.rows == row)[0])
        return {**forecast.expected(place), "pair": self.references_words()}
