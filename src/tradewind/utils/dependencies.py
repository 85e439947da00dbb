"""Programs and packages that others have made, and how to get them."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

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


def install_command(extra: str, *packages: str) -> str:
    """The command that installs an extra of Tradewind, for hints.

    It is quoted: zsh takes brackets for a pattern.

    Args:
        extra: The extra's name in ``pyproject.toml``.
        packages: What is to be installed besides.
    """
    return " ".join(("pip install", f"'tradewind[{extra}]'", *packages))


def installed(package: str) -> bool:
    """Test that a package can be imported, without an import. A mere folder of that name is no package.

    Args:
        package: Its name in an import, without a dot.
    """
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # the module is there without a specification, or was blocked
        return False
    return spec is not None and spec.origin is not None


def require_package(package: str, what: str, extra: str) -> None:
    """See that an optional package is there, before anything begins that it is needed for at the end.

    Args:
        package: The name that it is imported by.
        what: What needs it, in the plural: ``PNG charts``.
        extra: The extra that brings it.

    Raises:
        MissingProgramError: It is not installed.
    """
    if not installed(package):
        raise MissingProgramError(f"{what} need {package}", hint=install_command(extra))


@contextmanager
def optuna_log(level: int) -> Iterator[None]:
    """Optuna's log without lines below a level, for as long as it is used here. Optuna must be installed.

    Args:
        level: The level, as `logging` numbers it.
    """
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(level)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
