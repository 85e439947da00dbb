"""Whether a page can be used by everybody, and pictures of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

# The sixth row of a table is as readable as the fifth.
_FINDINGS = """async (rules) => {
  const page = { exclude: [["tbody tr:nth-child(n+6)"]] };
  const found = await axe.run(page, { resultTypes: ["violations"], ...(rules ? { runOnly: rules } : {}) });
  return found.violations.map(({ id, impact, nodes }) => [impact, id, nodes.map((node) => node.target.join(" "))]);
}"""


def find_wrong(page: Page) -> list[Any]:
    """What axe finds to be serious: all of it in light mode, the contrast of colours in dark mode as well."""
    from axe_playwright_python.base import AXE_SCRIPT  # type: ignore[import-untyped]

    page.evaluate(AXE_SCRIPT)
    found = page.evaluate(_FINDINGS, None)
    page.emulate_media(color_scheme="dark")
    found += page.evaluate(_FINDINGS, ["color-contrast"])
    return [finding for finding in found if finding[0] in ("serious", "critical")]


def cut_off(page: Page) -> list[str]:
    """Tabs that a phone shows in part or not at all: nothing says that they could be pushed."""
    page.set_viewport_size({"width": 375, "height": 812})
    found: list[str] = page.locator(".tabs a").evaluate_all(
        "all => all.filter((one) => { const end = (it) => it.getBoundingClientRect().right;"
        " return end(one) > end(one.parentElement); })"
        ".map((one) => one.textContent)"
    )
    return found


def keep_pictures(page: Page, folder: Path, name: str) -> None:
    """Keep the page as a laptop and as a phone show it, in both colours."""
    for device, width, height in (("laptop", 1280, 800), ("phone", 375, 812)):
        page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            page.screenshot(path=folder / f"{name}-{device}-{scheme}.png", full_page=True)
    page.set_viewport_size({"width": 1280, "height": 800})
