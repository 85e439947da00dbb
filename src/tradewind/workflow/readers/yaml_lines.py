"""Reads the YAML of workflows and machines: every value as it is written, with its line.

Plain values stay text, so that a word of a command keeps its zeros and a task may be called ``007``; what is a number
is decided by the key that it stands under. Large files are read by libyaml where PyYAML has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import Any

from tradewind.errors import InputError, WorkflowError
from tradewind.utils.suggestions import did_you_mean

_MAX_DEPTH = 50

_SYNTAX = "check the indentation and the brackets; quote text that holds ': ' or begins with one of { [ & * ! > %"


class YamlMapping(dict[str, Any]):
    """A mapping, with the line of each of its keys.

    Attributes:
        line: Its own line, or None where it comes from a file without lines.
        lines: The line of each key.
    """

    line: int | None = None
    lines: dict[str, int]

    def at(self, key: str) -> int | None:
        """The line of a key, or that of the mapping."""
        return self.lines.get(key, self.line)


class YamlSequence(list[Any]):
    """A list, with the line of each of its items."""

    lines: list[int]


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
            value.lines = []
        if not isinstance(value, YamlSequence):
            raise self.fail(f"{key!r} is no list", given.at(key), "write [a, b]")
        return value

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
        """What a function makes of the value under a key.

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
        fields = YamlMapping({str(key): plain(value, line) for key, value in document.items()})
        fields.line, fields.lines = line, {}
        return fields
    if isinstance(document, list):
        items = YamlSequence(plain(value, line) for value in document)
        items.lines = []
        return items
    return document


def read_yaml_lines(text: str, file: str) -> YamlMapping:
    """The mapping that a YAML text is.

    Args:
        text: The text.
        file: Its name, for messages.

    Raises:
        WorkflowError: It is no YAML mapping, has a key twice, a tag, or is nested too deeply; with the line.
    """
    import yaml

    try:
        # Events, one by one: to compose nodes takes a stack as deep as the file says.
        return _Reader(file).document(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.problem, error.context) if part)
        line = mark.line + 1 if mark else None
        if "nesting depth" in reason:  # libyaml's own limit, since PyYAML 6.0.4
            raise WorkflowError("it is nested too deeply", file=file, line=line) from None
        raise WorkflowError(f"it is no YAML: {reason}", file=file, line=line, hint=_SYNTAX) from None
    except yaml.YAMLError as error:
        raise WorkflowError(f"it is no YAML: {str(error).splitlines()[0]}", file=file) from None


class _Reader:
    """Turns events into values; an alias gives the same value again, so that none unfolds."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._open: list[YamlMapping | YamlSequence] = []
        self._keys: list[str | None] = []
        self._anchors: dict[str, Any] = {}
        self._root: Any = None

    def document(self, events: Iterable[Any]) -> YamlMapping:
        """The only document of a stream.

        Raises:
            WorkflowError: It is no mapping, or not the only one.
        """
        documents = 0
        for event in events:
            kind = type(event).__name__
            if kind == "ScalarEvent":
                self._scalar(event)
            elif kind == "AliasEvent":
                self._put(self._anchored(event), event, whole=True)
            elif kind in ("MappingStartEvent", "SequenceStartEvent"):
                self._begin(event, YamlMapping() if kind == "MappingStartEvent" else YamlSequence())
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                self._open.pop()
                self._keys.pop()
            elif kind == "DocumentStartEvent":
                documents += 1
                if documents > 1:
                    raise self._fail("it has more than one document", event, "remove the line '---'")
        if not isinstance(self._root, YamlMapping):
            raise WorkflowError("it is no mapping of keys to values", file=self._file, line=1)
        return self._root

    def _fail(self, message: str, event: Any, hint: str | None = None) -> WorkflowError:
        return WorkflowError(message, file=self._file, line=event.start_mark.line + 1, hint=hint)

    def _begin(self, event: Any, value: YamlMapping | YamlSequence) -> None:
        if event.tag not in (None, "!"):
            raise self._fail(f"the tag {event.tag!r} is not allowed", event, "remove it")
        if len(self._open) > _MAX_DEPTH:
            raise self._fail("it is nested too deeply", event)
        if isinstance(value, YamlMapping):
            value.line, value.lines = event.start_mark.line + 1, {}
        else:
            value.lines = []
        self._put(value, event, whole=True)
        if event.anchor:
            self._anchors[event.anchor] = value
        self._open.append(value)
        self._keys.append(None)

    def _scalar(self, event: Any) -> None:
        if event.tag not in (None, "!"):
            raise self._fail(f"the tag {event.tag!r} is not allowed", event, "remove it")
        # What was written in quotes is text whatever it says.
        value = None if event.implicit[0] and event.value in ("", "~", "null") else event.value
        if event.anchor:
            self._anchors[event.anchor] = value
        self._put(value, event, text=event.value)

    def _anchored(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            raise self._fail(f"there is no anchor {event.anchor!r}", event)
        value = self._anchors[event.anchor]
        if any(value is each for each in self._open):
            raise self._fail("an alias holds itself", event)
        return value

    def _put(self, value: Any, event: Any, *, whole: bool = False, text: str = "") -> None:
        """Give a value its place: as the root, an item, a key, or under the key before it."""
        if not self._open:
            self._root = value
            return
        holder, line = self._open[-1], event.start_mark.line + 1
        if isinstance(holder, YamlSequence):
            holder.append(value)
            holder.lines.append(line)
            return
        key = self._keys[-1]
        if key is not None:
            holder[key] = value
            self._keys[-1] = None
            return
        if whole:
            raise self._fail("a key must be a word", event, "quote it")
        if text in holder.lines:
            raise self._fail(f"the key {text!r} is written twice", event, f"first on line {holder.lines[text]}")
        holder.lines[text] = line
        self._keys[-1] = text
