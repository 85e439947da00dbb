"""What jobs find in a container of the docker runner, and what is left of them."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.deployer.helpers import OWNER
from tests.deployer.runner.docker.helpers import Make, code, ended_within, finish, in_container, runners
from tests.engines.docker import IMAGE, DockerEngine, docker  # noqa: F401  (a fixture)
from tests.waiting import eventually

from tradewind.deployer.staging import stage_in
from tradewind.errors import CapacityError, DeployError
from tradewind.problem import Fault, Offer, RunState

pytestmark = pytest.mark.xdist_group("docker")


@pytest.fixture
def make(tmp_path: Path, docker: DockerEngine) -> Iterator[Make]:  # noqa: F811
    with runners(tmp_path, docker) as maker:
        yield maker


_LOOK = """
import json, os
print(json.dumps(dict(os.environ)))
print('oops', file=__import__('sys').stderr)
open('made-here', 'w').write(os.getcwd())
open(os.environ['TRADEWIND_OUTPUTS'] + '/kept', 'w').write(open(os.environ['TRADEWIND_INPUTS'] + '/data.txt').read())
open(os.environ['TRADEWIND_METRICS'], 'w').write('{"loss": 1}')
"""


@pytest.mark.parametrize("files", ["mount", "copy"])
def test_files_and_variables_go_in_and_come_out(make: Make, tmp_path: Path, files: str) -> None:
    (tmp_path / "data.txt").write_text("input")
    request = in_container(
        tmp_path,
        code(_LOOK),
        env={"COLOUR": "blue"},
        inputs=(f"file://{tmp_path}/data.txt",),
        outputs=("made-*", "sub/*.txt"),
        secrets={"TOKEN": "env:MY_TOKEN"},
    )
    os.environ["MY_TOKEN"] = "s3cr3t"
    (request.workdir / "sub").mkdir()
    (request.workdir / "sub" / "there.txt").write_text("sent")
    stage_in(request)
    runner = make(files=files)
    status = finish(runner, request)
    assert status.state is RunState.DONE, (request.folder / "stderr").read_text()
    seen = json.loads((request.folder / "stdout").read_text())
    assert (seen["COLOUR"], seen["TOKEN"], seen["TRADEWIND_PARAM_X"]) == ("blue", "s3cr3t", "1")
    assert (request.folder / "stderr").read_text() == "oops\n"
    assert (request.folder / "metrics.jsonl").read_text() == '{"loss": 1}'
    if files == "mount":
        assert (request.workdir / "made-here").read_text() == "/tradewind/work"
    else:
        assert not (request.workdir / "made-here").exists()
    outputs = request.folder / "outputs"
    kept = {str(path.relative_to(outputs)): path.read_text() for path in outputs.rglob("*") if path.is_file()}
    assert kept == {"kept": "input", "made-here": "/tradewind/work", "sub/there.txt": "sent"}
    assert "s3cr3t" not in json.dumps([handle.to_json() for handle in runner.find(OWNER)])
    assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file() and b"s3cr3t" in path.read_bytes()]


def test_files_belong_to_the_user_that_is_asked_for(make: Make, tmp_path: Path) -> None:
    request = in_container(tmp_path, ("sh", "-c", "id -u; echo $HOME; touch new"))
    request.workdir.chmod(0o777)
    assert finish(make(user="1234:99"), request).state is RunState.DONE
    assert (request.folder / "stdout").read_text() == "1234\n/tmp\n"
    facts = (request.workdir / "new").stat()
    assert (facts.st_uid, facts.st_gid) == (1234, 99)


def test_endings_are_told_apart(make: Make, tmp_path: Path) -> None:
    runner = make()
    cases = {
        "signal": (code("import os; os.abort()"), -11, "signal 11 (SIGSEGV)"),
        "lost-command": (("sh", "-c", "no-such-command"), 127, "no program"),
        "nearly-lost": (("sh", "-c", "exit 255"), 255, "code 255"),
        "as-if-killed": (("sh", "-c", "exit 137"), -9, "signal 9 (SIGKILL)"),
    }
    handles = {name: runner.submit(in_container(tmp_path, words, name), []) for name, (words, _, _) in cases.items()}
    for name, handle in handles.items():
        status = ended_within(runner, handle, 60)
        assert (status.state, status.fault, status.exit_code) == (RunState.FAILED, Fault.JOB, cases[name][1]), name
        assert cases[name][2] in status.reason


def test_what_others_stop_or_remove_is_the_infrastructures_fault(
    make: Make,
    tmp_path: Path,
    docker: DockerEngine,  # noqa: F811
) -> None:
    runner = make()
    killed = runner.submit(in_container(tmp_path, ("sleep", "60"), "killed"), [])
    removed = runner.submit(in_container(tmp_path, ("sleep", "60"), "removed"), [])
    docker.docker("kill", "tradewind-killed")
    docker.docker("rm", "-f", "tradewind-removed")
    for handle in (killed, removed):
        status = ended_within(runner, handle, 60)
        assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)


def test_a_child_that_takes_too_much_memory(make: Make, tmp_path: Path) -> None:
    hog = "x = b'x' * (200 << 20)"
    # The engine hears of it in a way of its own, and not at all where the container is gone by then.
    request = in_container(tmp_path, ("sh", "-c", f'python3 -c "{hog}"; sleep 1; exit 1'), memory=64 << 20)
    status = finish(make(), request)
    assert (status.state, status.fault) == (RunState.FAILED, Fault.JOB)
    assert status.reason == "out of memory: it used more than 64 MiB"


def test_usage_is_measured(make: Make, tmp_path: Path) -> None:
    burn = (
        "import time; x = bytearray(40 << 20); end = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
    )
    runner = make()
    handle = runner.submit(in_container(tmp_path, code(burn + "\ntime.sleep(60)")), [])

    def measured() -> bool:
        usage = runner.poll([handle])["run-1"].usage
        return (usage.cpu_seconds or 0) > 0.4 and (usage.peak_memory_bytes or 0) > 40 << 20

    eventually(measured)
    runner.cancel(handle)
    usage = ended_within(runner, handle, 30).usage
    assert usage.cpu_seconds is not None
    assert 0.4 < usage.cpu_seconds < 60
    assert {"read_bytes", "written_bytes"} <= set(usage.profile)


def test_a_flood_of_output_does_not_fill_the_engines_disk(
    make: Make,
    tmp_path: Path,
    docker: DockerEngine,  # noqa: F811
) -> None:
    request = in_container(tmp_path, ("sh", "-c", "yes | head -c 100000"), log=1000)
    assert finish(make(), request).state is RunState.DONE
    logs = list((docker.folder / "data" / "containers").glob("*/*-json.log*"))
    assert sum(path.stat().st_size for path in logs) < 3 << 20


def test_logs_are_read_while_it_runs(make: Make, tmp_path: Path) -> None:
    runner = make()
    script = "echo one; while ! test -e go; do sleep 0.05; done; printf 'two\\nthree\\n'; sleep 60"
    request = in_container(tmp_path, ("sh", "-c", script))
    handle = runner.submit(request, [])
    read = b""

    def grow(until: bytes) -> bool:
        nonlocal read
        read += runner.read_log(handle, "stdout", len(read))
        return read == until

    eventually(lambda: grow(b"one\n"))
    (request.workdir / "go").touch()
    eventually(lambda: grow(b"one\ntwo\nthree\n"))
    assert runner.read_log(handle, "stdout", len(read)) == b""
    assert make().read_log(handle, "stdout", 5) == b"wo\nthree\n"
    assert runner.read_log(handle, "stderr", 0) == b""
    assert runner.read_log(replace(handle, run_id="nobody"), "stdout", 0) == b""


def test_ports_are_published_here_only(make: Make, tmp_path: Path, docker: DockerEngine) -> None:  # noqa: F811
    docker.docker("network", "create", "for-ports")
    serve = (
        "import socket\ns = socket.create_server(('', 8000))\nwhile 1:\n c = s.accept()[0]; c.send(b'hi'); c.close()"
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    runner = make(network="for-ports")
    listen = serve.replace("8000", str(port))
    request = in_container(tmp_path, code(listen), ports=(port,))
    handle = runner.submit(request, [])
    assert handle.data["ports"] == {str(port): port}

    def answer(at: int) -> bytes:
        try:
            with socket.create_connection(("127.0.0.1", at), timeout=5) as connection:
                return connection.recv(2)
        except OSError:
            return b""

    eventually(lambda: answer(port) == b"hi")
    with pytest.raises(CapacityError, match=f"port {port} of the machine is taken"):
        runner.submit(in_container(tmp_path, code(listen), "run-2", ports=(port,)), [])
    other = make(network="for-ports", publish="free")
    second = other.submit(in_container(tmp_path, code(listen), "run-3", ports=(port,)), [])
    elsewhere = second.data["ports"][str(port)]
    assert elsewhere != port
    eventually(lambda: answer(elsewhere) == b"hi")
    for each in (handle, second):
        runner.cancel(each)
        runner.forget(each)
    docker.docker("network", "rm", "for-ports")


def test_a_command_may_go_through_the_entry_point(
    make: Make,
    tmp_path: Path,
    docker: DockerEngine,  # noqa: F811
) -> None:
    docker.docker("build", "-t", "with-entry:1", "-", stdin=f'FROM {IMAGE}\nENTRYPOINT ["echo", "entry"]\n'.encode())
    request = in_container(tmp_path, ("sh", "-c"), image="with-entry:1")
    assert finish(make(entrypoint=True), request).state is RunState.DONE
    assert (request.folder / "stdout").read_text() == "entry sh -c\n"


def test_an_init_process_ends_jobs_that_ignore_nothing(make: Make, tmp_path: Path) -> None:
    runner = make(init=True, grace=30)
    handle = runner.submit(in_container(tmp_path, ("sleep", "60")), [])
    runner.cancel(handle)
    assert ended_within(runner, handle, 20).state is RunState.CANCELLED


def test_a_job_may_use_the_grace_to_say_goodbye(make: Make, tmp_path: Path) -> None:
    runner = make(grace=30)
    script = "trap 'echo bye; exit 0' TERM; touch ready; while :; do sleep 0.05; done"
    request = in_container(tmp_path, ("sh", "-c", script))
    handle = runner.submit(request, [])
    eventually((request.workdir / "ready").exists)
    runner.cancel(handle)
    assert ended_within(runner, handle, 20).state is RunState.CANCELLED
    runner.collect(handle, request)
    assert (request.folder / "stdout").read_text() == "bye\n"


def test_room_is_this_machines_for_local_offers_only(make: Make) -> None:
    runner, cpus = make(), len(os.sched_getaffinity(0))
    wide = Offer("local", "wide", cpus, 0.1, 1.0)
    assert runner.room(wide, [])
    assert not runner.room(wide, [wide])
    far = Offer("aws", "wide", cpus, 0.1, 1.0)
    assert runner.room(far, [far] * 10)


def test_images_written_by_root_keep_their_modes(make: Make, tmp_path: Path) -> None:
    request = in_container(tmp_path, ("sh", "-c", "test -x tool && echo more >> plain"), outputs=("plain",))
    (request.workdir / "tool").write_text("#!/bin/sh\n")
    (request.workdir / "tool").chmod(0o755)
    (request.workdir / "plain").write_text("some\n")
    (request.workdir / "plain").chmod(0o600)
    assert finish(make(files="copy", user="1234"), request).state is RunState.DONE
    assert (request.folder / "outputs" / "plain").read_text() == "some\nmore\n"
    assert stat.S_ISREG((request.folder / "outputs" / "plain").stat().st_mode)


def test_what_a_job_leaves_is_unpacked_safely(make: Make, tmp_path: Path) -> None:
    runner = make(files="copy", copy_limit=1 << 20)
    hostile = in_container(tmp_path, code("import os; os.symlink('/etc', 'x')"), "a", outputs=("x",))
    assert finish(runner, hostile).state is RunState.DONE
    assert not os.path.lexists(hostile.folder / "outputs" / "x")
    large = in_container(tmp_path, ("sh", "-c", "head -c 3000000 /dev/zero > big"), "b", outputs=("big",))
    with pytest.raises(DeployError, match="too large"):
        finish(runner, large)
