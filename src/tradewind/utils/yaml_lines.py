"""Reads YAML into mappings, lists and scalars that remember their lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from tradewind.errors import InputError


class YamlMapping(dict[str, Any]):
    """A mapping with the line that it begins on, from 1 (None without a file), and the line of each of its keys."""

    def __init__(self, pairs: Iterable[tuple[str, Any]] = (), line: int | None = None) -> None:
        super().__init__(pairs)
        self.line = line
        self.lines: dict[str, int] = {}

    def at(self, key: str) -> int | None:
        """The line of a key, or that of the mapping."""
        return self.lines.get(key, self.line)


class YamlSequence(list[Any]):
    """A list, with the line of each of its items."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.lines: list[int] = []


class YamlReader:
    """Builds values from a parser's events; a subclass gives the rules and the messages for one kind of file.

    To compose a tree of nodes instead takes a stack as deep as the file says. An alias gives the same value again, so
    that no alias bomb unfolds here. The list of documents is the outermost value.

    Attributes:
        libyaml: Parse with libyaml where PyYAML has it. It is many times as fast as PyYAML's own parser, but accepts
            some tabs that the other refuses, and words its reasons in another way.
        core_tags: Accept ``!!str``, ``!!seq`` and ``!!map``, which change nothing. All other tags are refused anyway.
        max_depth: Most mappings and lists inside the outermost one, one in the other.
        error: Class of the errors.
        not_yaml: Message of a syntax error, before the parser's reason.
        syntax_hint: Hint of a syntax error.
        tab: Message for a tab in place of blanks; None leaves it a syntax error.
        several: Message for a second document.
        too_deep: Message for more than ``max_depth``.
        cycle: Message for an alias inside the value that it stands for.
        no_anchor: Message for an alias that stands for nothing, before its name; and the hint.
    """

    libyaml: ClassVar[bool] = True
    core_tags: ClassVar[bool] = False
    max_depth: ClassVar[int] = 50
    error: ClassVar[type[InputError]]
    not_yaml: ClassVar[str]
    syntax_hint: ClassVar[str]
    tab: ClassVar[str | None] = None
    several: ClassVar[str]
    too_deep: ClassVar[str]
    cycle: ClassVar[str]
    no_anchor: ClassVar[tuple[str, str | None]]

    def __init__(self, file: str) -> None:
        self._file = file
        self._documents = YamlSequence()
        self._open: list[YamlMapping | YamlSequence] = [self._documents]
        self._keys: list[str | None] = [None]
        self._anchors: dict[str, tuple[Any, str | None]] = {}

    def plain(self, text: str) -> Any:
        """The value of a scalar without quotes; a ValueError's message becomes an error with the line."""
        raise NotImplementedError

    def read(self, text: str) -> YamlSequence:
        """Read a text as a list of its only document; an empty list where there is none.

        Raises:
            InputError: It is no YAML, has a key twice, a tag, a second document, or is nested too deeply.
        """
        import yaml

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if self.libyaml else yaml.SafeLoader
        try:
            self._take(yaml.parse(text, Loader=loader))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else None
            reason = " ".join(part for part in (error.problem, error.context) if part)
            written = (text.splitlines()[line - 1 :] or [""])[0] if line else ""
            message, hint = f"{self.not_yaml}: {reason}", self.syntax_hint
            if self.tab and ("'\\t'" in reason or "\t" in written[: len(written) - len(written.lstrip())]):
                message, hint = self.tab, "indent with spaces"
            if "nesting depth" in reason:  # libyaml's own limit, since PyYAML 6.0.4
                raise self.error(self.too_deep, file=self._file, line=line) from None
            raise self.error(message, hint=hint, file=self._file, line=line) from None
        except yaml.YAMLError as error:
            raise self.error(f"{self.not_yaml}: {str(error).splitlines()[0]}", file=self._file) from None
        return self._documents

    def _take(self, events: Iterable[Any]) -> None:
        # Local names, and no call that a scalar can do without: workflows have a hundred thousand of them.
        plain, place = self.plain, self._place
        for event in events:
            kind = type(event).__name__
            if kind == "ScalarEvent":
                # What was written in quotes is text whatever it says.
                value = text = event.value
                if not event.style:
                    try:
                        value = plain(text)
                    except ValueError as error:
                        raise self._fail(str(error), event) from None
                if event.tag or event.anchor:
                    self._mark(event, value, text)
                place(event, value, text)
            elif kind in ("MappingStartEvent", "SequenceStartEvent"):
                if len(self._open) > self.max_depth + 1:
                    raise self._fail(self.too_deep, event)
                value = YamlSequence() if kind[0] == "S" else YamlMapping(line=event.start_mark.line + 1)
                self._mark(event, value, None)
                place(event, value, None)
                self._open.append(value)
                self._keys.append(None)
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                self._open.pop()
                self._keys.pop()
            elif kind == "AliasEvent":
                if event.anchor not in self._anchors:
                    raise self._fail(f"{self.no_anchor[0]} {event.anchor!r}", event, self.no_anchor[1])
                value, word = self._anchors[event.anchor]
                if any(value is each for each in self._open):
                    raise self._fail(self.cycle, event)
                place(event, value, word)
            elif kind == "DocumentStartEvent" and self._documents:
                raise self._fail(self.several, event, "remove the line '---'")

    def _fail(self, message: str, event: Any, hint: str | None = None) -> InputError:
        return self.error(message, hint=hint, file=self._file, line=event.start_mark.line + 1)

    def _mark(self, event: Any, value: Any, word: str | None) -> None:
        if event.tag not in (None, "!"):
            core = "map" if isinstance(value, YamlMapping) else "seq" if word is None else "str"
            if not self.core_tags or event.tag != f"tag:yaml.org,2002:{core}":
                raise self._fail(f"the tag {event.tag!r} is not allowed", event, "remove it")
        if event.anchor:
            self._anchors[event.anchor] = value, word

    def _place(self, event: Any, value: Any, word: str | None) -> None:
        """Give a value its place: as an item, under the key before it, or as a key, which only a word can be."""
        holder, key = self._open[-1], self._keys[-1]
        line = event.start_mark.line + 1
        if isinstance(holder, YamlSequence):
            holder.append(value)
            holder.lines.append(line)
        elif key is not None:
            holder[key] = value
            self._keys[-1] = None
        elif word is None:
            raise self._fail("a key must be a word", event, "quote it")
        elif word in holder.lines:
            raise self._fail(f"the key {word!r} is written twice", event, f"first on line {holder.lines[word]}")
        else:
            holder.lines[word] = line
            self._keys[-1] = word
