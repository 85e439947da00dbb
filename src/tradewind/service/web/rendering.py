"""Renders pages: `render` fills a template, `redirect` sends on after a form, with a message about what happened."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse

from tradewind.service.accounts.identity import Principal
from tradewind.service.http.session_cookies import safe_redirect_path
from tradewind.service.web import page_access
from tradewind.service.web.static_assets import assets
from tradewind.service.web.template_filters import FILTERS

if TYPE_CHECKING:
    from jinja2 import Environment


_Row = TypeVar("_Row")

PER_PAGE = 25
"""Rows on a page."""


def list_page(
    place: str,
    filters: Mapping[str, str],
    before: int | None,
    found: Sequence[_Row],
    number: Callable[[_Row], int],
    show: Callable[[_Row], Any],
    *,
    size: int = PER_PAGE,
) -> dict[str, Any]:
    """Build the values for the template of a list.

    Args:
        place: The path of the list.
        filters: Values of the filters, by name; empty for none.
        before: The number that the page begins below; None for the first page.
        found: The rows: ``size``, and one more where there are older ones.
        number: Returns the number of a row.
        show: Converts a row for the template.
        size: Rows on a page.

    Returns:
        ``rows``, ``older`` and ``newest`` (addresses of other pages; empty where there are none), ``filtered``,
        ``filters``, and ``live`` (the address of the rows alone).
    """
    rows = found[:size]
    return {
        "rows": [show(row) for row in rows],
        "older": list_address(place, filters, before=number(rows[-1])) if len(found) > size else "",
        "newest": list_address(place, filters) if before is not None else "",
        "filtered": any(filters.values()) or before is not None,
        "filters": filters,
        "live": list_address(place, filters, before=before, part=1),
    }


def list_address(place: str, filters: Mapping[str, str], **more: Any) -> str:
    """Return the address of a list with filters; empty ones are left out."""
    given = {key: value for key, value in {**filters, **more}.items() if value}
    return place + (f"?{urlencode(given)}" if given else "")


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """A line of the navigation.

    Attributes:
        title: Text of the entry.
        path: Path of the page; the entry is marked as current on this path and all below it.
        icon: An icon of ``icons.html.j2``.
        group: The heading above it; entries of a group stand together.
        admin: True where only administrators see it.
    """

    title: str
    path: str
    icon: str
    group: str = ""
    admin: bool = False


NAVIGATION: tuple[NavigationEntry, ...] = (
    NavigationEntry("Run", "/", "plus"),
    NavigationEntry("Results", "/requests", "list"),
    NavigationEntry("Searches", "/studies", "chart"),
    NavigationEntry("Applications", "/applications", "grid", "For administrators", admin=True),
    NavigationEntry("Workflows", "/workflows", "flow", "For administrators", admin=True),
    NavigationEntry("Cluster", "/cluster", "server", "For administrators", admin=True),
    NavigationEntry("Offers", "/offers", "tag", "For administrators", admin=True),
    NavigationEntry("Administration", "/admin", "shield", "For administrators", admin=True),
)
"""The navigation, from the top."""


def navigation_for(who: Principal) -> list[NavigationEntry]:
    """Return the navigation of a user."""
    return [entry for entry in NAVIGATION if who.is_admin or not entry.admin]


def current_entry(path: str) -> str:
    """Return the path of the entry that an address belongs to; empty for none."""
    if path.startswith("/requests/new"):
        return "/"
    found = [e.path for e in NAVIGATION if path == e.path or path.startswith(e.path + "/")]
    return max(found, key=len, default="")


THEMES = ("light", "dark")
"""Themes that a reader may choose instead of the system's."""

_FLASH = "tradewind_flash"
_FLASH_SECONDS = 60


@dataclass(frozen=True, slots=True)
class FlashMessage:
    """A message about what just happened, shown once at the top of the next page.

    Attributes:
        kind: ``good``, ``warn`` or ``bad``.
        text: One or two sentences.
    """

    kind: str
    text: str


def render(request: Request, who: Principal, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a page for a user who is signed in.

    Args:
        request: The call, for its path, cookies and session.
        who: The user, whose navigation it gets.
        template: Name of a template below ``templates/`` that extends ``base.html.j2``.
        status: HTTP status; 422 for a form that comes back with errors.
        values: What the template uses, besides ``who``, ``path``, ``entries``, ``current``, ``csrf_token``, ``flash``
            and ``theme``, which every page has. A name that is missing is an error, not an empty place.
    """
    flash = _flash_of(request)
    frame = {
        "who": who,
        "entries": navigation_for(who),
        "current": current_entry(request.url.path),
        "csrf_token": page_access.csrf_of(request),
        "flash": flash,
    }
    response = _answer(request, template, status, {**frame, **values})
    if flash is not None:
        response.delete_cookie(_FLASH)
    return response


def render_sign_in(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a page for somebody who is not signed in: without navigation."""
    return _answer(request, template, status, values)


def render_part(request: Request, who: Principal, template: str, **values: Any) -> HTMLResponse:
    """Render a piece of a page, which a script puts into the page that shows it: the template extends nothing."""
    frame = {"who": who, "csrf_token": page_access.csrf_of(request)}
    return _answer(request, template, 200, {**frame, **values})


def redirect(request: Request, path: str, text: str = "", kind: str = "good") -> RedirectResponse:
    """Redirect to another page of this server after a form was carried out.

    Args:
        request: The call.
        path: Where to, from ``/``; a way to another host leads to the first page instead.
        text: Message at the top of that page.
        kind: ``good``, ``warn`` or ``bad``.
    """
    response = RedirectResponse(safe_redirect_path(path), 303)
    if text:
        # It is shown as text, never as markup: a forged cookie changes no more than its own reader's page.
        secure = request.url.scheme == "https"
        value = quote(json.dumps([kind, text[:600]]))
        response.set_cookie(_FLASH, value, max_age=_FLASH_SECONDS, httponly=True, samesite="lax", secure=secure)
    return response


def theme_of(request: Request) -> str:
    """Return the colours that the reader chose; empty to follow the system."""
    chosen = request.cookies.get("tradewind_theme", "")
    return chosen if chosen in THEMES else ""


def _answer(request: Request, template: str, status: int, values: Mapping[str, Any]) -> HTMLResponse:
    text = environment().get_template(template).render(path=request.url.path, theme=theme_of(request), **values)
    # Pages show what belongs to somebody: no cache between keeps them, and "back" after signing out shows nothing.
    return HTMLResponse(text, status, {"Cache-Control": "no-store"})


def _flash_of(request: Request) -> FlashMessage | None:
    value = request.cookies.get(_FLASH)
    if not value:
        return None
    try:
        match json.loads(unquote(value)):
            case [str(kind), str(text)]:
                return FlashMessage(kind if kind in ("good", "warn", "bad") else "warn", text)
    except (ValueError, RecursionError):
        pass  # whatever another program of this host has put there
    return None


@cache
def environment() -> Environment:
    """Make the environment of the templates, once: every value is escaped, and one that is missing is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("tradewind.service.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(FILTERS)
    made.filters["anchor"] = _anchor
    made.globals["asset"] = assets().url
    made.globals["modules"] = assets().modules
    return made


def _anchor(text: str) -> str:
    """Make an id of HTML from any words."""
    return re.sub(r"[^a-z0-9]+", "-", str(text).lower()).strip("-") or "part"
