from __future__ import annotations

import math
import re
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.reporting.conftest import SPEC, Build, make_trial, some_trials

from tradewind.errors import InputError, MissingProgramError
from tradewind.problem import TrialState
from tradewind.reporting.study.charts import effect_chart, map_chart, progress_chart
from tradewind.reporting.study.data import StudyData
from tradewind.reporting.study.html import render_html
from tradewind.reporting.study.png import write_pngs
from tradewind.reporting.study.series import outcomes
from tradewind.reporting.study.terminal import curve_lines
from tradewind.reporting.svg import Scale, Svg, span, time_unit
from tradewind.store.base import Store

SVG = "{http://www.w3.org/2000/svg}"
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


def marks(svg: str, kind: str) -> int:
    root = ET.fromstring(svg)
    return sum(element.get("class") == f"mark {kind}" for element in root.iter(f"{SVG}path"))


@pytest.mark.parametrize("count", [0, 1, 2, 60])
def test_a_page_is_whole_and_asks_no_host(store: Store, build: Build, count: int) -> None:
    page = render_html(StudyData.load(store, build(some_trials(count), state="finished", reason="the end")))
    parsed = read(page)
    assert parsed.addresses == ["data:,"]
    assert "script" not in parsed.tags
    assert "@import" not in page
    assert not re.search(r"url\(", page)
    assert set(re.findall(r"https?://[^\s\"<]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert "prefers-color-scheme: dark" in page
    assert "default-src 'none'" in page
    assert ("Recommended configuration" in page) == (count > 0)
    assert "It stopped because: the end." in parsed.text
    assert "nan" not in parsed.text.lower()


def test_names_and_reasons_are_escaped(store: Store, build: Build) -> None:
    nasty = "<script>alert(1)</script>"
    trials = [
        make_trial(i, {nasty: nasty, "b": i}, 0.1 + i, feasible=i != 3, reason=nasty, kind="c4") for i in range(12)
    ]
    page = render_html(StudyData.load(store, build(trials, name=nasty)))
    assert "<script" not in page
    read(page)
    for svg in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
        ET.fromstring(svg)


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
    svg = map_chart(data)
    assert marks(svg, "feasible") == int(data.feasible.sum())
    assert marks(svg, "infeasible") == int(data.infeasible.sum())
    assert marks(svg, "failed") == int(data.having(TrialState.FAILED).sum())
    assert marks(svg, "aborted") == int(data.having(TrialState.ABORTED).sum())
    assert marks(svg, "best") == 1
    assert "deadline 20.0 s" in svg
    assert "at least $" in svg
    root = ET.fromstring(svg)
    titles = [element.text or "" for element in root.iter(f"{SVG}title")]
    assert any("exit code 1" in title for title in titles)


def test_runs_on_parts_of_the_input_are_in_no_drawing(store: Store, build: Build) -> None:
    whole = [make_trial(i, {"a": i}, 1.0 - i / 10) for i in range(4)]
    parts = [make_trial(4 + i, {"a": i}, 0.01, feasible=i < 2, share=0.1, reason="part") for i in range(3)]
    failed = make_trial(7, {"a": 7}, 0.01, state=TrialState.FAILED, share=0.1)
    data = StudyData.load(store, build([*whole, *parts, failed]))
    for svg in (progress_chart(data), map_chart(data)):
        assert {"trial 0: succeeded", "trial 3: succeeded"} < set(re.findall(r"trial \d+: \w+", svg))
        assert not re.search(r"trial [4567]:", svg)
    assert marks(map_chart(data), "feasible") == 4
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
    svg = map_chart(StudyData.load(store, build(trials, spec={"constraints": {"deadline": 86400}})))
    assert "deadline" not in svg
    assert "seconds" not in svg or "hours" in svg


def test_the_curve_ends_at_the_best(store: Store, build: Build) -> None:
    data = StudyData.load(store, build(some_trials(60)))
    svg = progress_chart(data)
    assert marks(svg, "best") == 1
    assert "best: $0.000130" in svg


def test_effects_have_a_box_for_each_level(store: Store, build: Build) -> None:
    data = StudyData.load(store, build(some_trials(60)))
    root = ET.fromstring(effect_chart(data, "codec"))
    assert sum(element.get("class") == "box" for element in root.iter(f"{SVG}rect")) == 3
    none = StudyData.load(store, build([make_trial(0, {"a": 1}, 0.1, state=TrialState.FAILED)]))
    assert effect_chart(none, "a") == ""
    assert progress_chart(none) == ""


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (Scale(0.0, 10.0, 0, 100), [0, 2, 4, 6, 8, 10]),
        (Scale(0.0, 600.0, 0, 100, unit=60.0), [0, 120, 240, 360, 480, 600]),
        (Scale(1.0, 1000.0, 0, 100, log=True), [1, 10, 100, 1000]),
        (Scale(1.0, 10.0, 0, 100, log=True), [1, 2, 5, 10]),
        (Scale(3.0, 3.0, 0, 100), [3.0]),
    ],
)
def test_ticks_are_round(scale: Scale, ticks: list[float]) -> None:
    assert scale.ticks() == pytest.approx(ticks)


def test_scales_place_values_and_hold_them_in() -> None:
    assert Scale(0, 10, 100, 0)(2.5) == 75
    assert Scale(1, 100, 0, 100, log=True)(10) == pytest.approx(50)
    assert Scale(0, 10, 0, 100)(99) == 100
    assert Scale(5, 5, 0, 100)(5) == 50


def test_spans_hold_all_values() -> None:
    assert span([1.0, 2.0], log=False) == (0.94, 2.06)
    assert span([0.0, 2.0], log=False, zero=True)[0] == 0.0
    assert span([5.0], log=False) == (4.5, 5.5)
    low, high = span([1.0, 100.0, float("nan")], log=True)
    assert low < 1 < 100 < high
    assert span([], log=True) == (0.1, 1.0)
    assert span([], log=False) == (0.0, 1.0)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("values", [[-MOST, MOST], [MOST, MOST], [1e-300, 1e300], [5e-324, MOST]])
def test_axes_of_extreme_values_have_places_and_ticks(values: list[float], log: bool) -> None:
    low, high = span(values, log=log)
    scale = Scale(low, high, 0, 100, log)
    assert math.isfinite(high - low)
    assert 0.0 <= scale(values[0]) <= scale(values[1]) <= 100.0
    assert all(low <= tick <= high for tick in scale.ticks())
    assert len(scale.ticks()) >= 2


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
    for svg in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
        assert not re.search(r"\b(nan|inf)\b", re.sub(r"<title>.*?</title>", "", svg, flags=re.DOTALL))
    assert len(curve_lines(data, 80)) > 2
    assert len(write_pngs(data, tmp_path)) == 3


def test_time_units() -> None:
    assert [time_unit(x)[1] for x in (10, 200, 8000)] == ["seconds", "minutes", "hours"]


def test_svg_escapes_and_parses() -> None:
    svg = Svg(100, 50, 'a "quoted" <title>')
    for kind in ("feasible", "infeasible", "failed", "aborted", "lost", "best"):
        svg.mark(kind, 10, 10, "<&>")
    svg.path([], "curve")
    svg.path([(0, 0), (1, 1)], "curve", closed=True)
    svg.text(1, 2, "<b>", turn=90)
    svg.rect(0, 0, 5, 5, "box")
    root = ET.fromstring(svg.render())
    assert root.get("aria-label") == 'a "quoted" <title>'
    assert len(list(root.iter(f"{SVG}title"))) == 6


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
