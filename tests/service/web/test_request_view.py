"""Requests in words."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind.reporting.words import machines_of
from tradewind.service.web.request_view import SILENCE, compare_predictions, prediction_bars, stage_views, view_request
from tradewind.store.service.request_values import RequestEvent, RequestRow, RequestState

NOW = 10_000.0


def request(state: RequestState = "executing", kind: Any = "run", **fields: Any) -> RequestRow:
    given = {"name": "mine", "created": 9_000.0, "started": 9_100.0, **fields}
    return RequestRow(
        7, "physics", 1, kind, {"application": "plate", **given.pop("document", {})}, state=state, **given
    )


def events(*stages: tuple[RequestState, float]) -> list[RequestEvent]:
    return [RequestEvent(number, 7, at, stage, stage) for number, (stage, at) in enumerate(stages)]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("aws/us-east-1/c5.xlargex2", "2 × c5.xlarge, us-east-1"),
        ("aws/eu-west-1/c5.xlarge/spotx1", "c5.xlarge, eu-west-1, spot"),
        ("local//local.c2x1", "local.c2"),
        ("", ""),
        (None, ""),
        ("odd", ""),
    ],
)
def test_machines(key: object, words: str) -> None:
    assert machines_of(key) == words


def test_money_of_a_run_is_what_it_costs_by_now() -> None:
    shown = view_request(request(cost=0.01, progress={"cost": 0.04}), NOW)
    assert (shown.money.words, shown.money.limit, shown.money.kind) == ("$0.0400", None, "")
    limited = view_request(request(cost=0.01, progress={"cost": 0.09}, plan={"dollars": 0.1}), NOW)
    assert (limited.money.words, limited.money.rest, limited.money.kind) == (
        "$0.0900 of $0.100",
        "$0.0100 left",
        "warn",
    )
    over = view_request(request("done", cost=0.02, ended=9_200.0, progress={"cost": 0.04}, plan={"dollars": 0.01}), NOW)
    assert (over.money.words, over.money.rest, over.money.kind) == ("$0.0200 of $0.0100", "", "bad")


def test_money_goes_on_between_two_looks_at_a_run() -> None:
    progress = {"cost": 0.01, "hourly": 3.6, "at": NOW - 10}
    money = view_request(request(progress=progress), NOW).money
    assert (money.words, money.rate, money.at) == ("$0.0200", 0.001, NOW)
    silent = view_request(request(progress={**progress, "at": NOW - 9_000}), NOW).money
    assert silent.value == pytest.approx(0.01 + 0.001 * SILENCE), "a worker that says nothing may be gone"
    for state, rate in (("booting", 0.0), ("executing", 0.001)):
        begun = view_request(request(state, progress={**progress, "cost": 0.0}), NOW).money  # type: ignore[arg-type]
        assert begun.rate == rate, "nothing is paid for before there is a machine"
    over = view_request(request("done", cost=0.03, ended=9_200.0, progress=progress), NOW).money
    assert (over.value, over.rate) == (0.03, 0.0)
    row = request(plan={"predicted": {"runtime": 300.0, "cost": 0.02}}, progress=progress)
    way = stage_views(row, events(("pending", 9_000.0), ("executing", 9_200.0)), NOW)
    bars = prediction_bars(row, way, NOW)
    assert (bars["cost"].value, bars["cost"].rate, bars["cost"].at) == (0.02, 0.001, NOW)
    assert bars["runtime"].rate == 0.0


def test_time_is_of_what_was_asked() -> None:
    assert view_request(request("pending", started=None), NOW).time is None
    free = view_request(request(), NOW).time
    assert free is not None
    assert (free.words, free.limit) == ("15m", None)
    limited = view_request(request(document={"resources": {"time": "20m"}}), NOW).time
    assert limited is not None
    assert (limited.words, limited.rest, limited.kind) == ("15m of 20m", "5m left", "")
    search = view_request(request(kind="search", progress={"budget": {"hours": 0.25}}), NOW).time
    assert search is not None
    assert (search.words, search.rest, search.kind) == ("15m of 15m", "0 s left", "warn")
    assert view_request(request(document={"resources": {"time": "nonsense"}}), NOW).time == free


def test_how_far_a_request_is_in_a_line() -> None:
    best = {"objective": 0.0281, "trial": 9, "offer": "local//local.c1x1", "configuration": {"threads": 4}}
    search = request(kind="search", progress={"trials": 14, "best": best, "metric": "cost"})
    assert view_request(search, NOW).remark == "14 trials · best $0.0281"
    found = view_request(search, NOW).best
    assert found is not None
    assert (found.machines, found.configuration, found.trial) == ("local.c1", {"threads": 4}, 9)
    unnamed = view_request(request(kind="search", progress={"trials": 1, "best": {**best, "objective": 254.0}}), NOW)
    assert unnamed.remark == "1 trial · best 254", "a figure that nobody named is no money"
    assert view_request(request(progress={"waiting": "for a free place"}), NOW).remark == "for a free place"
    assert view_request(request(wanted="cancel"), NOW).remark == "is being cancelled"
    assert view_request(request(wanted="delete"), NOW).remark == "is being deleted"
    assert view_request(request("failed", problem="x", ended=9_500.0), NOW).remark == ""


@pytest.mark.parametrize(
    ("state", "wanted", "cancel", "retry"),
    [
        ("executing", "run", True, False),
        ("executing", "cancel", False, False),
        ("failed", "run", False, True),
        ("cancelled", "cancel", False, True),
        ("done", "run", False, False),
    ],
)
def test_what_can_be_done(state: RequestState, wanted: Any, cancel: bool, retry: bool) -> None:
    shown = view_request(request(state, wanted=wanted, ended=9_500.0), NOW)
    assert (shown.can_cancel, shown.can_retry) == (cancel, retry)


def test_stages_of_a_run_on_its_way() -> None:
    way = stage_views(
        request(), events(("pending", 9_000), ("booting", 9_100), ("executing", 9_200), ("executing", 9_300)), NOW
    )
    assert [(step.stage, step.state, step.at, step.seconds) for step in way] == [
        ("pending", "past", 9_000, 100.0),
        ("booting", "past", 9_100, 100.0),
        ("bootstrapping", "skipped", None, None),
        ("submitting", "skipped", None, None),
        ("executing", "now", 9_200, 800.0),
        ("collecting", "to come", None, None),
        ("done", "to come", None, None),
    ]
    assert [round(step.share, 2) for step in way] == [0.1, 0.1, 0, 0, 0.8, 0, 0]


def test_stages_of_a_request_that_failed_begin_anew_when_it_is_retried() -> None:
    first = events(("pending", 9_000), ("executing", 9_100), ("failed", 9_200))
    failed = stage_views(request("failed", ended=9_200.0), first, NOW)
    assert [(step.stage, step.state) for step in failed][-3:] == [
        ("executing", "past"),
        ("collecting", "skipped"),
        ("failed", "past"),
    ]
    again = stage_views(request("pending"), first + events(("pending", 9_900)), NOW)
    assert [(step.stage, step.seconds) for step in again if step.seconds is not None] == [("pending", 100.0)]
    assert again[-1].stage == "done"


def test_stages_of_a_search_are_three() -> None:
    way = stage_views(request(kind="search"), events(("pending", 9_000), ("executing", 9_100)), NOW)
    assert [(step.stage, step.state) for step in way] == [
        ("pending", "past"),
        ("executing", "now"),
        ("done", "to come"),
    ]


def test_what_was_predicted_stands_beside_what_it_took() -> None:
    plan = {"predicted": {"runtime": 80.0, "runtime_low": 60.0, "runtime_high": 120.0, "cost": 0.02}}
    row = request("done", ended=9_300.0, cost=0.03, plan=plan)
    way = stage_views(
        row, events(("pending", 9_000), ("executing", 9_100), ("collecting", 9_200), ("done", 9_300)), NOW
    )
    time, money = compare_predictions(row, way)
    assert (time.predicted, time.range, time.actual, time.difference) == ("1m 20s", "1m and 2m", "1m 40s", "+25 %")
    assert (money.predicted, money.range, money.actual, money.difference) == ("$0.0200", "", "$0.0300", "+50 %")
    running = compare_predictions(request(plan=plan), way)
    assert [line.actual for line in running] == ["", ""]
    assert compare_predictions(request("done"), way) == []


def test_what_a_run_measured_is_shown_and_a_range_of_one_value_is_none() -> None:
    result = {"metrics": {"rate": 48.0, "exit_code": 0.0, "runtime": 0.1877, "cost": 2.35e-06}}
    plan = {"predicted": {"cost": 0.5, "cost_low": 0.5, "cost_high": 0.5}}
    row = request("done", ended=9_200.0, progress={"result": result}, plan=plan)
    assert view_request(row, NOW).measured == [
        ("rate", "48"),
        ("Run time", "0.19 s"),
        ("Cost", "$2.35 per 1,000,000 runs"),
    ]
    assert [line.range for line in compare_predictions(row, [])] == [""]


def test_bars_against_what_was_predicted() -> None:
    predicted = {"runtime": 300.0, "runtime_high": 500.0, "cost": 0.02}
    row = request(plan={"predicted": predicted}, progress={"cost": 0.01})
    way = stage_views(row, events(("pending", 9_000.0), ("executing", 9_200.0)), NOW)
    bars = prediction_bars(row, way)
    assert (bars["runtime"].value, bars["runtime"].since, bars["runtime"].kind) == (800.0, 9_200.0, "warn")
    assert bars["runtime"].rest == "8m 20s more"
    assert (bars["cost"].value, bars["cost"].words, bars["cost"].rest) == (0.01, "$0.0200 predicted", "")
    assert prediction_bars(request(), way) == prediction_bars(row, way[:1]) == {}
