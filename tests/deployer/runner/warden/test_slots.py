"""Which run has which slot of a machine: choice, turns, and entries of which none outlives its warden."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.deployer.runner import procfs
from tradewind.deployer.runner.warden.files import StartRefused
from tradewind.deployer.runner.warden.slots import (
    Slot,
    SlotRegistry,
    choose_cpus,
    choose_devices,
    describe_slots,
    inner_folder,
)

EVERY = (0, 1)
GIB = 2**30


def registry(ticks: int = 0, boot: str = "") -> SlotRegistry:
    """The registry of a warden; with another start time it is one that is gone."""
    me = procfs.stat(os.getpid())
    assert me is not None
    return SlotRegistry({"host": "here", "boot": boot or procfs.boot_id(), "warden": [os.getpid(), me.ticks + ticks]})


def wants(folder: Path, cpu: float = 1, search: str = "s", **more: Any) -> dict[str, Any]:
    nothing = {"memory": 0, "memory_here": 8 * GIB, "device": 0, "devices_here": ["0", "1"], "group": ""}
    return {"folder": str(folder / "registry"), "cpu": cpu, "search": search, "name": search, **nothing, **more}


def noted(folder: Path) -> list[str]:
    """The runs that are in the registry."""
    head, text = (folder / "registry" / "slots").read_bytes()[:64], (folder / "registry" / "slots").read_bytes()[64:]
    half, length = map(int, head.split())
    content = json.loads(text[half << 20 :][:length])
    return [each["run_id"] for part in ("entries", "waits") for each in content[part]]


def why_not(taker: SlotRegistry, run_id: str, wanted: dict[str, Any]) -> str:
    with pytest.raises(StartRefused, match="busy") as refused:
        taker.take(run_id, wanted, EVERY)
    return refused.value.words


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


@pytest.mark.parametrize(
    ("free", "amount", "chosen"),
    [
        ({0: 1.0, 1: 1.0}, 1, [0]),
        ({0: 1.0, 1: 0.5}, 0.25, [1]),
        ({0: 0.5, 1: 0.7}, 1, [1]),
        ({0: 1.0, 1: 1.0}, 1.5, [0, 1]),
        ({0: 1.0, 1: 0.0, 2: 1.0}, 2.0, [0, 2]),
        ({0: 0.0, 1: -1.0}, 5.0, [0, 1]),
    ],
)
def test_cpus_that_nobody_has_or_those_with_most_room(free: dict[int, float], amount: float, chosen: list[int]) -> None:
    assert choose_cpus(free, amount) == chosen


def test_two_wardens_take_different_cpus_and_the_third_run_waits(tmp_path: Path) -> None:
    one, other = registry(), registry()
    assert one.take("a", wants(tmp_path), EVERY) == Slot([0], [])
    assert other.take("b", wants(tmp_path, search="t"), EVERY) == Slot([1], [])
    assert why_not(one, "c", wants(tmp_path)) == "2 of 2 CPUs are used by search t and this search"
    other.give_back("b")
    other.give_back("never")
    assert one.take("c", wants(tmp_path), EVERY) == Slot([1], [])


def test_parts_of_cpus_share_one(tmp_path: Path) -> None:
    each = registry()
    assert [each.take(name, wants(tmp_path, 0.5), EVERY).cpus for name in "abcd"] == [[0], [0], [1], [1]]
    assert "2 of 2 CPUs" in why_not(each, "e", wants(tmp_path, 0.1))


def test_a_run_alone_always_fits_and_has_all(tmp_path: Path) -> None:
    each = registry()
    assert each.take("a", wants(tmp_path, 64, memory=99 * GIB), EVERY) == Slot([0, 1], [])
    assert why_not(each, "b", wants(tmp_path, 0.5))
    each.give_back("a")
    each.take("b", wants(tmp_path, 0.5, memory=7 * GIB), EVERY)
    words = why_not(each, "c", wants(tmp_path, 0.5, memory=2 * GIB, search="t"))
    assert words == "7.0 of 8.0 GiB of memory are used by search s"


def test_memory_and_gpus_are_places_too(tmp_path: Path) -> None:
    one, other = registry(), registry()
    assert one.take("a", wants(tmp_path, 0, device=1), EVERY) == Slot([], ["0"])
    assert other.take("b", wants(tmp_path, 0, device=1), EVERY) == Slot([], ["1"])
    assert why_not(other, "c", wants(tmp_path, 0, device=0.5)) == "the GPUs are used by this search"
    one.give_back("a")
    assert other.take("c", wants(tmp_path, 0, device=0.5), EVERY) == Slot([], ["0"])
    assert one.take("d", wants(tmp_path, 0, device=0.5), EVERY) == Slot([], ["0"])


def test_who_waits_for_gpus_keeps_nobody_from_cpus(tmp_path: Path) -> None:
    each = registry()
    each.take("a", wants(tmp_path, 0, device=2), EVERY)
    assert why_not(each, "b", wants(tmp_path, 1, "t", device=1))
    assert each.take("c", wants(tmp_path, 1, "u"), EVERY) == Slot([0], [])
    assert why_not(each, "d", wants(tmp_path, 1, "v")) == "the next slot is kept for search t"
    assert why_not(each, "e", wants(tmp_path, 0, "v", device=0.5)) == "the GPUs are used by search s"


def test_small_runs_do_not_starve_a_large_one(tmp_path: Path) -> None:
    each = registry()
    each.take("a", wants(tmp_path), EVERY)
    assert "1 of 2" in why_not(each, "large", wants(tmp_path, 2, "t"))
    assert why_not(each, "b", wants(tmp_path)) == "the next slot is kept for search t"
    each.give_back("a")
    assert why_not(each, "b", wants(tmp_path)) == "the next slot is kept for search t"
    assert each.take("large", wants(tmp_path, 2, "t"), EVERY) == Slot([0, 1], [])


def test_who_asks_no_more_is_passed_over_and_has_its_turn_when_it_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that was stopped by Ctrl-Z has a warden that is alive."""
    each, now = registry(), time.monotonic()
    each.take("a", wants(tmp_path), EVERY)
    assert why_not(each, "large", wants(tmp_path, 2, "t"))
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    each.take("b", wants(tmp_path, 1, "u"), EVERY)
    assert why_not(each, "c", wants(tmp_path, 1, "u"))
    assert why_not(each, "large", wants(tmp_path, 2, "t"))
    each.give_back("b")
    assert why_not(each, "c", wants(tmp_path, 1, "u")) == "the next slot is kept for search t"


def test_what_is_not_wanted_any_more_keeps_no_place(tmp_path: Path) -> None:
    one, other = registry(), registry()
    one.take("a", wants(tmp_path), EVERY)
    why_not(one, "large", wants(tmp_path, 2))
    why_not(other, "b", wants(tmp_path, 1, "t"))
    one.give_up({"a"})
    assert other.take("b", wants(tmp_path, 1, "t"), EVERY) == Slot([1], [])


def test_a_search_waits_for_one_run_of_each_other_one(tmp_path: Path) -> None:
    """However many slots the others ask for: who was served goes behind those who were not."""
    each, got = registry(), list[str]()
    waits = {f"{search}{n}": search for search, most in (("s", 5), ("t", 1), ("u", 1)) for n in range(most)}
    first = wants(tmp_path, 2, "first")
    each.take("first", first, EVERY)
    for name, search in waits.items():
        why_not(each, name, wants(tmp_path, 2, search))
    running = "first"
    while waits:
        each.give_back(running)
        for name, search in list(waits.items()):
            try:
                each.take(name, wants(tmp_path, 2, search), EVERY)
            except StartRefused:
                continue
            got.append(waits.pop(name))
            running = name
    assert "".join(got) == "stussss"


def test_what_a_killed_warden_had_or_waited_for_is_free(tmp_path: Path) -> None:
    registry(ticks=1).take("a", wants(tmp_path, 2), EVERY)
    registry(boot="another").take("b", wants(tmp_path, 2), EVERY)
    lives = registry()
    lives.take("c", wants(tmp_path), EVERY)
    why_not(registry(ticks=1), "d", wants(tmp_path, 2, "t"))
    assert lives.take("e", wants(tmp_path, 1, "u"), EVERY) == Slot([1], [])
    assert noted(tmp_path) == ["c", "e"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"entries": [{}], "waits": []}', '{"entries": [3], "waits": 1}'])
@pytest.mark.parametrize("head", ["", "1", "0 {}", "7 {}", "x {}", "0 999999999"])
def test_what_is_no_registry_is_an_empty_one(tmp_path: Path, text: str, head: str) -> None:
    (tmp_path / "registry").mkdir()
    (tmp_path / "registry" / "slots").write_text(head.format(len(text)).ljust(64) + text)
    assert registry().take("a", wants(tmp_path, 2), EVERY) == Slot([0, 1], [])
    assert noted(tmp_path) == ["a"]


def test_a_writer_that_is_killed_leaves_what_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each, written, pwrite = registry(), list[int](), os.pwrite

    def killed(file: int, text: bytes, at: int) -> int:
        written.append(at)
        if at == 0:
            raise KeyboardInterrupt
        return pwrite(file, text[:-3], at) + 3

    each.take("a", wants(tmp_path), EVERY)
    each.take("b", wants(tmp_path), EVERY)
    monkeypatch.setattr(os, "pwrite", killed)
    with pytest.raises(KeyboardInterrupt):
        each.give_back("a")
    monkeypatch.undo()
    assert len(written) == 2
    assert noted(tmp_path) == ["a", "b"]
    assert "2 of 2 CPUs" in why_not(each, "c", wants(tmp_path))


def test_a_full_disk_is_an_error_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each = registry()
    each.take("a", wants(tmp_path), EVERY)
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", lambda file, text, at: 1)
        with pytest.raises(OSError, match="No space left"):
            each.take("b", wants(tmp_path), EVERY)
    assert noted(tmp_path) == ["a"]
    with pytest.raises(OSError, match="File too large"):
        each.take("b", wants(tmp_path, 1, "s" * 2_000_000), EVERY)


def test_tenants_do_not_learn_what_others_search(tmp_path: Path) -> None:
    each = registry()
    each.take("a", wants(tmp_path, 1, "1", name="alice/tea", group="alice"), EVERY)
    each.take("b", wants(tmp_path, 1, "2", name="bob/ink", group="bob"), EVERY)
    assert why_not(each, "c", wants(tmp_path, 1, "3", name="bob/pen", group="bob")).endswith(
        "used by others and search bob/ink"
    )
    assert why_not(each, "d", wants(tmp_path, 1, "4")).endswith("used by search alice/tea and search bob/ink")


def test_many_others_are_counted(tmp_path: Path) -> None:
    each = registry()
    for number in range(5):
        each.take(f"a{number}", wants(tmp_path, 0.4, f"s{number}"), EVERY)
    assert why_not(each, "b", wants(tmp_path)).endswith("used by search s0, search s1, search s2 and 2 more")


def test_the_use_of_a_machine_is_told(tmp_path: Path) -> None:
    each, folder = registry(), str(tmp_path / "registry")
    assert describe_slots(folder, EVERY) == "no run has any"
    each.take("a", wants(tmp_path, 1, "1", name="alice/tea", group="alice"), EVERY)
    registry(ticks=1).take("b", wants(tmp_path), EVERY)
    assert describe_slots(folder, EVERY) == "1 of 2 CPUs are used by search alice/tea"
    for name in "cd":
        why_not(each, name, wants(tmp_path, 2, "2"))
    assert describe_slots(folder, EVERY) == "1 of 2 CPUs are used by search alice/tea; 2 runs wait"
    each.give_up(())
    assert describe_slots(folder, EVERY) == "no run has any"


def gang(folder: Path, cpu: float, part: float = 0, **more: Any) -> dict[str, Any]:
    return wants(folder, cpu, "w", gang="crew", part=part, **more)


def test_a_gang_has_room_for_all_or_waits_once(tmp_path: Path) -> None:
    """Two of them that had half of the machine each would wait for each other for ever."""
    one, other, third = registry(), registry(), registry()
    one.take("a", wants(tmp_path), EVERY)
    assert "1 of 2" in why_not(other, "m1", gang(tmp_path, 2))
    assert "1 of 2" in why_not(other, "m2", gang(tmp_path, 2))
    assert noted(tmp_path) == ["a", "crew"]
    one.give_back("a")
    assert other.take("m2", gang(tmp_path, 2), EVERY) == Slot([0, 1], [])
    assert third.take("m1", gang(tmp_path, 2), EVERY) == Slot([0, 1], [])
    assert why_not(one, "b", wants(tmp_path)) == "2 of 2 CPUs are used by workflow w"
    other.give_back("m2")
    assert why_not(one, "b", wants(tmp_path))
    third.give_back("m1")
    assert one.take("b", wants(tmp_path), EVERY) == Slot([0], [])


def test_a_gang_of_which_nobody_waits_any_more_has_no_turn(tmp_path: Path) -> None:
    """What is kept for it would be nobody's."""
    one, crew = registry(), registry()
    one.take("a", wants(tmp_path), EVERY)
    for name in ("m1", "m2", "m1"):
        why_not(crew, name, gang(tmp_path, 2))
    crew.give_back("m1")
    assert why_not(one, "b", wants(tmp_path)) == "the next slot is kept for workflow w", "m2 waits"
    crew.give_back("m2")
    assert one.take("b", wants(tmp_path), EVERY) == Slot([1], [])


def test_a_gang_that_has_its_slot_waits_for_none_whoever_asked_first(tmp_path: Path) -> None:
    """Its runs may be of several wardens, of which each has asked."""
    one, first = registry(), SlotRegistry({"boot": procfs.boot_id(), "warden": _parent()})
    one.take("a", wants(tmp_path), EVERY)
    why_not(first, "m1", gang(tmp_path, 2))
    assert "1 of 2 CPUs" in why_not(one, "m2", gang(tmp_path, 2))
    assert noted(tmp_path) == ["a", "crew", "crew"]
    one.give_back("a")
    one.take("m2", gang(tmp_path, 2), EVERY)
    assert noted(tmp_path) == ["crew"]
    first.take("m1", gang(tmp_path, 2), EVERY)
    assert noted(tmp_path) == ["crew"]


def _parent() -> list[int]:
    """Another process that is alive."""
    found = procfs.stat(os.getppid())
    assert found is not None
    return [os.getppid(), found.ticks]


def test_a_gang_holds_its_slot_as_long_as_one_of_it_lives(tmp_path: Path) -> None:
    lives, gone = registry(), registry(ticks=1)
    gone.take("m1", gang(tmp_path, 2), EVERY)
    lives.take("m2", gang(tmp_path, 2), EVERY)
    assert why_not(registry(), "a", wants(tmp_path)) == "2 of 2 CPUs are used by workflow w"
    lives.give_back("m2")
    assert registry().take("a", wants(tmp_path), EVERY) == Slot([0], [])


def test_each_of_a_gang_has_gpus_of_its_own(tmp_path: Path) -> None:
    each = registry()
    assert each.take("m1", gang(tmp_path, 2, 1, device=2), EVERY) == Slot([0, 1], ["0"])
    assert each.take("m2", gang(tmp_path, 2, 1, device=2), EVERY) == Slot([0, 1], ["1"])
    assert each.take("m1", gang(tmp_path, 2, 1, device=2), EVERY) == Slot([0, 1], ["0"])
    assert why_not(each, "m3", gang(tmp_path, 2, 1, device=2)) == "the GPUs are used by other machines of this run"
    each.give_back("m1")
    assert each.take("m3", gang(tmp_path, 2, 1, device=2), EVERY) == Slot([0, 1], ["0"])


def test_a_container_inherits_the_slot_of_who_started_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = registry(ticks=1)
    started.take("a", wants(tmp_path, 2), EVERY)
    started.note_container("a", "0123abc")
    first: list[tuple[int, int] | None] = [registry()._me[1:]]
    monkeypatch.setattr(procfs, "first_process_of", lambda container: first[-1] if container == "0123abc" else None)
    assert why_not(registry(), "b", wants(tmp_path, 1, "t")) == "2 of 2 CPUs are used by search s"
    again = registry()
    assert again.take("a", wants(tmp_path, 2), EVERY) == Slot([0, 1], [])
    again.leave("a")
    first.append(None)
    # It was asked for a moment ago, and may still begin.
    assert why_not(registry(), "b", wants(tmp_path, 1, "t"))
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    assert registry().take("b", wants(tmp_path, 1, "t"), EVERY) == Slot([0], [])


def test_the_registry_is_for_its_user_and_inner_ones_go_with_their_run(tmp_path: Path) -> None:
    each = registry()
    each.take("a", wants(tmp_path), EVERY)
    assert (tmp_path / "registry").stat().st_mode & 0o777 == 0o700
    inner = {**wants(tmp_path), "folder": inner_folder(str(tmp_path / "registry"), "a")}
    assert registry().take("b", inner, {0}) == Slot([0], [])
    assert registry().take("c", {**inner, "folder": inner_folder(inner["folder"], "b")}, {0}) == Slot([0], [])
    assert (tmp_path / "registry" / "in-a" / "in-b").is_dir()
    each.give_back("a")
    assert sorted(path.name for path in (tmp_path / "registry").iterdir()) == ["slots"]


AMOUNTS = st.sampled_from([0.25, 0.5, 1, 2, 3])


TENANTS: list[dict[str, Any]] = [{}, *({"tenant": f"t{number % 2}", "weight": 2 + number} for number in range(3))]


@given(st.lists(st.tuples(st.integers(0, 3), AMOUNTS, st.sampled_from("abk")), max_size=40))
def test_no_place_is_ever_given_twice(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, float, str]]
) -> None:
    """Whoever takes, waits, gives back or is killed: what living wardens have is never more than there is."""
    folder = tmp_path_factory.mktemp("slots")
    wardens = [registry() for _ in range(4)]
    have = [dict[str, float]() for _ in wardens]
    for number, (who, amount, what) in enumerate(steps):
        if what == "a":
            try:
                slot = wardens[who].take(f"r{number}", wants(folder, amount, f"s{who}", **TENANTS[who]), EVERY)
            except StartRefused:
                continue
            have[who][f"r{number}"] = min(amount, 2.0)
            assert slot.cpus
        elif what == "b" and have[who]:
            wardens[who].give_back(name := next(iter(have[who])))
            del have[who][name]
        elif what == "k":
            for name in have[who]:
                wardens[who].give_back(name)
            wardens[who].give_up(())
            have[who] = {}
        assert sum(sum(each.values()) for each in have) <= 2 + 1e-6
    for warden, own in zip(wardens, have, strict=True):
        warden.give_up(())
        own.clear()
    now = time.monotonic()
    with pytest.MonkeyPatch.context() as later:  # no turn is kept for its tenant any more
        later.setattr(time, "monotonic", lambda: now + 2)
        assert registry().take("last", wants(folder, 2), EVERY) == Slot([0, 1], [])
