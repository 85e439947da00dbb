"""Tokens of servers on this machine: what ``tradewind login`` keeps, and the environment's."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from tradewind.errors import InputError, SignInError
from tradewind.utils.atomic_files import write_atomically
from tradewind.utils.paths import data_folder

TOKEN = "TRADEWIND_TOKEN"  # noqa: S105  (the name of a variable)
"""The environment's variable with a token; it is taken before one that a login kept."""


def tokens_file() -> Path:
    """Path of the file with the tokens of ``tradewind login``."""
    return data_folder() / "tokens.json"


def kept_tokens() -> dict[str, str]:
    """The tokens that were kept, by the server's address.

    Raises:
        InputError: The file is damaged, or others may read it.
    """
    file = tokens_file()
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_mode & 0o077:
                raise InputError(f"others may read the tokens in {file}", hint=f"chmod 600 {file}")
            found = json.load(opened)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"the tokens in {file} cannot be read: {error}", hint="remove it, and log in again") from None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise InputError(f"the tokens in {file} cannot be read", hint="remove it, and log in again")
    return found


def keep_tokens(kept: Mapping[str, str]) -> None:
    """Write the file of tokens, for this user alone; a reader sees the old or the new one.

    Raises:
        InputError: It cannot be written.
    """
    file = tokens_file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(file, json.dumps(dict(kept), indent=1), mode=0o600)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror or error}") from error


def plain_address(url: str) -> str:
    """A server's address as tokens are kept by it."""
    return url.strip().rstrip("/")


def token_for(url: str) -> str:
    """The token that this user of the machine has for a server: the environment's, else the login's.

    Args:
        url: The server's address.

    Raises:
        SignInError: There is none.
        InputError: The file of tokens is damaged, or others may read it.
    """
    address = plain_address(url)
    token = os.environ.get(TOKEN, "").strip() or kept_tokens().get(address, "")
    if not token:
        raise SignInError(
            f"there is no token for {address}", hint=f"tradewind login {address}, or set {TOKEN} in the environment"
        )
    return token
