"""What a run cost before and costs now, what the search cost, and what more of it would bring."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.reporting.conftest import Build, make_trial

from tradewind.problem import Trial, TrialState
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.reporting.study.bill import bill_sentences
from tradewind.reporting.study.data import StudyData
from tradewind.store.base import Store

JOB = "name: squares\njob: {command: work}\nspace: {a: 0..9}\nbaseline: {a: '2'}\nfuture_runs: 50\n"


def bill(store: Store, study: int) -> str:
    return " ".join(bill_sentences(StudyData.load(store, study)))


def trials(*costs: float) -> list[Trial]:
    return [make_trial(n, {"a": n}, cost) for n, cost in enumerate(costs)]


def test_the_users_configuration_is_what_it_is_compared_with(store: Store, build: Build, tmp_path: Path) -> None:
    spec = parse_spec(JOB, base=tmp_path).document()
    text = bill(store, build(trials(0.5, 0.3, 0.6), spec=spec))
    assert "What you use today (trial 2) costs $0.600 a run, this one $0.300 a run, 50 % less: the search" in text
    assert "$1.40, is paid back after 5 runs." in text
    assert "What you use today (trial 2) is still the best, at $0.200 a run" in bill(
        store, build(trials(0.5, 0.3, 0.2), spec=spec)
    )


@pytest.mark.parametrize(
    ("state", "words"),
    [(TrialState.FAILED, "(trial 2) did not work, so"), (TrialState.ABORTED, "(trial 2) was cut short, so")],
)
def test_a_baseline_that_did_not_end_is_not_compared(
    store: Store, build: Build, tmp_path: Path, state: TrialState, words: str
) -> None:
    ran = [*trials(0.5, 0.3), make_trial(2, {"a": 2}, 0.4, state=state, reason="out of memory")]
    text = bill(store, build(ran, spec=parse_spec(JOB, base=tmp_path).document()))
    assert words in text
    assert "out of memory." in text


def test_a_baseline_that_is_late_is_said_to_be(store: Store, build: Build, tmp_path: Path) -> None:
    ran = [*trials(0.5, 0.3), make_trial(2, {"a": 2}, 0.1, feasible=False, reason="it took too long")]
    text = bill(store, build(ran, spec=parse_spec(JOB, base=tmp_path).document()))
    assert "costs $0.100 a run, and did not keep every constraint (it took too long); this one costs $0.300" in text


def test_bills_below_a_cent_are_for_many_runs(store: Store, build: Build) -> None:
    text = bill(store, build(trials(0.000045, 0.00003)))
    assert "costs $0.0450 per 1,000 runs, this one $0.0300 per 1,000 runs, 33 % less: the search, 0.0075¢, is" in text


def test_what_is_compared_has_one_unit(store: Store, build: Build) -> None:
    text = bill(store, build(trials(0.0000136, 0.00000194)))
    assert "costs $13.60 per 1,000,000 runs, this one $1.94 per 1,000,000 runs, 86 % less" in text


def test_another_dollar_by_what_the_trials_brought(store: Store, build: Build, tmp_path: Path) -> None:
    spec = parse_spec(JOB.replace("'2'", "8"), base=tmp_path).document()
    costs = (0.9, 0.8, 0.7, 0.4, 0.5, 0.5)
    # The later three trials brought $0.30, $0.10 each; over 50 runs $5.00, for $0.467 each.
    text = bill(store, build(trials(*costs), spec=spec))
    assert "Another dollar of search would bring back $10.71 over 50 runs, as far as the trials so far tell." in text


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            "no trial is worth its money: the best would save $1.00 over 50 runs and cost $5.00; another dollar of "
            "search would bring back $0.20",
            "Another dollar of search would bring back $0.20 over 50 runs.",
        ),
        ("no untried configuration can cost less than the best, $0.40: ...", "no other configuration can cost less."),
        ("every configuration has been tried", "nothing: every configuration has been tried."),
    ],
)
def test_another_dollar_by_why_the_search_ended(
    store: Store, build: Build, tmp_path: Path, reason: str, words: str
) -> None:
    spec = parse_spec(JOB, base=tmp_path).document()
    costs = (0.9, 0.8, 0.7, 0.4, 0.5, 0.5)
    text = bill(store, build(trials(*costs), spec=spec, state="finished", reason=reason))
    assert text.endswith(words)
    assert "so far tell" not in text, "what is known is not estimated"


def test_time_is_paid_back_by_what_an_hour_is_worth(store: Store, build: Build, tmp_path: Path) -> None:
    job = JOB.replace("baseline: {a: '2'}\n", "") + "objective: {minimise: runtime}\nvalue: $36/h\n"
    ran = [make_trial(n, {"a": n}, 0.5, runtime=seconds, objective=seconds) for n, seconds in enumerate((90.0, 40.0))]
    text = bill(store, build(ran, spec=parse_spec(job, base=tmp_path).document()))
    # A second is worth a cent, and 50 of them are saved.
    assert "(trial 0) takes 1m 30s, this one 40.0 s, 56 % less: at $36.00 for an hour of a run, the search" in text
    assert "$1.00, is paid back after 2 runs." in text


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        ("{minimise: runtime}", "takes 5.0 s, this one 2.0 s, 60 % less: the search cost $0.800."),
        ("{minimise: error}", "reaches error 5, this one 2, 60 % less: the search cost $0.800."),
    ],
)
def test_a_gain_without_a_price_is_not_paid_back(
    store: Store, build: Build, tmp_path: Path, objective: str, words: str
) -> None:
    job = JOB.replace("'2'", "'0'").replace("future_runs: 50\n", "") + f"objective: {objective}\n"
    figures = [(0.5, 5.0), (0.3, 2.0)]
    ran = [make_trial(n, {"a": n}, cost, runtime=value, objective=value) for n, (cost, value) in enumerate(figures)]
    assert f"What you use today (trial 0) {words}" in bill(
        store, build(ran, spec=parse_spec(job, base=tmp_path).document())
    )


def test_a_metric_that_is_to_be_high(store: Store, build: Build, tmp_path: Path) -> None:
    job = JOB.replace("baseline: {a: '2'}\nfuture_runs: 50\n", "") + "objective: {maximise: score}\n"
    spec = parse_spec(job, base=tmp_path).document()
    ran = [make_trial(n, {"a": n}, 0.1, objective=value) for n, value in enumerate((0.5, 0.8))]
    reason = "no candidate is expected to improve the best by 1 %: at most by 0.4 %"
    text = bill(store, build(ran, spec=spec, state="finished", reason=reason))
    assert "(trial 0) reaches score 0.5, this one 0.8, 60 % more: the search cost $0.200." in text
    assert "No further trial is expected to improve the best by 1 %: at most by 0.4 %." in text
