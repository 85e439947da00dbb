"""Seeded searchers propose what they proposed when the golden file was written.

A change of these sequences is a change of every user's search: make it on purpose, say so in the change log, and
write the file again with ``python tests/searcher/test_golden.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tradewind import plugins
from tradewind.testing import problems
from tradewind.testing.problems import drive

GOLDEN = Path(__file__).parents[1] / "golden" / "searchers.json"
TRIALS = 14

CASES: list[tuple[str, dict[str, Any], int]] = [
    ("asha", {}, 1),
    ("cherrypick", {}, 1),
    ("cherrypick", {"stop": False}, 2),
    ("coordinate_descent", {}, 1),
    ("coordinate_descent", {"start": "random"}, 2),
    ("ernest", {}, 1),
    ("done", {}, 1),
    ("done", {}, 2),
    ("exhaustive", {"order": "cheapest"}, 1),
    ("exhaustive", {"order": "shuffled"}, 2),
    ("gp", {}, 1),
    ("gp", {}, 2),
    ("gp", {"acquisition": "ei", "abort": False}, 1),
    ("hyperband", {"rungs": 2}, 1),
    ("obol", {}, 1),
    ("obol", {"depth": 0, "design": "lhs", "target": "log_cost"}, 2),
    ("optuna", {}, 1),
    ("optuna", {"sampler": "qmc"}, 2),
    ("paris", {"table": "paris_table.csv"}, 1),
    ("pbt", {"population": 4}, 1),
    ("random", {}, 1),
    ("random", {}, 2),
    ("tradewind", {}, 1),
    ("tradewind", {"acquisition": "ei", "beyond": 1.0}, 2),
    ("trimtuner", {}, 1),
    ("trimtuner", {"surrogate": "trees"}, 2),
]


def label(name: str, settings: dict[str, Any], seed: int) -> str:
    extras = ",".join(f"{key}={value}" for key, value in sorted(settings.items()))
    return f"{name}({extras}) seed {seed}"


def sequence(name: str, settings: dict[str, Any], seed: int) -> list[str]:
    """Configurations in words; no numbers that a platform may round in its own way."""
    problem = problems.table_problem(noise=0.05)
    if "table" in settings:
        settings = {**settings, "table": str(Path(__file__).parent / "data" / settings["table"])}
    searcher = plugins.create("searcher", name, settings, problem=problem, seed=seed)
    return [str(trial.configuration) for trial in drive(searcher, problem, TRIALS)]


def test_every_installed_searcher_has_a_golden_sequence() -> None:
    own = [n for n in plugins.names("searcher") if plugins.load("searcher", n).__module__.startswith("tradewind.")]
    assert {name for name, _, _ in CASES} == set(own)
    assert set(json.loads(GOLDEN.read_text())) == {label(*case) for case in CASES}


AGAIN = (("done", 2), ("gp", 2), ("trimtuner", 2), ("cherrypick", 2))
"""Seconds each, for a sequence that another seed or setting of the same searcher tries as well."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=label(*case), marks=[pytest.mark.thorough] if (case[0], case[2]) in AGAIN else [])
        for case in CASES
    ],
)
def test_sequence(case: tuple[str, dict[str, Any], int]) -> None:
    assert sequence(*case) == json.loads(GOLDEN.read_text())[label(*case)]


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({label(*case): sequence(*case) for case in CASES}, indent=1) + "\n")
