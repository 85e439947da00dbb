from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from tests.html_page import EVIL, Page

from tradewind import Study
from tradewind.engine.study_view import TrialList
from tradewind.problem import Configuration, Objective, Observation, Offer, Proposal, Trial, TrialState

JOB: dict[str, Any] = {
    "name": "bowl",
    "space": {"x": "0..10", "mode": ["plain", '<b>bold</b> & "more"']},
    "objective": {"minimise": "<i>value"},
    "constraints": {"metrics": {"<i>value": "<= 40"}},
    "budget": {"trials": 12, "dollars": 2},
    "searcher": "exhaustive",
}


def bowl(x: int, mode: str) -> dict[str, float]:
    if x == 5:
        raise ValueError(EVIL)
    return {"<i>value": float((x - 3) ** 2) + (5 if mode != "plain" else 0)}


def made(number: int, value: float, **values: Any) -> Trial:
    seen = Observation(value, 1.0, 2.0, True)
    offer = Offer("local", "c1", 1, 1, 0.1)
    return Trial(number, Proposal(Configuration(values or {"x": number})), offer, TrialState.SUCCEEDED, "k", seen)


def test_a_study_shows_its_best_configuration_its_money_its_trials_and_why_it_ended() -> None:
    with Study(JOB) as study:
        page = Page(study._repr_html_())
        assert "best configurationnone yet" in page.text
        assert "finishedno" in page.text
        assert repr(study).startswith(
            "<Study bowl; best configuration: none yet, spent: $0.00 of $2.00, trials: 0 of 12"
        )
        study.optimise(bowl)
    page = Page(study._repr_html_())
    assert "Study bowl" in page.text
    assert "best configurationmode=plain x=3" in page.text
    assert "best <i>value0" in page.text
    assert "trials12 of 12 (" in page.text
    assert "finishedthe budget of 12 trials is used up" in page.text
    assert "best <i>value: 0" in repr(study)
    assert "\n" not in repr(study)


def test_a_study_shows_its_best_trials_only_the_best_one_first() -> None:
    with Study({**JOB, "budget": {}}) as study:
        study.optimise(bowl)
        html = study._repr_html_()
    page = Page(html)
    assert page.elements.count("tr") == 5 + 1 + 5  # facts, a head, trials
    rows = html.split("<tbody>")[-1].split("<tr")[1:]
    assert "★" in rows[0]
    assert [row.count("★") for row in rows[1:]] == [0] * 4
    assert "failed" not in "".join(rows)


def test_whatever_users_write_is_text() -> None:
    with Study(JOB) as study:
        study.optimise(bowl)
        failed = next(trial for trial in study.trials if trial.state is TrialState.FAILED)
        shown = [study._repr_html_(), study.trials._repr_html_(), failed._repr_html_()]  # type: ignore[attr-defined]
    for html in shown:
        page = Page(html)
        assert set(page.elements) <= {"div", "table", "thead", "tbody", "tr", "th", "td"}
        assert page.attributes <= {"class", "style", "scope"}
    assert '<b>bold</b> & "more"' in Page(shown[1]).text
    assert "ValueError: <script>alert('x')</script>" in Page(shown[1]).text
    assert "ValueError: <script>alert('x')</script>" in Page(shown[2]).text


def test_the_trials_are_a_list_that_shows_a_table() -> None:
    with Study(JOB) as study:
        study.optimise(bowl)
        trials = study.trials
    assert isinstance(trials, list)
    assert trials == list(trials)
    assert isinstance(trials[0], Trial)
    assert [trial.number for trial in trials[2:4]] == [2, 3]
    html = trials[2:4]._repr_html_()  # type: ignore[attr-defined]
    assert "2 trials" in html
    assert html.count("<tr") == 3
    lines = repr(trials).splitlines()
    assert lines[0] == "12 trials:"
    assert len(lines) == 13
    assert [line[:3] for line in lines].count("  *") == 1
    assert "mode=plain x=0, <i>value 9, $0.0" in repr(trials)
    assert "\x1b" not in repr(trials)
    assert repr(TrialList()) == "0 trials"
    assert "0 trials" in TrialList()._repr_html_()


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda trials: pickle.loads(pickle.dumps(trials))])
def test_a_copied_list_shows_the_same(again: Any) -> None:
    trials = TrialList([made(0, 2.0), made(1, 1.0)], Objective("loss"), best=1)
    assert again(trials) == trials
    assert again(trials)._repr_html_() == trials._repr_html_()
    assert "★ 1" in trials._repr_html_()


def test_of_a_long_list_the_ends_are_shown() -> None:
    trials = TrialList([made(number, 1.0) for number in range(1000)], Objective("loss"))
    assert trials._repr_html_().count("<tr") == 41
    assert "the first and the last 20; 960 are left out" in trials._repr_html_()
    assert len(repr(trials).splitlines()) == 42
    assert "... 960 more ..." in repr(trials)


def test_of_many_parameters_there_is_one_column() -> None:
    many = {f"p{number}": number for number in range(30)}
    html = TrialList([made(0, 1.0, **many)], Objective("loss"))._repr_html_()
    assert html.count("<th ") == 6
    assert "p0=0 p1=1" in html


def test_a_parameter_that_a_trial_does_not_have_is_empty() -> None:
    html = TrialList([made(0, 1.0, x=1), made(1, 2.0, y=0.123456)], Objective("cost"))._repr_html_()
    page = Page(html)
    assert page.elements.count("td") == 2 * 6
    assert "0.1235" in page.text


def test_a_trial_shows_what_it_measured() -> None:
    with Study({**JOB, "space": {"x": "0..3"}, "constraints": {}}) as study:
        first = study.ask()[0]
        running = Page(study.trials[0]._repr_html_())
        assert running.text == "Trial 0: runningx0"
        study.tell(first, runtime=90.0, cost=0.5, metrics={"<i>value": 1.5, "other": 2.0})
        second = study.ask()[0]
        study.tell(second, runtime=3.0, cost=0.5, state="aborted", reason="too slow")
        assert Page(study.trials[0]._repr_html_()).text == (
            "Trial 0: succeededx0<i>value1.5other2cost$0.500run time1m 30s"
        )
        assert "cost≥ $0.500run time≥ 3.0 swhytoo slow" in Page(study.trials[1]._repr_html_()).text
