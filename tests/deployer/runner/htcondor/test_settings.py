"""Which submit commands the settings of the HTCondor runner take."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tradewind.deployer.runner.htcondor.settings import HtCondorSettings


@pytest.mark.parametrize("name", ["accounting_group", "+ProjectName", "rank", "concurrency_limits", "MY.WantGlidein"])
def test_commands_that_choose_machines_and_accounts_are_the_users(name: str) -> None:
    assert HtCondorSettings(submit={name: "x"}).submit == {name: "x"}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("executable", "set by Tradewind"),
        ("Request_Memory", "set by Tradewind"),
        ("+RequestMemory", "set by Tradewind"),
        ("MY.Requirements", "set by Tradewind"),
        ("iwd", "set by Tradewind"),
        ("+Cmd", "set by Tradewind"),
        ("+TradewindOwner", "set by Tradewind"),
        ("max_retries", "again"),
        ("on_exit_remove", "again"),
        ("max_materialize", "how many jobs"),
        ("hold", "starting"),
        ("leave_in_queue", "ended jobs"),
        ("noop_job", "nothing"),
        ("queue 5", "not the name"),
    ],
)
def test_commands_that_break_the_runner_are_refused_when_they_are_read(name: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        HtCondorSettings(submit={name: "x"})
