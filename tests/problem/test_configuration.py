from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.problem import Configuration, Value, stable_hash

values = st.one_of(
    st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=20)
)


@pytest.mark.slow
@given(st.dictionaries(st.text(min_size=1, max_size=8), values, max_size=6), st.randoms())
def test_the_order_of_writing_does_not_matter(chosen: dict[str, Value], random: object) -> None:
    shuffled = list(chosen.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Configuration(dict(shuffled)) == Configuration(chosen)
    assert Configuration(dict(shuffled)).key == Configuration(chosen).key
    assert hash(Configuration(dict(shuffled))) == hash(Configuration(chosen))


@pytest.mark.slow
def test_the_key_is_the_same_in_every_process_and_version() -> None:
    # The stores of users hold these keys: a change here makes their histories unreadable.
    assert Configuration({"level": 3, "codec": "gzip", "fast": True, "ratio": 0.1}).key == "6aa720067dd43005"
    program = (
        "from tradewind.problem import Configuration;"
        "print(Configuration({'ratio': 0.1, 'fast': True, 'codec': 'gzip', 'level': 3.0}).key)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "6aa720067dd43005"


def test_whole_floats_are_integers_but_booleans_are_not() -> None:
    assert Configuration({"n": 2.0}) == Configuration({"n": 2})
    assert Configuration({"n": True}) != Configuration({"n": 1})
    assert Configuration({"n": "2"}) != Configuration({"n": 2})


def test_it_reads_like_a_mapping() -> None:
    configuration = Configuration({"b": 2, "a": "x"})
    assert list(configuration) == ["a", "b"]
    assert len(configuration) == 2
    assert str(configuration) == "a=x b=2"
    assert repr(configuration) == "Configuration({'a': 'x', 'b': 2})"
    assert configuration.but(b=3) == Configuration({"a": "x", "b": 3})
    assert configuration["b"] == 2
    assert configuration != {"a": "x", "b": 2}


@pytest.mark.parametrize("length", [1, 16, 64])
def test_a_hash_has_the_length_that_was_asked_for(length: int) -> None:
    assert len(stable_hash({"a": 1}, length)) == length
