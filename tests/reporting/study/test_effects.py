"""Effects of parameters: what the runs allow to be said, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.reporting.conftest import Build, make_trial

from tradewind.reporting.study.data import StudyData
from tradewind.reporting.study.documents import figures_document, report_document
from tradewind.reporting.study.effects import ParameterEffect, ParameterEffects, parameter_effects
from tradewind.reporting.study.explanation import explain_choice
from tradewind.reporting.study.html import render_html
from tradewind.store.base import Store

FAST = {"objective": {"maximise": "throughput"}}


def told(store: Store, build: Build, trials: list[Any], **more: Any) -> ParameterEffects:
    found = parameter_effects(StudyData.load(store, build(trials, **more)))
    assert found is not None
    return found


def by_name(found: ParameterEffects) -> dict[str, ParameterEffect]:
    return {one.parameter: one for one in found.found}


def training(seed: int = 0, noise: float = 0.02) -> list[Any]:
    """Twelve runs of a training step: precision changes the throughput 3.2-fold, batch size 6-fold."""
    rng = np.random.default_rng(seed)
    runs = [(batch, amp) for batch in (8, 16, 32, 64) for amp in ("fp32", "bf16")]
    runs += [(batch, "fp32") for batch in (12, 24, 48, 96)]
    trials = []
    for number, (batch, amp) in enumerate(runs):
        speed = 100.0 * (batch / 8) ** (np.log(6) / np.log(8)) * (3.2 if amp == "bf16" else 1.0)
        speed *= float(np.exp(noise * rng.standard_normal()))
        trials.append(make_trial(number, {"batch": batch, "amp": amp}, 0.1, objective=speed))
    return trials


def test_both_parameters_of_a_training_step_are_told_with_their_factors(store: Store, build: Build) -> None:
    found = by_name(told(store, build, training(), spec=FAST))
    amp, batch = found["amp"], found["batch"]
    assert (amp.level, amp.reference, amp.pairs, amp.verdict) == ("bf16", "fp32", 4, "tells")
    assert amp.low < 3.2 < amp.high
    assert amp.high / amp.low < 1.3
    assert amp.words("throughput").startswith("bf16 instead of fp32: 3.2 times the throughput (")
    assert batch.verdict == "tells"
    assert batch.size > 4.0


def test_text_page_and_json_say_the_same(store: Store, build: Build) -> None:
    data = StudyData.load(store, build(training(), spec=FAST))
    words = by_name(told(store, build, training(), spec=FAST, name="other"))["amp"].words("throughput")
    assert words in " ".join(explain_choice(data))
    assert words in render_html(data)
    assert words in [one["words"] for one in report_document(data)["effects"]]
    assert words in [one["words"] for one in figures_document(data)["effects"]]


def test_the_range_holds_the_effect_as_often_as_it_says(store: Store, build: Build) -> None:
    held = sum(
        one.low <= 3.2 <= one.high
        for seed in range(40)
        if (one := by_name(told(store, build, training(seed, 0.1), spec=FAST, name=f"s{seed}"))["amp"])
    )
    assert held >= 34


@pytest.mark.thorough
@pytest.mark.slow
def test_noise_is_told_as_an_effect_as_seldom_as_the_range_says(store: Store, build: Build) -> None:
    claimed = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        trials = [
            make_trial(i, {"a": int(rng.integers(5)), "b": str(rng.choice(["x", "y"])), "i": i}, float(rng.lognormal()))
            for i in range(30)
        ]
        found = by_name(told(store, build, trials, name=f"s{seed}"))
        claimed += (found["a"].verdict == "tells") + (found["b"].verdict == "tells")
    assert claimed <= 14


def test_where_runs_do_not_tell_nothing_is_said(store: Store, build: Build) -> None:
    """The two parameters always changed together: which of them did it, nobody knows."""
    trials = [make_trial(i, {"a": i % 2, "b": "xy"[i % 2], "c": i}, 1.0 + i % 2 + 0.01 * i) for i in range(8)]
    found = told(store, build, trials)
    assert {one.verdict for one in found.found} == {"unknown"}
    assert found.found[0].words("cost") == "the runs do not tell"
    assert "What mattered" not in " ".join(explain_choice(StudyData.load(store, build(trials, name="again"))))


def test_what_surely_changes_next_to_nothing_is_said_to_do_so(store: Store, build: Build) -> None:
    trials, number = [], 0
    for a in range(6):
        for b in (0, 1):
            trials.append(make_trial(number, {"a": a, "b": b}, (1.0 + a) * (1.002 if b else 1.0)))
            number += 1
    data = StudyData.load(store, build(trials))
    found = parameter_effects(data)
    assert found is not None
    assert by_name(found)["b"].verdict == "hardly"
    assert "hardly at all: b." in " ".join(explain_choice(data))


def test_repeated_runs_of_two_configurations_tell(store: Store, build: Build) -> None:
    costs = [1.0, 1.05, 0.95, 2.0, 2.1, 1.9]
    trials = [make_trial(i, {"a": "xy"[i // 3]}, cost) for i, cost in enumerate(costs)]
    one = told(store, build, trials).found[0]
    assert (one.level, one.verdict, one.pairs) == ("x", "tells", 0)
    assert one.low < 0.5 < one.high
    single = told(store, build, [trials[0], trials[3]], name="two")
    assert single.found[0].verdict == "unknown"


def test_values_below_zero_have_differences(store: Store, build: Build) -> None:
    trials, number = [], 0
    for a in range(5):
        for b in (0, 1):
            trials.append(make_trial(number, {"a": a, "b": b}, 0.1, objective=-3.0 + a + 2.0 * b + 0.01 * (number % 3)))
            number += 1
    one = by_name(told(store, build, trials, spec={"objective": {"maximise": "score"}}))["b"]
    assert (one.level, one.factor) == ("1", False)
    assert one.size == pytest.approx(2.0, abs=0.05)
    assert one.words("score").startswith("1 instead of 0: +2")


def test_effects_do_not_depend_on_the_unit(store: Store, build: Build) -> None:
    found = []
    for unit in (1.0, 1e300):
        trials = [
            make_trial(i, {"a": i % 4, "b": i // 4 % 2}, 0.1, objective=unit * (i % 4 - 1.0 + 0.3 * (i // 4 % 2)))
            for i in range(8)
        ]
        found.append(told(store, build, trials, name=f"{unit}"))
    assert found[0].names == found[1].names == ["a", "b"]
    assert found[1].found[0].size == pytest.approx(1e300 * found[0].found[0].size)


def test_without_different_values_there_is_nothing(store: Store, build: Build) -> None:
    assert parameter_effects(StudyData.load(store, build([make_trial(0, {"a": 0}, 1.0)]))) is None
    same = [make_trial(i, {"a": 1}, 1.0 + i) for i in range(9)]
    assert parameter_effects(StudyData.load(store, build(same, name="same"))) is None
    equal = told(store, build, [make_trial(i, {"a": i % 3, "b": i // 3}, 1.0) for i in range(9)], name="equal")
    assert {one.verdict for one in equal.found} == {"hardly"}


def test_what_is_below_the_rounding_of_the_figures_is_no_difference(store: Store, build: Build) -> None:
    scores = [-3.3 if i % 2 else -1.1 - 2.2 for i in range(12)]
    assert len(set(scores)) == 2, "sums that differ in their last bit"
    trials = [make_trial(i, {"a": i % 2, "b": i // 2}, 0.1, objective=scores[i]) for i in range(12)]
    found = by_name(told(store, build, trials, spec={"objective": {"maximise": "score"}}))
    assert {one.verdict for one in found.values()} == {"hardly"}
    assert ": the same score (from 6 pairs)" in found["a"].words("score")
    # Small values are told apart as large ones are.
    small = [make_trial(i, {"a": i % 2, "b": i // 2}, 0.1, objective=-1e-12 * (1 + i % 2)) for i in range(12)]
    one = by_name(told(store, build, small, spec={"objective": {"maximise": "score"}}, name="small"))["a"]
    assert one.verdict == "tells"
    assert one.size == pytest.approx(1e-12)
