"""Programs and packages that others have made, and how to get them."""

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


def how_to_install(extra: str, *packages: str) -> str:
    """The command that installs an extra of Tradewind, for hints.

    It is quoted: zsh takes brackets for a pattern.

    Args:
        extra: The extra's name in ``pyproject.toml``.
        packages: What is to be installed besides.
    """
    return " ".join(("pip install", f"'tradewind[{extra}]'", *packages))
