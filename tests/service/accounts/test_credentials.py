"""What a good password is, and how one is compared."""

from __future__ import annotations

import threading

import pytest
from argon2 import PasswordHasher

from tradewind.errors import InputError, TooManyError
from tradewind.service.accounts import credentials


@pytest.mark.parametrize("password", ["five boats in a row", "Zw8!rr02kQ", "длинный пароль моря", "paß-wort-länge"])
def test_a_good_password_is_taken(password: str) -> None:
    credentials.check_password(password, name="ann")
    assert credentials.verify_password(credentials.hash_password(password), password)


@pytest.mark.parametrize(
    ("password", "words"),
    [
        ("", "fewer than 10"),
        ("ninechars", "fewer than 10"),
        ("x" * 1025, "more than 1024"),
        ("ﷺ" * 600, "more than 1024"),  # each is 18 letters in its plain form
        ("Password123", "tried first"),
        ("ＰＡＳＳＷＯＲＤ１２３", "tried first"),  # wide letters are the same password
        ("aaaaaaaaaaaa", "tried first"),
        ("xyxyxyxyxyxyx", "tried first"),
        ("abcdefghijkl", "tried first"),
        ("margarethe12345", "tried first"),
    ],
)
def test_a_password_that_is_guessed_is_refused(password: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        credentials.check_password(password, name="margarethe")
    assert not password or password not in str(caught.value)


def test_another_password_does_not_match() -> None:
    kept = credentials.hash_password("five boats in a row")
    assert kept.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert "boats" not in kept
    assert kept != credentials.hash_password("five boats in a row")
    for wrong in ("five boats in a ro", "five boats in a row ", "", "x" * 5000, "\ud800"):
        assert not credentials.verify_password(kept, wrong)
    assert not credentials.verify_password("not a digest", "five boats in a row")


def test_keyboards_write_a_letter_differently() -> None:
    assert credentials.verify_password(credentials.hash_password("caf\u00e9 am Hafen"), "cafe\u0301 am Hafen")


def test_nobodys_password_takes_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who measures the time must not learn which names there are."""
    seen: list[str] = []
    verify = PasswordHasher.verify

    def counted(self: PasswordHasher, kept: str, password: str | bytes) -> bool:
        seen.append(kept.rsplit("$", 2)[0])
        return verify(self, kept, password)

    monkeypatch.setattr(PasswordHasher, "verify", counted)
    kept = credentials.hash_password("five boats in a row")
    assert not credentials.verify_password(None, "the password of nobody")
    assert not credentials.verify_password(kept, "another one")
    assert seen == ["$argon2id$v=19$m=19456,t=2,p=1"] * 2


def test_a_digest_of_weaker_days_is_known() -> None:
    weak = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("five boats in a row")
    assert credentials.needs_rehash(weak)
    assert credentials.verify_password(weak, "five boats in a row")
    assert not credentials.needs_rehash(credentials.hash_password("five boats in a row"))


def test_only_so_many_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of the server are for others as well."""
    monkeypatch.setattr(credentials, "_ROOM", threading.BoundedSemaphore(1))
    with credentials._turn(), pytest.raises(TooManyError, match="at this moment") as caught:
        credentials.verify_password(None, "anything")
    assert caught.value.wait > 0
    assert not credentials.verify_password(None, "anything")
