"""``python -m tradewind``."""

from tradewind.cli import main

main()
