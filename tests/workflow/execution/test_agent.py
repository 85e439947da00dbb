"""The program on a machine, spoken to as the controller does: what it begins by itself, and what it never begins."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from tests.waiting import eventually
from tests.workflow.execution.plans import sh

from tradewind.workflow.execution.agent import GUEST_SECONDS, GUESTS, proof, write_document
from tradewind.workflow.execution.attempt import Attempt, shown_gpus
from tradewind.workflow.execution.run_folder import WorkflowRunFolder, start_order
from tradewind.workflow.graph import Task


class Machine:
    """An agent in a process, and a connection to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = WorkflowRunFolder(folder / "run")
        self.folder.path.mkdir()
        self.secret = self.folder.prepare()
        self.folder.install()
        place = self.folder.pilot("vm", 1)
        place.mkdir(parents=True)
        words = [sys.executable, "-I", "-S", "agent.py", str(self.folder.path), str(place), "127.0.0.1", "5"]
        # As some engines do, whoever starts it leaves it an end of a pipe.
        waits, keeps = os.pipe()
        self.process = subprocess.Popen(words, cwd=self.folder.programs, pass_fds=(keeps,))
        os.close(keeps)
        self.kept = os.fdopen(waits)
        eventually(lambda: (place / "address.json").exists())
        self.address = json.loads((place / "address.json").read_text())
        self.link()

    def part(self) -> None:
        self.lines.close()
        self.connection.close()

    def link(self) -> None:
        self.connection = socket.create_connection(("127.0.0.1", self.address["port"]), timeout=10)
        self.lines = self.connection.makefile()
        challenge = json.loads(self.lines.readline())["challenge"]
        self.connection.sendall(proof(self.secret, challenge).encode() + b"\n")
        assert self.hear("welcome")

    def hear(self, what: str = "ended") -> dict[str, Any]:
        while True:
            said: dict[str, Any] = json.loads(self.lines.readline())
            if said["event"] != "beat":
                assert said["event"] == what, said
                return said

    def expect(self, key: str, outcome: str) -> dict[str, Any]:
        """The next thing that it says."""
        said = self.hear()
        assert (said["key"], said["result"]["outcome"]) == (key, outcome), said
        return dict(said["result"])

    def order(self, task: Task, *after: str, attempt: int = 1, isolated: bool = False, seconds: float = 0.1,
              gpus: bool = False, log_bytes: int | None = None) -> None:  # fmt: skip
        more: dict[str, Any] = {"gpus": gpus, "log_bytes": log_bytes}
        order = start_order(task, attempt, self.folder, isolated=isolated, seconds=seconds, **more)
        self.connection.sendall(json.dumps({**order, "after": list(after)}).encode() + b"\n")

    def children(self) -> list[psutil.Process]:
        return [each for each in psutil.Process(self.process.pid).children() if each.status() != psutil.STATUS_ZOMBIE]

    def stop(self) -> None:
        self.connection.sendall(b'{"op": "stop"}\n')

    @property
    def log(self) -> list[str]:
        file = self.folder.files / "log"
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.part()
    made.process.kill()
    made.process.wait()
    made.kept.close()


def says(task: str, then: str = "true", **more: Any) -> Task:
    return sh(task, f"echo {task} >> log; {then}", **more)


def waiting_in(machine: Machine) -> psutil.Process:
    """The one process that is no program yet."""

    def found() -> list[psutil.Process]:
        return [each for each in machine.children() if "agent.py" in each.cmdline()]

    eventually(lambda: len(found()) == 1)
    return found()[0]


@pytest.mark.slow
def test_what_waits_begins_the_moment_the_other_has_ended(machine: Machine) -> None:
    machine.order(says("one", "sleep 0.3"))
    machine.order(says("two", "echo word; cat in; exit 1", writes="sub/two"), "one#1")
    time.sleep(0.1)  # it has read that by now
    assert machine.log in ([], ["one"])
    assert not (machine.folder.path / machine.folder.attempt("two", 1)).exists()
    first = machine.expect("one#1", "done")
    second = machine.expect("two#1", "failed")
    assert second["reason"] == "it exited with code 1"
    assert machine.log == ["one", "two"]
    assert second["began"] >= first["began"] + first["seconds"] - 0.001
    assert second["began"] - first["began"] - first["seconds"] < 2.0
    assert (machine.folder.path / "tasks/two/1/stdout").read_text() == "word\n"
    assert (machine.folder.path / "tasks/two/1/stderr").read_text().startswith("cat: in:")
    assert (machine.folder.files / "sub").is_dir()


@pytest.mark.slow
def test_a_program_has_its_own_files_signals_and_search_path(machine: Machine) -> None:
    """No file that whoever started the machine waits for, nothing ignored that it could hear, and the task's PATH."""
    own = machine.folder.path / "own"
    own.mkdir()
    (own / "tool").write_text("#!/bin/sh\nls /proc/self/fd; grep SigIgn /proc/self/status; pwd\n")
    (own / "tool").chmod(0o755)
    order = start_order(Task("one", "a", 0.1, command=("tool",)), 1, machine.folder, isolated=False, seconds=0.1)
    path = f"/nowhere:{machine.folder.path / 'secret'}:{own}:{os.environ['PATH']}"
    order |= {"env": {**order["env"], "PATH": path}, "after": []}
    machine.connection.sendall(json.dumps(order).encode() + b"\n")
    machine.expect("one#1", "done")
    *files, ignored, place = (machine.folder.path / "tasks/one/1/stdout").read_text().split("\n")[:-1]
    assert files == ["0", "1", "2", "3"], "3 is what ls reads"
    assert int(ignored.split()[1], 16) & sum(1 << number - 1 for number in (signal.SIGINT, signal.SIGHUP)) == 0
    assert place == str(machine.folder.files)
    machine.order(says("two", "sleep 60"))
    eventually(lambda: machine.log == ["two"])
    left = machine.children()
    machine.process.kill()
    assert machine.kept.read() == "", "the task that is left keeps it open"
    for each in left:
        os.killpg(each.pid, signal.SIGKILL)


@pytest.mark.slow
def test_what_waits_for_a_failure_is_forgotten_and_can_be_ordered_again(machine: Machine) -> None:
    machine.order(says("one", "sleep 0.2; exit 4"))
    machine.order(says("two"), "one#1")
    time.sleep(0.1)  # it has read that by now
    machine.expect("one#1", "failed")
    eventually(lambda: not machine.children())
    machine.order(says("one", "sleep 0.2"), attempt=2)
    machine.order(says("two"), "one#2")
    machine.expect("one#2", "done")
    machine.expect("two#1", "done")
    assert machine.log == ["one", "one", "two"]


@pytest.mark.slow
def test_it_waits_for_all_of_several(machine: Machine) -> None:
    machine.order(says("one", "sleep 0.1"))
    machine.order(says("two", "sleep 0.4"))
    machine.order(says("three"), "one#1", "two#1")
    machine.expect("one#1", "done")
    assert "three" not in machine.log
    machine.expect("two#1", "done")
    machine.expect("three#1", "done")


def test_what_has_ended_before_the_order_comes_lets_it_begin_or_not(machine: Machine) -> None:
    machine.order(says("good"))
    machine.order(says("bad", "exit 1"))
    ended = {machine.hear()["key"] for _ in range(2)}
    assert ended == {"good#1", "bad#1"}
    machine.order(says("never"), "bad#1", "good#1")
    machine.order(says("unknown"), "elsewhere#1")
    machine.order(says("two"), "good#1")
    machine.expect("two#1", "done")
    assert sorted(machine.log) == ["bad", "good", "two"]
    assert not machine.children()


@pytest.mark.slow
def test_the_same_order_again_begins_nothing_twice(machine: Machine) -> None:
    machine.order(says("one", "sleep 0.3"))
    for _ in range(3):
        machine.order(says("two", "sleep 0.2"), "one#1")
    machine.part()
    machine.link()  # another controller, which gives the orders again
    machine.order(says("one", "sleep 0.3"))
    machine.order(says("two", "sleep 0.2"), "one#1")
    time.sleep(0.1)  # it has read that by now
    machine.expect("one#1", "done")
    machine.order(says("two", "sleep 0.2"))
    machine.expect("two#1", "done")
    machine.order(says("two", "sleep 0.2"))
    machine.expect("two#1", "done")
    assert machine.log == ["one", "two"]


@pytest.mark.slow
def test_without_a_controller_it_begins_and_tells_later(machine: Machine) -> None:
    machine.order(says("one", "sleep 0.2"))
    machine.order(says("two"), "one#1")
    time.sleep(0.1)  # it has read that by now
    machine.part()
    eventually(lambda: machine.log == ["one", "two"])
    eventually(lambda: machine.folder.end("two", 1))
    machine.link()
    machine.order(says("one", "sleep 0.2"))
    machine.order(says("two"), "one#1")
    machine.expect("one#1", "done")
    machine.expect("two#1", "done")
    assert machine.log == ["one", "two"]


@pytest.mark.slow
def test_what_waits_goes_with_its_agent(machine: Machine) -> None:
    machine.order(says("one", "sleep 1"))
    machine.order(Task("two", "a", 0.1, (), ("made",)), "one#1")
    time.sleep(0.1)  # it has read that by now
    there, waiting = machine.children(), waiting_in(machine)
    machine.process.kill()
    machine.process.wait()
    eventually(lambda: not waiting.is_running() or waiting.status() == psutil.STATUS_ZOMBIE)
    time.sleep(0.2)
    assert not (machine.folder.files / "made").exists()
    for each in there:
        each.kill()


def test_what_waits_is_not_begun_by_a_stop(machine: Machine) -> None:
    machine.order(says("one", "sleep 30"))
    machine.order(says("two"), "one#1")
    time.sleep(0.1)  # it has read that by now
    machine.stop()
    machine.expect("one#1", "stopped")
    assert machine.process.wait(10) == 0
    assert machine.log == ["one"]


@pytest.mark.slow
def test_a_waiting_process_that_is_killed_is_made_again(machine: Machine) -> None:
    machine.order(says("one", "sleep 0.5"))
    machine.order(Task("two", "a", 0.1, (), ("made",)), "one#1")
    time.sleep(0.1)  # it has read that by now
    waiting_in(machine).kill()
    machine.expect("one#1", "done")
    machine.expect("two#1", "done")
    assert (machine.folder.files / "made").exists()


@pytest.mark.slow
@pytest.mark.parametrize("waits", [True, False])
def test_why_a_program_cannot_be_started(machine: Machine, waits: bool) -> None:
    machine.order(says("one", "sleep 0.2"))
    (machine.folder.files / "plain").write_text("no program")
    after = ["one#1"] if waits else []
    machine.order(Task("two", "a", 0.1, command=("no-such-program",)), *after)
    machine.order(Task("three", "a", 0.1, command=("./plain",)), *after)
    machine.order(Task("four", "a", 0.1, (), ("plain/out",), command=("true",)), *after)
    said = {each["key"]: each["result"] for each in (machine.hear() for _ in range(4))}
    assert said["one#1"]["outcome"] == "done"
    reasons = {key: result["reason"] for key, result in said.items() if result["outcome"] == "failed"}
    assert reasons == {
        "two#1": "it cannot be started: No such file or directory: no-such-program",
        "three#1": "it cannot be started: Permission denied: ./plain",
        "four#1": f"it cannot be started: Not a directory: {machine.folder.files / 'plain/out'}",
    }
    assert said["two#1"]["seconds"] == 0.0
    eventually(lambda: machine.folder.end("two", 1))


@pytest.mark.slow
def test_an_attempt_that_somebody_has_begun_before_is_lost(machine: Machine) -> None:
    (machine.folder.files / "out").write_text("of another")
    (machine.folder.path / machine.folder.attempt("two", 1)).mkdir(parents=True)
    machine.order(says("one", "sleep 0.2"))
    machine.order(says("two", writes="out"), "one#1")
    machine.expect("one#1", "done")
    assert machine.expect("two#1", "lost")["reason"].startswith("it cannot be started: File exists: ")
    assert (machine.folder.files / "out").read_text() == "of another"
    assert machine.log == ["one"]


@pytest.mark.slow
def test_a_working_folder_of_its_own_and_what_it_uses(machine: Machine) -> None:
    """However much memory the process had that has started the agent."""
    (machine.folder.files / "in").write_text("x")
    use = (
        "import time; x = bytearray(150 << 20); end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    )
    machine.order(says("one", "sleep 0.2"))
    big = Task("two", "a", 0.1, ("in",), (), command=(sys.executable, "-S", "-c", use))
    machine.order(big, "one#1", isolated=True)
    machine.order(sh("three", "ls > seen; kill -s 0 $$ && touch d/e", after="in", writes="seen d/e"), "one#1",
                  isolated=True)  # fmt: skip
    said = {each["key"]: each["result"] for each in (machine.hear() for _ in range(3))}
    assert {result["outcome"] for result in said.values()} == {"done"}, said
    assert said["two#1"]["peak_memory_bytes"] > 150 << 20, said["two#1"]
    assert 0.3 <= said["two#1"]["cpu_seconds"] < 2.0
    assert "peak_memory_bytes" not in said["one#1"]  # a shell needs less than what started it
    assert (machine.folder.files / "seen").read_text().split() == ["d", "in", "seen"]
    assert (machine.folder.files / "d/e").exists()


def test_what_is_updated_in_place_is_delivered_from_a_folder_of_its_own(machine: Machine) -> None:
    files = machine.folder.files
    (files / "tree/sub").mkdir(parents=True)
    for name in ("by", "own", "tree/sub/old"):
        (files / name).write_text("a\n")
    script = "sed -i s/a/b/ by; echo b >> own; echo b > tree/sub/new; "
    one = sh("one", script, after="by own tree", writes="by own tree")
    machine.order(replace(one, command=("sh", "-c", script + "exit 3")), isolated=True)
    machine.expect("one#1", "failed")
    assert [(files / name).read_text() for name in ("by", "own")] == ["a\n", "a\n"], "a second try begins anew"
    machine.order(one, attempt=2, isolated=True)
    machine.expect("one#2", "done")
    assert [(files / name).read_text() for name in ("by", "own")] == ["b\n", "a\nb\n"]
    assert sorted(each.name for each in (files / "tree/sub").iterdir()) == ["new", "old"]
    assert not any(each.is_symlink() for each in files.iterdir())
    machine.order(sh("two", "rm by", after="by", writes="by"), isolated=True)
    assert machine.expect("two#1", "failed")["reason"] == "it ended without writing its output by"


@pytest.mark.slow
def test_tasks_that_only_sleep_leave_their_outputs_and_take_their_time(machine: Machine) -> None:
    machine.order(Task("one", "a", 0.1, (), ("a",)), seconds=0.2)
    machine.order(Task("two", "a", 0.1, ("a",), ("b/c",)), "one#1", seconds=0.3)
    machine.expect("one#1", "done")
    assert (machine.folder.files / "a").exists()
    assert not (machine.folder.files / "b").exists() or machine.children()
    assert 0.3 <= machine.expect("two#1", "done")["seconds"] < 1.0
    assert (machine.folder.files / "b/c").exists()


def test_a_program_finds_signals_and_files_as_if_a_shell_had_started_it(machine: Machine) -> None:
    script = "import os, signal, sys; print(sorted(os.listdir('/proc/self/fd')), signal.getsignal(signal.SIGTERM) is signal.SIG_DFL); print(os.getpgid(0) == os.getpid(), sys.stdin.read() == '')"  # noqa: E501
    machine.order(Task("one", "a", 0.1, command=(sys.executable, "-S", "-c", script)))
    machine.expect("one#1", "done")
    fds, term, *rest = (machine.folder.path / "tasks/one/1/stdout").read_text().replace("]", "];").split(";")
    assert fds == "['0', '1', '2', '3']"  # the last is the listing itself
    assert (term.split(), rest) == (["True", "True", "True"], [])
    pipe = Task("two", "a", 0.1, command=("sh", "-c", "yes | head -1"))
    machine.order(pipe)
    machine.expect("two#1", "done")
    assert (machine.folder.path / "tasks/two/1/stderr").read_text() == ""  # yes was ended by the closed pipe


def test_a_signal_to_the_machine_ends_what_runs_and_what_waits(machine: Machine) -> None:
    machine.order(says("one", "sleep 30"))
    machine.order(says("two"), "one#1")
    time.sleep(0.1)  # it has read that by now
    os.kill(machine.process.pid, signal.SIGTERM)
    assert machine.process.wait(10) == 0
    assert machine.log == ["one"]


def test_what_a_task_prints_beyond_the_limit_keeps_its_beginning_and_its_end(machine: Machine) -> None:
    machine.order(sh("one", "echo begin; seq 10000; echo score 0.93"), log_bytes=2000)
    assert machine.expect("one#1", "done")["truncated"] is True
    log = (machine.folder.path / "tasks/one/1/stdout").read_text()
    assert log.startswith("begin\n1\n") and log.endswith("\n10000\nscore 0.93\n")
    assert len(log) <= 2000 and "bytes are left out here" in log


def test_what_a_task_leaves_in_a_session_of_its_own_ends_with_it(machine: Machine) -> None:
    machine.order(sh("other", "until test -e go; do sleep 0.02; done"))
    machine.order(sh("one", "setsid sleep 60 & echo $! > left; until pgrep -x -P $$ sleep; do :; done"))
    machine.expect("one#1", "done")
    left = int((machine.folder.files / "left").read_text())
    assert not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE
    machine.folder.files.joinpath("go").touch()
    machine.expect("other#1", "done")


@pytest.mark.slow
def test_the_memory_of_a_task_is_that_of_all_its_processes(machine: Machine) -> None:
    hold = f"{sys.executable} -S -c 'import time; x = bytearray(60 << 20); time.sleep(1.2)'"
    machine.order(sh("one", f"{hold} & {hold} & wait"))
    assert machine.expect("one#1", "done")["peak_memory_bytes"] > 120 << 20


def knock(machine: Machine) -> socket.socket:
    return socket.create_connection(("127.0.0.1", machine.address["port"]), timeout=10)


def hang_up(guest: socket.socket) -> None:
    """At once: what is sent to it is refused."""
    guest.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    guest.close()


def test_nobody_without_the_secret_can_end_it(machine: Machine) -> None:
    os.kill(machine.process.pid, signal.SIGSTOP)  # as if it were busy for a moment
    hang_up(knock(machine))
    os.kill(machine.process.pid, signal.SIGCONT)
    for _ in range(20):
        hang_up(knock(machine))
    for answer in (b"\xff\xfe\n", b"wrong\n", b"x" * 5000):
        with knock(machine) as guest, suppress(ConnectionResetError):
            guest.sendall(answer)
            while guest.recv(4096):
                pass
    machine.order(says("one"))
    machine.expect("one#1", "done")


def test_many_who_say_nothing_keep_nobody_out(machine: Machine) -> None:
    guests = [knock(machine) for _ in range(GUESTS + 8)]
    machine.part()
    machine.link()
    watched = psutil.Process(machine.process.pid)
    assert len(watched.net_connections()) <= GUESTS + 2  # besides: who may speak, and where it listens
    machine.order(says("one"))
    machine.expect("one#1", "done")
    for guest in guests:
        guest.close()


@pytest.mark.thorough
@pytest.mark.slow
def test_who_says_nothing_is_shown_out_after_a_while(machine: Machine) -> None:
    with knock(machine) as guest:
        began = time.monotonic()
        while guest.recv(4096):
            pass
        assert GUEST_SECONDS <= time.monotonic() - began < GUEST_SECONDS + 3.0


@pytest.mark.parametrize("first", ["the task", "the machine", "the task, by a shell"])
def test_a_machine_that_is_taken_away_is_no_failure_of_its_tasks(machine: Machine, first: str) -> None:
    """Slurm sends a signal to all processes of a job at once."""
    machine.order(says("one", "sleep 30; exit $?" if "shell" in first else "exec sleep 30"))
    eventually(lambda: machine.log and len(machine.children()) == 1)
    [child] = machine.children()
    if "shell" in first:
        [child] = eventually(child.children)
    pids = [machine.process.pid, child.pid]
    for pid in pids if first == "the machine" else reversed(pids):
        with contextlib.suppress(ProcessLookupError):  # the machine has ended it already
            os.kill(pid, signal.SIGTERM)
    machine.expect("one#1", "stopped")
    assert machine.process.wait(10) == 0
    assert machine.folder.end("one", 1) is None


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_task_that_a_signal_ended_has_failed_where_its_machine_stays(machine: Machine, number: int) -> None:
    machine.order(says("one", "exec sleep 30"))
    machine.order(says("two"), "one#1")
    eventually(lambda: machine.log)
    machine.children()[0].send_signal(number)
    machine.order(says("one"))  # the same order again, while it is not certain
    assert machine.expect("one#1", "failed")["reason"] == f"signal {number} ended it"
    eventually(lambda: machine.folder.end("one", 1))
    assert machine.log == ["one"]


@pytest.mark.slow
@pytest.mark.parametrize("why", ["stop", "fenced", "no folder"])
def test_it_leaves_word_when_nothing_of_it_runs_any_more(machine: Machine, why: str) -> None:
    place = machine.folder.pilot("vm", 1)
    machine.order(says("one", "trap '' TERM; sleep 60"))
    eventually(lambda: machine.log)
    processes = machine.children()
    if why == "stop":
        machine.stop()
    elif why == "fenced":
        (place / "fenced").touch()
    else:
        place.rename(place.with_name("moved"))
    eventually(lambda: machine.process.poll() is not None)
    assert not any(each.is_running() for each in processes)
    assert (place / "left.json").exists() == (why != "no folder")


def test_each_task_is_shown_the_gpus_of_its_own(machine: Machine) -> None:
    script = 'echo "$CUDA_VISIBLE_DEVICES"; until test -e go; do sleep 0.02; done'
    for name, gpus in (("one", 1), ("two", 2), ("none", 0)):
        machine.order(replace(sh(name, script), gpus=gpus), gpus=True)
    outputs = [machine.folder.path / f"tasks/{name}/1/stdout" for name in ("one", "two", "none")]
    eventually(lambda: all(each.exists() and each.read_text() for each in outputs))
    assert [each.read_text() for each in outputs] == ["0\n", "1,2\n", "\n"]
    machine.folder.files.joinpath("go").touch()
    for _ in outputs:
        assert machine.hear()["result"]["outcome"] == "done"
    machine.order(replace(sh("three", "echo $CUDA_VISIBLE_DEVICES"), gpus=1), gpus=True)  # those are free again
    machine.expect("three#1", "done")
    assert (machine.folder.path / "tasks/three/1/stdout").read_text() == "0\n"


def test_gpus_are_among_those_that_the_machine_itself_is_shown() -> None:
    assert shown_gpus([0, 2], {"CUDA_VISIBLE_DEVICES": "3,GPU-a, 7"})["CUDA_VISIBLE_DEVICES"] == "3,7"
    amd = shown_gpus([1], {"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "0,1"})
    assert (amd["ROCR_VISIBLE_DEVICES"], amd["HIP_VISIBLE_DEVICES"]) == ("3", "0")


@pytest.mark.parametrize(("left", "says"), [(0, ", and the disk of its machine is full"), (1000, "")])
def test_a_task_that_failed_where_the_disk_is_full_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int, says: str
) -> None:
    order = {"key": "t#1", "work": str(tmp_path), "isolated": False, "argv": ["x"], "outputs": [], "updates": []}
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    job = SimpleNamespace(exit=(256, used, 1.0), peak=0, ending=None, cpu_seconds=0.0, truncated=False)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=left, f_frsize=4096))
    found = Attempt(order, tmp_path).result(cast("Any", job))
    assert (found["outcome"], found["reason"]) == ("failed", f"it exited with code 1{says}")


def test_a_document_that_a_full_disk_has_no_room_for_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str, **_: Any) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    write_document(tmp_path / "end.json", {"outcome": "done"})
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_document(tmp_path / "end.json", {"outcome": "failed"})
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("end.json", '{"outcome": "done"}')]
