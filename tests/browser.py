"""One browser at a time, for all tests that look at a page: a second one cannot be started beside it.

As long as it runs, its thread has an asyncio loop, so that nothing else there can run one: it ends with its module.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; its tests are skipped where there is none."""
    program = os.environ.get("TRADEWIND_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("NO BROWSER, SO NO PAGE IS TESTED: install chromium (tools/system_packages.sh does)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def shots() -> Path | None:
    """Where pictures go when somebody wants to see them: TRADEWIND_SHOTS."""
    folder = os.environ.get("TRADEWIND_SHOTS")
    return Path(folder) if folder else None
