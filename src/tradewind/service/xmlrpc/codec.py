"""Reads calls of XML-RPC clients, which may be anybody, and writes answers and faults.

The grammar is that of the XML-RPC specification (Winer, 1999) with the extensions ``i8`` and ``nil``. expat does the
parsing and the document builds itself on an own stack, so that neither nesting nor length reaches Python's recursion;
a document type declaration ends the reading at once, and with it every entity, internal or external.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.parsers import expat

from tradewind.errors import InputError
from tradewind.service.document_limits import MAX_DEPTH, MAX_INTEGER

_HEAD = "<?xml version='1.0' encoding='utf-8'?>\n<methodResponse>"
# What XML 1.0 cannot say in any way: a log has escape sequences of terminals in it.
_UNSAYABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_MARKUP = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord("\r"): "&#13;"}


def encode_answer(value: Any) -> bytes:
    """Encode a value as the answer to a call.

    XML-RPC has no type for three things: a member without a value is left out of its struct, and is ``<nil/>`` in an
    array; a whole number beyond 32 bits is an ``<i8>``, one beyond 64 bits a string of its digits; a number that is not
    finite is left out like one that is not there.
    """
    parts = [_HEAD, "<params><param>"]
    _write(parts, value)
    parts.append("</param></params></methodResponse>\n")
    return "".join(parts).encode()


def encode_fault(number: int, text: str) -> bytes:
    """Encode a fault as the answer to a call."""
    parts = [_HEAD, "<fault>"]
    _write(parts, {"faultCode": number, "faultString": text})
    parts.append("</fault></methodResponse>\n")
    return "".join(parts).encode()


def _write(parts: list[str], value: Any) -> None:
    if isinstance(value, Mapping):
        parts.append("<value><struct>")
        for name, inner in value.items():
            if _absent(inner):
                continue
            parts.append(f"<member><name>{_escaped(str(name))}</name>")
            _write(parts, inner)
            parts.append("</member>")
        parts.append("</struct></value>")
    elif isinstance(value, Sequence) and not isinstance(value, str):
        parts.append("<value><array><data>")
        for inner in value:
            _write(parts, inner)
        parts.append("</data></array></value>")
    else:
        parts.append(f"<value>{_scalar(value)}</value>")


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def _scalar(value: Any) -> str:
    if _absent(value):
        return "<nil/>"
    if isinstance(value, bool):
        return f"<boolean>{value:d}</boolean>"
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return f"<int>{value}</int>"
        return f"<i8>{value}</i8>" if -(2**63) <= value < 2**63 else f"<string>{value}</string>"
    if isinstance(value, float):
        return f"<double>{value!r}</double>"
    return f"<string>{_escaped(str(value))}</string>"


def _escaped(text: str) -> str:
    return _UNSAYABLE.sub("\ufffd", text).translate(_MARKUP)


VALUES = 100_000
"""Values that a call may have at most."""

_NAMESPACE = "{http://ws.apache.org/xmlrpc/namespaces/extensions}"
_INTEGERS = ("int", "i1", "i2", "i4", "i8")
_TYPES = frozenset({*_INTEGERS, "boolean", "string", "double", "dateTime.iso8601", "base64", "array", "struct", "nil"})
_INSIDE: dict[str, frozenset[str]] = {
    "": frozenset({"methodCall"}),
    "methodCall": frozenset({"methodName", "params"}),
    "params": frozenset({"param"}),
    "param": frozenset({"value"}),
    "value": _TYPES,
    "array": frozenset({"data"}),
    "data": frozenset({"value"}),
    "struct": frozenset({"member"}),
    "member": frozenset({"name", "value"}),
}
# What each level of a nested array opens: value, array, data.
_DEEPEST = 3 * MAX_DEPTH + 4
_TEXTUAL = frozenset({"methodName", "name", "value", "nil"} | (_TYPES - {"array", "struct"}))
_INTEGER = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,4})?", re.ASCII)
_DATE = re.compile(r"\d{4}-?\d\d-?\d\dT\d\d:\d\d:\d\d([.,]\d{1,9})?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_NONE = object()


@dataclass(frozen=True, slots=True)
class XmlRpcCall:
    """A parsed call.

    Attributes:
        method: Name of the procedure.
        arguments: Arguments, JSON-able values.
    """

    method: str
    arguments: tuple[Any, ...]


def read_call(body: bytes) -> XmlRpcCall:
    """Parse the body of an HTTP request.

    Args:
        body: XML.

    Raises:
        InputError: It is no call, or one that is not read: with a document type, nested too deep, or with a value that
            no document of ours has.
    """
    reader = _Reader()
    try:
        reader.parser.Parse(body, True)
    except expat.ExpatError as error:
        raise InputError(f"the call is no XML: {error}", hint="send an XML-RPC methodCall") from None
    except (LookupError, ValueError) as error:  # an encoding that expat asks Python for
        raise InputError(f"the call is no XML: {error}", hint="send UTF-8") from None
    if reader.method is None:
        raise InputError("the call names no procedure", hint="send a methodName")
    return XmlRpcCall(reader.method, tuple(reader.params))


class _Reader:
    """Builds a call from what expat finds."""

    def __init__(self) -> None:
        self.method: str | None = None
        self.params: list[Any] = []
        self._path: list[str] = [""]
        self._text: list[str] = []
        self._found: list[Any] = []  # for each open value, what it is so far
        self._holders: list[Any] = []  # open lists, structs, and names of open members
        self._count = 0
        self.parser = expat.ParserCreate(namespace_separator="}")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.StartDoctypeDeclHandler = self._refuse
        self.parser.EntityDeclHandler = self._refuse
        self.parser.ExternalEntityRefHandler = self._refuse
        self.parser.UnparsedEntityDeclHandler = self._refuse

    def _wrong(self, what: str, hint: str = "see the XML-RPC specification") -> InputError:
        return InputError(f"line {self.parser.CurrentLineNumber} of the call: {what}", hint=hint)

    def _refuse(self, *_: object) -> int:
        raise self._wrong("a document type or an entity is declared", "send a methodCall without a DOCTYPE")

    def _start(self, qualified: str, _attributes: dict[str, str]) -> None:
        name = ("{" + qualified).removeprefix(_NAMESPACE) if "}" in qualified else qualified
        parent = self._path[-1]
        if name not in _INSIDE.get(parent, ()):
            raise self._wrong(f"<{_short(name)}> cannot stand in {f'<{parent}>' if parent else 'its place'}")
        if len(self._path) > _DEEPEST:
            raise self._wrong(f"it is nested deeper than {MAX_DEPTH} levels", "write it flatter")
        if name in _TYPES and (self._found[-1] is not _NONE or "".join(self._text).strip()):
            raise self._wrong("a <value> has more than one thing in it")
        self._path.append(name)
        self._text = []
        if name == "value":
            self._count += 1
            if self._count > VALUES:
                raise self._wrong(f"it has more than {VALUES:,} values", "send less at once")
            self._found.append(_NONE)
        elif name == "array":
            self._holders.append([])
        elif name == "struct":
            self._holders.append({})
        elif name == "member":
            self._holders.append(None)

    def _characters(self, text: str) -> None:
        if self._path[-1] in _TEXTUAL:
            self._text.append(text)
        elif text.strip():
            raise self._wrong(f"there is text in <{self._path[-1]}>")

    def _end(self, _qualified: str) -> None:
        name, text = self._path.pop(), "".join(self._text)
        self._text = []
        if name == "methodName":
            self.method = text.strip()
        elif name == "name":
            self._holders[-1] = text
        elif name == "member":
            if (unused := self._holders.pop()) is not _NONE:
                raise self._wrong(f"the member {_short(str(unused or ''))!r} has no name or no value")
        elif name == "value":
            self._keep(self._found.pop(), text)
        elif name in ("array", "struct"):
            self._found[-1] = self._holders.pop()
        elif name in _TYPES:
            self._found[-1] = self._plain(name, text)

    def _keep(self, found: Any, text: str) -> None:
        """Put a finished value into the array or struct that it stands in."""
        value = text if found is _NONE else found
        if found is not _NONE and text.strip():
            raise self._wrong("there is text beside what a <value> has in it")
        place = self._path[-1]
        if place == "param":
            self.params.append(value)
        elif place == "data":
            self._holders[-1].append(value)
        else:
            name, struct = self._holders[-1], self._holders[-2]
            if name is None or name is _NONE:
                raise self._wrong("a member has its <value> before its <name>, or two of them")
            if name in struct:
                raise self._wrong(f"a struct has the member {_short(name)!r} twice")
            struct[name] = value
            self._holders[-1] = _NONE

    def _plain(self, kind: str, text: str) -> Any:
        plain = text.strip()
        if kind == "string":
            return text
        if kind in _INTEGERS and _INTEGER.fullmatch(plain) and abs(int(plain)) <= MAX_INTEGER:
            return int(plain)
        if kind == "boolean" and plain in ("0", "1"):
            return plain == "1"
        if kind == "double" and _DOUBLE.fullmatch(plain) and abs(float(plain)) < float("inf"):
            return float(plain)
        if kind == "dateTime.iso8601" and _DATE.fullmatch(plain):
            return plain
        if kind == "base64":
            return self._decoded(plain)
        if kind == "nil" and not plain:
            return None
        raise self._wrong(f"{_short(plain)!r} is no {kind}")

    def _decoded(self, text: str) -> str:
        """Decode base64: job templates come that way, because they may have characters that XML has not."""
        try:
            return base64.b64decode("".join(text.split()), validate=True).decode()
        except (binascii.Error, ValueError):
            raise self._wrong("a <base64> is not base64 of a text in UTF-8") from None


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "..."
