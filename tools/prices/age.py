"""Says how old the shipped prices are, and fails where a release may not have them: ``python -m tools.prices.age``."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tradewind.selector.catalogue.shipped_prices import FOLDER, read_table
from tradewind.utils.units import count

MOST_DAYS = 365


def ages(folder: Path, today: datetime.date) -> list[tuple[int, str, str, str, int]]:
    """Days, provider, date, source and number of prices of each table's sources, the oldest first."""
    counts = Counter(
        (offer.provider, offer.price_date, offer.source)
        for path in sorted(folder.glob("*.csv"))
        for offer in read_table(path)
    )
    days = {date: (today - datetime.date.fromisoformat(date)).days for _, date, _ in counts}
    return sorted(
        ((days[date], provider, date, source, prices) for (provider, date, source), prices in counts.items()),
        key=lambda row: (-row[0], *row[1:]),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the ages.

    Args:
        arguments: Those of the command line.

    Returns:
        1 where some are too old, else 0.
    """
    parser = argparse.ArgumentParser(description="Says how old the shipped prices are; fails when some are too old.")
    parser.add_argument("--most-days", type=int, default=MOST_DAYS, help="age from which a release fails")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of the tables")
    given = parser.parse_args(arguments)
    rows = ages(given.folder, datetime.datetime.now(datetime.UTC).date())
    for days, provider, date, source, prices in rows:
        print(f"{provider:5}  {date}  {days:5} days  {prices:5} prices  {source}")
    old = sum(prices for days, _, _, _, prices in rows if days > given.most_days)
    if old:
        providers = ", ".join(sorted({provider for days, provider, *_ in rows if days > given.most_days}))
        print(
            f"{count(old, 'price')} older than {given.most_days} days ({providers}); write their tables again: "
            "python -m tools.prices.PROVIDER",
            file=sys.stderr,
        )
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
