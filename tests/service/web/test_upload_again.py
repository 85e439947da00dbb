"""A request whose results did not come to the user's folder, in a real browser: what is said, and the button."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.service.live_server import not_uploaded
from tests.service.web.accessibility import find_wrong
from tests.service.web.conftest import Opener
from tests.service.web.sample_server import STATES, Stage, put

PROBLEM = (
    "webdavs://cloud.example.org/remote.php/dav/files/ann/results/plate-2026-11-22/run-0-1/outputs/heat.csv: "
    "507 insufficient storage"
)


@pytest.mark.slow
def test_an_upload_that_was_given_up_is_tried_again_with_one_click(
    open_page: Opener, scene: Stage, shots: Path | None
) -> None:
    number = put(scene.context, scene.ann, **STATES["done"])
    not_uploaded(scene.context, number, "failed", PROBLEM)
    page = open_page()
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"/requests/{number}")
    button = page.get_by_role("button", name="Try the upload again now")
    for width, height in ((1280, 800), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            box = button.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            assert box["height"] >= 24, "WCAG 2.2: as large as a finger needs it"
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            if shots is not None:
                page.screenshot(path=shots / f"upload-{width}-{scheme}.png", full_page=True)
    page.emulate_media(color_scheme="light")
    assert find_wrong(page) == []
    page.get_by_text(f"{PROBLEM}.").wait_for()  # an address is written as it is
    button.click()
    page.get_by_text("The upload is tried again within moments.").wait_for()
    page.get_by_text("Not all is in your folder yet").wait_for()
    assert button.count() == 0, "it is being tried"
    if shots is not None:
        page.screenshot(path=shots / "upload-after.png", full_page=True)
