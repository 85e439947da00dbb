"""Programs of this machine that others have made."""

from __future__ import annotations

import shutil

from tradewind.errors import MissingProgramError


def find_program(name: str, hint: str) -> str:
    """The path of a program.

    Args:
        name: Its name, looked for on the PATH.
        hint: How to get it.

    Raises:
        MissingProgramError: It is not there.
    """
    found = shutil.which(name)
    if found is None:
        raise MissingProgramError(f"there is no {name} program", hint=hint)
    return found
