"""Markdown of anybody as HTML that is safe: markup in it is shown as text, and nothing is loaded from anywhere."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token
    from markdown_it.utils import OptionsDict

_LINKS = ("https://", "http://", "mailto:")
_UNDER = 2  # the page has headings of its own above


def markdown(text: str) -> Markup:
    """Write Markdown as HTML; pictures stand as their words, and only links to the web and to mail lead anywhere."""
    return Markup(_renderer().render(text))  # noqa: S704  (HTML in the text is off)


@cache
def _renderer() -> MarkdownIt:
    from markdown_it import MarkdownIt

    made = MarkdownIt("js-default", {"html": False, "linkify": False})
    made.validateLink = lambda url: url.strip().lower().startswith(_LINKS)  # type: ignore[method-assign]
    made.add_render_rule("image", _image)
    made.add_render_rule("link_open", _link)
    for name in ("heading_open", "heading_close"):
        made.add_render_rule(name, _heading)
    return made


def _image(
    _self: RendererHTML, tokens: Sequence[Token], at: int, _options: OptionsDict, _values: MutableMapping[str, Any]
) -> str:
    return str(escape(tokens[at].content or "picture"))


def _link(
    self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, values: MutableMapping[str, Any]
) -> str:
    tokens[at].attrSet("rel", "noopener noreferrer nofollow")
    return self.renderToken(tokens, at, options, values)


def _heading(
    self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, values: MutableMapping[str, Any]
) -> str:
    tokens[at].tag = f"h{min(6, int(tokens[at].tag[1:]) + _UNDER)}"
    return self.renderToken(tokens, at, options, values)
