"""Reads a YAML file into plain values and remembers the line of each key.

The YAML is that of version 1.2's core schema: ``yes``, ``no`` and ``on`` are text, ``1e-3`` is a number and ``1:30``
is not one. A key written twice, a tag, and a file that unfolds into more than it should are errors.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tradewind.errors import SpecError

KeyPath = tuple[str | int, ...]
"""The keys and list positions that lead to a value."""

COMMAND_LINE = "the command line"
"""Stands for the file of a value that was given as an override."""

_MAX_BYTES = 1_000_000
_MAX_VALUES = 100_000
_MAX_DEPTH = 40

_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?(?:[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_NULL = re.compile(r"~|null|Null|NULL|")


class _Loader(yaml.SafeLoader):
    """A loader that gives every plain scalar as text; `_scalar` decides what it means."""


_Loader.yaml_implicit_resolvers = {}


@dataclass(frozen=True)
class YamlSource:
    """A document with the places that its values were written at.

    Attributes:
        document: Mappings, lists, text, numbers, booleans and None.
        file: The file's name, for errors.
        lines: The line, from 1, of each key and list item.
        overridden: Places whose values were given on the command line.
    """

    document: dict[str, Any]
    file: str
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    overridden: frozenset[KeyPath] = frozenset()

    def error(self, place: Sequence[str | int], message: str, hint: str | None = None) -> SpecError:
        """An error about the value at ``place``, with the file and the line of the nearest key that was written."""
        at = tuple(place)
        for length in range(len(at), -1, -1):
            if at[:length] in self.overridden:
                return SpecError(message, hint=hint, file=COMMAND_LINE)
            if at[:length] in self.lines:
                return SpecError(message, hint=hint, file=self.file, line=self.lines[at[:length]])
        return SpecError(message, hint=hint, file=self.file)

    def override(self, changes: Mapping[str, Any]) -> YamlSource:
        """A copy with some values replaced.

        Args:
            changes: Values by key; ``budget.dollars`` reaches into ``budget``, and a mapping is merged.

        Raises:
            SpecError: A key leads through a value that is no mapping.
        """
        document = copy.deepcopy(self.document)
        places: set[KeyPath] = set(self.overridden)
        for key, value in changes.items():
            _put(document, key.split("."), value, (), places)
        return YamlSource(document, self.file, self.lines, frozenset(places))


def _put(target: dict[str, Any], path: Sequence[str], value: Any, done: KeyPath, places: set[KeyPath]) -> None:
    key, rest = path[0], path[1:]
    here = (*done, key)
    if not rest and not (isinstance(value, Mapping) and isinstance(target.get(key), dict)):
        target[key] = copy.deepcopy(value)
        places.add(here)
        return
    inner = target.setdefault(key, {})
    if inner is None:
        inner = target[key] = {}
    if not isinstance(inner, dict):
        raise SpecError(f"cannot set {'.'.join(map(str, (*here, *rest)))}: {key} is no mapping", file=COMMAND_LINE)
    if rest:
        _put(inner, rest, value, here, places)
    else:
        for name, one in value.items():
            _put(inner, [str(name)], one, here, places)


def read_source(path: Path) -> YamlSource:
    """Read a YAML file.

    Raises:
        SpecError: It is not there, cannot be read, or is not a YAML mapping.
    """
    try:
        if path.is_dir():
            raise SpecError(f"{path} is a folder, not a file", hint=f"{path / 'job.yaml'}?")
        with path.open("rb") as stream:
            raw = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise SpecError(f"there is no file {path}", hint="tradewind init writes one to start from") from None
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:  # a NUL byte in the name
        raise SpecError(f"cannot read {str(path)!r}: {error}") from None
    if len(raw) > _MAX_BYTES:
        raise _too_large(str(path))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise SpecError("is not UTF-8 text", hint="save it as UTF-8", file=str(path), line=line) from None
    return parse_source(text, str(path))


def parse_source(text: str, file: str) -> YamlSource:
    """Parse YAML text.

    Args:
        text: The text.
        file: The name that errors give it.

    Raises:
        SpecError: It is not a YAML mapping.
    """
    if len(text) > _MAX_BYTES:
        raise _too_large(file)
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, file) from None
    except yaml.YAMLError as error:
        raise SpecError(f"is not YAML: {str(error).splitlines()[0]}", file=file) from None
    except RecursionError:
        raise SpecError("is nested too deeply", file=file) from None
    if node is None:
        raise SpecError("is empty", hint="tradewind init writes one to start from", file=file)
    if not isinstance(node, yaml.MappingNode):
        line = node.start_mark.line + 1
        raise SpecError("is not a mapping", hint="it starts with lines such as 'name: my-job'", file=file, line=line)
    reader = _Reader(file)
    document: dict[str, Any] = reader.value(node, ())
    return YamlSource(document, file, reader.lines)


def _too_large(file: str) -> SpecError:
    return SpecError(f"is larger than {_MAX_BYTES // 1000} kB", hint="a job YAML is short text", file=file)


def _syntax_error(error: yaml.MarkedYAMLError, text: str, file: str) -> SpecError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else None
    written = text.splitlines()[line - 1] if line and line <= len(text.splitlines()) else ""
    if "\t" in written[: len(written) - len(written.lstrip())] or "'\\t'" in (error.problem or ""):
        return SpecError("a tab stands where YAML wants spaces", hint="indent with spaces", file=file, line=line)
    if "single document" in (error.context or ""):
        return SpecError("has more than one document", hint="remove the line '---'", file=file, line=line)
    reason = " ".join(part for part in (error.problem, error.context) if part)
    if "nesting depth" in reason:  # libyaml's own limit, since PyYAML 6.0.4
        return SpecError("is nested too deeply", file=file, line=line)
    hint = "check the indentation and the brackets; quote text that holds ': ' or starts with one of { [ & * ! | > % @"
    return SpecError(f"is not YAML: {reason}", hint=hint, file=file, line=line)


class _Reader:
    """Turns YAML nodes into values, within bounds that an alias bomb breaks."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[KeyPath, int] = {}
        self._count = 0

    def value(self, node: yaml.Node, place: KeyPath) -> Any:
        """The value of a node; `lines` learns where its parts stand."""
        line = node.start_mark.line + 1
        self.lines.setdefault(place, line)
        self._count += 1
        if self._count > _MAX_VALUES:
            raise SpecError(f"unfolds into more than {_MAX_VALUES} values", hint="use fewer aliases", file=self.file)
        if len(place) > _MAX_DEPTH:
            raise SpecError("is nested too deeply, or an alias holds itself", file=self.file, line=line)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            self._plain_tag(node, "tag:yaml.org,2002:seq")
            return [self.value(item, (*place, i)) for i, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        self._plain_tag(node, "tag:yaml.org,2002:str")
        return node.value if node.style else self._scalar(node.value, line)

    def _mapping(self, node: yaml.MappingNode, place: KeyPath) -> dict[str, Any]:
        self._plain_tag(node, "tag:yaml.org,2002:map")
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise SpecError("a key must be a word", hint="quote it", file=self.file, line=line)
            key = key_node.value
            if key in values:
                first = self.lines[(*place, key)]
                raise SpecError(
                    f"the key {key!r} is written twice", hint=f"first on line {first}", file=self.file, line=line
                )
            self.lines[(*place, key)] = line
            values[key] = self.value(value_node, (*place, key))
        return values

    def _scalar(self, text: str, line: int) -> Any:
        if _NULL.fullmatch(text):
            return None
        if _BOOL.fullmatch(text):
            return text.lower() == "true"
        if _INT.fullmatch(text):
            if len(text) > 400:  # Python refuses to read whole numbers of several thousand digits
                raise SpecError("a number has too many digits", file=self.file, line=line)
            return int(text, 0) if text.lstrip("+-")[:2] in ("0o", "0x") else int(text)
        if _FLOAT.fullmatch(text):
            return float(text.replace(".inf", "inf").replace(".nan", "nan")) if "n" in text.lower() else float(text)
        return text

    def _plain_tag(self, node: yaml.Node, tag: str) -> None:
        if node.tag not in (tag, "!"):
            line = node.start_mark.line + 1
            raise SpecError(f"the tag {node.tag!r} is not allowed", hint="remove it", file=self.file, line=line)
