from __future__ import annotations

import os
import signal

import pytest

from tradewind.cli.signals import GracefulInterrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_a_wish_and_the_second_an_interrupt(number: int, capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(number)
    with GracefulInterrupt() as stop:
        seen = [stop.wanted]
        signal.raise_signal(number)
        assert [*seen, stop.wanted] == [False, True]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) == before
    assert capfd.readouterr().err.count("stopping: running trials are cancelled and paid") == 1


def test_a_terminal_that_is_gone_does_not_break_the_clean_end() -> None:
    kept = os.dup(2)
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 2)
    try:
        with GracefulInterrupt() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop.wanted
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(writer)
