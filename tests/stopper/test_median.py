from __future__ import annotations

import pytest
from tests.stopper.curves import RECORDED, curve, recorded

from tradewind import plugins
from tradewind.errors import SpecError
from tradewind.stopper.base import Stopper


def median(**settings: object) -> Stopper:
    made = plugins.create("stopper", "median", settings)
    assert isinstance(made, Stopper)
    return made


def first_stop(name: str, others: list[str]) -> int | None:
    """The step at which a recorded curve would be stopped, beside finished ones."""
    ended = [recorded(other, finished=True) for other in others]
    rule = median(trials=3)
    steps = range(1, len(RECORDED[name]) + 1)
    return next((step for step in steps if rule.hopeless(recorded(name, step), ended)), None)


def test_golden_decisions_on_recorded_curves() -> None:
    others = ["good", "usual", "flat"]  # the medians of their means: 0.91, 0.785, 0.697, 0.635, ...
    assert {name: first_stop(name, others) for name in RECORDED} == {
        "good": None,
        "slow": 1,
        "usual": None,
        "flat": 1,
        "stuck": 1,
        "diverges": 3,
    }


def test_the_rule_compares_the_best_with_the_median_of_the_means() -> None:
    ended = [curve(values, finished=True) for values in ([4.0, 2.0], [6.0, 4.0], [9.0, 7.0])]  # means 3, 5, 8
    assert median(trials=3).hopeless(curve([9.0, 5.0]), ended) == ""
    why = median(trials=3).hopeless(curve([9.0, 5.1]), ended)
    assert why == "its best by step 2 is 5.1, and the median of 3 trials 5"


def test_nothing_is_stopped_before_enough_trials_have_ended() -> None:
    ended = [curve([1.0], finished=True)] * 4
    running = [curve([1.0])] * 9
    assert median().hopeless(curve([2.0]), [*ended, *running]) == ""
    assert median().hopeless(curve([2.0]), [*ended, *running, curve([1.0], finished=True)])


def test_a_trial_that_was_cut_short_counts_up_to_where_it_came() -> None:
    cut = [curve([1.0, 1.0], over=True)] * 3
    assert median(trials=3).hopeless(curve([5.0, 5.0]), cut)
    assert median(trials=3).hopeless(curve([5.0, 5.0, 5.0]), cut) == ""


@pytest.mark.parametrize("given", [{"trials": 0}, {"first_step": 0}, {"every": 0}, {"pattern": "x"}, {"pattern": "("}])
def test_wrong_settings_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        median(**given)
