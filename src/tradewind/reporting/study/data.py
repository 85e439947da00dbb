"""A study's results as columns: what all tables, charts and sentences are made from."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tradewind.deployer.compatibility import is_simulated
from tradewind.errors import TradewindError
from tradewind.problem import (
    COST,
    RUNTIME,
    Budget,
    Constraints,
    MachineParameters,
    Objective,
    Offer,
    Parameter,
    Run,
    Trial,
    TrialState,
)
from tradewind.problem.job_spec.choices import USUAL_RUNS
from tradewind.problem.ranking import ConfigurationRanking, MeasuredRun
from tradewind.problem.stored_goal import goal_document, read_budget, read_constraints, read_objective
from tradewind.reporting.words import configuration_words
from tradewind.searcher.stopping import TrialWorth
from tradewind.store.base import CodeVersion, Store, StudyRow, StudySummary
from tradewind.utils.paths import data_folder
from tradewind.utils.units import parse_money

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Texts = NDArray[np.str_]

_NUMBERS = ("objective", "cost", "runtime", "fidelity", "spent", "price_per_hour", "created", "started", "ended")
_WORDS = ("state", "key", "provider", "instance_type")
_PAGE = 2000
_REASONS = 60
"""Reasons are read for this many trials at most: they are not among the columns, each is a question to the store."""


@dataclass(frozen=True, slots=True)
class StudyGoal:
    """The goal of a study: objective, constraints and budget.

    It is read tolerantly from the stored specification: an older or newer version of it, or one made by a program
    through `tradewind.Study`, still gives what it has; what is missing is not shown.

    Attributes:
        objective: The figure to make small or large.
        constraints: What had to hold.
        budget: What could be spent.
        searcher: The searcher's name, or empty where it is not known.
        simulated: Nothing was really run, and nothing was paid.
        future_runs: How often the job will run with what is found, as it says or as is usual.
        value_per_hour: USD that an hour of a run is worth, or None.
    """

    objective: Objective
    constraints: Constraints
    budget: Budget
    searcher: str = ""
    simulated: bool = False
    future_runs: float = USUAL_RUNS
    value_per_hour: float | None = None


def read_goal(spec: Mapping[str, Any]) -> StudyGoal:
    """Read the goal of a stored specification.

    Args:
        spec: The document of `StudyRow.spec`; any part of it may be missing.
    """
    document = goal_document(spec)
    return StudyGoal(
        read_objective(spec),
        read_constraints(spec),
        read_budget(spec),
        _choice(document.get("searcher")),
        is_simulated(spec),
        _runs(document.get("future_runs")),
        _value(document.get("value")),
    )


def _runs(value: Any) -> float:
    known = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return float(value) if known else USUAL_RUNS


def _value(words: Any) -> float | None:
    """USD of an hour, as a specification writes it: ``$2/h``."""
    return parse_money(words.split("/")[0]) if isinstance(words, str) else None


def _choice(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("use") or value.get("name") or ""
    return str(value or "")


def space_size(spec: Mapping[str, Any]) -> int | None:
    """Count the configurations in the space of a specification.

    Args:
        spec: The document of `StudyRow.spec`.

    Returns:
        The number; None where it is infinite, too large to list, or unknown because the catalogue or a part
        that the specification names is no longer there: a report is read long after the search.
    """
    from tradewind.engine.search_builder import build_problem
    from tradewind.problem.job_spec.spec import JobSpec

    try:
        space = build_problem(JobSpec.from_json(spec), data_folder()).space
        return len(space) if space.enumerable else None
    except TradewindError:
        return None


def machine_parameters(spec: Mapping[str, Any]) -> MachineParameters:
    """Pick the parameters of a specification that choose machines; none where it cannot be read any more.

    Args:
        spec: The document of `StudyRow.spec`.
    """
    from tradewind.problem.job_spec.spec import JobSpec

    try:
        return JobSpec.from_json(spec).machine_parameters
    except TradewindError:
        return MachineParameters()


def several_valued(spec: Mapping[str, Any], names: Collection[str]) -> list[str]:
    """Pick the parameters for which a specification declares more than one value.

    Instances are not among them: how many there are, only their catalogue says.

    Args:
        spec: The document of `StudyRow.spec`.
        names: Names of parameters.

    Returns:
        Their names in the order of the specification; empty where it cannot be read any more.
    """
    from tradewind.problem.job_spec.spec import JobSpec

    if not names:
        return []
    try:
        declared = [
            one for one in JobSpec.from_json(spec).parameters if one.name in names and one.parameter is not None
        ]
    except TradewindError:
        return []
    return [one.name for one in declared if one.parameter is not None and _several(one.parameter)]


def _several(parameter: Parameter) -> bool:
    levels = parameter.levels
    return levels is None or len(levels) > 1


@dataclass(frozen=True)
class ParameterColumn:
    """The values of one parameter over all trials.

    Attributes:
        name: The parameter's name.
        values: Its value in each trial, None where it was not active; shape (trials,).
    """

    name: str
    values: NDArray[np.object_]

    @cached_property
    def active(self) -> Mask:
        """Mask of the trials in which the parameter had a value."""
        return np.array([value is not None for value in self.values], dtype=bool)

    @cached_property
    def numbers(self) -> Floats | None:
        """The values as numbers, NaN where not active; None for a parameter that is not a number."""
        kinds = {type(value) for value in self.values} - {type(None)}
        if not kinds or not kinds <= {int, float}:
            return None
        return np.array(self.values, dtype=float)


@dataclass(frozen=True)
class StudyData:
    """All results of a study, by column. Row i of every array is the i-th trial by number.

    Attributes:
        summary: The stored totals of the study as a whole.
        goal: Objective, constraints and budget.
        number: Trial numbers.
        nodes: Machines of each trial.
        feasible_flag: True where every constraint held.
        configurations: Each trial's configuration as JSON text.
        floats: ``objective``, ``cost`` (USD this run), ``runtime`` (s), ``spent`` (USD total of the trial),
            ``fidelity`` (share of the input), ``price_per_hour`` (USD per node), ``created``, ``started``, ``ended``
            (s since the epoch); NaN if unknown.
        words: ``state``, ``key``, ``provider``, ``instance_type``.
        best: The best feasible trial, or None.
        reasons: Why trials failed, were aborted or are infeasible, by trial number; not for every trial where there
            are many.
        early: True for each trial that was stopped early.
        extra: The other metrics that objectives and bounds name, by name; NaN where a trial has none.
        code: Versions of the program that trials ran, where they are known.
        taken: Runs whose places another tenant of the cluster got.
        last_expected: What the searcher expected of the last trial that it chose by its model, or None.
    """

    summary: StudySummary
    goal: StudyGoal
    number: NDArray[np.int64]
    nodes: NDArray[np.int64]
    feasible_flag: Mask
    configurations: Sequence[str]
    floats: Mapping[str, Floats]
    words: Mapping[str, Texts]
    best: Trial | None = None
    reasons: Mapping[int, str] = field(default_factory=dict)
    extra: Mapping[str, Floats] = field(default_factory=dict)
    early: Mask = field(default_factory=lambda: np.zeros(0, dtype=bool))
    code: Sequence[CodeVersion] = ()
    taken: Sequence[Run] = ()
    last_expected: TrialWorth | None = None

    @classmethod
    def load(cls, store: Store, study_id: int, also: Sequence[Objective] = ()) -> StudyData:
        """Read a study; 100,000 trials take well under a second once the store has given its columns.

        Args:
            store: An open store.
            study_id: The study's number in it.
            also: Further objectives to report on, instead of those that the study names.

        Raises:
            StudyNotFoundError: There is no such study.
        """
        summary = store.summaries([store.study(study_id).id])[0]
        columns = store.columns(study_id)
        goal = read_goal(summary.study.spec)
        if also:
            goal = replace(goal, objective=replace(goal.objective, also=tuple(also)))
        data = cls(
            summary=summary,
            goal=goal,
            number=np.array(columns["number"], dtype=np.int64),
            nodes=np.array([value or 1 for value in columns["nodes"]], dtype=np.int64),
            feasible_flag=np.array(columns["feasible"], dtype=bool),
            configurations=columns["configuration"],
            floats={name: np.array(columns[name], dtype=float) for name in _NUMBERS},
            words={name: np.array([str(value or "") for value in columns[name]], dtype=str) for name in _WORDS},
        )
        data = replace(data, extra=_extra(store, study_id, data))
        best = None
        if data.best_row is not None:
            number = int(data.number[data.best_row])
            known = summary.best
            same = known is not None and known.number == number
            best = known if same else store.trials(study_id, since=number, limit=1)[0]
        reasons = _reasons(store, study_id, data)
        early = _early(store, study_id, data)
        code = store.code_versions(study_id)
        data = replace(data, best=best, reasons=reasons, early=early, code=code, taken=store.taken_runs(study_id))
        return replace(data, last_expected=_last_expected(store, study_id, data))

    @property
    def study(self) -> StudyRow:
        """The study's row."""
        return self.summary.study

    @property
    def unpaid(self) -> bool:
        """True where the search ended before its first trial since the budget pays none."""
        reason = self.study.reason
        money = " pay " in reason or "afford" in reason  # there may be nothing that is sold, too
        return not len(self) and self.goal.budget.dollars is not None and money

    def __len__(self) -> int:
        return len(self.number)

    # ------------------------------------------------------------------ columns

    @property
    def objective(self) -> Floats:
        """The objective's value; NaN where there is none."""
        return self.floats["objective"]

    @property
    def cost(self) -> Floats:
        """USD of each trial's run."""
        return self.floats["cost"]

    @property
    def runtime(self) -> Floats:
        """Seconds of each trial's run."""
        return self.floats["runtime"]

    @property
    def spent(self) -> Floats:
        """USD over all runs of each trial; 0 where nothing is known."""
        return np.nan_to_num(self.floats["spent"])

    @property
    def states(self) -> Texts:
        """Each trial's state."""
        return self.words["state"]

    @cached_property
    def loss(self) -> Floats:
        """The objective as something to minimise."""
        return self.objective if self.goal.objective.goal == "minimise" else -self.objective

    # ------------------------------------------------------------------ which trials

    def having(self, *states: TrialState) -> Mask:
        """Mask of the trials that are in one of some states."""
        mask: Mask = np.isin(self.states, [state.value for state in states])
        return mask

    @cached_property
    def ended(self) -> Mask:
        """Trials that will not change any more."""
        return ~self.having(TrialState.PENDING, TrialState.RUNNING)

    @cached_property
    def measured(self) -> Mask:
        """Trials on the whole input that ran to their end and have a value, feasible or not."""
        mask: Mask = self.having(TrialState.SUCCEEDED) & np.isfinite(self.objective) & self.whole
        return mask

    @cached_property
    def whole(self) -> Mask:
        """Trials on the whole input; what a part of it costs says nothing of who is the best."""
        mask: Mask = self.floats["fidelity"] >= 1.0
        return mask

    @cached_property
    def feasible(self) -> Mask:
        """Measured trials on the whole input that kept every constraint."""
        mask: Mask = self.measured & self.feasible_flag
        return mask

    @cached_property
    def infeasible(self) -> Mask:
        """Trials, also on a part of the input, that ran to their end and broke a constraint."""
        mask: Mask = self.having(TrialState.SUCCEEDED) & ~self.feasible_flag
        return mask

    @cached_property
    def ranking(self) -> NDArray[np.int64]:
        """Rows of the feasible trials, the best first; equal ones by run time, then by number.

        Where repeated runs vary, those of a configuration stand together, the usual one of them first.
        """
        rows = np.flatnonzero(self.feasible)
        order: NDArray[np.int64] = rows[np.lexsort((self.number[rows], self.runtime[rows], self.loss[rows]))]
        if self.standing is None or not self.standing.varies:
            return order
        place_of = {self.standing.runs[place][0].key: rank for rank, place in enumerate(self.standing.order.tolist())}
        ranks = np.array([place_of[str(key)] for key in self.words["key"][order]], dtype=int)
        away = self.standing.away(self.loss[order], self.standing.order[ranks])
        return order[np.lexsort((self.number[order], away, ranks))]

    @cached_property
    def standing(self) -> ConfigurationRanking | None:
        """Ranking of the configurations by their repeated runs; None where none was run again."""
        if not self.repeated:
            return None
        rows = self._informing
        columns = (
            self.number[rows],
            self.words["key"][rows],
            self.loss[rows],
            np.nan_to_num(self.runtime[rows]),
            self.feasible[rows],
            self.having(TrialState.ABORTED)[rows],
        )
        bounds = self.goal.constraints.thresholds
        figures = np.array([self.metric(bound.metric)[rows] for bound in bounds]).reshape(len(bounds), len(rows)).T
        measured = (
            MeasuredRun(number, key, loss, runtime, feasible, aborted, tuple(own))
            for number, key, loss, runtime, feasible, aborted, own in zip(
                *(column.tolist() for column in (*columns, figures)), strict=True
            )
        )
        return ConfigurationRanking(measured, self.goal.objective, self.goal.constraints)

    @cached_property
    def repeated(self) -> bool:
        """True when a configuration was run several times on the whole input."""
        keys = self.words["key"][self._informing]
        return len(np.unique(keys)) < len(keys)

    @cached_property
    def _informing(self) -> NDArray[np.intp]:
        """Rows of the trials on the whole input that say something of their configuration."""
        return np.flatnonzero(self.whole & self.having(*(state for state in TrialState if state.informs)))

    def metric(self, name: str) -> Floats:
        """A metric of all trials; NaN where a trial has none, or where it was not read."""
        if name in self.extra:
            return self.extra[name]
        if name == self.goal.objective.metric:
            return self.objective
        return self.floats[name] if name in (COST, RUNTIME) else np.full(len(self), np.nan)

    @property
    def best_row(self) -> int | None:
        """The row of the best feasible trial, or None."""
        return int(self.ranking[0]) if len(self.ranking) else None

    @cached_property
    def baseline_row(self) -> int | None:
        """The row of the configuration that the user uses today; None where the job names none, or it was not tried."""
        from tradewind.problem.job_spec.spec import JobSpec

        if not goal_document(self.study.spec).get("baseline"):
            return None
        try:
            spec = JobSpec.from_json(self.study.spec)
        except TradewindError:
            return None
        return next((row for row in np.flatnonzero(self.whole).tolist() if spec.is_baseline(self.decoded[row])), None)

    def usual(self, row: int) -> float:
        """The objective of a trial; of its configuration's runs on average where repeated runs vary."""
        standing = self.standing
        if standing is not None and standing.varies:
            for place, runs in enumerate(standing.runs):
                if runs[0].key == self.words["key"][row]:
                    return self.goal.objective.loss(float(standing.loss[place]))
        return float(self.objective[row])

    @cached_property
    def by_end(self) -> NDArray[np.int64]:
        """Rows of the ended trials in the order in which they ended."""
        rows = np.flatnonzero(self.ended)
        order: NDArray[np.int64] = rows[np.lexsort((self.number[rows], self.floats["ended"][rows]))]
        return order

    # ------------------------------------------------------------------ configurations

    @cached_property
    def decoded(self) -> list[dict[str, Any]]:
        """Each trial's configuration; decoded once, all texts in one go."""
        document: list[dict[str, Any]] = json.loads("[" + ",".join(self.configurations) + "]")
        return document

    @cached_property
    def parameters(self) -> Mapping[str, ParameterColumn]:
        """The parameters by name, in the order of the configurations."""
        names: dict[str, None] = {}
        for configuration in self.decoded:
            names.update(dict.fromkeys(configuration))
        columns = {}
        for name in names:
            values = np.empty(len(self), dtype=object)
            values[:] = [configuration.get(name) for configuration in self.decoded]
            columns[name] = ParameterColumn(name, values)
        return columns

    def configuration(self, row: int) -> dict[str, Any]:
        """The configuration of one row."""
        document: dict[str, Any] = json.loads(self.configurations[row])
        return document

    @cached_property
    def machine_parameters(self) -> MachineParameters:
        """The parameters that choose machines."""
        return machine_parameters(self.study.spec)

    def offer(self, row: int) -> Offer:
        """The machines of one row, as far as the columns have them: provider, type, price and number."""
        provider, kind = str(self.words["provider"][row]), str(self.words["instance_type"][row])
        price = float(self.floats["price_per_hour"][row])
        return Offer(provider, kind, math.nan, math.nan, price, nodes=int(self.nodes[row]))

    def words_of(self, row: int) -> str:
        """The configuration of one row, behind its machines where it does not name them by itself."""
        return configuration_words(self.configuration(row), self.offer(row), self.machine_parameters)

    @cached_property
    def space_size(self) -> int | None:
        """Number of configurations in the space; None where it is infinite or not known any more."""
        return space_size(self.study.spec)

    def reason(self, row: int) -> str:
        """Reason that the trial of a row failed, was aborted or is infeasible; empty if not known."""
        return self.reasons.get(int(self.number[row]), "")


def _reasons(store: Store, study_id: int, data: StudyData) -> dict[int, str]:
    """Read the reasons of the trials that matter most, by trial number."""
    reasons: dict[int, str] = {}
    for row in _rows_to_explain(data):
        number = int(data.number[row])
        found = store.trials(study_id, since=number, limit=1)
        if found and found[0].number == number and found[0].observation is not None:
            reasons[number] = found[0].observation.reason
    return {number: text for number, text in reasons.items() if text}


def _extra(store: Store, study_id: int, data: StudyData) -> dict[str, Floats]:
    """Read the metrics of further objectives and of bounds, which are in no column: all trials are read for them.

    Those of bounds matter only where a configuration was run again.
    """
    main = data.goal.objective
    bounds = data.goal.constraints.thresholds if data.repeated else ()
    wanted = [*(other.metric for other in main.also), *(bound.metric for bound in bounds)]
    names = set(wanted) - {COST, RUNTIME, main.metric}
    found = {name: np.full(len(data), np.nan) for name in sorted(names)}
    since = 0
    while found and (page := store.trials(study_id, since=since, limit=_PAGE)):
        places = np.searchsorted(data.number, [trial.number for trial in page])
        for place, trial in zip(places, page, strict=True):
            # A trial that was stored since the columns were read is not among them.
            if trial.observation is not None and place < len(data) and data.number[place] == trial.number:
                for name, column in found.items():
                    column[place] = trial.observation.metrics.get(name, np.nan)
        since = page[-1].number + 1
    return found


def _last_expected(store: Store, study_id: int, data: StudyData) -> TrialWorth | None:
    """Read what the searcher expected of the last trial; None where it has no model that says so."""
    if not len(data):
        return None
    found = store.trials(study_id, since=int(data.number[-1]), limit=1)
    why = found[0].proposal.why if found else {}
    saving, spend = why.get("expected_saving", why.get("expected_improvement")), why.get("expected_spend")
    if not isinstance(saving, float) or not isinstance(spend, float) or not math.isfinite(saving + spend):
        return None
    return TrialWorth(saving, spend)


def _early(store: Store, study_id: int, data: StudyData) -> Mask:
    """Mask of the trials that were stopped early; only their reason says so, so all trials are read for it."""
    mask = np.zeros(len(data), dtype=bool)
    job = data.study.spec.get("job")
    if not isinstance(job, Mapping) or not job.get("early_stop"):
        return mask
    since = 0
    while page := store.trials(study_id, since=since, limit=_PAGE):
        mask |= np.isin(data.number, [trial.number for trial in page if trial.stopped_early])
        since = page[-1].number + 1
    return mask


def _rows_to_explain(data: StudyData) -> Iterable[int]:
    """Rows whose reasons are worth a question each: the last failures, losses and aborted ones, the nearest misses."""
    lost = np.flatnonzero(data.having(TrialState.LOST))[-_REASONS // 3 :]
    failed = np.flatnonzero(data.having(TrialState.FAILED))[-_REASONS // 3 :]
    infeasible = np.flatnonzero(data.infeasible)
    nearest = infeasible[np.lexsort((data.loss[infeasible], ~data.whole[infeasible]))][: _REASONS // 3]
    aborted = np.flatnonzero(data.having(TrialState.ABORTED))[-_REASONS // 3 :]
    return (int(row) for row in np.concatenate([failed, lost, nearest, aborted]))
