"""The process runner, with real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.deployer.helpers import OFFER, OWNER, process_runner, python, request_for
from tests.waiting import eventually

from tradewind.deployer.runner import procfs
from tradewind.deployer.runner.process import ProcessRunner
from tradewind.deployer.runner.warden.control_group import GroupMaker
from tradewind.errors import DeployError, MissingProgramError, PrerequisiteError
from tradewind.problem import Fault, Handle, RunState
from tradewind.testing.runners import poll_until, processes_of, wait_for_end

Make = Callable[..., ProcessRunner]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[ProcessRunner] = []

    def runner(**settings: float) -> ProcessRunner:
        made.append(process_runner(tmp_path, **settings))
        return made[-1]

    yield runner
    for each in made:
        for handle in each.find(OWNER):
            each.cancel(handle)
        each.close()


_HIDES = (
    "import os, time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        open('daemon', 'w').write(str(os.getpid()))\n"
    "        for fd in range(3): os.close(fd)\n"
    "        os.execve('/bin/sleep', ['sleep', '60'], {})\n"
    "    os._exit(0)\n"
    "os.wait()\n"
    "while not os.path.exists('daemon') or not open('daemon').read(): time.sleep(0.01)\n"
)
"""A program with a process that is in another session, has no environment and writes nowhere."""


def warden_of(folder: Path) -> int:
    pid: int = json.loads((folder / "started.json").read_text())["warden"][0]
    return pid


def test_output_and_environment_reach_the_run_folder(make: Make, tmp_path: Path) -> None:
    request = request_for(
        tmp_path,
        ("sh", "-c", "echo $TRADEWIND_PARAM_X $TRADEWIND_NODES $COLOUR; echo oops >&2; pwd >> $TRADEWIND_OUTPUTS/here"),
        env={"COLOUR": "blue"},
    )
    runner = make()
    assert wait_for_end(runner, runner.submit(request, [])).state is RunState.DONE
    assert (request.folder / "stdout").read_text() == "1 1 blue\n"
    assert (request.folder / "stderr").read_text() == "oops\n"
    assert (request.folder / "outputs" / "here").read_text().strip() == str(request.workdir.resolve())


def test_a_signal_is_a_negative_exit_code(make: Make, tmp_path: Path) -> None:
    runner = make()
    status = wait_for_end(runner, runner.submit(request_for(tmp_path, ("sh", "-c", "kill -SEGV $$")), []))
    assert (status.state, status.exit_code, status.fault) == (RunState.FAILED, -11, Fault.JOB)
    assert "SIGSEGV" in status.reason


def test_a_run_ignores_no_signal_that_its_warden_does_not_handle(make: Make, tmp_path: Path) -> None:
    request = request_for(tmp_path, ("sed", "-n", r"s/^SigIgn:\t//p", "/proc/self/status"))
    runner = make()
    wait_for_end(runner, runner.submit(request, []))
    ignored = int((request.folder / "stdout").read_text(), 16)
    names = ("SIGINT", "SIGHUP", "SIGPIPE", "SIGXFSZ", "SIGTERM", "SIGCHLD", "SIGUSR1")
    assert [name for name in names if ignored >> (getattr(signal, name) - 1) & 1] == []


def test_logs_and_reports_are_read_while_the_run_goes_on(make: Make, tmp_path: Path) -> None:
    runner = make()
    handle = runner.submit(
        request_for(tmp_path, ("sh", "-c", "echo one; echo '{}' > $TRADEWIND_METRICS; sleep 60")), []
    )
    eventually(lambda: runner.read_report(handle, 0) == b"{}\n")
    assert (runner.read_report(handle, 1), runner.read_log(handle, "stdout", 1)) == (b"}\n", b"ne\n")
    assert runner.read_log(handle, "../secret", 0) == b""
    runner.cancel(handle)
    assert wait_for_end(runner, handle).state is RunState.CANCELLED


def test_a_pipe_in_place_of_the_reports_holds_up_nobody(make: Make, tmp_path: Path) -> None:
    runner = make()
    handle = runner.submit(request_for(tmp_path, ("sh", "-c", "mkfifo $TRADEWIND_METRICS; echo made; sleep 60")), [])
    eventually(lambda: runner.read_log(handle, "stdout", 0) == b"made\n")
    assert runner.read_report(handle, 0) == b""
    runner.cancel(handle)
    assert wait_for_end(runner, handle).state is RunState.CANCELLED


@pytest.mark.slow
def test_usage_counts_children_and_daemons(make: Make, tmp_path: Path) -> None:
    burn = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', {burn!r}], check=True)"
    runner = make()
    status = wait_for_end(runner, runner.submit(request_for(tmp_path, python(code)), []))
    assert status.usage.cpu_seconds is not None
    assert status.usage.cpu_seconds >= 0.2
    assert status.usage.peak_memory_bytes is not None
    assert status.usage.peak_memory_bytes > 2**20


def test_low_level_metrics_are_those_of_the_kernel(make: Make, tmp_path: Path) -> None:
    code = (
        "import os, socket, time; os.system('true'); x = bytearray(2**24); time.sleep(0.05)\n"
        "a, b = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)\n"
        "b.bind(('127.0.0.1', 0)); [a.sendto(bytes(1000), b.getsockname()) for _ in range(20)]"
    )
    runner = make()
    profile = wait_for_end(runner, runner.submit(request_for(tmp_path, python(code)), [])).usage.profile
    names = {"user_seconds", "system_seconds", "read_bytes", "written_bytes", "network_bytes", "loopback_bytes"}
    assert names | {"major_faults", "minor_faults", "waits", "preemptions"} == set(profile)
    assert all(value >= 0 for value in profile.values())
    assert profile["minor_faults"] > 2**24 / 2**16
    assert profile["waits"] >= 1
    assert profile["loopback_bytes"] >= 20_000


@pytest.mark.parametrize("groups", [True, False])
def test_a_tree_that_takes_too_much_memory_together_is_killed(make: Make, tmp_path: Path, groups: bool) -> None:
    code = (
        "import os, time\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        x = os.urandom(1) * (48 * 2**20)\n"
        "        time.sleep(60)\n"
        "time.sleep(60)\n"
    )
    runner = make(groups=groups)
    request = request_for(tmp_path, python(code), memory=100 * 2**20)
    status = wait_for_end(runner, runner.submit(request, []))
    assert (status.state, status.fault) == (RunState.FAILED, Fault.JOB)
    assert status.reason == "out of memory: it used more than 100 MiB"
    assert not processes_of("run-1")


@pytest.fixture
def grouped() -> None:
    """Only where control groups may be made."""
    group = GroupMaker().make(f"{os.getpid()}-0-0")
    if group is None or not (Path(group.folder) / "cgroup.procs").exists():
        pytest.skip("no control group with memory may be made here")
    group.remove()


def group_of(folder: Path) -> Path:
    """The control group of a run."""
    return Path(json.loads((folder / "pid.json").read_text())["group"])


@pytest.mark.usefixtures("grouped")
def test_a_control_group_holds_memory_exactly(make: Make, tmp_path: Path) -> None:
    code = "x = []\nwhile len(x) < 200: x.append(b'x' * 2**20); print(len(x), flush=True)"
    runner = make()
    for run_id in ("run-1", "run-2"):  # the first waits for its group, the next one finds a process in its own
        request = request_for(tmp_path, python(code), run_id, memory=100 * 2**20)
        status = wait_for_end(runner, runner.submit(request, []))
        assert status.reason == "out of memory: it used more than 100 MiB"
        assert 60 < int((request.folder / "stdout").read_text().split()[-1]) < 100
        assert json.loads((request.folder / "result.json").read_text())["group_peak_bytes"] <= 100 * 2**20
        assert status.usage.peak_memory_bytes is not None and status.usage.peak_memory_bytes >= 100 * 2**20
    for run_id in ("run-3", "run-4"):  # groups are used again, and what was killed in them before is no matter
        later = request_for(tmp_path, ("true",), run_id, memory=100 * 2**20)
        assert wait_for_end(runner, runner.submit(later, [])).state is RunState.DONE
        assert json.loads((later.folder / "result.json").read_text())["group_peak_bytes"] < 50 * 2**20
    runner.close()
    eventually(lambda: not group_of(request.folder).exists())


@pytest.mark.usefixtures("grouped")
def test_no_group_is_left_when_the_warden_ends(make: Make, tmp_path: Path) -> None:
    runner = make()
    request = request_for(tmp_path, ("true",), memory=2**30)
    wait_for_end(runner, runner.submit(request, []))
    place, warden = group_of(request.folder).parent, warden_of(request.folder)
    assert list(place.glob(f"tradewind-{warden}-*")), "one stands by for the next run"
    runner.close()
    eventually(lambda: not list(place.glob(f"tradewind-{warden}-*")))


@pytest.mark.slow
@pytest.mark.usefixtures("grouped")
def test_a_job_that_hides_is_found_by_its_group_when_its_warden_is_killed(make: Make, tmp_path: Path) -> None:
    runner = make()
    request = request_for(tmp_path, python(f"{_HIDES}time.sleep(60)\n"), memory=2**30)
    handle = runner.submit(request, [])
    daemon = request.workdir / "daemon"
    eventually(lambda: daemon.exists() and daemon.read_text() and not psutil.Process(int(daemon.read_text())).environ())
    eventually((request.folder / "pid.json").exists)
    place, warden = group_of(request.folder).parent, warden_of(request.folder)
    os.kill(warden, signal.SIGKILL)
    assert wait_for_end(runner, handle).state is RunState.PREEMPTED
    seen = procfs.stat(int(daemon.read_text()))
    assert seen is None or seen.state in "ZX"
    # The next warden takes away what the other one left.
    again = request_for(tmp_path, ("true",), "run-2", memory=2**30)
    assert wait_for_end(runner, runner.submit(again, [])).state is RunState.DONE
    assert not list(place.glob(f"tradewind-{warden}-*"))


@pytest.mark.slow
def test_memory_that_forked_workers_share_counts_once(make: Make, tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "x = b'x' * (60 * 2**20)\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(0.7)\n"
        "        os._exit(0)\n"
        "for _ in range(4): os.wait()\n"
    )
    runner = make()
    status = wait_for_end(runner, runner.submit(request_for(tmp_path, python(code), memory=150 * 2**20), []))
    assert status.state is RunState.DONE, status


def test_the_address_space_can_be_limited(make: Make, tmp_path: Path) -> None:
    runner = make(address_space=True)
    code = "x = bytearray(900 * 2**20)"
    status = wait_for_end(runner, runner.submit(request_for(tmp_path, python(code), memory=300 * 2**20), []))
    assert (status.state, status.exit_code) == (RunState.FAILED, 1)
    assert b"MemoryError" in (tmp_path / "runs" / "run-1" / "stderr").read_bytes()


def test_a_daemon_that_hides_is_killed_when_the_job_ends(make: Make, tmp_path: Path) -> None:
    runner = make()
    request = request_for(tmp_path, python(f"{_HIDES}time.sleep(0.2)\n"))
    assert wait_for_end(runner, runner.submit(request, [])).state is RunState.DONE
    assert not psutil.pid_exists(int((request.workdir / "daemon").read_text()))


def test_a_swarm_of_children_is_killed(make: Make, tmp_path: Path) -> None:
    code = "import os, time\nfor _ in range(6):\n    os.fork()\ntime.sleep(60)\n"
    runner = make(grace=0.1)
    handle = runner.submit(request_for(tmp_path, python(code)), [])
    eventually(lambda: len(processes_of("run-1")) == 64)
    runner.cancel(handle)
    assert wait_for_end(runner, handle).state is RunState.CANCELLED
    assert not processes_of("run-1")


@pytest.mark.slow
def test_a_job_that_ignores_sigterm_is_killed_after_the_grace(make: Make, tmp_path: Path) -> None:
    runner = make(grace=0.2)
    request = request_for(tmp_path, ("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"), wall=0.4)
    status = wait_for_end(runner, runner.submit(request, []))
    assert (status.state, status.exit_code) == (RunState.TIMED_OUT, -9)
    assert status.runtime >= 0.6


def test_a_job_may_use_the_grace_to_say_goodbye(make: Make, tmp_path: Path) -> None:
    runner = make(grace=30)
    script = "trap 'echo bye; exit 0' TERM; touch ready; while :; do sleep 0.05; done"
    request = request_for(tmp_path, ("sh", "-c", script))
    handle = runner.submit(request, [])
    eventually((request.workdir / "ready").exists)
    runner.cancel(handle)
    assert wait_for_end(runner, handle).state is RunState.CANCELLED
    assert (request.folder / "stdout").read_text() == "bye\n"


@pytest.mark.slow
def test_a_flood_of_output_is_cut_and_does_not_fill_memory(make: Make, tmp_path: Path) -> None:
    runner = make()
    script = "echo begin; head -c 1000000000 /dev/zero; echo; echo score: 0.93; echo end >&2"
    request = request_for(tmp_path, ("sh", "-c", script), log=100_000)
    handle = runner.submit(request, [])
    largest = 0
    while not (status := runner.poll([handle])["run-1"]).state.ended:
        with contextlib.suppress(OSError):
            largest = max(largest, (request.folder / "stdout").stat().st_blocks * 512)
        runner.wait([handle], 0.01)
    assert status.state is RunState.DONE
    log = (request.folder / "stdout").read_bytes()
    assert len(log) <= 100_000 and log.startswith(b"begin\n") and log.endswith(b"\nscore: 0.93\n")
    assert log.count(b" bytes are left out here") == 1
    assert largest < 500_000_000, "the middle was given back while it wrote"
    assert (request.folder / "stderr").read_text() == "end\n"
    assert json.loads((request.folder / "result.json").read_text())["truncated"] is True
    memory = psutil.Process(warden_of(request.folder)).memory_info().rss
    assert memory < 100 * 2**20


def test_output_below_the_limit_is_whole(make: Make, tmp_path: Path) -> None:
    runner = make()
    request = request_for(tmp_path, ("sh", "-c", "head -c 1000 /dev/zero"), log=1000)
    wait_for_end(runner, runner.submit(request, []))
    assert (request.folder / "stdout").stat().st_size == 1000
    assert json.loads((request.folder / "result.json").read_text())["truncated"] is False


def test_parallel_runs_get_cpus_of_their_own(make: Make, tmp_path: Path) -> None:
    every = os.sched_getaffinity(0)
    runner = make()
    code = "import os, time; print(sorted(os.sched_getaffinity(0)), flush=True); time.sleep(60)"
    folders = []
    for i in range(min(2, len(every))):
        request = request_for(tmp_path, python(code), f"run-{i}")
        runner.submit(request, [])
        folders.append(request.folder / "stdout")
    eventually(lambda: all(folder.read_text() for folder in folders))
    sets = [set(json.loads(folder.read_text())) for folder in folders]
    assert all(len(cpus) == 1 for cpus in sets)
    assert len(set.union(*sets)) == len(sets)


def test_room(make: Make) -> None:
    runner, cpus = make(), len(os.sched_getaffinity(0))
    wide = OFFER.__class__("local", "wide", cpus, 0.1, 1.0)
    assert runner.room(wide, [])
    assert not runner.room(OFFER, [wide])
    assert runner.room(OFFER.times(1), [OFFER]) == (cpus >= 2)
    huge = OFFER.__class__("local", "huge", 0.1, 1e6, 1.0)
    assert runner.room(huge, [])
    assert not runner.room(huge, [OFFER])


def test_secrets_reach_the_job_and_no_file(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cr3t-value")
    (tmp_path / "key").write_text("k3y-value\n")
    runner = make()
    secrets = {"TOKEN": "env:MY_TOKEN", "KEY": f"file:{tmp_path / 'key'}"}
    code = "import os; print(len(os.environ['TOKEN']), len(os.environ['KEY']))"
    request = request_for(tmp_path, python(code), secrets=secrets)
    handle = runner.submit(request, [])
    assert wait_for_end(runner, handle).state is RunState.DONE
    assert (request.folder / "stdout").read_text() == "12 9\n"
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path != tmp_path / "key"]
    assert not [path for path in written if b"-value" in path.read_bytes()]
    assert "value" not in json.dumps(handle.to_json())


@pytest.mark.parametrize(
    ("reference", "words"),
    [("env:NOT_THERE", "no variable NOT_THERE"), ("file:/not/there", "cannot be read"), ("plain", "not a reference")],
)
def test_a_secret_that_cannot_be_read(make: Make, tmp_path: Path, reference: str, words: str) -> None:
    runner = make()
    with pytest.raises(DeployError, match=words) as caught:
        runner.submit(request_for(tmp_path, ("true",), secrets={"TOKEN": reference}), [])
    assert not caught.value.retryable


def test_programs_that_cannot_be_run(make: Make, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "data.txt").write_text("x")
    (work / "orphan").write_text("#!/not/there\n")
    (work / "blob").write_bytes(b"\x00\x01")
    for name in ("orphan", "blob"):
        (work / name).chmod(0o755)
    runner = make()
    (work / "bin").mkdir()
    (work / "bin" / "inert").write_text("x")
    inert = request_for(tmp_path, ("inert",), "run-9", env={"PATH": "bin"})
    with pytest.raises(MissingProgramError, match="not executable"):
        runner.submit(inert, [])
    cases = {"./data.txt": "not executable", "./orphan": "first line", "./blob": "no program", "gone": "no program"}
    for i, (program, words) in enumerate(cases.items()):
        with pytest.raises(MissingProgramError, match=words):
            runner.submit(request_for(tmp_path, (program,), f"run-{i}"), [])
    assert runner.find(OWNER) == []


def test_a_working_folder_that_is_not_there(make: Make, tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match=r"working folder .* does not exist") as caught:
        make().submit(request_for(tmp_path, ("true",), workdir=tmp_path / "gone"), [])
    assert not caught.value.retryable


def test_a_run_folder_that_cannot_be_written(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeployError, match="cannot be written") as caught:
        make().submit(request_for(tmp_path, ("true",), folder=tmp_path / "file" / "run"), [])
    assert not caught.value.retryable


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/full").exists(), reason="mounting needs root")
def test_a_full_disk_is_one_clear_error(make: Make, tmp_path: Path) -> None:
    import subprocess

    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        runner = make()
        with (disk / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="space"):
            while True:
                filler.write(b"x" * 4096)
        with pytest.raises(DeployError, match=r"disk under .* is full") as caught:
            runner.submit(request_for(tmp_path, ("true",), folder=disk / "runs" / "run-1"), [])
        assert caught.value.retryable
        (disk / "filler").unlink()
        # A job that fills the disk by itself still leaves a result.
        request = request_for(
            tmp_path, ("sh", "-c", "cat /dev/zero > $TRADEWIND_OUTPUTS/x"), folder=disk / "r" / "run-2"
        )
        status = wait_for_end(runner, runner.submit(request, []))
        assert status.state is RunState.FAILED
        assert json.loads((request.folder / "result.json").read_text())["state"] == "failed"
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_read_only_disk_is_one_clear_error(make: Make, tmp_path: Path) -> None:
    import subprocess

    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(DeployError, match=r"cannot be written: Read-only"):
            make().submit(request_for(tmp_path, ("true",), folder=disk / "runs" / "run-1"), [])
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.slow
def test_a_killed_warden_means_preempted_and_nothing_is_left(make: Make, tmp_path: Path) -> None:
    runner = make()
    request = request_for(tmp_path, ("sh", "-c", "setsid sleep 60 & sleep 60"))
    handle = runner.submit(request, [])
    eventually(lambda: len(processes_of("run-1")) == 3)
    os.kill(warden_of(request.folder), signal.SIGKILL)
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)
    assert not processes_of("run-1")
    # The runner itself goes on with another warden.
    assert wait_for_end(runner, runner.submit(request_for(tmp_path, ("true",), "run-2"), [])).state is RunState.DONE


def test_a_warden_that_is_told_to_end_takes_its_jobs_along(make: Make, tmp_path: Path) -> None:
    runner = make()
    request = request_for(tmp_path, ("sleep", "60"))
    handle = runner.submit(request, [])
    os.kill(warden_of(request.folder), signal.SIGTERM)
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)


@pytest.mark.slow
def test_limits_hold_when_the_controller_is_gone(make: Make, tmp_path: Path) -> None:
    first = make()
    request = request_for(tmp_path, ("sleep", "60"), wall=0.5)
    handle = first.submit(request, [])
    warden = psutil.Process(warden_of(request.folder))
    first.close()
    eventually((request.folder / "result.json").exists)
    status = make().poll([handle])["run-1"]
    assert status.state is RunState.TIMED_OUT
    eventually(lambda: not warden.is_running() or warden.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.slow
def test_another_controller_waits_for_the_end(make: Make, tmp_path: Path) -> None:
    first, second = make(), make()
    handle = first.submit(request_for(tmp_path, ("sleep", "0.3")), [])
    first.close()
    began = time.monotonic()
    second.wait([handle], 50)
    assert time.monotonic() - began < 45
    assert second.poll([handle])["run-1"].state is RunState.DONE


def test_a_cancelled_run_is_not_started_by_a_late_order(make: Make, tmp_path: Path) -> None:
    runner = make()
    request = request_for(tmp_path, ("touch", "ran"))
    request.folder.mkdir(parents=True)
    runner.cancel(Handle("run-1", "process", {"folder": str(request.folder), "owner": OWNER}), "too late")
    with pytest.raises(DeployError, match="cancelled before it started"):
        runner.submit(request, [])
    assert not (request.workdir / "ran").exists()


def test_another_process_with_the_same_pid_is_left_alone(make: Make, tmp_path: Path) -> None:
    bystander = psutil.Popen(["sleep", "60"])
    try:
        ticks = procfs.stat(bystander.pid)
        assert ticks is not None
        folder = tmp_path / "runs" / "run-1"
        folder.mkdir(parents=True)
        claim = {
            "host": os.uname().nodename,
            "boot": procfs.boot_id(),
            "warden": [bystander.pid, ticks.ticks - 1],
            "run_id": "run-1",
            "owner": OWNER,
            "started": time.time() - 5,
            "begun": time.monotonic() - 5,
            "wall_seconds": None,
        }
        (folder / "started.json").write_text(json.dumps(claim))
        (folder / "pid.json").write_text(json.dumps({"pid": bystander.pid, "ticks": ticks.ticks - 1}))
        handle = Handle("run-1", "process", {"folder": str(folder), "owner": OWNER})
        runner = make()
        status = runner.poll([handle])["run-1"]
        assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)
        assert status.runtime == pytest.approx(5, abs=3)
        runner.cancel(handle)
        assert bystander.is_running()
        assert bystander.status() != psutil.STATUS_ZOMBIE
        # After a restart of the machine no pid means anything.
        (folder / "started.json").write_text(json.dumps({**claim, "boot": "another", "warden": [os.getpid(), 0]}))
        assert runner.poll([handle])["run-1"].state is RunState.CANCELLED
        # What another host runs cannot be judged from here: unknown counts as alive.
        (folder / "started.json").write_text(json.dumps({**claim, "host": "elsewhere"}))
        assert runner.poll([handle])["run-1"].state is RunState.EXECUTING
    finally:
        bystander.kill()
        bystander.wait()


def test_a_run_without_a_note_is_found_by_its_tag(make: Make, tmp_path: Path) -> None:
    orphan = psutil.Popen(["sleep", "60"], env={**os.environ, "TRADEWIND_RUN_ID": "orphan", "TRADEWIND_OWNER": OWNER})
    try:
        runner = make()
        # A process that has just been started has no environment for a moment: the kernel is still making its memory.
        found = eventually(lambda: {handle.run_id: handle for handle in runner.find(OWNER)})
        handle = found["orphan"]
        runner.cancel(handle)
        eventually(lambda: orphan.poll() is not None)
        assert wait_for_end(runner, handle).state is RunState.PREEMPTED
    finally:
        if orphan.poll() is None:
            orphan.kill()
            orphan.wait()


def test_a_run_that_is_just_being_started_is_not_ended_by_who_looks(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "run-1"
    folder.mkdir(parents=True)
    runner = make()
    handle = Handle("run-1", "process", {"folder": str(folder), "owner": OWNER})
    with (folder / "stdout").open("wb") as out, psutil.Popen(["sleep", "60"], stdout=out) as forked:
        try:
            assert [runner.poll([handle])["run-1"].state for _ in range(2)] == [RunState.EXECUTING] * 2
            assert forked.poll() is None
            runner.cancel(handle)
            assert forked.wait(10) == -signal.SIGKILL
        finally:
            forked.kill() if forked.poll() is None else None


def test_a_helper_that_cannot_start_is_one_clear_error(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tradewind.deployer.runner.warden import client as warden_client

    monkeypatch.setattr(warden_client, "warden_command", lambda: ["/not/there/python"])
    with pytest.raises(DeployError, match="cannot start its helper"):
        make().submit(request_for(tmp_path, ("true",)), [])
    monkeypatch.setattr(warden_client, "warden_command", lambda: ["/bin/true"])
    with pytest.raises(DeployError, match="killed twice"):
        make().submit(request_for(tmp_path, ("true",), "run-2"), [])


@pytest.mark.slow
def test_runtime_grows_while_it_runs(make: Make, tmp_path: Path) -> None:
    runner = make()
    handle = runner.submit(request_for(tmp_path, ("sleep", "60")), [])
    status = poll_until(runner, handle, lambda status: status.runtime > 0.1)
    assert status.state is RunState.EXECUTING
    assert stat.S_ISREG((tmp_path / "runs" / "run-1" / "started.json").stat().st_mode)
