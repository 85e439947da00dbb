"""Small files that runners leave for other processes, and what is wrong when they cannot be written."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tradewind.errors import DeployError


def document(path: Path) -> dict[str, Any] | None:
    """The JSON document of a file, or None when there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def changed(path: Path) -> float | None:
    """When a file was written, in seconds since the epoch, or None when there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def replace_document(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON document; a reader sees the old one or the new one, never half of one."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(content), encoding="utf-8")
    part.replace(path)


def folder_error(error: OSError, folder: Path) -> DeployError:
    """What a user should know when a run folder cannot be used."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DeployError(f"the disk under {folder} is full", hint="free some space and repeat the command")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST):
        return DeployError(
            f"the run folder {folder} cannot be written: {error.strerror}",
            hint="set TRADEWIND_HOME to a folder that can",
            retryable=False,
        )
    return DeployError(f"the run folder {folder} cannot be used: {error.strerror}")
