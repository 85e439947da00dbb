"""Messages that belong together arrive together, and none arrives late or never."""

from __future__ import annotations

import queue

import pytest

from tradewind.tenancy.messages import CoreMessage, MessageBatch, MessageBatcher, RunEndedMessage, RunRequestMessage

GONE, WANTS = RunEndedMessage(7, "7/1/1"), RunRequestMessage(7, "7/2/1", {"cpu": 1.0})


def test_what_is_said_until_the_flush_is_one_message() -> None:
    out: queue.Queue[CoreMessage] = queue.Queue()
    together = MessageBatcher(out)
    together.put(GONE)
    together.put(WANTS)
    assert out.empty()
    together.flush()
    assert out.get(False) == MessageBatch(7, (GONE, WANTS))
    together.put(WANTS)
    together.flush()
    assert out.get(False) == WANTS
    together.flush()
    assert out.empty()


def test_who_computes_long_keeps_nothing_back() -> None:
    out: queue.Queue[CoreMessage] = queue.Queue()
    together = MessageBatcher(out, longest=0.02)
    together.put(GONE)
    assert out.get(timeout=5.0) == GONE
    together.put(WANTS)
    assert out.get(timeout=5.0) == WANTS


def test_what_was_said_before_an_error_goes_out_before_what_is_said_of_it() -> None:
    out: queue.Queue[CoreMessage] = queue.Queue()
    with pytest.raises(ValueError, match="broken"), MessageBatcher(out) as together:
        together.put(GONE)
        raise ValueError("broken")
    assert out.get(False) == GONE
