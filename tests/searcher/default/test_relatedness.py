"""Relatedness of earlier jobs, and the predictions for a job that is unlike them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.searcher.default.test_transfer import (
    family,
    job,
    jobs_of,
    learned,
    make,
    proposals,
    study,
    transfer_prior_of,
)

from tradewind.problem import PastStudy, Trial
from tradewind.searcher.default.posterior import PricedPosterior, price_trend
from tradewind.searcher.default.transfer import LEAST_RELATEDNESS, TransferPrior, TransferProcess
from tradewind.testing.problems import KnownProblem


def unrelated(count: int = 4) -> tuple[PastStudy, ...]:
    """Jobs whose times are drawn at random."""
    found = []
    for k in range(1, count + 1):
        rng = np.random.default_rng(k)

        def change(trial: Trial, rng: np.random.Generator = rng) -> Trial:
            assert trial.observation is not None
            runtime = 600.0 * float(np.exp(rng.standard_normal()))
            return replace(trial, observation=replace(trial.observation, runtime=runtime))

        found.append(study(job(k), f"job{k}", count=20, seed=k, change=change))
    return tuple(found)


def relatedness_of(problem: KnownProblem) -> float | None:
    searcher = make(problem)
    rows = searcher._features
    transfer_prior = TransferPrior(jobs_of(problem), rows, np.log(problem.candidates.hourly))
    return transfer_prior.relatedness(price_trend(searcher._map.price_column, rows.shape[1], priced=False))


@pytest.mark.slow
def test_alike_jobs_predict_one_another_and_unrelated_ones_do_not() -> None:
    alike = relatedness_of(replace(job(0), past=family(4)))
    apart = relatedness_of(replace(job(0), past=unrelated()))
    assert alike is not None
    assert apart is not None
    assert alike > 5.0
    assert apart < LEAST_RELATEDNESS
    assert alike == pytest.approx(relatedness_of(replace(job(0), past=family(4))), abs=1e-9)


@pytest.mark.parametrize("count", [1, 2])
def test_a_few_jobs_say_nothing_of_how_alike_jobs_are(count: int) -> None:
    assert relatedness_of(replace(job(0), past=unrelated(count))) is None
    assert make(replace(job(0), past=unrelated(count)))._transfer_prior is not None


@pytest.mark.slow
def test_an_unrelated_past_changes_nothing() -> None:
    cold = job(0)
    warm = replace(cold, past=unrelated())
    assert make(warm)._transfer_prior is None
    assert proposals(warm) == proposals(cold)


@pytest.mark.slow
def test_jobs_of_many_runs_are_judged_by_some_of_them() -> None:
    long = [replace(one, trials=one.trials * 4) for one in family(3)]
    value = relatedness_of(replace(job(0), past=tuple(long)))
    assert value is not None
    assert value > 0.0


# ---------------------------------------------------------------------- a job unlike the earlier ones


@pytest.mark.slow
def test_a_wider_process_is_as_much_less_sure() -> None:
    process, transfer_prior = learned()
    wide = TransferProcess(transfer_prior, process.prices, process.level, process.level_sd, 2.0)
    mean, variance = process.predict(transfer_prior.rows)
    same, more = wide.predict(transfer_prior.rows)
    assert np.allclose(mean, same)
    assert np.allclose(more - 0.25, 4.0 * (variance - 0.25))
    rows, times = transfer_prior.rows[:3], np.array([5.0, 6.0, 5.5])
    assert (
        wide.fit(rows, times).predict(transfer_prior.rows)[1] > process.fit(rows, times).predict(transfer_prior.rows)[1]
    ).all()


@pytest.mark.slow
@pytest.mark.parametrize("unlike", [False, True])
def test_the_width_is_that_which_predicted_the_runs(unlike: bool) -> None:
    """Of a job like the earlier ones the narrow process counts, of one that is not, the wide ones."""
    problem = replace(job(0), past=family())
    searcher = make(problem)
    transfer_prior = transfer_prior_of(problem)
    posterior = searcher._current_posterior()
    assert isinstance(posterior, PricedPosterior)
    rows = transfer_prior.rows[::9]
    logs = transfer_prior.at(rows)[0]
    logs = logs - logs.mean()
    # The usual pattern, or one in which every second configuration is out of line.
    away = 0.9 * np.where(np.arange(len(rows)) % 2 == 0, 1.0, -1.0) if unlike else np.zeros(len(rows))
    y = logs + away + 6.0 + rows @ posterior._prices
    posterior._transfer_prior = replace_trust(transfer_prior)
    parts = posterior._processes(rows, y, np.zeros(len(y), dtype=bool))
    widths = {process.width: share for share, process in parts if isinstance(process, TransferProcess)}
    assert widths, "the past was to decide here"
    heaviest = max(widths, key=lambda width: widths[width])
    assert (heaviest > 1.0) == unlike


def replace_trust(transfer_prior: TransferPrior) -> TransferPrior:
    """A copy of the prior that is trusted whatever the runs say."""
    transfer_prior.__dict__["trust"] = 1.0 - 1e-15
    return transfer_prior
