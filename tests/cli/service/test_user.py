"""``tradewind user``, as an administrator types it on the server's machine."""

from __future__ import annotations

import getpass
import io
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from tradewind.cli.app import run
from tradewind.cli.service.common import require_service
from tradewind.errors import MissingProgramError, SignInError
from tradewind.service.accounts.account_service import AccountService
from tradewind.service.accounts.audit_log import AuditLog
from tradewind.service.accounts.identity import Principal
from tradewind.store.sql.database import Database

WORDS = "five boats in a row"
ROOT = Principal(0, "somebody", "admin", "")


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The store that the commands use, open."""
    url = f"sqlite:///{tmp_path}/service.db"
    monkeypatch.setenv("TRADEWIND_STORE", url)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with closing(Database(url, busy_timeout=10.0)) as opened:
        yield opened


@pytest.fixture
def accounts(database: Database) -> AccountService:
    """What a server would make of what the commands have done."""
    return AccountService(database)


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """What a command prints."""
    assert run(["user", *words]) == code, capsys.readouterr().err
    printed = capsys.readouterr()
    return printed.err if code else printed.out


def document(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(said(capsys, *words, "--json"))


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> list[str]:
    """Sit before a terminal and type; the questions that were asked."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    asked: list[str] = []
    answers = list(lines)

    def answer(question: str = "") -> str:
        asked.append(question)
        return answers.pop(0)

    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    monkeypatch.setattr(getpass, "getpass", answer)
    return asked


def test_the_first_administrator(capsys: pytest.CaptureFixture[str], accounts: AccountService) -> None:
    assert said(capsys, "list") == "There is no user yet: tradewind user add NAME --admin\n"
    lines = said(capsys, "add", "root", "--admin", "--token", "laptop").splitlines()
    assert lines[0] == "root is an administrator of the tenant root"
    who = accounts.by_token(lines[-1])
    assert (who.name, who.role, who.tenant) == ("root", "admin", "root")
    (token,) = accounts.tokens(who)
    assert token.name == "laptop"


@pytest.mark.slow
def test_a_password_is_asked_for_twice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, accounts: AccountService
) -> None:
    asked = typed(monkeypatch, WORDS, WORDS)
    said(capsys, "add", "ann", "--tenant", "physics", "--email", "ann@example.org")
    assert asked == ["Password (empty for none, tokens only): ", "The same once more: "]
    assert accounts.by_session(accounts.sign_in("ann", WORDS, "::1").secret)[0].tenant == "physics"
    typed(monkeypatch, "seven ships at sea", "seven ships at see")
    assert "the two passwords differ" in said(capsys, "password", "ann", code=3)
    typed(monkeypatch, "seven ships at sea", "seven ships at sea")
    assert "must sign in again" in said(capsys, "password", "ann")
    assert accounts.sign_in("ann", "seven ships at sea", "::1").secret


@pytest.mark.slow
def test_a_name_that_is_taken_is_refused_before_the_password_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said(capsys, "add", "ann", "--no-password")
    asked = typed(monkeypatch)
    assert "there is a user 'ann' already" in said(capsys, "add", "Ann", code=16)
    assert "no name of a user" in said(capsys, "add", "a b", code=3)
    assert "no name of a tenant" in said(capsys, "add", "eve", "--tenant", "a/b", code=3)
    assert "1 to 100 characters" in said(capsys, "add", "eve", "--token", "", code=3)
    assert asked == []
    assert [user["name"] for user in document(capsys, "list")] == ["ann"]


@pytest.mark.slow
def test_a_password_comes_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, accounts: AccountService
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{WORDS}\r\nmore\n"))
    shown = document(capsys, "add", "ann", "--password-stdin")
    assert shown == {
        "name": "ann",
        "role": "user",
        "tenant": "ann",
        "email": "",
        "state": "active",
        "created": shown["created"],
        "password": True,
    }
    assert accounts.sign_in("ann", WORDS, "::1").secret
    monkeypatch.setattr(sys, "stdin", io.StringIO("short\n"))
    assert "fewer than 10" in said(capsys, "password", "ann", "--password-stdin", code=3)
    assert "write --password-stdin" in said(capsys, "password", "ann", code=3)
    assert "there is no such user" in said(capsys, "password", "bob", "--password-stdin", code=16)


@pytest.mark.slow
def test_tokens_are_made_listed_and_taken_away(capsys: pytest.CaptureFixture[str], accounts: AccountService) -> None:
    said(capsys, "add", "ann")
    first = said(capsys, "token", "ann", "--name", "laptop", "--days", "30").splitlines()[-1]
    second = document(capsys, "token", "ann")
    assert (second["user"], second["name"]) == ("ann", "command line")
    assert accounts.by_token(second["token"]).name == accounts.by_token(first).name == "ann"
    table = said(capsys, "token", "ann", "--list")
    assert "laptop" in table
    assert first not in table
    rows = document(capsys, "token", "ann", "--list")
    assert [row["name"] for row in rows] == ["command line", "laptop"]
    assert said(capsys, "revoke", "ann", str(rows[1]["id"])) == "1 token of ann taken away\n"
    with pytest.raises(SignInError):
        accounts.by_token(first)
    assert accounts.by_token(second["token"]).name == "ann"
    assert "there is no such token" in said(capsys, "revoke", "ann", str(rows[1]["id"]), code=16)
    assert "say which token" in said(capsys, "revoke", "ann", code=3)
    assert "both be given" in said(capsys, "revoke", "ann", "1", "--all", code=3)
    assert document(capsys, "revoke", "ann", "--all") == {"user": "ann", "revoked": 1}
    assert said(capsys, "token", "ann", "--list") == "There is no token.\n"
    assert "0.0" not in said(capsys, "token", "ann", "--days", "-1", code=3)


@pytest.mark.slow
def test_locking_roles_and_removing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, accounts: AccountService
) -> None:
    said(capsys, "add", "root", "--admin")
    secret = said(capsys, "add", "ann", "--token", "laptop").splitlines()[-1]
    assert said(capsys, "lock", "ann") == "ann is locked, a user of the tenant ann\n"
    with pytest.raises(SignInError):
        accounts.by_token(secret)
    assert document(capsys, "unlock", "ann")["state"] == "active"
    assert accounts.by_token(secret).name == "ann"
    assert "last administrator" in said(capsys, "role", "root", "user", code=16)
    assert said(capsys, "role", "ann", "admin") == "ann is an administrator of the tenant ann\n"
    assert "'king' is no role" in said(capsys, "role", "ann", "king", code=3)
    assert document(capsys, "role", "root", "user")["role"] == "user"
    assert "write --yes" in said(capsys, "remove", "root", code=3)
    typed(monkeypatch)
    assert said(capsys, "remove", "root").endswith("root is removed\n")
    assert "there is no such user" in said(capsys, "remove", "root", "--yes", code=16)
    assert [user["name"] for user in document(capsys, "list")] == ["ann"]


def test_what_the_command_line_does_is_in_the_audit_log(capsys: pytest.CaptureFixture[str], database: Database) -> None:
    said(capsys, "add", "root", "--admin", "--token", "laptop")
    said(capsys, "token", "root")
    log = AuditLog(database, 400).page(ROOT)
    assert [(row.action, row.subject) for row in log] == [
        ("token.make", "user root"),
        ("token.make", "user root"),
        ("user.add", "user root"),
    ]
    assert {row.user for row in log} == {f"{getpass.getuser()} (command line)"}


def test_options_that_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot both be given" in said(capsys, "add", "ann", "--password-stdin", "--no-password", code=3)
    assert "--days is for a token" in said(capsys, "add", "ann", "--days", "3", code=3)
    assert said(capsys, "list") == "There is no user yet: tradewind user add NAME --admin\n"


@pytest.mark.slow
def test_the_service_asks_for_whatever_its_extra_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[>=<; ]", one)[0] for one in project["optional-dependencies"]["service"]}
    named = {name for name, by in packages_distributions().items() for one in by if one.lower() in wanted}
    assert {"fastapi", "httpx2"} <= named
    for name in named - {"python_multipart"}:  # which is multipart under its newer name
        with monkeypatch.context() as patch, pytest.raises(MissingProgramError) as caught:
            patch.setitem(sys.modules, name, None)
            require_service()
        assert caught.value.hint == "pip install 'tradewind[service]'"
