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

from tradewind.errors import SpecError
from tradewind.utils.yaml_lines import YamlMapping, YamlReader, YamlSequence

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


class _JobReader(YamlReader):
    libyaml = False  # its reasons have other words, and jobs are short
    core_tags = True
    error = SpecError
    not_yaml = "is not YAML"
    syntax_hint = (
        "check the indentation and the brackets; quote text that holds ': ' or starts with one of { [ & * ! | > % @"
    )
    no_anchor = "is not YAML: found undefined alias", syntax_hint
    tab = "a tab stands where YAML wants spaces"
    several = "has more than one document"
    too_deep = cycle = "is nested too deeply, or an alias holds itself"

    def plain(self, text: str) -> Any:
        if _NULL.fullmatch(text):
            return None
        if _BOOL.fullmatch(text):
            return text.lower() == "true"
        if _INT.fullmatch(text):
            if len(text) > 400:  # Python refuses to read whole numbers of several thousand digits
                raise ValueError("a number has too many digits")
            return int(text, 0) if text.lstrip("+-")[:2] in ("0o", "0x") else int(text)
        if _FLOAT.fullmatch(text):
            return float(text.replace(".inf", "inf").replace(".nan", "nan")) if "n" in text.lower() else float(text)
        return text


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
    documents = _JobReader(file).read(text)
    if not documents:
        raise SpecError("is empty", hint="tradewind init writes one to start from", file=file)
    line = documents.lines[0]
    if not isinstance(documents[0], YamlMapping):
        raise SpecError("is not a mapping", hint="it starts with lines such as 'name: my-job'", file=file, line=line)
    lines: dict[KeyPath, int] = {}
    document: dict[str, Any] = _unfold(documents[0], (), line, file, lines)
    return YamlSource(document, file, lines)


def _too_large(file: str) -> SpecError:
    return SpecError(f"is larger than {_MAX_BYTES // 1000} kB", hint="a job YAML is short text", file=file)


def _unfold(value: Any, place: KeyPath, line: int, file: str, lines: dict[KeyPath, int]) -> Any:
    """Copy a value, with each alias a value of its own, and note the lines; within bounds that an alias bomb breaks."""
    lines[place] = line
    if len(lines) > _MAX_VALUES:
        raise SpecError(f"unfolds into more than {_MAX_VALUES} values", hint="use fewer aliases", file=file)
    if len(place) > _MAX_DEPTH:
        raise SpecError(_JobReader.too_deep, file=file, line=line)
    if isinstance(value, YamlMapping):
        return {key: _unfold(each, (*place, key), value.lines[key], file, lines) for key, each in value.items()}
    if isinstance(value, YamlSequence):
        return [_unfold(each, (*place, i), value.lines[i], file, lines) for i, each in enumerate(value)]
    return value
