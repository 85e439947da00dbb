"""Floor 8: the command line, one file a command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line: the console script ``tradewind``."""
    try:
        from tradewind.cli.app import run

        code = run()
    except KeyboardInterrupt:  # before `run` was there to notice it: loading the commands takes a moment
        from tradewind.errors import InterruptedSearch

        print("tradewind: interrupted", file=sys.stderr)
        code = InterruptedSearch.exit_code
    sys.exit(code)
