"""The tables that benchmarks/compare makes of performance models."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.comparing import call, loaded, start

MODULES = ("tables", "bench", "prepare", "made_models", "made")


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    with loaded(*MODULES) as found:
        yield found


@pytest.fixture(scope="module")
def made(scripts: Any) -> dict[str, dict[str, Any]]:
    return {table["name"]: table for table in scripts.made.make()}


def in_time(table: dict[str, Any]) -> float:
    """Share of rows that succeed before the deadline."""
    rows, deadline = table["rows"], float(table["deadline"])
    return sum(not row["failed"] and float(row["seconds"]) <= deadline for row in rows) / len(rows)


@pytest.mark.slow
def test_the_same_tables_every_time(scripts: Any, made: dict[str, dict[str, Any]]) -> None:
    again = scripts.made.make()
    assert json.dumps(again) == json.dumps(list(made.values()))


def test_a_type_is_the_same_wherever_it_is_asked_for(scripts: Any) -> None:
    line = scripts.made.line
    assert line("c", 6, "i", [16])[0] == line("c", 6, "i", [4, 8, 16])[2]


@pytest.mark.slow
def test_every_table_is_a_problem_with_one_optimum(scripts: Any, made: dict[str, dict[str, Any]]) -> None:
    assert 24 <= len(made) <= 32
    for name, table in made.items():
        bench = scripts.bench.Bench(table, "second")  # raises unless the space has exactly the table's rows
        assert len(bench) == len(table["rows"]), name
        feasible = sorted(away for away in bench.away.values() if math.isfinite(away))
        assert len(feasible) == round(in_time(table) * len(bench)) >= 2, name
        assert feasible[0] == 0.0
        assert feasible[1] > 1e-6, name


@pytest.mark.slow
def test_tables_differ_as_jobs_do(made: dict[str, dict[str, Any]]) -> None:
    sizes = [len(table["rows"]) for table in made.values()]
    assert min(sizes) < 20
    assert max(sizes) > 1500
    failing = {table["family"] for table in made.values() if any(row["failed"] for row in table["rows"])}
    assert len(failing) >= 5
    for table in made.values():
        times = [row["seconds"] for row in table["rows"]]
        assert 5 < min(times) < max(times) < 4 * 86400, table["name"]
    solvers = [[row["seconds"] for row in table["rows"]] for table in made.values() if table["family"] == "solver"]
    assert len({tuple(one) for one in solvers}) == len(solvers) == 4


@pytest.mark.slow
def test_the_conditional_space_has_settings_of_the_chosen_provider_only(made: dict[str, dict[str, Any]]) -> None:
    table = made["iterative/1"]
    conditional = {p["name"] for p in table["parameters"] if "when" in p}
    assert conditional
    for row in table["rows"]:
        own = {name for name in conditional if name.startswith(row["values"]["provider"])}
        assert set(row["values"]) == {"provider", "nodes", *own}


@pytest.mark.slow
def test_a_deadline_of_other_shares(scripts: Any, made: dict[str, dict[str, Any]]) -> None:
    seconds = [float(s) for s in range(10)]
    assert [scripts.tables.deadline_of(seconds, share) for share in (0.2, 0.5, 0.9, 1.0)] == [2.0, 5.0, 9.0, 9.0]
    assert scripts.tables.deadline_of(seconds) == 5.0
    for share, of in ((0.2, min), (0.9, max)):
        for table in scripts.made.make(share, only=("etl", "training")):
            usual = made[table["name"]]
            assert table["rows"] == usual["rows"]
            assert table["deadline"] != usual["deadline"]
            assert of(table["deadline"], usual["deadline"]) == table["deadline"]
            # Most of the tables' quick rows may be such that failed at once: a few are always left.
            assert in_time(table) >= scripts.made.FEWEST


@pytest.mark.slow
def test_made_tables_are_searched(tmp_path: Path) -> None:
    made = call("made.py", "--work", str(tmp_path), "--deadline", "0.9")
    assert [line.partition(":")[0] for line in made.splitlines()][:3] == ["solver", "shuffle", "genomics"]
    assert "genomics: 4 x 14, " in made
    words = ("--policies", "random", "--seeds", "2", "--tables", "genomics/1", "--billing", "second")
    assert "2 searches in" in call("run.py", *words, "--work", str(tmp_path))
    assert len((tmp_path / "results/random.csv").read_text().splitlines()) == 3


@pytest.mark.slow
def test_a_deadline_is_a_share(tmp_path: Path) -> None:
    done = start("made.py", "--work", str(tmp_path), "--deadline", "90")
    assert done.returncode == 2
    assert "above 0 and at most 1" in done.stderr
    assert not list(tmp_path.iterdir())
