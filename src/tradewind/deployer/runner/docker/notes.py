"""What a docker handle, and the note of a run, know beside the machine: when the engine was asked to start it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ASKED = "asked"
"""What a handle's data call the moment at which the engine was asked to start its run, by the engine's clock."""

LOOK = "look"
"""What a handle's data call it that its run may be anybody's: to poll it starts nothing, and ends nothing that was not
cancelled here."""


def asked_at(note: Mapping[str, Any] | None) -> float:
    """When a run was asked to start, as it was noted, or 0.

    Args:
        note: The run's handle as a document.
    """
    return float(((note or {}).get("data") or {}).get(ASKED, 0.0))
