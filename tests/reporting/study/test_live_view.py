from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

import pytest
from rich.cells import cell_len
from rich.console import Console
from tests.reporting.conftest import make_trial, some_trials

from tradewind.engine.state_machine.snapshot import RunningTrial, SearchSnapshot
from tradewind.problem import Budget, Constraints, MachineParameters, Objective, Trial, TrialState
from tradewind.reporting.study.terminal import LiveView


def snapshot(
    *, counts: Mapping[str, int], last: Trial | None, best: Trial | None, spent: float = 0.1, **fields: object
) -> SearchSnapshot:
    plain: dict[str, object] = {
        "name": "zip",
        "searcher": "gp",
        "objective": Objective(),
        "constraints": Constraints(20.0),
        "budget": Budget(0.5, 1.0, 100),
        "size": 432,
        "running": [],
        "reserved": 0.05,
        "elapsed": 61.0,
        "message": "searching",
        **fields,
    }
    return SearchSnapshot(counts=counts, last=last, best=best, spent=spent, **plain)  # type: ignore[arg-type]


def search(count: int, **fields: object) -> Iterator[SearchSnapshot]:
    """Snapshots that the engine reports over a search."""
    counts: Counter[str] = Counter()
    best: Trial | None = None
    spent = 0.0
    for trial in some_trials(count):
        seen = trial.observation
        assert seen is not None
        if seen.feasible and (best is None or best.observation is None or seen.cost < best.observation.cost):
            best = trial
        counts[trial.state.value] += 1
        spent += trial.spent
        done = trial.number == count - 1
        yield snapshot(counts=dict(counts), last=trial, best=best, spent=spent, finished=done, **fields)


def plain(view: LiveView, moment: SearchSnapshot, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height)
    assert view._live is not None
    view._live.console._width, view._live.console._height = width, height
    console.print(view._picture(moment))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_one_line_a_trial_where_it_is_no_terminal() -> None:
    stream = io.StringIO()
    with LiveView(stream=stream) as view:
        for moment in search(8):
            view.update(moment)
            view.update(moment)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 8
    assert lines[0].startswith("trial 0 succeeded: $0.567 per 1,000 runs, 10.2 s, codec=zlib")
    assert lines[0].endswith("; best $0.567 per 1,000 runs; 0.0567¢ of $0.500 total")
    assert lines[3].startswith("trial 3 infeasible: ")
    assert "(the program ended with exit code 1)" in lines[5]
    assert lines[7].startswith("trial 7 aborted: at least $")


def test_trials_that_ended_between_two_updates_are_counted() -> None:
    stream = io.StringIO()
    trials = some_trials(4)
    with LiveView(stream=stream) as view:
        view.update(snapshot(counts={"succeeded": 1}, last=trials[0], best=trials[0]))
        view.update(snapshot(counts={"succeeded": 4}, last=trials[3], best=trials[0]))
    assert "(and 2 more)" in stream.getvalue().splitlines()[1]
    assert "more" not in stream.getvalue().splitlines()[0]


def test_quiet_prints_nothing() -> None:
    stream = io.StringIO()
    with LiveView(stream=stream, quiet=True) as view:
        for moment in search(5):
            view.update(moment)
    assert stream.getvalue() == ""


@pytest.mark.parametrize(("width", "height"), [(60, 12), (80, 24), (120, 40)])
def test_the_picture_fits_and_has_it_all(width: int, height: int) -> None:
    stream = io.StringIO()
    running = [
        RunningTrial(make_trial(60 + i, {"workers": 4}, state=TrialState.RUNNING), "executing", 3.2, 20.0, 0.0001)
        for i in range(12)
    ]
    with LiveView(stream=stream, live=True) as view:
        for moment in search(60, running=running):
            view.update(moment)
        lines = plain(view, moment, width, height)
    assert len(lines) < height + 8
    assert all(cell_len(line) <= width for line in lines)
    text = "\n".join(lines)
    assert "money" in text
    assert "$0.0262 + $0.0500 reserved" in text
    assert "60 of 100" in text
    assert "1m 01s of 1h 00m" in text
    assert "best    $0.130 per 1,000 runs in 9.4 s  (trial 40)" in text
    assert "77 % cheaper than the first, 31 % cheaper than the median"[: width - 9] in text
    assert "▶ 60" in text
    assert "3.2 s / 20.0 s" in text
    assert "more running" in text
    assert ("best cost of 1,000 runs against money spent" in text) == (height == 40)
    assert "searching" in text


def test_a_run_that_is_ended_says_why_and_what_keeps_its_machines() -> None:
    trial = make_trial(60, {"workers": 4}, state=TrialState.RUNNING)
    plainly = RunningTrial(trial, "executing", 3.2, 20.0, 0.0001)
    trouble = "its machines are not given back yet: no"
    running = [
        plainly,
        replace(plainly, ending="it can no longer\nwin"),
        replace(plainly, ending="too late", trouble=trouble),
        replace(plainly, stage="collecting", trouble="its results are not here yet"),
    ]
    with LiveView(stream=io.StringIO(), live=True) as view:
        for moment in search(3, running=running):
            view.update(moment)
        lines = [line.split("0.01¢")[-1].strip() for line in plain(view, moment, 120, 24) if line.startswith("▶")]
        stages = [line.split()[2] for line in plain(view, moment, 120, 24) if line.startswith("▶")]
    assert lines == ["workers=4", "it can no longer win", trouble, "its results are not here yet"]
    assert stages == ["executing", "ending", "ending", "collecting"]


def test_plain_lines_say_once_what_keeps_a_trial() -> None:
    trial = make_trial(60, {"workers": 4}, state=TrialState.RUNNING)
    troubles = ["it waits: 2 of 2 CPUs are used by search b", "", "it waits: 2 of 2 CPUs are used by search b", "more"]
    stream = io.StringIO()
    with LiveView(stream=stream, live=False) as view:
        for trouble in troubles:
            running = [RunningTrial(trial, "executing", 0.0, 20.0, 0.0, trouble=trouble)]
            view.update(snapshot(counts={}, last=None, best=None, running=running))
    assert stream.getvalue().splitlines() == [
        "trial 60: it waits: 2 of 2 CPUs are used by search b",
        "trial 60: more",
    ]


def test_what_keeps_a_run_open_is_read_whole_at_eighty_columns() -> None:
    trial = make_trial(60, {"workers": 4}, state=TrialState.RUNNING)
    trouble = "its machines are not given back yet: gcloud is signed out: sign in again with gcloud auth login"
    running = [RunningTrial(trial, "collecting", 3.2, 20.0, 0.0001, trouble=trouble)]
    with LiveView(stream=io.StringIO(), live=True) as view:
        for moment in search(3, running=running):
            view.update(moment)
        lines = plain(view, moment, 80, 24)
        start = next(place for place, line in enumerate(lines) if line.startswith("▶"))
        assert all(cell_len(line) <= 80 for line in lines)
        assert " ".join(line.strip() for line in lines[start + 1 : start + 3]) == trouble
        assert len(plain(view, moment, 80, 12)) <= 12


WORDS = {
    80: (
        "$12.30 + $1.25 reserved of $100.00",
        "1h 00m of 10h 00m",
        "1,236 of 5,000 (12 failed, 3 aborted, 1 lost)",
    ),
    50: ("$12.30 + $1.25 of $100.00", "1h 00m of 10h 00m", "1,236 of 5,000 (16 not succeeded)"),
    30: ("$12.30 + $1.25 of $10…", "1h 00m of 10h 00m", "1,236 of 5,000"),
}


@pytest.mark.parametrize("width", WORDS)
def test_bars_leave_room_for_the_words(width: int) -> None:
    counts = {"succeeded": 1220, "failed": 12, "aborted": 3, "lost": 1}
    fields = {"budget": Budget(100.0, 10.0, 5000), "reserved": 1.25, "elapsed": 3600.0, "notes": {"early": "7 stopped"}}
    trial = make_trial(3, {"workers": 4})
    with LiveView(stream=io.StringIO(), live=True) as view:
        moment = snapshot(counts=counts, last=trial, best=trial, spent=12.3, **fields)
        lines = plain(view, moment, width, 24)[1:5]
    assert [line.split(" ")[0] for line in lines] == ["money", "time", "trials", "early"]
    assert [line[8:].lstrip("━─ ") for line in lines] == [*WORDS[width], "7 stopped"]
    bars = [sum(c in "━─" for c in line) for line in lines]
    assert bars == {80: [24, 24, 24, 0], 50: [8, 8, 8, 0], 30: [0, 0, 0, 0]}[width]


def test_bars_keep_their_length_while_a_figure_gets_a_digit() -> None:
    with LiveView(stream=io.StringIO(), live=True) as view:
        moments = [snapshot(counts={"succeeded": 3}, last=None, best=None, spent=spent) for spent in (9.98, 10.02)]
        rows = [plain(view, moment, 62, 24)[1] for moment in moments]
    assert "$9.98 +" in rows[0] and "$10.02 +" in rows[1]
    assert [row.count("━") for row in rows] == [16, 16]


def test_before_the_first_trial_and_without_limits() -> None:
    with LiveView(stream=io.StringIO(), live=True) as view:
        moment = snapshot(counts={}, last=None, best=None, budget=Budget(), size=None, reserved=0.0)
        view.update(moment)
        lines = plain(view, moment, 80, 24)
    assert "best    none feasible yet" in lines
    assert "━" not in "".join(lines)


def test_a_resumed_search_is_compared_with_its_first_trial() -> None:
    first, second = make_trial(0, {"a": 0}, 0.4), make_trial(1, {"a": 1}, 0.1)
    with LiveView(stream=io.StringIO(), live=True, history=[first]) as view:
        moment = snapshot(counts={"succeeded": 2}, last=second, best=second)
        view.update(moment)
        assert "75 % cheaper than the first" in "\n".join(plain(view, moment, 100, 30))


@pytest.mark.parametrize(("goal", "bests"), [("minimise", [0.4, 0.3, 0.1]), ("maximise", [0.4, 0.5])])
def test_a_resumed_search_goes_on_with_the_curve_of_the_best(
    goal: Literal["minimise", "maximise"], bests: list[float]
) -> None:
    values = [0.4, 0.5, 0.3, 0.35]
    history = [make_trial(i, {"a": i}, 1.0, objective=value) for i, value in enumerate(values)]
    running = make_trial(4, {"a": 4}, state=TrialState.RUNNING)
    best = make_trial(5, {"a": 5}, 1.0, objective=bests[-1])
    with LiveView(stream=io.StringIO(), live=False, history=[*reversed(history), running]) as view:
        objective = Objective("score", goal)
        view.update(snapshot(counts={"succeeded": 5}, last=best, best=best, spent=5.0, objective=objective))
    assert [value for _, value in view._curve] == bests
    assert [spent for spent, _ in view._curve] == sorted(spent for spent, _ in view._curve)
    assert running not in view._recent


def test_parts_of_the_input_are_named_and_compared_with_nothing() -> None:
    whole, best = make_trial(1, {"a": 1}, 0.4), make_trial(3, {"a": 3}, 0.2)
    part, later = (make_trial(i, {"a": i}, 0.001, share=0.1) for i in (0, 2))
    with LiveView(stream=io.StringIO(), live=True, history=[part, whole]) as view:
        view.update(snapshot(counts={"succeeded": 3}, last=later, best=whole))
        moment = snapshot(counts={"succeeded": 4}, last=best, best=best)
        view.update(moment)
        text = "\n".join(plain(view, moment, 100, 30))
    assert [value for _, value in view._curve] == [0.4, 0.2]
    assert "50 % cheaper than the first, 33 % cheaper than the median" in text
    assert "✓ 2 succeeded on 10 % of the input: $1.00 per 1,000 runs" in text
    assert "✓ 3 succeeded: $0.200 this run" in text


def test_it_draws_at_most_eight_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[SearchSnapshot] = []
    monkeypatch.setattr(LiveView, "_draw", lambda self, moment: drawn.append(moment))
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with LiveView(stream=io.StringIO(), live=True) as view:
        for i, moment in enumerate(search(40)):
            now[0] = 100.0 + i * 0.025
            view.update(moment)
    assert 8 <= len(drawn) <= 11  # nine in a second, the finished one, and the one at the end
    assert drawn[-1].finished


def test_another_metric_is_shown_with_its_name() -> None:
    best = make_trial(0, {"a": 0}, 0.4, objective=0.9)
    stream = io.StringIO()
    moment = snapshot(counts={"succeeded": 1}, last=best, best=best, objective=Objective("accuracy", "maximise"))
    with LiveView(stream=stream) as view:
        view.update(moment)
    assert stream.getvalue().startswith("trial 0 succeeded: accuracy 0.9, $0.400 this run, 10.0 s, a=0; best 0.9;")


def test_a_lost_trial_has_a_line() -> None:
    lost = make_trial(3, {"a": 0}, state=TrialState.LOST)
    stream = io.StringIO()
    with LiveView(stream=stream) as view:
        view.update(snapshot(counts={"lost": 1}, last=lost, best=None))
    assert stream.getvalue().startswith("trial 3 lost: a=0; $0.100 of $0.500 total")


@pytest.mark.slow
def test_a_long_search_keeps_a_short_curve() -> None:
    with LiveView(stream=io.StringIO(), live=False) as view:
        for i in range(1500):
            trial = make_trial(i, {"a": i}, 2000.0 - i)
            view.update(snapshot(counts={"succeeded": i + 1}, last=trial, best=trial, spent=float(i)))
    assert len(view._curve) <= 401
    assert view._curve[-1] == (1499.0, 501.0)


def test_a_trial_names_its_machine_where_its_configuration_does_not() -> None:
    trial = make_trial(0, {"cpus": 3, "level": 1}, 0.1)
    stream = io.StringIO()
    with LiveView(stream=stream, live=False) as view:
        view.update(snapshot(counts={}, last=None, best=None))
        view.update(
            snapshot(counts={"succeeded": 1}, last=trial, best=trial, machine_parameters=MachineParameters(("cpus",)))
        )
    assert "c4 of local (cpus=3) with level=1" in stream.getvalue()


@pytest.mark.parametrize(
    ("objective", "gain", "words"),
    [
        (Objective(), 0.000004, "to save 0.4¢ per 1,000 runs"),  # in the unit of the best
        (Objective("runtime"), 2.0, "to save 2.0 s"),
        (Objective("runtime"), 0.0004, "to save 0.4 ms"),
        (Objective("accuracy", "maximise"), 0.25, "to improve accuracy by 0.25"),
    ],
)
def test_what_is_expected_is_in_the_unit_of_the_objective(objective: Objective, gain: float, words: str) -> None:
    trial = make_trial(60, {"workers": 4}, state=TrialState.RUNNING)
    name = "expected_saving" if objective.metric == "cost" else "expected_improvement"
    hopeful = replace(trial, proposal=replace(trial.proposal, why={"expected_spend": 0.25, name: gain}))
    running = [RunningTrial(hopeful, "executing", 3.2, 20.0, 0.0001)]
    stream = io.StringIO()
    with LiveView(stream=stream) as view:
        for moment in search(3, running=running, objective=objective):
            view.update(moment)
    assert f"next: trial 60, expected to cost $0.250 and {words}: workers=4\n" in stream.getvalue()


def test_a_trial_that_begins_says_what_it_is_expected_to_cost_and_to_save() -> None:
    trial = make_trial(60, {"workers": 4}, state=TrialState.RUNNING)
    why: dict[str, float | str] = {"expected_spend": 0.25, "expected_saving": 0.0004}
    hopeful = replace(trial, proposal=replace(trial.proposal, why=why))
    running = [RunningTrial(hopeful, "executing", 3.2, 20.0, 0.0001)]
    stream = io.StringIO()
    with LiveView(stream=stream) as view:
        for moment in search(3, running=running):
            view.update(moment)
            view.update(moment)
    expected = "expected to cost $0.250 and to save $0.400 per 1,000 runs"
    assert stream.getvalue().count(f"next: trial 60, {expected}: workers=4\n") == 1
    with LiveView(stream=io.StringIO(), live=True) as view:
        for moment in search(3, running=running):
            view.update(moment)
        assert f"        {expected}" in plain(view, moment, 120, 24)
