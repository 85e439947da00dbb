"""A pool like HTCondor's for the tests: programs with its names, which keep their state in a folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.engines.condor import condorlib
from tests.waiting import eventually

PROGRAMS = ("condor_submit", "condor_q", "condor_history", "condor_rm", "condor_chirp")


class Condor:
    """A pool and its programs.

    Args:
        folder: Where all of it is.
    """

    def __init__(self, folder: Path) -> None:
        self.bin, self.state = folder / "bin", folder / "state"
        self.bin.mkdir()
        self.state.mkdir()
        library = str(Path(condorlib.__file__).parent)
        for name in PROGRAMS:
            code = (
                f"#!{sys.executable} -SE\nimport sys\nsys.path.insert(0, {library!r})\n"
                f"import condorlib\nsys.exit(condorlib.main({str(self.state)!r}, {name!r}))\n"
            )
            (self.bin / name).write_text(code)
            (self.bin / name).chmod(0o755)
        self.pool = condorlib.Pool(self.state)

    def config(self, **changes: Any) -> None:
        """Set limits and faults; what is not named is as usual again."""
        part = self.state / "config.part"
        part.write_text(json.dumps(changes))
        part.replace(self.state / "config.json")

    def call(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """What a program says, called by hand."""
        return subprocess.run([self.bin / name, *words], capture_output=True, text=True, timeout=60)

    def jobs(self) -> list[dict[str, Any]]:
        """The attributes of all jobs in the queue."""
        return [job["ad"] for job in self.pool.jobs()]

    def of(self, run_id: str) -> dict[str, Any] | None:
        """The job of a run, or None."""
        return next((job for job in self.pool.jobs() if job["ad"].get("TradewindRun") == run_id), None)

    def past(self) -> list[dict[str, Any]]:
        """The attributes of all jobs that have left the queue."""
        return [job["ad"] for job in self.pool.jobs("history")]

    def starts(self, folder: Path) -> int:
        """How often the jobs of a run have been started; a run is known by its folder."""
        # a job that leaves the queue between the two looks, or right now, is in both
        every = {job["name"]: job["ad"] for where in ("jobs", "history") for job in self.pool.jobs(where)}
        return sum(ad["NumJobStarts"] for ad in every.values() if ad.get("TradewindFolder") == str(folder))

    def order(self, run_id: str, what: str) -> None:
        """Have a running job evicted, or held by hand."""
        job = self.of(run_id)
        assert job is not None
        (self.state / "jobs" / f"{job['name']}.{what}").touch()

    def kill_machine(self, run_id: str) -> None:
        """Kill what watches a job with signal 9, and the job: its machine is lost."""
        eventually(lambda: (self.of(run_id) or {}).get("starter"), 10, "the starter")
        job = self.of(run_id)
        assert job is not None
        os.kill(job["starter"][0], signal.SIGKILL)
        condorlib.kill_family(job)

    def calls(self, name: str) -> int:
        """How often a program was called."""
        try:
            return (self.state / "calls").read_text().split().count(name)
        except OSError:
            return 0

    def left(self) -> list[int]:
        """The processes of all jobs that there ever were."""
        return [pid for where in ("jobs", "history") for job in self.pool.jobs(where) for pid in condorlib.family(job)]

    def clear(self) -> None:
        """End all jobs at once, without a word to anybody."""
        for job in self.pool.jobs():
            with self.pool.alone():
                if condorlib.alive(job["starter"]):
                    os.kill(job["starter"][0], signal.SIGKILL)
                condorlib.kill_family(job)
                self.pool.file(job["name"]).unlink(missing_ok=True)

    def stop(self) -> None:
        """End all jobs, and start no more."""
        self.config(slots=0)
        self.clear()


def running(folder: Path) -> Iterator[Condor]:
    """A pool that is stopped at the end."""
    condor = Condor(folder)
    try:
        yield condor
    finally:
        condor.stop()
