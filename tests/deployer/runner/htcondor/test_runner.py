"""The HTCondor runner, against programs that behave like HTCondor's and really run the jobs."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.continued import assert_goes_on
from tests.deployer.helpers import python, request_for
from tests.deployer.runner.htcondor.kills import kill_everywhere
from tests.engines import condor as engine
from tests.engines.condor import Condor, condorlib
from tests.waiting import eventually

from tradewind import plugins
from tradewind.deployer.runner.base import Runner
from tradewind.deployer.runner.htcondor import commands as htcondor_asking
from tradewind.deployer.runner.htcondor.event_log import read_event_log
from tradewind.deployer.runner.htcondor.runner import HtCondorRunner
from tradewind.deployer.runner.htcondor.settings import HtCondorSettings
from tradewind.deployer.runner.htcondor.status import status_of, summary_of_ad, why_idle
from tradewind.deployer.runner.htcondor.submit_description import quoted, script
from tradewind.errors import (
    CredentialsError,
    DeployError,
    MissingProgramError,
    SpecError,
    TradewindError,
    UnreachableError,
)
from tradewind.problem import CheckpointPlan, Fault, Handle, RunRequest, RunState
from tradewind.testing.runners import RunnerBench, RunnerConformance, poll_until, wait_for_end

pytestmark = pytest.mark.xdist_group("htcondor")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Condor]:
    yield from engine.running(tmp_path_factory.mktemp("condor"))


@pytest.fixture
def condor(server: Condor, monkeypatch: pytest.MonkeyPatch) -> Iterator[Condor]:
    monkeypatch.setattr(htcondor_asking, "_ABSENT_SECONDS", 0.2)
    server.config()
    yield server
    server.config()


def runner_over(condor: Condor, folder: Path, **settings: Any) -> HtCondorRunner:
    given = {"bin": str(condor.bin), "interval": 0.2, "grace": 0.3, **settings}
    return HtCondorRunner(settings=HtCondorSettings(**given), data_folder=folder / "data")


class Bench(RunnerBench):
    wall_seconds = 1.0

    def __init__(self, folder: Path, condor: Condor) -> None:
        super().__init__(folder)
        self.condor = condor
        self.files = "transfer"

    def make(self) -> Runner:
        return runner_over(self.condor, self.folder, files=self.files)

    def close(self) -> None:
        self.condor.clear()

    def count(self, request: RunRequest) -> int:
        return self.condor.starts(request.folder)


class TestHtCondor(RunnerConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path, condor: Condor) -> Iterator[RunnerBench]:
        bench = Bench(tmp_path, condor)
        yield bench
        bench.close()
        assert condor.left() == []

    def test_a_checkpoint_is_copied_while_the_job_runs_and_put_into_the_next(self, bench: RunnerBench) -> None:
        """Where files are transferred; a run with an image is refused."""
        assert isinstance(bench, Bench)
        plan = CheckpointPlan(bench.folder / "checkpoints", 60.0)
        wanted = replace(bench.request("good", "a-0"), checkpoint=plan, image="debian:12")
        with pytest.raises(DeployError, match="htcondor keeps no checkpoints here"):
            bench.submit(bench.runner(), wanted)
        super().test_a_checkpoint_is_copied_while_the_job_runs_and_put_into_the_next(bench)

    def test_checkpoints_where_jobs_see_the_folders_of_this_machine(self, bench: RunnerBench) -> None:
        assert isinstance(bench, Bench)
        bench.files = "shared"
        super().test_a_checkpoint_is_copied_while_the_job_runs_and_put_into_the_next(bench)


def test_the_last_checkpoint_of_an_evicted_run_is_sent(tmp_path: Path, condor: Condor) -> None:
    runner, plan = runner_over(condor, tmp_path, grace=20), CheckpointPlan(tmp_path / "checkpoints", 60.0)
    (tmp_path / "one").mkdir()
    program = "trap 'echo last > \"$TRADEWIND_CHECKPOINT/state\"; exit' TERM; touch BEGUN; while :; do sleep 0.1; done"
    program = program.replace("BEGUN", str(tmp_path / "begun"))
    request = replace(request_for(tmp_path / "one", ["sh", "-c", program]), checkpoint=plan)
    handle = runner.submit(request, [])
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    eventually(lambda: (tmp_path / "begun").exists())
    condor.order(request.run_id, "evict")
    assert wait_for_end(runner, handle).state is RunState.PREEMPTED
    assert (
        runner.copy_checkpoint(handle, tmp_path / "copy").fingerprint == runner.look_at_checkpoint(handle).fingerprint
    )
    assert (tmp_path / "copy" / "state").read_text() == "last\n"
    runner.forget(handle)
    assert not list((request.folder / "condor").glob("*.tar"))
    condor.clear()


def test_a_machine_without_chirp_is_said(tmp_path: Path, condor: Condor) -> None:
    condor.config(chirp=False)
    runner = runner_over(condor, tmp_path)
    (tmp_path / "one").mkdir()
    request = replace(request_for(tmp_path / "one", ["true"]), checkpoint=CheckpointPlan(tmp_path / "kept", 60.0))
    handle = runner.submit(request, [])
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)
    assert "no condor_chirp" in status.reason
    runner.forget(handle)
    condor.clear()


@pytest.fixture(params=["transfer", "shared"])
def runner(tmp_path: Path, condor: Condor, request: pytest.FixtureRequest) -> Iterator[HtCondorRunner]:
    made = runner_over(condor, tmp_path, files=request.param)
    yield made
    condor.clear()


@pytest.fixture
def plain(tmp_path: Path, condor: Condor) -> Iterator[HtCondorRunner]:
    made = runner_over(condor, tmp_path, files="shared")
    yield made
    condor.clear()


HOSTILE = (
    "a b",
    "it's",
    'say "hi"',
    "''",
    '""',
    "$(HOME)",
    "$HOME",
    "`id`",
    "a\nb",
    "\\",
    "",
    " ",
    "*",
    "é",
    "-n",
    "%",
    "#",
)


def test_arguments_and_variables_arrive_as_they_are(runner: HtCondorRunner, tmp_path: Path) -> None:
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['ODD'], os.environ['TRADEWIND_RUN_ID']]))"
    odd = "\n".join(HOSTILE)
    request = request_for(tmp_path, (*python(code), *HOSTILE), "run '1' $(x)", env={"ODD": odd})
    handle = runner.submit(request, [])
    status = wait_for_end(runner, handle)
    assert status.state is RunState.DONE, (status, (request.folder / "stderr").read_text())
    assert json.loads((request.folder / "stdout").read_text()) == [list(HOSTILE), odd, "run '1' $(x)"]


def test_arguments_in_the_new_syntax() -> None:
    words = [word for word in HOSTILE if "\n" not in word]
    text = condorlib.expand(quoted(words))
    assert condorlib.arguments_of(text) == words
    for wrong in ("a\nb", "a\rb", "a\0b"):
        with pytest.raises(DeployError, match="line break") as caught:
            quoted([wrong])
        assert not caught.value.retryable


def test_a_folder_with_a_line_break_is_refused_clearly(plain: HtCondorRunner, tmp_path: Path) -> None:
    fine = request_for(tmp_path, ("true",), "run-1")
    odd = request_for(tmp_path, ("true",), "run-2", folder=tmp_path / "a\nb")
    answers = plain.submit_all([(fine, ()), (odd, ())])
    assert isinstance(answers["run-1"], Handle)
    assert isinstance(answers["run-2"], DeployError)
    assert "line break" in str(answers["run-2"])
    assert wait_for_end(plain, answers["run-1"]).state is RunState.DONE


def test_many_runs_are_one_submission(runner: HtCondorRunner, condor: Condor, tmp_path: Path) -> None:
    before = condor.calls("condor_submit")
    requests = [request_for(tmp_path, ("sh", "-c", f"exit {i % 2}"), f"run-{i}") for i in range(12)]
    answers = runner.submit_all([(request, ()) for request in requests])
    assert condor.calls("condor_submit") == before + 1
    handles = [handle for handle in answers.values() if isinstance(handle, Handle)]
    assert len({handle.data["cluster"] for handle in handles}) == 1
    assert sorted(handle.data["process"] for handle in handles) == list(range(12))
    states = [wait_for_end(runner, handle).exit_code for handle in handles]
    assert states == [0, 1] * 6
    asked = condor.calls("condor_q")
    for _ in range(20):
        runner.poll(handles)
    assert condor.calls("condor_q") == asked, "runs that have ended are not asked about"


def test_files_go_there_and_come_back(runner: HtCondorRunner, tmp_path: Path) -> None:
    request = request_for(
        tmp_path,
        ("sh", "-c", "cat data/in.txt $TRADEWIND_INPUTS/more; mkdir -p deep/er; echo kept > deep/er/a.csv;"
         "echo no > b.txt; echo {} > $TRADEWIND_METRICS; echo out > $TRADEWIND_OUTPUTS/own; "
            "ln -s /etc/passwd $TRADEWIND_OUTPUTS/link"),
        outputs=("deep/**/*.csv",),
    )  # fmt: skip
    (request.workdir / "data").mkdir()
    (request.workdir / "data" / "in.txt").write_text("in\n")
    (request.folder / "inputs").mkdir(parents=True)
    (tmp_path / "far").write_text("more\n")
    (request.folder / "inputs" / "more").symlink_to(tmp_path / "far")
    handle = runner.submit(request, [])
    assert wait_for_end(runner, handle).state is RunState.DONE
    for _ in range(2):
        runner.collect(handle, request)
    assert (request.folder / "stdout").read_text() == "in\nmore\n"
    assert (request.folder / "metrics.jsonl").read_text() == "{}\n"
    assert (request.folder / "outputs" / "own").read_text() == "out\n"
    assert (request.folder / "outputs" / "deep" / "er" / "a.csv").read_text() == "kept\n"
    if runner.settings.files == "transfer":
        assert sorted(path.name for path in request.workdir.rglob("*")) == ["data", "in.txt"]
        assert not (request.folder / "outputs" / "link").exists()
    runner.forget(handle)
    assert not list((request.folder / "condor").glob("*.tar"))


def test_the_environment_is_that_of_a_run(runner: HtCondorRunner, tmp_path: Path) -> None:
    script = "echo $TRADEWIND_PARAM_X $COLOUR; test -d $TRADEWIND_OUTPUTS; pwd; echo oops >&2; exit 4"
    request = request_for(tmp_path, ("sh", "-c", script), env={"COLOUR": "blue"})
    status = wait_for_end(runner, runner.submit(request, []))
    assert (status.exit_code, status.reason) == (4, "the program exited with code 4")
    first, place = (request.folder / "stdout").read_text().splitlines()
    assert first == "1 blue"
    assert (place == str(request.workdir)) == (runner.settings.files == "shared")
    assert (request.folder / "stderr").read_text() == "oops\n"


def test_secrets_stay_until_a_job_that_starts_slowly_has_read_them(
    runner: HtCondorRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTCondor says that it runs before its first line is carried out."""

    def slow(*words: Any) -> str:
        return script(*words).replace("\n", "\nsleep 1\n", 1)

    monkeypatch.setattr("tradewind.deployer.runner.htcondor.exchange_folder.script", slow)
    monkeypatch.setenv("MY_TOKEN", "s3cr3t")
    code = "import os, sys; sys.exit(os.environ.get('TOKEN') != 's3cr3t')"
    request = request_for(tmp_path, python(code), secrets={"TOKEN": "env:MY_TOKEN"})
    handle = runner.submit(request, [])
    assert wait_for_end(runner, handle).state is RunState.DONE
    assert not (request.folder / "condor" / "secrets.sh").exists()


def kept(path: Path) -> bytes:
    """What a file has; nothing once it has gone, or is none that can be read."""
    try:
        return path.read_bytes() if path.is_file() else b""
    except FileNotFoundError:
        return b""


def test_secrets_reach_the_job_and_stay_nowhere(
    runner: HtCondorRunner, condor: Condor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = "s3cr3t 'quoted' $(x)\nvalue"
    monkeypatch.setenv("MY_TOKEN", value)
    code = "import os, sys; sys.exit(os.environ['TOKEN'] != os.environ['WANTED'].replace('_', 's3cr3t'))"
    wanted = value.replace("s3cr3t", "_")
    request = request_for(tmp_path, python(code), env={"WANTED": wanted}, secrets={"TOKEN": "env:MY_TOKEN"})
    handle = runner.submit(request, [])
    job = condor.of("run-1")
    assert "s3cr3t" not in json.dumps([job, handle.to_json()])
    assert wait_for_end(runner, handle).state is RunState.DONE
    runner.collect(handle, request)
    # The folder that the job ran in may just be going: what has gone keeps nothing.
    places = [Path(at) / name for top in (tmp_path, condor.state) for at, _, names in os.walk(top) for name in names]
    assert places
    assert not [
        each for each in places if each.name != "job.sh" and b"s3cr3t" in kept(each).replace(code.encode(), b"")
    ]
    assert not (request.folder / "condor" / "secrets.sh").exists()
    assert (request.folder / "condor" / "job.sh").read_text().count("s3cr3t") == 1, "the program's own word"


def test_a_signal_is_a_negative_exit_code(plain: HtCondorRunner, tmp_path: Path) -> None:
    status = wait_for_end(plain, plain.submit(request_for(tmp_path, ("sh", "-c", "kill -SEGV $$")), []))
    assert (status.state, status.exit_code, status.fault) == (RunState.FAILED, -11, Fault.JOB)
    assert "SIGSEGV" in status.reason


def test_a_file_that_is_not_executable(runner: HtCondorRunner, tmp_path: Path) -> None:
    request = request_for(tmp_path, ("./data.txt",))
    (request.workdir / "data.txt").write_text("x")
    status = wait_for_end(runner, runner.submit(request, []))
    assert (status.state, status.exit_code) == (RunState.FAILED, 127)
    assert "not executable" in status.reason


def test_memory_is_limited_also_where_machines_do_not(plain: HtCondorRunner, condor: Condor, tmp_path: Path) -> None:
    condor.config(memory=False)
    request = request_for(tmp_path, python("x = b'x' * 2**28\nimport time; time.sleep(60)"), memory=2**27)
    status = wait_for_end(plain, plain.submit(request, []))
    assert (status.state, status.fault) == (RunState.FAILED, Fault.JOB)
    assert status.reason == "out of memory: it used more memory than it asked for"
    assert condor.left() == []


def test_a_job_that_ignores_sigterm_is_killed_after_the_grace(plain: HtCondorRunner, tmp_path: Path) -> None:
    request = request_for(tmp_path, ("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"), wall=0.5)
    status = wait_for_end(plain, plain.submit(request, []))
    assert (status.state, status.exit_code) == (RunState.TIMED_OUT, -9)
    assert 0.8 <= status.runtime < 30


def test_a_job_may_say_goodbye(plain: HtCondorRunner, tmp_path: Path) -> None:
    request = request_for(
        tmp_path, ("sh", "-c", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    )
    handle = plain.submit(request, [])
    eventually(lambda: (request.folder / "stdout").exists() and (request.folder / "stdout").read_text())
    plain.cancel(handle)
    assert wait_for_end(plain, handle).state is RunState.CANCELLED
    assert (request.folder / "stdout").read_text() == "ready\nbye\n"


def running(runner: HtCondorRunner, request: RunRequest) -> Handle:
    handle = runner.submit(request, [])
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    return handle


LONG = ("sh", "-c", "echo ran >> $COUNT; setsid sleep 60 & sleep 60")


@pytest.mark.parametrize("fate", ["evict", "hold", "machine", "rm"])
def test_a_run_that_is_taken_its_machine_is_preempted_and_not_repeated(
    plain: HtCondorRunner, condor: Condor, tmp_path: Path, fate: str
) -> None:
    request = request_for(tmp_path, LONG, env={"COUNT": str(tmp_path / "count")})
    handle = running(plain, request)
    eventually((tmp_path / "count").exists)
    if fate == "machine":
        condor.kill_machine("run-1")
    elif fate == "rm":
        assert condor.call("condor_rm", "-constraint", 'TradewindRun == "run-1"').returncode == 0
    else:
        condor.order("run-1", fate)
    status = wait_for_end(plain, handle)
    assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)
    words = {"evict": "evicted", "hold": "somebody has put it on hold", "machine": "lost its machine", "rm": "removed"}
    assert words[fate] in status.reason
    plain.forget(handle)
    eventually(lambda: condor.of("run-1") is None)
    assert plain.find(request.owner) == []
    assert (tmp_path / "count").read_text() == "ran\n"
    assert condor.left() == []


def test_what_is_past_its_expiry_is_removed_by_the_pool_itself(condor: Condor, tmp_path: Path) -> None:
    runner = runner_over(condor, tmp_path)
    request = request_for(tmp_path, ("sleep", "60"), expires=time.time() + 1)
    handle = runner.submit(request, [])
    runner.close()
    eventually(lambda: condor.of("run-1") is None)
    assert condor.left() == []
    assert wait_for_end(runner_over(condor, tmp_path), handle).state is RunState.PREEMPTED


def test_what_waits_does_not_expire_and_what_runs_counts_from_its_beginning(condor: Condor, tmp_path: Path) -> None:
    runner = runner_over(condor, tmp_path)
    condor.config(slots=0)
    request = request_for(tmp_path, ("sleep", "60"), expires=time.time() + 6)
    handle = runner.submit(request, [])
    time.sleep(max(0.0, request.expires + 1.0 - time.time()))
    [waiting] = runner.find(request.owner)
    assert "expires" not in waiting.data
    assert condor.of("run-1") is not None, "the pool has removed a job that waited"
    condor.config()
    eventually(lambda: runner.poll([handle])["run-1"].state is RunState.EXECUTING)
    [running] = runner.find(request.owner)
    assert running.data["expires"] > request.expires + 1.0
    assert wait_for_end(runner, handle).state is RunState.PREEMPTED  # in the end the pool removes it


@pytest.mark.parametrize(
    ("config", "image", "state", "fault", "words"),
    [
        ({}, "debian:99", RunState.FAILED, Fault.PREREQUISITE, "image cannot be used.*debian:99"),
        ({}, "debian:12", RunState.DONE, None, "^$"),
        ({"transfer": "input"}, None, RunState.PREEMPTED, Fault.INFRASTRUCTURE, "input files were not transferred"),
        ({"transfer": "output"}, None, RunState.PREEMPTED, Fault.INFRASTRUCTURE, "output files.*disk is full"),
    ],
)
def test_held_jobs_are_seen_and_end(
    condor: Condor, tmp_path: Path, config: dict[str, Any], image: str | None,
    state: RunState, fault: Fault | None, words: str,
) -> None:  # fmt: skip
    condor.config(**config)
    runner = runner_over(condor, tmp_path, files="shared" if image else "transfer")
    handle = runner.submit(request_for(tmp_path, ("true",), image=image), [])
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (state, fault)
    assert re.search(words, status.reason)
    eventually(lambda: (condor.of("run-1") is not None) == (state is not RunState.DONE))
    runner.forget(handle)
    assert condor.of("run-1") is None


@pytest.mark.parametrize(
    ("code", "subcode", "why", "state", "fault", "words"),
    [
        (34, 102, "Docker job has gone over memory limit of 128 Mb", RunState.FAILED, Fault.JOB, "memory"),
        (34, 0, "used all of its resources", RunState.FAILED, Fault.JOB, "memory"),
        (34, 104, "Job has exceeded request_disk", RunState.FAILED, Fault.JOB, "disk"),
        (26, 0, "SYSTEM_PERIODIC_HOLD: memory usage is too high", RunState.FAILED, Fault.JOB, "memory"),
        (26, 0, "SYSTEM_PERIODIC_HOLD: too many starts", RunState.PREEMPTED, Fault.INFRASTRUCTURE, "too many"),
        (
            46,
            0,
            "exceeded allowed job duration",
            RunState.TIMED_OUT,
            Fault.JOB,
            "^it reached the pool's time limit: exc",
        ),
        (26, 0, "SYSTEM_PERIODIC_HOLD: wall time above 1 day", RunState.TIMED_OUT, Fault.JOB, "the pool's time limit"),
        (3, 0, "job exceeded the time limit of the pool", RunState.TIMED_OUT, Fault.JOB, "the pool's time limit"),
        (47, 0, "exceeded allowed execute duration", RunState.TIMED_OUT, Fault.JOB, "limit of 1m"),
        (35, 0, "Error pulling image", RunState.FAILED, Fault.PREREQUISITE, "image"),
        (6, 2, "Failed to execute: invalid image", RunState.FAILED, Fault.PREREQUISITE, "image"),
        (35, 0, "pull: dial tcp: i/o timeout", RunState.FAILED, Fault.INFRASTRUCTURE, "image"),
        (
            6,
            8,
            "Failed to execute x: (errno=8: 'Exec format error')",
            RunState.FAILED,
            Fault.ARCHITECTURE,
            "architecture",
        ),
        (6, 2, "Failed to execute /bin/sh", RunState.PREEMPTED, Fault.INFRASTRUCTURE, r"\(6.2\)"),
        (14, 2, "Cannot access initial working directory", RunState.PREEMPTED, Fault.INFRASTRUCTURE, "set files"),
        (13, 28, "failed to send", RunState.PREEMPTED, Fault.INFRASTRUCTURE, "disk is full"),
        (32, 0, "too large", RunState.FAILED, Fault.JOB, "disk"),
        (1, 0, "via condor_hold", RunState.PREEMPTED, Fault.INFRASTRUCTURE, "somebody"),
        (0, 0, "", RunState.PREEMPTED, Fault.INFRASTRUCTURE, "does not say why"),
    ],
)
def test_whose_fault_a_hold_is(code: int, subcode: int, why: str, state: RunState, fault: Fault, words: str) -> None:
    ad = {"JobStatus": 5, "HoldReasonCode": code, "HoldReasonSubCode": subcode, "HoldReason": why}
    status = status_of(summary_of_ad(ad), {}, "program", 60.0, None)
    assert (status.state, status.fault) == (state, fault)
    assert re.search(words, status.reason), status.reason
    assert status_of(summary_of_ad(ad), {}, "program", 60.0, "enough").state is RunState.CANCELLED


def test_attributes_tell_the_same_as_logs() -> None:
    assert summary_of_ad({"JobStatus": 1, "NumJobStarts": 0}).state == "idle"
    assert summary_of_ad({"JobStatus": 1, "NumJobStarts": 1}).state == "lost"
    assert summary_of_ad({"JobStatus": 2}).state == summary_of_ad({"JobStatus": 6}).state == "running"
    assert summary_of_ad({"JobStatus": 5, "HoldReasonCode": 16}).state == "idle", "its files are on their way"
    done = summary_of_ad({"JobStatus": 4, "ExitCode": 0, "CompletionDate": 100, "RemoteWallClockTime": 7.5})
    assert (done.state, done.code, done.begun, done.ended) == ("terminated", 0, 92.5, 100)
    killed = summary_of_ad({"JobStatus": 4, "ExitBySignal": True, "ExitSignal": 9})
    status = status_of(killed, {}, "program", None, None)
    assert (status.exit_code, status.state) == (-9, RunState.FAILED)
    none = status_of(summary_of_ad({"JobStatus": 4}), {}, "program", None, None)
    assert (none.state, none.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)


def test_logs_of_older_versions_and_half_written_ones(tmp_path: Path) -> None:
    log = tmp_path / "log"
    today = time.strftime("%m/%d %H:%M:%S", time.localtime(time.time() - 100))
    event = (
        f"000 (041.002.000) {today} Job submitted from host: <1.2.3.4>\n...\n"
        f"001 (041.002.000) {today} Job executing on host: <1.2.3.4>\n...\n"
        f"006 (041.002.000) {today} Image size of job updated: 9\n\t3  -  MemoryUsage of job (MB)\n"
        "\t2048  -  ResidentSetSize of job (KB)\n...\n"
    )
    log.write_text(event)
    summary = read_event_log(log)
    assert (summary.cluster, summary.process, summary.state, summary.memory_bytes) == (41, 2, "running", 2**21)
    assert summary.begun is not None
    assert 90 < time.time() - summary.begun < 200
    end = (
        f"005 (041.002.000) {today} Job terminated.\n\t(0) Abnormal termination (signal 9)\n\t(0) No core file\n"
        "\t\tUsr 0 00:01:05, Sys 1 00:00:01  -  Total Remote Usage\n"
        "\tPartitionable Resources :    Usage  Request Allocated\n"
        "\t   Memory (MB)          :        7      128       128\n"
    )
    log.write_text(event + end)
    assert read_event_log(log).state == "running", "the event is not whole yet"
    log.write_text(event + end + "...\n")
    summary = read_event_log(log)
    assert (summary.state, summary.code, summary.cpu_seconds, summary.memory_bytes) == (
        "terminated",
        -9,
        86466.0,
        7 * 2**20,
    )
    log.write_text("nonsense\n...\n\n...\n" + event + f"007 (041.002.000) {today} Shadow exception!\n\tlost it\n...\n")
    assert (read_event_log(log).state, "lost it" in read_event_log(log).reason) == ("lost", True)


def test_the_end_is_known_while_condor_q_is_down(plain: HtCondorRunner, condor: Condor, tmp_path: Path) -> None:
    request = request_for(tmp_path, ("sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"))
    handle = running(plain, request)
    condor.config(down=True)
    time.sleep(0.3)
    assert plain.poll([handle])["run-1"].state is RunState.EXECUTING
    (request.workdir / "go").touch()
    assert wait_for_end(plain, handle).state is RunState.DONE
    with pytest.raises(UnreachableError):
        plain.find(None)


@pytest.mark.slow
def test_an_engine_that_is_gone_holds_nobody_up(condor: Condor, tmp_path: Path) -> None:
    runner = runner_over(condor, tmp_path, timeout=1)
    handle = running(runner, request_for(tmp_path, ("sleep", "60")))
    stranger = Handle("nobody", "htcondor", {})
    for config in ({"down": True}, {"garbage": True}, {"deny": True}, {"slow": {"condor_q": 60}}):
        condor.config(**config)
        began = time.monotonic()
        for _ in range(3):
            statuses = runner.poll([handle, stranger])
            assert {status.state for status in statuses.values()} == {RunState.EXECUTING}
            time.sleep(0.2)
        assert time.monotonic() - began < 5
    condor.config()
    assert wait_for_end(runner, stranger).state is RunState.PREEMPTED
    runner.cancel(handle)
    assert wait_for_end(runner, handle).state is RunState.CANCELLED


@pytest.mark.parametrize("history", ["fine", "slow", "dead"])
def test_without_event_logs_the_queue_and_the_history_tell(condor: Condor, tmp_path: Path, history: str) -> None:
    slow = {"fine": 0, "slow": 60, "dead": 0}[history]
    condor.config(events=False, slow={"condor_history": slow})
    if history == "dead":
        (condor.bin / "condor_history").rename(condor.bin / "away")
    try:
        runner = runner_over(condor, tmp_path, timeout=1)
        request = request_for(tmp_path, ("sh", "-c", "exit 3"))
        handle = runner.submit(request, [])
        began = time.monotonic()
        status = wait_for_end(runner, handle)
        assert time.monotonic() - began < 30
        # The script's own note says it in the end.
        assert (status.state, status.exit_code, status.fault) == (RunState.FAILED, 3, Fault.JOB)
        (request.folder / "condor" / "result").unlink()
        other = runner_over(condor, tmp_path, timeout=1)
        status = wait_for_end(other, handle)
        wanted = (RunState.FAILED, 3) if history == "fine" else (RunState.PREEMPTED, None)
        assert (status.state, status.exit_code) == wanted
    finally:
        if history == "dead":
            (condor.bin / "away").rename(condor.bin / "condor_history")


@pytest.mark.parametrize(
    ("config", "settings", "error", "words"),
    [
        ({"down": True}, {}, UnreachableError, "Can't find address.*condor_schedd"),
        ({"deny": True}, {}, CredentialsError, "AUTHENTICATE.*condor_ping"),
        ({"slow": {"condor_submit": 60}}, {"timeout": 0.1}, UnreachableError, "did not answer within"),
        ({}, {"requirements": "(((("}, DeployError, "Parse error"),
        ({}, {"bin": "/not/there"}, MissingProgramError, "no condor_submit in /not/there.*bin"),
        ({}, {"sent_bytes": "0.000001GiB"}, DeployError, "too large"),
    ],
)
def test_every_refusal_is_one_typed_error(
    condor: Condor, tmp_path: Path, config: dict[str, Any], settings: dict[str, Any],
    error: type[TradewindError], words: str,
) -> None:  # fmt: skip
    request = request_for(tmp_path, ("true",), secrets={"S": "env:HOME"})
    (request.workdir / "file").write_bytes(b"x" * 5000)
    condor.config(**config)
    runner = runner_over(condor, tmp_path, **settings)
    with pytest.raises(error, match=words) as caught:
        runner.submit(request, [])
    assert type(caught.value) is error
    assert not (request.folder / "condor" / "secrets.sh").exists()
    condor.config()
    assert runner_over(condor, tmp_path).find(None) == []
    assert condor.of("run-1") is None


def test_a_run_that_no_machine_matches_says_so_while_it_waits(
    plain: HtCondorRunner, condor: Condor, tmp_path: Path
) -> None:
    condor.config(no_match="no match found ")
    handle = plain.submit(request_for(tmp_path, ("true",)), [])
    status = poll_until(plain, handle, lambda status: bool(status.reason))
    assert status.state is RunState.SUBMITTING
    [ad] = condor.jobs()
    assert status.reason == f"no match found (condor_q -better-analyze {ad['ClusterId']}.0 says more)"
    condor.config()
    done = wait_for_end(plain, handle)
    assert (done.state, done.reason) == (RunState.DONE, "")


@pytest.mark.parametrize(
    ("ad", "words"),
    [
        ({}, ""),
        ({"JobStatus": 1}, ""),
        (
            {"JobStatus": 1, "LastRejMatchReason": "insufficient priority", "LastRejMatchTime": 5},
            "insufficient priority",
        ),
        ({"JobStatus": 1, "LastRejMatchReason": "no", "LastRejMatchTime": 5, "LastMatchTime": 6}, ""),
        ({"JobStatus": 2, "LastRejMatchReason": "no", "LastRejMatchTime": 5}, ""),
    ],
)
def test_why_a_job_waits_is_the_last_word_of_the_negotiator(ad: dict[str, Any], words: str) -> None:
    found = why_idle({"ClusterId": 1, "ProcId": 0, **ad})
    assert found.startswith(words)
    assert bool(found) is bool(words)


def test_requests_that_cannot_be_met(plain: HtCondorRunner, tmp_path: Path) -> None:
    whole = request_for(tmp_path, ("true",))
    for wrong, words in (
        (replace(whole, offer=whole.offer.times(2)), "one machine"),
        (replace(whole, workdir=tmp_path / "gone"), r"working folder .* does not exist"),
        (replace(whole, env={"A-B": "x"}), "name of an environment variable"),
        (replace(whole, secrets={"S": "env:NOT_THERE"}), "no variable NOT_THERE"),
    ):
        with pytest.raises(DeployError, match=words) as caught:
            plain.submit(wrong, [])
        assert not caught.value.retryable
    (tmp_path / "file").write_text("")
    with pytest.raises(DeployError, match="cannot be written"):
        plain.submit(replace(whole, folder=tmp_path / "file" / "run"), [])


def test_settings_are_checked(tmp_path: Path) -> None:
    for wrong in (
        {"submit": {"queue": "100"}},
        {"submit": {"+TradewindOwner": '"me"'}},
        {"submit": {"rank": "x\nqueue 100"}},
        {"submit": {"a b": "x"}},
        {"requirements": "x\nqueue"},
        {"files": "magic"},
        {"sent_bytes": "lots"},
    ):
        with pytest.raises(SpecError):
            plugins.create("runner", "htcondor", wrong, data_folder=tmp_path)
    made = HtCondorSettings(submit={"accounting_group": "physics", "+ProjectName": '"x"', "rank": "Mips"})
    assert made.submit["rank"] == "Mips"


def test_tags_are_in_the_submission(plain: HtCondorRunner, condor: Condor, tmp_path: Path) -> None:
    request = request_for(tmp_path, ("sleep", "60"), owner='ada "the first" \\ $(x)')
    handle = plain.submit(request, [])
    [ad] = [ad for ad in condor.jobs() if ad["TradewindRun"] == "run-1"]
    assert ad["TradewindOwner"] == request.owner
    assert ad["TradewindExpires"] >= request.expires
    assert (ad["RequestCpus"], ad["RequestMemory"]) == (1, 2048)
    # Found by its tag alone, from a machine without our notes.
    other = runner_over(condor, tmp_path / "elsewhere")
    eventually(lambda: "expires" in other.find(request.owner)[0].data)
    [found] = other.find(request.owner)
    assert found.data["owner"] == request.owner
    assert found.data["expires"] >= request.expires
    other.cancel(found)
    assert wait_for_end(other, found).state is RunState.CANCELLED
    assert wait_for_end(plain, handle).state is RunState.CANCELLED


def test_a_lost_answer_submits_nothing_twice(condor: Condor, tmp_path: Path) -> None:
    condor.config(hang={"condor_submit": 60})
    runner = runner_over(condor, tmp_path, timeout=0.2, files="shared")
    request = request_for(tmp_path, ("sh", "-c", "echo ran >> count"))
    try:
        handle = runner.submit(request, [])
    except UnreachableError:  # condor_q did not answer in a fifth of a second either
        condor.config()
        runner = runner_over(condor, tmp_path, files="shared")
        handle = runner.submit(request, [])
    condor.config()
    assert wait_for_end(runner_over(condor, tmp_path), handle).state is RunState.DONE
    assert (request.workdir / "count").read_text() == "ran\n"
    assert condor.starts(request.folder) == 1


@pytest.mark.slow
def test_nothing_leaks_or_runs_twice_when_controllers_are_killed(condor: Condor, tmp_path: Path) -> None:
    assert kill_everywhere(condor, tmp_path, 10) >= 7


@pytest.mark.thorough
def test_paused_promoted_and_interrupted_trials_go_on_from_their_checkpoints(tmp_path: Path, condor: Condor) -> None:
    assert_goes_on(tmp_path, {"use": "htcondor", "bin": str(condor.bin), "interval": 0.2, "grace": 0.3})
