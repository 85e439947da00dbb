"""Passwords in addresses: hidden wherever they stand, and nothing else is."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import sqlalchemy as sa
from hypothesis import example, given
from hypothesis import strategies as st

from tradewind.errors import InputError, StoreError
from tradewind.passwords import MASK, hide_in_document, hide_password, hide_passwords, is_secret, passwords_of

SCHEMES = st.sampled_from(["postgresql", "postgresql+psycopg", "mysql+pymysql", "redis", "http", "https", "amqp"])
KEYS = st.sampled_from(
    ["password", "PASSWORD", "sslpassword", "PGPASSWORD", "passwd", "pwd", "pass", "api_key", "access-key", "token",
     "X-Amz-Signature", "sig", "key", "client.secret"]
)  # fmt: skip
PASSWORDS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1).map(lambda s: f"Zq{s}qZ")
"""Words that stand nowhere else in an address; any sign may be in them."""


@given(SCHEMES, PASSWORDS, st.booleans(), st.sampled_from(["", "user", "user@corp", "u%20v"]))
@example("postgresql", "Zq@/?#:%qZ", False, "user@corp")
@example("http", "Zq:1/xqZ", True, "")
def test_the_password_of_a_login_is_hidden(scheme: str, password: str, encoded: bool, user: str) -> None:
    written = quote(password, safe="") if encoded else password
    address = f"{scheme}://{user}:{written}@host:5432/name?application_name=me"
    assert hide_password(address) == f"{scheme}://{user}:{MASK}@host:5432/name?application_name=me"
    assert {written, password} <= {*passwords_of(address), password if encoded else written}
    shown = hide_passwords(f"the store {address} failed: login of {password} at {address}, no", address)
    assert password not in shown
    assert written not in shown


@given(SCHEMES, KEYS, PASSWORDS, st.sampled_from(["?", "?a=b&", "?a=b;"]))
@example("postgresql", "password", "Zq#;?=qZ", "?")
def test_the_password_of_an_option_is_hidden(scheme: str, key: str, password: str, before: str) -> None:
    for name in (key, quote(key, safe=""), "".join(f"%{ord(sign):02X}" for sign in key)):
        for written in {quote_plus(password), password.replace("&", ""), quote(password, safe="")}:
            address = f"{scheme}://user@host/name{before}{name}={written}&connect_timeout=3"
            shown = hide_password(address)
            assert shown.startswith(f"{scheme}://{'***' if scheme.startswith('http') else 'user'}@host/name?")
            assert shown.endswith(f"={MASK}&connect_timeout=3")
            assert "Zq" not in shown


@given(st.text(max_size=60))
@example("postgresql://:@")
@example("http://@/?=&;==")
def test_hiding_twice_changes_nothing_more(text: str) -> None:
    for address in (text, f"postgresql://{text}", f"http://u:{text}@h?{text}"):
        once = hide_password(address)
        assert hide_password(once) == once
        assert hide_passwords(hide_passwords(address)) == hide_passwords(address)


@given(st.text(max_size=40), st.text(max_size=40))
def test_what_sqlalchemy_takes_for_a_password_is_hidden(user: str, password: str) -> None:
    """Of an address as users write it, with any sign in it, as SQLAlchemy reads it."""
    written = f"postgresql://{user}:Zq{password}qZ@host/name?sslpassword=Zq{password}Zq"
    try:
        parsed = sa.make_url(written)
    except (sa.exc.ArgumentError, ValueError):
        assert "Zq" not in hide_password(written) or ":Zq" not in written.partition("://")[2].partition("@")[0]
        return
    shown = hide_password(written)
    if parsed.password:
        assert str(parsed.password) not in shown or len(str(parsed.password)) < 3


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("sqlite:////home/a:b@c/optuna.db", None),
        ("sqlite:///C:/data/x@y.db", None),
        ("postgresql://user@host:5432/name", None),
        ("https://host:8443/path?mail=a@b.org", None),
        ("https://host/path?max=3&page=2#part", None),
        ("results/password/3.csv", None),
        ("optuna.db#study", None),
        ("ssh://user@host:22", None),
        ("https://ghp_token@github.com/x.git", "https://***@github.com/x.git"),
        ("redis://:word@host/0", "redis://:***@host/0"),
        ("postgresql://user%3Aword@host/name", "postgresql://user:***@host/name"),
        ("postgresql://host/name?password=a#study", "postgresql://host/name?password=***"),
        ("jdbc:sqlserver://host;user=a;password=b", "jdbc:sqlserver://host;user=a;password=***"),
        ("mssql+pyodbc:///?odbc_connect=DRIVER%3DX%3BPWD%3Dword", "mssql+pyodbc:///?odbc_connect=***"),
        ("https://host/go?to=https%3A%2F%2Fu%3Aword%40other", "https://host/go?to=***"),
        ("https://host/go?to=https://u:word@other", "https://host/go?to=https://u:***@other"),
        ("host=h password='a b' user=u", "host=h password=*** user=u"),
        ("host=h PGPASSWORD=ab user=u", "host=h PGPASSWORD=*** user=u"),
        ("user:word@host/name", "user:***@host/name"),
        ("smtp_password=env:WORD", None),
        ("--pwd=/x of singularity", None),
        ("docker://python:3.11@sha256:0f12", None),
        ("docker://user:word@registry/python:3.11@sha256:0f12", "docker://user:***@registry/python:3.11@sha256:0f12"),
        ("git+ssh://git@github.com/a/b.git@v1", None),
        ("git+https://ghp_token@github.com/a/b.git", "git+https://***@github.com/a/b.git"),
        ("http://[::1]:8080/a@b", None),
        ("postgresql://[fe80::1%eth0]/name?mail=a@b", None),
        ("postgresql://user:word@[::1]/name", "postgresql://user:***@[::1]/name"),
        ("postgresql://user:$PGPASSWORD@host/name?sslpassword=${WORD}", None),
        ("postgresql://user:$Word@host/name", "postgresql://user:***@host/name"),
        ("host=h password=$PGPASSWORD user=u", None),
        ("host=h password={{ word }} user=u", None),
        ("host=h password=$PGx user=u", "host=h password=*** user=u"),
        ("https://h/?a=1;password=b;to=https://u:word@other", "https://h/?a=1;password=***"),
        ("https://h/?a=1;b=2;to=https://u:wo;rd@other", "https://h/?a=1;b=2;to=https://u:***@other"),
    ],
)
def test_addresses_of_all_kinds(address: str, shown: str | None) -> None:
    assert hide_password(address) == (shown or address)
    if "#study" not in address:
        assert hide_passwords(f"see '{address}', and go on") == f"see '{shown or address}', and go on".replace(
            "user:***@host", "user:word@host" if "://" not in address else "user:***@host"
        )


@pytest.mark.parametrize(
    ("text", "longer"),
    [
        ("QUJD", "://a"),
        ("https://host/?" + "a=b;" * 500, ""),
        ("https://host/?a=", "1"),
        ("https://x@" + "%3A" * 100, ""),
        ("password='", ""),
        ("host 'a@", ""),
    ],
)
def test_the_time_for_a_long_text_grows_with_its_length_only(text: str, longer: str) -> None:
    """Of a megabyte: with its square it would be hours, and an option within the last one is no deeper call."""
    begun = time.process_time()
    hide_passwords(text * (500_000 // len(text)) + longer)
    assert time.process_time() - begun < 30


def test_an_address_far_within_others_is_hidden() -> None:
    shown = hide_password("https://host/?a=" * 500 + "https://user:Zword@host")
    assert shown.startswith("https://host/?a=https://host/?a=")
    assert "Zword" not in shown


def test_a_document_keeps_what_holds_no_password() -> None:
    found: list[str] = []
    job: dict[str, Any] = {
        "image": "docker://python:3.11@sha256:0f12",
        "command": ["sh", "-c", "mysql --password=$DB_PASSWORD"],
    }
    job["environment"] = {"DB_PASSWORD": "env:WORD", "PGPASSWORD": "${DB_PASSWORD}"}
    assert hide_in_document(job, found.append) == job
    assert not found


@pytest.mark.parametrize("name", ["max_tokens", "sslkey", "passfile", "sslmode", "keyboard", "author", "options"])
def test_names_that_hold_no_secret(name: str) -> None:
    assert is_secret(name) is (name == "max_tokens")  # of an address; what a job calls so is not looked at
    text = f"max_tokens=2048 is not in the space, {name}=3"
    assert hide_passwords(text) == text


def test_a_host_that_a_driver_finds_within_a_password_is_hidden() -> None:
    assert hide_passwords("failed to resolve host 'bc@host': no") == "failed to resolve host '***@host': no"
    told = 'could not translate host name "bc@host" to address'
    assert str(StoreError(told)) == 'could not translate host name "***@host" to address'
    assert hide_passwords("ssh user@host 'a b@c'") == "ssh user@host 'a b@c'"


@pytest.mark.parametrize("kind", [StoreError, InputError])
def test_no_error_tells_a_password(kind: type[StoreError | InputError]) -> None:
    address = "postgresql://user:word@host/name?sslpassword=other"
    error = kind(f"{address} is away", hint=f"write {address}")
    assert str(error) == (
        "postgresql://user:***@host/name?sslpassword=*** is away (write postgresql://user:***@host/name?sslpassword=***)"
    )
    assert "word@" not in str(InputError("away", file=address, line=3))
    assert str(InputError("away", file="postgresql://u:two words@h/n")) == "postgresql://u:***@h/n: away"
