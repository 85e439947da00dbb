"""Preemption policies as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tradewind.cli.app import app
from tradewind.errors import InputError
from tradewind.tenancy.preemption.policy import preemption_document, preemption_policy


def test_times_are_read_and_what_is_not_said_is_filled_in() -> None:
    assert preemption_document({"within": "2m"}) == {"within": 120.0, "pays": "taker", "exempt": 60.0}
    assert preemption_document({"within": 90, "pays": "owner", "exempt": "0s"})["exempt"] == 0.0
    assert preemption_policy({}) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"pays": "owner"}, "it says not within which time"),
        ({"within": "soon"}, "preempt: within: 'soon' is not a duration"),
        ({"within": 0}, "within=0 is no time"),
        ({"within": "1m", "pays": "me"}, "'me' pays nothing"),
        ({"within": "1m", "exempt": "2m"}, "leave no place within 1m 00s"),
        ({"within": "1m", "after": 3}, "there is no 'after'"),
        ({"within": True}, "is not a duration"),
        ({"within": float("nan")}, "is not a duration"),
    ],
)
def test_what_is_none_is_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        preemption_document(given)


@pytest.mark.slow
def test_the_command_sets_keeps_and_removes_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tradewind.db"

    def told(*words: str) -> str:
        found = CliRunner().invoke(app, ["tenant", "set", "physics", *words, "--store", url])
        assert found.exit_code == 0, found.output
        return found.output.strip()

    takes = "has a place within 2m 00s of when its work comes, if need be by runs of others, and it pays for them"
    assert takes in told("--preempt", "within=2m,pays=taker")
    assert takes in told("--weight", "3"), "another change leaves it"
    assert told("--no-preempt") == "physics: weight 3, priority 0"
    wrong = CliRunner().invoke(app, ["tenant", "set", "physics", "--preempt", "within=-2", "--store", url])
    assert wrong.exit_code != 0
