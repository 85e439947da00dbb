"""Signing in and out, the cookie, and what only pages of a session may do."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from argon2 import PasswordHasher
from fastapi.testclient import TestClient

from tradewind.errors import InputError, NotFoundError, SignInError, TooManyError
from tradewind.service.accounts import credentials, sessions
from tradewind.service.accounts.identity import Principal
from tradewind.service.accounts.sessions import BrowserSession
from tradewind.service.context import Context
from tradewind.service.settings import ServiceSettings

WORDS = "five boats in a row"
PLACE = "192.0.2.1"


@pytest.fixture
def settings() -> ServiceSettings:
    return ServiceSettings(session_hours=2, session_days=1)


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests that do not keep the tests waiting; test_passwords.py has the real ones."""
    hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    nobodys = hasher.hash("the password of nobody")
    monkeypatch.setattr(credentials, "_tools", lambda: (hasher, nobodys))


@pytest.fixture
def ann_signs_in(context: Context) -> Callable[..., BrowserSession]:
    """Signs the user ``ann``, of the tenant ``physics``, in."""
    context.accounts.add_user("ann", tenant="physics", password=WORDS)

    def sign_in(password: str = WORDS, address: str = PLACE, agent: str = "a browser") -> BrowserSession:
        return context.accounts.sign_in("ann", password, address, agent)

    return sign_in


@pytest.fixture
def session(ann_signs_in: Callable[..., BrowserSession]) -> BrowserSession:
    return ann_signs_in()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets so many seconds pass."""
    real, gone = time.time, [0.0]

    def pass_by(seconds: float) -> None:
        gone[0] += seconds

    monkeypatch.setattr(time, "time", lambda: real() + gone[0])
    return pass_by


def principal(context: Context, session: BrowserSession) -> Principal:
    return context.accounts.by_session(session.secret, PLACE)[0]


def test_a_session_finds_its_user_until_it_is_over(context: Context, session: BrowserSession) -> None:
    who, csrf = context.accounts.by_session(session.secret, "192.0.2.2")
    assert (who.name, who.role, who.tenant, who.address, csrf) == (
        "ann",
        "user",
        "physics",
        "192.0.2.2",
        session.csrf,
    )
    context.accounts.sign_out(session.secret)
    with pytest.raises(SignInError, match="not signed in"):
        context.accounts.by_session(session.secret)
    context.accounts.sign_out(session.secret)


def test_names_are_the_same_in_capitals(context: Context, session: BrowserSession) -> None:
    assert principal(context, context.accounts.sign_in(" ANN ", WORDS, PLACE)) == principal(context, session)


def test_a_cookie_that_was_made_up_is_nobodys(context: Context, session: BrowserSession) -> None:
    for secret in (
        "",
        "tw_session_",
        "tw_session_x",
        "x" * 100_000,
        "\x00",
        "'; DROP TABLE sessions",
        "tw_session_\ud800",
    ):
        with pytest.raises(SignInError):
            context.accounts.by_session(secret)
    assert principal(context, session).name == "ann"


def test_a_token_is_no_session_and_a_session_no_token(context: Context, session: BrowserSession) -> None:
    token = context.accounts.make_token(principal(context, session).user_id, "laptop")
    with pytest.raises(SignInError):
        context.accounts.by_session(token)
    with pytest.raises(SignInError):
        context.accounts.by_token(session.secret)


def test_an_unused_session_ends_and_a_used_one_lasts(
    context: Context, session: BrowserSession, later: Callable[[float], None]
) -> None:
    later(1.5 * 3600)
    assert principal(context, session).name == "ann"
    later(1.5 * 3600)
    assert principal(context, session).name == "ann"
    later(2.1 * 3600)
    with pytest.raises(SignInError):
        principal(context, session)


def test_every_session_ends_one_day(context: Context, session: BrowserSession, later: Callable[[float], None]) -> None:
    for _ in range(23):
        later(3600)
        assert principal(context, session).name == "ann"
    later(3601)
    with pytest.raises(SignInError):
        principal(context, session)


def test_only_the_digest_of_a_cookie_is_stored(context: Context, session: BrowserSession) -> None:
    (row,) = context.accounts.sessions(principal(context, session))
    assert row.agent == "a browser"
    assert session.secret not in repr(row)
    assert session.csrf not in repr(row)
    with context.database.read() as connection:
        dump = "\n".join(connection.connection.driver_connection.iterdump())  # type: ignore[union-attr]
    for secret in (session.secret, session.csrf, WORDS):
        assert secret not in dump


def test_each_sign_in_is_another_session(context: Context, ann_signs_in: Callable[..., BrowserSession]) -> None:
    """A session that somebody planted in the browser is not the one that the user gets (fixation)."""
    first, second = ann_signs_in(), ann_signs_in()
    assert len({first.secret, second.secret, first.csrf, second.csrf}) == 4
    assert principal(context, first) == principal(context, second)


def test_a_user_sees_and_ends_own_sessions_only(context: Context, ann_signs_in: Callable[..., BrowserSession]) -> None:
    here, there = ann_signs_in(), ann_signs_in()
    bob = context.accounts.add_user("bob", password=WORDS)
    mine = context.accounts.sessions(principal(context, here))
    stranger = Principal(bob.id, "bob", "user", "bob")
    for start in (mine[0].digest, mine[0].digest[:11], "", "%"):
        with pytest.raises(NotFoundError):
            context.accounts.end_session(stranger, start)
    context.accounts.end_session(principal(context, here), mine[0].digest[:16])
    assert len(context.accounts.sessions(principal(context, here))) == 1
    with pytest.raises(SignInError):
        principal(context, there)


def test_another_password_ends_other_sessions(context: Context, ann_signs_in: Callable[..., BrowserSession]) -> None:
    here, there = ann_signs_in(), ann_signs_in()
    who = principal(context, here)
    with pytest.raises(InputError, match="old password is wrong"):
        context.accounts.change_password(who, "not that one", "seven ships at sea", session=here.secret)
    with pytest.raises(InputError, match="fewer than 10"):
        context.accounts.change_password(who, WORDS, "short", session=here.secret)
    assert principal(context, there) == who
    context.accounts.change_password(who, WORDS, "seven ships at sea", session=here.secret)
    assert principal(context, here) == who
    with pytest.raises(SignInError):
        principal(context, there)
    with pytest.raises(SignInError):
        ann_signs_in()
    assert principal(context, ann_signs_in("seven ships at sea")) == who


def test_a_digest_of_weaker_days_is_renewed(context: Context, ann_signs_in: Callable[..., BrowserSession]) -> None:
    user = context.accounts.store.user_named("ann")
    weak = PasswordHasher(time_cost=2, memory_cost=8, parallelism=1).hash(WORDS)
    context.accounts.store.change(user.id, password=weak)
    ann_signs_in()
    assert "m=8,t=1," in str(context.accounts.store.user(user.id).password)
    assert principal(context, ann_signs_in()).name == "ann"


# ---------------------------------------------------------------------- guessing


def refused(context: Context, name: str, password: str, address: str = PLACE) -> str:
    with pytest.raises((SignInError, TooManyError)) as caught:
        context.accounts.sign_in(name, password, address)
    return str(caught.value)


def test_nothing_tells_which_names_there_are(context: Context, session: BrowserSession) -> None:
    context.accounts.add_user("robot")  # it has tokens only
    assert len({refused(context, name, "a wrong guess") for name in ("ann", "robot", "nobody", "' OR 1=1 --", "")}) == 1


def test_a_locked_user_is_told_so_only_with_the_password(context: Context, session: BrowserSession) -> None:
    context.accounts.store.change(context.accounts.store.user_named("ann").id, state="locked")
    assert refused(context, "ann", "a wrong guess") == refused(context, "nobody", "a wrong guess")
    assert "locked" in refused(context, "ann", WORDS)


def test_guessing_ends_after_ten_attempts(
    context: Context, ann_signs_in: Callable[..., BrowserSession], later: Callable[[float], None]
) -> None:
    for _ in range(10):
        assert "is wrong" in refused(context, "ann", "a wrong guess")
    assert "too many attempts" in refused(context, "Ann", WORDS)
    assert principal(context, ann_signs_in(address="198.51.100.9")).name == "ann"
    later(sessions.ATTEMPT_WINDOW + 1)
    assert principal(context, ann_signs_in()).name == "ann"


def test_names_that_nobody_has_are_counted_alike(context: Context) -> None:
    for _ in range(10):
        assert "is wrong" in refused(context, "nobody", "a wrong guess")
    assert "too many attempts" in refused(context, "nobody", "a wrong guess")


def test_the_right_password_forgives_wrong_ones(context: Context, ann_signs_in: Callable[..., BrowserSession]) -> None:
    for _ in range(3):
        for _ in range(9):
            refused(context, "ann", "a wrong guess")
        assert principal(context, ann_signs_in()).name == "ann"


@pytest.mark.slow
def test_one_address_cannot_try_all_names(context: Context) -> None:
    for number in range(100):
        assert "is wrong" in refused(context, f"user{number}", "a wrong guess", "2001:db8::1")
    assert "too many attempts" in refused(context, "user100", "a wrong guess", "2001:db8::2")
    assert "is wrong" in refused(context, "user100", "a wrong guess", "2001:db8:0:1::1")


@pytest.mark.slow
def test_many_addresses_cannot_try_one_name_and_do_not_lock_the_user_out(
    context: Context, ann_signs_in: Callable[..., BrowserSession]
) -> None:
    ann_signs_in()
    for number in range(100):
        refused(context, "ann", "a wrong guess", f"198.51.{number}.1")
    assert "too many attempts" in refused(context, "ann", WORDS, "203.0.113.1")
    assert principal(context, ann_signs_in()).name == "ann"  # from where there is a session already


def test_servers_of_one_database_count_together(context: Context, ann_signs_in: Callable[..., BrowserSession]) -> None:
    from tradewind.service.context import open_context

    other = open_context(context.settings, context.url, context.data_folder)
    try:
        for number in range(10):
            refused((context, other)[number % 2], "ann", "a wrong guess")
        assert "too many" in refused(other, "ann", WORDS)
        assert "too many" in refused(context, "ann", WORDS)
    finally:
        other.close()


# ---------------------------------------------------------------------- REST with the cookie


@pytest.mark.slow
def test_rest_takes_the_cookie_and_for_changes_the_proof(client: TestClient, session: BrowserSession) -> None:
    client.cookies.set("tradewind_session", session.secret)
    assert client.get("/api/v1/me").json()["name"] == "ann"
    change = {"email": "ann@example.org"}
    for headers in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "0" * 64}, {"X-CSRF-Token": session.secret}):
        answer = client.patch("/api/v1/me", json=change, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "service.forbidden")
    assert client.get("/api/v1/me").json()["email"] == ""
    answer = client.patch("/api/v1/me", json=change, headers={"X-CSRF-Token": session.csrf})
    assert answer.json()["email"] == "ann@example.org"


@pytest.mark.slow
def test_a_proof_is_of_one_session(
    client: TestClient, session: BrowserSession, ann_signs_in: Callable[..., BrowserSession]
) -> None:
    client.cookies.set("tradewind_session", session.secret)
    headers = {"X-CSRF-Token": ann_signs_in().csrf}
    assert client.delete("/api/v1/tokens/1", headers=headers).status_code == 403


def test_a_wrong_token_is_not_made_good_by_a_cookie(client: TestClient, session: BrowserSession) -> None:
    client.cookies.set("tradewind_session", session.secret)
    assert client.get("/api/v1/me", headers={"Authorization": "Bearer tw_x"}).status_code == 401


@pytest.mark.slow
def test_passwords_and_sessions_over_rest(client: TestClient, context: Context, session: BrowserSession) -> None:
    client.cookies.set("tradewind_session", session.secret)
    headers = {"X-CSRF-Token": session.csrf}
    there = context.accounts.sign_in("ann", WORDS, "192.0.2.77", "<another>\r\nbrowser" + "x" * 5000)
    shown = client.get("/api/v1/me/sessions").json()
    assert [row["address"] for row in shown] == ["192.0.2.77", PLACE]
    assert shown[0]["agent"].startswith("<another>browser")
    assert len(shown[0]["agent"]) <= 200
    assert client.delete(f"/api/v1/me/sessions/{shown[0]['id']}", headers=headers).status_code == 204
    assert client.delete(f"/api/v1/me/sessions/{shown[0]['id']}", headers=headers).status_code == 404
    with pytest.raises(SignInError):
        principal(context, there)
    wrong = client.put("/api/v1/me/password", json={"old": "no", "new": "seven ships at sea"}, headers=headers)
    assert wrong.status_code == 422  # the session goes on
    right = client.put("/api/v1/me/password", json={"old": WORDS, "new": "seven ships at sea"}, headers=headers)
    assert right.status_code == 204
    assert client.get("/api/v1/me").status_code == 200
