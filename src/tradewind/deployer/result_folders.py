"""Folders among the results of a run that are not results as a whole: what is private in them stays here."""

from __future__ import annotations

import os
from collections.abc import Collection

_RESULTS = frozenset({"results.json", "journal.jsonl", "files", "tasks"})
"""What is a result in the folder of a workflow's run; its secret, pilots and machines are not."""

_SECRET = "secret"  # noqa: S105  (the name of a file)
_OTHERS = ("machines", "pilots", "journal.jsonl", "store.json", "run")


def results_in(names: Collection[str]) -> frozenset[str]:
    """Return the names in a folder that are results.

    Args:
        names: All files and folders in it.
    """
    is_run = _SECRET in names and any(one in names for one in _OTHERS)
    return frozenset(names) & _RESULTS if is_run else frozenset(names)


def is_result(folder: int, name: str) -> bool:
    """Return True where a name in a folder is a result.

    Args:
        folder: File descriptor of the folder.
        name: A file or a folder in it.
    """
    there = [one for one in (_SECRET, *_OTHERS, name) if _exists(folder, one)]
    return name in results_in(there)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True
