from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.service.applications.parameter_words import ParameterWords, RequestWords
from tradewind.service.notifications import delivery
from tradewind.store.service.notices import NoticeRow

HEADERS = {
    "Subject",
    "From",
    "To",
    "Date",
    "Message-ID",
    "Auto-Submitted",
    "X-Tradewind-Delivery",
    "MIME-Version",
    "Content-Type",
}


class Reader(HTMLParser):
    """Which tags there are."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)


@pytest.mark.slow
@given(
    name=st.text(max_size=300),
    problem=st.text(max_size=300),
    event=st.sampled_from(["request.submitted", "request.finished", "request.failed", "other"]),
    state=st.sampled_from(["done", "failed", "timed_out", "cancelled", "pending"]),
)
def test_any_words_make_a_mail_with_our_headers_only(name: str, problem: str, event: str, state: str) -> None:
    facts = {"id": 7, "name": name, "state": state, "problem": problem, "hint": name, "cost": 0.5, "best": {"x": name}}
    notice = NoticeRow(1, 1, "email", "ann@example.org", {"event": event, "request": facts}, 7, "abc")
    message = delivery.compose_email(notice, "tradewind@example.org", "https://tw.example.org")
    assert set(message.keys()) == HEADERS
    sent = message.as_bytes().partition(b"\n\n")[0]
    assert [line for line in sent.splitlines() if line[:1] not in b" \t" and b":" not in line] == []
    page = message.get_body(("html",))
    assert page is not None
    reader = Reader()
    reader.feed(page.get_content())
    assert reader.tags <= {"html", "body", "p", "table", "tr", "th", "td", "a"}


def test_a_mail_reads_well() -> None:
    facts = {
        "id": 17,
        "name": "wave model",
        "kind": "search",
        "application": "wave@2",
        "state": "timed_out",
        "problem": "the deadline of 30m was reached",
        "hint": "allow more time, or take more machines",
        "cost": 1.5,
        "started": 100.0,
        "ended": 1900.0,
        "results": "s3://bucket/ann",
        "metric": "runtime",
        "best": {
            "trial": 3,
            "state": "succeeded",
            "configuration": {"nodes": 2, "rate": 0.0213421},
            "offer": "aws/us-east-1/c5.xlargex2",
            "objective": 251.2345,
            "cost": 0.0213421,
        },
        "url": "https://tw.example.org/requests/17",
    }
    notice = NoticeRow(1, 1, "email", "ann@example.org", {"event": "request.failed", "request": facts}, 17, "abc")
    message = delivery.compose_email(notice, "tradewind@example.org", "https://tw.example.org")
    plain = message.get_body(("plain",))
    assert plain is not None
    assert message["Subject"] == "[Tradewind] wave model: timed out"
    assert plain.get_content() == (
        "Your request 17, wave model, timed out.\n"
        "\n"
        "Why: the deadline of 30m was reached\n"
        "What to do: allow more time, or take more machines\n"
        "Application: wave@2\n"
        "Cost: $1.50 total\n"
        "Took: 30m 00s\n"
        "Best: 4m 11s runtime, trial 3, 2 × c5.xlarge, us-east-1 (nodes=2 rate=0.02134)\n"
        "Results: s3://bucket/ann\n"
        "\n"
        "https://tw.example.org/requests/17\n"
        "\n"
        "-- \n"
        "You get this because of the notices that you have chosen: https://tw.example.org/account\n"
    )


def test_a_mail_has_the_parameters_in_the_words_of_the_page() -> None:
    facts = {"id": 17, "name": "stars", "application": "stars@2", "state": "done"}
    notice = NoticeRow(1, 1, "email", "ann@example.org", {"event": "request.finished", "request": facts}, 17, "abc")
    parameters = [
        ParameterWords("stars", "Number of stars", "1,000"),
        ParameterWords("step", "Step", "0.5 s\r\nBcc: x"),
    ]
    parameters += [ParameterWords(f"p{at}", f"P {at}", "<b>") for at in range(40)]
    words = RequestWords("Stars in a box", tuple(parameters))
    message = delivery.compose_email(notice, "tradewind@example.org", "", words)
    plain, page = message.get_body(("plain",)), message.get_body(("html",))
    assert plain is not None and page is not None
    lines = plain.get_content().splitlines()
    assert lines[2:5] == ["Application: Stars in a box", "Number of stars: 1,000", "Step: 0.5 s Bcc: x"]
    assert "and 12 more parameters" in lines
    assert "Bcc" not in message
    assert "<b>" not in page.get_content()
