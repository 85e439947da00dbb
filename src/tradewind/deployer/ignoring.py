"""Which files of a working folder stay at home: the patterns of ``.tradewindignore``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tradewind.errors import DeployError

IGNORE_FILE = ".tradewindignore"
"""The file with the patterns, at the top of the working folder."""

ALWAYS_IGNORED = (".git/", "__pycache__/", ".venv/", ".tradewind/")
"""What is left out without a word; a pattern such as ``!.venv/`` brings it back."""


@dataclass(frozen=True)
class IgnorePatterns:
    """Patterns as ``.gitignore`` has them; the last one that matches a path decides.

    Attributes:
        patterns: The lines, without comments and empty ones.
    """

    patterns: tuple[str, ...]

    @classmethod
    def of(cls, workdir: Path) -> IgnorePatterns:
        """The patterns of a working folder: what is always left out, then its own.

        Raises:
            DeployError: The file with the patterns cannot be read.
        """
        try:
            text = (workdir / IGNORE_FILE).read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            text = ""
        except OSError as error:
            raise DeployError(f"{workdir / IGNORE_FILE}: {error.strerror}", retryable=False) from error
        return cls((*ALWAYS_IGNORED, *_lines(text.splitlines())))

    def __contains__(self, path: str) -> bool:
        """True when a path below the folder is left out; that of a folder ends with a slash."""
        folder = path.endswith("/")
        name = path.rstrip("/")
        decided = False
        for pattern, kept, folders_only in self._rules:
            if (folder or not folders_only) and decided == kept and pattern.fullmatch(name):
                decided = not kept
        return decided

    @cached_property
    def _rules(self) -> list[tuple[re.Pattern[str], bool, bool]]:
        rules = []
        for line in self.patterns:
            kept = line.startswith("!")
            body = line[1:] if kept else line
            rules.append((_expression(body.rstrip("/")), kept, body.endswith("/")))
        return rules


def _lines(lines: Iterable[str]) -> list[str]:
    stripped = (line if line.endswith("\\ ") else line.rstrip() for line in lines)
    return [line for line in stripped if line.strip("/!") and not line.startswith("#")]


def _expression(pattern: str) -> re.Pattern[str]:
    # A slash anywhere but at the end ties a pattern to the top.
    parts = pattern.lstrip("/").split("/")
    words = "" if "/" in pattern else "(?:.*/)?"
    for i, part in enumerate(parts):
        last = i == len(parts) - 1
        if part == "**":
            words += ".+" if last else "(?:.*/)?"
        else:
            words += _segment(part) + ("" if last else "/")
    try:
        return re.compile(words, re.DOTALL)
    except re.error:
        return re.compile(re.escape(pattern))


def _segment(part: str) -> str:
    words, i = "", 0
    while i < len(part):
        char = part[i]
        end = part.find("]", i + 2) if char == "[" else -1
        if char == "*":
            words += "[^/]*"
        elif char == "?":
            words += "[^/]"
        elif end > 0:
            inner = part[i + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            words += f"(?!/)[{'^' + inner[1:] if inner[0] in '!^' else inner}]"
            i = end
        elif char == "\\" and i + 1 < len(part):
            i += 1
            words += re.escape(part[i])
        else:
            words += re.escape(char)
        i += 1
    return words
