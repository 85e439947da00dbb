"""What pages are made of: no template asks for what is not there, or for what a strict policy refuses."""

from __future__ import annotations

import gzip
import posixpath
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tradewind.reporting.charts import ASSETS
from tradewind.service.web import static_assets
from tradewind.service.web.rendering import environment

WEB = Path(static_assets.__file__).parent
TEMPLATES = sorted((WEB / "templates").glob("*.j2"))
SCRIPTS = sorted(
    [*(WEB / "static").rglob("*.js"), *(path for path in ASSETS.glob("*.js") if path.name != "echarts.js")]
)
STYLES = sorted([*(WEB / "static").rglob("*.css"), *ASSETS.glob("*.css")])


def _name(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", TEMPLATES, ids=_name)
def test_template(path: Path) -> None:
    text = path.read_text()
    environment().get_template(path.name)
    assert re.findall(r"""<[^>]*\s(?:style|on[a-z]+)=["']""", text) == [], "the policy refuses them"
    assert re.findall(r'<script(?![^>]*\ssrc=)(?! type="application/json")|<style', text) == [], "likewise"
    assert re.findall(r"""(?:src|href|action)=["'](?:https?:)?//""", text) == [], "nothing comes from another host"
    assert re.findall(r"\|\s*safe\b", text) == [], "what is safe is made so where it is made"
    known = {name.lstrip("/") for name in static_assets.assets().names}
    assert [name for name in re.findall(r"asset\(['\"]([^'\"]+)", text) if name not in known] == []
    pictures = set(re.findall(r'^  "([a-z]+)":', (WEB / "templates/icons.html.j2").read_text(), re.MULTILINE))
    assert [name for name in re.findall(r'\bicon\("([a-z]+)"', text) if name not in pictures] == []
    for form in re.findall(r'<form[^>]*method="post"[^>]*>.{0,80}', text, re.DOTALL):
        assert "csrf" in form or 'action="/sign-in"' in form, f"{form} does not prove where it comes from"


@pytest.mark.parametrize("path", SCRIPTS, ids=_name)
def test_script(path: Path) -> None:
    text = path.read_text()
    for name in re.findall(r"""from\s+["']([^"']+)""", text):
        assert name.startswith(("./", "../")), f"{name} is of another place"
        folder = "js/charts" if path.parent == ASSETS else path.parent.relative_to(static_assets.FOLDER).as_posix()
        assert posixpath.normpath(f"{folder}/{name}") in static_assets.assets().names, f"{name} is not there"
    assert re.findall(r"\beval\(|new Function|innerHTML|outerHTML|insertAdjacentHTML|document\.write", text) == []
    assert re.findall(r"https?://", re.sub(r"^\s*//.*|http://www\.w3\.org/\S+", "", text, flags=re.MULTILINE)) == []


@pytest.mark.parametrize("path", STYLES, ids=_name)
def test_style(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"url\(|@import|https?://", text) == [], "nothing comes from elsewhere"
    if path.name != "1-tokens.css":
        plain = re.sub(r"light-dark\([^)]*\)", "", text)
        colours = re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[;,\s)])", plain)
        assert set(colours) <= {"#0006", "#0007"}, "a colour of one mode only"


@pytest.mark.slow
def test_files_have_addresses_that_change_with_them(client: TestClient, tmp_path: Path) -> None:
    address = static_assets.assets().url("app.css")
    answer = client.get(address, headers={"Accept-Encoding": "gzip"})
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"].startswith("text/css")
    assert answer.text.index("--page:") < answer.text.index(".shell")  # in the order of their names
    old = client.get("/static/0123456789abcdef/app.css")
    assert (old.status_code, old.headers["cache-control"]) == (200, "no-cache")
    plain = client.get(address, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.text == answer.text
    (tmp_path / "a.js").write_text("1")
    before = static_assets.StaticAssets(tmp_path)
    (tmp_path / "a.js").write_text("2")
    after = static_assets.StaticAssets(tmp_path)
    assert before.url("a.js") != after.url("a.js")
    assert gzip.decompress(after.get("a.js").packed) == b"2"
    with pytest.raises(KeyError, match=r"no b\.js"):
        after.url("b.js")


@pytest.mark.slow
@pytest.mark.parametrize("path", ["x/../../page.py", "x/%2e%2e/%2e%2e/page.py", "x/none.js", "x//etc/passwd"])
def test_no_other_file_goes_out(client: TestClient, path: str) -> None:
    assert client.get(f"/static/{path}").status_code == 404


def test_the_icon_is_where_browsers_look_for_it(client: TestClient) -> None:
    assert client.get("/favicon.ico").headers["content-type"] == "image/svg+xml"
