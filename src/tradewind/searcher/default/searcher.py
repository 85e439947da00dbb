"""The default searcher: as little money as possible until a good configuration is known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tradewind import plugins
from tradewind.problem import COST, Billing, Candidates, Configuration, Problem, Proposal
from tradewind.problem.ranking import ConfigurationRanking
from tradewind.searcher.base import LearnsFromPast, NothingLeft, Repeats, SearchState
from tradewind.searcher.bayesian import BayesianSearcher, BayesianSettings
from tradewind.searcher.candidate_pool import cheap_maximin
from tradewind.searcher.default.posterior import PricedAbortCaps, PricedPosterior, price_trend
from tradewind.searcher.default.transfer import LEAST_RELATEDNESS, TransferPrior, past_jobs
from tradewind.searcher.posterior import AbortCaps, Posterior
from tradewind.searcher.stopping import paying
from tradewind.searcher.surrogate.gp import Array

UNKNOWN_SPREAD = 0.1
"""Standard deviation of ln time that runs are taken to have until one was repeated."""

UNKNOWN_SHARE = 0.15
"""The same of a metric, as a share of the standard deviation between configurations."""

LEAST_GAIN = 0.0001
"""Share of the best by which a repetition must be expected to improve the recommendation."""

_LEAST_STEP = 0.01
"""Change of ln time over which a bill is looked at, where runs hardly vary."""

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(25)
_SHARES = _WEIGHTS / _WEIGHTS.sum()

_SEARCH = "search"
_STARTS_SHARE = 0.5
_BUDGET_SHARE = 0.25
"""Of the budget in dollars: the first run takes no more, unless the deadline is further off."""


class TradewindSettings(BayesianSettings):
    """Settings of the default searcher."""

    beyond: float = Field(
        default=0.25,
        ge=0,
        description="How far a run may go on once it cannot win, as a share of what a good run costs.",
    )
    first_slack: float = Field(
        default=3.0, ge=1, description="Deadlines that the first run may take: it shows what the job needs."
    )
    first_share: float = Field(
        default=0.02,
        gt=0,
        le=1,
        description="Share of the money for trying every candidate up to the deadline that the first run may take.",
    )
    repeats: int = Field(
        default=10, ge=1, description="Runs of one configuration at most; 1 for never running one again."
    )


class TradewindSearcher(BayesianSearcher, LearnsFromPast, Repeats):
    """Weighs what a run may save against what it costs, and cuts it short once its end is not worth its money.

    Three processes, weighed by how well they predicted the runs so far, model ln(price x time) around a linear trend
    (`TrendProcess`): on machines that cost twice as much per hour, a run is expected to cost about 2^0.4 times as
    much, until the runs say otherwise. That prior makes the cheapest machines the natural beginning and lets the
    process extrapolate after two or three runs.

    - **Scores** of machines, where the offers have any, say which vCPUs are quicker (`MachineSpeed`): each of the three
      processes is there twice then, with and without a slope along them, and the runs decide between these.
    - **First run**: the cheapest configuration by the hour, allowed to go beyond the deadline. It costs little,
      and how far it is from the deadline shows how much more machine the job needs. Where it fails
      and there is a deadline, the next one is what is best by the prior alone, among those that are not too much like
      it.
    - **Then** the candidate whose expected saving is largest for the money it is expected to take: the exact
      expected improvement under the deadline over the expected spend (`acquisition.expected_saving`,
      `acquisition.expected_spend`), set-up time, minimum billing and abort included. Until something has worked the
      saving is measured against the cost that is typical of all candidates.
    - **Aborts are priced**: a run that cannot win any more goes on for a quarter of what a good run costs (`beyond`),
      because its end teaches more than a bound does; after that the money is better spent on another run. Runs that
      were cut short enter the model as lower bounds (`fit_censored`).
    - **Earlier jobs** of the store that ran on the same machines give other processes (`TransferPrior`): their common
      pattern as the mean, their differences as the covariance, once, twice or four times as wide, by how well each of
      these predicted this job's runs. Whichever predicted them better, these or the ones above, decides; where the
      earlier jobs resemble one another, theirs choose the first run as well. Jobs that do not predict one another are
      left alone (`relatedness`).
    - **Repetitions**: a configuration is run again where that is expected to improve what is recommended by more for
      its money than any new one (`repetition_gains`). The first repetition shows whether runs vary at all; where they
      do not, none follows. Where they do, the best is judged by all runs of a configuration (`ConfigurationRanking`).
    - **It stops**, where the job says how often it will run (``future_runs`` N), once N times the expected saving of
      every candidate is below its expected spend (Xie et al., "Cost-aware stopping for Bayesian optimization", 2025).
    """

    Settings = TradewindSettings
    settings: TradewindSettings

    def __init__(self, *, settings: plugins.Settings, problem: Problem, seed: int = 0) -> None:
        super().__init__(settings=settings, problem=problem, seed=seed)
        self._stood: tuple[tuple[int, ...], ConfigurationRanking] | None = None

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """Propose the candidates that promise most for their money, and repetitions that promise more."""
        answer = super().ask(state, count)
        chosen = [] if isinstance(answer, NothingLeft) else answer
        if self.settings.repeats == 1 or any(one.why.get("stage") != _SEARCH for one in chosen[:1]):
            return answer
        again = self._again(state, _rate(chosen[0]) if chosen else 0.0)
        return answer if again is None else [again, *chosen][:count]

    def _again(self, state: SearchState, rate: float) -> Proposal | None:
        """Propose a repetition, where one is worth more a dollar than the ``rate`` of a new configuration."""
        standing, objective = self._standing, self.problem.objective
        least = standing.best_loss
        if standing.best is None or least is None or (standing.repeated and not standing.worth_repeating):
            return None
        if not standing.repeated and any(trial.proposal.repeat for trial in state.pending):
            return None  # whether runs vary is being found out
        running = Counter(trial.key for trial in state.pending)
        trials = [self._told[runs[0].number] for runs in standing.runs]
        hourly = np.array([self._map.today(trial.configuration, trial.offer).hourly for trial in trials])
        seconds = np.exp(standing.log_time)
        spend = np.array(self.problem.terms.billing.costs(seconds, hourly))
        moved = np.full(len(trials), float(objective.grows_with_time))
        if objective.grows_with_time and objective.metric == COST:
            moved = bill_elasticities(self.problem.terms.billing, seconds, hourly, standing.spread)
        times = standing.times + np.array([running[trial.key] for trial in trials])
        gain = repetition_gains(standing, times, moved)
        worth = (times < self.settings.repeats) & (gain >= LEAST_GAIN * abs(least)) & self._pays(gain, spend, least)
        worth &= np.array([self.sold(trial.configuration) for trial in trials])
        posterior = self._current_posterior()
        if self.aborts and isinstance(posterior, PricedPosterior):
            # One that would be cut short shows nothing of how runs vary.
            worth &= seconds <= self._stop_seconds(posterior, hourly)
        if state.money_left is not None:
            worth &= spend <= state.money_left
        score = np.where(worth, gain / np.maximum(spend, 1e-12), 0.0)
        place = int(np.argmax(score))
        # A new one that looks better is not known to be better before it has run as often as the best.
        if score[place] * standing.times[standing.best] <= rate:
            return None
        why: dict[str, float | str] = {
            "stage": f"run {times[place] + 1:.0f} of this configuration",
            "expected_cost": float(spend[place]),
            "expected_spend": float(spend[place]),
            "expected_saving" if objective.metric == COST else "expected_improvement": float(gain[place]),
        }
        return replace(self._capped(trials[place].configuration, posterior, why), repeat=True)

    def _pays(self, gain: Array, spend: Array, least: float) -> NDArray[np.bool_]:
        """Mask of the repetitions that are worth their money by the rules that end the search."""
        if not self._may_stop:
            return np.ones(len(gain), dtype=bool)
        return paying(self.problem, gain, spend, least, self.settings.min_improvement)

    def _fit(self) -> PricedPosterior:
        return PricedPosterior(
            self.problem,
            self._map,
            self.history,
            priced=self._priced,
            reference=self._features,
            hourly=self._reference.hourly,
            transfer_prior=self._transfer_prior,
            usual=self._standing.best_loss if self._standing.varies else None,
        )

    @property
    def _standing(self) -> ConfigurationRanking:
        """Ranking of the configurations that were run."""
        numbers = tuple(trial.number for trial in self.history)
        if self._stood is None or self._stood[0] != numbers:
            objective, constraints = self.problem.objective, self.problem.constraints
            standing = ConfigurationRanking.of_trials(self.history, objective, constraints)
            self._stood = (numbers, standing)
        return self._stood[1]

    @cached_property
    def _transfer_prior(self) -> TransferPrior | None:
        jobs = past_jobs(self.problem, self._map, self._reference, self._features, listed=self._listed)
        if not jobs:
            return None
        transfer_prior = TransferPrior(jobs, self._features, np.log(np.maximum(self._reference.hourly, 1e-12)))
        trend = price_trend(self._map.price_column, self._features.shape[1], priced=False)
        alike = transfer_prior.relatedness(trend)
        return transfer_prior if alike is None or alike > LEAST_RELATEDNESS else None

    def _starts_needed(self, posterior: Posterior) -> int:
        # Where earlier jobs know what to begin with, there is nothing to find out first.
        return 0 if isinstance(posterior, PricedPosterior) and posterior.learned else self.settings.starts

    def _caps(self, state: SearchState) -> AbortCaps:
        money = math.inf if state.money_left is None else state.money_left
        return PricedAbortCaps(self.aborts, 1.0, money, self.settings.beyond)

    def _capped(self, configuration: Configuration, posterior: Posterior, why: Mapping[str, float | str]) -> Proposal:
        if not self.aborts:
            return Proposal(configuration, why=why)
        hourly = self.problem.resolver.resolve(configuration).hourly
        if posterior.informed and isinstance(posterior, PricedPosterior) and not posterior.guessed:
            seconds = float(self._stop_seconds(posterior, np.array([hourly]))[0])
        else:
            seconds = self._first_seconds(hourly)
        return Proposal(configuration, abort_time=seconds if math.isfinite(seconds) else None, why=why)

    def _stop_seconds(self, posterior: PricedPosterior, hourly: Array) -> Array:
        """Seconds after which runs at ``hourly`` USD per hour are cut short, shape (n,)."""
        return posterior.stop_seconds(hourly, PricedAbortCaps(True, 1.0, math.inf, self.settings.beyond))

    def _first_seconds(self, hourly: float) -> float:
        """Seconds that a run may take before anything is known."""
        deadline, dollars = self.problem.constraints.deadline, self.problem.budget.dollars
        longest = math.inf
        if deadline is not None:
            longest = self.settings.first_slack * deadline
            if self._listed and hourly > 0:
                everything = deadline * float(self._reference.hourly.sum())
                longest = min(longest, max(deadline, self.settings.first_share * everything / hourly))
        if dollars is not None:
            billing = self.problem.terms.billing
            bill = billing.cost(0.0, hourly)  # of set-up alone: it teaches nothing
            payable = billing.longest_run(bill + _BUDGET_SHARE * max(0.0, dollars - bill), hourly)
            if payable < billing.setup_seconds:  # most of the money would go into set-up
                payable = billing.longest_run(dollars, hourly)
            longest = min(longest, max(payable, deadline or 0.0))
        return longest if longest > 0 else math.inf  # the ledger caps it then

    def _starts_of(self, reference: Candidates, rng: np.random.Generator) -> list[int]:
        cheapest = np.flatnonzero(reference.hourly == reference.hourly.min())
        first = int(cheapest[0])
        if self._map.speed_column is not None:  # of those at one price, the one that scores say is quicker
            column, span = self._map.speed_column
            first = int(cheapest[np.argmax(np.round(span * self._features[cheapest, column], 9))])
        return cheap_maximin(self._features, reference.hourly, self.settings.starts, rng, _STARTS_SHARE, first=first)


def _rate(proposal: Proposal) -> float:
    """Expected saving of a proposal by its expected spend."""
    saving = proposal.why.get("expected_saving", proposal.why.get("expected_improvement", 0.0))
    return float(saving) / max(float(proposal.why.get("expected_spend", 0.0)), 1e-12)


def repetition_gains(standing: ConfigurationRanking, times: Array, moved: Array) -> Array:
    """Expected fall of the loss of what will be recommended, by one more run of each configuration.

    The knowledge gradient of Frazier, Powell & Dayanik, "A knowledge-gradient policy for sequential information
    collection", SIAM J. Control Optim. 2008: posteriors of configurations are independent and rest on their own runs
    alone, for what a model expects of a configuration cannot show whether its runs were lucky. A run tells of the time,
    of an objective that does not follow from it, and of each metric with a bound; what tells most counts.

    Args:
        standing: Mean figures of the configurations that ran.
        times: Number of runs of each configuration, running ones included, shape (k,).
        moved: Share of a change of its time by which its loss changes, shape (k,) (`bill_elasticities`); 0 for an
            objective that does not follow from the time.

    Returns:
        In units of the objective, shape (k,); zero where there is nothing to choose between.
    """
    gain: Array = np.zeros(len(times))
    if len(times) >= 2:
        for values in _values_after_a_run(standing, times, moved):
            gain = np.maximum(gain, _knowledge_gradient(values))
    return gain


Values = Callable[[float | None], Array]
"""The values of all configurations, shape (k,): as they stand for None, else after one more run of each of them whose
figure moved its mean by so many standard deviations."""


def _values_after_a_run(standing: ConfigurationRanking, times: Array, moved: Array) -> Iterator[Values]:
    """One for each figure of which a further run tells something."""
    if standing.follows_time or (standing.has_deadline and standing.spread is not None):
        yield partial(_after_time, standing, times, moved)
    loss = standing.loss_variation
    if not standing.follows_time:
        # Nothing is known of a metric's size beforehand but how far apart the configurations are.
        sd = UNKNOWN_SHARE * float(np.std(standing.loss)) if loss is None else loss.spread
        if sd > 0.0:
            yield partial(_after_metric, standing, times, sd, loss is not None and loss.relative)
    for place, variation in enumerate(standing.bound_variations):
        if variation is not None and variation.spread > 0.0:
            yield partial(_after_bound, standing, times, place)


def _steps(sd: float, times: Array) -> Array:
    """Standard deviation of the change of a mean by one more run."""
    now, then = sd / np.sqrt(times), sd / np.sqrt(times + 1.0)
    found: Array = np.sqrt(now**2 - then**2)
    return found


def _after_time(standing: ConfigurationRanking, times: Array, moved: Array, z: float | None) -> Array:
    sd = UNKNOWN_SPREAD if standing.spread is None else standing.spread
    shift = np.zeros(len(times)) if z is None else z * _steps(sd, times)
    spread = sd / np.sqrt(times if z is None else times + 1.0)
    return standing.price(standing.loss * np.exp(moved * shift), standing.log_time + shift, spread)


def _after_metric(standing: ConfigurationRanking, times: Array, sd: float, relative: bool, z: float | None) -> Array:
    shift = np.zeros(len(times)) if z is None else z * _steps(sd, times)
    return standing.price_of(standing.loss * np.exp(shift) if relative else standing.loss + shift)


def _after_bound(standing: ConfigurationRanking, times: Array, place: int, z: float | None) -> Array:
    return standing.value if z is None else standing.value_if_within(place, z, times)


def _knowledge_gradient(values: Values) -> Array:
    present = values(None)
    first, second = np.argsort(present, kind="stable")[:2]
    rival = np.full(len(present), present[first])
    rival[first] = present[second]
    after = sum(share * np.minimum(values(float(z)), rival) for z, share in zip(_NODES, _SHARES, strict=True))
    gain: Array = np.maximum(float(present[first]) - after, 0.0)
    return gain


def bill_elasticities(billing: Billing, seconds: Array, hourly: Array, spread: float | None) -> Array:
    """Elasticity of a run's bill: the share of a change of its time by which the bill changes.

    Below one where set-up is paid besides, and zero where the change stays within what is billed in any case: a
    minimum, or a unit of time that is begun.

    Args:
        billing: Set-up, minimum and unit of time that are billed.
        seconds: Run times, shape (k,).
        hourly: USD per hour, shape (k,).
        spread: Standard deviation of the logarithm of a run's time; None as long as it is not known.

    Returns:
        Elasticities between 0 and 1, shape (k,).
    """
    step = max(UNKNOWN_SPREAD if spread is None else spread, _LEAST_STEP)
    longer, shorter = (np.array(billing.costs(seconds * np.exp(side), hourly)) for side in (step, -step))
    moved: Array = np.log(np.maximum(longer, 1e-12) / np.maximum(shorter, 1e-12)) / (2.0 * step)
    return np.clip(moved, 0.0, 1.0)
