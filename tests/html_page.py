"""HTML as a browser understands it: its elements and its text."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

EVIL = "<script>alert('x')</script>\" onload=\"go()\u202e\n& more"


class Page(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data
