"""What Slurm's programs say, or do not say, and what the runner makes of it: with programs that only pretend."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import OWNER, request_for
from tests.deployer.runner.slurm.helpers import programs, slurm_runner

from tradewind.deployer.runner.slurm import queue
from tradewind.deployer.runner.slurm.commands import refusal
from tradewind.deployer.runner.slurm.queue import seconds_of
from tradewind.deployer.runner.slurm.runner import SlurmRunner
from tradewind.deployer.runner.slurm.submit import ranges
from tradewind.deployer.ssh_connection import CommandResult
from tradewind.engine.cleanup.orphan_policy import (
    KnownRecords,
    KnownRun,
    OrphanFate,
    OrphanFinding,
    OwningStudy,
    decide_fate,
)
from tradewind.engine.cleanup.orphan_reaper import _jobs
from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    MissingProgramError,
    OfferRefusedError,
    PrerequisiteError,
    UnreachableError,
)
from tradewind.problem import Fault, Handle, Limits, RunState, RunStatus
from tradewind.utils.retries import Backoff

Fake = Callable[..., SlurmRunner]

_DISABLED = 'echo "Slurm accounting storage is disabled" >&2; exit 1'
_UNKNOWN = 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1'


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """A runner whose Slurm has taken job 7 and knows nothing of it, but for what a test says."""

    def made(*, settings: dict[str, Any] | None = None, **instead: str) -> SlurmRunner:
        plain = {"sbatch": "echo 7", "squeue": "true", "scontrol": _UNKNOWN, "sacct": _DISABLED, "scancel": "true"}
        folder = programs(tmp_path / f"bin-{time.monotonic_ns()}", **{**plain, **instead})
        given = {"settle": 0.0, "timeout": 0.5, "interval": 0.0, **(settings or {})}
        return slurm_runner(tmp_path, bin=str(folder), **given)

    return made


def submitted(runner: SlurmRunner, base: Path, claim: str = "7", **left: Any) -> Handle:
    """A run that Slurm has started, with what it has left in its folder."""
    request = request_for(base, ("true",))
    handle = runner.submit(request, [])
    if claim:
        (base / "data" / "slurm" / "batches" / "run-1" / "0.claim").write_text(claim + "\n")
    if left:
        (request.folder / "result.json").write_text(json.dumps({"job": "7", "node": "n1", **left}))
    return handle


def verdict(runner: SlurmRunner, handle: Handle) -> RunStatus:
    return runner.poll([handle])[handle.run_id]


def job(state: str, code: str = "0:0", name: str = "run-1", limit: str = "UNLIMITED") -> str:
    about = f"JobState={state} Reason=x ExitCode={code} RunTime=00:01:05 TimeLimit={limit} NodeList=n1"
    return f'echo "JobId=7 JobName={name} {about}"'


_ALIVE = (RunState.EXECUTING, None, "")


@pytest.mark.parametrize(
    ("says", "left", "wanted"),
    [
        (job("NODE_FAIL"), {}, (RunState.PREEMPTED, Fault.INFRASTRUCTURE, "a node failed")),
        (
            job("PREEMPTED"),
            {"state": "terminated", "runtime": 3},
            (RunState.PREEMPTED, Fault.INFRASTRUCTURE, "another job"),
        ),
        (job("BOOT_FAIL"), {}, (RunState.PREEMPTED, Fault.INFRASTRUCTURE, "did not boot")),
        (job("CANCELLED"), {"state": "terminated"}, (RunState.PREEMPTED, Fault.INFRASTRUCTURE, "somebody else")),
        (job("TIMEOUT", "0:15"), {"state": "terminated", "runtime": 3}, (RunState.TIMED_OUT, Fault.JOB, "limit")),
        (job("OUT_OF_MEMORY", "0:125"), {"state": "executing"}, (RunState.FAILED, Fault.JOB, "memory")),
        (job("OUT_OF_MEMORY"), {"state": "failed", "exit_code": 137}, (RunState.FAILED, Fault.JOB, "memory")),
        (job("FAILED", "9:0"), {"state": "failed", "exit_code": 137}, (RunState.FAILED, Fault.JOB, "SIGKILL")),
        (job("FAILED", "4:0"), {"state": "executing"}, (RunState.FAILED, Fault.JOB, "code 4")),
        (job("FAILED", "0:9"), {"state": "executing"}, (RunState.PREEMPTED, Fault.INFRASTRUCTURE, "without a result")),
        (job("FAILED", "79:0"), {}, (RunState.PREEMPTED, Fault.INFRASTRUCTURE, "disk is full")),
        (job("FAILED", "78:0"), {}, (RunState.PREEMPTED, Fault.INFRASTRUCTURE, "n1 does not see")),
        (job("COMPLETED"), {"state": "executing"}, (RunState.DONE, None, "")),
        (job("COMPLETING"), {"state": "terminated"}, _ALIVE),
        (job("COMPLETED", name="other"), {}, (RunState.PREEMPTED, Fault.INFRASTRUCTURE, "does not know it")),
        (_UNKNOWN, {}, (RunState.PREEMPTED, Fault.INFRASTRUCTURE, "does not know it")),
        ("sleep 5", {}, (RunState.PREEMPTED, Fault.INFRASTRUCTURE, "does not know it")),
    ],
)
def test_what_slurmctld_remembers(
    fake: Fake, tmp_path: Path, says: str, left: dict[str, Any], wanted: tuple[RunState, Fault | None, str]
) -> None:
    runner = fake(scontrol=says)
    handle = submitted(runner, tmp_path, **left)
    verdict(runner, handle)  # what is not sure is looked at twice
    status = verdict(runner, handle)
    assert (status.state, status.fault) == wanted[:2], status
    assert wanted[2] in status.reason
    if status.state.ended:
        # Another process, and Slurm after it has forgotten the job, say the same.
        assert verdict(fake(), handle) == status


@pytest.mark.parametrize(
    ("sacct", "wanted"),
    [
        ('echo "7|run-1|TIMEOUT|0:15|1-00:01:05|n1"', RunState.TIMED_OUT),
        ('echo "7|run-1|CANCELLED by 0|0:0|00:00:05|n1"', RunState.PREEMPTED),
        (
            'case "$*" in *--completion*) echo "7|run-1|OUT_OF_MEMORY|0:125|00:00:05|n1";; *) ' + _DISABLED + ";; esac",
            RunState.FAILED,
        ),
        (
            'case "$*" in *--completion*) echo "7|run-1|NODE_FAIL|0:0|00:00:05|n1";; *) sleep 9;; esac',
            RunState.PREEMPTED,
        ),
        ('case "$*" in *--starttime=*) echo "7|run-1|DEADLINE|0:0|00:00:05|n1";; esac', RunState.PREEMPTED),
    ],
)
def test_accounting_is_asked_when_slurmctld_has_forgotten(
    fake: Fake, tmp_path: Path, sacct: str, wanted: RunState
) -> None:
    runner = fake(sacct=sacct, settings={"settle": 60.0})
    handle = submitted(runner, tmp_path, state="executing")
    began = time.monotonic()
    assert verdict(runner, handle).state is wanted
    assert time.monotonic() - began < 3
    if wanted is RunState.TIMED_OUT:
        assert verdict(runner, handle).runtime == 86400 + 65


@pytest.mark.slow
def test_accounting_that_hangs_is_not_asked_at_every_poll(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "_BACKOFF", Backoff((1000.0,)))  # however slow the machine is
    runner = fake(sacct='echo x >> "$0.calls"; sleep 5', settings={"settle": 60.0})
    handle = submitted(runner, tmp_path, state="executing")
    for _ in range(20):
        assert verdict(runner, handle).state is RunState.EXECUTING
    [calls] = tmp_path.glob("bin-*/sacct.calls")
    assert calls.read_text() == "x\nx\n"  # once the database, once the file


@pytest.mark.slow
@pytest.mark.parametrize(
    "squeue", ["sleep 5", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"]
)
def test_unknown_counts_as_alive(fake: Fake, tmp_path: Path, squeue: str) -> None:
    runner = fake(squeue=squeue)
    handle = submitted(runner, tmp_path)
    began = time.monotonic()
    for _ in range(3):
        assert verdict(runner, handle).state is RunState.EXECUTING
    assert time.monotonic() - began < 2
    with pytest.raises(UnreachableError):
        runner.find(OWNER)
    runner.cancel(handle)
    assert (tmp_path / "runs" / "run-1" / "cancel").exists()


def test_a_run_that_has_not_started_is_taken_back_without_slurm(fake: Fake, tmp_path: Path) -> None:
    runner = fake(squeue="exit 1", scancel="exit 1")
    handle = submitted(runner, tmp_path, claim="")
    runner.cancel(handle)
    assert verdict(runner, handle).state is RunState.CANCELLED
    assert (tmp_path / "data" / "slurm" / "batches" / "run-1" / "0.claim").read_text() == "controller"
    assert verdict(fake(), handle).state is RunState.CANCELLED


def test_a_batch_that_was_not_handed_over_is_taken_back_by_cancel_only(fake: Fake, tmp_path: Path) -> None:
    runner = fake(sbatch="echo 'sbatch: error: Socket timed out' >&2; exit 1")
    with pytest.raises(UnreachableError):
        runner.submit(request_for(tmp_path, ("true",)), [])
    [handle] = runner.find(OWNER)
    for _ in range(3):
        assert verdict(runner, handle).state is RunState.SUBMITTING
    assert runner.spool.claim("run-1", 0) == ""
    assert fake().submit(request_for(tmp_path, ("true",)), []).data["job"] == "7"
    runner.cancel(handle)
    assert verdict(runner, handle).state is RunState.CANCELLED


def test_a_job_that_is_gone_and_whose_id_could_not_be_kept_is_lost(fake: Fake, tmp_path: Path) -> None:
    runner = fake()
    runner.spool.keep_job = lambda name, job: None  # type: ignore[method-assign]  # a full disk
    status = verdict(runner, submitted(runner, tmp_path, claim=""))
    assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)


def test_other_jobs_of_the_user_are_left_alone(fake: Fake, tmp_path: Path) -> None:
    line = "8\x1f8\x1fN/A\x1fRUNNING\x1f0:01\x1fNone\x1frun-1\x1fmy own comment"
    runner = fake(squeue=f"printf '{line}\\nnonsense\\n\\n'")
    assert runner.find(None) == []


@pytest.mark.parametrize(
    ("words", "kind", "retryable"),
    [
        (
            "Batch job submission failed: Invalid account or account/partition combination specified",
            CredentialsError,
            False,
        ),
        ("Batch job submission failed: User's group not permitted to use this partition", CredentialsError, False),
        ("Batch job submission failed: Protocol authentication error", CredentialsError, False),
        ("Batch job submission failed: Access/permission denied", CredentialsError, False),
        ("Batch job submission failed: Invalid qos specification", CredentialsError, False),
        ("Batch job submission failed: Invalid partition name specified", PrerequisiteError, False),
        ("Batch job submission failed: Requested node configuration is not available", OfferRefusedError, False),
        ("Batch job submission failed: Node count specification invalid", OfferRefusedError, False),
        ("Invalid generic resource (gres) specification", OfferRefusedError, False),
        ("Batch job submission failed: Invalid feature specification", PrerequisiteError, False),
        (
            "QOSMaxSubmitJobPerUserLimit; Batch job submission failed: Job violates accounting/QOS policy",
            CapacityError,
            True,
        ),
        (
            "QOSMaxCpuPerJobLimit; Batch job submission failed: Job violates accounting/QOS policy",
            OfferRefusedError,
            False,
        ),
        (
            "QOSMaxCpuPerUserLimit; Batch job submission failed: Job violates accounting/QOS policy",
            OfferRefusedError,
            False,
        ),
        (
            "AssocGrpSubmitJobsLimit; Batch job submission failed: Job violates accounting/QOS policy",
            CapacityError,
            True,
        ),
        ("Batch job submission failed: Required partition not available (inactive or drain)", PrerequisiteError, False),
        ("Batch job submission failed: Requested reservation is invalid", PrerequisiteError, False),
        ("sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.", PrerequisiteError, False),
        ("Slurm temporarily unable to accept job, sleeping and retrying", CapacityError, True),
        (
            "Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)",
            DeployError,
            False,
        ),
        ("Batch job submission failed: Invalid job array specification", PrerequisiteError, False),
        ("Unable to contact slurm controller (connect failure)", UnreachableError, True),
        ("Batch job submission failed: Socket timed out on send/recv operation", UnreachableError, True),
        ("fatal: Could not establish a configuration source", PrerequisiteError, False),
        ("unrecognized option '--frob'", PrerequisiteError, False),
        ("Batch job submission failed: Unspecified error", DeployError, True),
    ],
)
def test_each_refusal_is_one_error_with_a_hint(words: str, kind: type[DeployError], retryable: bool) -> None:
    error = refusal("sbatch", CommandResult(1, b"", f"sbatch: error: {words}\n".encode()))
    assert type(error) is kind
    assert error.retryable is retryable
    assert error.hint or retryable


@pytest.mark.parametrize(
    ("reason", "fault"),
    [
        ("PartitionTimeLimit", Fault.JOB),
        ("QOSMaxCpuPerJobLimit", Fault.JOB),
        ("InvalidAccount", Fault.CREDENTIALS),
        ("PartitionInactive", Fault.INFRASTRUCTURE),
    ],
)
def test_what_slurm_will_never_start_ends_as_if_it_had_refused_it(
    fake: Fake, tmp_path: Path, reason: str, fault: Fault
) -> None:
    runner = fake(squeue=listed("PENDING").replace("Priority", reason))
    handle = submitted(runner, tmp_path, claim="")
    verdict(runner, handle)
    status = verdict(runner, handle)
    assert status.state is (RunState.PREEMPTED if fault is Fault.INFRASTRUCTURE else RunState.FAILED)
    assert status.fault is fault
    assert reason in status.reason


@pytest.mark.slow
def test_a_queue_in_which_nothing_changes_is_looked_at_less_and_less(fake: Fake, tmp_path: Path) -> None:
    looks = tmp_path / "looks"
    runner = fake(squeue=f"echo x >> {looks}; {listed('RUNNING')}", settings={"interval": 0.05})
    handle = submitted(runner, tmp_path)
    end = time.monotonic() + 2.0
    while time.monotonic() < end:
        assert verdict(runner, handle).state is RunState.EXECUTING
        time.sleep(0.01)
    seen = len(looks.read_text().splitlines())
    assert seen <= 15, "40 looks are what `interval` allows"
    runner.cancel(handle)
    verdict(runner, handle)
    assert len(looks.read_text().splitlines()) > seen, "what we do ourselves is seen at once"


def test_programs_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = slurm_runner(tmp_path, bin="/not/there")
    with pytest.raises(MissingProgramError, match="set `bin`"):
        runner.submit(request_for(tmp_path, ("true",)), [])
    assert runner.find(OWNER) == []
    assert not list((tmp_path / "data" / "slurm" / "batches").iterdir())


def listed(state: str, used: str = "0:00", comment: str = f"tradewind owner={OWNER} expires=1000") -> str:
    """A program that has one job in the queue, as squeue lists it."""
    line = "\x1f".join(("7", "7", "N/A", state, used, "Priority", "run-1", comment))
    return f"printf '%s\\n' '{line}'"


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "orphan"])
def test_what_waits_in_the_queue_does_not_expire(fake: Fake, tmp_path: Path, noted: bool) -> None:
    """Its limit counts from its beginning, and is Slurm's own; only what has begun is there for too long."""
    comment = f"tradewind owner={OWNER} expires=1000 lasts=3660 spool={tmp_path}"
    if noted:
        request = replace(request_for(tmp_path, ("true",)), expires=time.time() - 7200 + 3660)
        fake().submit(request, [])
        path = tmp_path / "data" / "slurm" / "owners" / OWNER / "run-1"
        # It was submitted two hours ago, and was to be over within one and a minute.
        path.write_text(json.dumps({**json.loads(path.read_text()), "submitted": time.time() - 7200}))
        comment = f"tradewind owner={OWNER} expires=1000"  # of an earlier version

    def found(squeue: str) -> OrphanFinding:
        [finding] = _jobs(fake(squeue=squeue))
        return finding

    waiting, running = found(listed("PENDING", comment=comment)), found(listed("RUNNING", "30:00", comment))
    late, over = found(listed("RUNNING", "1:01:30", comment)), found("true") if noted else None
    assert waiting.expires is None
    assert running.expires == pytest.approx(time.time() - 1800 + 3660, abs=5)
    study = KnownRecords({OWNER: OwningStudy(1, "study")}, {"run-1": KnownRun(OWNER, ended=False)})
    fates = [
        decide_fate(finding, known, time.time()).fate
        for known in (study, KnownRecords())
        for finding in (waiting, running)
    ]
    assert fates == [OrphanFate.KEEP] * 4
    for finding in filter(None, (late, over)):
        assert finding.expires is not None
        assert decide_fate(finding, study, time.time()).fate is OrphanFate.SETTLE
        assert decide_fate(finding, KnownRecords(), time.time()).fate in (OrphanFate.DESTROY, OrphanFate.FORGET)


def test_without_more_than_an_expiry_that_is_what_counts(fake: Fake) -> None:
    [handle] = fake(squeue=listed("RUNNING", "30:00")).find(OWNER)
    assert handle.data["expires"] == 1000.0


def test_what_a_killed_process_left_is_cleaned_up(fake: Fake, tmp_path: Path) -> None:
    runner = fake()
    kept = submitted(runner, tmp_path)
    batches = tmp_path / "data" / "slurm" / "batches"
    # It had written the batch, and no note yet.
    (batches / "run-2").mkdir()
    (batches / "run-2" / "0").write_text("secret")
    handle = runner.submit(request_for(tmp_path, ("true",), "run-2"), [])
    assert b"secret" not in (batches / "run-2" / "0").read_bytes()
    runner.forget(handle)
    (batches / "run-3").mkdir()
    for old in (batches / "run-3", batches / "run-1"):
        os.utime(old, (1, 1))
    assert [each.run_id for each in runner.find(OWNER)] == [kept.run_id]
    assert [path.name for path in batches.iterdir()] == ["run-1"]


def test_a_batch_whose_note_cannot_be_read_for_a_moment_stays(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = fake(sbatch='echo x >> "$0.calls"; echo 7')
    submitted(runner, tmp_path, claim="")
    batch = tmp_path / "data" / "slurm" / "batches" / "run-1"
    os.utime(batch, (1, 1))
    note, read = runner.spool.note(OWNER, "run-1"), Path.read_bytes

    def hiccup(path: Path) -> bytes:
        if path == note:
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", hiccup)
        runner.find(OWNER)
        assert batch.is_dir()
        with pytest.raises(UnreachableError, match="cannot be read"):
            runner.submit(request_for(tmp_path, ("true",)), [])
    assert runner.submit(request_for(tmp_path, ("true",)), []).data["job"] == "7"
    assert runner.spool.claim("run-1", 0) == ""
    [calls] = tmp_path.glob("bin-*/sbatch.calls")
    assert calls.read_text() == "x\n"


def test_who_looks_at_everybodys_runs_removes_nothing(fake: Fake, tmp_path: Path) -> None:
    runner = fake()
    batch = tmp_path / "data" / "slurm" / "batches" / "run-3"
    batch.mkdir(parents=True)
    os.utime(batch, (1, 1))
    assert runner.find(None) == []
    assert batch.is_dir()
    assert runner.find(OWNER) == []
    assert not batch.exists()


def test_a_variable_that_no_shell_knows_is_refused(fake: Fake, tmp_path: Path) -> None:
    runner = fake()
    wrong: list[dict[str, Any]] = [{"env": {"A-B": "1"}}, {"env": {"A": "x\0y"}}]
    for changes in wrong:
        with pytest.raises(DeployError) as caught:
            runner.submit(request_for(tmp_path, ("true",), **changes), [])
        assert not caught.value.retryable


def test_a_run_that_asks_for_no_time_gets_what_the_partition_gives(fake: Fake, tmp_path: Path) -> None:
    words = tmp_path / "words"
    runner = fake(sbatch=f'echo "$@" >>{words}; echo 7', scontrol=job("TIMEOUT", limit="00:01:00"))
    unasked = request_for(tmp_path, ("true",), limits=Limits(wall_seconds=604800.0, asked=False))
    handle = runner.submit(unasked, [])
    assert "--time" not in words.read_text()
    (tmp_path / "data" / "slurm" / "batches" / "run-1" / "0.claim").write_text("7\n")
    status = verdict(runner, handle)
    assert (status.state, status.fault, status.runtime) == (RunState.TIMED_OUT, Fault.JOB, 65)
    assert status.reason == (
        "it reached the partition's usual time limit of 1m 00s: set deploy.longest or a deadline to ask for more"
    )
    runner.submit(request_for(tmp_path, ("true",), "run-2", limits=Limits(wall_seconds=604800.0)), [])
    assert "--time=10081" in words.read_text()


def test_small_words() -> None:
    assert [seconds_of(text) for text in ("0:05", "1:02:03", "2-00:00:01", "INVALID", "")] == [5, 3723, 172801, 0, 0]
    assert ranges([3, 0, 1, 2, 7, 9, 8]) == "0-3,7-9"
    assert ranges([4]) == "4"


@pytest.mark.parametrize(
    ("answers", "left"),
    [
        ({"scontrol": job("TIMEOUT", "0:15", limit="00:01:00")}, {"state": "terminated", "runtime": 61.0}),
        # Slurm signals all steps at once: the program may have ended before the job script saw why.
        (
            {"scontrol": job("TIMEOUT", "0:15", limit="00:01:00")},
            {"state": "failed", "exit_code": 143, "runtime": 61.0},
        ),
        ({"scontrol": _UNKNOWN, "sacct": 'echo "7|run-1|TIMEOUT|0:15|00:01:01|n1|00:01:00"'}, {"state": "executing"}),
    ],
)
def test_a_limit_that_only_slurm_has_is_told_as_that_limit_and_not_as_the_runs_own(
    fake: Fake, tmp_path: Path, answers: dict[str, str], left: dict[str, Any]
) -> None:
    runner = fake(**answers)
    handle = runner.submit(request_for(tmp_path, ("true",), limits=Limits(wall_seconds=3600.0)), [])
    (tmp_path / "data" / "slurm" / "batches" / "run-1" / "0.claim").write_text("7\n")
    (request_for(tmp_path, ("true",)).folder / "result.json").write_text(json.dumps({"job": "7", "node": "n1", **left}))
    status = verdict(runner, handle)
    assert (status.state, status.fault) == (RunState.TIMED_OUT, Fault.JOB)
    assert status.reason.startswith("it reached Slurm's time limit of 1m 00s: see --time under `sbatch`")
    assert verdict(fake(), handle) == status, "another process says the same"
