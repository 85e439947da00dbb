"""Every page: readable by everybody, in both colours, on a phone, with nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.service.web.accessibility import cut_off, find_wrong, keep_pictures
from tests.service.web.sample_server import Stage

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.xdist_group("browser")

Opener = Callable[..., "Page"]

PAGES = {
    "home": "/",
    "requests": "/requests",
    "requests-none": "/requests?text=nothing-like-that",
    "request-done": "/requests/{done}",
    "request-failed": "/requests/{failed}",
    "request-search": "/requests/{search}",
    "new": "/requests/new",
    "new-form": "/requests/new?application=plate",
    "new-document": "/requests/new/document",
    "applications": "/applications",
    "application": "/applications/plate",
    "application-new": "/applications/new",
    "account": "/account",
    "account-tokens": "/account/tokens",
    "account-notices": "/account/notices",
    "account-results": "/account/results",
    "missing": "/nothing-here",
}


@pytest.mark.parametrize("name", ("sign-in", *PAGES))
def test_page(name: str, open_page: Opener, scene: Stage, shots: Path | None) -> None:
    """No serious finding of axe in either colour, nothing wider than a phone, and one heading of the first level."""
    page = open_page("" if name == "sign-in" else "ann", expected="404 (Not Found)" if name == "missing" else "")
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.goto("/sign-in" if name == "sign-in" else PAGES[name].format(**scene.numbers))
    if name == "new-form":
        page.wait_for_selector("[name=choice]")
    assert page.locator("h1").count() == 1
    assert find_wrong(page) == []
    if shots is not None:
        keep_pictures(page, shots, name)
    assert cut_off(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
