"""Searches that run on this machine at once share its CPUs: each in a process of its own, none knows of the others."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.deployer.helpers import OFFER, process_runner, request_for
from tests.waiting import eventually

from tradewind.deployer.runner import process, resource_limits
from tradewind.deployer.runner.process import ProcessRunner
from tradewind.errors import PrerequisiteError
from tradewind.problem import Handle, RunRequest, RunState
from tradewind.testing.runners import wait_for_end
from tradewind.utils.paths import slots_folder

ALL = replace(OFFER, vcpu=float(resource_limits.cpus_here()))
"""All CPUs of this machine."""

SHOWS = 'echo "$TRADEWIND_SLOTS"; echo on >> "$0"; while [ ! -e "$1" ]; do sleep 0.02; done'


def search(folder: Path, name: str) -> ProcessRunner:
    """The runner of a search with a data folder of its own."""
    made = process_runner(folder / name, share=True)
    made._folder.mkdir(parents=True)
    return made


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[ProcessRunner, ProcessRunner]]:
    found = search(tmp_path, "one"), search(tmp_path, "other")
    yield found
    for each in found:
        # Not those of all owners: these are all runs of this machine, of other tests and of whoever runs them.
        for handle in [one for name in "abcd" for one in each.find(owner_of(tmp_path, name))]:
            each.cancel(handle)
        each.close()


def owner_of(tmp_path: Path, name: str) -> str:
    """The owner of a run; each test has its own, since several may run at once."""
    return f"owner-{name}-{tmp_path.name}"


def request(tmp_path: Path, name: str, **changes: Any) -> RunRequest:
    """A run that ends when the file ``end-NAME`` is there; its study has its name."""
    words = ("sh", "-c", SHOWS, str(tmp_path / f"began-{name}"), str(tmp_path / f"end-{name}"))
    study = {"TRADEWIND_STUDY": f"study-{name}"}
    return replace(request_for(tmp_path, words, name, offer=ALL, env=study, **changes), owner=owner_of(tmp_path, name))


def began(tmp_path: Path, name: str) -> bool:
    return (tmp_path / f"began-{name}").exists()


def state(runner: ProcessRunner, handle: Handle) -> RunState:
    return runner.poll([handle])[handle.run_id].state


def test_a_run_waits_for_one_of_another_search_and_says_so(
    two: tuple[ProcessRunner, ProcessRunner], tmp_path: Path
) -> None:
    one, other = two
    first, second = one.submit(request(tmp_path, "a"), ()), other.submit(request(tmp_path, "b"), ())
    status = other.poll([second])["b"]
    here = resource_limits.cpus_here()
    assert status.state is RunState.SUBMITTING
    assert status.reason == f"{here} of {here} CPUs are used by search study-a"
    (tmp_path / "end-a").touch()
    assert wait_for_end(one, first).state is RunState.DONE
    (tmp_path / "end-b").touch()
    assert wait_for_end(other, second).state is RunState.DONE
    assert began(tmp_path, "b")


def test_what_a_killed_warden_had_is_taken(two: tuple[ProcessRunner, ProcessRunner], tmp_path: Path) -> None:
    one, other = two
    first, second = one.submit(request(tmp_path, "a"), ()), other.submit(request(tmp_path, "b"), ())
    eventually(lambda: began(tmp_path, "a"))
    assert one._warden is not None
    os.kill(one._warden.pid, signal.SIGKILL)
    eventually(lambda: state(other, second) is RunState.EXECUTING)
    assert wait_for_end(one, first).state is RunState.PREEMPTED


def test_runs_of_a_killed_search_keep_their_place_and_what_it_waited_for_is_free(
    two: tuple[ProcessRunner, ProcessRunner], tmp_path: Path
) -> None:
    """The warden goes on with what runs, and nobody would start what waits."""
    code = f"""
import time
from pathlib import Path
from tests.deployer.runner.test_process_slots import request, search
folder = Path({str(tmp_path)!r})
made = search(folder, "killed")
for name in "ab":
    made.submit(request(folder, name), ())
print("both", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "both\n"
        killed.kill()
    runner = two[0]
    waits = runner.submit(request(tmp_path, "c"), ())
    assert state(runner, waits) is RunState.SUBMITTING
    (tmp_path / "end-a").touch()
    eventually(lambda: state(runner, waits) is RunState.EXECUTING)
    assert not began(tmp_path, "b")


def test_one_that_is_cancelled_or_left_waits_no_more(two: tuple[ProcessRunner, ProcessRunner], tmp_path: Path) -> None:
    one, other = two
    first, second = one.submit(request(tmp_path, "a"), ()), other.submit(request(tmp_path, "b"), ())
    other.cancel(second, "nobody needs it")
    assert other.poll([second])["b"].reason == "nobody needs it"
    third = other.submit(request(tmp_path, "c"), ())
    other.close()
    fourth = one.submit(request(tmp_path, "d"), ())
    (tmp_path / "end-a").touch()
    assert wait_for_end(one, first).state is RunState.DONE
    eventually(lambda: state(one, fourth) is RunState.EXECUTING)
    assert not any(began(tmp_path, name) for name in "bc")
    assert state(other, third) is not RunState.EXECUTING


def test_each_search_gets_cpus_of_its_own(two: tuple[ProcessRunner, ProcessRunner], tmp_path: Path) -> None:
    if resource_limits.cpus_here() < 2:
        pytest.skip("this machine has one CPU")
    handles = [
        each.submit(replace(request(tmp_path, name), offer=replace(OFFER, memory_gib=0.1)), ())
        for each, name in zip(two, "ab", strict=True)
    ]
    eventually(lambda: began(tmp_path, "a") and began(tmp_path, "b"))
    told = [each.poll([handle])[handle.run_id].state for each, handle in zip(two, handles, strict=True)]
    assert told == [RunState.EXECUTING] * 2
    notes = [tmp_path / "runs" / name / "pid.json" for name in "ab"]  # the program may begin a moment before its note
    eventually(lambda: all(note.exists() for note in notes))
    pids = [int(note.read_text().split(",")[0].split(":")[1]) for note in notes]
    one, other = map(os.sched_getaffinity, pids)
    assert len(one) == len(other) == 1
    assert not one & other


def test_a_run_that_starts_runs_itself_takes_no_second_place(
    two: tuple[ProcessRunner, ProcessRunner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own registry is empty; two searches within it share that."""
    one, other = two
    outer = one.submit(request(tmp_path, "a"), ())
    eventually(lambda: began(tmp_path, "a"))
    inner = (tmp_path / "runs" / "a" / "stdout").read_text().strip()
    assert inner == str(slots_folder() / "in-a")
    monkeypatch.setenv("TRADEWIND_SLOTS", inner)
    assert state(other, other.submit(request(tmp_path, "b"), ())) is RunState.EXECUTING
    third = search(tmp_path, "third")
    assert state(third, third.submit(request(tmp_path, "c"), ())) is RunState.SUBMITTING
    third.close()
    (tmp_path / "end-a").touch()
    assert wait_for_end(one, outer).state is RunState.DONE
    eventually(lambda: not Path(inner).exists())


ALONE = """
import os, sys, time
holder, marks = sys.argv[1:]
def lives(pid):
    try:
        lines = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status").read().splitlines())
    except OSError:
        return False
    # A process that was killed with its warden may take a moment to be gone.
    killed = any(int(lines[name], 16) & 1 << 8 for name in ("SigPnd", "ShdPnd"))
    return lines["State"].split()[0] not in "ZX" and not killed
def others():
    try:
        return [pid for pid in open(holder).read().split() if lives(pid)]
    except OSError:
        return []
found = others()
open(holder, "w").write(str(os.getpid()))
time.sleep(0.02)
with open(marks, "a") as file:
    file.write("together\\n" if found else "alone\\n")
os.unlink(holder)
"""

SEARCHES = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.deployer.helpers import python, request_for
from tests.deployer.runner.test_process_slots import ALL, ALONE, search
from tradewind.testing.runners import wait_for_end
folder, name = Path(sys.argv[1]), sys.argv[2]
made = search(folder, name)
for number in range(1000):
    words = (*python(ALONE), str(folder / "holder"), str(folder / "marks"))
    request = replace(request_for(folder, words, f"{name}-{number}", offer=ALL), owner=name)
    wait_for_end(made, made.submit(request, ()))
"""


@pytest.mark.thorough
@pytest.mark.slow
def test_whoever_is_killed_no_two_runs_have_the_same_cpus(tmp_path: Path) -> None:
    """Searches and wardens are killed at random moments; each run notes whether another one lives beside it."""
    chance, names = random.Random(7), itertools.count()
    (tmp_path / "marks").touch()

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", SEARCHES, str(tmp_path), f"s{next(names)}"])

    def marks() -> list[str]:
        return (tmp_path / "marks").read_text().split()

    searches = [begin() for _ in range(3)]
    try:
        for _ in range(12):
            seen = len(marks())
            eventually(lambda seen=seen: len(marks()) > seen + 3)  # type: ignore[misc]
            slot = chance.randrange(3)
            wardens = psutil.Process(searches[slot].pid).children()
            if chance.random() < 0.5 and wardens:
                wardens[0].kill()
            else:
                searches[slot].kill()
                searches[slot].wait()
                searches[slot] = begin()
    finally:
        for each in searches:
            each.kill()
            each.wait()
    assert set(marks()) == {"alone"}
    assert len(marks()) > 36


def test_runs_that_do_not_share_wait_for_nobody(tmp_path: Path) -> None:
    runners = [process_runner(tmp_path) for _ in range(3)]
    handles = [each.submit(request(tmp_path, name), ()) for each, name in zip(runners, "abc", strict=True)]
    states = [state(each, handle) for each, handle in zip(runners, handles, strict=True)]
    for each, handle in zip(runners, handles, strict=True):
        each.cancel(handle)
        wait_for_end(each, handle)
        each.close()
    assert states == [RunState.EXECUTING] * 3


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRADEWIND_SLOTS", str(tmp_path / "file" / "slots"))
    made = process_runner(tmp_path, share=True)
    with pytest.raises(PrerequisiteError, match=r"runs on this machine cannot be noted in .*: Not a directory") as said:
        made.submit(request(tmp_path, "a"), ())
    assert said.value.hint == "set TRADEWIND_SLOTS to a folder of your own"


def test_a_program_that_is_not_there_when_its_run_has_waited_fails_that_run_only(
    two: tuple[ProcessRunner, ProcessRunner], tmp_path: Path
) -> None:
    one, other = two
    first = one.submit(request(tmp_path, "a"), ())
    wrong = other.submit(replace(request(tmp_path, "b"), argv=("no-such-program",)), ())
    third = other.submit(request(tmp_path, "c"), ())
    assert state(other, wrong) is RunState.SUBMITTING
    for name in "ac":
        (tmp_path / f"end-{name}").touch()
    assert wait_for_end(one, first).state is RunState.DONE
    status = wait_for_end(other, wrong)
    assert (status.state, status.exit_code) == (RunState.FAILED, 127)
    assert "there is no program 'no-such-program'" in status.reason
    assert wait_for_end(other, third).state is RunState.DONE
    other.forget(wrong)


def test_a_run_that_cannot_be_started_when_it_has_waited_is_never_started(
    two: tuple[ProcessRunner, ProcessRunner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has failed: nobody would end it."""
    one, other = two
    first, second = one.submit(request(tmp_path, "a"), ()), other.submit(request(tmp_path, "b"), ())

    def gone(secrets: object) -> dict[str, str]:
        raise PrerequisiteError("the secret is not there")

    with monkeypatch.context() as changed:
        changed.setattr(process, "resolve_secrets", gone)
        (tmp_path / "end-a").touch()
        assert wait_for_end(one, first).state is RunState.DONE
        status = wait_for_end(other, second)
    assert (status.state, status.reason) == (RunState.FAILED, "the secret is not there")
    other.forget(second)
    (tmp_path / "end-c").touch()
    # Asked for behind it: what had waited first would be first.
    assert wait_for_end(other, other.submit(request(tmp_path, "c"), ())).state is RunState.DONE
    monkeypatch.setattr(other._freed, "due", lambda registry: True)
    other.poll([])
    assert not began(tmp_path, "b")
    assert not (tmp_path / "runs" / "b" / "started.json").exists()
