from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import InputError
from tradewind.utils.units import (
    count,
    format_bill,
    format_duration,
    format_memory,
    format_money,
    format_number,
    json_safe,
    parse_duration,
    parse_memory,
    parse_money,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("45m", 2700),
        ("2h30m", 9000),
        ("1.5h", 5400),
        ("45 s", 45),
        (7, 7),
        ("7.5", 7.5),
        ("1d", 86400),
        ("500ms", 0.5),
        ("1H 5Min", 3900),
        ("1h 2m 3s", 3723),
        (0, 0),
    ],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "usd"),
    [("$2", 2), ("2.50", 2.5), ("2 USD", 2), ("50c", 0.5), ("5 cents", 0.05), (3, 3), ("$1_000", 1000), (".5", 0.5)],
)
def test_money(text: str | float, usd: float) -> None:
    assert parse_money(text) == pytest.approx(usd)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("512MiB", 2**29),
        ("4GiB", 2**32),
        ("2GB", 2 * 10**9),
        (1, 2**30),
        ("1.5", 3 * 2**29),
        ("100B", 100),
        ("3k", 3072),
    ],
)
def test_memory(text: str | float, count: int) -> None:
    assert parse_memory(text) == count


@pytest.mark.parametrize("parse", [parse_duration, parse_money, parse_memory])
@pytest.mark.parametrize("number", [10**400, -(10**400), "9" * 400], ids=["int", "negative", "text"])
def test_what_no_float_holds_is_no_amount(parse: Callable[[object], float], number: object) -> None:
    with pytest.raises(InputError, match="is not a"):
        parse(number)


@pytest.mark.parametrize("parse", [parse_duration, parse_money, parse_memory])
@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1 2", "1e3x", True, -1, math.nan, math.inf, None, [], "٣x", "1..2", "--"]
)
def test_what_is_no_amount_is_refused_with_an_example(parse: Callable[[object], float], text: object) -> None:
    with pytest.raises(InputError, match="is not a") as caught:
        parse(text)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@given(st.floats(0, 1e9))
def test_durations_are_read_back_as_they_are_shown(seconds: float) -> None:
    shown = format_duration(seconds)
    assert parse_duration(shown) == pytest.approx(seconds, abs=0.006 if seconds < 1 else 0.06 if seconds < 60 else 31)


@given(st.floats(0, 1e9))
def test_money_is_read_back_as_it_is_shown(usd: float) -> None:
    assert parse_money(format_money(usd).replace(",", "")) == pytest.approx(usd, rel=0.006, abs=1e-9)


@given(st.integers(0, 2**50))
def test_memory_is_read_back_as_it_is_shown(count: int) -> None:
    assert parse_memory(format_memory(count)) == pytest.approx(count, rel=0.006)


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (lambda: format_duration(0.42), "0.42 s"),
        (lambda: format_duration(7.3), "7.3 s"),
        (lambda: format_duration(90), "1m 30s"),
        (lambda: format_duration(59.96), "1m 00s"),
        (lambda: format_duration(7500), "2h 05m"),
        (lambda: format_duration(-90), "-1m 30s"),
        (lambda: format_duration(None), "-"),
        (lambda: format_duration(math.nan), "-"),
        (lambda: format_duration(math.inf), "no limit"),
        (lambda: format_money(12.3), "$12.30"),
        (lambda: format_money(1234.5), "$1,234.50"),
        (lambda: format_money(0.0421), "$0.0421"),
        (lambda: format_money(0.000012), "0.0012¢"),
        (lambda: format_money(0.0099999), "1¢"),
        (lambda: format_bill(0.0421, "this run"), "$0.0421 this run"),
        (lambda: format_bill(0.000025, "this run"), "$0.0250 per 1,000 runs"),
        (lambda: format_bill(0.0000012), "$1.20 per 1,000,000 runs"),
        (lambda: format_bill(None, "this run"), "- this run"),
        (lambda: format_money(0), "$0.00"),
        (lambda: format_money(-0.5), "-$0.500"),
        (lambda: format_money(None), "-"),
        (lambda: format_money(math.inf), "no limit"),
        (lambda: format_memory(512 * 2**20), "512 MiB"),
        (lambda: format_memory(1.5 * 2**30), "1.5 GiB"),
        (lambda: format_memory(5000 * 2**30), "5000 GiB"),
        (lambda: format_memory(12), "12 B"),
        (lambda: format_memory(None), "-"),
    ],
)
def test_what_people_see(call: Callable[[], str], shown: str) -> None:
    assert call() == shown


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0 trials"), (1, "1 trial"), (2, "2 trials"), (1500, "1,500 trials"), (1.0, "1 trial"), (2.5, "2.5 trials")],
)
def test_things_are_counted(number: float, words: str) -> None:
    assert count(number, "trial") == words


def test_what_is_no_number_is_null_for_readers() -> None:
    given = {"a": math.nan, "b": [math.inf, 1.5, "x"], "c": {"d": -math.inf, "e": None, "f": 3}}
    assert json_safe(given) == {"a": None, "b": [None, 1.5, "x"], "c": {"d": None, "e": None, "f": 3}}


@pytest.mark.parametrize(
    ("value", "digits", "words"),
    [
        (1234567, None, "1,234,567"),
        (-1234.5, None, "-1,234.5"),
        (1e-7, None, "1e-07"),
        (1234567.89, 4, "1,234,568"),
        (0.00123456, 4, "0.001235"),
        (2.0, 4, "2"),
        (0.0, 4, "0"),
        (math.inf, None, "inf"),
    ],
)
def test_digits_stand_in_groups(value: float, digits: int | None, words: str) -> None:
    assert format_number(value, digits) == words
