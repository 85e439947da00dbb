"""Writing answers: stdlib's client reads them, and XML can say them."""

from __future__ import annotations

import math
import xmlrpc.client
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.service.xmlrpc.codec import encode_answer, encode_fault

_SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=20)
_NAME = st.text(st.characters(codec="utf-8"), max_size=8)
_VALUE = st.recursive(_SCALAR, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAME, inner, max_size=4))


def read(data: bytes) -> Any:
    """The value, as a client gets it."""
    return xmlrpc.client.loads(data, use_builtin_types=True)[0][0]


@pytest.mark.slow
@given(_VALUE)
def test_anything_that_a_function_returns_can_be_read(value: Any) -> None:
    shapes = read(encode_answer(value))
    assert type(shapes) is type(value) or not isinstance(value, list | dict)
    if isinstance(value, list):
        assert len(shapes) == len(value)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (2**31 - 1, 2**31 - 1),
        (2**31, 2**31),
        (-(2**63), -(2**63)),
        (2**63, "9223372036854775808"),
        (True, True),
        (0.1, 0.1),
        (1e300, 1e300),
        (math.nan, None),
        ([None, math.inf], [None, None]),
        ({"a": None, "b": math.nan, "c": 1}, {"c": 1}),
        ("\x1b[1m<&>\r\n\x00", "\ufffd[1m<&>\r\n\ufffd"),
        ("\ud800", "\ufffd"),
        ((1, 2), [1, 2]),
    ],
)
def test_what_has_no_type_of_its_own(value: Any, wanted: Any) -> None:
    assert read(encode_answer(value)) == wanted


def test_only_numbers_beyond_32_bits_need_an_extension() -> None:
    assert b"<int>7</int>" in encode_answer(7)
    assert b"<i8>2147483648</i8>" in encode_answer(2**31)
    assert b"nil" not in encode_answer({"a": None})


def test_faults() -> None:
    with pytest.raises(xmlrpc.client.Fault) as caught:
        read(encode_fault(404, "service.not-found: nö <\x00>"))
    assert (caught.value.faultCode, caught.value.faultString) == (404, "service.not-found: nö <\ufffd>")
