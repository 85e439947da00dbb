"""Checkpoints that nothing needs any more: whose stay, and whose go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tradewind.engine.cleanup.old_checkpoints import OldCheckpoints
from tradewind.problem import Configuration, Objective, Observation, Offer, Proposal, Trial, TrialState
from tradewind.searcher.base import ContinuesTrials

OFFER = Offer("local", "small", 1, 2, 1.0)


class Searches(ContinuesTrials):
    def __init__(self, told: list[Trial], origins: list[int] | None) -> None:
        self.history, self._origins = told, origins

    def origins(self, state: object) -> list[int] | None:
        return self._origins


def trial(number: int, state: TrialState, share: float, loss: float | None, origin: int | None = None) -> Trial:
    configuration = Configuration({"x": number})
    proposal = Proposal(configuration, fidelity=share, origin=origin)
    seen = None if loss is None else Observation(loss, 1.0, 1.0, feasible=loss < 5)
    return Trial(number=number, proposal=proposal, offer=OFFER, key=str(number), state=state, observation=seen)


GOOD, LOST, OPEN = TrialState.SUCCEEDED, TrialState.LOST, TrialState.PENDING
TRIALS = [
    trial(0, GOOD, 0.5, 1.0),  # 5 goes on from it
    trial(1, GOOD, 0.5, 1.1),  # may be promoted
    trial(2, GOOD, 0.5, 1.2),  # likewise, later
    trial(3, GOOD, 0.5, 9.0),  # out
    trial(4, LOST, 0.5, None),
    trial(5, OPEN, 1.0, None, origin=0),  # maybe interrupted
    trial(6, GOOD, 1.0, 0.7),
    trial(7, GOOD, 1.0, 0.5),  # the best
    trial(8, GOOD, 1.0, 6.0),  # infeasible
    trial(9, GOOD, 1.0, 0.6),  # has ended; the searcher hears of it next
]


def left(folder: Path, searcher: Any, keep: int, waiting: int | None) -> list[int]:
    for each in TRIALS:
        (folder / f"{each.number:05d}" / "copy").mkdir(parents=True)
    (folder / "00077").mkdir()
    machine: Any = SimpleNamespace(
        history=SimpleNamespace(
            trials={each.number: each for each in TRIALS},
            pending=[each for each in TRIALS if not each.state.ended],
            next_number=10,
        ),
        ledger=SimpleNamespace(free=None),
        trials_left=3,
        seconds_left=None,
        problem=SimpleNamespace(objective=Objective("loss")),
    )
    OldCheckpoints(folder, keep, waiting).remove(machine, searcher)
    return sorted(int(path.name) for path in folder.iterdir() if path.name != "00077")


@pytest.mark.parametrize(
    ("origins", "keep", "waiting", "stay"),
    [
        ([1, 2], 1, None, [0, 1, 2, 5, 7, 9]),
        ([1, 2], 2, None, [0, 1, 2, 5, 6, 7, 9]),
        ([1, 2], 0, 1, [0, 1, 5, 9]),
        ([], 9, 0, [0, 5, 6, 7, 8, 9]),
        (None, 1, None, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ],
)
def test_what_may_be_needed_stays(
    tmp_path: Path, origins: list[int] | None, keep: int, waiting: int | None, stay: list[int]
) -> None:
    told = [each for each in TRIALS if each.state is GOOD and each.number != 9]
    assert left(tmp_path, Searches(told, origins), keep, waiting) == stay
    assert (tmp_path / "00077").is_dir(), "of no trial that is known"


def test_without_trials_that_go_on_from_others_only_those_to_be_repeated_stay(tmp_path: Path) -> None:
    told = [each for each in TRIALS if each.state is GOOD]
    assert left(tmp_path, SimpleNamespace(history=told), 1, None) == [0, 5]


def test_a_study_without_checkpoints_or_one_of_another_user_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    OldCheckpoints(tmp_path / "none", 1, None).remove(replace, SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setattr(Path, "iterdir", refused)
    OldCheckpoints(tmp_path, 1, None).remove(replace, SimpleNamespace())  # type: ignore[arg-type]
