from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from tests.html_page import EVIL, Page
from tests.service.web.accessibility import find_wrong

from tradewind import Study, StudyReport
from tradewind.engine.progress import NotebookBar
from tradewind.errors import ConfigurationError, InputError

Scheme = Literal["dark", "light"]

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog

JOB: dict[str, Any] = {
    "name": "bowl",
    "space": {"x": "0..10", "mode": ["plain", "<b>bold</b><img src=x onerror=alert(1)>"]},
    "objective": {"minimise": "value"},
    "searcher": "random",
}


def bowl(x: int, mode: str) -> float:
    if x == 5:
        raise ValueError(EVIL)
    return float((x - 3) ** 2) + (5 if mode != "plain" else 0)


@pytest.mark.slow
def test_a_report_shows_the_page_of_the_command_in_a_frame(tmp_path: Path) -> None:
    with Study(JOB) as study:
        study.optimise(bowl)
        report = StudyReport(study)
    (frame,) = re.findall(r'<iframe srcdoc="([^"]*)" sandbox="allow-scripts" ', report._repr_html_())
    assert unescape(frame) == report.html
    assert report.html.startswith("<!doctype html>")
    assert "every configuration has been tried" in report.html
    assert Page(report._repr_html_()).elements == ["iframe"]
    saved = report.save(tmp_path / "report.html")
    assert saved.read_text() == report.html
    assert report.save(str(tmp_path / "other.html")) == tmp_path / "other.html"
    with pytest.raises(InputError, match=r"cannot write .*nowhere.*another file"):
        report.save(tmp_path / "nowhere" / "report.html")


def test_a_report_of_something_else_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"StudyReport\('bowl'\): this is no Study.*Study\(\.\.\.\) returned"):
        StudyReport("bowl")  # type: ignore[arg-type]


def test_a_console_shows_the_report_as_text() -> None:
    with Study(JOB) as study:
        study.optimise(bowl)
    text = repr(StudyReport(study))
    assert text.startswith("study bowl (id 1)")
    assert "Use mode=plain x=3" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_report_is_made_of_any_study_open_or_closed_begun_or_not(tmp_path: Path) -> None:
    with Study(JOB, store=f"sqlite:///{tmp_path}/own.db") as study:
        assert "bowl" in StudyReport(study).html
        study.optimise(bowl, 3)
        before = StudyReport(study)
        assert "3 ended trials" in repr(before)
        study.optimise(bowl, 2)
    assert "3 ended trials" in repr(before)
    assert "5 ended trials" in repr(StudyReport(study))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.thorough)])
def test_a_browser_shows_all_of_it_in_light_and_in_dark(browser: Browser, shots: Path | None, scheme: Scheme) -> None:
    """As a notebook has it: in the colours of its theme, and with styles of its own for tables."""
    bar = NotebookBar()
    bar._share, bar._words = 0.4, "4 of 10 trials, best value 3, $0.12 of $2.00 spent"
    with Study(JOB) as study:
        study.optimise(bowl)
    assert study.best is not None
    shown = [bar, study, study.trials, study.best, StudyReport(study)]
    body = "".join(f"<section>{one._repr_html_()}</section>" for one in shown)  # type: ignore[attr-defined]
    dark = "background:#111;color:#ddd;color-scheme:dark"
    style = (
        f"body{{{dark if scheme == 'dark' else ''}}} th,td{{text-align:right;border:1px solid}} table{{font-size:12px}}"
    )
    page = browser.new_page(
        viewport={"width": 1000, "height": 2200}, color_scheme="dark" if scheme == "dark" else "light"
    )
    said: list[str] = []

    def answer(dialog: Dialog) -> None:
        said.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", answer)
    page.on("request", lambda sent: said.append(sent.url))
    page.set_content(f"<html lang=en><title>notebook</title><style>{style}</style><main><h1>x</h1>{body}</main>")
    inside = page.frame_locator("iframe")
    inside.get_by_role("heading", name="Which configuration, and why").wait_for()
    assert page.get_by_text("<b>bold</b>").count() >= 11
    assert page.locator("main img, main script").count() == 0
    width = page.evaluate("document.documentElement.scrollWidth")
    if shots is not None:
        page.screenshot(path=shots / f"notebook-{scheme}.png")
    ground = inside.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    assert find_wrong(page) == []
    page.close()
    assert said == []
    assert width <= 1000
    assert ground == ("rgb(17, 21, 27)" if scheme == "dark" else "rgb(246, 247, 249)")
