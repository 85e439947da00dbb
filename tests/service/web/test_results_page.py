"""The results on the page of a request, in a real browser: previews, curves, and all files as one."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

import pytest
from tests.service.live_server import principal
from tests.service.web.accessibility import find_wrong
from tests.service.web.conftest import Opener
from tests.service.web.sample_server import Stage

pytestmark = pytest.mark.slow


def _chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


PNG = b"\x89PNG\r\n\x1a\n" + b"".join(
    [
        _chunk(b"IHDR", (8).to_bytes(4, "big") * 2 + b"\x08\x00\x00\x00\x00"),
        _chunk(b"IDAT", zlib.compress((b"\0" + b"\x60" * 8) * 8)),
        _chunk(b"IEND", b""),
    ]
)
SCRIPT = "<script>document.title = 'taken'</script>"
FILES = {
    "picture.png": PNG,
    "x-fake.png": f'<svg xmlns="http://www.w3.org/2000/svg">{SCRIPT}</svg>'.encode(),
    "page.html": SCRIPT.encode(),
    "heat.csv": b"time,heat\n" + b"".join(b"%d,%d\n" % (at, at * at) for at in range(300)),
    "README.md": f"# Findings\n{SCRIPT}\n![far](http://192.0.2.1/x.png)\n".encode(),
}


@pytest.fixture
def number(scene: Stage) -> int:
    """A finished request with such files."""
    row = scene.wait(scene.submit(name="with pictures").id, "done")
    context = scene.context
    run = Path(context.requests.file(principal(context, "ann"), row.id, "stdout")).parent
    for name, data in FILES.items():
        (run / "outputs" / name).write_bytes(data)
    (run / "metrics.jsonl").write_text("".join(f'{{"step": {at}, "residual": {1 / (at + 1)}}}\n' for at in range(50)))
    return row.id


def test_results_are_shown_and_taken_as_one(open_page: Opener, number: int) -> None:
    page = open_page()
    page.goto(f"/requests/{number}")
    picture = page.locator("#preview img")
    picture.scroll_into_view_if_needed()
    page.wait_for_function("document.querySelector('#preview img').naturalWidth === 8")
    page.locator("#curves canvas").first.wait_for()
    assert page.locator("#curves h3").all_inner_texts() == ["residual"]
    assert find_wrong(page) == []

    page.get_by_role("link", name="outputs/heat.csv", exact=True).click()
    page.locator("#preview canvas").first.wait_for()
    assert page.locator("#preview tbody tr").count() == 100
    assert "The first 100 of 300 rows" in page.locator("#preview").inner_text()
    assert find_wrong(page) == []

    for name in ("README.md", "page.html", "x-fake.png"):
        page.goto(f"/requests/{number}?show=outputs/{name}")
        assert SCRIPT in page.locator("#preview").inner_text(), "markup is words"
        assert page.title().startswith("with pictures")
        assert page.locator("#preview img").count() == 0

    page.goto(f"/requests/{number}")
    with page.expect_download() as taken:
        page.get_by_role("link", name="Download all").first.click()
    with zipfile.ZipFile(io.BytesIO(Path(taken.value.path()).read_bytes())) as archive:
        assert {f"outputs/{name}" for name in FILES} < set(archive.namelist())
        assert archive.read("outputs/picture.png") == PNG


def test_a_file_is_sent_as_what_it_is_only_where_that_is_harmless(open_page: Opener, number: int) -> None:
    page = open_page()
    good = page.request.get(f"/requests/{number}/shown/outputs/picture.png")
    assert (good.status, good.headers["content-type"]) == (200, "image/png")
    assert good.headers["content-security-policy"].endswith("sandbox")
    assert good.headers["x-content-type-options"] == "nosniff"
    for name in ("x-fake.png", "page.html", "heat.csv"):
        assert page.request.get(f"/requests/{number}/shown/outputs/{name}").status == 404


def test_a_link_shows_the_same_previews(open_page: Opener, scene: Stage, number: int) -> None:
    context = scene.context
    path = context.links.make(principal(context, "ann"), number)[1]
    page = open_page("")
    page.goto(path)
    page.wait_for_function("document.querySelector('#preview img').naturalWidth === 8")
    assert find_wrong(page) == []
    page.get_by_role("link", name="outputs/heat.csv", exact=True).click()
    page.locator("#preview canvas").first.wait_for()
    assert page.locator("#preview tbody tr").count() == 100
    assert find_wrong(page) == []
