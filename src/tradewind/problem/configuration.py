"""A configuration: one choice for each active parameter, with a hash that never changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

Value = str | int | float | bool
"""What a parameter can be set to."""


def stable_hash(document: object, length: int = 16) -> str:
    """A hash of a JSON-able document that is the same in every process, on every machine.

    Args:
        document: Anything that `json.dumps` takes; the order of keys does not matter.
        length: Hexadecimal digits to return, at most 64.
    """
    return hashlib.sha256(_encode(document).encode()).hexdigest()[:length]


# `json.dumps` makes an encoder for each call, which takes as long as the encoding.
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode


def plain_number(value: Value) -> Value:
    """A whole float as the integer of the same value; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Configuration(Mapping[str, Value]):
    """An immutable choice of values by parameter name.

    Two configurations with the same names and values are equal and have the same `key`, whatever the order
    they were written in. A whole float equals the integer of the same value.

    Args:
        values: The value of each active parameter.
    """

    __slots__ = ("_key", "_values")

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values: dict[str, Value] = dict(sorted(values.items()))
        self._key: str | None = None

    @property
    def key(self) -> str:
        """The hash: 16 hexadecimal digits."""
        if self._key is None:
            self._key = stable_hash({name: plain_number(value) for name, value in self._values.items()})
        return self._key

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Configuration):
            return NotImplemented
        return self.key == other.key

    def __repr__(self) -> str:
        return f"Configuration({self._values!r})"

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._values.items())

    def but(self, **changes: Value) -> Configuration:
        """A copy with some values changed."""
        return Configuration({**self._values, **changes})
