"""Where Tradewind keeps its data."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_data_path


def data_folder() -> Path:
    """The folder of the store, the runs and refreshed prices.

    ``TRADEWIND_HOME`` if set, else the user's data folder for ``tradewind``. It is not created here.
    """
    home = os.environ.get("TRADEWIND_HOME")
    return Path(home).expanduser().absolute() if home else user_data_path("tradewind")


def store_url() -> str:
    """The address of the store: ``TRADEWIND_STORE`` if set, else an SQLite file in the data folder."""
    return os.environ.get("TRADEWIND_STORE") or f"sqlite:///{data_folder() / 'tradewind.db'}"
