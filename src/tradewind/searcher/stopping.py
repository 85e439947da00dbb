"""Weighs a further trial: what it is expected to save in later runs against what it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tradewind.problem import COST, RUNTIME, Observation, Problem, Trial
from tradewind.utils.units import count, format_money

Array = NDArray[np.float64]

LEAST_TRIALS = 6
"""Trials before anything is said of the next one by those that there were."""


_ANOTHER_DOLLAR = "another dollar of search would bring back"

NOT_BETTER = "no candidate is expected to improve the best"
"""How the reason begins that ends a search by a least improvement."""

NOT_CHEAPER = "no untried configuration can cost less than the best"
"""How the reason begins that ends a search where the smallest bill of all that is left is too high."""

ALL_TRIED = "every configuration has been tried"

USUAL_GAP = 0.3
"""By how much a record beats the one before it, until there are some: in logarithms, or as a share of the spread."""


@dataclass(frozen=True, slots=True)
class TrialWorth:
    """Expected gain and cost of a further trial.

    Attributes:
        saving: Expected fall of the loss of the best, in units of the objective, for each later run.
        spend: Expected USD of the trial.
        best: The loss of the best so far.
    """

    saving: float
    spend: float
    best: float = math.nan


def saving_price(problem: Problem) -> float | None:
    """USD that a run of the job saves where its loss falls by one; None where nobody said what that is worth.

    Args:
        problem: The problem; its terms have the value of time.
    """
    objective, value = problem.objective, problem.terms.value_per_hour
    if not objective.grows_with_time or objective.also:
        return None
    if objective.metric == COST:
        return 1.0
    return value / 3600.0 if objective.metric == RUNTIME and value is not None else None


def ends_by_money(problem: Problem) -> bool:
    """True where what a trial saves in later runs, and what it costs, may end a search."""
    return problem.terms.future_runs is not None and saving_price(problem) is not None


def empirical_worth(losses: Sequence[float], spent: Sequence[float]) -> TrialWorth | None:
    """Estimate the next trial of a searcher that has no model, by the trials so far.

    Two estimates of how much it improves the best, of which the greater one counts, for a stretch of bad luck must not
    end a search: what a trial of the later half improved it by, and the theory of records. Of n trials in random order
    the next one beats all with probability 1/(n + 1), and by as much as the records before it did on average, in
    logarithms where all are positive (exact for an exponential tail: Arnold, Balakrishnan & Nagaraja, "Records", 1998).
    One record more than there were, by `USUAL_GAP`, keeps a first lucky find from ending the search. It holds as well
    where trials are cut short once they cannot win: they are no records.

    Args:
        losses: Loss of each trial in the order in which they ended; infinite for one that cannot be recommended.
        spent: USD of each.

    Returns:
        The estimate; None as long as there are fewer than `LEAST_TRIALS`, or none can be recommended.
    """
    values = np.asarray(losses, dtype=float)
    finite = values[np.isfinite(values)]
    if len(values) < LEAST_TRIALS or not len(finite):
        return None
    half = len(values) // 2
    later = len(values) - half
    best, worst, first = float(finite.min()), float(finite.max()), float(finite[0])
    happened = (min(worst, float(values[:half].min())) - best) / later
    records = len(np.unique(np.minimum.accumulate(finite)))
    if best > 0.0:
        expected = best * -math.expm1(-(USUAL_GAP + math.log(first / best)) / records)
    else:
        expected = (USUAL_GAP * (worst - best) + first - best) / records
    saving = max(happened, expected / (len(values) + 1), 0.0)
    return TrialWorth(saving, float(np.mean(np.asarray(spent, dtype=float)[half:])), best)


def worth_of_history(problem: Problem, trials: Sequence[Trial]) -> TrialWorth | None:
    """Estimate the next trial by those that have ended, on the whole input.

    Args:
        problem: The problem.
        trials: Ended trials, by number.
    """
    whole = [trial for trial in trials if trial.proposal.fidelity >= 1.0 and trial.observation is not None]
    losses = [_loss(problem, trial.observation) for trial in whole]
    return empirical_worth(losses, [trial.spent for trial in whole])


def _loss(problem: Problem, seen: Observation | None) -> float:
    """Loss of a run that can be recommended; infinite for any other."""
    if seen is None or not seen.feasible or seen.objective is None or not math.isfinite(seen.objective):
        return math.inf
    return problem.objective.loss(seen.objective)


def split_reason(reason: str) -> tuple[str, str]:
    """Split why a search ended into the reason, and what another dollar of it would bring back; empty where unsaid."""
    why, _, back = reason.partition(f"; {_ANOTHER_DOLLAR}")
    return why, f"{_ANOTHER_DOLLAR}{back}" if back else ""


def returned_words(saved: float, spend: float) -> str:
    """Say in words how much another dollar of search brings back in later runs.

    Args:
        saved: USD that a trial is expected to save over all later runs.
        spend: Its expected USD.
    """
    if spend <= 0:
        return ""
    return f"{_ANOTHER_DOLLAR} {format_money(saved / spend) if saved >= 0.01 * spend else 'less than a cent'}"


def paying(
    problem: Problem, saving: Array, spend: Array, best: float, least_improvement: float | None = None
) -> NDArray[np.bool_]:
    """Mask of the trials that are worth their money by the rules of `why_stop`, whose arguments it has."""
    share = problem.terms.least_improvement if least_improvement is None else least_improvement
    price, runs = saving_price(problem), problem.terms.future_runs
    pays = np.ones(len(saving), dtype=bool) if share is None else saving >= share * abs(best)
    return pays if price is None or runs is None else pays & (runs * price * saving > spend)


def why_stop(
    problem: Problem, saving: Array, spend: Array, best: float, least_improvement: float | None = None
) -> str | None:
    """The reason to stop, in words, where no trial that is left is worth its money; None to go on.

    Where money decides, a trial pays once its expected saving over the future runs is above its expected spend (Xie et
    al., "Cost-aware stopping for Bayesian optimization", 2025); else it must be expected to improve the best enough.

    Args:
        problem: The problem; its terms have the future runs, the value of time and the least improvement.
        saving: Expected fall of the loss by each trial, shape (n,).
        spend: Expected USD of each, shape (n,).
        best: The loss of the best so far.
        least_improvement: Another least improvement than the job's.
    """
    share = problem.terms.least_improvement if least_improvement is None else least_improvement
    most = float(saving.max())
    if share is not None and most < share * abs(best):
        return f"{NOT_BETTER} by {100 * share:.3g} %: at most by {100 * most / abs(best):.2g} %"
    price, runs = saving_price(problem), problem.terms.future_runs
    if price is None or runs is None:
        return None
    saved = runs * price * saving
    at = int(np.argmax(saved - spend))
    return _unpaid(float(saved[at]), float(spend[at]), runs) if saved[at] <= spend[at] else None


def _unpaid(saved: float, spend: float, runs: float) -> str:
    back = returned_words(saved, spend)
    saves = format_money(saved) if saved >= 1e-3 * spend else "next to nothing"
    return (
        f"no trial is worth its money: the best would save {saves} over {count(runs, 'run')} and cost "
        f"{format_money(spend)}" + (f"; {back}" if back else "")
    )
