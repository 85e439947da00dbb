from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import typer
from rich.console import Console

from tradewind.cli.study.report import report
from tradewind.cli.study.tune import tune
from tradewind.errors import InputError, NothingFeasibleError
from tradewind.plugins import create
from tradewind.problem import Configuration, Trial
from tradewind.reporting.charts.document import chart_json
from tradewind.reporting.charts.one_page import render_page
from tradewind.reporting.study.prediction_map import PredictedMap, map_chart, map_table, print_map, write_map
from tradewind.searcher.base import MapPoint
from tradewind.testing.problems import offers
from tradewind.utils.paths import data_folder, store_url

pytestmark = pytest.mark.slow

TABLE = Path(__file__).parents[2] / "searcher" / "data" / "paris_table.csv"

JOB = """
name: {name}
job: {{command: [./job, --share, "{{{{ fraction }}}}"]}}
space:
  instance: {{provider: test}}
  nodes: {{type: nodes, values: [1, 2, 4, 8]}}
catalogues: {{csv: {{path: own.csv}}}}
constraints: {{deadline: 30s}}
budget: {{dollars: 20}}
deploy: {{runner: {{use: replay, file: runs.csv}}}}
searcher: {searcher}
"""

command = typer.Typer()
command.command("report")(report)
command.command("tune")(tune)


def call(*words: str) -> None:
    command(list(words), standalone_mode=False)


def seconds(name: str, cores: float, nodes: int, share: float) -> float:
    speed = {"c": 1.25, "m": 1.05, "r": 1.0}[name[0]]
    return 0.3 + share * 550 / speed / cores / nodes + 0.12 * math.log(nodes) + 0.015 * nodes


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a catalogue, recorded runs on parts of the input, and a table of other workloads."""
    sold = offers(6)
    lines = ["API Name,Provider,CPU,Memory,Category,Price,Region"]
    lines += [f"{n},test,{int(o.vcpu)},{o.memory_gib},{o.category},{o.price_per_hour},lab" for n, o in sold.items()]
    (tmp_path / "own.csv").write_text("\n".join(lines) + "\n")
    shares = [round(float(s), 6) for s in np.linspace(0.016, 0.125, 20)] + [1.0]
    rows = [
        f"{n},{m},{s:.6g},{seconds(n, o.vcpu, m, s):.3f}" for n, o in sold.items() for m in (1, 2, 4, 8) for s in shares
    ]
    (tmp_path / "runs.csv").write_text("\n".join(["instance,nodes,fraction,runtime", *rows]) + "\n")
    (tmp_path / "table.csv").write_text(TABLE.read_text())
    yield tmp_path


def study(folder: Path, name: str, searcher: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Carry a job out; the path in its settings is seen from its folder."""
    file = folder / f"{name}.yaml"
    file.write_text(JOB.format(name=name, searcher=searcher))
    call("tune", str(file))
    capsys.readouterr()


PARIS = "{use: paris, table: table.csv, pairs_tried: 2, trees: 40}"


def loaded(name: str) -> PredictedMap:
    with closing(create("store", "sql", {}, url=store_url())) as store:
        return PredictedMap.load(store, store.find_studies(name)[0].id, data_folder())


def test_a_map_is_made_again_from_the_store(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study(folder, "ernest-job", "ernest", capsys)
    predicted = loaded("ernest-job")
    assert len(predicted.points) == 24
    assert predicted.deadline == 30.0
    assert not predicted.ranged
    assert "Models: 6" in predicted.basis
    measured = [point for point in predicted.points if predicted.measured(point) is not None]
    assert measured[0] is predicted.points[0]
    for point in predicted.points:
        name, nodes = str(point.configuration["instance"]), int(point.configuration["nodes"])
        assert point.time == pytest.approx(seconds(name, offers(6)[name].vcpu, nodes, 1.0), rel=0.01)


@pytest.mark.slow
def test_the_terminal_shows_the_map_at_any_width(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study(folder, "paris-job", PARIS, capsys)
    predicted = loaded("paris-job")
    for width in (50, 80, 120):
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(map_table(predicted, width))
        lines = console.export_text().splitlines()
        assert max(map(len, lines)) <= width
        assert "cost, 1,000 runs, predicted" in lines[0]
        shown = f" {' '.join(' '.join(lines).split())} "
        for point in predicted.points[:20]:
            assert shown.count(f" {point.configuration} ") == 1, "no configuration is cut: all can be told apart"
    monkeypatch.setenv("COLUMNS", "130")
    call("report", "paris-job", "--map")
    out = capsys.readouterr().out
    assert out.startswith("study paris-job: 24 configurations predicted")
    for words in ("expected within 30.0 s", "1 in 10 longer", "1 in 10 above", "measured", "4 more: --json has all"):
        assert words in out
    assert "References: " in out


def test_files_of_the_map(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study(folder, "paris-job", PARIS, capsys)
    svg, png, page = (folder / name for name in ("m.svg", "m.png", "m.html"))
    call("report", "paris-job", "--map-plot", str(svg))
    assert capsys.readouterr().out.strip() == f"wrote {svg}"
    ElementTree.parse(svg)
    assert "deadline 30.0 s" in svg.read_text()
    call("report", "paris-job", "--map", "--map-plot", str(png), "--html", str(page))
    out = capsys.readouterr().out
    assert f"wrote {png}" in out
    assert f"wrote {page}" in out
    assert png.read_bytes().startswith(b"\x89PNG")
    found = re.search(r'id="charts">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found is not None
    drawn = json.loads(found[1])["predicted-map"]
    layers = {layer["look"]: layer["rows"] for layer in drawn["layers"]}
    assert sum(len(layers[look]) for look in ("feasible", "infeasible", "best")) == 24
    assert len(layers["soft"]) > 10
    assert all(end >= begin for begin, _, end, _ in layers["soft"])
    assert len(drawn["table"]["rows"]) == 24


def test_json_has_every_point(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study(folder, "paris-job", PARIS, capsys)
    call("report", "paris-job", "--map", "--json")
    document = json.loads(capsys.readouterr().out)["map"]
    assert len(document["points"]) == 24
    assert set(document["points"][0]) == {
        "configuration", "cost", "cost_p90", "time", "time_p90", "in_time", "trial",
    }  # fmt: skip
    assert document["deadline"] == 30.0


def test_searchers_without_a_map_and_studies_without_trials_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study(folder, "random-job", "random", capsys)
    with pytest.raises(InputError, match="predicts no map") as refusal:
        call("report", "random-job", "--map")
    assert "ernest, paris" in str(refusal.value)
    text = JOB.format(name="short-job", searcher="ernest").replace("dollars: 20", "trials: 1")
    (folder / "short-job.yaml").write_text(text)
    with pytest.raises(NothingFeasibleError):
        call("tune", str(folder / "short-job.yaml"))
    with pytest.raises(InputError, match="cannot predict yet"):
        call("report", "short-job", "--map-plot", str(folder / "x.png"))


def some_map(points: list[MapPoint], deadline: float | None = None) -> PredictedMap:
    return PredictedMap("m", points, dict[int, Trial](), deadline)


def point(name: str, cost: float, time: float, **given: Any) -> MapPoint:
    return MapPoint(Configuration({"instance": name}), cost, None, time, None, **{"in_time": True, **given})


def test_a_map_of_one_point_and_of_free_machines_can_be_drawn(tmp_path: Path) -> None:
    for points in ([point("a", 0.5, 60.0)], [point("a", 0.0, 60.0), point("b", 0.0, 6000.0, in_time=False)]):
        json.dumps(chart_json(map_chart(some_map(points, deadline=1e6))), allow_nan=False)
        assert write_map(some_map(points), tmp_path / "m.png").exists()
    none_in_time = some_map([point("a", 1.0, 60.0, in_time=False)], deadline=5.0)
    assert map_chart(none_in_time).layer("predicted late").rows == [(60.0, 1.0)]


def test_nothing_of_a_name_is_markup() -> None:
    predicted = some_map([point("<b>[red]x", 1.0, 60.0), point("y&z", 2.0, 30.0)])
    assert (
        "<b>"
        not in render_page("one_page.html.j2", {"map": map_chart(predicted)}, title="a map")
        .split('id="charts"')[1]
        .split("</script>")[0]
    )
    console = Console(width=80, record=True, file=io.StringIO())
    print_map(predicted, console)
    assert "<b>[red]x" in console.export_text()


def test_a_plot_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    predicted = some_map([point("a", 0.5, 60.0)])
    with pytest.raises(InputError, match=r"must end in \.svg or \.png"):
        write_map(predicted, tmp_path / "m.pdf")
    for name in ("no/m.svg", "no/m.png"):
        with pytest.raises(InputError, match="cannot write"):
            write_map(predicted, tmp_path / name)
