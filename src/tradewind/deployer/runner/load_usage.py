"""The usage of a load generator beside that of the application that it drives."""

from __future__ import annotations

from dataclasses import replace

from tradewind.problem import Usage


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
