"""Runs over SSH: the suite, on a real server, and what it does not ask."""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.continued import assert_copied, assert_goes_on
from tests.deployer.helpers import FOREIGN, deployer_over, drive, foreign_program, row
from tests.engines.hosts import Hosts, hosts
from tests.engines.ssh import Sshd, sshd
from tests.waiting import eventually

from tradewind.deployer.provisioner.none import NoneProvisioner, NoneSettings
from tradewind.deployer.runner.architectures import architecture_here, may_be_emulated
from tradewind.deployer.runner.ssh import channel as ssh_channel
from tradewind.deployer.runner.ssh import remote_machine as ssh_machine
from tradewind.deployer.runner.ssh.channel import script
from tradewind.deployer.runner.ssh.runner import SshRunner
from tradewind.deployer.runner.ssh.settings import SshRunnerSettings
from tradewind.deployer.ssh_connection import SshSettings
from tradewind.errors import CredentialsError, DeployError, UnreachableError
from tradewind.problem import Fault, Limits, Machine, RunRequest, RunState, RunStatus
from tradewind.problem.run import Load
from tradewind.testing.runners import (
    OWNER_A,
    OWNER_B,
    RunnerBench,
    RunnerConformance,
    poll_until,
    processes_of,
    wait_for_end,
)

pytestmark = pytest.mark.xdist_group("ssh")

__all__ = ["hosts", "sshd"]


class SshBench(RunnerBench):
    """Runs on one machine that is reached by SSH."""

    python = sys.executable
    wall_seconds = 0.5

    def __init__(self, folder: Path, server: Sshd) -> None:
        super().__init__(folder)
        self.server = server
        self.far = folder / "far"

    def machines(self) -> Sequence[Machine]:
        return [Machine("m1", self.server.address)]

    def count(self, request: RunRequest) -> int:
        return sum(path.read_text().count("ran\n") for path in self.far.glob(f"runs/{request.run_id}/work/count"))

    def close(self) -> None:
        """Leave nothing on the machine either."""
        for runner in self._made:
            for owner in (OWNER_A, OWNER_B):
                for handle in runner.find(owner):
                    runner.cancel(handle)
                    wait_for_end(runner, handle)
                    runner.forget(handle)
            runner.close()
        self._made.clear()

    def make(self, **settings: Any) -> SshRunner:
        given = SshRunnerSettings(ssh=SshSettings(**self.server.facts), folder=str(self.far), **settings)
        return SshRunner(settings=given, data_folder=self.folder / "data")


@pytest.fixture
def bench(tmp_path: Path, sshd: Sshd) -> Iterator[SshBench]:
    made = SshBench(tmp_path, sshd)
    yield made
    made.close()


class TestSsh(RunnerConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path, sshd: Sshd) -> Iterator[RunnerBench]:
        made = SshBench(tmp_path, sshd)
        yield made
        made.close()


def _sh(bench: SshBench, script: str, run_id: str = "run-1", **changes: Any) -> RunRequest:
    return replace(bench.request("good", run_id), argv=("sh", "-c", script), **changes)


def _runner(bench: SshBench) -> SshRunner:
    made = bench.make()
    bench._made.append(made)
    return made


def _brought(bench: SshBench, request: RunRequest, runner: SshRunner | None = None) -> RunStatus:
    """Run something to its end, bring what it left, and forget it."""
    runner = runner or _runner(bench)
    handle = bench.submit(runner, request)
    status = wait_for_end(runner, handle)
    runner.collect(handle, request)
    runner.forget(handle)
    return status


def test_what_a_job_finds_and_what_comes_back(bench: SshBench, monkeypatch: pytest.MonkeyPatch) -> None:
    work = bench.folder / "work"
    (work / "deep/er").mkdir(parents=True)
    (work / "stale.csv").write_text("old")
    (work / "data.txt").write_text("input")
    (work / "deep/er/.hidden.csv").write_text("1")
    monkeypatch.setenv("A_SECRET", "hush'\n$x")
    script = """
        printf '%s|%s|%s' "$PLAIN" "$A" "$TRADEWIND_PARAM_KIND"
        cat "$TRADEWIND_INPUTS/data.txt" >&2
        echo '{"x": 1}' >"$TRADEWIND_METRICS"
        mkdir -p "$TRADEWIND_OUTPUTS/sub" out
        echo kept >"$TRADEWIND_OUTPUTS/sub/a"; echo new >stale.csv; echo o >out/o.csv; echo no >out/o.txt
        ln -s /etc/passwd out/passwd.csv
        grep -rl hush .. | grep -v stdout
        umask >"$TRADEWIND_OUTPUTS/umask"
    """
    request = _sh(
        bench,
        script,
        env={"PLAIN": "a b\n'c'"},
        secrets={"A": "env:A_SECRET"},
        inputs=("data.txt",),
        outputs=("**/*.csv", "missing/*"),
    )
    (request.folder / "inputs").mkdir(parents=True)
    (request.folder / "inputs/data.txt").symlink_to(work / "data.txt")
    status = _brought(bench, request)
    assert status.state is RunState.DONE, status
    folder = request.folder
    assert (folder / "stdout").read_text() == "a b\n'c'|hush'\n$x|good"
    assert (folder / "stderr").read_text() == "input"
    assert json.loads((folder / "metrics.jsonl").read_text()) == {"x": 1}
    outputs = folder / "outputs"
    assert (outputs / "sub/a").read_text() == "kept\n"
    assert (outputs / "umask").read_text() == "0022\n"
    (outputs / "umask").unlink()
    assert (outputs / "stale.csv").read_text() == "new\n"
    assert (outputs / "deep/er/.hidden.csv").read_text() == "1"
    files = sorted(str(path.relative_to(outputs)) for path in outputs.rglob("*") if path.is_file())
    assert files == ["deep/er/.hidden.csv", "out/o.csv", "stale.csv", "sub/a"]
    assert (work / "stale.csv").read_text() == "old"
    assert json.loads((folder / "result.json").read_text()) == {"truncated": False}
    eventually(lambda: not list(bench.far.glob("runs/*")))
    kept = [path for path in (bench.folder / "data").rglob("*") if path.is_file() and b"hush" in path.read_bytes()]
    assert kept == []


def test_each_run_has_a_working_folder_of_its_own_and_files_are_sent_once(bench: SshBench) -> None:
    runner = bench.runner()
    assert isinstance(runner, SshRunner)
    for i in range(2):
        request = _sh(bench, "ls; echo x >mine", f"run-{i}")
        assert _brought(bench, request, runner).state is RunState.DONE
        assert "mine" not in (request.folder / "stdout").read_text()
    assert len(list(bench.far.glob("bundles/*.tar"))) == 1


def test_logs_are_read_while_they_grow(bench: SshBench) -> None:
    runner = bench.runner()
    assert isinstance(runner, SshRunner)
    request = _sh(bench, "printf 0123456789; head -c 9000 /dev/zero; sleep 60", limits=Limits(log_bytes=9000))
    handle = bench.submit(runner, request)
    eventually(lambda: runner.read_log(handle, "stdout", 0)[:10] == b"0123456789")
    assert runner.read_log(handle, "stdout", 7)[:3] == b"789"
    assert runner.read_log(handle, "stderr", 0) == b""
    with pytest.raises(DeployError, match="no stream"):
        runner.read_log(handle, "../tag", 0)
    runner.cancel(handle)


def test_the_end_of_a_short_run_comes_without_being_asked_for(bench: SshBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A submission, the news of its end with the result, and what it left: each question costs some milliseconds."""
    asked: list[str] = []
    request = ssh_channel.SshChannel.request

    def noting(self: ssh_channel.SshChannel, *words: str, **given: Any) -> list[str]:
        asked.append(words[0])
        return request(self, *words, **given)

    runner = bench.runner()
    first = bench.request("good")
    assert wait_for_end(runner, bench.submit(runner, first)).state is RunState.DONE  # which opens the connection
    monkeypatch.setattr(ssh_channel.SshChannel, "request", noting)
    monkeypatch.setattr(ssh_machine, "_FRESH_SECONDS", 60.0)
    again = replace(first, run_id="run-2", folder=first.folder.with_name("run-2"), argv=("sh", "-c", "exit 3"))
    handle = bench.submit(runner, again)
    assert runner.poll([handle])["run-2"].state in (RunState.SUBMITTING, RunState.FAILED)
    status = wait_for_end(runner, handle)
    runner.collect(handle, again)
    assert (status.state, status.exit_code) == (RunState.FAILED, 3)
    assert status.usage.cpu_seconds is not None
    assert asked == ["submit", "collect"]
    # Another controller, which was not there, has to ask, and is told the same.
    assert bench.runner().poll([handle])["run-2"] == status
    assert asked[2:] == ["hello", "poll"]


def test_reports_are_read_while_the_run_goes_on(bench: SshBench) -> None:
    runner = bench.runner()
    assert isinstance(runner, SshRunner)
    handle = bench.submit(runner, _sh(bench, """echo '{"x": 1}' >"$TRADEWIND_METRICS"; sleep 60"""))
    eventually(lambda: runner.read_report(handle, 0) == b'{"x": 1}\n')
    assert runner.read_report(handle, 5) == b" 1}\n"
    runner.cancel(handle)
    assert wait_for_end(runner, handle).state is RunState.CANCELLED


def test_much_is_brought_back_too_and_too_much_is_refused(bench: SshBench) -> None:
    request = _sh(bench, "head -c 9000000 /dev/urandom >$TRADEWIND_OUTPUTS/big; echo hello")
    assert _brought(bench, request).state is RunState.DONE
    assert (request.folder / "outputs/big").stat().st_size == 9_000_000
    runner = bench.make(bring_gib=0.001)
    bench._made.append(runner)
    again = replace(request, run_id="run-2", folder=bench.folder / "runs/run-2")
    with pytest.raises(DeployError, match="too large"):
        _brought(bench, again, runner)


def test_a_job_leaves_nothing_behind_whatever_it_starts(bench: SshBench) -> None:
    script = "setsid sleep 61 & (trap '' TERM; sleep 62) & env -u TRADEWIND_RUN_ID sleep 63 & echo started"
    request = _sh(bench, script)
    assert _brought(bench, request).state is RunState.DONE
    assert processes_of("run-1") == []
    # Without its tag, in a session of its own, and with the log in its hands: a control group or nothing ends it.
    request = _sh(bench, "env -i setsid sleep 7 & echo started", "run-2")
    began = time.monotonic()
    assert _brought(bench, request).state is RunState.DONE
    assert time.monotonic() - began < 30


def test_programs_that_cannot_be_started(bench: SshBench) -> None:
    work = bench.folder / "work"
    work.mkdir()
    (work / "plain").write_text("#!/bin/sh\n")
    (work / "strange").write_text("#!/no/such/interpreter\n")
    (work / "strange").chmod(0o755)
    for program, words in (("./plain", "./plain"), ("./strange", "127"), ("/", "'/'")):
        request = replace(bench.request("good", f"run{program.strip('./')}"), argv=(program,))
        status = _brought(bench, request)
        assert (status.state, status.fault, status.exit_code) == (RunState.FAILED, Fault.JOB, 127)
        assert words in status.reason


def test_what_cannot_be_told_to_a_machine_is_refused(bench: SshBench) -> None:
    runner = bench.runner()
    for changes, words in (
        ({"env": {"A B": "x"}}, "name of an environment variable"),
        ({"env": {"A": "x\0"}}, "null"),
        ({"secrets": {"A": "env:NO_SUCH_VARIABLE_ANYWHERE"}}, "NO_SUCH_VARIABLE_ANYWHERE"),
        ({"workdir": bench.folder / "missing"}, "does not exist"),
    ):
        with pytest.raises(DeployError, match=words) as caught:
            bench.submit(runner, replace(bench.request("good"), **changes))
        assert not caught.value.retryable
    (bench.folder / "work/big").write_bytes(bytes(1 << 21))
    small = bench.make(send_gib=0.001)
    bench._made.append(small)
    with pytest.raises(DeployError, match=r"too large.*big.*tradewindignore"):
        bench.submit(small, bench.request("good"))


def test_a_folder_may_have_blanks_in_its_name(bench: SshBench) -> None:
    bench.far = bench.folder / "my  runs" / "far off"
    runner = _runner(bench)
    script = 'echo "$TRADEWIND_OUTPUTS"; echo 1 >"$TRADEWIND_OUTPUTS/a"; echo \'{"x": 1}\' >"$TRADEWIND_METRICS"'
    request = _sh(bench, script)
    assert _brought(bench, request, runner).state is RunState.DONE
    assert (request.folder / "stdout").read_text() == f"{bench.far}/runs/run-1/outputs\n"
    assert (request.folder / "outputs/a").read_text() == "1\n"
    assert (request.folder / "metrics.jsonl").read_text() == '{"x": 1}\n'
    assert sorted(path.name for path in bench.folder.iterdir() if path.name.startswith("my")) == ["my  runs"]


def test_usage_is_told(bench: SshBench) -> None:
    code = "import time; x = b'x' * 80_000_000; end = time.time() + 1\nwhile time.time() < end: pass"
    status = _brought(bench, replace(bench.request("good"), argv=(sys.executable, "-S", "-c", code)))
    assert status.state is RunState.DONE
    assert status.usage.peak_memory_bytes is not None
    assert 80e6 < status.usage.peak_memory_bytes < 160e6
    assert status.usage.cpu_seconds is not None
    assert 0.05 < status.usage.cpu_seconds < 10


def test_memory_is_watched_where_there_are_no_control_groups(bench: SshBench) -> None:
    runner = bench.make(groups=False)
    bench._made.append(runner)
    request = replace(bench.request("hog"), limits=Limits(memory_bytes=100_000_000))
    status = _brought(bench, request, runner)
    assert (status.state, status.fault) == (RunState.FAILED, Fault.JOB)
    assert "memory" in status.reason
    assert processes_of("run-1") == []


_FAMILY = """
import os, sys, time
x = b"x" * 60_000_000
for _ in range(4):
    if not os.fork():
        y = b"y" * int(sys.argv[1])
        time.sleep(float(sys.argv[2]))
        os._exit(0)
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize(("own", "fits"), [(0, True), (60_000_000, False)])
def test_memory_that_processes_share_counts_once(bench: SshBench, own: int, fits: bool) -> None:
    runner = bench.make(groups=False)
    bench._made.append(runner)
    seconds = "0.8" if fits else "60"  # what is to be ended waits until it is
    argv = (sys.executable, "-S", "-c", _FAMILY, str(own), seconds)
    status = _brought(bench, replace(bench.request("good"), argv=argv, limits=Limits(memory_bytes=200_000_000)), runner)
    assert status.state is (RunState.DONE if fits else RunState.FAILED), status
    if fits:
        assert status.usage.peak_memory_bytes is not None
        assert 60e6 < status.usage.peak_memory_bytes < 160e6
    else:
        assert "memory" in status.reason


def test_a_run_ends_and_is_cleaned_up_when_it_expires(bench: SshBench) -> None:
    runner = bench.runner()
    handle = bench.submit(runner, replace(bench.request("long"), expires=time.time() + 2))
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    done = bench.submit(runner, replace(bench.request("good", "run-2"), expires=time.time() + 3))
    assert wait_for_end(runner, done).state is RunState.DONE
    runner.close()
    eventually(lambda: not list(bench.far.glob("runs/*")))
    assert processes_of("run-1") == []
    assert bench.runner().poll([handle])["run-1"].state is RunState.PREEMPTED


@pytest.mark.skipif(may_be_emulated(FOREIGN), reason="this machine emulates it")
@pytest.mark.parametrize("command", [("./prog",), ("sh", "-c", "./prog")])
def test_a_program_for_another_processor_on_a_host_that_is_named_by_its_address(
    bench: SshBench, command: tuple[str, ...]
) -> None:
    address = f"ssh://{getpass.getuser()}@{bench.server.address}:{bench.server.port}"
    keys = {key: value for key, value in bench.server.facts.items() if key not in ("user", "port")}
    hosts = NoneSettings.model_validate({"hosts": [address], "ssh": keys})
    provisioner = NoneProvisioner(settings=hosts, data_folder=bench.folder)
    deployer = deployer_over(bench.folder, runner=bench.runner(), provisioner=provisioner)
    request = bench.request("good")
    foreign_program(request.workdir / "prog")
    deployer.launch(row(), replace(request, argv=command, offer=replace(request.offer, arch=architecture_here())))
    last = drive(deployer)[-1]
    deployer.close()
    assert (last.state, last.fault) == (RunState.FAILED, Fault.ARCHITECTURE)
    assert "./prog is for another processor" in last.reason or command[0] == "sh"
    assert "another processor architecture" in last.reason


@pytest.mark.slow
def test_a_run_that_waited_long_for_its_host_is_not_ended_there(bench: SshBench) -> None:
    facts = {"host": bench.server.address, **bench.server.facts}
    hosts = NoneProvisioner(settings=NoneSettings.model_validate({"hosts": [facts]}), data_folder=bench.folder)
    first = hosts.make("run-0", OWNER_A, time.time() + 600, bench.request("good").offer)
    deployer = deployer_over(bench.folder, runner=bench.runner(), provisioner=hosts)
    expires = time.time() + 5.0
    deployer.launch(row(), replace(bench.request("good"), argv=("sleep", "1.5"), expires=expires))
    while time.time() < expires + 0.1:
        deployer.poll()
        assert deployer.active["run-1"].state is RunState.BOOTING
        deployer.wait(0.1)
    hosts.destroy(first)
    last = drive(deployer)[-1]
    assert (last.state, last.reason) == (RunState.DONE, "")
    deployer.close()


def test_own_hosts_are_taken_in_turn(bench: SshBench) -> None:
    host = {"host": bench.server.address, "port": bench.server.port}
    runner = bench.make(hosts=(host,))
    bench._made.append(runner)
    handle = runner.submit(bench.request("good"), [Machine("localhost")])
    assert wait_for_end(runner, handle).state is RunState.DONE
    # A process that has lost its notes asks the hosts themselves.
    for note in (bench.folder / "data").rglob("*.json"):
        note.unlink()
    other = bench.make(hosts=(host,))
    bench._made.append(other)
    assert [each.run_id for each in other.find(OWNER_A)] == ["run-1"]
    for each in other.find(OWNER_A):
        assert wait_for_end(other, each).state is RunState.DONE
        other.forget(each)
    assert other.find(OWNER_A) == []
    with pytest.raises(DeployError, match=r"runner ssh has 0 hosts, 1 wanted.*list hosts"):
        bench.runner().submit(bench.request("good"), [Machine("localhost")])


def test_refusals_are_errors_and_not_runs(bench: SshBench) -> None:
    runner = bench.runner()
    for facts, kind in (
        ({"port": 1}, UnreachableError),
        ({"known_hosts": "/dev/null"}, CredentialsError),
        ({"identity": "/no/key"}, CredentialsError),
    ):
        with pytest.raises(kind):
            runner.submit(bench.request("good"), [Machine("m", bench.server.address, {"ssh": facts})])
    assert processes_of("run-1") == []
    assert runner.find(OWNER_A) == [], "a run that nobody was asked to start counts as alive"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
@pytest.mark.parametrize("when", ["before", "logs", "outputs"])
def test_a_full_disk_there_is_said_plainly(bench: SshBench, when: str) -> None:
    bench.far.mkdir()
    size = "64k" if when == "before" else "1m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", bench.far], check=True)
    try:
        runner = bench.runner()
        assert isinstance(runner, SshRunner)
        if when == "before":
            (bench.folder / "work").mkdir()
            (bench.folder / "work/big").write_bytes(os.urandom(1 << 20))
            with pytest.raises(DeployError, match=r"disk of 127\.0\.0\.1 is full.*make room"):
                bench.submit(runner, bench.request("good"))
            return
        fill = "head -c 3000000 /dev/zero" + (" >$TRADEWIND_OUTPUTS/big" if when == "outputs" else "")
        handle = bench.submit(runner, _sh(bench, fill))
        status = wait_for_end(runner, handle)
        assert status.state is RunState.FAILED
        if when == "logs":
            assert status.fault is Fault.INFRASTRUCTURE
            assert "disk of 127.0.0.1 is full" in status.reason
        runner.forget(handle)
        eventually(lambda: not list(bench.far.glob("runs/*")))
    finally:
        bench.close()
        bench._made.clear()
        subprocess.run(["umount", "-l", bench.far], check=True)


def test_busybox_is_enough(tmp_path: Path) -> None:
    busybox = subprocess.run(["sh", "-c", "command -v busybox"], capture_output=True, text=True, check=False)
    if not busybox.stdout:
        pytest.skip("!!! there is no busybox")
    tools = tmp_path / "bin"
    tools.mkdir()
    subprocess.run([busybox.stdout.strip(), "--install", "-s", tools], check=True)
    server = Sshd(tmp_path / "sshd", [f"SetEnv SHLVL=3 PATH={tools}"])
    server.start()
    try:
        bench = SshBench(tmp_path, server)
        request = _sh(bench, "head --help 2>&1 | head -n 1; sleep 0.3; echo x >$TRADEWIND_OUTPUTS/a; exit 3")
        request = replace(request, limits=Limits(log_bytes=1000, memory_bytes=10**9, wall_seconds=30))
        status = _brought(bench, request)
        assert (status.state, status.exit_code) == (RunState.FAILED, 3)
        assert "BusyBox" in (request.folder / "stdout").read_text()
        assert (request.folder / "outputs/a").exists()
        long = bench.submit(bench._made[0], bench.request("long", "run-2"))
        bench._made[0].cancel(long)
        assert wait_for_end(bench._made[0], long).state is RunState.CANCELLED
        assert processes_of("run-2") == []
        bench.close()
    finally:
        server.stop()


def test_the_script_is_plain_sh() -> None:
    for shell in (["dash", "-n"], ["bash", "--posix", "-n"], ["busybox", "sh", "-n"]):
        try:
            done = subprocess.run(shell, input=script(), capture_output=True, check=False)
        except FileNotFoundError:
            continue
        assert (done.returncode, done.stderr) == (0, b"")


# --- several machines -------------------------------------------------------------------------------------------------


class HostsBench(SshBench):
    """Runs on hosts with addresses and disks of their own."""

    def __init__(self, folder: Path, hosts: Hosts) -> None:
        RunnerBench.__init__(self, folder)
        self.hosts = hosts
        self.far = Path("/mnt") / folder.name

    def machines(self) -> Sequence[Machine]:
        return [Machine(name, address) for name, address in self.hosts.addresses.items()]

    def make(self, **settings: Any) -> SshRunner:
        ssh = SshSettings(**self.hosts.facts, connect_seconds=2)
        given = SshRunnerSettings(ssh=ssh, folder=str(self.far), patience=2, **settings)
        return SshRunner(settings=given, data_folder=self.folder / "data")


@pytest.fixture
def three(tmp_path: Path, hosts: Hosts) -> Iterator[HostsBench]:
    made = HostsBench(tmp_path, hosts)
    yield made
    made.close()


def test_several_nodes_have_the_files_and_know_each_other(three: HostsBench) -> None:
    (three.folder / "work").mkdir()
    (three.folder / "work/program").write_text("print(1)")
    request = _sh(three, 'uname -n; echo $TRADEWIND_NODES; echo "$TRADEWIND_NODE_IPS"; cat $TRADEWIND_HOSTFILE; pwd')
    request = replace(request, offer=replace(request.offer, nodes=3, vcpu=2), outputs=("*.txt",))
    runner = three.runner()
    handle = three.submit(runner, request)
    assert wait_for_end(runner, handle).state is RunState.DONE
    runner.collect(handle, request)
    ips = list(three.hosts.addresses.values())
    lines = (request.folder / "stdout").read_text().splitlines()
    assert lines[:8] == ["h1", "3", *ips, *(f"{ip} slots=2" for ip in ips)]
    for name in three.hosts.names:
        assert three.hosts.run(name, ["cat", f"{lines[8]}/program"]).stdout == b"print(1)", name
    runner.forget(handle)
    for name in three.hosts.names:
        eventually(partial(three.hosts.is_empty, name, f"{three.far}/runs"))


_APPLICATION = """
import http.server, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 404)
        self.end_headers()
        self.wfile.write(b"hello")
    def log_message(self, *words): pass
socketserver.ThreadingTCPServer.allow_reuse_address = True
server = socketserver.ThreadingTCPServer(("0.0.0.0", int(sys.argv[1])), Handler)
print("serving", flush=True)
server.serve_forever()
"""
_LOAD = """
import os, urllib.request
host, port = os.environ["TRADEWIND_APPLICATION_HOST"], os.environ["TRADEWIND_APPLICATION_PORT"]
print(host, os.uname().nodename, urllib.request.urlopen(f"http://{host}:{port}/ready", timeout=20).read().decode())
open(os.environ["TRADEWIND_OUTPUTS"] + "/load", "w").close()
"""


def _loaded(three: HostsBench, at: int, load: str = _LOAD, run_id: str = "run-1", **changes: Any) -> RunRequest:
    argv = (sys.executable, "-S", "-c", _APPLICATION, str(at))
    given = {"port": at, "ready_path": "/ready", "ready_pattern": "^serving$", "ready_seconds": 30.0, **changes}
    return replace(
        three.request("good", run_id), argv=argv, load=Load(argv=(sys.executable, "-S", "-c", load), **given)
    )


@pytest.mark.parametrize("count", [1, 2])
def test_a_load_generator_drives_an_application(three: HostsBench, count: int) -> None:
    request = _loaded(three, 8801)
    runner = three.runner()
    handle = runner.submit(request, three.machines()[:count])
    status = wait_for_end(runner, handle)
    assert status.state is RunState.DONE, status
    runner.collect(handle, request)
    where = f"{three.hosts.addresses['h1']} h2" if count == 2 else "127.0.0.1 h1"
    assert (request.folder / "stdout").read_text() == f"{where} hello\n"
    assert (request.folder / "application.stdout").read_text() == "serving\n"
    assert (request.folder / "outputs/load").exists()
    assert processes_of("run-1") == []
    runner.forget(handle)
    assert runner.find(OWNER_A) == []


def test_a_load_generator_on_a_host_of_its_own_is_held_to_its_cpus_and_its_usage_is_recorded(
    three: HostsBench,
) -> None:
    busy = _LOAD + "import time\nwhile time.process_time() < 0.5: pass\n"
    request = _loaded(three, 8811, busy, cpus=1, memory_bytes=2**28)
    other = {"host": three.hosts.addresses["h3"], **three.hosts.facts}
    runner = three.make(load_hosts=[other])
    handle = runner.submit(request, three.machines()[:1])
    assert runner.submit(request, three.machines()[:1]).data["machines"] == handle.data["machines"]
    status = wait_for_end(runner, handle)
    assert status.state is RunState.DONE, status
    runner.collect(handle, request)
    assert (request.folder / "stdout").read_text() == f"{three.hosts.addresses['h1']} h3 hello\n"
    profile = status.usage.profile
    assert profile["load_cpu_seconds"] > 0.3
    assert profile["load_cpu_share"] > 0
    runner.forget(handle)
    assert runner.find(OWNER_A) == []
    runner.close()


def test_beside_its_application_a_load_generator_gets_other_cpus(three: HostsBench) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU cannot be shared out")
    tell = "import os\nprint(*sorted(os.sched_getaffinity(0)), file=__import__('sys').stderr, flush=True)\n"
    request = _loaded(three, 8812, tell + _LOAD, cpus=1)
    request = replace(request, offer=replace(request.offer, vcpu=1), limits=replace(request.limits, cpus=1))
    request = replace(request, argv=(sys.executable, "-S", "-c", tell + _APPLICATION, "8812"))
    runner = three.runner()
    handle = runner.submit(request, three.machines()[:1])
    status = wait_for_end(runner, handle)
    assert status.state is RunState.DONE, status
    runner.collect(handle, request)
    load, application = ((request.folder / name).read_text().split() for name in ("stderr", "application.stderr"))
    assert len(load) == len(application) == 1
    assert load != application


def test_a_load_that_fails_and_applications_that_do(three: HostsBench) -> None:
    runner = three.runner()
    dies = replace(_loaded(three, 8803, "import time; time.sleep(60)", "run-2"), argv=("sh", "-c", "exit 5"))
    slow = replace(_loaded(three, 8804, run_id="run-3", ready_seconds=0.3), argv=("sleep", "60"))
    later = "import time; time.sleep(60)"
    kills = replace(_loaded(three, 8805, later, "run-4", port=None, ready_path="", ready_pattern=""))
    kills = replace(kills, argv=("sh", "-c", "sleep 1; exit 6"))
    for request, code, words in (
        (_loaded(three, 8802, "raise SystemExit(4)"), 4, "exited with code 4"),
        (dies, 5, "application.*code 5"),
        (slow, None, "not ready in time"),
        (kills, 6, "application.*code 6"),
    ):
        handle = runner.submit(request, three.machines()[:1])
        status = wait_for_end(runner, handle)
        assert (status.state, status.fault, status.exit_code) == (RunState.FAILED, Fault.JOB, code), status
        assert re.search(words, status.reason), status
        runner.collect(handle, request)
        assert (request.folder / "application.stdout").exists()
        assert processes_of(request.run_id) == []
        runner.forget(handle)


@pytest.mark.thorough
def test_paused_promoted_and_interrupted_trials_go_on_from_their_checkpoints(sshd: Sshd, tmp_path: Path) -> None:
    """Also where the machine sees none of this one's folders."""
    folder = str(tmp_path / "far")
    assert_goes_on(tmp_path, {"use": "ssh", "ssh": sshd.facts, "folder": folder, "hosts": [sshd.address]})


@pytest.mark.thorough
def test_members_of_a_population_have_copies_of_the_same_checkpoint(sshd: Sshd, tmp_path: Path) -> None:
    folder = str(tmp_path / "far")
    assert_copied(tmp_path, {"use": "ssh", "ssh": sshd.facts, "folder": folder, "hosts": [sshd.address]})
