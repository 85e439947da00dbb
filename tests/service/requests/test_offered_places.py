"""Places of one server: asked for, given, and taken back, from several threads."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tradewind.service.requests.offered_places import OfferedPlaces


def ask(
    places: OfferedPlaces, tenant: str, *names: str, weights: Mapping[str, float] | None = None, **demand: float
) -> None:
    places.ask([(name, name.partition("/")[0], tenant, demand) for name in names], weights or {})


def test_who_finds_no_room_waits_until_a_place_is_taken_back() -> None:
    places = OfferedPlaces({"cpu": 2.0, "memory": 4.0})
    ask(places, "a", "1/0", "1/1", "1/2", cpu=1.0, memory=1.0)
    assert places.given(["1/0", "1/1", "1/2"]) == {"1/0", "1/1"}
    places.end("1/0")
    assert places.given(["1/1", "1/2"]) == {"1/1", "1/2"}


def test_a_run_that_is_larger_than_the_machine_gets_all_of_it() -> None:
    places = OfferedPlaces({"cpu": 2.0})
    ask(places, "a", "1/0", cpu=64.0, gpu=1.0)
    ask(places, "b", "2/0", cpu=0.1)
    assert places.given(["1/0", "2/0"]) == {"1/0"}


def test_a_tenant_s_many_runs_do_not_keep_another_waiting_beyond_the_next_place() -> None:
    now = 0.0
    places = OfferedPlaces({"cpu": 2.0}, lambda: now)
    ask(places, "a", *(f"1/{n}" for n in range(20)), cpu=1.0)
    ask(places, "b", "2/0", cpu=1.0)
    now = 5.0
    places.end("1/0")
    assert places.given(["1/2", "2/0"]) == {"2/0"}


def test_weights_count_in_what_is_given() -> None:
    now, given = 0.0, {"a": 0, "b": 0}
    places = OfferedPlaces({"cpu": 1.0}, lambda: now)
    weights = {"a": 3.0, "b": 1.0}
    for tenant in weights:
        ask(places, tenant, *(f"{tenant}/{n}" for n in range(60)), weights=weights, cpu=1.0)
    names = {f"{tenant}/{n}" for tenant in weights for n in range(60)}
    for _ in range(40):
        (name,) = places.given(names)
        given[name[0]] += 1
        now += 1.0
        places.end(name)
    assert abs(given["a"] - 30) <= 1


def test_the_time_counts_for_which_a_program_ran_and_not_that_for_which_it_waited_for_others() -> None:
    now, given = 0.0, {"a": 0, "b": 0}
    places = OfferedPlaces({"cpu": 1.0}, lambda: now)
    places.ask([], {}, [("a", 1.0)])  # of an earlier server
    for tenant in given:
        ask(places, tenant, *(f"{tenant}/{n}" for n in range(60)), cpu=1.0)
    names = {f"{tenant}/{n}" for tenant in given for n in range(60)}
    for _ in range(40):
        (name,) = places.given(names)
        given[name[0]] += 1
        now += 9.0 if name[0] == "a" else 1.0
        places.ask([], {}, [(name, None), (name[0], 1.0)])
    assert abs(given["a"] - 20) <= 1


def test_what_was_found_again_has_its_place_though_there_is_no_room() -> None:
    places = OfferedPlaces({"cpu": 1.0})
    ask(places, "a", "1/0", cpu=1.0)
    ask(places, "a", "1/1", cpu=1.0)
    places.adopt("1/1", "1", "a", {"cpu": 1.0})
    assert places.given(["1/0", "1/1"]) == {"1/0", "1/1"}
    places.forget("1")
    ask(places, "b", "2/0", cpu=1.0)
    assert places.given(["1/0", "1/1", "2/0"]) == {"2/0"}


def test_what_is_not_wanted_any_more_is_free_whether_it_was_given_or_not() -> None:
    places = OfferedPlaces({"cpu": 1.0})
    ask(places, "a", "1/0", "1/1", cpu=1.0)
    for name in ("1/1", "1/0", "9/9"):
        places.give_up(name)
    ask(places, "b", "2/0", cpu=1.0)
    assert places.given(["1/0", "1/1", "2/0"]) == {"2/0"}


def test_threads_that_ask_at_once_never_have_more_than_there_is() -> None:
    places, most, lock, busy = OfferedPlaces({"cpu": 2.0}), [0], threading.Lock(), set[str]()

    def work(number: int) -> None:
        for n in range(20):
            name = f"{number}/{n}"
            ask(places, f"t{number % 2}", name, cpu=1.0)
            while name not in places.given([name]):
                pass
            with lock:
                busy.add(name)
                most[0] = max(most[0], len(busy))
                busy.remove(name)
            places.end(name)
        places.forget(str(number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] <= 2
