from __future__ import annotations

import email.utils
import threading
import time
from typing import Any

import pytest

from tradewind.errors import FetchError
from tradewind.selector.catalogue.price_fetcher import PriceFetcher


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def fetcher(pauses: list[float]) -> PriceFetcher:
    return PriceFetcher("shop", timeout=5, retries=3, wait=0.5, sleep=pauses.append)


def test_reads_json(endpoint: Any, answer: Any, fetcher: PriceFetcher) -> None:
    endpoint.sequence(answer('{"a": 1}'))
    assert fetcher.json(endpoint.url) == {"a": 1}


def test_waits_as_long_as_a_rate_limit_says(
    endpoint: Any, answer: Any, fetcher: PriceFetcher, pauses: list[float]
) -> None:
    endpoint.sequence(answer(status=429, headers={"Retry-After": "7"}), answer(status=429), answer("{}"))
    assert fetcher.json(endpoint.url) == {}
    assert pauses == [7.0, 1.0]


def test_reads_a_date_in_retry_after(endpoint: Any, answer: Any, fetcher: PriceFetcher, pauses: list[float]) -> None:
    moment = email.utils.formatdate(time.time() + 30, usegmt=True)
    endpoint.sequence(
        answer(status=429, headers={"Retry-After": moment}),
        answer(status=503, headers={"Retry-After": "soon"}),
        answer("{}"),
    )
    assert fetcher.json(endpoint.url) == {}
    assert 25 < pauses[0] <= 30
    assert pauses[1] == 1.0


def test_does_not_wait_for_hours(endpoint: Any, answer: Any, fetcher: PriceFetcher, pauses: list[float]) -> None:
    endpoint.sequence(answer(status=429, headers={"Retry-After": "3600"}))
    with pytest.raises(FetchError, match="asks to wait 3600 s"):
        fetcher.json(endpoint.url)
    assert pauses == []


def test_backs_off_from_server_faults_and_gives_up(
    endpoint: Any, answer: Any, fetcher: PriceFetcher, pauses: list[float]
) -> None:
    endpoint.sequence(answer(status=503))
    with pytest.raises(FetchError, match=r"shop: .* answered 503 .* \(4 attempts\)"):
        fetcher.json(endpoint.url)
    assert pauses == [0.5, 1.0, 2.0]
    assert len(endpoint.asked) == 4


@pytest.mark.parametrize(("status", "advice"), [(400, "refused"), (401, "key"), (403, "key"), (404, "base_url")])
def test_never_repeats_a_refused_request(
    endpoint: Any, answer: Any, fetcher: PriceFetcher, status: int, advice: str
) -> None:
    endpoint.sequence(answer(status=status))
    with pytest.raises(FetchError, match=advice):
        fetcher.json(endpoint.url)
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("<!DOCTYPE html><html>maintenance", "an HTML page"),
        ('{"Items": [{"price": 1', "a JSON text that breaks off"),
        ("", "nothing"),
        ("sorry", "'sorry'"),
        (b"\xff\xfe\x00", "did not answer with JSON"),
        ("[1]", "a JSON list, not an object"),
        ("[" * 200_000, "breaks off"),
    ],
)
def test_says_what_came_instead_of_json(
    endpoint: Any, answer: Any, fetcher: PriceFetcher, body: bytes | str, words: str
) -> None:
    endpoint.sequence(answer(body))
    with pytest.raises(FetchError, match=words) as caught:
        fetcher.json(endpoint.url)
    assert "\n" not in str(caught.value)


def test_repeats_after_a_cut_and_says_so(endpoint: Any, answer: Any, fetcher: PriceFetcher) -> None:
    endpoint.sequence(answer('{"a": 1}', cut=3), answer('{"a": 1}'))
    assert fetcher.json(endpoint.url) == {"a": 1}
    endpoint.sequence(answer('{"a": 1}', cut=3))
    with pytest.raises(FetchError, match="connection was cut"):
        fetcher.json(endpoint.url)


def test_gives_up_on_silence(endpoint: Any, answer: Any) -> None:
    release = threading.Event()
    endpoint.sequence(answer("{}", wait_for=release))
    with pytest.raises(FetchError, match="timed out"):
        PriceFetcher("shop", timeout=0.1, retries=0).json(endpoint.url)
    release.set()


def test_nobody_there() -> None:
    with pytest.raises(FetchError, match="did not answer"):
        PriceFetcher("shop", retries=0).json("http://127.0.0.1:9")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x", "nonsense", "http://[::1", "http://127.0.0.1:port/"])
def test_only_web_addresses(url: str) -> None:
    with pytest.raises(FetchError, match="base_url"):
        PriceFetcher("shop", retries=0).json(url)


def test_the_query_is_not_in_the_error(endpoint: Any, answer: Any, fetcher: PriceFetcher) -> None:
    endpoint.sequence(answer(status=403))
    with pytest.raises(FetchError) as caught:
        fetcher.json(endpoint.url + "/prices?key=top-secret")
    assert "top-secret" not in str(caught.value)


def test_streams_lines(endpoint: Any, answer: Any, fetcher: PriceFetcher) -> None:
    endpoint.sequence(answer("one\ntwo\n"))
    with fetcher.lines(endpoint.url) as lines:
        assert list(lines) == ["one\n", "two\n"]


def test_a_cut_stream_is_no_short_list(endpoint: Any, answer: Any, fetcher: PriceFetcher) -> None:
    endpoint.sequence(answer("one\ntwo\n", cut=4))
    with (
        pytest.raises(FetchError, match="was cut after 4 of 8 bytes"),
        fetcher.lines(endpoint.url) as lines,
    ):
        list(lines)


def test_a_stream_that_is_no_text(endpoint: Any, answer: Any, fetcher: PriceFetcher) -> None:
    endpoint.sequence(answer(b"one\n\xff\n"))
    with pytest.raises(FetchError, match="not UTF-8"), fetcher.lines(endpoint.url) as lines:
        list(lines)
