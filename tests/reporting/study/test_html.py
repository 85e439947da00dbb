from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.reporting.conftest import SPEC, Build, make_trial, some_trials

from tradewind.errors import InputError, MissingProgramError
from tradewind.problem import TrialState
from tradewind.reporting.charts.document import Chart, ChartBound, time_unit
from tradewind.reporting.study.charts import level_charts, map_chart, parallel_chart, progress_chart
from tradewind.reporting.study.data import StudyData
from tradewind.reporting.study.html import render_html
from tradewind.reporting.study.png import write_pngs
from tradewind.reporting.study.series import outcomes
from tradewind.reporting.study.terminal import curve_lines
from tradewind.store.base import Store

MOST = sys.float_info.max
VOID = {"meta", "link"}


class Page(HTMLParser):
    """Reads a page: which addresses it names, and whether its tags are balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: str) -> Page:
    parser = Page()
    parser.feed(page)
    assert parser.open == []
    return parser


def drawn(page: str) -> dict[str, Any]:
    """The charts that a page has, by name."""
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    charts: dict[str, Any] = json.loads(found[1])
    return charts


def without_scripts(page: str) -> str:
    return re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.DOTALL)


def words_of(chart: Chart) -> list[str]:
    return [words for layer in chart.layers for words in layer.words]


@pytest.mark.parametrize("count", [0, 1, 2, 60])
def test_a_page_is_whole_and_asks_no_host(store: Store, build: Build, count: int) -> None:
    page = render_html(StudyData.load(store, build(some_trials(count), state="finished", reason="the end")))
    parsed = read(without_scripts(page))
    assert parsed.addresses == ["data:,"]
    assert "@import" not in page
    assert not re.search(r"url\(", without_scripts(page))
    assert not re.findall(r"https?://", without_scripts(page))
    assert "default-src 'none'" in page
    policy = re.search(r"script-src ([^;]*);", unescape(page))
    scripts = re.findall(r'<script(?: type="module")?>(.*?)</script>', page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert policy is not None
    assert [f"'sha256-{digest}'" for digest in digests] == policy[1].split()
    assert ("parallel-coordinates" in drawn(page)) == (count > 1)
    assert ("Recommended configuration" in page) == (count > 0)
    assert "It stopped because: the end." in parsed.text
    assert "nan" not in parsed.text.lower()


def test_names_and_reasons_are_escaped(store: Store, build: Build) -> None:
    nasty = "<script>alert(1)</script>"
    trials = [
        make_trial(i, {nasty: nasty, "b": i}, 0.1 + i, feasible=i != 3, reason=nasty, kind="c4") for i in range(12)
    ]
    page = render_html(StudyData.load(store, build(trials, name=nasty)))
    assert nasty not in page
    read(without_scripts(page))


@pytest.mark.slow
def test_the_table_is_limited_and_the_best_come_first(store: Store, build: Build) -> None:
    page = render_html(StudyData.load(store, build(some_trials(300))))
    rows = re.findall(r'<tr(?: class="best")?><td class="n">(\d+)</td><td>(\w+)</td>', page)
    assert len(rows) == 200
    assert "200 of 300 trials are shown" in page
    states = [state for _, state in rows]
    assert states == sorted(states, key=lambda state: state != "succeeded")
    assert page.count('<tr class="best">') == 1


def test_the_money_is_split(store: Store, build: Build) -> None:
    trials = [make_trial(0, {"a": 0}, 3.0), make_trial(1, {"a": 1}, 1.0, state=TrialState.FAILED)]
    page = render_html(StudyData.load(store, build(trials)))
    assert "width:75.0%" in page
    assert "width:25.0%" in page
    assert "$3.00" in page


def test_another_metric_has_its_own_column(store: Store, build: Build) -> None:
    trials = [make_trial(i, {"a": i}, 0.1, objective=0.5 + i / 10) for i in range(3)]
    spec = {"objective": {"maximise": "accuracy"}, "budget": {"hours": 2}}
    page = render_html(StudyData.load(store, build(trials, spec=spec, elapsed=60.0)))
    assert '<th class="n">accuracy</th>' in page
    assert "1m 00s of 2h 00m" in page
    assert "accuracy 0.7" in page  # in the title of a point


def test_the_map_marks_every_outcome_and_the_deadline(store: Store, build: Build) -> None:
    data = StudyData.load(store, build(some_trials(60)))
    chart = map_chart(data)
    assert chart is not None
    sizes = {layer.look: len(layer.rows) for layer in chart.layers}
    assert sizes["feasible"] == int(data.feasible.sum())
    assert sizes["infeasible"] == int(data.infeasible.sum())
    assert sizes["failed"] == int(data.having(TrialState.FAILED).sum())
    assert sizes["aborted"] == int(data.having(TrialState.ABORTED).sum())
    assert sizes["best"] == 1
    assert chart.bound == ChartBound(20.0, "deadline 20.0 s")
    assert any("at least $" in words for words in words_of(chart))
    assert any("exit code 1" in words for words in words_of(chart))


def test_runs_on_parts_of_the_input_are_in_no_drawing(store: Store, build: Build) -> None:
    whole = [make_trial(i, {"a": i}, 1.0 - i / 10) for i in range(4)]
    parts = [make_trial(4 + i, {"a": i}, 0.01, feasible=i < 2, share=0.1, reason="part") for i in range(3)]
    failed = make_trial(7, {"a": 7}, 0.01, state=TrialState.FAILED, share=0.1)
    data = StudyData.load(store, build([*whole, *parts, failed]))
    for chart in (progress_chart(data), map_chart(data)):
        assert chart is not None
        assert {key for layer in chart.layers for key in layer.keys} == {0, 1, 2, 3}
        assert {"trial 0: succeeded", "trial 3: succeeded"} <= {words.split("\n")[0] for words in words_of(chart)}
    assert [(kind.name, kind.total) for kind in outcomes(data) if kind.total] == [("feasible", 4)]
    page = render_html(data)
    assert "Runs on a part of the input (4) are not drawn." in page
    assert "feasible (4)" in page
    assert "(on 10 % of the input)" in page  # the table has them
    without = render_html(StudyData.load(store, build(whole, name="whole")))
    assert "part of the input" not in without


@pytest.mark.slow
def test_a_far_deadline_does_not_squeeze_the_points(store: Store, build: Build) -> None:
    trials = [make_trial(i, {"a": i}, 0.1 + i, runtime=5.0 + i) for i in range(5)]
    chart = map_chart(StudyData.load(store, build(trials, spec={"constraints": {"deadline": 86400}})))
    assert chart is not None
    assert chart.bound is None
    assert chart.x.title == "run time, seconds"


def test_the_curve_ends_at_the_best(store: Store, build: Build) -> None:
    chart = progress_chart(StudyData.load(store, build(some_trials(60))))
    assert chart is not None
    assert chart.layer("best: $0.130 per 1,000 runs").rows == [chart.layer("best so far").rows[-2]]
    assert chart.table is not None
    assert (chart.table.columns[-1], chart.table.rows[-1][-1]) == ("cost of 1,000 runs", "$0.130")


def test_effects_have_a_box_for_each_level(store: Store, build: Build) -> None:
    data = StudyData.load(store, build(some_trials(60)))
    chart = level_charts(data, None)["codec"]
    boxes = next(layer for layer in chart.layers if layer.kind == "boxes")
    assert len(boxes.rows) == len(chart.y.labels) == 3
    assert list(boxes.looks).count("best-box") == 1
    none = StudyData.load(store, build([make_trial(0, {"a": 1}, 0.1, state=TrialState.FAILED)]))
    assert level_charts(none, None) == {}
    assert progress_chart(none) is None


def test_parallel_lines_show_what_varies_and_of_many_the_best(store: Store, build: Build) -> None:
    data = StudyData.load(store, build(some_trials(400)))
    chart = parallel_chart(data, None, most=100)
    assert chart is not None
    assert {"p codec", "runtime", "cost"} <= {axis.id for axis in chart.axes}
    assert len(chart.rows) <= 100
    assert set(data.number[data.ranking[:20]].tolist()) <= set(chart.keys)
    assert chart.best in chart.keys
    assert "lines are drawn" in chart.note
    assert parallel_chart(StudyData.load(store, build(some_trials(1), name="one")), None) is None


@pytest.mark.slow
@pytest.mark.parametrize("extreme", [1e300, MOST])
def test_a_report_on_extreme_values_has_no_places_that_are_no_numbers(
    store: Store, build: Build, tmp_path: Path, extreme: float
) -> None:
    values = [-extreme, 0.0, 1e-300, extreme, 5.0]
    trials = [make_trial(i, {"m": i % 5, "b": i % 2}, 0.1, objective=values[i % 5]) for i in range(10)]
    data = StudyData.load(store, build(trials, spec={"objective": {"maximise": "score"}}))
    page = render_html(data)
    assert "What each parameter does" in page
    assert drawn(page)["best-so-far"]["layers"]
    assert len(curve_lines(data, 80)) > 2
    assert len(write_pngs(data, tmp_path)) == 3


def test_time_units() -> None:
    assert [time_unit(x)[1] for x in (10, 200, 8000)] == ["seconds", "minutes", "hours"]


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


SPECS: list[dict[str, Any]] = [
    SPEC,
    {"objective": {"maximise": "accuracy"}},
    {"objective": {"minimise": "runtime"}, "constraints": {"deadline": 20}},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec", [pytest.param(each, marks=pytest.mark.thorough) if place else each for place, each in enumerate(SPECS)]
)
def test_pngs_are_written(store: Store, build: Build, tmp_path: Path, spec: dict[str, Any]) -> None:
    data = StudyData.load(store, build(some_trials(40), spec=spec, name="100 $cost$ _x_ %"))
    files = write_pngs(data, tmp_path / "a" / "b")
    assert [file.name for file in files] == ["best-so-far.png", "cost-time.png", "parameters.png"]
    for file in files:
        width, height = png_size(file)
        assert width > 900
        assert height > 500


@pytest.mark.slow
def test_pngs_of_nothing_are_none(store: Store, build: Build, tmp_path: Path) -> None:
    assert write_pngs(StudyData.load(store, build()), tmp_path) == []
    failed = [make_trial(0, {"a": 1}, 0.1, state=TrialState.FAILED)]
    files = write_pngs(StudyData.load(store, build(failed)), tmp_path)
    assert [file.name for file in files] == ["cost-time.png"]


@pytest.mark.thorough
@pytest.mark.slow
def test_pngs_of_many_orders_of_magnitude(store: Store, build: Build, tmp_path: Path) -> None:
    trials = [make_trial(i, {"a": i, "b": f"v{i % 3}"}, 10.0**i / 1e4, runtime=10.0**i) for i in range(9)]
    assert len(write_pngs(StudyData.load(store, build(trials)), tmp_path)) == 3


@pytest.mark.slow
def test_a_folder_that_cannot_be_written(store: Store, build: Build, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot write charts into"):
        write_pngs(StudyData.load(store, build(some_trials(3))), tmp_path / "file")


def test_without_matplotlib_it_says_what_to_install(
    store: Store, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingProgramError, match=r"pip install 'tradewind\[plots\]'"):
        write_pngs(StudyData.load(store, build(some_trials(3))), tmp_path)
