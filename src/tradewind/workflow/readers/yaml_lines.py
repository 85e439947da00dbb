"""Reads the YAML of workflows and machines: every value as it is written, with its line.

Plain values stay text, so that a word of a command keeps its zeros and a task may be called ``007``; what is a number
is decided by the key that it stands under.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

from tradewind.errors import InputError, WorkflowError
from tradewind.utils.suggestions import did_you_mean
from tradewind.utils.yaml_lines import YamlMapping, YamlReader, YamlSequence


class _WorkflowReader(YamlReader):
    error = WorkflowError
    not_yaml = "it is no YAML"
    syntax_hint = (
        "check the indentation and the brackets; quote text that holds ': ' or begins with one of { [ & * ! > %"
    )
    no_anchor = "there is no anchor", None
    several = "it has more than one document"
    too_deep = "it is nested too deeply"
    cycle = "an alias holds itself"

    def plain(self, text: str) -> str | None:
        return None if text in ("", "~", "null") else text


class YamlValueReader:
    """Takes values out of fields, and says what is wrong with them.

    Args:
        file: The file, for messages.
    """

    def __init__(self, file: str) -> None:
        self.file = file

    def fail(self, message: str, line: int | None = None, hint: str | None = None) -> WorkflowError:
        """An error with the place in the file."""
        return WorkflowError(message, file=self.file, line=line, hint=hint)

    def known(self, given: YamlMapping, keys: Collection[str], what: str) -> None:
        """See that there are only these keys.

        Raises:
            WorkflowError: There is another one.
        """
        for key in given:
            if key not in keys:
                raise self.fail(
                    f"{what} has no key {key!r}", given.at(key), did_you_mean(key, sorted(keys), "there are")
                )

    def fields(self, given: YamlMapping, key: str) -> YamlMapping:
        """The mapping under a key; an empty one where the key is not written."""
        value = given.get(key)
        if value is None:
            value = plain({}, given.at(key))
        if not isinstance(value, YamlMapping):
            raise self.fail(f"{key!r} is no mapping of names to values", given.at(key))
        return value

    def items(self, given: YamlMapping, key: str) -> YamlSequence:
        """The list under a key; an empty one where the key is not written."""
        value = given.get(key)
        if value is None:
            value = YamlSequence()
        if not isinstance(value, YamlSequence):
            raise self.fail(f"{key!r} is no list", given.at(key), "write [a, b]")
        return value

    def rows(self, given: YamlMapping, key: str) -> list[tuple[YamlMapping, int | None]]:
        """The mappings of a list, with their lines."""
        items = self.items(given, key)
        found = []
        for place, each in enumerate(items):
            line = items.lines[place] if items.lines else given.at(key)
            if not isinstance(each, YamlMapping):
                raise self.fail(f"an item of {key!r} is no mapping", line)
            found.append((each, line))
        return found

    def words(self, given: YamlMapping, key: str) -> list[str]:
        """The list of names under a key."""
        found = []
        for each in self.items(given, key):
            if isinstance(each, YamlMapping | YamlSequence) or each is None or isinstance(each, bool):
                raise self.fail(f"an item of {key!r} is no name", given.at(key))
            found.append(str(each))
        return found

    def text(self, given: YamlMapping, key: str, default: str = "") -> str:
        """The word under a key."""
        value = given.get(key)
        if value is None:
            return default
        if isinstance(value, YamlMapping | YamlSequence):
            raise self.fail(f"{key!r} is no word", given.at(key))
        return str(value)

    def number(self, given: YamlMapping, key: str, default: float, what: str) -> float:
        """The number under a key."""
        return float(self.parsed(given, key, default, float, what, "a number"))

    def count(self, given: YamlMapping, key: str, default: int, what: str) -> int:
        """The whole number under a key."""
        return int(self.parsed(given, key, default, lambda value: int(str(value)), what, "a whole number"))

    def parsed(
        self, given: YamlMapping, key: str, default: float | int, parse: Callable[[Any], Any], what: str, kind: str
    ) -> Any:
        """Value under a key, as a function reads it.

        Raises:
            WorkflowError: It makes nothing of it; with the function's own words where it has some.
        """
        value = given.get(key)
        if value is None:
            return default
        try:
            if isinstance(value, YamlMapping | YamlSequence | bool):
                raise ValueError
            found = parse(value)
            if isinstance(found, float) and math.isnan(found):
                raise ValueError
        except InputError as error:
            raise self.fail(f"{what}: {error.message}", given.at(key), error.hint) from None
        except (ValueError, OverflowError):
            raise self.fail(f"{what} is {value!r}, not {kind}", given.at(key)) from None
        return found


def finite(value: Any, what: str) -> float:
    """A number of a JSON document that is finite and not below 0.

    Raises:
        ValueError: It is none; with ``what`` it should be.
    """
    # A whole number of hundreds of digits is no float.
    right = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e300
    if not right:
        shown = repr(value) if len(repr(value)) <= 40 else f"{repr(value)[:40]}..."
        raise ValueError(f"{what} is {shown}, not a number of 0 or more")
    return float(value)


def plain(document: Any, line: int | None = None) -> Any:
    """A JSON document in the shape of `read_yaml_lines`, without lines."""
    if isinstance(document, dict):
        return YamlMapping(((str(key), plain(value, line)) for key, value in document.items()), line)
    if isinstance(document, list):
        return YamlSequence(plain(value, line) for value in document)
    return document


def read_yaml_lines(text: str, file: str) -> YamlMapping:
    """The mapping that a YAML text is.

    Args:
        text: The text.
        file: Its name, for messages.

    Raises:
        WorkflowError: It is no YAML mapping, has a key twice, a tag, or is nested too deeply; with the line.
    """
    documents = _WorkflowReader(file).read(text)
    if not documents or not isinstance(documents[0], YamlMapping):
        raise WorkflowError("it is no mapping of keys to values", file=file, line=1)
    return documents[0]
