"""Pictures of workflows: what is in them, where it stands, and that they ask no host for anything."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from tradewind.errors import InputError
from tradewind.reporting.workflow.dag import GraphDrawing, GraphNode, dag_html, grouped, labels, single
from tradewind.reporting.workflow.gantt import gantt_html
from tradewind.reporting.workflow.layout import activities, gantt_charts, lanes, usage
from tradewind.reporting.workflow.plots import draw_dag, draw_gantt


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
    """Every drawing is well-formed, nothing is loaded, and there is no script."""
    for svg in re.findall(r"<svg.*?</svg>(?:</g>)?(?=</div>)", page, re.DOTALL):
        ElementTree.fromstring(svg)
    assert not re.findall(r'(?:src|href)="(?!data:,)', page)
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")


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


def check_scripted(page: str) -> None:
    """No script but our own, which the policy names, and nothing is loaded."""
    check_page(re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))
    assert len(re.findall("sha256-", page.split("<title>")[0])) == 2


@pytest.mark.parametrize("actual", [False, True])
def test_a_gantt_page(actual: bool) -> None:
    page = gantt_html(gantt(actual=actual))
    check_scripted(page)
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
    check_scripted(page)
    assert len(page) < 3_000_000
    many = gantt(0)
    many["vms"] = [{"name": f"vm-{i}", "slots": 1, "kind": ""} for i in range(500)]
    many["tasks"] = [
        {"task": f"t{i}", "activity": "x", "vm": f"vm-{i}", "start": 0.0, "finish": 1.0} for i in range(400)
    ]
    assert "100 machines without a task" in gantt_html(many)


def test_a_gantt_without_tasks() -> None:
    check_scripted(gantt_html(gantt(0)))


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


def test_a_small_graph_has_names() -> None:
    page = dag_html(graph(12))
    check_page(page)
    assert "By activity" not in page
    assert all(f">t{i}</text>" in page for i in range(12))
    drawing = single(graph(12))
    for parent, child, _ in drawing.edges:
        assert drawing.nodes[parent].y < drawing.nodes[child].y


def test_a_large_graph_is_folded_and_grouped() -> None:
    document = graph(1200, 600)
    drawing = single(document)
    assert not drawing.boxes
    assert all(0 < node.x < drawing.width and 0 < node.y < drawing.height for node in drawing.nodes)
    assert len({(node.x, node.y) for node in drawing.nodes}) == 1200
    groups = grouped(document)
    assert [node.label for node in groups.nodes] == ["kind-0 × 600", "kind-1 × 600"]
    assert groups.edges == ((0, 1, 600),)
    page = dag_html(document)
    check_page(page)
    assert "Task by task" in page


def test_edges_that_need_not_cross_do_not() -> None:
    document = graph(10)
    document["edges"] = [[i, 9 - i] for i in range(5)]
    drawing = single(document)
    assert all(drawing.nodes[parent].x == drawing.nodes[child].x for parent, child, _ in drawing.edges)


def box(label: str, width: float) -> GraphDrawing:
    return GraphDrawing(9.0, 9.0, (GraphNode(label, "", "#000000", 0.0, 0.0, width, 9.0, critical=False),), (), True)


def test_words_are_cut_in_the_middle() -> None:
    assert labels(box("short", 100)) == ["short"]
    assert labels(box("mproject_id000017_long", 80)) == ["mproj…_long"]
    assert len(labels(box("MPROJECT_ID000017_LONG", 80))[0]) == 9, "capitals are wider"


def test_boxes_of_names_that_begin_and_end_alike_can_be_told_apart() -> None:
    tasks = [
        {
            "task": f"{kind}{i}",
            "activity": f"NFCORE_FLOW.ASSEMBLY_{kind}_READ_UMI",
            "runtime": 1.0,
            "depth": depth,
        }
        for depth, kind in enumerate(("MERGE", "SPLIT", "MASK"))
        for i in range(3)
    ]
    shown = labels(grouped({"title": "t", "tasks": tasks, "edges": []}))
    assert len(set(shown)) == 3
    assert all(kind in words for kind, words in zip(("MERGE", "SPLIT", "MASK"), shown, strict=True))


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
