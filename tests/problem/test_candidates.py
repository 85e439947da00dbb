from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import NoOfferError
from tradewind.problem import Categorical, Configuration, Expression, Instance, Integer, Offer, Problem
from tradewind.problem.columns.row_numbers import RowNumbers

Make = Callable[..., Problem]


@pytest.fixture
def machine(machines: dict[str, Offer]) -> Instance:
    # "SMALL" is sold as "small" and "gone" is not sold at all.
    offers = {**machines, "SMALL": machines["small"], "gone": machines["large"]}
    return _instance(offers)


def _instance(offers: dict[str, Offer]) -> Instance:
    return Instance(name="instance", values=tuple(offers), offers=offers)


LEVEL = Integer(name="level", low=1, high=4)
FAST = Categorical(name="fast", values=(True, False), when=Expression("level > 2"))


def test_trials_that_come_to_the_same_are_one_candidate_and_the_unsold_are_none(
    make_problem: Make, machine: Instance
) -> None:
    problem = make_problem(machine, LEVEL, FAST)
    candidates = problem.candidates
    assert len(problem.space) == 4 * (2 + 2 * 2)
    assert len(candidates) == 2 * (2 + 2 * 2)
    assert len({candidates.key(i) for i in range(len(candidates))}) == len(candidates)
    assert {candidates.offer(i).instance_type for i in range(len(candidates))} == {"small", "large"}
    assert candidates.features.shape == (len(candidates), len(problem.space.feature_names))
    assert candidates.hourly.tolist() == [candidates.offer(i).hourly for i in range(len(candidates))]


def test_every_configuration_finds_its_candidate(make_problem: Make, machine: Instance) -> None:
    problem = make_problem(machine, LEVEL, FAST)
    candidates = problem.candidates
    for code in problem.space.codes:
        configuration = problem.space.configuration(code)
        place = candidates.index(configuration)
        if configuration["instance"] == "gone":
            assert place is None
        else:
            assert place is not None
            assert candidates.key(place) == problem.trial_key(configuration)
            assert candidates.index(configuration) == place


def test_what_is_no_candidate_is_not_found(make_problem: Make, machine: Instance) -> None:
    candidates = make_problem(machine, LEVEL, FAST, where=("level != 2",)).candidates
    assert candidates.index(Configuration({"instance": "small", "level": 2})) is None
    assert candidates.index(Configuration({"instance": "small", "level": 9})) is None
    assert candidates.index(Configuration({"instance": "small", "level": 1, "fast": True})) is None
    assert candidates.index(Configuration({"instance": "small", "level": 3})) is None
    assert candidates.index(Configuration({"instance": "SMALL", "level": 1.0})) is not None


def test_a_space_that_nobody_sells_is_an_error(make_problem: Make, make_offer: Callable[..., Offer]) -> None:
    with pytest.raises(NoOfferError, match="no configuration of the space is sold"):
        _ = make_problem(_instance({"gone": make_offer("gone")}), LEVEL).candidates


def test_a_list_of_configurations(make_problem: Make, machine: Instance) -> None:
    problem = make_problem(machine, LEVEL)
    names = ["small", "SMALL", "gone", "large", "large"]
    listed = [Configuration({"instance": name, "level": 1}) for name in names]
    pool = problem.pool(listed)
    assert [pool.configuration(i)["instance"] for i in range(len(pool))] == ["small", "large"]
    assert [pool.index(configuration) for configuration in listed] == [0, 0, None, 1, 1]
    assert pool.index(Configuration({"instance": "small", "level": 2})) is None
    assert pool.features.shape[0] == 2
    assert len(problem.pool([])) == 0


@pytest.mark.slow
def test_a_candidate_among_half_a_million_is_found_in_no_time(make_problem: Make, machine: Instance) -> None:
    problem = make_problem(machine, *(Integer(name=f"x{i}", low=1, high=10) for i in range(5)), LEVEL)
    candidates = problem.candidates
    assert len(candidates) == 800_000
    candidates.index(candidates.configuration(0))
    places = list(range(0, 800_000, 8_000))
    asked = [candidates.configuration(i) for i in places]
    start = time.process_time()
    assert [candidates.index(configuration) for configuration in asked] == places
    assert time.process_time() - start < 1.0  # 10 ms each would do; it takes a tenth of one


@pytest.mark.slow
@given(
    st.integers(1, 40).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(-1, 10**6), min_size=width, max_size=width), min_size=1, max_size=20
        )
    ),
    st.data(),
)
def test_rows_have_a_number_each_however_wide_they_are(rows: list[list[int]], data: st.DataObject) -> None:
    table = np.array(rows, dtype=np.int64)
    numbers = RowNumbers(table)
    different = {tuple(row) for row in rows}
    assert len(set(numbers.numbers.tolist())) == len(different)
    assert numbers.of(table).tolist() == numbers.numbers.tolist()
    other = data.draw(st.lists(st.integers(-1, 10**6), min_size=len(rows[0]), max_size=len(rows[0])))
    number = int(numbers.of(np.array([other], dtype=np.int64))[0])
    if tuple(other) not in different:
        assert number not in set(numbers.numbers.tolist())
