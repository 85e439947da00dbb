from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.reporting.conftest import SPEC, Build, make_trial, some_trials

from tradewind.problem import Run, RunPreemption, TrialState
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.problem.ranking import Variation
from tradewind.reporting.study.data import StudyData
from tradewind.reporting.study.explanation import (
    code_versions_sentence,
    explain_choice,
    taken_runs_sentence,
    variation_words,
)
from tradewind.reporting.words import percent
from tradewind.store.base import Change, CodeVersion, Store, this_process


def said(store: Store, study: int) -> str:
    return "\n".join(explain_choice(StudyData.load(store, study)))


def test_no_trials(store: Store, build: Build) -> None:
    assert said(store, build()) == "Nothing has been tried yet.\ntradewind tune starts the search."


@pytest.mark.parametrize(
    ("reason", "helps"),
    [
        ("the budget of $0.01 does not pay a single run", True),
        ("the $0.01 left do not pay the smallest bill of any untried one", True),
        ("no configuration was found that is allowed and sold", False),
    ],
)
def test_a_search_that_ended_without_a_trial_is_not_told_to_start(
    store: Store, build: Build, reason: str, helps: bool
) -> None:
    text = said(store, build(state="finished", reason=reason))
    stopped = f"Nothing has been tried yet.\nIt stopped because: {reason}."
    assert text == stopped + ("\nRaise the budget, or allow cheaper instance types." if helps else "")


def test_only_running_trials(store: Store, build: Build) -> None:
    text = said(store, build([make_trial(0, {"a": 1}, state=TrialState.RUNNING)]))
    assert "No trial has ended yet; 1 trial on the way." in text
    assert "1 trial is on the way or waiting." in text
    assert "recommend" not in text


def test_one_trial(store: Store, build: Build) -> None:
    text = said(store, build([make_trial(0, {"workers": 4}, 0.25)], state="finished", reason="the budget is spent"))
    assert "Use workers=4 (trial 0)." in text
    assert "cost $0.250 this run, 10.0 s (50 %) before the deadline of 20.0 s" in text
    assert "1 × c4 of local at $0.200 per hour" in text
    assert "This is the only configuration that was tried, so there is nothing to compare it with." in text
    assert "1 configuration was tried." in text
    assert "It ran once" in text
    assert "of a budget of $5.00" in text
    assert "It stopped because: the budget is spent." in text
    assert "mattered" not in text


SELECTED = """
name: zip
job: {command: [./zip, "{{ level }}"]}
space:
  cpus: {values: [1, 2, 4], attribute: vcpu}
  nodes: [1, 2]
  level: [1, 2, 3]
select: nearest
"""
"""A job whose machines are chosen by an attribute and their number."""


def test_the_machine_is_named_before_the_parameters_that_led_to_it(store: Store, build: Build, tmp_path: Path) -> None:
    spec = parse_spec(SELECTED, base=tmp_path).document()
    trials = [
        make_trial(0, {"cpus": 1, "nodes": 1, "level": 3}, 0.2, kind="c2"),
        make_trial(1, {"cpus": 4, "nodes": 1, "level": 1}, 0.3, kind="c4"),
    ]
    text = said(store, build(trials, spec=spec))
    assert "Use c2 of local (cpus=1) with level=3 (trial 0)." in text
    assert "cost $0.200 this run; the machines cost $0.100 per hour." in text
    assert "The next best is trial 1: c4 of local (cpus=4) with level=1, $0.300, 50 % dearer." in text


def test_a_nearest_miss_names_its_machine(store: Store, build: Build, tmp_path: Path) -> None:
    spec = parse_spec(SELECTED + "constraints: {deadline: 5s}\n", base=tmp_path).document()
    missed = make_trial(0, {"cpus": 1, "nodes": 1, "level": 3}, 0.2, kind="c2", feasible=False)
    assert "The nearest miss is trial 0: c2 of local (cpus=1) with level=3 took" in said(
        store, build([missed], spec=spec)
    )


def test_the_next_best_and_the_median(store: Store, build: Build) -> None:
    costs = [0.30, 0.20, 0.22, 0.40]
    text = said(store, build([make_trial(i, {"a": i, "b": 1}, cost) for i, cost in enumerate(costs)]))
    assert "Use a=1 b=1 (trial 1)." in text
    assert "The next best is trial 2: a=2 b=1, $0.220, 10 % dearer." in text
    assert "It is 23 % cheaper than the median of the feasible trials." in text  # the median is 0.26
    assert "4 different configurations were tried, 3 of them one setting away" in text


def test_it_says_when_the_search_is_paid_back(store: Store, build: Build) -> None:
    trials = [make_trial(n, {"a": n}, cost) for n, cost in enumerate((0.5, 0.3, 0.4))]
    text = said(store, build(trials))
    assert (
        "kept every constraint (trial 0) costs $0.500 a run, this one $0.300 a run, 40 % less: the search, $1.20, "
        in text
    )
    assert "$1.20, is paid back after 6 runs." in text
    assert "paid back" not in said(store, build(trials[1:])), "the first one is the best"


def test_a_repetition_is_not_the_next_best(store: Store, build: Build) -> None:
    trials = [make_trial(0, {"a": 1}, 0.2), make_trial(1, {"a": 1}, 0.21), make_trial(2, {"a": 2}, 0.3)]
    text = said(store, build(trials))
    assert "The next best is trial 2" in text
    assert "46 % dearer" in text, "than the mean of the two runs"
    assert "It ran 2 times, between $0.200 and $0.210, $0.205 on average." in text


@pytest.mark.parametrize(("runner", "simulated"), [({"use": "replay"}, True), ("process", False), ("gone", False)])
def test_simulated_runs_are_not_called_spending(store: Store, build: Build, runner: object, simulated: bool) -> None:
    trials = [make_trial(0, {"a": 1}, 0.2), make_trial(1, {"a": 2}, 0.3)]
    text = said(store, build(trials, spec={"deploy": {"runner": runner}}))
    assert ("The search spent $0.500 in total on 2 ended trials" in text) is not simulated
    words = "The runs were simulated and nothing was paid; they would have cost $0.500 in total on 2 ended trials"
    assert (words in text) is simulated


def test_equal_values_are_called_equal(store: Store, build: Build) -> None:
    text = said(store, build([make_trial(0, {"a": 1}, 0.2), make_trial(1, {"a": 2}, 0.2)]))
    assert "just as good in cost" in text


def test_a_maximised_metric(store: Store, build: Build) -> None:
    spec = {"objective": {"maximise": "accuracy"}}
    values = [0.5, 0.8, 0.6, 0.7]
    trials = [make_trial(i, {"a": i}, 0.1, objective=value) for i, value in enumerate(values)]
    text = said(store, build(trials, spec=spec))
    assert "Use a=1 (trial 1)." in text
    assert "It reached accuracy 0.8, took 10.0 s and cost $0.100 this run;" in text
    assert "0.7, 13 % lower" in text
    assert "It is 23 % higher than the median" in text


@pytest.mark.parametrize(
    ("values", "words"),
    [([9.0, 2.0, 3.0, 1.0], "3.6 times as much as"), ([1e300, 1e-300, 1e-300, 0.0], "1e+300 higher than")],
)
def test_far_above_the_median(store: Store, build: Build, values: list[float], words: str) -> None:
    trials = [make_trial(i, {"a": i}, 0.1, objective=value) for i, value in enumerate(values)]
    text = said(store, build(trials, spec={"objective": {"maximise": "score"}}))
    assert f"It is {words} the median of the feasible trials." in text


def test_negative_values_are_compared_by_difference(store: Store, build: Build) -> None:
    spec = {"objective": {"minimise": "loss"}}
    text = said(store, build([make_trial(i, {"a": i}, 0.1, objective=-2.0 + i) for i in range(2)], spec=spec))
    assert "-1, 1 higher" in text


def test_a_runtime_objective(store: Store, build: Build) -> None:
    trials = [make_trial(i, {"a": i}, 0.1, runtime=4.0 + 4 * i, objective=4.0 + 4 * i) for i in range(2)]
    text = said(store, build(trials, spec={"objective": {"minimise": "runtime"}}))
    assert "8.0 s, 100 % slower" in text


def test_much_dearer_is_a_factor(store: Store, build: Build) -> None:
    text = said(store, build([make_trial(0, {"a": 1}, 0.01), make_trial(1, {"a": 2}, 0.05)]))
    assert "5.0 times as much" in text


def test_nothing_in_time_names_the_nearest_miss(store: Store, build: Build) -> None:
    trials = [make_trial(i, {"a": i}, 0.1, runtime=30.0 - i, feasible=False, reason="late") for i in range(3)]
    text = said(store, build(trials, state="finished", reason="all were tried"))
    assert "none of the 3 ended trials kept every constraint" in text
    assert "The nearest miss is trial 2: a=2 took 28.0 s, 8.0 s past the deadline of 20.0 s" in text
    assert "Allow a deadline above 28.0 s" in text
    assert "Use " not in text


def test_a_broken_threshold_is_the_nearest_miss_within_the_deadline(store: Store, build: Build) -> None:
    trials = [
        make_trial(0, {"a": 0}, 0.1, runtime=30.0, feasible=False, reason="late"),
        make_trial(1, {"a": 1}, 0.3, feasible=False, reason="ratio is 1, wanted 2 ≤ ratio"),
        make_trial(2, {"a": 2}, 0.2, feasible=False, reason="ratio is 1.5, wanted 2 ≤ ratio"),
    ]
    text = said(store, build(trials))
    assert "within the deadline is trial 2: a=2; ratio is 1.5, wanted 2 ≤ ratio." in text


def test_a_part_of_the_input_is_no_near_miss(store: Store, build: Build) -> None:
    spec = {"objective": {"minimise": "cost"}}
    reason = "ratio is 1, wanted 2 ≤ ratio"
    trials = [
        make_trial(0, {"a": 0}, 0.001, feasible=False, reason=reason, share=0.1),
        make_trial(1, {"a": 0}, 0.3, feasible=False, reason=reason),
        make_trial(2, {"a": 1}, 0.002, share=0.1),
    ]
    text = said(store, build(trials, spec=spec))
    assert f"The nearest miss is trial 1: a=0; {reason}." in text  # no deadline is named where there is none
    assert "the only ended trial on the whole input did not keep every constraint." in text
    data = StudyData.load(store, build([*trials, make_trial(3, {"a": 3}, 0.4)], spec=spec, name="ended"))
    assert "1 trial ran to the end but broke a constraint." in "\n".join(explain_choice(data))


def test_the_reasons_of_whole_runs_come_before_those_of_parts(store: Store, build: Build) -> None:
    parts = [make_trial(i, {"a": i}, 0.001, feasible=False, reason="part", share=0.1) for i in range(25)]
    data = StudyData.load(store, build([*parts, make_trial(25, {"a": 0}, 0.5, feasible=False, reason="whole")]))
    assert data.reason(25) == "whole"
    assert data.reason(0) == "part"


MONEY = "the $0.0100 left of the budget do not pay another run"
UNTRAINED = "no instance type has enough training runs for a model: of 3, 0 failed and 1 were cut short"
INPUT_SCALING_IGNORED = "the job seems to ignore the share of the input: 1.60% took 60.0 s and 5.04% took 60.0 s"


@pytest.mark.parametrize(
    ("state", "reason", "advice"),
    [
        (None, MONEY, ": raise the budget."),
        (None, "the budget of 2 trials is used up", ": raise the budget."),
        (None, "the time budget of 2h 00m is used up", ": raise the budget."),
        (None, "the budget has 4 trials, and a model takes 4 training runs and a whole run", ": raise the budget."),
        (None, UNTRAINED, "."),
        (None, f"{UNTRAINED}, for $0.0500 of the $5.00 of the budget", "."),
        (None, INPUT_SCALING_IGNORED, "."),
        (None, "stopped by the user; the same command resumes", "."),
        (TrialState.ABORTED, MONEY, ": raise the budget or the deadline."),
        (TrialState.ABORTED, UNTRAINED, ": raise the deadline."),
        (TrialState.ABORTED, INPUT_SCALING_IGNORED, "."),
        (TrialState.FAILED, MONEY, ": look at tradewind logs."),
    ],
)
def test_where_only_parts_ran_it_says_so(
    store: Store, build: Build, state: TrialState | None, reason: str, advice: str
) -> None:
    trials = [make_trial(i, {"a": i}, 0.01, feasible=i > 0, share=0.1) for i in range(2)]
    whole = [] if state is None else [make_trial(2, {"a": 2}, 0.1, state=state)]
    text = said(store, build([*trials, *whole], state="finished", reason=reason))
    assert f"2 runs on parts of the input came to an end, none on the whole of it{advice}" in text.splitlines()
    assert ("none of the 2 ended trials was on the whole input." in text) == (state is None)
    assert "nearest miss" not in text


@pytest.mark.parametrize(
    ("state", "reason", "advice"),
    [
        (TrialState.ABORTED, UNTRAINED, ": raise the deadline."),
        (TrialState.ABORTED, MONEY, ": raise the budget or the deadline."),
        (TrialState.FAILED, UNTRAINED, ": look at tradewind logs."),
    ],
)
def test_what_went_wrong_with_parts_is_named_too(
    store: Store, build: Build, state: TrialState, reason: str, advice: str
) -> None:
    trials = [make_trial(0, {"a": 0}, 0.01, share=0.1), make_trial(1, {"a": 1}, 0.01, state=state, share=0.1)]
    text = said(store, build(trials, state="finished", reason=reason))
    assert f"1 run on a part of the input came to an end, none on the whole of it{advice}" in text.splitlines()


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        (TrialState.FAILED, MONEY, "look at tradewind logs"),
        (TrialState.ABORTED, MONEY, "was cut short: raise the budget or the deadline."),
        (TrialState.ABORTED, UNTRAINED, "was cut short: raise the deadline."),
    ],
)
def test_nothing_ran_to_its_end(store: Store, build: Build, state: TrialState, reason: str, words: str) -> None:
    trials = [make_trial(i, {"a": i}, 0.1, state=state, reason="exit code 2") for i in range(3)]
    text = said(store, build(trials, state="finished", reason=reason))
    assert words in text
    assert "nearest miss" not in text


def test_without_a_deadline_it_is_the_bounds_that_cut_short(store: Store, build: Build) -> None:
    trials = [make_trial(i, {"a": i}, 0.1, state=TrialState.ABORTED) for i in range(3)]
    for limits, words in (({"metrics": {"cost": "<= 0.1"}}, ": raise the bounds."), ({}, ".")):
        spec = {**SPEC, "constraints": limits}
        text = said(store, build(trials, spec=spec, name=f"zip{len(limits)}", state="finished", reason=UNTRAINED))
        assert f"Every trial that did not fail was cut short{words}" in text.splitlines()


def test_failures_and_losses_and_money_are_told(store: Store, build: Build) -> None:
    trials = [
        make_trial(0, {"a": 0}, 0.5),
        make_trial(1, {"a": 1}, 0.25, state=TrialState.FAILED, reason="exit code 2"),
        make_trial(2, {"a": 2}, 0.25, state=TrialState.FAILED, reason="exit code 2"),
        make_trial(3, {"a": 3}, 0.125, state=TrialState.ABORTED, reason="cap"),
        make_trial(4, {"a": 4}, state=TrialState.LOST),
        make_trial(5, {"a": 5}, 0.1, feasible=False, runtime=30),
    ]
    text = said(store, build(trials))
    assert "$1.23 in total on 6 ended trials" in text or "$1.22 in total on 6 ended trials" in text
    assert "$0.500 on 2 failed, $0.125 on 1 aborted, $0.00 on 1 lost" in text
    assert "2 trials failed; 2 of the last 2 because: exit code 2." in text
    assert "1 trial lost through no fault of the configuration" in text
    assert "1 trial was cut short at a cap." in text
    assert "1 trial ran to the end but broke a constraint." in text


def test_parameters_that_matter_are_named(store: Store, build: Build) -> None:
    text = said(store, build(some_trials(60)))
    assert re.search(r"What mattered for the cost: codec=zlib instead of \w+: 0\.\d+ times the cost \(", text)


def test_a_crashed_search_can_be_resumed_and_a_live_one_runs(store: Store, build: Build) -> None:
    study = build([make_trial(0, {"a": 1}, 0.1)])
    assert "It was interrupted" in said(store, study)
    store.hold(study, this_process(), 60.0)
    text = said(store, study)
    assert "The search is still running." in text
    assert "interrupted" not in text


def test_the_share_of_the_space(store: Store, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StudyData, "space_size", property(lambda self: 400))
    assert "2 different configurations were tried of 400 (under 1 % of the space)" in said(
        store, build([make_trial(i, {"a": i}, 0.1) for i in range(2)])
    )


def test_what_comes_to_the_same_offers_is_not_untried(
    store: Store, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StudyData, "space_size", property(lambda self: 20))
    study = build([make_trial(i, {"a": i}, 0.1) for i in range(6)])
    store.write(study, Change(study={"state": "finished", "reason": "every configuration has been tried"}))
    text = said(store, study)
    assert "6 different configurations were tried; the other 14 come to the same offers, or cannot be had" in text
    assert "30 %" not in text


@pytest.mark.parametrize("spec", [{}, SPEC, {"objective": {"maximise": "m"}, "constraints": {"deadline": 5}}])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 30])
def test_every_state_gives_whole_sentences(store: Store, build: Build, spec: dict[str, Any], count: int) -> None:
    for sentence in explain_choice(StudyData.load(store, build(some_trials(count), spec=spec))):
        assert sentence.endswith(".")
        assert "nan" not in sentence
        assert "None" not in sentence


def test_runs_that_came_out_alike_are_not_a_range(store: Store, build: Build) -> None:
    trials = [make_trial(number, {"a": 1}, 0.2, runtime=4.0 + number) for number in range(3)]
    text = said(store, build(trials))
    assert "It ran 3 times, $0.200 each time. " in text.replace("\n", " ")
    assert "From run to run of one configuration the run time varies by about" in text, "units hide it in the cost"


@pytest.mark.slow
def test_a_lucky_run_is_not_recommended(store: Store, build: Build) -> None:
    """Trial 0 was the cheapest run, and its configuration usually is not."""
    trials = [
        make_trial(0, {"a": 1}, 0.2, runtime=8.0),
        make_trial(1, {"a": 1}, 0.3, runtime=12.0),
        make_trial(2, {"a": 1}, 0.31, runtime=12.4),
        make_trial(3, {"a": 2}, 0.23, runtime=9.2),
        make_trial(4, {"a": 2}, 0.22, runtime=8.8),
    ]
    study = build(trials)
    text = said(store, study)
    assert "Use a=2 (trial 3)." in text
    assert "The next best is trial 1: a=1, $0.270, 20 % dearer." in text
    assert "From run to run of one configuration the cost varies by about 22 %" in text
    assert StudyData.load(store, study).ranking.tolist() == [3, 4, 1, 2, 0]


def test_a_cheaper_one_that_is_usually_late_is_called_so(store: Store, build: Build) -> None:
    trials = [
        make_trial(0, {"a": 1}, 0.2, runtime=19.0),
        make_trial(1, {"a": 1}, 0.22, runtime=21.0, feasible=False),
        make_trial(2, {"a": 1}, 0.23, runtime=22.0, feasible=False),
        make_trial(3, {"a": 2}, 0.25, runtime=9.0),
    ]
    text = said(store, build(trials))
    assert "Use a=2 (trial 3)." in text
    assert "cheaper, but likelier to miss the deadline or another bound" in text


def test_a_parameter_that_was_never_varied_is_said_to_be_so(store: Store, build: Build, tmp_path: Path) -> None:
    job = """
name: train
job: {command: train}
space:
  model: [small, large]
  batch: {values: [16, 32], when: {model: large}}
  seed: [7]
objective: {minimise: cost}
constraints: {deadline: 20s}
budget: {trials: 20}
"""
    spec = parse_spec(job, base=tmp_path).document()
    trials = []
    for number in range(12):
        large = number % 2 == 1
        configuration = {"model": "large", "batch": 16, "seed": 7} if large else {"model": "small", "seed": 7}
        trials.append(make_trial(number, configuration, 0.5 + large + 0.01 * number))
    text = said(store, build(trials, spec=spec))
    assert "What mattered for the cost: model=small instead of large: 0.35 times the cost (0.3" in text
    assert "from 12 runs by an additive model); never varied, so that nothing is known of it: batch." in text
    assert "hardly at all" not in text


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.0, "0 %"), (0.004, "under 1 %"), (0.5, "50 %"), (0.994, "99 %"), (0.996, "over 99 %"), (1.0, "100 %")],
)
def test_percentages_have_no_false_precision(share: float, words: str) -> None:
    assert percent(share) == words


def test_equal_reasons_are_one_although_their_paths_differ(store: Store, build: Build) -> None:
    reasons = [f"cannot read /tmp/tmp{i}x/runs/tw-012345678{i}-0000{i}-1/in.csv: it is empty" for i in range(3)]
    reasons.append("the program exited with code 2")
    trials = [make_trial(i, {"a": i}, 0.1, state=TrialState.FAILED, reason=text) for i, text in enumerate(reasons)]
    text = said(store, build(trials))
    assert f"4 trials failed; 3 of the last 4 because: {reasons[2]}." in text


def test_versions_of_the_program_are_named_where_there_are_several() -> None:
    one, other = CodeVersion("a1", (0, 1, 2)), CodeVersion("b2", (3,))
    assert code_versions_sentence([]) == code_versions_sentence([one]) == ""
    assert code_versions_sentence([one, other]) == (
        "The program's files changed between trials, so compare them with care: 3 trials (0 to 2) ran version a1, "
        "1 trial (3) ran version b2."
    )
    many = [CodeVersion(f"v{place}", (place,)) for place in range(7)]
    assert code_versions_sentence(many).endswith("1 trial (3) ran version v3, and 3 more versions after them.")


def test_runs_that_other_tenants_took_are_told_with_what_they_cost(store: Store, build: Build) -> None:
    assert taken_runs_sentence([]) == ""
    took = Run("r", 3, attempt=2, cost=0.125, preemption=RunPreemption("physics"))
    assert taken_runs_sentence([took]) == (
        "1 run was ended so that tenant physics got its place: its trial runs again. "
        "Run 2 of trial 3: $0.125, which this study pays."
    )
    nobody = replace(took, preemption=RunPreemption("maths", "cluster", cost=0.5), cost=0.0)
    told = taken_runs_sentence([took, *[nobody] * 7])
    assert told.startswith("8 runs were ended so that tenants maths, physics got their places: ")
    assert told.endswith("Run 2 of trial 3: $0.500, which nobody pays; 2 more.")
    study = build([make_trial(0, {"workers": 4}, 0.25), make_trial(1, {"workers": 2}, 0.5)])
    run = store.runs(study, trial=0)[0]
    store.write(study, Change(runs=[replace(run, preemption=RunPreemption("maths", "taker", 1.0, 0.25))]))
    sentence = "1 run was ended so that tenant maths got its place: its trial runs again; $0.250 of what they had cost"
    told = said(store, study)
    assert sentence in told
    assert "Run 1 of trial 0: $0.500, which tenant maths pays." in told
    assert [one.run_id for one in store.taken_runs(study)] == [run.run_id]


def test_a_reader_who_may_not_know_the_tenant_that_took_a_run_is_told_all_but_its_name() -> None:
    preemption = RunPreemption("physics", "taker", cost=0.125, why="had no place 2 min after its work came")
    run = Run("r", 3, attempt=2, reason="ending: taken for tenant physics", preemption=preemption)
    hidden = run.without_taker()
    assert hidden.reason == "ending: taken for another tenant"
    assert taken_runs_sentence([hidden]) == (
        "1 run was ended so that another tenant got its place: its trial runs again; $0.125 of what they had cost is "
        "not paid by this study. Run 2 of trial 3: $0.125, which another tenant pays "
        "(another tenant had no place 2 min after its work came)."
    )
    assert taken_runs_sentence([hidden, hidden]).startswith("2 runs were ended so that other tenants got their places")
    assert " so that tenant physics and another tenant got " in taken_runs_sentence([run, hidden])
    kept = Run("r", 3, reason="taken for tenant physics")
    assert kept.without_taker() == kept


def test_a_small_variation_is_said_without_two_vague_words() -> None:
    data: Any = SimpleNamespace(standing=SimpleNamespace(variations=[Variation("rate", 0.004, relative=True)]))
    (sentence,) = variation_words(data)
    assert sentence.startswith("From run to run of one configuration the rate varies by under 1 %, so")
