"""Pictures of workflows: what is in them, where it stands, and that they ask no host for anything."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tradewind.errors import InputError
from tradewind.reporting.charts.document import Chart
from tradewind.reporting.workflow.dag import graph_charts, grouped
from tradewind.reporting.workflow.html import dag_html, gantt_html
from tradewind.reporting.workflow.layout import activities, gantt_charts, lanes, usage
from tradewind.reporting.workflow.plots import draw_dag, draw_gantt, draw_learning_curve, learning_chart
from tradewind.reporting.workflow.text_gantt import text_gantt


def gantt(count: int = 6, *, actual: bool = False) -> dict[str, Any]:
    """So many tasks on two machines, the second of two slots."""
    tasks = []
    for i in range(count):
        row: dict[str, Any] = {
            "task": f"task-{i} <&>", "activity": f"kind-{i % 3}", "vm": "a" if i % 3 == 0 else "b",
            "start": float(i // 3), "finish": float(i // 3) + 1.0, "critical": i % 3 == 0,
        }  # fmt: skip
        if actual:
            row |= {"actual_vm": row["vm"], "actual_start": row["start"] * 1.5, "actual_finish": row["start"] * 1.5 + 1}
        tasks.append(row)
    vms = [{"name": "a", "slots": 1, "kind": "small"}, {"name": "b", "slots": 2, "kind": "large"}]
    return {"title": "a <title>", "vms": vms, "tasks": tasks, "figures": [["makespan", "2 s"]]}


def graph(count: int, width: int = 5) -> dict[str, Any]:
    tasks = [
        {
            "task": f"t{i}",
            "activity": f"kind-{i // width}",
            "runtime": 1.0,
            "depth": i // width,
            "critical": i % width == 0,
        }
        for i in range(count)
    ]
    return {"title": "graph", "tasks": tasks, "edges": [[i - width, i] for i in range(width, count)]}


def check_page(page: str) -> None:
    """No script but our own, which the policy names, and nothing is loaded."""
    assert len(re.findall("sha256-", page.split("<title>")[0])) == 2
    plain = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall(r'(?:src|href)="(?!data:,)', plain)
    assert "http" not in plain.replace("http-equiv", "")


def test_no_task_lies_over_another() -> None:
    for lane in lanes(gantt(30)):
        assert lane.planned_rows <= lane.slots
        for one in lane.planned:
            for other in lane.planned:
                if one is not other and one.row == other.row:
                    assert one.finish <= other.start + 1e-9 or other.finish <= one.start + 1e-9


def test_a_task_of_several_cores_takes_rows_side_by_side() -> None:
    document = gantt(0)
    document["tasks"] = [
        {"task": name, "activity": "x", "vm": "b", "start": start, "finish": start + 2.0, "cores": cores}
        for name, start, cores in (("one", 0.0, 1), ("two", 0.5, 2), ("three", 2.0, 1), ("four", 2.5, 2))
    ]
    bars = {bar.task: (bar.row, bar.rows) for bar in lanes(document)[1].planned}
    assert bars == {"one": (0, 1), "two": (1, 2), "three": (0, 1), "four": (1, 2)}


def test_use_over_time() -> None:
    assert usage(lanes(gantt(6)), actual=False) == [(0.0, 0.0), (0.0, 3.0), (1.0, 3.0), (2.0, 0.0)]


def test_colours_go_to_what_takes_most_time() -> None:
    rows = [{"activity": f"a{i}", "runtime": float(i)} for i in range(20)]
    found = activities(rows)
    assert next(iter(found)) == "a19"
    assert len({colour for colour, *_ in found.values()}) == 13


def drawn(page: str) -> dict[str, Any]:
    """The charts that a page has, by name."""
    found = re.search(r'id="charts">(.*?)</script>', page)
    assert found is not None
    charts: dict[str, Any] = json.loads(found[1])
    return charts


@pytest.mark.parametrize("actual", [False, True])
def test_a_gantt_page(actual: bool) -> None:
    page = gantt_html(gantt(actual=actual))
    check_page(page)
    boxes = [layer for layer in drawn(page)["gantt"]["layers"] if layer["kind"] == "boxes"]
    assert sum(len(layer["rows"]) for layer in boxes) == (12 if actual else 6)
    assert boxes[0].get("faint", False) is actual
    assert len(boxes[0]["strong"]) == 2
    assert "task-0 &lt;&amp;&gt;" in page
    assert "task-0 <" not in page
    assert "<title>a &lt;title&gt; · Tradewind</title>" in page
    assert ("above as planned, below as it ran" in page) is actual


def test_bars_stand_where_their_times_are() -> None:
    rows = drawn(gantt_html(gantt(6)))["gantt"]["layers"][0]["rows"]
    assert sorted((begin, end) for begin, _, end, _ in rows) == [(0.0, 1.0)] * 3 + [(1.0, 2.0)] * 3
    low, high = gantt_charts(gantt(6))[1].y.labels
    assert (low[1], high[1]) == ("a", "b")
    assert low[0] < high[0]


@pytest.mark.slow
def test_a_large_gantt_page_stays_readable() -> None:
    document = gantt(3000)
    page = gantt_html(document)
    check_page(page)
    assert len(page) < 3_000_000
    many = gantt(0)
    many["vms"] = [{"name": f"vm-{i}", "slots": 1, "kind": ""} for i in range(500)]
    many["tasks"] = [
        {"task": f"t{i}", "activity": "x", "vm": f"vm-{i}", "start": 0.0, "finish": 1.0} for i in range(400)
    ]
    assert "100 machines without a task" in gantt_html(many)


def test_a_gantt_without_tasks() -> None:
    check_page(gantt_html(gantt(0)))


def test_a_machine_that_is_not_there() -> None:
    document = gantt()
    document["tasks"][0]["vm"] = "none"
    with pytest.raises(InputError, match="on machine 'none'"):
        gantt_html(document)


@pytest.mark.slow
@pytest.mark.parametrize("count", [6, 300])
def test_png(count: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_gantt(gantt(count, actual=True), tmp_path / "gantt.png")
    draw_dag(graph(count, 20), tmp_path / "dag.png")
    for name in ("gantt.png", "dag.png"):
        head = (tmp_path / name).read_bytes()[:24]
        assert head.startswith(b"\x89PNG")
        assert 500 < int.from_bytes(head[16:20], "big") < 4000
    with pytest.raises(InputError, match="cannot write"):
        draw_gantt(gantt(count), tmp_path / "none" / "gantt.png")
    draw_learning_curve("q", [3.0, 2.0], {"heft": 2.5}, tmp_path / "learning.png")
    assert (tmp_path / "learning.png").read_bytes().startswith(b"\x89PNG")


def texts(chart: Chart) -> list[str]:
    """The words in the boxes of a graph."""
    return list(chart.layer("tasks").texts)


def test_a_small_graph_has_names() -> None:
    page = dag_html(graph(12))
    check_page(page)
    (chart,) = graph_charts(graph(12))
    assert "By activity" not in page
    assert texts(chart) == [f"t{i}" for i in range(12)]
    assert "<td>t11</td>" in page, "a table beside the chart"
    links = [row for layer in chart.layers if layer.kind == "links" for row in layer.rows]
    assert len(links) == 7
    assert all(top < bottom for _, top, _, bottom in links), "parents stand above their children"
    assert [layer.look for layer in chart.layers] == ["soft", "ink", "use"]
    assert chart.layer("critical path").rows == [links[-2], links[-1]]
    assert chart.layer("tasks").words[0].splitlines()[-1] == "on the critical path"


def test_a_large_graph_is_folded_and_grouped() -> None:
    document = graph(1200, 600)
    groups, tasks = graph_charts(document)
    boxes = tasks.layer("tasks").rows
    assert len({tuple(box) for box in boxes}) == 1200
    wide, high = tasks.x.high or 0.0, tasks.y.high or 0.0
    assert all(0 < left < right < wide and 0 < top < low < high for left, top, right, low in boxes)
    assert texts(groups) == ["kind-0 × 600", "kind-1 × 600"]
    assert groups.table is not None
    assert groups.table.rows[0] == ["kind-0", "600", "0", "10m 00s", "yes", "kind-1 at depth 1 (600 edges)"]
    assert grouped(document)[1] == [(0, 1, 600)]
    page = dag_html(document)
    check_page(page)
    assert "Task by task" in page
    assert len(page) < 1_500_000


def test_a_table_of_many_tasks_says_what_it_leaves_out() -> None:
    page = dag_html(graph(2010, 30))
    assert "and 10 more" in page


def test_edges_that_need_not_cross_do_not() -> None:
    document = graph(10)
    document["edges"] = [[i, 9 - i] for i in range(5)]
    (chart,) = graph_charts(document)
    links = [row for layer in chart.layers if layer.kind == "links" for row in layer.rows]
    assert all(begin == end for begin, _, end, _ in links)


def test_boxes_of_names_that_begin_and_end_alike_can_be_told_apart() -> None:
    tasks = [
        {"task": f"{kind}{i}", "activity": f"NFCORE_FLOW.ASSEMBLY_{kind}_READ_UMI", "runtime": 1.0, "depth": depth}
        for depth, kind in enumerate(("MERGE", "SPLIT", "MASK"))
        for i in range(15)
    ]
    shown = texts(graph_charts({"title": "t", "tasks": tasks, "edges": []})[0])
    assert len(set(shown)) == 3
    assert all(kind in words for kind, words in zip(("MERGE", "SPLIT", "MASK"), shown, strict=True))


def test_a_graph_without_tasks() -> None:
    check_page(dag_html(graph(0)))


def test_a_learning_curve() -> None:
    chart = learning_chart("q", [300.0, 200.0, 250.0], {"heft": 240.0})
    assert chart.layer("best so far").rows == [(1.0, 300.0), (2.0, 200.0), (3.0, 200.0)]
    assert chart.layer("heft: 4m 00s").rows == [(0.5, 240.0), (3.5, 240.0)]
    assert chart.y.title == "makespan, minutes"
    assert "best so far" not in [layer.name for layer in learning_chart("q", [1.0], {}, best=False).layers]


def test_a_gantt_of_lines_says_what_each_machine_does() -> None:
    lines = text_gantt(gantt(6, actual=True), 43, plain=True)
    planned, ran = "#" * 20 + " " * 5, "#" * 10 + " " * 5 + "#" * 10
    assert [line.split("|")[1] for line in lines[:4]] == [planned, ran, planned, ran]
    assert [line.split()[0] for line in lines[:4]] == ["a", "actual", "b", "actual"]
    assert text_gantt(gantt(0), 40) == ["nothing takes any time"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gantt", "dag"])
def test_long_names_stay_within_the_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    from matplotlib.figure import Figure

    seen: list[tuple[float, float, float, float]] = []
    save = Figure.savefig

    def keep(figure: Any, *words: Any, **more: Any) -> None:
        save(figure, *words, **more)
        texts = [*figure.legends[0].get_texts(), *figure.texts, *(axes.title for axes in figure.axes)]
        boxes = [text.get_window_extent() for text in texts if text.get_text()]
        wide, high = figure.get_size_inches() * figure.dpi
        seen.extend((box.x0, wide - box.x1, box.y0, high - box.y1) for box in boxes)

    monkeypatch.setattr(Figure, "savefig", keep)
    names = [f"NFCORE_AIRRFLOW.AIRRFLOW.SEQUENCE_ASSEMBLY.PRESTO_UMI.PRESTO_STEP_NUMBER_{i}" for i in range(12)]
    if kind == "gantt":
        document = gantt(24)
        for i, task in enumerate(document["tasks"]):
            task["activity"] = names[i % 12]
        draw_gantt(document, tmp_path / "x.png")
    else:
        tasks = [{"task": n, "activity": n, "runtime": 1.0, "depth": i} for i, n in enumerate(names)]
        draw_dag({"title": "A title", "tasks": tasks, "edges": [[i, i + 1] for i in range(11)]}, tmp_path / "x.png")
    assert len(seen) >= 13
    assert min(min(each) for each in seen) >= 0


def test_one_of_a_thing_is_one() -> None:
    assert "1 task · 0 edges · 1 level<" in dag_html(graph(1))
    one = gantt(1)
    one["vms"] = one["vms"][:1]
    assert "<summary>1 machine</summary>" in gantt_html(one)
