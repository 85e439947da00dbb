"""Shared parts of load generators: their usage beside that of the application, and patterns of readiness."""

from __future__ import annotations

import re
from dataclasses import replace

from tradewind.errors import DeployError, PrerequisiteError
from tradewind.problem import Usage

_CLASSES = {"d": "0-9", "w": "[:alnum:]_", "s": "[:space:]"}
_TOKEN = re.compile(r"\\(.)|(\[\^?\]?)|(\])|\(\?(:)?|[*+?}]\?|(.)", re.DOTALL)


def with_load_usage(application: Usage, load: Usage, seconds: float, cpus: float | None) -> Usage:
    """The usage of a run: the application's, and in its profile that of the load generator.

    Args:
        application: The usage of the application.
        load: The usage of the load generator.
        seconds: Seconds that the load generator ran.
        cpus: CPUs that it was held to, or None.
    """
    found: dict[str, float] = {}
    if load.peak_memory_bytes is not None:
        found["load_peak_memory_bytes"] = float(load.peak_memory_bytes)
    if load.cpu_seconds is not None:
        found["load_cpu_seconds"] = load.cpu_seconds
        if cpus and seconds > 0:
            found["load_cpu_share"] = round(min(1.0, load.cpu_seconds / (seconds * cpus)), 4)
    return replace(application, profile={**application.profile, **found})


def posix_pattern(pattern: str, engine: str) -> str:
    """Convert a regular expression of Python to an extended one, as `grep -E` has it.

    Args:
        pattern: The regular expression.
        engine: The engine's name, for errors.

    Raises:
        DeployError: It has a part that only Python knows: look-around, groups with names, lazy repeats.
    """
    found, inside = [], False
    for token in _TOKEN.finditer(pattern):
        text, escaped = token[0], token[1]
        if escaped in _CLASSES:
            found.append(_CLASSES[escaped] if inside else f"[{_CLASSES[escaped]}]")
        elif escaped in ("D", "W", "S") and not inside:
            found.append(f"[^{_CLASSES[escaped.lower()]}]")
        elif escaped is not None and escaped.isalnum():
            raise _unknown(pattern, text, engine)
        elif escaped is not None:
            found.append(escaped if inside else text)
        elif inside:
            inside = text != "]"
            found.append(text)
        elif text.startswith("["):
            inside = True
            found.append(text)
        elif text == "(?:":
            found.append("(")
        elif len(text) > 1:
            raise _unknown(pattern, text, engine)
        else:
            found.append(text)
    return "".join(found)


def _unknown(pattern: str, part: str, engine: str) -> DeployError:
    return PrerequisiteError(
        f"on {engine}, {part!r} cannot be used in job.load.ready.pattern: {pattern!r}",
        hint="write it as an extended regular expression, as grep -E has it",
    )
