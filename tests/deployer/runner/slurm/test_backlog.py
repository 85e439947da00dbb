"""Runs that Slurm has no room for wait, and are handed over as others end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.deployer.helpers import OWNER, deployer_over, request_for, row
from tests.deployer.runner.slurm.helpers import programs, slurm_runner
from tests.engines import require
from tests.engines.slurm import SlurmCluster, slurm_cluster
from tests.engines.ssh import Sshd
from tests.waiting import eventually

from tradewind.deployer.runner.slurm import backlog
from tradewind.deployer.runner.slurm.commands import SlurmCommands, refusal, surely_refused
from tradewind.deployer.runner.slurm.runner import SlurmRunner
from tradewind.deployer.ssh_connection import SshConnection, SshTarget
from tradewind.errors import CapacityError, TradewindError
from tradewind.problem import Fault, Handle, Machine, RunRequest, RunState, RunStatus

pytestmark = pytest.mark.slow

ROOM = 3

# Jobs are files, by their number, with what squeue says of them; removing one ends it.
_SBATCH = r"""
[ -e {base}/refusal ] && { cat {base}/refusal >&2; exit 1; }
indexes=""
for word; do case $word in
  --job-name=*) name=${word#--job-name=} ;;
  --comment=*) comment=${word#--comment=} ;;
  --array=*) indexes=$(echo "${word#--array=}" | sed 's/,/ /g') ;;
esac; done
all=""
for part in $indexes; do all="$all $(seq ${part%-*} ${part#*-})"; done
count=$(echo ${all:-0} | wc -w)
[ $(($(ls {jobs} | wc -l) + count)) -le 3 ] || { echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit
sbatch: error: Batch job submission failed: Job violates accounting/QOS policy' >&2; exit 1; }
id=$(cat {base}/next); echo $((id + 100)) > {base}/next
echo "$(date +%s.%N) $name" >> {base}/taken
for index in ${all:-N/A}; do
  [ $index = N/A ] && number=$id || number=$((id + index))
  line="%s\037%s\037%s\037PENDING\0370:00\037Priority\037%s\037%s\n"
  printf "$line" $number $number $index $name "$comment" > {jobs}/$number
done
echo $id
"""


class Site:
    """A Slurm that has room for three jobs."""

    def __init__(self, base: Path) -> None:
        self.base, self.jobs = base, base / "jobs"
        self.jobs.mkdir()
        (base / "next").write_text("100")
        (base / "taken").write_text("")
        sbatch = _SBATCH.replace("{base}", str(base)).replace("{jobs}", str(self.jobs))
        cancel = f'for w; do :; done; rm -f {self.jobs}/$w; echo "$w" >> {base}/cancelled'
        unknown = 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1'
        rows = f"cat {self.jobs}/* 2>/dev/null; true"
        self.bin = programs(
            base / "bin",
            sbatch=sbatch,
            squeue=rows,
            scancel=cancel,
            scontrol=unknown,
            sacct="echo disabled >&2; exit 1",
        )

    @property
    def queue(self) -> list[str]:
        """The batches in the queue."""
        return sorted(path.read_text().split("\x1f")[6] for path in self.jobs.iterdir())

    def refuse(self, words: str) -> None:
        """From now on sbatch refuses all, with these words."""
        (self.base / "refusal").write_text(words)

    def finish(self, runner: SlurmRunner, handle: Handle) -> None:
        """Let the job of a run begin, and end well."""
        run = runner._known(handle)
        listed = {path: path.read_text().split("\x1f") for path in self.jobs.iterdir()}
        places = (str(run.data.index), "N/A")
        [path] = [path for path, facts in listed.items() if facts[6] == run.name and facts[2] in places]
        (runner.spool.batch(run.name) / f"{run.data.index}.claim").write_text(path.name + "\n")
        assert run.folder is not None
        (run.folder / "result.json").write_text(json.dumps({"state": "done", "runtime": 1.0, "exit_code": 0}))
        path.unlink()
        runner.spool.mark(run.name, run.data.index).touch()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(backlog, "_SOON", 0.05)
    monkeypatch.setattr(backlog, "_LATEST", 0.4)
    return Site(tmp_path)


Make = Callable[..., SlurmRunner]


@pytest.fixture
def make(site: Site) -> Iterator[Make]:
    made: list[SlurmRunner] = []

    def runner(**settings: object) -> SlurmRunner:
        given = {"bin": str(site.bin), "interval": 0.0, "settle": 0.0, "timeout": 5.0, **settings}
        made.append(slurm_runner(site.base, **given))
        return made[-1]

    yield runner
    for each in made:
        each.close()
        eventually(lambda: not any(each._submitter.backlog._pushing for each in made), 10, "the end of threads")


def launched(runner: SlurmRunner, base: Path, count: int, first: int = 0) -> list[Handle]:
    """Runs of one proposal, none of which is refused."""
    runs: list[tuple[RunRequest, list[Machine]]] = [
        (request_for(base, ("true",), f"run-{i}"), []) for i in range(first, first + count)
    ]
    answers = runner.submit_all(runs)
    assert not [each for each in answers.values() if isinstance(each, TradewindError)]
    return [each for each in answers.values() if isinstance(each, Handle)]


def look(runner: SlurmRunner, handle: Handle) -> RunStatus:
    return runner.poll([handle])[handle.run_id]


def reasons(runner: SlurmRunner, handles: list[Handle]) -> list[str]:
    statuses = runner.poll(handles)
    return [statuses[handle.run_id].reason for handle in handles]


def all_polled(runner: SlurmRunner, handles: list[Handle], wanted: Callable[[], bool]) -> None:
    def reached() -> bool:
        runner.poll(handles)
        return wanted()

    eventually(reached, 10, "what was wanted of Slurm's queue")


def _queued(site: Site, name: str) -> bool:
    return name in site.queue


def test_an_array_is_handed_over_as_far_as_there_is_room_and_the_rest_as_others_end(
    site: Site, make: Make, tmp_path: Path
) -> None:
    runner = make()
    handles = launched(runner, tmp_path, 6)
    assert site.queue == ["run-0+2"] * 3
    states = runner.poll(handles)
    assert {status.state for status in states.values()} == {RunState.SUBMITTING}
    waiting = [states[f"run-{i}"].reason for i in (3, 4, 5)]
    assert all("Slurm takes no more jobs now: QOSMaxSubmitJobPerUserLimit" in reason for reason in waiting)
    assert {states[f"run-{i}"].reason for i in (0, 1, 2)} == {"Priority"}
    # What is proposed meanwhile comes behind those that wait.
    handles += launched(runner, tmp_path, 1, first=6)
    for ended, follows in ((1, "run-3"), (0, "run-4"), (2, "run-5"), (3, "run-6")):
        site.finish(runner, handles[ended])
        all_polled(runner, handles, partial(_queued, site, follows))
        assert look(runner, handles[ended]).state is RunState.DONE
    assert [line.split()[1] for line in (tmp_path / "taken").read_text().splitlines()] == [
        *("run-0+2", "run-3", "run-4", "run-5", "run-6")
    ]
    all_polled(runner, handles[4:], lambda: reasons(runner, handles[4:]) == ["Priority"] * 3)


def test_a_run_that_waits_has_no_expiry_and_its_time_begins_when_it_is_handed_over(
    site: Site, make: Make, tmp_path: Path
) -> None:
    runner = make()
    handles = launched(runner, tmp_path, 3)
    wanted = replace(request_for(tmp_path, ("true",), "late"), expires=time.time() + 100)
    late = runner.submit(wanted, [])
    [found] = [each for each in make().find(None) if each.run_id == "late"]
    assert "expires" not in found.data
    about = runner.spool.batch("late") / "batch.json"
    document = json.loads(about.read_text())
    about.write_text(json.dumps({**document, "expires": document["expires"] - 3600}))  # it was an hour ago
    site.finish(runner, handles[0])
    all_polled(runner, [late], lambda: "late" in site.queue)
    [comment] = [path.read_text() for path in site.jobs.iterdir() if "late" in path.read_text()]
    assert "lasts=100 " in comment or "lasts=99 " in comment


def test_one_that_waits_is_cancelled_at_once_and_never_handed_over(site: Site, make: Make, tmp_path: Path) -> None:
    runner = make()
    handles = launched(runner, tmp_path, 5)
    runner.cancel(handles[3], "it can no longer win")
    status = look(runner, handles[3])
    assert (status.state, status.reason) == (RunState.CANCELLED, "it can no longer win")
    runner.forget(handles[3])
    site.finish(runner, handles[0])
    all_polled(runner, handles[4:], lambda: "run-4" in site.queue)
    site.finish(runner, handles[1])
    assert "run-3" not in (tmp_path / "taken").read_text()


def test_one_that_is_cancelled_while_it_is_handed_over_leaves_no_job(site: Site, make: Make, tmp_path: Path) -> None:
    runner = make()
    handles = launched(runner, tmp_path, 4)
    sbatch = site.bin / "sbatch"
    sbatch.write_text(sbatch.read_text().replace("echo $id", f"touch {tmp_path}/going; sleep 0.5; echo $id"))
    site.finish(runner, handles[0])
    all_polled(runner, handles, lambda: (tmp_path / "going").exists())
    runner.cancel(handles[3], "late")
    assert look(runner, handles[3]).state is RunState.CANCELLED
    eventually(lambda: "run-3" not in site.queue, 10, "the end of the job")


def test_who_takes_over_hands_over_what_waits_and_who_only_looks_does_not(
    site: Site, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_TEST_OWNER", OWNER)
    first = make()
    handles = launched(first, tmp_path, 4)
    first.close()
    site.finish(first, handles[0])
    onlooker = make()
    seen = [each for each in onlooker.find(None) if each.run_id == "run-3"]
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        assert look(onlooker, seen[0]).state is RunState.SUBMITTING
        time.sleep(0.02)
    assert "run-3" not in site.queue
    deployer = deployer_over(tmp_path, runner=make())
    deployer.adopt(replace(row("run-3"), handle=handles[3]), request_for(tmp_path, ("true",), "run-3"))
    eventually(lambda: bool(deployer.poll()) or "run-3" in site.queue, 5, "the job")


def test_an_array_that_a_killed_process_wrote_down_is_parted_by_who_submits_it_again(
    site: Site, make: Make, tmp_path: Path
) -> None:
    killed = make(patience=0.0)
    site.refuse("sbatch: error: Unable to contact slurm controller (connect failure)")
    runs: list[tuple[RunRequest, list[Machine]]] = [
        (request_for(tmp_path, ("true",), f"run-{i}"), []) for i in range(5)
    ]
    assert all(isinstance(each, TradewindError) for each in killed.submit_all(runs).values())
    assert killed.spool.about("run-0+4") is not None
    (tmp_path / "refusal").unlink()
    runner = make()
    handles = launched(runner, tmp_path, 5)
    assert site.queue == ["run-0+2"] * 3
    assert [handle.data.get("handed", False) for handle in handles] == [True] * 3 + [False] * 2


def test_what_slurm_never_takes_though_it_has_nothing_of_ours_fails_with_its_words(
    site: Site, make: Make, tmp_path: Path
) -> None:
    site.refuse("sbatch: error: AssocGrpSubmitJobsLimit")
    runner = make(full=0.5)
    [one, two] = launched(runner, tmp_path, 2)
    assert look(runner, one).state is RunState.SUBMITTING
    all_polled(runner, [one, two], lambda: all(look(runner, each).state.ended for each in (one, two)))
    status = look(runner, two)
    assert (status.state, status.fault) == (RunState.FAILED, Fault.CAPACITY)
    assert "AssocGrpSubmitJobsLimit" in status.reason
    assert "no job for 0.50 s" in status.reason
    assert runner.spool.claim("run-1", 0) == "controller", "no job of it will ever run"


def test_as_long_as_slurm_has_something_of_ours_nothing_is_given_up(site: Site, make: Make, tmp_path: Path) -> None:
    runner = make(full=0.0)
    handles = launched(runner, tmp_path, 4)
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        assert look(runner, handles[3]).state is RunState.SUBMITTING
        time.sleep(0.02)


def test_what_slurm_refuses_for_good_when_there_is_room_ends_so(site: Site, make: Make, tmp_path: Path) -> None:
    runner = make()
    handles = launched(runner, tmp_path, 4)
    site.refuse("sbatch: error: Batch job submission failed: Invalid qos specification")
    site.finish(runner, handles[0])
    all_polled(runner, handles[3:], lambda: look(runner, handles[3]).state.ended)
    status = look(runner, handles[3])
    assert (status.state, status.fault) == (RunState.FAILED, Fault.CREDENTIALS)
    assert "Invalid qos" in status.reason


@pytest.mark.parametrize("remote", [False, True], ids=["here", "login host"])
def test_an_sbatch_that_sleeps_is_not_waited_for(tmp_path: Path, *, remote: bool) -> None:
    """It says that Slurm has no room, and would try again for two minutes."""
    program = tmp_path / "sbatch"
    program.write_text("#!/bin/sh\necho 'sbatch: Slurm temporarily unable to accept job, sleeping and retrying' >&2\n")
    with program.open("a") as file:
        file.write("exec sleep 60\n")
    program.chmod(0o755)
    link: SshConnection | None = None
    server: Sshd | None = None
    if remote:
        require("sshd", "ssh", "ssh-keygen", package="openssh-server openssh-client")
        (tmp_path / "sshd").mkdir()
        server = Sshd(tmp_path / "sshd")
        server.start()
        link = SshConnection(SshTarget(host=server.address, **server.facts))
    programs = SlurmCommands(str(tmp_path), link)
    try:
        began = time.monotonic()
        answer = programs.run("sbatch", timeout=60.0)
        assert time.monotonic() - began < 20
        error = refusal("sbatch", answer)
        assert isinstance(error, CapacityError)
        assert not surely_refused(error)
    finally:
        programs.close()
        if server is not None:
            server.stop()


@pytest.fixture
def crowded(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    with slurm_cluster(tmp_path_factory.mktemp("crowded"), min_job_age=2, max_jobs=3) as made:
        monkeypatch.setenv("SLURM_CONF", str(made.conf))
        yield made


@pytest.mark.slow
@pytest.mark.xdist_group("slurm")
def test_a_real_slurm_that_has_as_many_jobs_as_it_may(crowded: SlurmCluster, tmp_path: Path) -> None:
    """Its sbatch does not refuse: it sleeps and tries again, for two minutes."""
    runner = slurm_runner(tmp_path)
    began = time.monotonic()
    handles = launched(runner, tmp_path, 5)
    assert time.monotonic() - began < 30
    assert any("temporarily unable" in reason for reason in reasons(runner, handles))
    ends: dict[str, RunStatus] = {}

    def done() -> bool:
        open_ones = [handle for handle in handles if handle.run_id not in ends]
        ends.update({name: each for name, each in runner.poll(open_ones).items() if each.state.ended})
        return len(ends) == len(handles)

    eventually(done, 90, "the end of all")
    assert {status.state for status in ends.values()} == {RunState.DONE}
    runner.close()
