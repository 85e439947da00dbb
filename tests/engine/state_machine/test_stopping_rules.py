"""Rules that end a search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tradewind.engine.state_machine.stopping_rules import STOPPING_RULES, SearchProgress, make_stopping_rules
from tradewind.problem import Configuration, Objective, Observation, Offer, Proposal, Trial, TrialState
from tradewind.problem.job_spec.model import STOP_SETTINGS

OFFER = Offer("local", "x", 1, 1, 1.0)


def ended(number: int, cost: float, fidelity: float = 1.0) -> Trial:
    proposal = Proposal(Configuration({"x": number}), fidelity=fidelity)
    seen = Observation(cost, cost, cost * 3600, feasible=True)
    return Trial(number, proposal, OFFER, TrialState.SUCCEEDED, str(number), seen)


def said(those: list[Trial], **settings: object) -> str | None:
    rules = make_stopping_rules([("no_improvement", settings)])
    progress = SearchProgress(Objective(), those, those[-1], 1.0)
    return next((reason for rule in rules if (reason := rule(progress))), None)


def test_runs_on_a_part_of_the_input_are_no_best_that_the_others_must_beat() -> None:
    whole = [ended(n, 2.0 - 0.1 * n) for n in range(1, 16)]
    assert said([ended(0, 0.1, 0.1), *whole]) is None
    assert said(whole) is None


def test_runs_on_a_part_of_the_input_are_no_trials_in_vain_either() -> None:
    parts = [ended(n, 0.5 + 0.1 * n, 0.1) for n in range(1, 6)]
    assert said([ended(0, 2.0), *parts], trials=3) is None
    assert said([ended(0, 2.0), *parts, *(ended(n, 2.0) for n in (6, 7, 8))], trials=3) == (
        "3 trials in a row improved nothing"
    )


class CountedTrials(list[Trial]):
    """Trials that count how many of them were read."""

    read = 0

    def __iter__(self) -> Iterator[Trial]:
        self.read += len(self)
        return super().__iter__()

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.read += len(found) if isinstance(place, slice) else 1
        return found


def test_a_rule_that_is_asked_at_each_trial_of_a_long_search_reads_each_of_them_once() -> None:
    rule = make_stopping_rules([("no_improvement", {"trials": 400})])[-1]
    trials = CountedTrials()
    for number in range(1000):
        trials.append(ended(number, 1.0 if number == 700 else 2.0))
        stops = rule(SearchProgress(Objective(), trials, None, 1.0)) is not None
        assert stops == (400 <= number < 700)
    assert trials.read == 1000


def unlucky(number: int, state: TrialState, metrics: dict[str, float] | None = None) -> Trial:
    cut = state == TrialState.ABORTED
    reason = "" if cut else "exit code 1"
    seen = Observation(None, 0.1, 360.0, feasible=False, censored=cut, metrics=metrics or {}, reason=reason)
    return Trial(number, Proposal(Configuration({"x": number})), OFFER, state, str(number), seen)


def ends(states: str, metrics: dict[str, float] | None = None, **settings: object) -> tuple[int, str] | None:
    """After how many trials a search ends, of f(ailed), a(borted) and s(ucceeded) ones, and why."""
    rule = make_stopping_rules([("all_failed", settings)])[0]
    trials: list[Trial] = []
    by = {"f": TrialState.FAILED, "a": TrialState.ABORTED, "s": TrialState.SUCCEEDED}
    for number, state in enumerate(states):
        trials.append(unlucky(number, by[state], metrics))
        if reason := rule(SearchProgress(Objective("loss"), trials, None, 1.0)):
            return len(trials), reason
    return None


def test_runs_that_were_cut_short_are_no_sign_that_the_program_works() -> None:
    assert ends("f" * 40) == (8, "the first 8 trials all failed, the last one: exit code 1")
    said = "of the first 9 trials none succeeded, 1 was cut short, and the last that failed: exit code 1"
    assert ends("a" + "f" * 40) == (9, said)
    assert ends("a" * 40) is None
    assert ends("fffs" + "f" * 40) is None
    assert (ends("f" * 40, trials=20) or (0, ""))[0] == 20
    assert ends("f", trials=1) == (1, "the first trial failed: exit code 1")


def test_where_more_were_cut_short_as_many_may_fail() -> None:
    assert ends("a" * 12 + "f" * 11) is None
    assert ends("a" * 12 + "f" * 12) is not None


def test_a_metric_that_no_run_has_ends_a_search_whose_other_runs_were_cut_short() -> None:
    said = "of the first 22 trials none succeeded, 20 were cut short, and the last that failed: exit code 1"
    assert ends("a" * 20 + "ff", {"accuracy": 1.0}) == (22, said)
    assert ends("a" * 20 + "ff", {"accuracy": 1.0}, silent=3) is None
    assert ends("a" * 20 + "ff", {"loss": 1.0}) is None


def test_a_metric_that_a_run_reported_before_it_was_cut_short_is_not_misspelt() -> None:
    rule = make_stopping_rules([("all_failed", {})])[0]
    reported = unlucky(0, TrialState.ABORTED, {"loss": 1.0})
    trials = [reported, *(unlucky(n, TrialState.FAILED, {"accuracy": 1.0}) for n in (1, 2, 3))]
    assert rule(SearchProgress(Objective("loss"), trials, None, 1.0)) is None


def test_so_many_failures_in_all_end_a_search_in_which_others_succeeded() -> None:
    rule = make_stopping_rules([("failed", {"trials": 2})])[-1]
    trials = [ended(0, 1.0), unlucky(1, TrialState.FAILED), unlucky(2, TrialState.ABORTED), ended(3, 1.0)]
    assert rule(SearchProgress(Objective(), trials, trials[0], 1.0)) is None
    trials.append(unlucky(4, TrialState.FAILED))
    assert rule(SearchProgress(Objective(), trials, trials[0], 1.0)) == "2 trials failed, the last one: exit code 1"
    # One that goes on after it has stopped knows all of them at once.
    again = make_stopping_rules([("failed", {"trials": 2})])[-1]
    assert again(SearchProgress(Objective(), trials, trials[0], 1.0)) is not None
    more = make_stopping_rules([("failed", {"trials": 3})])[-1]
    assert more(SearchProgress(Objective(), trials, trials[0], 1.0)) is None


def test_the_setting_that_a_short_form_gives_is_the_first_of_its_rule() -> None:
    first = {name: next(iter(settings.model_fields), None) for name, (settings, _) in STOPPING_RULES.items()}
    assert first.pop("never") is None
    assert first == STOP_SETTINGS
