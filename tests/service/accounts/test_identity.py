"""Names of users and tenants, and the addresses that calls come from."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import InputError
from tradewind.service.accounts import identity


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("ann", "ann"),
        (" Ann ", "ann"),
        ("ANN.LEE-2@lab_1", "ann.lee-2@lab_1"),
        ("Анна", "анна"),
        ("ａｎｎ", "ann"),
        ("李雷", "李雷"),
        ("cafe\u0301", "caf\u00e9"),
        ("नमस्ते", "नमस्ते"),
    ],
)
def test_a_name_is_kept_in_one_form(typed: str, kept: str) -> None:
    assert identity.check_name(typed) == kept
    assert identity.lookup_name(typed) == kept


@pytest.mark.parametrize(
    "typed",
    [
        "",
        " ",
        "a b",
        ".ann",
        "a/b",
        "../etc/passwd",
        "ann\x00",
        "ann\r\nSet-Cookie: x=1",
        "' OR 1=1 --",
        'x"; DROP TABLE users; --',
        "<script>",
        "{{7*7}}",
        "a" * 65,
        "a" * 1_000_000,
        "\u202eann",
        "ann\u200b",
        "\ud800",
        "аnn",  # its first letter is Cyrillic
        "😀",
    ],
)
def test_what_is_no_name_is_refused_and_found_nowhere(typed: str) -> None:
    with pytest.raises(InputError) as caught:
        identity.check_name(typed)
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()
    assert identity.lookup_name(typed) == ""


@pytest.mark.slow
@given(st.text(max_size=80))
def test_a_name_that_is_kept_stays_as_it_is(typed: str) -> None:
    kept = identity.lookup_name(typed)
    assert identity.lookup_name(kept) == kept
    assert len(kept) <= identity.MAX_NAME_LENGTH
    assert all(unicodedata.category(c)[0] in "LMNP" for c in kept)
    kept.encode()


@pytest.mark.slow
@given(st.text(max_size=300))
def test_a_clean_text_is_one_line_that_can_be_stored(text: str) -> None:
    clean = identity.clean_text(text)
    assert len(clean) <= 200
    assert not any(unicodedata.category(c)[0] == "C" for c in clean)
    clean.encode()


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("testclient", "?"),
        ("", "?"),
    ],
)
def test_attempts_are_counted_by_network(address: str, network: str) -> None:
    assert identity.network_of(address) == network


@pytest.mark.parametrize("address", ["ann@example.org", "Ann.Lee+tw@example.org", "анна@пример.рф", ""])
def test_an_address_for_notices_is_kept(address: str) -> None:
    assert identity.check_email(f" {address} ") == address


@pytest.mark.parametrize(
    "address",
    ["ann", "ann@", "@x", "a@b@c", "a@b\r\nBcc: all@x", "a@b, c@d", "<a@b>", "a@b\x00", "a@" + "b" * 300, "\ud800@b"],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="no e-mail address"):
        identity.check_email(address)
