"""Looks for a secret where it must not be: in files, in texts, and in the command lines of processes.

The tests of a runner or provisioner run a job with a secret, well and badly, and then call `assert_kept_nowhere`.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psutil

SECRET = "hunter2-\u00e4-correct+horse/battery='staple'"  # noqa: S105  (what the tests look for)
"""A value that many ways of writing would change, none of which may be found."""


def spellings(secret: str) -> set[bytes]:
    """The ways in which a secret may stand in a file: as it is, in JSON, in an address, in base64."""
    plain = secret.encode()
    # Within other text base64 looks different by where the value begins; this finds it in all three.
    shifted = {base64.b64encode(b"x" * pad + plain)[4 if pad else 0 : -4] for pad in range(3)}
    return {
        plain,
        json.dumps(secret)[1:-1].encode(),
        json.dumps(secret, ensure_ascii=False)[1:-1].encode(),
        quote(secret).encode(),
        quote(secret, safe="").encode(),
        *shifted,
    }


def found_in(secret: str, *folders: Path) -> Iterator[Path]:
    """The files below some folders that have a secret, in their content or their name."""
    wanted = spellings(secret)
    for folder in folders:
        for path in [folder, *folder.rglob("*")]:
            if any(spelling in os.fsencode(path) for spelling in wanted):
                yield path
            elif path.is_file():
                try:
                    content = path.read_bytes()
                except OSError:
                    continue
                if any(spelling in content for spelling in wanted):
                    yield path


def in_command_lines(secret: str) -> list[int]:
    """The processes of this machine that have a secret among their arguments, which everybody may read."""
    found = []
    for process in psutil.process_iter():
        try:
            if secret in " ".join(process.cmdline()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def assert_kept_nowhere(secret: str, *folders: Path, texts: str = "") -> None:
    """Make sure that a secret is in no file below some folders, in no text and in no command line.

    Args:
        secret: The value.
        folders: Where files are looked at: ``TRADEWIND_HOME`` with its store, the job's folder, the engine's.
        texts: What commands printed, error messages, records.

    Raises:
        AssertionError: It is somewhere; the message says where.
    """
    assert list(found_in(secret, *folders)) == [], "a secret stands in a file"
    assert not any(spelling in texts.encode() for spelling in spellings(secret)), "a secret was printed"
    assert in_command_lines(secret) == [], "a secret is an argument of a process"
