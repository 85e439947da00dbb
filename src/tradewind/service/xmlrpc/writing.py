"""Writes answers and faults of XML-RPC.

Three things that XML-RPC has no type for: a member without a value is left out of its struct, and is ``<nil/>`` in an
array; a whole number beyond 32 bits is an ``<i8>``, one beyond 64 bits a string of its digits; a number that is not
finite is left out like one that is not there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

_HEAD = "<?xml version='1.0' encoding='utf-8'?>\n<methodResponse>"
# What XML 1.0 cannot say in any way: a log has escape sequences of terminals in it.
_UNSAYABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_MARKUP = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord("\r"): "&#13;"}


def encode_answer(value: Any) -> bytes:
    """A value as the answer to a call."""
    parts = [_HEAD, "<params><param>"]
    _write(parts, value)
    parts.append("</param></params></methodResponse>\n")
    return "".join(parts).encode()


def encode_fault(number: int, text: str) -> bytes:
    """A fault as the answer to a call."""
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
