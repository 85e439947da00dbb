"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test has a data folder of its own: no test sees the user's store."""
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRADEWIND_STORE", raising=False)
