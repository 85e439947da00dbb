"""The contract of searchers: capabilities, questions, answers and the base class."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import ConfigurationError, NoOfferError
from tradewind.plugins import Capability, Plugin, Settings
from tradewind.problem import Candidates, Configuration, Offer, Problem, Proposal, Trial
from tradewind.searcher.stopping import ALL_TRIED, ends_by_money, why_stop, worth_of_history
from tradewind.utils.units import format_money


class ProposesMany(Capability):
    """Proposes several configurations at once that do not get in each other's way."""


class IgnoresResults(Capability):
    """Proposes the same whatever runs have measured: workers that share a study may have it propose long before."""


class ContinuousSpaces(Capability):
    """Works on spaces that cannot be listed."""


class LearnsFromAborted(Capability):
    """Uses an aborted trial as the right-censored observation that it is."""


class Explains(Capability):
    """Says what it expects of each proposal (`Proposal.why`)."""


class PricesAborts(Capability):
    """Chooses the cost or time at which a run is cut short."""


class LearnsFromPast(Capability):
    """Uses what earlier studies measured (`Problem.past`); only then does the engine read them."""


class UsesFractions(Capability):
    """Runs parts of the input (`Proposal.fidelity`) and concludes on the whole."""


class ContinuesTrials(Capability):
    """Has trials go on from checkpoints of ended ones (`Proposal.origin`), which are kept for that."""

    def origins(self, state: SearchState) -> Sequence[int] | None:
        """List the ended trials that a later proposal may begin at, the likeliest first; None where any of them may.

        The checkpoints of all others are removed. None by default.

        Args:
            state: Pending trials and remaining budget.
        """
        return None


class Repeats(Capability):
    """Runs a configuration again (`Proposal.repeat`) where that tells more for its money than a new one."""


class WeighsFutureRuns(Capability):
    """Ends once no trial pays for itself over the job's future runs, where cost is minimised (`Terms.future_runs`)."""


class Concludes(Capability):
    """Ends by itself once its method has its answer, with configurations left untried."""


class LetsRunsEnd(Capability):
    """Lets runs go to their end, as published: ``abort`` of the job is false unless the job says otherwise."""


@dataclass(frozen=True, slots=True)
class MapPoint:
    """Predicted cost and time of one configuration: a point of the map of cost against time.

    Attributes:
        configuration: Values by parameter.
        cost: USD expected of a whole run.
        cost_p90: USD that one in ten runs is expected to exceed, or None where the model does not say.
        time: Seconds expected of a whole run.
        time_p90: Seconds that one in ten runs is expected to exceed, or None.
        in_time: True where the deadline is expected to be met.
        trial: Number of the trial that ran it on the whole input, or None.
    """

    configuration: Configuration
    cost: float
    cost_p90: float | None
    time: float
    time_p90: float | None
    in_time: bool
    trial: int | None = None


class MapsAll(Capability):
    """Predicts cost and time of all configurations at once (`predict_map`)."""

    @abstractmethod
    def predict_map(self) -> Sequence[MapPoint]:
        """Predict every configuration, the best first; empty as long as nothing can be predicted."""

    def map_basis(self) -> str:
        """Name the runs and the models behind the predictions, in a sentence for the user; empty by default."""
        return ""


WIDEST_RANGE = 100.0
"""Highest by lowest of a range that says something; what is wider is shown as not known yet."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A configuration for the present job parameters, and what is expected of it.

    Attributes:
        configuration: Values by parameter.
        cost: Expected USD of a full run.
        cost_low: 5 % quantile of it.
        cost_high: 95 % quantile of it.
        runtime: Expected seconds.
        runtime_low: 5 % quantile of it.
        runtime_high: 95 % quantile of it.
        probability_feasible: Probability that the run succeeds, in time and within every bound.
        reason: The runs that it rests on, in a few words.
        objective: Expected value of the job's objective where that is neither cost nor run time; None if nothing is
            known of it.
        objective_low: 5 % quantile of it.
        objective_high: 95 % quantile of it.
    """

    configuration: Configuration
    cost: float
    cost_low: float
    cost_high: float
    runtime: float
    runtime_low: float
    runtime_high: float
    probability_feasible: float
    reason: str = ""
    objective: float | None = None
    objective_low: float | None = None
    objective_high: float | None = None

    @property
    def known(self) -> bool:
        """True where time and objective are known at all: their 90 % ranges are no wider than `WIDEST_RANGE`."""
        ranges = [(self.runtime_low, self.runtime_high)]
        if self.objective_low is not None and self.objective_high is not None and self.objective_low > 0:
            ranges.append((self.objective_low, self.objective_high))
        return all(high <= WIDEST_RANGE * low for low, high in ranges)


@dataclass(frozen=True, slots=True)
class PastRunPoint:
    """A past run as it would have been with the present job parameters.

    Attributes:
        configuration: Values by parameter.
        offer: Machines that it ran on.
        runtime: Seconds; those of a run with other job parameters are moved to the present ones by the model.
        cost: USD, likewise.
        same: True where it had the present job parameters, apart from what does not matter: nothing was moved.
        distance: How far it was from the best configuration for its own job parameters: 0 for the best, 1 for the
            worst; None where the objective is neither time nor cost.
    """

    configuration: Configuration
    offer: Offer
    runtime: float
    cost: float
    same: bool
    distance: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PredictedSpace:
    """Predictions of all configurations for the present job parameters, and the runs that they rest on.

    Attributes:
        configurations: The configurations; a sample of them where they cannot be listed.
        offers: Machines of each.
        runtime: Expected seconds, 5 % and 95 % quantile of each, shape (n, 3).
        cost: USD likewise.
        rank: Place of each by preference, 0 for the best, shape (n,).
        known: Where the prediction says something at all; see `Recommendation.known`.
        runs: The runs in the order in which they ended.
    """

    configurations: Sequence[Configuration]
    offers: Sequence[Offer]
    runtime: NDArray[np.float64]
    cost: NDArray[np.float64]
    rank: NDArray[np.intp]
    known: NDArray[np.bool_]
    runs: Sequence[PastRunPoint]


class Recommends(Capability):
    """Says which configurations are best, with time and cost, from what is known and without a run."""

    @abstractmethod
    def recommend(self, count: int) -> list[Recommendation]:
        """Rank the best configurations for the present job parameters, the best first.

        Args:
            count: Largest number of recommendations.

        Returns:
            From 1 to ``count``, whether or not they were tried; an empty list where nothing is known.
        """

    def worth_trying(self) -> Recommendation | None:
        """Recommend a configuration to learn from: one whose run is worth more to later runs than it costs.

        None where the best known is it already, or where the searcher does not weigh that; None by default.
        """
        return None

    def extremes(self) -> Mapping[str, Recommendation]:
        """Recommend the ``cheapest`` and the ``fastest`` that are likely to be feasible; empty by default."""
        return {}

    def predicted_space(self) -> PredictedSpace | None:
        """Predict all configurations at once, for a chart; None where nothing is known, and by default."""
        return None

    def fitted(self) -> Mapping[str, Any]:
        """Save the hyper-parameters of the model (scales, which inputs matter) as a JSON-able document.

        It changes little from one run to the next: `refit` takes it where an answer is wanted at once.
        """
        return {}

    def refit(self, document: Mapping[str, Any]) -> None:
        """Take over what `fitted` of the same job gave, for other parameters or a few runs more; before anything else.

        What does not belong to this job is ignored.
        """

    def basis(self) -> list[str]:
        """List what the recommendations rest on, one sentence each, for the user; empty by default.

        Where the objective's value is not predicted, the list also says what they are ranked by.
        """
        return []


@dataclass(frozen=True, slots=True)
class RunPrediction:
    """Prediction of one run by a searcher's model.

    Attributes:
        chance: Probability that the run brings what the search is after: the target where there is one, otherwise a
            feasible result better than the best so far.
        seconds: Expected run time, until it is cut short if it will be; None where the model does not say.
    """

    chance: float
    seconds: float | None = None


class PredictsRuns(Capability):
    """Says how likely a run is to bring what the search is after, and how long it takes (`predict_run`)."""

    @abstractmethod
    def predict_run(self, configuration: Configuration, target: float | None = None) -> RunPrediction | None:
        """Predict a full run from all trials so far; None as long as the model cannot.

        It changes nothing: later proposals do not depend on it.

        Args:
            configuration: Values by parameter of the run in question.
            target: Loss at which the search is over, if there is one; smaller is better.
        """


@dataclass(frozen=True, slots=True)
class SearchState:
    """Pending trials and remaining budget, as the engine passes them to `Searcher.ask`.

    Attributes:
        pending: Trials that were proposed and have not ended, by number.
        proposed: Trials proposed so far, ended ones included.
        money_left: USD that are neither spent nor reserved, or None without a budget in dollars.
        trials_left: Trials that may still be proposed, or None.
        seconds_left: Seconds on the wall clock, or None.
    """

    pending: Sequence[Trial] = ()
    proposed: int = 0
    money_left: float | None = None
    trials_left: int | None = None
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class NothingLeft:
    """A searcher's answer when it has nothing to propose.

    Attributes:
        reason: Why the search ends or waits, in words for the user.
        final: False when it only waits for a pending trial.
    """

    reason: str
    final: bool = True


GREATEST_FIGURE = 1e100
"""Models square figures, add them up and multiply them: larger ones would be more than a float can hold."""


def bounded_figures(trial: Trial) -> Trial:
    """A trial with its objective and metrics within ±`GREATEST_FIGURE`; what is no finite number stays as it is.

    Args:
        trial: The trial as it ended.
    """
    seen = trial.observation
    if seen is None:
        return trial
    figures = [*seen.metrics.values(), *(() if seen.objective is None else (seen.objective,))]
    if not any(math.isfinite(figure) and abs(figure) > GREATEST_FIGURE for figure in figures):
        return trial
    objective = None if seen.objective is None else bounded_figure(seen.objective)
    metrics = {name: bounded_figure(figure) for name, figure in seen.metrics.items()}
    return replace(trial, observation=replace(seen, objective=objective, metrics=metrics))


def bounded_figure(figure: float) -> float:
    """A figure within ±`GREATEST_FIGURE`; NaN and the infinities as they are."""
    return max(-GREATEST_FIGURE, min(GREATEST_FIGURE, figure)) if math.isfinite(figure) else figure


class Searcher(Plugin, ABC):
    """Proposes configurations and learns from trials.

    A searcher is a function of its problem, its seed and the trials passed to `tell`; the order of telling does not
    matter. It draws random numbers from `rng` only, so that the same question gets the same answer in another
    process. Lost trials are never passed to `tell`.

    Args:
        settings: An instance of the class's ``Settings``.
        problem: The tuning problem: space, objective, constraints, prices and earlier studies.
        seed: Any integer; equal seeds give equal proposals.
    """

    def __init__(self, *, settings: Settings, problem: Problem, seed: int = 0) -> None:
        self.settings = settings
        self.problem = problem
        self.seed = seed
        self._told: dict[int, Trial] = {}
        self._told_keys: set[str] = set()
        self._unplaced: list[Trial] = []  # trials since the candidates were last looked through

    weighs_by_default: ClassVar[bool] = True
    """False for searchers that end by their own rule: further trials are weighed only where the job says so."""

    @classmethod
    def abort_by_default(cls, settings: Mapping[str, Any]) -> bool:
        """Decide the job's ``abort`` where the job does not say: false for those that let runs end.

        Args:
            settings: What the job says of the searcher; a setting ``abort`` that is true asks for aborts.
        """
        return not issubclass(cls, LetsRunsEnd) or settings.get("abort") is True

    @property
    def weighs(self) -> bool:
        """True where a search may end because its next trial does not pay for itself."""
        return ends_by_money(self.problem) or bool(self.problem.terms.least_improvement)

    @property
    def aborts(self) -> bool:
        """True when the searcher itself cuts runs short; its setting ``abort`` or the job may forbid it."""
        wanted = bool(getattr(self.settings, "abort", True))
        return isinstance(self, PricesAborts) and wanted and self.problem.terms.abort

    @abstractmethod
    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """Propose up to ``count`` configurations.

        None of them is among the ended or the pending trials, or among each other (by trial key), but those that are
        marked ``repeat``: where the settings ask for repetitions, or the searcher `Repeats`. Asking twice without
        telling gives the same answer twice.

        Args:
            state: Pending trials, and the money, trials and time that are left.
            count: Largest number of proposals; at least 1.

        Returns:
            From 1 to ``count`` proposals, or why there is none.
        """

    def tell(self, trial: Trial) -> None:
        """Learn from a trial that succeeded, failed or was aborted; telling it again changes nothing.

        Figures beyond ±`GREATEST_FIGURE` are taken for these: models square them, and compare their sums.
        """
        if trial.state.informs:
            trial = bounded_figures(trial)
            if trial.number not in self._told:
                self._unplaced.append(trial)
            self._told[trial.number] = trial
            self._told_keys.add(trial.key)

    @property
    def history(self) -> list[Trial]:
        """All trials passed to `tell`, by number."""
        return [self._told[number] for number in sorted(self._told)]

    def rng(self, state: SearchState) -> np.random.Generator:
        """Random numbers for one call of `ask`: they depend on the seed and on the trials proposed so far."""
        return np.random.default_rng([self.seed & 0xFFFFFFFF, state.proposed])

    def taken(self, state: SearchState) -> set[str]:
        """Trial keys that must not be proposed again."""
        return self._told_keys.union(trial.key for trial in state.pending)

    def sold(self, configuration: Configuration) -> bool:
        """False for a configuration of a study that went on after the space, or what is sold, has changed."""
        try:
            self.problem.resolver.resolve(self.problem.space.check(configuration))
        except (ConfigurationError, NoOfferError):
            return False
        return True

    def affordable(self, state: SearchState, hourly: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Mask the prices per hour at which the money left pays the smallest bill; of the shape of ``hourly``."""
        if state.money_left is None:
            return np.ones(len(hourly), dtype=bool)
        return self.smallest_bill(hourly) <= state.money_left

    def smallest_bill(self, hourly: NDArray[np.float64]) -> NDArray[np.float64]:
        """USD that a run costs at least, set-up included, by USD per hour; of the shape of ``hourly``."""
        return hourly * self.problem.terms.billing.shortest_billed / 3600.0

    def open_candidates(self, state: SearchState) -> tuple[Candidates, NDArray[np.intp]]:
        """The candidates of an enumerable space, and the indices of those neither taken nor too dear, in order."""
        candidates = self.problem.candidates
        free = self.affordable(state, candidates.hourly) & ~self._begun(state)
        return candidates, np.flatnonzero(free)

    @cached_property
    def _placed(self) -> NDArray[np.bool_]:
        """Mask of the candidates that ended on the whole input, of the trials that `_begun` has looked up."""
        return np.zeros(len(self.problem.candidates), dtype=bool)

    def _begun(self, state: SearchState) -> NDArray[np.bool_]:
        """Mask of the candidates that have ended, or are pending, on the whole input."""
        # A long study has thousands of trials: each is looked up once, not at each question.
        for trial in self._unplaced:
            self._place(self._placed, trial)
        self._unplaced.clear()
        begun = self._placed.copy()
        for trial in state.pending:
            self._place(begun, trial)
        return begun

    def _place(self, mask: NDArray[np.bool_], trial: Trial) -> None:
        place = self.problem.candidates.index(trial.configuration)
        if place is not None and trial.proposal.fidelity == 1.0:
            mask[place] = True

    def nothing_left(self, state: SearchState) -> NothingLeft:
        """Explain that no candidate is open, as the answer of `ask`; it is not final while trials are pending."""
        waits = f", {len(state.pending)} of them still running" if state.pending else ""
        reason = f"{ALL_TRIED}{waits}"
        if self.problem.space.enumerable:
            if not self._begun(state).all():
                reason = f"the {format_money(state.money_left)} left do not pay the smallest bill of any untried one"
                if state.pending:
                    reason += ", unless a running trial gives some back"
        else:
            reason = f"no further configuration was found that is allowed, sold and affordable{waits}"
        return NothingLeft(reason, final=not state.pending)

    def why_stop(self, state: SearchState) -> str | None:
        """The reason to end the search before it is asked on, in words; None to go on.

        This is the rule for searchers without a model: what the next trial brings is estimated by those so far.
        Searchers that `WeighsFutureRuns` weigh their own expectations when they are asked, by the same rule.
        """
        if isinstance(self, WeighsFutureRuns) or not self.weighs:
            return None  # nothing could end it: of thousands of trials none is looked at
        worth = worth_of_history(self.problem, self.history)
        if worth is None or worth.spend <= 0:
            return None
        return why_stop(self.problem, np.array([worth.saving]), np.array([worth.spend]), worth.best)

    def state(self) -> Mapping[str, Any]:
        """Save what passing all trials to `tell` cannot bring back, as a JSON-able document; usually nothing."""
        return {}

    def restore(self, document: Mapping[str, Any]) -> None:
        """Take back a document that `state` made; all trials are passed to `tell` as well."""

    def explain(self, configuration: Configuration) -> Mapping[str, float | str]:
        """Predict a configuration for the report, figures by name; empty if there is no model."""
        return {}
