"""The docker runner against Podman's socket, where its answers are known to differ from Docker's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import OWNER
from tests.deployer.runner.docker.helpers import code, docker_runner, ended_within, in_container
from tests.engines.podman import podman  # noqa: F401  (a fixture)

from tradewind.errors import MissingProgramError
from tradewind.problem import Fault, RunState

pytestmark = pytest.mark.xdist_group("podman")


@pytest.mark.slow
def test_runs_end_as_they_do_with_docker(tmp_path: Path, podman: str) -> None:  # noqa: F811
    runner = docker_runner(tmp_path, podman)
    cases: dict[str, tuple[Any, ...]] = {
        "good": (("sh", "-c", "echo hello; echo oops >&2; touch made"), {}, (RunState.DONE, None), ""),
        "bad": (("sh", "-c", "exit 3"), {}, (RunState.FAILED, Fault.JOB), "code 3"),
        "hog": (code("x = b'x' * (200 << 20)"), {"memory": 64 << 20}, (RunState.FAILED, Fault.JOB), "memory"),
        "late": (("sleep", "60"), {"wall": 1.0}, (RunState.TIMED_OUT, Fault.JOB), "limit"),
    }
    for name, (words, limits, wanted, reason) in cases.items():
        request = in_container(tmp_path, words, name, **limits)
        handle = runner.submit(request, [])
        assert runner.submit(request, []).run_id == name
        status = ended_within(runner, handle, 60)
        assert (status.state, status.fault) == wanted, (name, status)
        assert reason in status.reason
        runner.collect(handle, request)
    assert (tmp_path / "runs" / "good" / "stdout").read_text() == "hello\n"
    assert (tmp_path / "runs" / "good" / "stderr").read_text() == "oops\n"
    assert (tmp_path / "work" / "made").exists()
    with pytest.raises(MissingProgramError, match="no-such-program"):
        runner.submit(in_container(tmp_path, ("no-such-program",), "none"), [])
    cancelled = runner.submit(in_container(tmp_path, ("sleep", "60"), "cancelled"), [])
    other = docker_runner(tmp_path, podman)
    assert {handle.run_id for handle in other.find(OWNER)} == {*cases, "cancelled"}
    other.cancel(cancelled)
    assert ended_within(other, cancelled, 30).state is RunState.CANCELLED
    for handle in other.find(OWNER):
        other.forget(handle)
    assert other.find(OWNER) == []
    for each in (runner, other):
        each.close()
