"""Helpers that the commands of the service share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tradewind.service.settings import ServiceSettings


def require_service() -> None:
    """See that what the service needs is installed.

    Raises:
        MissingProgramError: It is not.
    """
    import importlib.util

    from tradewind.errors import MissingProgramError
    from tradewind.utils.dependencies import install_command

    for package in ("fastapi", "uvicorn", "argon2", "cryptography", "defusedxml", "multipart", "httpx2", "markdown_it"):
        if importlib.util.find_spec(package) is None:
            raise MissingProgramError(f"the service needs the package {package}", hint=install_command("service"))


def open_settings(
    flags: Mapping[str, Any], words: Sequence[str] | None = None, file: Path | None = None
) -> tuple[ServiceSettings, str]:
    """The settings of a server, and the address of its store.

    Args:
        flags: Those that were given, by name.
        words: ``KEY=VALUE`` words of ``--set``.
        file: The YAML file of ``--config``, or None.

    Raises:
        InputError: One of them is wrong.
    """
    import os
    from pathlib import Path

    from tradewind.cli.common import pairs
    from tradewind.service.settings import CONFIGURATION_VARIABLE, read_settings
    from tradewind.utils.paths import store_url

    if file is None and os.environ.get(CONFIGURATION_VARIABLE):
        file = Path(os.environ[CONFIGURATION_VARIABLE])
    settings = read_settings({**pairs(words, "--set"), **flags}, os.environ, file)
    return settings, settings.database or store_url()


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, with text that is nobody's markup."""
    import shutil
    import sys

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    # A file or a pipe has no width: nothing is cut there.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 200
    Console(width=width, highlight=False).print(table)
