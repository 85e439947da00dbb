"""Numbers in a log, found by regular expressions with named groups."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from tradewind.errors import InterpretationError
from tradewind.interpreter.base import Interpreter
from tradewind.interpreter.log_reader import (
    LogReader,
    MetricAggregate,
    check_file_name,
    locate_file,
    no_match_error,
    parse_number,
    shorten,
)
from tradewind.plugins import Settings
from tradewind.problem import RunOutput


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)


def _check_pattern(pattern: str) -> str:
    try:
        groups = _compile(pattern).groupindex
    except re.error as error:
        raise ValueError(f"cannot read the pattern {shorten(pattern)!r}: {error}") from None
    if not groups:
        raise ValueError(f"the pattern {shorten(pattern)!r} names no metric; write (?P<name>...) around the number")
    return pattern


def _listed(value: object) -> object:
    if isinstance(value, Mapping):
        name = next((key for key in value if isinstance(key, str) and key.isidentifier()), "name")
        raise ValueError(
            f"a pattern has the name of its metric within it: write a list, ['{name}=(?P<{name}>[0-9.]+)'], no mapping"
        )
    return [value] if isinstance(value, str) else value


class RegexSettings(Settings):
    """Settings of `RegexInterpreter`."""

    patterns: Annotated[
        tuple[Annotated[str, AfterValidator(_check_pattern)], ...],
        BeforeValidator(_listed, json_schema_input_type=str | list[str]),
        Field(min_length=1),
    ] = Field(description="One or more patterns; each named group is a metric")
    file: Annotated[str, AfterValidator(check_file_name)] = Field(
        "stdout", description="stdout, stderr or a path below outputs/"
    )
    match: Literal["first", "last", "all"] = Field("last", description="Which match counts")
    aggregate: Literal["mean", "min", "max", "sum"] = Field("mean", description="With match: all, what becomes of them")
    errors: Literal["replace", "strict"] = Field("replace", description="What to do about bytes that are not UTF-8")
    thousands: bool = Field(False, description="Read 1,234.5 as 1234.5")
    percent: Literal["points", "share"] = Field("points", description="Read 97.5% as 97.5 (points) or 0.975 (share)")
    durations: bool = Field(False, description="Read 2m30s and 1:02:03 as seconds")
    optional: bool = Field(False, description="No match gives no metric instead of a failed trial")

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        seen: set[str] = set()
        for pattern in self.patterns:
            twice = seen & set(_compile(pattern).groupindex)
            if twice:
                raise ValueError(f"two patterns name the metric {min(twice)!r}; write one pattern with |")
            seen |= set(_compile(pattern).groupindex)
        return self


class RegexInterpreter(Interpreter):
    """Finds metrics by regular expressions with named groups: ``score: (?P<score>[0-9.]+)``.

    A match lies within one line; ``^`` and ``$`` are the ends of a line. The file is read in blocks, from its end
    for ``match: last``, so that a log of gigabytes takes a few MiB of memory. Lines above 1 MiB are passed over.
    """

    Settings = RegexSettings
    settings: RegexSettings

    def interpret(self, output: RunOutput, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Search the file.

        Raises:
            InterpretationError: ``missing-file``, ``empty``, ``truncated``, ``too-large``, ``no-match``,
                ``not-utf8`` or ``not-a-number``.
        """
        chosen = self.settings
        try:
            reader = LogReader(locate_file(output, chosen.file), chosen.file, cut=output.truncated)
        except InterpretationError as error:
            if chosen.optional and error.reason in ("missing-file", "empty"):
                return {}
            raise
        patterns = [_compile(pattern) for pattern in chosen.patterns]
        names = [name for pattern in patterns for name in pattern.groupindex]
        found = self._tallied(reader, patterns) if chosen.match == "all" else self._single(reader, patterns, set(names))
        missing = [name for name in names if name not in found]
        if missing and not chosen.optional:
            raise no_match_error(output, reader, f"regex {missing[0]}")
        return {name: found[name] for name in names if name in found}

    def _single(self, reader: LogReader, patterns: list[re.Pattern[str]], open_names: set[str]) -> dict[str, float]:
        """The first or the last value of each metric; reading stops as soon as all are there."""
        last = self.settings.match == "last"
        texts: dict[str, str] = {}
        for text in reader.text(backwards=last, strict=self.settings.errors == "strict"):
            here: dict[str, str] = {}
            for pattern in patterns:
                mine = open_names & set(pattern.groupindex)
                for match in _matches(pattern, text) if mine else ():
                    here |= {
                        name: match[name] for name in mine if match[name] is not None and (last or name not in here)
                    }
                    if not last and mine <= here.keys():
                        break
            texts |= here
            open_names = open_names - here.keys()
            if not open_names:
                break
        return {name: self._number(name, value) for name, value in texts.items()}

    def _tallied(self, reader: LogReader, patterns: list[re.Pattern[str]]) -> dict[str, float]:
        """All values of each metric, aggregated."""
        tallies: dict[str, MetricAggregate] = {}
        for text in reader.text(strict=self.settings.errors == "strict"):
            for pattern in patterns:
                for match in _matches(pattern, text):
                    for name, value in match.groupdict().items():
                        if value is not None:
                            tally = tallies.setdefault(name, MetricAggregate(self.settings.aggregate))
                            tally.add(self._number(name, value))
        return {name: tally.result() for name, tally in tallies.items()}

    def _number(self, name: str, text: str) -> float:
        chosen = self.settings
        try:
            return parse_number(
                text, thousands=chosen.thousands, share=chosen.percent == "share", durations=chosen.durations
            )
        except InterpretationError as error:
            raise InterpretationError(
                error.reason, f"regex {name} in {chosen.file}: {error.message}", hint=error.hint
            ) from None


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """All matches that lie within one line, in order."""
    place = 0
    while match := pattern.search(text, place):
        end = text.find("\n", match.start())
        if 0 <= end < match.end():
            # It ran over the end of its line (\s and [^x] take a line end). Such a pattern may run to the end of the
            # block each time, so the rest is searched line by line.
            yield from _matches_by_line(pattern, text, match.start())
            return
        yield match
        place = match.end() if match.end() > match.start() else match.end() + 1
        if place > len(text):
            return


def _matches_by_line(pattern: re.Pattern[str], text: str, place: int) -> Iterator[re.Match[str]]:
    while place <= len(text):
        end = text.find("\n", place)
        end = len(text) if end < 0 else end
        yield from pattern.finditer(text, place, end)
        place = end + 1
