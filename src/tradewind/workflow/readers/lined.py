"""Reads the YAML of workflows and machines: every value as it is written, with its line.

Plain values stay text, so that a word of a command keeps its zeros and a task may be called ``007``; what is a number
is decided by the key that it stands under. Large files are read by libyaml where PyYAML has it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection
from typing import Any

from tradewind.errors import InputError, WorkflowError

_MAX_DEPTH = 50


class Fields(dict[str, Any]):
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


class Items(list[Any]):
    """A list, with the line of each of its items."""

    lines: list[int]


class Values:
    """Takes values out of fields, and says what is wrong with them.

    Args:
        file: The file, for messages.
    """

    def __init__(self, file: str) -> None:
        self.file = file

    def fail(self, message: str, line: int | None = None, hint: str | None = None) -> WorkflowError:
        """An error with the place in the file."""
        return WorkflowError(message, file=self.file, line=line, hint=hint)

    def known(self, given: Fields, keys: Collection[str], what: str) -> None:
        """See that there are only these keys.

        Raises:
            WorkflowError: There is another one.
        """
        for key in given:
            if key not in keys:
                near = difflib.get_close_matches(key, list(keys), n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(keys))}"
                raise self.fail(f"{what} has no key {key!r}", given.at(key), hint)

    def fields(self, given: Fields, key: str) -> Fields:
        """The mapping under a key; an empty one where the key is not written."""
        value = given.get(key)
        if value is None:
            value = plain({}, given.at(key))
        if not isinstance(value, Fields):
            raise self.fail(f"{key!r} is no mapping of names to values", given.at(key))
        return value

    def items(self, given: Fields, key: str) -> Items:
        """The list under a key; an empty one where the key is not written."""
        value = given.get(key)
        if value is None:
            value = Items()
            value.lines = []
        if not isinstance(value, Items):
            raise self.fail(f"{key!r} is no list", given.at(key), "write [a, b]")
        return value

    def words(self, given: Fields, key: str) -> list[str]:
        """The list of names under a key."""
        found = []
        for each in self.items(given, key):
            if isinstance(each, Fields | Items) or each is None or isinstance(each, bool):
                raise self.fail(f"an item of {key!r} is no name", given.at(key))
            found.append(str(each))
        return found

    def text(self, given: Fields, key: str, default: str = "") -> str:
        """The word under a key."""
        value = given.get(key)
        if value is None:
            return default
        if isinstance(value, Fields | Items):
            raise self.fail(f"{key!r} is no word", given.at(key))
        return str(value)

    def number(self, given: Fields, key: str, default: float, what: str) -> float:
        """The number under a key."""
        return float(self.parsed(given, key, default, float, what, "a number"))

    def count(self, given: Fields, key: str, default: int, what: str) -> int:
        """The whole number under a key."""
        return int(self.parsed(given, key, default, lambda value: int(str(value)), what, "a whole number"))

    def parsed(
        self, given: Fields, key: str, default: float | int, parse: Callable[[Any], Any], what: str, kind: str
    ) -> Any:
        """What a function makes of the value under a key.

        Raises:
            WorkflowError: It makes nothing of it; with the function's own words where it has some.
        """
        value = given.get(key)
        if value is None:
            return default
        try:
            if isinstance(value, Fields | Items | bool):
                raise ValueError
            found = parse(value)
            if isinstance(found, float) and math.isnan(found):
                raise ValueError
        except InputError as error:
            raise self.fail(f"{what}: {error.message}", given.at(key), error.hint) from None
        except (ValueError, OverflowError):
            raise self.fail(f"{what} is {value!r}, not {kind}", given.at(key)) from None
        return found


def plain(document: Any, line: int | None = None) -> Any:
    """A JSON document in the shape of `read_lined`, without lines."""
    if isinstance(document, dict):
        fields = Fields({str(key): plain(value, line) for key, value in document.items()})
        fields.line, fields.lines = line, {}
        return fields
    if isinstance(document, list):
        items = Items(plain(value, line) for value in document)
        items.lines = []
        return items
    return document


def read_lined(text: str, file: str) -> Fields:
    """The mapping that a YAML text is.

    Args:
        text: The text.
        file: Its name, for messages.

    Raises:
        WorkflowError: It is no YAML mapping, has a key twice, a tag, or is nested too deeply; with the line.
    """
    import yaml

    if text.count("[") + text.count("{") > 0 and _nesting(text) > 10 * _MAX_DEPTH:
        raise WorkflowError("it is nested too deeply", file=file)
    try:
        node = yaml.compose(text, Loader=_loader())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.problem, error.context) if part)
        hint = "check the indentation and the brackets; quote text that holds ': ' or begins with one of { [ & * ! > %"
        raise WorkflowError(
            f"it is no YAML: {reason}", file=file, line=mark.line + 1 if mark else None, hint=hint
        ) from None
    except yaml.YAMLError as error:
        raise WorkflowError(f"it is no YAML: {str(error).splitlines()[0]}", file=file) from None
    except RecursionError:
        raise WorkflowError("it is nested too deeply", file=file) from None
    if not isinstance(node, yaml.MappingNode):
        raise WorkflowError("it is no mapping of keys to values", file=file, line=1 if node is None else None)
    fields: Fields = _Reader(file).value(node, 0)
    return fields


def _nesting(text: str) -> int:
    """The deepest nesting of brackets, as if all of them counted: libyaml recurses without asking."""
    depth = deepest = 0
    for letter in text:
        if letter in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif letter in "]}":
            depth -= 1
    return deepest


def _loader() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return type("_Loader", (base,), {"yaml_implicit_resolvers": {}})


class _Reader:
    """Turns nodes into values; an alias gives the same value again, so that none unfolds."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._done: dict[int, Any] = {}

    def value(self, node: Any, depth: int) -> Any:
        import yaml

        if depth > _MAX_DEPTH:
            line = node.start_mark.line + 1
            raise WorkflowError("it is nested too deeply, or an alias holds itself", file=self._file, line=line)
        if isinstance(node, yaml.ScalarNode):
            self._check_tag(node, "str")
            return None if node.style is None and node.value in ("", "~", "null") else node.value
        if id(node) not in self._done:
            mapping = isinstance(node, yaml.MappingNode)
            self._check_tag(node, "map" if mapping else "seq")
            self._done[id(node)] = self._mapping(node, depth) if mapping else self._sequence(node, depth)
        return self._done[id(node)]

    def _sequence(self, node: Any, depth: int) -> Items:
        items = Items(self.value(item, depth + 1) for item in node.value)
        items.lines = [item.start_mark.line + 1 for item in node.value]
        return items

    def _mapping(self, node: Any, depth: int) -> Fields:
        fields = Fields()
        fields.line, fields.lines = node.start_mark.line + 1, {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if not isinstance(key, str):
                raise WorkflowError("a key must be a word", file=self._file, line=line, hint="quote it")
            if key in fields:
                first = fields.lines[key]
                raise WorkflowError(
                    f"the key {key!r} is written twice", file=self._file, line=line, hint=f"first on line {first}"
                )
            fields.lines[key] = line
            fields[key] = self.value(value_node, depth + 1)
        return fields

    def _check_tag(self, node: Any, kind: str) -> None:
        if node.tag not in (f"tag:yaml.org,2002:{kind}", "!"):
            line = node.start_mark.line + 1
            raise WorkflowError(f"the tag {node.tag!r} is not allowed", file=self._file, line=line, hint="remove it")
