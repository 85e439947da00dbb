"""Passwords and secrets: rules for good passwords, hashing, and comparison.

They are kept as Argon2id (RFC 9106) with 19 MiB, two passes and one lane: what OWASP's Password Storage Cheat Sheet
asks for at least, so that signing in does not take the machine from everybody else for long.
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from tradewind.errors import InputError, MissingProgramError, TooManyError
from tradewind.utils.dependencies import install_command

if TYPE_CHECKING:
    from argon2 import PasswordHasher


TOKEN_PREFIX = "tw_"  # noqa: S105  (no secret)
"""Begins every token, so that a scanner of source code recognises one that was committed."""


def new_secret(prefix: str = TOKEN_PREFIX) -> str:
    """Generate a secret of 256 random bits."""
    return prefix + secrets.token_urlsafe(32)


def secret_digest(secret: str) -> str:
    """Hash a secret for storage; it has 256 bits of its own, so that a plain hash cannot be searched."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


MIN_PASSWORD_LENGTH = 10
"""Characters that a password has at least."""

MAX_PASSWORD_LENGTH = 1024
"""Characters that a password has at most: hashing takes longer with the length."""

_COMMON = frozenset(  # tried first, and long enough
    """
    1234567890 0123456789 0987654321 12345678910 123456789a a123456789 1q2w3e4r5t 1qaz2wsx3edc q1w2e3r4t5 qwertyuiop
    qwerty1234 qwerty12345 qwerty123456 qwertyuiop123 asdfghjkl1 asdfghjkl; zxcvbnm123 passwordpassword password12
    password123 password1234 passw0rd123 p@ssw0rd123 p@ssword123 mypassword letmein123 letmein1234 iloveyou12
    iloveyou123 welcome123 welcome1234 administrator admin12345 admin123456 adminadmin changeme123 changemenow
    basketball football123 baseball12 superman123 princess123 sunshine123 starwars123 correcthorse
    correcthorsebatterystaple correct-horse-battery-staple tradewind1 tradewind123 trustno1trustno1 whatever123
    йцукенгшщз йцукен12345 пароль1234 пароль12345 парольпароль
    """.split()  # noqa: SIM905  (one can read it so)
)
_AT_ONCE = 2  # each takes a core
_MOST_WAITING = 12  # well below the threads that the rest of the server answers with
_TURN = threading.BoundedSemaphore(_AT_ONCE)
_ROOM = threading.BoundedSemaphore(_AT_ONCE + _MOST_WAITING)


def check_password(password: str, *, name: str = "") -> None:
    """Refuse a password that is easily guessed.

    Args:
        password: What the user wants.
        name: The user's name, which does not do as a password.

    Raises:
        InputError: It is too short or too long, common, or a repetition.
    """
    plain = unicodedata.normalize("NFKC", password).casefold()
    if len(plain) < MIN_PASSWORD_LENGTH:
        raise InputError(
            f"the password has fewer than {MIN_PASSWORD_LENGTH} characters", hint="several words make a good one"
        )
    if len(password) > MAX_PASSWORD_LENGTH or len(plain) > MAX_PASSWORD_LENGTH:
        raise InputError(f"the password has more than {MAX_PASSWORD_LENGTH} characters")
    if plain in _COMMON or _repeats(plain) or (name and plain.replace(name.casefold(), "").strip("0123456789!") == ""):
        raise InputError("the password is one that is tried first", hint="several words make a good one")


def hash_password(password: str) -> str:
    """Hash a password for storage, with Argon2id."""
    hasher, _ = _tools()
    with _turn():
        return hasher.hash(_bytes(password))


def verify_password(kept: str | None, password: str) -> bool:
    """Compare a password with its hash; without a hash, comparing takes as long and gives False.

    Raises:
        TooManyError: So many are being compared that this one is not even begun.
    """
    from argon2.exceptions import InvalidHashError, VerificationError

    if len(password) > MAX_PASSWORD_LENGTH:
        kept, password = None, ""
    hasher, nobodys = _tools()
    with _turn():
        try:
            return hasher.verify(kept or nobodys, _bytes(password)) and kept is not None
        except (VerificationError, InvalidHashError):
            return False


def needs_rehash(kept: str) -> bool:
    """True where a password was hashed with weaker parameters than today's."""
    return _tools()[0].check_needs_rehash(kept)


def _bytes(password: str) -> bytes:
    # Keyboards differ in how they write the same letter. A lone surrogate is no letter, and no UTF-8.
    return unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")


def _repeats(plain: str) -> bool:
    """True for a short piece repeated again and again, or letters in a row."""
    pieces = any(plain == (plain[:size] * len(plain))[: len(plain)] for size in range(1, 4))
    return pieces or all(ord(b) - ord(a) == 1 for a, b in itertools.pairwise(plain))


@contextmanager
def _turn() -> Iterator[None]:
    if not _ROOM.acquire(blocking=False):
        raise TooManyError("too many people sign in at this moment", hint="try again in a few seconds", wait=3.0)
    try:
        with _TURN:
            yield
    finally:
        _ROOM.release()


@cache
def _tools() -> tuple[PasswordHasher, str]:
    """Make the hasher, and the hash compared with where a user has none: the first call must not take longer."""
    try:
        from argon2 import PasswordHasher
    except ImportError as error:
        raise MissingProgramError("passwords need the package argon2-cffi", hint=install_command("service")) from error
    hasher = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
    return hasher, hasher.hash(b"the password of nobody")
