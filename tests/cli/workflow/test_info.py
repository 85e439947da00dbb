"""How ``workflow info`` writes amounts."""

from __future__ import annotations

import pytest

from tradewind.cli.workflow.info import _size


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1234, "1.23 kB"),
        (999_499, "999 kB"),
        (999_500, "1 MB"),
        (999_999, "1 MB"),
        (999_999_999, "1 GB"),
        (12_345_678_901, "12.3 GB"),
        (1e12, "1 TB"),
        (123_456e12, "123,456 TB"),
    ],
)
def test_bytes_are_three_digits_and_a_unit(size: float, words: str) -> None:
    assert _size(size) == words
