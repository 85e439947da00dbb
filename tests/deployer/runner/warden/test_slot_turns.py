"""Turns of tenants for the slots of a machine: weighted shares and bounded waits in simulated time, and kept turns."""

from __future__ import annotations

import heapq
import itertools
import json
import math
import os
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.deployer.runner import procfs
from tradewind.deployer.runner.warden.files import StartRefused
from tradewind.deployer.runner.warden.slot_turns import UNCOUNTED, SlotTurns
from tradewind.deployer.runner.warden.slots import Slot, SlotRegistry

EVERY = (0, 1)
GIB = 2**30
LATE = 0.05
"""Seconds after which whoever waits hears that a slot is free, at most."""


def wants(folder: Path, tenant: str | None = None, weight: float | None = None, **more: Any) -> dict[str, Any]:
    nothing = {"cpu": 1, "memory": 0, "memory_here": 8 * GIB, "device": 0, "devices_here": [], "group": ""}
    whose = {} if tenant is None else {"tenant": tenant, "weight": weight}
    search = {"search": f"s-{tenant}", "name": f"s-{tenant}"}
    return {"folder": str(folder / "registry"), **nothing, **whose, **search, **more}


def registry(ticks: int = 0) -> SlotRegistry:
    """The registry of a warden; with another start time it is one that is gone."""
    me = procfs.stat(os.getpid())
    assert me is not None
    return SlotRegistry({"boot": procfs.boot_id(), "warden": [os.getpid(), me.ticks + ticks]})


class Owner(NamedTuple):
    """A cluster, a service or a search, with one tenant and always work.

    Attributes:
        weight: Of the tenant.
        size: CPUs of a run.
        places: Runs that it has here at most, those that wait with them.
        length: Seconds of a run in the mean.
        gap: Seconds from the end of a run to when the next one is asked for.
        comes: When its first run is asked for.
    """

    weight: float = 1.0
    size: float = 1.0
    places: int = 2
    length: float = 1.0
    gap: float = 0.03
    comes: float = 0.0


class Noted(NamedTuple):
    """A run that has ended: whose, and when it was asked for, began and ended."""

    owner: int
    asked: float
    began: float
    ended: float


class Machine:
    """A machine with two CPUs in simulated time."""

    def __init__(self, folder: Path, owners: Sequence[Owner], seed: int, clock: Callable[[Callable[[], float]], None]):
        self.now = 1000.0
        clock(lambda: self.now)
        self.folder, self.owners, self.rng = folder, owners, random.Random(seed)
        self.wardens = [registry() for _ in owners]
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = itertools.count()
        self.waits: dict[str, tuple[int, float]] = {}
        self.asks: dict[str, float] = {}
        self.has: dict[str, tuple[int, float, float]] = {}
        self.runs: list[Noted] = []
        for number, owner in enumerate(owners):
            for _ in range(owner.places):
                self.after(owner.comes, partial(self.ask_anew, number))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self.numbers), what))

    def ask_anew(self, number: int) -> None:
        self.ask(f"r{next(self.numbers)}", number, self.now)

    def ask(self, run: str, number: int, asked: float) -> None:
        owner = self.owners[number]
        more = {"cpu": owner.size, "memory": 0}
        try:
            slot = self.wardens[number].take(run, wants(self.folder, f"t{number}", owner.weight, **more), EVERY)
        except StartRefused as refused:
            self.waits[run] = number, asked
            self.again(run, min(1.0, refused.again or 1.0))
            return
        self.waits.pop(run, None)
        assert slot.cpus
        self.has[run] = number, asked, self.now
        assert sum(self.owners[each].size for each, _, _ in self.has.values()) <= 2
        length = owner.length * self.rng.uniform(0.8, 1.2)
        self.after(length, lambda: self.end(run))
        self.wake()

    def again(self, run: str, seconds: float) -> None:
        when = self.now + seconds
        if self.asks.get(run, math.inf) <= when:
            return

        def ask() -> None:
            if self.asks.get(run) == when:
                del self.asks[run]
                if run in self.waits:
                    self.ask(run, *self.waits[run])

        self.asks[run] = when
        self.after(seconds, ask)

    def wake(self) -> None:
        """Whoever waits hears of it, soon and in any order."""
        for run in list(self.waits):
            self.again(run, self.rng.uniform(0.0, LATE))

    def end(self, run: str) -> None:
        number, asked, began = self.has.pop(run)
        self.wardens[number].give_back(run)
        self.runs.append(Noted(number, asked, began, self.now))
        gap = self.owners[number].gap * self.rng.uniform(0.5, 1.0)
        self.after(gap, partial(self.ask_anew, number))
        self.wake()

    def run(self, seconds: float) -> list[Noted]:
        until = self.now + seconds
        while self.events and self.events[0][0] < until:
            self.now, _, what = heapq.heappop(self.events)
            what()
        return self.runs

    def shares(self, first: float = 0.0) -> list[float]:
        """Percent of what all have used that each owner has, from a time on."""
        used = [0.0] * len(self.owners)
        for run in self.runs:
            used[run.owner] += max(0.0, run.ended - max(run.began, 1000.0 + first)) * self.owners[run.owner].size
        return [100 * each / sum(used) for each in used]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], float]], None]:
    return lambda now: monkeypatch.setattr(time, "monotonic", now)


LARGE = Owner(3, size=2, places=1)
SMALL = Owner(1, size=0.5, places=4)


@pytest.mark.parametrize(
    ("owners", "used"),
    [
        ([Owner(3), Owner(1)], 0.95),
        ([Owner(9), Owner(1)], 0.95),
        ([Owner(3, size=2, places=1), Owner(1, size=2, places=1)], 0.95),
        ([Owner(1), Owner(2), Owner(3)], 0.95),
        ([SMALL, LARGE], 0.85),
        ([SMALL._replace(weight=3), LARGE._replace(weight=1)], 0.8),
        ([Owner(4, length=5), Owner(1)], 0.9),
        ([Owner(3, gap=0.2), Owner(1, gap=0.2)], 0.85),
    ],
    ids=["3:1", "9:1", "whole", "1:2:3", "large", "small", "long", "slow"],
)
def test_shares_are_those_of_the_weights(
    tmp_path: Path, clock: Callable[[Callable[[], float]], None], owners: list[Owner], used: float
) -> None:
    machine = Machine(tmp_path, owners, 1, clock)
    runs = machine.run(90)
    wanted = [100 * owner.weight / sum(each.weight for each in owners) for owner in owners]
    assert machine.shares(5) == pytest.approx(wanted, abs=3)
    assert sum((run.ended - run.began) * owners[run.owner].size for run in runs) >= used * 2 * 85


OWNERS = st.builds(
    Owner, st.integers(1, 4), st.sampled_from([0.5, 1, 2]), st.integers(1, 4), st.sampled_from([0.5, 1.0, 3.0]),
    st.sampled_from([0.01, 0.1, 0.6]), st.sampled_from([0.0, 7.0]),
)  # fmt: skip


@settings(max_examples=6)
@given(st.lists(OWNERS, min_size=1, max_size=3), st.integers(0, 9))
def test_every_wait_is_bounded_and_the_machine_is_used(
    tmp_path_factory: pytest.TempPathFactory, owners: list[Owner], seed: int
) -> None:
    """By what its own tenant may have used before, by what others use until they have as much, and by what runs."""
    longest = [1.2 * each.length * each.size for each in owners]
    with pytest.MonkeyPatch.context() as patched:
        folder = tmp_path_factory.mktemp("turns")
        machine = Machine(folder, owners, seed, lambda now: patched.setattr(time, "monotonic", now))
        machine.run(40)
        waits = [(number, machine.now - asked) for number, asked in machine.waits.values()]
        waits += [(run.owner, run.began - run.asked) for run in machine.runs]
    for number, wait in waits:
        mine = owners[number]
        own = until = (mine.places + 1) * longest[number]
        for place, each in enumerate(owners):
            if place != number:
                until += each.weight / mine.weight * own + (each.places + 1) * longest[place]
        # The machine does at least half a CPU's work per second, whatever the sizes.
        assert wait <= 2 * until + 3 * max(1.2 * each.length for each in owners) + 1


def test_what_a_tenant_left_to_others_is_not_owed_to_it(
    tmp_path: Path, clock: Callable[[Callable[[], float]], None]
) -> None:
    machine = Machine(tmp_path, [Owner(1), Owner(1, comes=20.0)], 3, clock)
    runs = machine.run(60)
    assert machine.shares(22) == pytest.approx([50, 50], abs=4)
    assert max(run.began - run.asked for run in runs) < 3


def test_the_turn_of_who_is_due_is_kept_for_a_moment(
    tmp_path: Path, clock: Callable[[Callable[[], float]], None]
) -> None:
    now = [1000.0]
    clock(lambda: now[0])
    one, other = registry(), registry()
    due, waits = wants(tmp_path, "due", 3, cpu=2), wants(tmp_path, "waits", 1, cpu=2)

    def refused(taker: SlotRegistry, run: str, wanted: dict[str, Any]) -> StartRefused:
        with pytest.raises(StartRefused, match="busy") as found:
            taker.take(run, wanted, EVERY)
        return found.value

    one.take("a1", due, EVERY)
    assert refused(other, "b1", waits).again == 0.0
    now[0] += 2
    one.give_back("a1")
    assert other.take("b1", waits, EVERY) == Slot([0, 1], [])  # each has its turn first
    refused(one, "a2", due)
    now[0] += 4
    other.give_back("b1")
    one.take("a2", due, EVERY)
    refused(other, "b2", waits)
    now[0] += 2
    one.give_back("a2")  # it has used 4 by a weight of 3, the other one 4
    answer = refused(other, "b2", waits)
    assert answer.words == "the next slot is kept for search s-due"
    assert 0 < answer.again <= 0.5
    assert one.take("a3", due, EVERY) == Slot([0, 1], [])
    now[0] += 2
    one.give_back("a3")
    now[0] += refused(other, "b2", waits).again
    assert other.take("b2", waits, EVERY) == Slot([0, 1], [])  # it has not come
    now[0] += 1
    refused(one, "a4", due)
    now[0] += 11
    other.give_back("b2")
    one.take("a4", due, EVERY)
    refused(other, "b3", waits)
    now[0] += 1
    one.give_back("a4")
    assert other.take("b3", waits, EVERY) == Slot([0, 1], [])  # who was late the last time is not waited for


def file_of(folder: Path) -> dict[str, Any]:
    text = (folder / "registry" / "slots").read_bytes()
    half, length = map(int, text[:64].split())
    found: dict[str, Any] = json.loads(text[64 + (half << 20) :][:length])
    return found


def put(folder: Path, document: Any) -> None:
    text = json.dumps(document).encode()
    (folder / "registry" / "slots").write_bytes(f"0 {len(text)}".encode().ljust(64) + text)


def without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


def test_entries_of_an_earlier_version_hold_their_slots(tmp_path: Path) -> None:
    one = registry()
    one.take("a", wants(tmp_path, "t", 2), EVERY)
    with pytest.raises(StartRefused):
        one.take("b", wants(tmp_path, "t", 2, cpu=2), EVERY)
    found = file_of(tmp_path)
    put(tmp_path, {key: [without(each, *UNCOUNTED) for each in found[key]] for key in ("entries", "waits")})
    with pytest.raises(StartRefused, match="busy"):
        registry().take("c", wants(tmp_path, "u", 1, cpu=2), EVERY)
    one.give_back("a")
    assert one.take("b", wants(tmp_path, "t", 2, cpu=2), EVERY) == Slot([0, 1], [])


DAMAGED: list[Callable[[dict[str, Any]], Any]] = [
    lambda turns: None,
    lambda turns: [],
    lambda turns: {**turns, "levels": {"t": float("nan")}},
    lambda turns: {**turns, "levels": {"t": float("inf")}},
    lambda turns: {**turns, "levels": []},
    lambda turns: {**turns, "passed": "x"},
    lambda turns: without(turns, "passed"),
    lambda turns: {**turns, "tenants": {"t": {}}},
    lambda turns: {**turns, "tenants": {"t": {**turns["tenants"]["t"], "weight": 0}}},
    lambda turns: {**turns, "kept": [{}]},
    lambda turns: {**turns, "kept": 3},
    lambda turns: {**turns, "boot": "another"},
]


@pytest.mark.parametrize("damage", DAMAGED)
def test_turns_that_are_damaged_begin_anew_and_slots_stay(tmp_path: Path, damage: Callable[[Any], Any]) -> None:
    one = registry()
    one.take("a", wants(tmp_path, "t", 2), EVERY)
    found = file_of(tmp_path)
    put(tmp_path, {**found, "turns": damage(found["turns"])})
    assert registry().take("b", wants(tmp_path, "u"), EVERY) == Slot([1], [])
    with pytest.raises(StartRefused, match="busy"):
        registry().take("c", wants(tmp_path, "u"), EVERY)
    one.give_back("a")
    assert [each["run_id"] for each in file_of(tmp_path)["entries"]] == ["b"]


def test_tenants_that_are_gone_are_forgotten_at_last() -> None:
    turns = SlotTurns("one")
    for number in range(300):
        entry = {**UNCOUNTED, "tenant": f"t{number}", "share": 1.0, "boot": "one"}
        turns.began(entry, 0.0, passed=False)
        turns.ended(entry, 1.0 + number)
    document = turns.document([{"tenant": "t7"}, {"tenant": "t8"}])
    assert set(document["levels"]) == {"t7", "t8", *(f"t{number}" for number in range(200, 300))}
    assert set(document["tenants"]) == set(document["levels"])


def test_use_of_a_killed_warden_counts_as_long_as_somebody_looked_and_its_turn_is_kept_for_nobody(
    tmp_path: Path, clock: Callable[[Callable[[], float]], None]
) -> None:
    now = [1000.0]
    clock(lambda: now[0])
    one, lives = registry(), registry()
    one.take("a", wants(tmp_path, "killed", 1, cpu=2), EVERY)
    now[0] += 8
    with pytest.raises(StartRefused, match="busy"):
        lives.take("b", wants(tmp_path, "other", 1, cpu=2), EVERY)
    found = file_of(tmp_path)
    found["entries"][0]["warden"][1] += 1
    put(tmp_path, found)
    now[0] += 1000
    assert lives.take("b", wants(tmp_path, "other", 1, cpu=2), EVERY) == Slot([0, 1], [])
    turns = SlotTurns(procfs.boot_id(), file_of(tmp_path)["turns"])
    assert turns.kept == []
    assert turns._use.level("killed") == pytest.approx(math.log2(1.25 * 8), abs=0.01)


def tenants(turns: SlotTurns) -> set[str]:
    return set(turns._tenants)


def test_a_restart_of_the_machine_begins_anew() -> None:
    turns = SlotTurns("one")
    entry = {**UNCOUNTED, "tenant": "t", "share": 0.5, "boot": "one"}
    turns.began(entry, 5.0, passed=False)
    turns.ended(entry, 9.0)
    document = json.loads(json.dumps(turns.document([entry])))
    assert tenants(SlotTurns("one", document)) == {"t"}
    assert SlotTurns("one", document).expected("t") == 4.0
    assert not tenants(SlotTurns("two", document))


def test_who_ends_before_the_next_one_has_room_gets_gpus_that_are_kept_for_that(
    tmp_path: Path, clock: Callable[[Callable[[], float]], None]
) -> None:
    now = [1000.0]
    clock(lambda: now[0])
    quick, long, due = registry(), registry(), registry()
    gpus: dict[str, Any] = {"cpu": 0, "devices_here": ["0", "1"], "device": 1}
    quick.take("q1", wants(tmp_path, "quick", **gpus), EVERY)
    now[0] += 1
    quick.give_back("q1")
    long.take("l1", wants(tmp_path, "long", **gpus), EVERY)
    now[0] += 40
    with pytest.raises(StartRefused, match="busy"):  # foreseen to take longer from now on
        due.take("d1", wants(tmp_path, "due", **{**gpus, "device": 2}), EVERY)
    assert quick.take("q2", wants(tmp_path, "quick", **gpus), EVERY) == Slot([], ["1"])
    with pytest.raises(StartRefused, match="busy"):
        registry().take("x", wants(tmp_path, "x", **gpus), EVERY)


def test_a_tiny_weight_takes_nothing_from_what_is_known_of_others() -> None:
    turns = SlotTurns("one")
    for name, weight in (("t", 1.0), ("tiny", 1e-12)):
        entry = {**UNCOUNTED, "tenant": name, "weight": weight, "share": 1.0, "boot": "one"}
        turns.came(entry, [], 0.0)
        turns.began(entry, 0.0, passed=False)
        turns.ended(entry, 4.0)
    again = SlotTurns("one", json.loads(json.dumps(turns.document([]))))
    assert [again.expected(name) for name in ("t", "tiny")] == [4.0, 4.0]
