"""A browser without a screen: keeps its cookies, and sends the proof of its session along."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient
from tests.service.web.sample_server import PASSWORD

from tradewind.service.app import create_app
from tradewind.service.context import Context
from tradewind.service.http.session_cookies import csrf_token_of

PAGE = {"Accept": "text/html,application/xhtml+xml"}


_APPS: dict[int, FastAPI] = {}


class Visitor:
    """Somebody who looks at pages.

    Args:
        context: What the server's parts share.
        name: Who; empty for nobody.
    """

    def __init__(self, context: Context, name: str = "") -> None:
        app = _APPS.get(id(context))
        if app is None:
            app = _APPS[id(context)] = create_app(context)
        self.client = TestClient(app, base_url="http://tradewind.test", follow_redirects=False)
        self.csrf = ""
        if name:
            session = context.accounts.sign_in(name, PASSWORD, "192.0.2.1", "test")
            self.client.cookies.set("tradewind_session", session.secret)
            self.csrf = csrf_token_of(session.secret)

    def get(self, path: str, **headers: str) -> Any:
        """A page."""
        return self.client.get(path, headers={**PAGE, **headers})

    def post(self, path: str, data: Mapping[str, Any] | None = None, *, csrf: str | None = None, **more: Any) -> Any:
        """What a form sends."""
        fields = {"csrf": self.csrf if csrf is None else csrf, **(data or {})}
        return self.client.post(path, data=fields, headers=PAGE, **more)


def words(html: str) -> str:
    """What a page says, without its markup."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", html)))
