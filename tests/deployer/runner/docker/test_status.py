"""What containers say about runs, without an engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tradewind.deployer.runner.docker import names
from tradewind.deployer.runner.docker.load_generator import load_status
from tradewind.deployer.runner.docker.names import InspectedContainer
from tradewind.deployer.runner.docker.status import ended_status
from tradewind.problem import Fault, RunState, RunStatus, Usage

LIMITED = {names.MEMORY: str(64 << 20), names.LOAD: '{"seconds": 60, "port": null, "path": null, "pattern": "up"}'}
KILLED = InspectedContainer("a", "exited", 137, False, "", 10.0, 10.0, 12.0, "python3", 0, LIMITED, {})
UNLIMITED = {names.LOAD: LIMITED[names.LOAD]}


def plain(facts: InspectedContainer, *, outside: bool = False) -> RunStatus:
    return ended_status(facts, cancelled=False, podman=False, usage=Usage(), from_outside=lambda: outside)


def driven(facts: InspectedContainer, *, outside: bool = False) -> RunStatus:
    load = replace(facts, id="b", state="created", exit_code=0, begun=0.0, started=0.0, finished=0.0)
    return load_status(load, facts, cancelled=False, podman=False, usage=Usage(), from_outside=lambda _: outside)


@pytest.mark.parametrize(("status", "what"), [(plain, "program"), (driven, "application")])
def test_who_is_killed_within_a_limit_of_memory(status: object, what: str) -> None:
    """The engine's word of memory may be lost; that nobody has asked for the end is known all the same."""
    assert callable(status)
    seen = status(replace(KILLED, oom=True))
    assert seen.reason == f"out of memory: {'it' if status is plain else 'the application'} used more than 64 MiB"
    unseen = status(KILLED)
    told = "was killed by signal 9 (SIGKILL), and the engine does not say why: it may have used more than 64 MiB"
    assert unseen.reason == f"the {what} {told}"
    assert (unseen.state, unseen.fault, unseen.exit_code) == (RunState.FAILED, Fault.JOB, -9)
    assert status(KILLED, outside=True).state == RunState.PREEMPTED
    assert "memory" not in status(replace(KILLED, labels=UNLIMITED)).reason
    assert "memory" not in status(replace(KILLED, exit_code=143)).reason
