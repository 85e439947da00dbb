from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from tests.html_page import EVIL, Page

from tradewind.utils.notebook import bar_html, box_html, facts_html, in_notebook, note_html, table_html


@pytest.mark.parametrize(
    "html",
    [
        box_html(EVIL),
        note_html(EVIL),
        facts_html([(EVIL, EVIL)]),
        table_html([EVIL, EVIL], [[EVIL, EVIL]], right={1}),
        bar_html(0.5, EVIL),
    ],
    ids=["box", "note", "facts", "table", "bar"],
)
def test_every_text_is_escaped(html: str) -> None:
    page = Page(html)
    assert set(page.elements) <= {"div", "table", "thead", "tbody", "tr", "th", "td", "progress"}
    assert page.attributes <= {"class", "style", "scope", "max", "value"}
    assert "<script>alert('x')</script>\" onload=\"go()··& more" in page.text


def test_no_colour_is_set_and_dollars_are_no_formulas() -> None:
    """Themes are light and dark, and Jupyter takes what is between two dollar signs for a formula."""
    html = box_html("study", table_html(["cost", "cost"], [["$1", "$2"]])) + bar_html(None, "$1 of $2 spent")
    assert "color:" not in html.replace("border", "")
    assert "background:none" in html
    for box in html.split("<div ")[1::2]:
        assert box.startswith('class="tex2jax_ignore mathjax_ignore"')


def test_a_bar_without_a_share_has_no_value() -> None:
    assert "value=" not in bar_html(None, "3 trials")
    assert 'value="0.2500"' in bar_html(0.25, "3 trials")


@pytest.mark.parametrize(
    ("shell", "found"), [(None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=1), True)]
)
def test_only_a_kernel_is_a_notebook(monkeypatch: pytest.MonkeyPatch, shell: object, found: bool) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert in_notebook() is found
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()
