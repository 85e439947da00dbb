"""The usage of a run, as shells tell it, and that of a load generator beside it."""

from __future__ import annotations

import re
from dataclasses import replace

from tradewind.problem import Usage

_TIME = re.compile(r"(\d+)m([\d.]+)s")


def shell_seconds(text: str) -> float | None:
    """The sum of the times that a shell's ``times`` prints, as ``0m0.15s 0m0.09s``, in seconds; None without any.

    Args:
        text: The times, with blanks or slashes between them.
    """
    found = [_TIME.fullmatch(word) for word in text.replace("/", " ").split()]
    if not found or not all(found):
        return None
    return round(sum(int(time[1]) * 60 + float(time[2]) for time in found if time), 6)


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
