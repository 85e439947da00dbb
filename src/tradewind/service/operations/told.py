"""What a process of the server is told when it is started: one line of JSON at its standard input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tradewind.service.operations.server_log import start_logging
from tradewind.service.settings import ServiceSettings


def child_configuration(settings: ServiceSettings, url: str, data_folder: Path, **more: Any) -> dict[str, Any]:
    """What to tell it.

    Args:
        settings: The server's settings.
        url: Address of the store.
        data_folder: For runs, runners and refreshed prices.
        more: What this kind of process needs besides.
    """
    return {"settings": settings.model_dump(mode="json"), "url": url, "data_folder": str(data_folder), **more}


def read_configuration() -> tuple[ServiceSettings, dict[str, Any]] | None:
    """Wait for it, and begin to log as it says.

    Returns:
        The settings, and all that was told; None when the server ended before it could say anything.
    """
    line = sys.stdin.buffer.readline()
    if not line:
        return None
    document = json.loads(line)
    settings = ServiceSettings.model_validate(document["settings"])
    start_logging(settings.log_format, settings.log_level)
    return settings, document
