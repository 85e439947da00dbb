from __future__ import annotations

import pytest
from tests.stopper.curves import RECORDED, curve, recorded

from tradewind import plugins
from tradewind.errors import SpecError
from tradewind.stopper.base import LearningCurve, Stopper


def halving(**settings: object) -> Stopper:
    made = plugins.create("stopper", "successive_halving", settings)
    assert isinstance(made, Stopper)
    return made


def side_by_side(order: list[str]) -> dict[str, int]:
    """The step at which each of some recorded curves is stopped, all running at once in lockstep; 9 is the end."""
    rule, alive, last = halving(), list(order), dict.fromkeys(order, 9)
    curves = {name: curve([]) for name in order}
    for step in range(1, 10):
        for name in list(alive):
            curves[name].extend([(float(step), RECORDED[name][step - 1])])
            others = [other for key, other in curves.items() if key != name and other.steps]
            if rule.hopeless(curves[name], others):
                curves[name].over = True
                alive.remove(name)
                last[name] = step
    return last


def test_golden_decisions_on_recorded_curves() -> None:
    assert side_by_side(["usual", "flat", "stuck", "good", "diverges", "slow"]) == {
        "usual": 9,
        "flat": 9,
        "stuck": 1,
        "good": 9,
        "diverges": 3,
        "slow": 1,
    }


def test_of_those_that_came_to_a_rung_one_in_eta_goes_on() -> None:
    came = [curve([loss]) for loss in (1.0, 2.0, 3.0, 4.0, 5.0)]
    assert halving().hopeless(curve([1.5]), came) == ""
    why = halving().hopeless(curve([2.5]), came)
    assert why == "2 of the 6 trials that came to step 1 were better there, and 2 may go on"


def test_the_first_that_come_to_a_rung_go_on() -> None:
    assert halving().hopeless(curve([9.0]), [curve([1.0])]) == ""
    assert halving(eta=2).hopeless(curve([9.0]), [curve([1.0])])


def test_a_trial_is_judged_once_at_each_rung() -> None:
    came = [recorded("good")] * 5
    assert halving().hopeless(recorded("stuck", 3), came)
    assert halving().hopeless(recorded("stuck", 4), came) == ""
    assert halving().hopeless(recorded("stuck", 9), came)


def test_a_trial_that_jumps_over_a_rung_is_judged_where_it_lands() -> None:
    came = [recorded("good")] * 5
    jumper = curve([])
    jumper.extend([(1.0, 0.1), (2.0, 0.1), (5.0, 0.9)])
    assert "came to step 3" in halving().hopeless(jumper, came)


def test_a_rung_that_no_step_hits_for_rounding_is_come_to() -> None:
    def reported(loss: float) -> LearningCurve:
        made = curve([])
        made.extend([(0.1, loss), (0.2, loss)])
        made.extend([(0.3, loss)])  # below 0.1 * 3, which is 0.30000000000000004
        return made

    why = halving(first_step=0.1).hopeless(reported(0.9), [reported(0.1)] * 5)
    assert why == "5 of the 6 trials that came to step 0.3 were better there, and 2 may go on"


def test_a_share_of_the_trials_is_not_rounded_down_by_the_last_bit() -> None:
    better = [curve([loss]) for loss in range(29)]  # 33 / 1.1 is 29.999999999999996
    worse = [curve([100.0])] * 3
    assert halving(eta=1.1).hopeless(curve([50.0]), better + worse) == ""
    assert halving(eta=1.1).hopeless(curve([50.0]), [*better, curve([-1.0]), *worse[:2]])


def test_equal_trials_do_not_stop_each_other() -> None:
    assert halving().hopeless(recorded("flat", 3), [recorded("flat")] * 8) == ""


@pytest.mark.parametrize("eta", [1, 0.5, 1000])
def test_an_eta_that_is_none_is_refused(eta: float) -> None:
    with pytest.raises(SpecError):
        halving(eta=eta)
