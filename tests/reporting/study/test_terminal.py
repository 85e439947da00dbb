from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from tests.reporting.conftest import SPEC, Build, make_trial, offer, some_trials

from tradewind.problem import MachineParameters, Objective, TrialState
from tradewind.reporting.study import tables
from tradewind.reporting.study.data import StudyData
from tradewind.reporting.study.terminal import curve_lines, print_report
from tradewind.reporting.text_layout import step_plot
from tradewind.store.base import Store

WIDTHS = (60, 80, 120)


def printed(thing: object, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(thing)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def long_lines() -> list[tables.TrialLine]:
    configuration = {"instance": "c7i.metal-48xl", "workers": 16, "codec": "zstd", "rate": 0.123456789, "level": 9}
    return [
        tables.TrialLine(7, "infeasible", configuration, 12.5, 12.5, 3725.0, "runtime 3725 s is above\nthe deadline"),
        tables.TrialLine(1234, "aborted", configuration, 1.0, 1.0, 90.0, "its cost reached the cap"),
        tables.TrialLine(8, "pending", configuration),
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_trials_fit_on_one_line_each_and_their_whole_configurations_below(width: int) -> None:
    lines = printed(tables.trials(long_lines(), Objective("throughput", "maximise"), width), width)
    assert all(cell_len(line) <= width for line in lines)
    assert ("why" in lines[0]) == (width >= 80) and "configuration" not in lines[0]
    assert lines[1].split()[:2] == ["7", "infeasible"]
    whole = "instance=c7i.metal-48xl workers=16 codec=zstd rate=0.1235 level=9"
    assert " ".join(" ".join(lines[2 : 4 if width < 80 else 3]).split()) == whole
    assert len(lines) == 1 + 3 * (3 if width < 80 else 2)


def test_configurations_with_long_names_can_be_told_apart_in_eighty_columns(store: Store, build: Build) -> None:
    names = ["algorithm_of_the_model", "early_stopping_enabled", "learning_rate_of_descent"]
    chosen = [dict(zip(names, ("boosting", i % 2 == 0, 0.1 * i), strict=True)) for i in range(1, 5)]
    trials = [
        make_trial(i, one, 0.1 * (5 - i), metrics={"accuracy_on_the_validation_set": 0.9 - 0.2 * i})
        for i, one in enumerate(chosen)
    ]
    spec = {**SPEC, "objective": {"minimise": "cost", "also": [{"maximise": "accuracy_on_the_validation_set"}]}}
    data = StudyData.load(store, build(trials, spec=spec))
    console = Console(file=io.StringIO(), width=80, highlight=False)
    print_report(data, console)
    assert isinstance(console.file, io.StringIO)
    found = console.file.getvalue()
    best = found.partition("Best 4 of")[2].partition("Trade-off")[0]
    traded = found.partition("Trade-off")[2].partition("so far")[0]
    for one in chosen:
        words = f"early_stopping_enabled={one[names[1]]} learning_rate_of_descent={one[names[2]]:.4g}"
        assert words in " ".join(best.split())
    assert f"algorithm_of_the_model=boosting {words}" in " ".join(traded.split())


def test_facts_take_the_width_of_the_longest_name_and_the_longest_value() -> None:
    lines = printed(tables.facts([("a" * 20, "1"), ("b", "c" * 30)], 80), 80)
    assert [line.split() for line in lines] == [["a" * 20, "1"], ["b", "c" * 30]]


def test_what_is_equal_in_all_trials_is_said_once_and_a_pipe_gets_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def line(number: int, **more: object) -> tables.TrialLine:
        same = {"instance": "local.c1", "threads": 8, "compression": "a-long-word"}
        return tables.TrialLine(number, "succeeded", {**same, **more}, cost=1.0, runtime=2.0, why="w" * 90)

    aim = Objective("cost")
    monkeypatch.setenv("COLUMNS", "80")
    tables.print_trials(Console(highlight=False), [line(0, level=1), line(1, level=2)], aim)
    first, _, one, two = capsys.readouterr().out.splitlines()
    assert first == "all trials below: instance=local.c1 threads=8 compression=a-long-word"
    assert one.split()[2] == "level=1" and two.split()[2] == "level=2"
    assert max(cell_len(text) for text in (one, two)) <= 80 and "w" * 90 not in one
    monkeypatch.delenv("COLUMNS")
    tables.print_trials(Console(highlight=False), [line(0, level=1), line(1, level=2)], aim)
    assert "w" * 90 in capsys.readouterr().out.splitlines()[2]
    for lines in ([line(0)], [line(0), line(1)], [line(0), line(1, level=2)]):
        tables.print_trials(Console(highlight=False), lines, aim)
        assert "compression=a-long-word" in capsys.readouterr().out.splitlines()[1], "each row says something"


def test_a_wide_terminal_shows_all_and_marks_lower_bounds() -> None:
    lines = printed(tables.trials(long_lines(), Objective(), 200), 200)
    assert "rate=0.1235" in lines[1]
    assert "runtime 3725 s is above the deadline" in lines[1]
    assert "≥$1.00" in lines[2]
    assert "≥1m 30s" in lines[2]
    assert lines[3].split()[:2] == ["8", "pending"]


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_machines_have_a_column_where_configurations_do_not_name_them(width: int) -> None:
    machine = MachineParameters(("cpus",))
    trials = [make_trial(i, {"cpus": i, "level": i}, 0.1, kind=f"c{2**i}") for i in (1, 2)]
    lines = [tables.TrialLine.of(trial, machine_parameters=machine) for trial in trials]
    shown = printed(tables.trials(lines, Objective(), width), width)
    assert "machine" in shown[0]
    assert "c2 of local" in shown[1] and "c4 of local" in " ".join(shown[2:])
    named = tables.TrialLine.of(make_trial(1, {"cpus": "c4"}, 0.1), machine_parameters=machine)
    assert "machine" not in printed(tables.trials([named], Objective(), width), width)[0]


def test_one_machine_for_all_trials_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    machine = MachineParameters(("cpus",))
    lines = [
        tables.TrialLine.of(make_trial(i, {"cpus": i, "level": 7}, 0.1), machine_parameters=machine) for i in (1, 2)
    ]
    tables.print_trials(Console(highlight=False), lines, Objective())
    first, head, *_ = capsys.readouterr().out.splitlines()
    assert first == "all trials below: c4 of local, level=7"
    assert "machine" not in head


@pytest.mark.parametrize("width", WIDTHS)
def test_studies_fit(store: Store, build: Build, width: int) -> None:
    trials = some_trials(40)
    build(trials, name="a-job-with-quite-a-long-name-that-somebody-gave-it", state="finished")
    build([], name="[red]empty[/red]", spec={})
    lines = printed(tables.studies(store.summaries(), width), width)
    assert len(lines) == 3
    assert all(cell_len(line) <= width for line in lines)
    assert "[red]empty" in lines[1]
    assert "finished" in lines[2]
    assert "$0.132 per 1,000 runs" in lines[2]
    if width == 120:
        assert " of $5.00" in lines[2]
        assert "✓" in lines[2]


def test_a_study_that_nobody_runs_is_stopped(store: Store, build: Build) -> None:
    build(some_trials(3))
    summary = store.summaries()[0]
    assert tables.state_words(summary) == "stopped"
    build([])
    assert tables.state_words(store.summaries()[0]) == "open"


def test_control_characters_do_not_reach_the_terminal() -> None:
    line = tables.TrialLine(0, "failed", {"a": "\x1b[2J"}, why="\x1b]0;x\x07")
    assert "\x1b" not in "".join(printed(tables.trials([line], Objective(), 100), 100))


def test_offer_facts_name_the_prices() -> None:
    facts = dict(tables.offer_facts(offer("c2", nodes=3)))
    assert facts["machines"] == "3 × c2 of local (2 vCPU, 4 GiB each)"
    assert facts["price"] == "$0.300 per hour ($0.100 per hour and node)"


def test_a_line_of_every_kind_of_trial() -> None:
    waiting = tables.TrialLine.of(make_trial(0, {"a": 1}, state=TrialState.PENDING))
    assert (waiting.cost, waiting.runtime, waiting.state) == (None, None, "pending")
    late = tables.TrialLine.of(make_trial(1, {"a": 1}, 0.1, feasible=False, reason="late"), best=1)
    assert (late.state, late.why, late.best) == ("infeasible", "late", True)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", [0, 1, 7, 60])
def test_the_report_fits(store: Store, build: Build, width: int, count: int) -> None:
    data = StudyData.load(store, build(some_trials(count)))
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_report(data, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert ("Recommended" in text) == (count > 0)
    assert ("What each parameter does" in text) == (count > 1)
    assert "nan" not in text


def test_the_report_names_thresholds(store: Store, build: Build) -> None:
    spec = {**SPEC, "objective": {"maximise": "ratio"}, "constraints": {"metrics": {"ratio": {"at_least": 2}}}}
    trials = [make_trial(i, {"a": i}, 0.1, objective=2.0 + i) for i in range(3)]
    console = Console(file=io.StringIO(), width=100)
    print_report(StudyData.load(store, build(trials, spec=spec)), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "2 ≤ ratio" in text
    assert "Best ratio so far" in text
    assert "4" in text


def test_no_curve_without_two_steps(store: Store, build: Build) -> None:
    assert curve_lines(StudyData.load(store, build(some_trials(1))), 80) == []


def test_a_step_plot_falls_and_keeps_its_width() -> None:
    lines = step_plot([0.0, 5.0], [10.0, 1.0], width=40, height=4, end=10.0)
    assert len(lines) == 5
    assert {len(line) for line in lines[:4]} == {40}
    assert lines[0].startswith("10 ┤")
    assert lines[3].startswith(" 1 ┤")
    first, last = lines[0][4:], lines[3][4:]
    blank = chr(0x2800)
    assert first[:17].count(blank) == 0
    assert set(first[19:]) == {blank}
    assert last[19:].count(blank) == 0
    assert set(last[:17]) == {blank}
    assert lines[4].strip() == "└0" + "─" * 33 + "10"


def test_a_step_plot_of_equal_values_a_log_axis_and_no_room() -> None:
    flat = step_plot([1.0], [2.0], width=30, height=3)
    assert any(0x2800 < ord(c) < 0x2900 for line in flat for c in line)
    assert step_plot([], [], width=40) == []
    assert step_plot([1.0, 2.0], [3.0, 2.0], width=9) == []
    linear = step_plot([0, 1, 2], [100.0, 10.0, 1.0], width=40, height=5)
    log = step_plot([0, 1, 2], [100.0, 10.0, 1.0], width=40, height=5, log=True)
    assert linear[2].count(chr(0x2800)) > log[2].count(chr(0x2800))
    assert step_plot([0.0], [1.0], width=20, height=2, end=0.0)
