"""Identities: the caller of a function, names of users and tenants, and addresses that calls come from."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from dataclasses import dataclass

from tradewind.errors import InputError
from tradewind.store.service.accounts import Role

ROLES: tuple[Role, ...] = ("admin", "user")


@dataclass(frozen=True, slots=True)
class Principal:
    """The user who calls a function of the service; results hold no more than this user may see.

    Attributes:
        user_id: Number of the user; 0 for the command line on the server's own machine.
        name: The user's name.
        role: ``admin`` or ``user``.
        tenant: Tenant whose requests, studies and applications the user sees and makes.
        address: Where the call came from, for the audit log; empty for the command line.
    """

    user_id: int
    name: str
    role: Role
    tenant: str
    address: str = ""

    @property
    def is_admin(self) -> bool:
        """True for a user who sees all tenants and may change settings."""
        return self.role == "admin"

    @property
    def sees(self) -> str | None:
        """The one tenant visible to the user; None for all."""
        return None if self.is_admin else self.tenant

    def may_see(self, tenant: str) -> bool:
        """True where things of a tenant are visible to this user."""
        return self.is_admin or tenant == self.tenant


MAX_NAME_LENGTH = 64
"""Characters of a name at most."""


def normalize_name(name: str) -> str:
    """Normalize a name for comparison: capitals and ways to write the same letter make no difference."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).strip()


def lookup_name(name: str) -> str:
    """Normalize a name to look for; empty where nobody can have it."""
    try:
        return check_name(name)
    except InputError:
        return ""


def check_name(name: str, what: str = "user") -> str:
    """Check a name, and return it as it is kept.

    Args:
        name: As it was typed.
        what: Whose name it is, for the message.

    Raises:
        InputError: It is no name: a letter or digit, then letters of the same alphabet, digits, and ``. _ - @``.
    """
    kept = normalize_name(name[: MAX_NAME_LENGTH + 1])
    shown = repr(name if len(name) <= 40 else name[:40] + "...")
    if not kept or len(name) > MAX_NAME_LENGTH or len(kept) > MAX_NAME_LENGTH:
        raise InputError(f"{shown} is no name of a {what}", hint=f"write 1 to {MAX_NAME_LENGTH} characters")
    if not kept[0].isalnum() or not all(c in "._-@" or unicodedata.category(c)[0] in "LMN" for c in kept):
        raise InputError(
            f"{shown} is no name of a {what}", hint="write letters and digits, and . _ - @ after the first of them"
        )
    alphabets = {unicodedata.name(c, "?").split()[0] for c in kept if c.isalpha()}
    if len(alphabets) > 1 and alphabets & {"LATIN", "CYRILLIC", "GREEK"}:
        raise InputError(f"{shown} mixes letters of several alphabets", hint="they look like those of another name")
    return kept


def check_email(address: str) -> str:
    """Check an e-mail address, and return it as it is kept; empty for none.

    Raises:
        InputError: It is none.
    """
    address = address.strip()
    if address != clean_text(address, 300) or (
        address
        and (len(address) > 254 or not re.fullmatch(r"[^\s@,;<>\"\x00-\x20\x7f]+@[^\s@,;<>\"\x00-\x20\x7f]+", address))
    ):
        raise InputError(f"{address[:60]!r} is no e-mail address", hint="write one like ann@example.org")
    return address


def network_of(address: str) -> str:
    """Group an address for counting attempts: of IPv6 the network of 64 bits, which one customer has."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "?"
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


def clean_text(text: str, most: int = 200) -> str:
    """Clean a word of a header or a form for display: no control characters, not long."""
    return "".join(c for c in text[:most] if unicodedata.category(c)[0] != "C")
