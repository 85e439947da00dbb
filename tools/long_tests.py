"""Writes tests/long_tests.txt: the tests that took so long that ``-m "not slow"`` leaves them out.

    python -m pytest --durations=0 --durations-min=0.05 > durations.txt
    python tools/long_tests.py durations.txt

Tests that are marked `slow` where they are written stay so; this list is for the many that take a second because they
start a process or a database, and which together make the difference between minutes.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from pathlib import Path

LIST = Path(__file__).parents[1] / "tests" / "long_tests.txt"
_LINE = re.compile(r"([\d.]+)s (?:call|setup|teardown) +(\S.*)")


def read(text: str) -> dict[str, float]:
    """Seconds of each test, all of its phases together.

    Args:
        text: What pytest printed with ``--durations=0``.
    """
    found: dict[str, float] = defaultdict(float)
    for line in text.splitlines():
        if match := _LINE.fullmatch(line.strip()):
            found[match[2]] += float(match[1])
    return dict(found)


def main() -> None:
    """Write the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("durations", type=Path, help="what pytest printed")
    parser.add_argument("--seconds", type=float, default=0.45, help="how long a test may take that is not in the list")
    parser.add_argument("--add", action="store_true", help="keep what is in the list")
    given = parser.parse_args()
    found = {name for name, seconds in read(given.durations.read_text()).items() if seconds > given.seconds}
    if given.add and LIST.exists():
        found |= set(LIST.read_text().splitlines())
    LIST.write_text("".join(f"{name}\n" for name in sorted(found)))
    sys.stdout.write(f"{LIST.name}: {len(found)} tests\n")


if __name__ == "__main__":
    main()
