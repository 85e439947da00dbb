"""Words about proposed configurations."""

from __future__ import annotations

import pytest

from tradewind.reporting.proposal_words import Compared, best_words, chance_words, difference_words, why_words

BEST = Compared({"nodes": 2}, 1.0, 100.0, 1.0)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (
            Compared({"nodes": 4}, 2.0, 50.0, 1.2),
            "takes 50 % less time and costs 20 % more, compared with the best known",
        ),
        (
            Compared({"nodes": 1}, 0.5, 260.0, 0.7),
            "takes 2.6 times as long and costs 30 % less, compared with the best known",
        ),
        (
            Compared({"nodes": 8}, 1.0, 100.0, 1.0),
            "takes as long and costs as much; nodes 8 instead of 2, compared with the best known",
        ),
        (Compared({"nodes": 8}, 0.5), "time not known yet; its machines cost 50 % less per hour"),
        (Compared({"nodes": 8}, 1.0), "time not known yet; nodes 8 instead of 2"),
        (Compared({"nodes": 2}, 1.0), "time not known yet"),
        (
            Compared({}, 1.0, 1e9, 0.0),
            "takes over 100 times as long and costs 100 % less, compared with the best known",
        ),
    ],
)
def test_how_a_configuration_differs(one: Compared, words: str) -> None:
    assert difference_words(one, BEST) == words


@pytest.mark.parametrize(
    ("chance", "deadline", "words"),
    [
        (None, 60.0, ""),
        (0.999, None, ""),
        (0.8, None, "80 % likely to succeed"),
        (0.004, 300.0, "is not expected to finish within 5m 00s"),
        (0.4, 300.0, "40 % likely to finish within 5m 00s"),
        (0.999, 300.0, "is expected to finish within 5m 00s"),
    ],
)
def test_how_likely_it_is_to_keep_the_deadline(chance: float | None, deadline: float | None, words: str) -> None:
    assert chance_words(chance, deadline) == words


def test_what_the_best_is_the_best_by() -> None:
    assert best_words("cost", "minimise", measured=False) == "least expected cost"
    assert best_words("rate", "maximise", measured=True) == "greatest rate of those that were run with these parameters"
    assert why_words(("best", "cheapest"), "", "run 3x") == "best known, cheapest; run 3x"
    assert why_words(("try",), "takes longer", "to learn from; never run") == "try this: takes longer; never run"
    assert why_words((), "", "") == ""
