from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from tradewind.cli.app import run
from tradewind.testing.recorded_tables import TableColumns, read_table
from tradewind.testing.searcher_benchmark import SearchResult, summarise


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """48 configurations: types at a price, nodes, and a setting; the cheapest in time is known."""
    rows = ["instance_type,nodes,level,price,runtime,accuracy"]
    for size, price, speed in (("small", 0.1, 1.0), ("large", 0.2, 2.2), ("huge", 0.4, 3.5)):
        for nodes in (1, 2, 4, 8):
            for level in (1, 2, 3, 4):
                seconds = 400 * level**0.5 / (speed * nodes**0.8) + 10 * nodes
                rows.append(f"{size},{nodes},{level},{price},{seconds:.3f},{1 - 0.1 / level:.4f}")
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_table_is_a_problem_with_its_own_optimum(table: Path) -> None:
    found = read_table(table, TableColumns(metrics=("accuracy",)), quantile=0.5)
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    times = sorted(float(row["runtime"]) for row in rows)
    deadline = found.problem.constraints.deadline
    assert deadline == times[24]
    bills = {i: float(r["runtime"]) * float(r["price"]) * int(r["nodes"]) / 3600 for i, r in enumerate(rows)}
    in_time = [bill for i, bill in bills.items() if float(rows[i]["runtime"]) <= deadline]
    assert found.best == pytest.approx(min(in_time), rel=1e-4)
    assert found.mean == pytest.approx(sum(bills.values()) / 48, rel=1e-4)
    assert found.problem.space.names == ("instance_type", "nodes", "level")


def test_searchers_are_compared_and_an_interrupted_benchmark_goes_on(
    table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        "bench",
        "random",
        "coordinate_descent",
        "--table",
        str(table),
        "--metrics",
        "accuracy",
        "--budgets",
        "2,6",
    ]
    out = table.with_name("results.csv")
    assert run([*words, "--seeds", "2", "--out", str(out), "--processes", "1", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["summaries"]
    assert [(each["searcher"], each["budget"], each["searches"]) for each in first] == [
        ("random", 2.0, 2),
        ("coordinate_descent", 2.0, 2),
        ("random", 6.0, 2),
        ("coordinate_descent", 6.0, 2),
    ]
    assert all(each["dopt"] is None or each["dopt"] >= 0 for each in first)
    written = out.read_text()
    assert run([*words, "--seeds", "2", "--out", str(out), "--processes", "1"]) == 0
    shown = capsys.readouterr().out
    assert out.read_text() == written, "nothing is searched again"
    assert "48 configurations" in shown
    assert "budget" in shown
    assert run([*words, "--seeds", "3", "--out", str(out), "--processes", "1", "--json"]) == 0
    assert {each["searches"] for each in json.loads(capsys.readouterr().out)["summaries"]} == {3}
    assert out.read_text().startswith(written)


@pytest.mark.thorough
@pytest.mark.slow
def test_the_protocol_of_the_paper_pays_every_run(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = table.with_name("plot.png")
    words = ["bench", "random", "obol:depth=0", "--table", str(table), "--metrics", "accuracy", "--protocol", "obol"]
    assert run([*words, "--budgets", "8", "--seeds", "1", "--processes", "1", "--plot", str(plot), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["summaries"]
    assert [each["searcher"] for each in found] == ["random", "obol:depth=0"]
    assert all(each["nex"] >= 5 for each in found), "five random starts"
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_ratio_is_paired_by_seed() -> None:
    results = [
        SearchResult(name, 4.0, seed, 0.0, 5, 1.0, close, 0.0)
        for name, figures in (("a", (1.0, 2.0, math.inf)), ("b", (0.5, 1.0, math.inf)))
        for seed, close in enumerate(figures)
    ]
    first, second = summarise(results, ["a", "b"])
    assert first.ratio is None
    assert second.ratio == pytest.approx((0.5 * 0.5 * 1.0) ** (1 / 3))
    assert second.to_close == 1.0
    assert first.close == 1.0  # the distance at the end says so


def test_a_plot_that_cannot_be_drawn_is_refused_before_anything_is_searched(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = table.with_name("results.csv")
    assert run(["bench", "random", "--table", str(table), "--plot", "compared.pdf", "--out", str(out)]) != 0
    assert "--plot compared.pdf is no picture (name a .png or .svg)" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["gpp"], "there is no searcher named 'gpp' (did you mean 'gp'?)"),
        (["gp:startz=3"], "startz"),
        (["gp", "--budgets", "8,x"], "--budgets '8,x' are no numbers above zero"),
        (["gp", "--budgets", "0"], "are no numbers above zero"),
        (["gp", "--protocol", "paper"], "--protocol cannot be 'paper'"),
        (["gp", "--time", "seconds"], "there is no column 'seconds'"),
        (["gp", "--parameters", "nodez"], "there is no column 'nodez' (did you mean 'nodes'?)"),
        (["gp", "--where", "nodes=77"], "no row is left in it"),
        (["gp", "--deadline", "1s"], "no run in it meets the deadline"),
    ],
)
def test_what_is_wrong_is_one_line(
    table: Path, more: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", *more, "--table", str(table)]) != 0
    error = capsys.readouterr().err
    assert error.startswith("tradewind: ")
    assert error.count("\n") == 1
    assert words in error
