"""The benchmark of killed controllers sees what is wrong with a study, and its table adds up."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tradewind import plugins
from tradewind.problem import Configuration, Offer, Proposal, Run, RunState, Trial, TrialState
from tradewind.store.base import Change, Store, StudyRow

FOLDER = Path(__file__).parents[2] / "benchmarks" / "chaos"
OFFER = Offer("pool", "small", 1, 0.25, 3600.0)
"""A dollar a second."""


def script(name: str) -> ModuleType:
    """A script of the benchmark, which is no part of the package."""
    spec = importlib.util.spec_from_file_location(f"chaos_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Study:
    """A study of two runs in which all is well, until somebody changes that."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trials = [
            Trial(i, Proposal(Configuration({"x": i})), OFFER, TrialState.SUCCEEDED, f"key-{i}", spent=2.0)
            for i in range(2)
        ]
        self.runs = [Run(f"run-{i}", i, state=RunState.DONE, cost=2.0, runtime=2.0) for i in range(2)]
        self.began = ["run-0 10.0", "run-1 11.0"]
        self.ended = ["run-0 12.0", "run-1 13.0"]
        self.left: list[str] = []
        self.machines = False

    def keep_machine(self, name: str) -> None:
        """Have a machine left, of an engine that makes them."""
        self.left.append(name)
        self.machines = True

    def look(self) -> list[str]:
        """Run the benchmark's check of the study."""
        store: Store = plugins.create("store", "sql", {}, url=f"sqlite:///{self.folder}/tradewind.db")
        row = store.create_study(StudyRow(0, "chaos", "key", {}, 0.0, owner=f"chaos-{os.getpid()}"))
        store.write(row.id, Change(self.trials, self.runs))
        store.close()
        (self.folder / "began").write_text("".join(f"{line}\n" for line in self.began))
        (self.folder / "ended").write_text("".join(f"{line}\n" for line in self.ended))
        verify: Any = script("verify")
        verify._PATIENCE = 0.3
        found = verify.look(self.folder, self.folder, lambda: self.left, makes_machines=self.machines)
        wrong: list[str] = found.wrong
        return wrong


def _other(study: Study, **changes: object) -> None:
    study.runs[1] = replace(study.runs[1], **changes)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_study_in_which_all_is_well(tmp_path: Path) -> None:
    assert Study(tmp_path).look() == []


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda s: s.began.append("run-1 20.0"), "twice: run run-1 began 2 times"),
        (lambda s: s.ended.pop(), "lost: run run-1 is done without having run"),
        (lambda s: _other(s, state=RunState.PREEMPTED), "lost: run run-1 ran to its end and is not done"),
        (lambda s: s.began.append("stray 20.0"), "lost: run stray has no row"),
        (lambda s: _other(s, state=RunState.EXECUTING), "lost: run run-1 is still executing"),
        (
            lambda s: s.trials.__setitem__(1, replace(s.trials[1], state=TrialState.LOST)),
            "lost: trial 1 is lost",
        ),
        (lambda s: _other(s, cost=1.9), "money: run run-1 took 2.00 s and was charged 1.90 s"),
        (lambda s: _other(s, cost=13.0), "money: run run-1 took 2.00 s and was charged 13.00 s"),
        (lambda s: _other(s, cost=3.0), "money: the study has spent 5.0, and its trials 4.0"),
        (lambda s: _other(s, reserved=0.5, state=RunState.EXECUTING), "money: 0.5 is still set aside"),
        (lambda s: s.left.append("job 7"), "leaked: job 7"),
        (lambda s: s.keep_machine("vm 7"), "machines: vm 7"),
    ],
)
def test_what_is_wrong_is_seen(tmp_path: Path, spoil: Callable[[Study], object], words: str) -> None:
    study = Study(tmp_path)
    spoil(study)
    assert words in study.look()


@pytest.fixture
def orphan() -> Iterator[None]:
    """A process that carries the study's tag."""
    environment = {**os.environ, "TRADEWIND_OWNER": f"chaos-{os.getpid()}"}
    with subprocess.Popen(["sleep", "60"], env=environment) as process:
        yield
        process.kill()


@pytest.mark.slow
@pytest.mark.usefixtures("orphan")
def test_a_process_that_is_left_is_seen(tmp_path: Path) -> None:
    [words] = Study(tmp_path).look()
    assert words.startswith("leaked: process ")
    assert words.endswith("sleep 60")


def test_the_table_adds_up(tmp_path: Path) -> None:
    analyze = script("analyze")
    head = "date,engine,seed,kills,at_calls,at_moments,runs,repeated,seconds,lost,leaked,twice,machines,money\n"
    rows = ["a,ssh,1,20,8,12,30,1,9.0,0,0,0,0,0", "a,ssh,2,10,4,6,20,0,9.0,1,0,0,0,2", "a,ray,1,5,1,4,6,0,1,0,3,0,0,0"]
    (tmp_path / "results.csv").write_text(head + "\n".join(rows))
    assert analyze.table(tmp_path / "results.csv")[2:] == [
        "| ssh | 30 | 12 | 50 | 1 | 1 | 0 | 0 | 0 | 2 |",
        "| ray | 5 | 1 | 6 | 0 | 0 | 3 | 0 | 0 | 0 |",
        "| all | 35 | 13 | 56 | 1 | 1 | 3 | 0 | 0 | 2 |",
    ]
