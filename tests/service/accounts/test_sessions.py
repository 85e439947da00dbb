"""Signing in, the cookie, and what only pages of a session may do."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from tradewind.errors import SignInError
from tradewind.service.accounts.sessions import Session
from tradewind.service.context import Context

WORDS = "five boats in a row"


@pytest.fixture
def session(context: Context) -> Session:
    """A session of the user ``ann``, of the tenant ``physics``."""
    context.accounts.add_user("ann", tenant="physics", password=WORDS)
    return context.accounts.sign_in("ann", WORDS, "192.0.2.1", "a browser")


def test_a_session_finds_its_user_until_it_is_over(context: Context, session: Session) -> None:
    who, csrf = context.accounts.by_session(session.secret, "192.0.2.2")
    assert (who.name, who.tenant, who.address, csrf) == ("ann", "physics", "192.0.2.2", session.csrf)
    context.accounts.sign_out(session.secret)
    with pytest.raises(SignInError, match="not signed in"):
        context.accounts.by_session(session.secret)


def test_rest_takes_the_cookie(client: TestClient, session: Session) -> None:
    client.cookies.set("tradewind_session", session.secret)
    assert client.get("/api/v1/me").json()["name"] == "ann"
