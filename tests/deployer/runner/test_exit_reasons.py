"""All runners say in the same words, and with the same exit codes, how a run has ended."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tradewind.deployer.runner.exit_reasons import (
    exit_code_of,
    failure_reason,
    fault_of,
    lost_status,
    out_of_memory_reason,
    shell_seconds,
    signal_name,
    timeout_reason,
)
from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    ImageError,
    JobProgramError,
    MissingProgramError,
    OfferRefusedError,
    PrerequisiteError,
    UnreachableError,
)
from tradewind.problem import Fault, RunState


@pytest.mark.parametrize(
    ("written", "code"), [(0, 0), (3, 3), (128, 128), (137, -9), (143, -15), (192, -64), (193, 193), (255, 255)]
)
def test_a_code_above_128_is_a_signal_as_far_as_there_are_signals(written: int, code: int) -> None:
    assert exit_code_of(written) == code


def test_a_shell_writes_signals_so() -> None:
    assert exit_code_of(subprocess.run(["sh", "-c", "sh -c 'kill -TERM $$'"]).returncode) == -signal.SIGTERM


def test_a_failure_has_its_code_or_its_signal() -> None:
    assert failure_reason(3) == "the program exited with code 3"
    assert failure_reason(200) == "the program exited with code 200"
    assert failure_reason(-9) == "the program was killed by signal 9 (SIGKILL)"
    assert signal_name(40) == "signal 40"


def test_limits_that_are_not_known_are_left_out() -> None:
    assert timeout_reason(90) == "it reached its time limit of 1m 30s"
    assert timeout_reason(None) == "it reached its time limit"
    assert out_of_memory_reason(2**30) == "out of memory: it used more than 1 GiB"
    assert out_of_memory_reason(None, "the application") == "out of memory: the application used more than it may"


def test_what_is_gone_is_the_infrastructures_fault() -> None:
    status = lost_status("its node died", 4.0)
    assert (status.state, status.fault, status.runtime) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE, 4.0)
    assert status.reason == "the run is gone without a result: its node died"


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ImageError("there is no image"), Fault.PREREQUISITE),
        (PrerequisiteError("no such partition"), Fault.PREREQUISITE),
        (MissingProgramError("there is no terraform program"), Fault.PREREQUISITE),
        (JobProgramError("there is no program './a-{{ level }}'"), Fault.JOB),
        (CredentialsError("the token has expired"), Fault.CREDENTIALS),
        (CapacityError("full"), Fault.CAPACITY),
        (OfferRefusedError("no node is that large"), Fault.JOB),
        (UnreachableError("no answer"), Fault.INFRASTRUCTURE),
        (DeployError("refused", retryable=False), Fault.JOB),
        (OSError("broken"), Fault.INFRASTRUCTURE),
    ],
)
def test_what_no_configuration_can_mend_is_told_from_what_others_can(error: Exception, fault: Fault) -> None:
    assert fault_of(error) is fault


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0m0.15s 0m0.09s", 0.24), ("2m0.500s/1m1.5s", 182.0), ("0m1.25s", 1.25), ("", None), ("0m0.1s x", None)],
)
def test_processor_time_as_a_shell_prints_it(text: str, seconds: float | None) -> None:
    assert shell_seconds(text) == seconds
