"""Hides passwords in addresses of databases, servers and proxies, before anybody reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, unquote_plus

MASK = "***"
"""Sign that stands for a password."""

_SECRETS = re.compile(
    "password|passwd|passphrase|passcode|pwd|secret|token|apikey|accesskey|privatekey|credential|signature"
)
"""Words, in letters and digits, that the name of an option has whose value is a password or the like."""

_WHOLE = frozenset({"auth", "key", "pass", "pw", "sig"})
"""Names of such options that are parts of many others."""

_USER = re.compile(r"([^:/]*?)(?::|%3[Aa])")
"""The user of a login. Whatever else stands before the last ``@`` is the password, which may have any sign in it."""

_DIGEST = re.compile(r"@sha(?:256|512):[0-9a-f]+$")
"""What an image of a container ends with, and no host."""

_SIX = re.compile(r"\[[0-9A-Fa-f:.]+(?:%\w+)?\](?::\d{1,5})?(?:[/?#]|$)")
"""A host that is an IPv6 address."""

_PORT = re.compile(r"[^:/?#@]*:\d{1,5}(?:[/?#]|$)")
_TOKEN = re.compile(r"[^/?#@]+@")
_OPTION = re.compile(r"(?<=[?&;])([^?&;=]+)=")
_STOP = re.compile("[?&;]")
_DEEPEST = 8
"""Addresses within options of addresses, each within the next, that are read at most; what is deeper is hidden."""

_MEANT = r"(?:\$[A-Z_][A-Z0-9_]*|\$\{[^{}\s]{1,99}\}?|\$\([^()]{1,99}\)?|\{\{[^{}]{1,99}\}{0,2})"
"""A variable, a command or a parameter, of which a shell or this program makes the password later; its last sign may
have been taken for one that follows an address."""

_VALUE = re.compile(_MEANT)
_WORD = re.compile(
    r"(?<![\w?&;=])([A-Za-z_]*(?:password|passwd))(\s*=\s*)"
    rf"(?!\*\*\*|(?:env|file|keyring):|(?-i:['\"]?{_MEANT}['\"]?(?:[\s;)'\"]|$)))"
    r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s;]+)",
    re.IGNORECASE,
)
"""``password=word`` among words, as PostgreSQL's library takes it; a reference to a secret is none."""

_VARIABLE = re.compile(r"PASSWORD$|PASSWD$|PASSPHRASE$|(?:^|_)(?:SECRET|TOKEN|API_?KEY|ACCESS_KEY)$")
"""Names of variables of an environment that hold a password or the like."""

_REFERENCE = re.compile(r"(?:env|file|keyring):")

_HOST = re.compile(r"(\bhost(?:name)?(?: name)? [\"'])[^\"'\s]*@")
"""A host that a driver has found in a password with an ``@``: no name of a host has one."""

_ADDRESS = re.compile(r"(?<![A-Za-z0-9+.\-])[A-Za-z0-9+.\-]+://[^\s<>]*[^\s<>'\"`,.;:)\]}]")
_SHORTEST = 4
"""A shorter password would be found in every text; by itself it is left alone."""

_Note = Callable[[str], None]


def hide_password(address: str) -> str:
    """Write an address as it may be shown: without the passwords in it, wherever they stand.

    Args:
        address: ``scheme://user:password@host/name?password=word``, also without its scheme, or ``host=name
            password=word``; anything else stays as it is.
    """
    return _shown(address, lambda _: None)


def hide_passwords(text: str, *addresses: str) -> str:
    """Write a text as it may be shown: each address in it without its passwords.

    Args:
        text: What another program says, or a text with addresses that a user wrote.
        addresses: Addresses whose passwords may stand in the text by themselves.
    """
    for address in addresses:
        for word in sorted(passwords_of(address), key=len, reverse=True):
            text = text.replace(word, MASK) if len(word) >= _SHORTEST else text
    if "://" in text:
        text = _ADDRESS.sub(lambda found: hide_password(found[0]), text)
    text = _HOST.sub(rf"\1{MASK}@", text) if "@" in text else text
    return _WORD.sub(rf"\1\2{MASK}", text) if "=" in text else text


def passwords_of(address: str) -> list[str]:
    """List the passwords of an address, as they are written and as they are meant.

    Args:
        address: As `hide_password` takes it.
    """
    found: list[str] = []
    _shown(address, found.append)
    return [word for word in dict.fromkeys(form for each in found for form in (each, unquote(each))) if word]


def hide_in_document(document: Any, note: Callable[[str], None] = lambda _: None) -> Any:
    """Write a JSON document as it may be shown: its texts without passwords, and environments without theirs.

    Args:
        document: The document.
        note: It is called with each password.
    """
    if isinstance(document, str):
        for found in _ADDRESS.finditer(document):
            for word in passwords_of(found[0]):
                note(word)
        for found in _WORD.finditer(document):
            note(found[3].strip("'\""))
        return hide_passwords(document)
    if isinstance(document, Mapping):
        return {key: _hidden_value(str(key), value, note) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [hide_in_document(value, note) for value in document]
    return document


def _hidden_value(key: str, value: Any, note: Callable[[str], None]) -> Any:
    if not isinstance(value, str) or not _VARIABLE.search(key) or not value:
        return hide_in_document(value, note)
    if _REFERENCE.match(value) or _VALUE.fullmatch(value):
        return hide_in_document(value, note)
    note(value)
    return MASK


def is_secret(name: str) -> bool:
    """Test that an option of this name holds a password or the like.

    Args:
        name: ``sslpassword``, ``PGPASSWORD``, ``api_key``, ``X-Amz-Signature``, each also percent-encoded.
    """
    plain = re.sub(r"[^a-z0-9]", "", unquote_plus(name).casefold())
    return plain in _WHOLE or _SECRETS.search(plain) is not None


def _shown(address: str, note: _Note, depth: int = 0) -> str:
    scheme, sign, rest = address.partition("://")
    if sign and not rest.startswith("/"):
        rest = _without_login(scheme.lower(), rest, note)
    if sign:
        return scheme + sign + _without_options(rest, note, depth)
    for found in _WORD.finditer(address):
        note(found[3].strip("'\""))
    return _WORD.sub(rf"\1\2{MASK}", _without_login("", address, note) if "/" not in address.split("@")[0] else address)


def _without_login(scheme: str, rest: str, note: _Note) -> str:
    kinds = re.split("[^a-z]+", scheme)
    web = any(kind.startswith(("http", "git", "ws")) for kind in kinds) and "ssh" not in kinds
    if _SIX.match(rest) or (web and _PORT.match(rest)):
        return rest
    image = _DIGEST.search(rest)
    login, sign, host = rest[: image.start() if image else len(rest)].rpartition("@")
    host += image[0] if image else ""
    if sign and (found := _USER.match(login)) is not None:
        word = login[found.end() :]
        if _VALUE.fullmatch(word):
            return rest
        note(word)
        return f"{found[1]}:{MASK}@{host}"
    if web and (token := _TOKEN.match(rest)) is not None:  # it stands without a password
        note(token[0][:-1])
        return f"{MASK}@{rest[token.end() :]}"
    return rest


def _without_options(text: str, note: _Note, depth: int) -> str:
    parts, at, last = list[str](), 0, -1
    while (found := _OPTION.search(text, at)) is not None:
        start = found.end()
        parts.append(text[at:start])
        if last < start:  # where its value ends at the latest
            last = text.find("&", start)
            last = len(text) if last < 0 else last
        at, hidden = last, is_secret(found[1]) and not _VALUE.fullmatch(text, start, last)
        if hidden:
            note(text[start:at])
            parts.append(MASK)
            continue
        stop = _STOP.search(text, start)
        if stop is not None and "://" not in unquote_plus(text[start : stop.start()]):
            at = stop.start()
        parts.append(_without_inner(text[start:at], note, depth + 1))
    return "".join(parts) + text[at:]


def _without_inner(value: str, note: _Note, depth: int) -> str:
    meant = unquote_plus(value)
    is_address = "://" in meant
    if not is_address and _OPTION.search(f";{meant}") is None:
        return value
    if depth > _DEEPEST:
        return MASK
    within = _shown(meant, note, depth) if is_address else _without_options(f";{meant}", note, depth)[1:]
    if within == meant:
        return value
    return within if meant == value else MASK
