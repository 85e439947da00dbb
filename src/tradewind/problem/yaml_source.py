"""Reads a YAML file into plain values and remembers the line of each key.

The YAML is that of version 1.2's core schema: ``yes``, ``no`` and ``on`` are text, ``1e-3`` is a number and ``1:30``
is not one. Merge keys (``<<``) are those of version 1.1. Variables and the words of a command stay as they were
written. A key written twice, a tag, and a file that unfolds into more than it should are errors.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path, PurePath
from typing import Any

from tradewind.errors import SpecError
from tradewind.utils.yaml_lines import YamlMapping, YamlReader, YamlSequence

KeyPath = tuple[str | int, ...]
"""The keys and list positions that lead to a value."""

COMMAND_LINE = "the command line"
"""Stands for the file of a value that was given as an override."""

MAPPING = "<mapping>"
"""Stands for the file of a document that was given as a mapping."""

_PROGRAMS = frozenset({".py", ".sh", ".bash", ".r", ".R", ".jl", ".js", ".pl", ".rb", ".exe", ".ipynb"})
_TUNABLE = re.compile(r"^@(?:tradewind\.)?tunable\(.*?^def (?P<name>\w+)", re.MULTILINE | re.DOTALL)
_MAX_BYTES = 1_000_000
_MAX_VALUES = 100_000
_MAX_DEPTH = 40

_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?(?:[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_NULL = re.compile(r"~|null|Null|NULL|")


def plain_document(value: Any, path: KeyPath = (), file: str = MAPPING) -> Any:
    """A document of Python's values with none but those that YAML knows; numpy's and ranges are turned into them.

    Args:
        value: Mappings, sequences, text, numbers, booleans, paths, and None.
        path: The keys that lead to it.
        file: The name that errors give the document.

    Raises:
        SpecError: A value is of another kind; with the keys that lead to it.
    """
    where = f"{'.'.join(map(str, path))}: " if path else ""
    if len(path) > _MAX_DEPTH:
        raise SpecError("is nested too deeply, or holds itself", file=file)
    if value is None or isinstance(value, bool | date):
        return value
    for kind in (str, int, float):  # of numpy, and of enumerations, are some that only derive from them
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, Mapping):
        keys = ((plain_document(key, path, file), key) for key in value)
        return {plain: plain_document(value[key], (*path, str(key)), file) for plain, key in keys}
    if isinstance(value, list | tuple | range):
        return [plain_document(one, (*path, i), file) for i, one in enumerate(value)]
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist") and not isinstance(value, type):
        return plain_document(value.tolist(), path, file)
    hint = "values are text, numbers, true, false, lists and mappings"
    if callable(value):
        hint = "name it, so that it is found again: module:Name, or file.py:Name"
    raise SpecError(f"{where}{value!r:.80} is no value", file=file, hint=hint)


@dataclass(frozen=True, slots=True)
class _Plain:
    """A number, or true or false, that was written in another way than its value is shown.

    Attributes:
        value: The value.
        text: The text that stands in the file.
    """

    value: bool | int | float
    text: str


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
        value = self._value(text)
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        return value if value is None or shown == text else _Plain(value, text)

    def _value(self, text: str) -> Any:
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
        warnings: What is read otherwise than it may be meant, a line each.
    """

    document: dict[str, Any]
    file: str
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    overridden: frozenset[KeyPath] = frozenset()
    warnings: tuple[str, ...] = ()

    def error(self, place: Sequence[str | int], message: str, hint: str | None = None) -> SpecError:
        """An error about the value at ``place``, with the file and the line of the nearest key that was written."""
        at = tuple(place)
        for length in range(len(at), -1, -1):
            if at[:length] in self.overridden:
                return SpecError(message, hint=hint, file=COMMAND_LINE)
            if at[:length] in self.lines:
                return SpecError(message, hint=hint, file=self.file, line=self.lines[at[:length]])
        return SpecError(message, hint=hint, file=self.file)

    def has(self, place: Sequence[str | int]) -> bool:
        """Test that something was written at a place, in the file or as an override."""
        value: Any = self.document
        for key in place:
            try:
                value = value[key]
            except (LookupError, TypeError):  # a text has no keys
                return False
        return True

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
        return replace(self, document=document, overridden=frozenset(places))


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
    if Path(file).suffix in _PROGRAMS:
        raise SpecError("is a program, not a job YAML", hint=_program_hint(Path(file), text), file=file)
    documents = _JobReader(file).read(text)
    if not documents:
        raise SpecError("is empty", hint="tradewind init writes one to start from", file=file)
    line = documents.lines[0]
    if not isinstance(documents[0], YamlMapping):
        hint = "it starts with lines such as 'name: my-job'"
        raise SpecError("is not a mapping", hint=hint, file=file, line=line)
    unfolding = _Unfolding(file)
    document: dict[str, Any] = unfolding.copy(documents[0], (), line)
    kept = {key: value for key, value in document.items() if not key.startswith("x-")}
    return YamlSource(kept, file, unfolding.lines, warnings=tuple(unfolding.warnings))


def _program_hint(path: Path, text: str) -> str:
    """The way to a search for somebody who gave a program in place of a job YAML."""
    if path.suffix == ".ipynb":
        return (
            "no other process finds a notebook's functions: put them into a file.py, tradewind submit file.py:function"
        )
    if found := _TUNABLE.search(text):
        return f"tradewind submit {path.name}:{found['name']} takes its function, python {path.name} runs it here"
    words = f"for a program, tradewind init writes a job.yaml; {path.name} goes into its command"
    return f"{words}, or submit {path.name}:function with a @tunable one" if path.suffix == ".py" else words


def parse_value(text: str) -> Any:
    """The value of a text as the job YAML would read it under a key.

    Raises:
        SpecError: It is not YAML.
    """
    documents = _JobReader(COMMAND_LINE).read(text)
    return _Unfolding(COMMAND_LINE).copy(documents[0], (), 1) if documents else None


def _too_large(file: str) -> SpecError:
    return SpecError(f"is larger than {_MAX_BYTES // 1000} kB", hint="a job YAML is short text", file=file)


class _Unfolding:
    """Copies a document, with each alias a value of its own, and notes the lines; an alias bomb breaks its bounds.

    Args:
        file: The file's name, for errors.

    Attributes:
        lines: The line of each key and list item.
        warnings: What is read otherwise than it may be meant.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self.lines: dict[KeyPath, int] = {}
        self.warnings: list[str] = []

    def copy(self, value: Any, place: KeyPath, line: int) -> Any:
        """The value at a place, in plain mappings, lists and scalars."""
        self.lines[place] = line
        if len(self.lines) > _MAX_VALUES:
            hint = "use fewer aliases"
            raise SpecError(f"unfolds into more than {_MAX_VALUES} values", hint=hint, file=self._file)
        if len(place) > _MAX_DEPTH:
            raise SpecError(_JobReader.too_deep, file=self._file, line=line)
        if isinstance(value, YamlMapping):
            merged = self._merged(value)
            for key in merged:
                self._check_text(key, merged.lines[key])
            return {key: self.copy(each, (*place, key), merged.lines[key]) for key, each in merged.items()}
        if isinstance(value, YamlSequence):
            self._warn_of_versions(value, place)
            return [self.copy(each, (*place, i), value.lines[i]) for i, each in enumerate(value)]
        if isinstance(value, _Plain):
            return value.text if _is_text(place) else value.value
        if isinstance(value, str):
            self._check_text(value, line)
        return value

    def _merged(self, value: YamlMapping, depth: int = 0) -> YamlMapping:
        """The mapping with what its merge key (``<<``) brings; its own keys win, then the mappings named first."""
        if "<<" not in value:
            return value
        given = value["<<"]
        sources = given if isinstance(given, YamlSequence) else [given]
        if depth > _MAX_DEPTH or not all(isinstance(each, YamlMapping) for each in sources):
            raise SpecError(
                "a merge key (<<) takes a mapping, or a list of mappings",
                hint="write <<: *name, with &name at a mapping further up",
                file=self._file,
                line=value.lines["<<"],
            )
        merged = YamlMapping(line=value.line)
        for source in [*(self._merged(each, depth + 1) for each in reversed(sources)), value]:
            for key, each in source.items():
                if key != "<<":
                    merged[key], merged.lines[key] = each, source.lines[key]
        return merged

    def _check_text(self, text: str, line: int) -> None:
        """Refuse what no file name, argument or variable can hold, and no file can be written with."""
        if bad := re.search("[\x00\ud800-\udfff]", text):
            what = "a NUL byte" if bad[0] == "\x00" else "half of a character (a surrogate)"
            raise SpecError(f"there is {what} in {text!r}", hint="take it out", file=self._file, line=line)

    def _warn_of_versions(self, values: YamlSequence, place: KeyPath) -> None:
        """Warn of choices such as ``[3.9, 3.10]``, which are numbers: 3.10 is 3.1 for the program."""
        if place[:1] != ("space",) or (place[-1:] == ("values",) and len(place) != 3):
            return
        numbers = [each.text if isinstance(each, _Plain) else str(each) for each in values]
        decimals = {len(text.partition(".")[2]) for text in numbers}
        for each, line in zip(values, values.lines, strict=True):
            text = each.text if isinstance(each, _Plain) else ""
            lost = re.fullmatch(r"\d+\.\d*0|0\d+", text)
            fraction = text.startswith("0.") and len(decimals) == 1  # [0.25, 0.50] are numbers to everybody
            if lost and not fraction and isinstance(each, _Plain) and str(each.value) != text:
                name = ".".join(str(piece) for piece in place)
                self.warnings.append(
                    f"{self._file}:{line}: {name}: {text} is the number {each.value}; "
                    f'if it is text, such as a version, write "{text}"'
                )


def _is_text(place: KeyPath) -> bool:
    """True where a scalar is text whatever it looks like: variables, words of a command, names of users."""
    if "space" in place or len(place) < 2:
        return False
    inner, last = place[-2], place[-1]
    return inner == "env" or (inner == "command" and isinstance(last, int)) or (last == "user" and "places" in place)
