"""What is known of the runs on their way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tradewind.engine.state_machine.active_runs import ActiveRuns
from tradewind.problem import LOCALHOST, STOPPED_EARLY, Handle, Machine, Run, RunState


def run(number: int = 0, **more: object) -> Run:
    return replace(Run(f"r{number}", number, reserved=2.0), **more)  # type: ignore[arg-type]


def test_news_keep_what_was_set_aside_and_are_written_once() -> None:
    runs = ActiveRuns()
    runs.put(run())
    news = runs.known(run(state=RunState.EXECUTING, reserved=0.0))
    assert news is not None
    assert news.reserved == 2.0
    runs.put(news, stored=False)
    assert list(runs.rows([run(1)])) == [news, run(1)]
    assert list(runs.rows([])) == []
    assert runs.known(run(7)) is None


def test_the_first_reason_of_a_cancelled_run_stays() -> None:
    runs = ActiveRuns()
    runs.put(run())
    runs.may_take("r0", None, "the deadline")
    assert runs.why_cut(run()) == "the deadline"
    assert runs.abort("r0", "too dear")
    assert not runs.abort("r0", "too late")
    assert runs.why_cut(run()) == "too dear"
    assert list(runs.going_on()) == []
    runs.remove("r0")
    assert not runs.aborted("r0")
    assert runs.why_cut(run(reason="its own")) == "its own"
    with pytest.raises(KeyError):
        runs.remove("r0")


def test_what_an_earlier_process_was_ending_is_not_wanted_by_the_next() -> None:
    first, early = ActiveRuns(), f"{STOPPED_EARLY}loss: hopeless"
    for number in range(3):
        first.put(run(number))
    assert first.abort("r0", early)
    assert first.abort("r1", "it can no longer win")
    assert not first.abort("r0", "once more")
    rows = list(first.rows([]))
    assert [row.reason for row in rows] == [f"being ended: {why}" for why in (early, "it can no longer win")]
    second = ActiveRuns()
    for row in (*rows, run(2, reason="its results are not here yet")):
        second.put(row)
    second.take_up()
    assert [second.why_ending(f"r{number}") for number in range(3)] == [early, "it can no longer win", ""]
    assert [each.run_id for each in second.going_on()] == ["r2"]


def test_news_of_a_run_that_is_being_ended_do_not_forget_it() -> None:
    runs = ActiveRuns()
    runs.put(run())
    runs.abort("r0", "too dear")
    list(runs.rows([]))
    trouble = "its machines are not given back yet: no"
    news = runs.known(run(cost=1.0, reason=trouble))
    assert news is not None
    assert (news.reason, news.cost) == ("being ended: too dear", 1.0)
    runs.put(news)
    assert runs.trouble("r0") == trouble
    assert runs.why_ending("r0") == "too dear"
    gone = run(state=RunState.CANCELLED, reason="it was cancelled")
    assert runs.known(gone) == gone
    runs.put(run(1, reason=trouble))
    assert (runs.trouble("r1"), runs.why_ending("r1")) == (trouble, "")


def test_a_run_that_something_else_cut_did_not_reach_its_wall_time() -> None:
    runs = ActiveRuns()
    runs.put(run())
    runs.may_take("r0", 3600.0, "it ran into the deadline of 1h")
    assert runs.why_cut(run(runtime=3599.0, reason="wall time")) == "it ran into the deadline of 1h"
    assert runs.why_cut(run(runtime=60.0, reason="the partition's limit")) == "the partition's limit"
    assert runs.why_cut(run(runtime=60.0)) == "it ran into the deadline of 1h", "better than nothing"


def test_what_would_be_made_and_paid_for_once_more_is_written_at_once() -> None:
    runs = ActiveRuns()
    machine, handle = Machine("m", "m.example"), Handle("r0", "ssh", {})
    booting = run(state=RunState.BOOTING, machines=(machine,))
    submitted = replace(booting, state=RunState.EXECUTING, handle=handle)
    collecting = replace(submitted, state=RunState.COLLECTING)
    assert not runs.put(run())
    news = [booting, submitted, replace(submitted, cost=1.0), collecting, replace(collecting, cost=2.0)]
    assert [runs.put(each, stored=False) for each in news] == [False, True, False, True, False]
    assert not runs.put(replace(collecting, state=RunState.DONE), stored=True), "it is written with its trial"
    # On machines that nobody made for it, the engine knows what it runs.
    for number, machines in enumerate([(), (LOCALHOST,)], start=1):
        runs.put(run(number))
        assert not runs.put(run(number, handle=handle, machines=machines), stored=False)
