"""The Ernest searcher: train on parts of the input, predict the whole table, try the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from pydantic import Field

from tradewind import plugins
from tradewind.errors import SpecError
from tradewind.problem import Configuration, Nodes, Problem, Proposal, Trial, TrialState
from tradewind.searcher.base import (
    Concludes,
    Explains,
    LetsRunsEnd,
    MapPoint,
    MapsAll,
    NothingLeft,
    ProposesMany,
    Searcher,
    SearchState,
    UsesFractions,
)
from tradewind.searcher.ernest.design import ExperimentDesign, TrainingPoint
from tradewind.searcher.ernest.input_scaling_check import InputScaling, TimedRun, check_input_scaling
from tradewind.searcher.ernest.model import ErnestModel, independent_columns, model_terms
from tradewind.searcher.forecast import (
    ForecastVerifier,
    TableForecast,
    aborted_seconds,
    application_settings,
    full_input_runs,
    require_few_settings_combinations,
    require_time_objective,
    successful_seconds,
)
from tradewind.searcher.surrogate.gp import Array
from tradewind.utils.units import count, format_money

_RESERVE = 1.2
"""Times the cost predicted of the best that is kept for its whole run: the published error is below 20 %."""


@dataclass(frozen=True)
class ModelGroup:
    """Candidates of one instance type and one combination of settings: one model.

    Attributes:
        label: Instance type and settings in words.
        rows: Numbers of the candidates.
        nodes: The number of nodes of each.
        cores: Cores of one node.
        per_node: Machines that one node counts for in the model.
        points: The training runs.
    """

    label: str
    rows: Sequence[int]
    nodes: Sequence[int]
    cores: float
    per_node: float
    points: Sequence[TrainingPoint]

    def table(self, points: Sequence[TrainingPoint]) -> Array:
        """The model's terms of some runs, shape (n, 4)."""
        return model_terms(np.array([p.share for p in points]), np.array([p.nodes * self.per_node for p in points]))

    def row(self, nodes: int) -> int:
        """The candidate with so many nodes."""
        return self.rows[self.nodes.index(nodes)]

    def seconds(self, model: ErnestModel, point: TrainingPoint) -> float:
        """Seconds that a model predicts of a training run."""
        return float(model.predict(np.array([point.share]), np.array([point.nodes * self.per_node]))[0])


@dataclass(frozen=True, slots=True)
class GroupFit:
    """Model of one group, fitted to its runs.

    Attributes:
        model: Fitted model, or None without enough runs.
        sign: Check that the times rise with the share; None where no two runs could be compared.
        table: The terms of the runs, shape (n, 4).
    """

    model: ErnestModel | None
    input_scaling: InputScaling | None
    table: Array

    @classmethod
    def of(cls, group: ModelGroup, runs: Sequence[Trial], cut: Sequence[Trial], nodes: str) -> GroupFit:
        """Fit a group's runs.

        Args:
            group: The group.
            runs: Its trials that succeeded, on parts and on the whole.
            cut: Those that were cut short, which say of the share alone.
            nodes: The name of the parameter that is the number of nodes.
        """
        count = np.array([int(trial.configuration[nodes]) for trial in runs], dtype=float)
        share = np.array([trial.proposal.fidelity for trial in runs])
        seconds = np.array([successful_seconds(trial) for trial in runs], dtype=float)
        table, model = model_terms(share, count * group.per_node), None
        if runs and len(independent_columns(table)) >= len(independent_columns(group.table(group.points))):
            model = ErnestModel.fit(share, count * group.per_node, seconds)
        timed = [TimedRun(float(s), int(n), float(t)) for s, n, t in zip(share, count, seconds, strict=True)]
        timed += [
            TimedRun(trial.proposal.fidelity, int(trial.configuration[nodes]), least, cut=True)
            for trial in cut
            if (least := aborted_seconds(trial)) is not None
        ]
        return cls(model, check_input_scaling(timed, group.label), table)

    def missing(
        self, group: ModelGroup, running: Sequence[TrainingPoint], points: Sequence[TrainingPoint]
    ) -> list[TrainingPoint]:
        """The training runs that would be enough for a model; none where there is one.

        Args:
            group: The group.
            running: Pending training runs.
            points: Training runs to choose from, the most informative first.
        """
        known = np.vstack([self.table, group.table(running)])
        rank, most = len(independent_columns(known)), len(independent_columns(group.table(group.points)))
        found: list[TrainingPoint] = []
        for point in points:
            if rank >= most:
                break
            with_it = np.vstack([known, group.table([point])])
            if len(independent_columns(with_it)) > rank:
                known, rank = with_it, rank + 1
                found.append(point)
        return found


class ErnestSettings(plugins.Settings):
    """Settings of Ernest's training runs and of the checks after them."""

    machines: Literal["nodes", "cores"] = Field(
        default="nodes", description="What the model counts as machines: nodes, or the cores of all nodes together."
    )
    types: tuple[str, ...] | None = Field(
        default=None, description="Instance types to train and predict; without it all, the cheapest per core first."
    )
    most_types: int | None = Field(default=None, ge=1, description="Instance types to train at most.")
    training_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Share of the budget (dollars or trials) after which no further instance type is trained, and none "
        "that has a model already. Training ends before, where it would leave no whole run of the predicted best.",
    )
    least_fraction: float = Field(default=0.016, gt=0, lt=1, description="Smallest share of the input to train on.")
    largest_fraction: float = Field(default=0.125, gt=0, lt=1, description="Largest share of the input to train on.")
    fractions: int = Field(default=20, ge=2, le=100, description="Shares to choose from, evenly spaced.")
    partitions: int | None = Field(
        default=None,
        ge=1,
        description="Parts that the whole input is cut into: training gives every core at least one of them.",
    )
    design_budget: float = Field(
        default=10.0,
        gt=0,
        description="Cost of one type's training runs; one on the smallest share with one machine costs 1.",
    )
    most_points: int = Field(default=10, ge=2, description="Training runs for one instance type, at most.")
    most_settings: int = Field(
        default=16, ge=1, description="Combinations of the application's settings, each with models of its own."
    )
    verify: int = Field(default=2, ge=0, description="Whole runs after that of the predicted best.")


class ErnestSearcher(Searcher, ProposesMany, UsesFractions, Explains, MapsAll, Concludes, LetsRunsEnd):
    """Ernest: learns how run time scales from short runs on parts of the input, then tries the predicted best.

    Venkataraman et al., NSDI 2016. For each instance type and combination of settings the model is
    time(s, m) = θ0 + θ1·s/m + θ2·m + θ3·ln m with θ ≥ 0; its training runs are an A-optimal design. Runs on the whole
    input that follow are added to the data. The share of a run is in ``{{ fraction }}`` and ``TRADEWIND_FRACTION``.

    Raises:
        SpecError: The space has no number of nodes, too many settings, or the objective is neither cost nor runtime.
    """

    Settings = ErnestSettings
    weighs_by_default = False
    settings: ErnestSettings

    def __init__(self, *, settings: plugins.Settings, problem: Problem, seed: int = 0) -> None:
        super().__init__(settings=settings, problem=problem, seed=seed)
        require_time_objective(problem, "ernest")
        nodes = [parameter.name for parameter in problem.space.parameters if isinstance(parameter, Nodes)]
        if not nodes:
            raise SpecError(
                "the ernest searcher predicts how time falls with the machines, and the space has no nodes parameter",
                hint="add one of type nodes, or take the searcher gp",
            )
        self._nodes = nodes[0]
        self._fitted: tuple[tuple[int, ...], list[GroupFit]] | None = None
        self._fit_of: dict[int, tuple[tuple[int, ...], GroupFit]] = {}
        if self.settings.least_fraction >= self.settings.largest_fraction:
            raise SpecError("the ernest searcher: least_fraction must be below largest_fraction")
        require_few_settings_combinations(problem, self.settings.most_settings, "ernest", "training runs")

    # ------------------------------------------------------------------ groups

    @cached_property
    def _groups(self) -> list[ModelGroup]:
        """The groups of candidates, one for each model, in the order of training."""
        problem, candidates = self.problem, self.problem.candidates
        members: dict[tuple[str, str], list[int]] = {}
        for row in range(len(candidates)):
            offer = candidates.offer(row)
            if self.settings.types is not None and offer.instance_type not in self.settings.types:
                continue
            own = application_settings(problem, candidates.configuration(row)).key
            members.setdefault((replace(offer, nodes=1).key, own), []).append(row)
        if not members:
            wanted = ", ".join(self.settings.types or ())
            raise SpecError(f"the ernest searcher: no configuration has an instance type of {wanted}")
        kinds = {kind: candidates.offer(rows[0]) for (kind, _), rows in reversed(members.items())}
        dear = {kind: offer.price_per_hour / max(offer.vcpu, 1e-9) for kind, offer in kinds.items()}
        ranked = sorted(kinds, key=lambda kind: (round(dear[kind], 9), min(r[0] for k, r in _of(members, kind))))
        chosen = ranked[: self.settings.most_types]
        groups = [self._group(rows) for kind in chosen for _, rows in _of(members, kind)]
        if not any(group.points for group in groups):
            raise SpecError(
                f"the ernest searcher: no share up to {self.settings.largest_fraction:g} of {self.settings.partitions} "
                "partitions gives every core one",
                hint="raise largest_fraction",
            )
        return groups

    def _group(self, rows: Sequence[int]) -> ModelGroup:
        candidates = self.problem.candidates
        offer, first = candidates.offer(rows[0]), candidates.configuration(rows[0])
        by_nodes: dict[int, int] = {}
        for row in rows:
            by_nodes.setdefault(int(candidates.configuration(row)[self._nodes]), row)
        settings = application_settings(self.problem, first)
        words = ", ".join(f"{name}={value}" for name, value in settings.items())
        per_node = 1.0 if self.settings.machines == "nodes" else max(offer.vcpu, 1e-9)
        return ModelGroup(
            label=f"{offer.instance_type}{f' ({words})' if words else ''}",
            rows=list(by_nodes.values()),
            nodes=list(by_nodes),
            cores=offer.vcpu,
            per_node=per_node,
            points=self._points(tuple(sorted(by_nodes)), offer.vcpu, per_node),
        )

    def _points(self, nodes: tuple[int, ...], cores: float, per_node: float) -> list[TrainingPoint]:
        """The training runs; equal machine counts have equal ones, so each design is made once."""
        place = (nodes, cores if self.settings.partitions is not None else 0.0, per_node)
        if place not in self._designs:
            own = self.settings
            shares = np.linspace(own.least_fraction, own.largest_fraction, own.fractions)
            design = ExperimentDesign(
                [round(float(s), 6) for s in shares], own.design_budget, own.partitions, own.most_points
            )
            self._designs[place] = design.choose(nodes, cores, per_node)
        return self._designs[place]

    @cached_property
    def _designs(self) -> dict[tuple[tuple[int, ...], float, float], list[TrainingPoint]]:
        return {}

    @cached_property
    def _places(self) -> dict[int, int]:
        """The place of each candidate's group."""
        return {row: place for place, group in enumerate(self._groups) for row in group.rows}

    # ------------------------------------------------------------------ asking

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """Propose training runs, type by type; then the predicted best on the whole input, and a few more."""
        hourly = self.problem.candidates.hourly
        if not self.affordable(state, hourly).any():
            answer = self.nothing_left(state)
            return (
                answer
                if self._forecast is not None
                else replace(answer, reason=f"{answer.reason}; {self._untrained(state)}")
            )
        if (reason := self._unmoved()) is not None:
            return NothingLeft(reason, final=not state.pending)
        chosen = self._training(state, count)
        if chosen:
            return chosen
        if any(trial.proposal.fidelity < 1.0 for trial in state.pending):
            return NothingLeft("the training runs have not ended", final=False)
        if (reason := self._unmoved(trained=True)) is not None:
            return NothingLeft(reason, final=not state.pending)
        forecast = self._forecast
        if forecast is None:
            return NothingLeft(self._untrained(state), final=not state.pending)
        return ForecastVerifier(self, forecast, self.settings.verify).ask(state, count)

    def _training(self, state: SearchState, count: int) -> list[Proposal]:
        """Training runs that leave the budget a whole run of what is predicted to be the best."""
        candidates = self.problem.candidates
        payable = self.affordable(state, candidates.hourly)
        taken = self.taken(state)
        chosen: list[Proposal] = []
        begun = {self._place_of(trial) for trial in (*self.history, *state.pending)}
        spent = self._share_is_spent(state)
        trials, money = self._for_training(state)
        for place, group in enumerate(self._groups):
            fit = self._fits[place]
            if spent and (place not in begun or fit.model is not None):
                continue  # what is left pays whole runs
            missing = self._missing(place, state)
            if len(missing) > trials or sum(self._cost(place, point) for point in missing) > money:
                continue  # its runs would end without a model
            # Where money is short, what a run takes is to be known before more is run than a model needs.
            enough = missing if fit.model is None and state.money_left is not None else group.points
            for number, point in enumerate(group.points):
                row = group.row(point.nodes)
                if not payable[row] or candidates.key(row, point.share) in taken or point not in enough:
                    continue
                if trials < 1 or (cost := self._cost(place, point)) > money:
                    continue
                why: dict[str, float | str] = {
                    "stage": f"training run {number + 1} of {len(group.points)} for {group.label}",
                    "fraction": point.share,
                }
                chosen.append(Proposal(candidates.configuration(row), fidelity=point.share, why=why))
                trials, money = trials - 1, money - cost
                if len(chosen) == count:
                    return chosen
        return chosen

    def _missing(self, place: int, state: SearchState) -> list[TrainingPoint]:
        """The training runs that a group's model lacks, besides those on their way."""
        if self._fits[place].model is not None:
            return []
        group, taken = self._groups[place], self.taken(state)
        keys = {point: self.problem.candidates.key(group.row(point.nodes), point.share) for point in group.points}
        under_way = {trial.key for trial in state.pending}
        running = [point for point in group.points if keys[point] in under_way]
        return self._fits[place].missing(group, running, [p for p in group.points if keys[p] not in taken])

    def _for_training(self, state: SearchState) -> tuple[float, float]:
        """Trials, and USD, that training may use: all but those of a whole run of the predicted best."""
        trials = money = math.inf
        if self.problem.budget.trials is not None and state.trials_left is not None:
            trials = state.trials_left - 1
        if state.money_left is not None and (forecast := self._forecast) is not None:
            money = state.money_left - _RESERVE * float(forecast.cost[forecast.order[0]])
        return trials, money

    def _cost(self, place: int, point: TrainingPoint) -> float:
        """USD expected of a training run: by its own model, else by the first there is; 0 as long as there is none."""
        group, fits = self._groups[place], self._fits
        at = place if fits[place].model is not None else next((i for i, f in enumerate(fits) if f.model), None)
        if at is None or (model := fits[at].model) is None:
            return 0.0
        seconds = self._groups[at].seconds(model, point)
        return self.problem.terms.billing.cost(seconds, float(self.problem.candidates.hourly[group.row(point.nodes)]))

    def _share_is_spent(self, state: SearchState) -> bool:
        """True when what training may use up is used up; the first type is trained up to a model all the same."""
        ran = [trial for trial in self.history if trial.proposal.fidelity < 1.0]
        running = sum(trial.proposal.fidelity < 1.0 for trial in state.pending)
        share, budget = self.settings.training_share, self.problem.budget
        if not ran and not running:
            return False
        if budget.dollars is not None and sum(trial.spent for trial in ran) >= share * budget.dollars:
            return True
        return budget.trials is not None and len(ran) + running >= share * budget.trials

    def _place_of(self, trial: Trial) -> int | None:
        """The place of a trial's group."""
        row = self.problem.candidates.index(trial.configuration)
        return None if row is None else self._places.get(row)

    # ------------------------------------------------------------------ learning

    @property
    def _fits(self) -> list[GroupFit]:
        """Fits of the trials so far, by group; only groups with new trials are fitted again."""
        numbers = tuple(trial.number for trial in self.history)
        if self._fitted is None or self._fitted[0] != numbers:
            runs: dict[int, list[Trial]] = {}
            cut: dict[int, list[Trial]] = {}
            for trial in self.history:
                kind = (
                    runs
                    if successful_seconds(trial) is not None
                    else cut
                    if aborted_seconds(trial) is not None
                    else None
                )
                if kind is not None and (place := self._place_of(trial)) is not None:
                    kind.setdefault(place, []).append(trial)
            for place, group in enumerate(self._groups):
                own, short = runs.get(place, []), cut.get(place, [])
                known = tuple(trial.number for trial in (*own, *short))
                if self._fit_of.get(place, (None, None))[0] != known:
                    self._fit_of[place] = known, GroupFit.of(group, own, short, self._nodes)
            self._fitted = numbers, [self._fit_of[place][1] for place in range(len(self._groups))]
        return self._fitted[1]

    def _unmoved(self, *, trained: bool = False) -> str | None:
        """Words for the user when the times of two types (or of all) do not rise with the share of the input.

        Args:
            trained: No further type will be seen: then one suffices where it is sure that it is no start of the job.
        """
        seen = [fit.input_scaling for fit in self._fits if fit.input_scaling is not None]
        if not seen or not all(input_scaling.words for input_scaling in seen):
            return None
        if len(seen) < min(2, len(self._groups)) and not (
            trained and all(input_scaling.sure for input_scaling in seen)
        ):
            return None
        start = "" if seen[0].sure else ", or raise least_fraction where the start of the job takes all the time"
        return (
            f"the job seems to ignore the share of the input: {seen[0].words}; give {{{{ fraction }}}} to the command "
            f"(or read TRADEWIND_FRACTION){start}"
        )

    @property
    def _forecast(self) -> TableForecast | None:
        """Predictions of the candidates whose groups have a model; None where none has."""
        rows: list[int] = []
        seconds: list[float] = []
        for group, fit in zip(self._groups, self._fits, strict=True):
            if fit.model is not None:
                machines = np.array(group.nodes, dtype=float) * group.per_node
                rows += group.rows
                seconds += fit.model.predict(np.ones(len(machines)), machines).tolist()
        return TableForecast(self.problem, np.array(rows), np.array(seconds)) if rows else None

    def _untrained(self, state: SearchState) -> str:
        """Explain that nothing is predicted."""
        budget, needed = self.problem.budget, min(len(self._missing(i, state)) for i in range(len(self._groups)))
        failed = sum(trial.state == TrialState.FAILED for trial in self.history)
        aborted = sum(trial.state == TrialState.ABORTED for trial in self.history)
        if budget.trials is not None and needed and len(self.history) + needed + 1 > budget.trials:
            return (
                f"the budget has {count(budget.trials, 'trial')}, and a model takes {count(needed, 'training run')}"
                f"{' more' if self.history else ''} and a whole run"
            )
        words = (
            f"no instance type has enough training runs for a model: of {len(self.history)}, {failed} failed and "
            f"{aborted} were cut short"
        )
        if budget.dollars is not None:
            spent = format_money(sum(trial.spent for trial in self.history))
            words += f", for {spent} of the {format_money(budget.dollars)} of the budget"
        return words + self._late_parts()

    def _late_parts(self) -> str:
        """Words on the smallest share that took as long as the whole may; empty where none did."""
        deadline = self.problem.constraints.deadline
        late = [t.proposal.fidelity for t in self.history if (aborted_seconds(t) or 0.0) >= (deadline or math.inf)]
        if not late:
            return ""
        return (
            f"; even {min(late):.2%} of the input reached the deadline of the whole: see that the command heeds "
            "{{ fraction }} (or TRADEWIND_FRACTION), or allow more time"
        )

    def predict_map(self) -> Sequence[MapPoint]:
        """Predict every configuration that has a model, the best first."""
        forecast = self._forecast
        return [] if forecast is None else forecast.points(full_input_runs(self.problem.candidates, self.history))

    def map_basis(self) -> str:
        """Name the number of models and of their runs, and the shares of the input."""
        shares = sorted(trial.proposal.fidelity for trial in self.history if trial.proposal.fidelity < 1.0)
        models = sum(fit.model is not None for fit in self._fits)
        if not shares:
            return ""
        runs = count(len(shares), "run")
        return f"Models: {models}, trained by {runs} on {shares[0]:.2%} to {shares[-1]:.2%} of the input"

    def explain(self, configuration: Configuration) -> Mapping[str, float | str]:
        """Expected cost and time of a whole run, and the model."""
        row = self.problem.candidates.index(configuration)
        forecast = self._forecast
        if row is None or forecast is None or row not in forecast.rows:
            return {}
        fit = next(fit for group, fit in zip(self._groups, self._fits, strict=True) if row in group.rows)
        return {**forecast.expected(int(np.flatnonzero(forecast.rows == row)[0])), "model": str(fit.model)}


def _of(members: Mapping[tuple[str, str], list[int]], kind: str) -> list[tuple[str, list[int]]]:
    """The settings and rows of one instance type, in order."""
    return [(own, rows) for (other, own), rows in members.items() if other == kind]
