"""Reading calls: what stdlib's client writes is understood, and nothing else is believed."""

from __future__ import annotations

import time
import xmlrpc.client
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import InputError
from tradewind.service.document_limits import MAX_DEPTH
from tradewind.service.xmlrpc.codec import VALUES, read_call

# Carriage returns become line feeds in XML; what XML cannot say at all is not sent.
_TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), max_size=20)
_SCALAR = (
    st.none()
    | st.booleans()
    | st.integers(-(2**31), 2**31 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT
)
_VALUE = st.recursive(_SCALAR, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4))


def param(value: str, method: str = "submit") -> bytes:
    """A call with one argument."""
    params = f"<params><param><value>{value}</value></param></params>"
    return f"<?xml version='1.0'?><methodCall><methodName>{method}</methodName>{params}</methodCall>".encode()


@pytest.mark.slow
@given(st.lists(_VALUE, max_size=3))
def test_what_the_standard_library_writes_is_read(arguments: list[Any]) -> None:
    body = xmlrpc.client.dumps(tuple(arguments), "submit", allow_none=True).encode()
    call = read_call(body)
    assert call.method == "submit"
    assert list(call.arguments) == arguments


def test_types_of_the_standard_library_become_plain_ones() -> None:
    given_ = {
        "at": xmlrpc.client.DateTime("20261121T10:00:00"),
        "template": xmlrpc.client.Binary("#!/bin/sh\r\né".encode()),
    }
    (found,) = read_call(xmlrpc.client.dumps((given_,), "submit").encode()).arguments
    assert found == {"at": "20261121T10:00:00", "template": "#!/bin/sh\r\né"}


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("plain", "plain"),
        ("<i8>9223372036854775807</i8>", 2**63 - 1),
        ("<i4>-7</i4>", -7),
        ("<nil/>", None),
        ('<ex:nil xmlns:ex="http://ws.apache.org/xmlrpc/namespaces/extensions"/>', None),
        ("<string> a </string>", " a "),
        ("\n<int> 5 </int>\n", 5),
        ("<double>1e3</double>", 1000.0),
        ("<string></string>", ""),
        ("", ""),
        ("<string>&lt;&#233;</string>", "<é"),
        ("<string><![CDATA[<a&b>]]></string>", "<a&b>"),
        ("<struct/>", {}),
    ],
)
def test_values(value: str, wanted: object) -> None:
    assert read_call(param(value)).arguments == (wanted,)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no XML"),
        (b"{}", "no XML"),
        (b"\x00\xff", "no XML"),
        (b"<methodCall>", "no XML"),
        (b"<html/>", "cannot stand"),
        (b"<methodCall><params/></methodCall>", "names no procedure"),
        (b"<?xml version='1.0' encoding='klingon'?><methodCall/>", "no XML"),
        (param("<i4>2147483648000000000000</i4>"), "no i4"),
        (param("<i8>9223372036854775808</i8>"), "no i8"),
        (param(f"<int>{'9' * 100_000}</int>"), "no int"),
        (param("<int>1.5</int>"), "no int"),
        (param("<int></int>"), "no int"),
        (param("<int>\u0661</int>"), "no int"),
        (param("<double>nan</double>"), "no double"),
        (param("<double>inf</double>"), "no double"),
        (param("<double>1e999</double>"), "no double"),
        (param("<double>1_0</double>"), "no double"),
        (param("<boolean>true</boolean>"), "no boolean"),
        (param("<dateTime.iso8601>yesterday</dateTime.iso8601>"), "no dateTime"),
        (param("<base64>/w==</base64>"), "no base64|not base64"),
        (param("<base64>a</base64>"), "not base64"),
        (param("<nil>x</nil>"), "no nil"),
        (param("<int>1</int><int>2</int>"), "more than one"),
        (param("a<int>1</int>"), "more than one"),
        (param("<int>1</int>a"), "beside"),
        (param("<array><value/></array>"), "cannot stand"),
        (param("<struct><member><value>1</value></member></struct>"), "before its <name>"),
        (param("<struct><member><name>a</name></member></struct>"), "no value"),
        (param("<struct><member/></struct>"), "no name"),
        (param("<struct><member><name>a</name><value/><value/></member></struct>"), "two of them"),
        (
            param("<struct><member><name>a</name><value/></member><member><name>a</name><value/></member></struct>"),
            "twice",
        ),
        (param("<struct>text</struct>"), "text in"),
        (param("<script>1</script>"), "cannot stand"),
        (param("<ex:nil/>"), "no XML"),
    ],
)
def test_what_is_no_call_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_call(body)
    assert len(str(caught.value)) < 300, "the refusal does not repeat what was sent"


BOMBS = {
    "billion laughs": b"<!DOCTYPE a [<!ENTITY a 'ha'>"
    + b"".join(b"<!ENTITY a%d '%s'>" % (n, b"&a%d;" % (n - 1) * 10 if n else b"&a;" * 10) for n in range(9))
    + b"]><methodCall><methodName>&a8;</methodName></methodCall>",
    "quadratic blowup": b"<!DOCTYPE a [<!ENTITY a '" + b"x" * 100_000 + b"'>]><methodCall><methodName>"
    b"" + b"&a;" * 1000 + b"</methodName></methodCall>",
    "external entity": b"<!DOCTYPE a [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><methodCall><methodName>&a;</methodName>"
    b"</methodCall>",
    "external document type": b"<!DOCTYPE a SYSTEM 'http://127.0.0.1:1/a.dtd'><methodCall/>",
    "parameter entity": b"<!DOCTYPE a [<!ENTITY % a SYSTEM 'http://127.0.0.1:1/a'> %a;]><methodCall/>",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_at_their_first_line(name: str) -> None:
    began = time.process_time()
    with pytest.raises(InputError, match="DOCTYPE"):
        read_call(BOMBS[name])
    assert time.process_time() - began < 1.0


def test_nesting_ends_before_it_hurts() -> None:
    at = "<array><data><value>"
    deepest = at * MAX_DEPTH + "</value></data></array>" * MAX_DEPTH
    value = read_call(param(deepest)).arguments[0]
    for _ in range(MAX_DEPTH):
        (value,) = value
    assert value == ""
    with pytest.raises(InputError, match="nested deeper"):
        read_call(param(at * 100_000))
    with pytest.raises(InputError, match="nested deeper"):
        read_call(param("<struct><member><name>a</name><value>" * 100_000))


def test_no_more_values_than_anybody_needs() -> None:
    body = param("<array><data>" + "<value/>" * (VALUES + 1) + "</data></array>")
    with pytest.raises(InputError, match="more than 100,000 values"):
        read_call(body)


@given(st.binary(max_size=300))
def test_bytes_end_with_a_call_or_a_refusal(body: bytes) -> None:
    try:
        assert read_call(body).method
    except InputError as error:
        assert str(error)


_TAGS = (
    "methodCall",
    "methodName",
    "params",
    "param",
    "value",
    "int",
    "array",
    "data",
    "struct",
    "member",
    "name",
    "nil",
)
_PIECES = st.sampled_from(
    [*(f"<{t}>" for t in _TAGS), *(f"</{t}>" for t in _TAGS), "1", "a", " ", "&amp;", "<!--x-->", "<?p?>"]
)


@given(st.lists(_PIECES, max_size=40))
def test_tags_in_any_order_end_with_a_call_or_a_refusal(pieces: list[str]) -> None:
    for body in ("".join(pieces), "<methodCall><methodName>a</methodName>" + "".join(pieces) + "</methodCall>"):
        try:
            assert read_call(body.encode()).method is not None
        except InputError as error:
            assert str(error)
