"""Which run has which devices: choice, and notes of which none outlives its warden."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.deployer.runner import procfs
from tradewind.deployer.runner.warden.devices import DeviceNotes, choose_devices
from tradewind.deployer.runner.warden.files import StartRefused


def notes(ticks: int = 0, boot: str = "") -> DeviceNotes:
    me = procfs.stat(os.getpid())
    assert me is not None
    return DeviceNotes({"boot": boot or procfs.boot_id(), "warden": [os.getpid(), me.ticks + ticks]})


@pytest.mark.parametrize(
    ("free", "amount", "chosen"),
    [
        ({"0": 1.0, "1": 1.0}, 1, ["0"]),
        ({"0": 0.5, "1": 1.0}, 1, ["1"]),
        ({"0": 0.5, "1": 0.9}, 1, []),
        ({"0": 1.0, "1": 0.5}, 0.5, ["1"]),
        ({"0": 1.0, "1": 0.4}, 0.5, ["0"]),
        ({"0": 1.0, "1": 1.0, "2": 1.0}, 2, ["0", "1"]),
        ({"0": 1.0}, 2, []),
    ],
)
def test_whole_ones_of_its_own_and_parts_together(free: dict[str, float], amount: float, chosen: list[str]) -> None:
    assert choose_devices(free, amount) == chosen


@given(st.lists(st.tuples(st.sampled_from([0.25, 0.5, 1 / 3, 1, 2]), st.booleans()), max_size=30))
def test_no_device_is_ever_given_twice(asked: list[tuple[float, bool]]) -> None:
    free, held = dict.fromkeys("abc", 1.0), list[tuple[list[str], float]]()
    for amount, ends in asked:
        chosen = choose_devices(free, amount)
        held.append((chosen, min(1.0, amount)))
        for name in chosen:
            free[name] -= held[-1][1]
        assert all(room >= -1e-6 for room in free.values())
        if ends:
            names, part = held.pop(0)
            for name in names:
                free[name] += part


def test_two_wardens_share_one_set_and_give_back(tmp_path: Path) -> None:
    one, other, folder = notes(), notes(), str(tmp_path / "gpus")
    assert one.take("a", folder, ["0", "1"], 1) == ["0"]
    assert other.take("b", folder, ["0", "1"], 1) == ["1"]
    with pytest.raises(StartRefused, match="busy"):
        other.take("c", folder, ["0", "1"], 0.5)
    one.give_back("a")
    one.give_back("never")
    assert other.take("c", folder, ["0", "1"], 0.5) == ["0"]
    assert one.take("d", folder, ["0", "1"], 0.5) == ["0"]


def test_what_a_killed_warden_had_is_free(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert notes(ticks=1).take("a", folder, ["0"], 1) == ["0"]
    assert notes(boot="another").take("b", folder, ["0"], 1) == ["0"]
    (tmp_path / "torn.json").write_text("{")
    assert notes().take("c", folder, ["0"], 1) == ["0"]
    assert len(list(tmp_path.glob("*.json"))) == 1
