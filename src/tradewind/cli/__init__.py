"""Floor 8: the command line, one file a command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line: the console script ``tradewind``."""
    from tradewind.cli.app import run

    sys.exit(run())
