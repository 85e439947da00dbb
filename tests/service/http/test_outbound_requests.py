from __future__ import annotations

import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.notification_receivers import certificate, http_server

from tradewind.errors import InputError, UnreachableError
from tradewind.service.http.outbound_requests import parse_outbound_url, post
from tradewind.utils.ssrf_guard import is_public, resolve_addresses


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "224.0.0.1",
        "255.255.255.255",
        "198.18.0.1",
        "192.0.2.1",
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd12::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2001:0:7f00:1::1",
        "nonsense",
    ],
)
def test_addresses_inside(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::808:808"])
def test_addresses_outside(address: str) -> None:
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_nothing_inside_is_public_in_another_writing(address: Any) -> None:
    """The ways to write an IPv4 address as IPv6 are judged as the address itself is."""
    mapped = is_public(f"::ffff:{address}")
    translated = is_public(f"64:ff9b::{int(address) >> 16:x}:{int(address) & 0xFFFF:x}")
    assert mapped == translated == is_public(str(address))


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f.1", "[::1]"])
def test_names_of_this_machine_are_refused(host: str) -> None:
    with pytest.raises(InputError, match="inside this network"):
        resolve_addresses(host.strip("[]"), 80, private=False)


def test_every_address_of_a_name_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 80)) for one in ("8.8.8.8", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: found)
    with pytest.raises(InputError, match="inside"):
        resolve_addresses("both.example.org", 80, private=False)
    assert resolve_addresses("both.example.org", 80, private=True) == ["8.8.8.8", "10.0.0.1"]


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/",
        "file:///etc/passwd",
        "gopher://example.org/",
        "https://",
        "https:///path",
        "https://user:secret@example.org/",
        "https://user@example.org/",
        "http://example.org:25/",
        "http://example.org:22/",
        "http://example.org:99999/",
        "http://example.org/a b",
        "http://example.org/\r\nX-Header: 1",
        "http://exämple.org/",
        "http://[::1/",
        "https://example.org/" + 2000 * "x",
        "",
    ],
)
def test_urls_that_no_call_goes_to(url: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_outbound_url(url)
    assert "secret" not in str(caught.value)


def test_what_a_url_is_made_of() -> None:
    target = parse_outbound_url("https://Example.org/hook?key=1")
    assert (target.scheme, target.host, target.port, target.path) == ("https", "example.org", 443, "/hook?key=1")
    assert "key" not in target.shown


def test_a_name_that_points_elsewhere_by_then_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: the name is looked up once, and the connection goes to the address that was judged."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def answer(host: str, port: int, *args: Any, **more: Any) -> Any:
        asked.append(host)
        if host == "rebind.example.org":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
        return real(host, port, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    with http_server() as calls:
        port = int(calls.url.rpartition(":")[2])
        status, _ = post(
            parse_outbound_url(f"http://rebind.example.org:{port}/hook"), b"{}", {}, private=True, seconds=5.0
        )
    assert status == 204
    assert calls.got[0].headers["Host"] == f"rebind.example.org:{port}"
    assert asked.count("rebind.example.org") == 1


def test_certificates_are_checked_by_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo
    here = "127.0.0.1"
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *more, **named: real(here if "example" in host else host, *more, **named)
    )
    tls = certificate(tmp_path / "tls")
    trusting = ssl.create_default_context(cafile=tls[0])
    with http_server(tls) as calls:
        with pytest.raises(UnreachableError, match="certificate is not trusted"):
            post(parse_outbound_url(f"{calls.url}/"), b"{}", {}, private=True, seconds=5.0)
        status, _ = post(parse_outbound_url(f"{calls.url}/"), b"{}", {}, private=True, seconds=5.0, tls=trusting)
        wrong = calls.url.replace(here, "other.example.org")
        with pytest.raises(UnreachableError, match="certificate is not trusted"):
            post(parse_outbound_url(f"{wrong}/"), b"{}", {}, private=True, seconds=5.0, tls=trusting)
    assert status == 204
    assert len(calls.got) == 1


@pytest.mark.slow
def test_a_receiver_that_drips_is_left() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def drip() -> None:
        taken, _ = listening.accept()
        with taken:
            while not stop.wait(0.05):
                try:
                    taken.sendall(b"H")
                except OSError:
                    return

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    started = time.monotonic()
    try:
        with pytest.raises(UnreachableError):
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
            post(parse_outbound_url(url), b"{}", {}, private=True, seconds=0.3)
        assert time.monotonic() - started < 3.0
    finally:
        stop.set()
        thread.join(5.0)
        listening.close()


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UnreachableError, match="cannot be reached"):
        post(parse_outbound_url(f"http://127.0.0.1:{port}/"), b"{}", {}, private=True, seconds=2.0)
