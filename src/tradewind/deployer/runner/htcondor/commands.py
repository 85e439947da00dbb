"""Calls HTCondor's programs, turns their complaints into typed errors, and keeps what the queue said last.

The queue and the history are asked in threads, so that a daemon that does not answer delays no poll.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tradewind.deployer.file_locks import wait_for_lock
from tradewind.deployer.runner.htcondor.status import HtCondorData
from tradewind.deployer.runner.htcondor.submit_description import text_of_ad
from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    MissingProgramError,
    TradewindError,
    UnreachableError,
)
from tradewind.problem import Handle

ATTRIBUTES = (
    "ClusterId,ProcId,JobStatus,ExitCode,ExitBySignal,ExitSignal,HoldReason,HoldReasonCode,HoldReasonSubCode,"
    "RemoveReason,NumJobStarts,JobCurrentStartExecutingDate,CompletionDate,EnteredCurrentStatus,RemoteWallClockTime,"
    "LastRejMatchReason,LastRejMatchTime,LastMatchTime,"
    "TradewindRun,TradewindOwner,TradewindExpires,TradewindLasts,TradewindFolder"
)
"""The attributes that are asked of each job."""

_SUBMIT_FACTOR = 12.0
_LOCK_SECONDS = 180.0
_ANSWER_SECONDS = 0.5
_HASTE_SECONDS = 0.5
_ABSENT_SECONDS = 1.0

ClassAd = dict[str, Any]
"""The attributes of a job."""


def find_programs() -> None:
    """Check that HTCondor's programs are on the PATH.

    Raises:
        MissingProgramError: One is not there.
    """
    for name in ("condor_submit", "condor_q", "condor_history", "condor_rm"):
        _find(name, "")


def _find(name: str, folder: str) -> str:
    program = shutil.which(name, path=folder or None)
    if program is None:
        where = f"in {folder}" if folder else "on PATH"
        raise MissingProgramError(
            f"there is no {name} {where}", hint="install HTCondor's tools, or set bin to their folder"
        )
    return program


class CondorCommands:
    """Calls HTCondor's programs; it may be used by several threads.

    Args:
        folder: The folder of the programs, or empty for those on the PATH.
        timeout: Seconds that a query may take.
        place: The folder in which submit descriptions are kept while they are submitted.
    """

    def __init__(self, folder: str, timeout: float, place: Path) -> None:
        self._folder = folder
        self._timeout = timeout
        self._place = place

    @contextlib.contextmanager
    def alone(self, seconds: float = _LOCK_SECONDS) -> Iterator[int]:
        """Hold the lock of submissions, which other processes of this data folder and their condor_submit hold, too.

        Args:
            seconds: Seconds to wait for the others.

        Yields:
            The file descriptor of the lock.

        Raises:
            UnreachableError: Another one takes too long.
        """
        self._place.mkdir(parents=True, exist_ok=True)
        with (self._place / "submit.lock").open("a") as lock:
            if not wait_for_lock(lock, seconds):
                raise UnreachableError("another condor_submit does not end")
            yield lock.fileno()

    def submit(self, description: str, lock: int) -> list[tuple[int, int]]:
        """Submit a description; the cluster and the process of each of its jobs, in their order.

        Args:
            description: The text of the submit description.
            lock: The descriptor from `alone`; condor_submit holds it as long as it runs, whatever becomes of this
                process.
        """
        file = self._place / f"{os.getpid()}-{time.monotonic_ns()}.sub"
        file.write_text(description, encoding="utf-8")
        try:
            said = self._run(["condor_submit", "-terse", str(file)], self._timeout * _SUBMIT_FACTOR, keep=lock)
        finally:
            file.unlink(missing_ok=True)
        jobs = []
        for first, start, last, end in re.findall(r"^(\d+)\.(\d+) - (\d+)\.(\d+)\s*$", said, re.MULTILINE):
            if first == last:
                jobs += [(int(first), number) for number in range(int(start), int(end) + 1)]
        return jobs

    def queue(self, constraint: str) -> list[ClassAd]:
        """The jobs in the queue that meet a ClassAd constraint.

        Raises:
            UnreachableError: The scheduler does not answer, or not in time.
        """
        return self._ads(["condor_q", "-constraint", constraint])

    def history(self, constraint: str, most: int) -> list[ClassAd]:
        """The jobs that have left the queue and meet a ClassAd constraint; reading a long history takes long.

        Args:
            constraint: The constraint.
            most: The largest number of jobs to return.

        Raises:
            UnreachableError: It takes too long, or there is no history.
        """
        return self._ads(["condor_history", "-limit", str(most), "-constraint", constraint])

    def remove(self, constraint: str) -> None:
        """Remove the jobs that meet a ClassAd constraint; that there are none is no error."""
        self._run(["condor_rm", "-constraint", constraint], self._timeout * 2, absent_is_fine=True)

    def _ads(self, words: Sequence[str]) -> list[ClassAd]:
        said = self._run([*words, "-json", "-attributes", ATTRIBUTES], self._timeout)
        try:
            found = json.loads(said) if said.strip() else []
        except ValueError:
            raise UnreachableError(f"{words[0]} said something that is not JSON: {said[:200]!r}") from None
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    def _run(self, words: list[str], seconds: float, *, keep: int | None = None, absent_is_fine: bool = False) -> str:
        program = _find(words[0], self._folder)
        process = subprocess.Popen(
            [program, *words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=() if keep is None else (keep,),
        )
        try:
            stdout, stderr = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise UnreachableError(f"{words[0]} did not answer within {seconds:g} s") from None
        said, complaint = stdout.decode(errors="replace"), stderr.decode(errors="replace")
        if process.returncode == 0 or (absent_is_fine and re.search(r"ouldn't find|o jobs|not found", complaint)):
            return said
        raise _complaint(words[0], complaint.strip() or said.strip() or f"exit code {process.returncode}")


def _complaint(program: str, text: str) -> DeployError:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    words = f"{program}: {' '.join(lines)[:500]}"
    low = words.lower()
    if any(w in low for w in ("can't find address", "failed to fetch ads", "couldn't contact", "failed to connect")):
        return UnreachableError(words, hint="is the condor_schedd running? try condor_q by hand")
    if any(w in low for w in ("authenticat", "denied", "not authorized", "secman", "permission")):
        return CredentialsError(words, hint="HTCondor does not let this user submit; see condor_ping WRITE")
    if "max_jobs" in low or "would exceed" in low:
        return CapacityError(words, hint="fewer runs at a time, or ask for a larger limit")
    if program == "condor_submit" and ("error" in low or "invalid" in low):
        return DeployError(words, hint="see the settings requirements and submit", retryable=False)
    return DeployError(words)


def run_constraint(run_id: str) -> str:
    """The ClassAd constraint that finds a run."""
    return f"TradewindRun == {text_of_ad(run_id)}"


class _Query:
    """A query that runs in a thread."""

    def __init__(self, ask: Callable[[], list[ClassAd]]) -> None:
        self.asked = time.time()
        self.answer: list[ClassAd] | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, args=(ask,), name="tradewind-htcondor", daemon=True).start()

    def _run(self, ask: Callable[[], list[ClassAd]]) -> None:
        with contextlib.suppress(TradewindError, OSError):
            self.answer = ask()
        self._done.set()

    def done(self, seconds: float = 0.0) -> bool:
        """True when the query has ended, with an answer or without."""
        return self._done.wait(seconds)


class JobAdCache:
    """Keeps the job ads that the queue gave last, of all runs that are polled.

    Args:
        condor: The programs of HTCondor.
        interval: Seconds between two queries.
    """

    def __init__(self, condor: CondorCommands, interval: float) -> None:
        self._condor = condor
        self._interval = interval
        self._watched: dict[str, Handle] = {}
        self._covered: frozenset[str] = frozenset()
        self._asked = 0.0
        self._ads: Mapping[str, ClassAd] = {}
        self._question: _Query | None = None
        self._asking: frozenset[str] = frozenset()
        self._absent: dict[str, float] = {}
        self._history: dict[str, _Query] = {}

    def look(self, handles: Sequence[Handle], *, urgent: bool) -> None:
        """Query the queue about some runs, and all others that were polled, when it is time.

        Args:
            handles: The runs.
            urgent: True when the state of one of them is not known otherwise.
        """
        self._watched.update((handle.run_id, handle) for handle in handles)
        if self._question is None:
            haste = urgent and any(handle.run_id not in self._covered for handle in handles)
            if time.time() < self._asked + (min(_HASTE_SECONDS, self._interval) if haste else self._interval):
                return
            known = {run_id: HtCondorData.of(each).cluster for run_id, each in self._watched.items()}
            clusters = {int(cluster) for cluster in known.values() if cluster is not None}
            terms = [f"ClusterId == {cluster}" for cluster in sorted(clusters)]
            terms += [run_constraint(run_id) for run_id, cluster in known.items() if cluster is None]
            constraint = " || ".join(f"({term})" for term in terms)
            self._asking = frozenset(self._watched)
            self._question = _Query(lambda: self._condor.queue(constraint))
        if self._question.done(_ANSWER_SECONDS):
            question, self._question = self._question, None
            self._asked = question.asked
            self._covered = frozenset()
            if question.answer is not None:
                self._covered = self._asking
                self._ads = {str(ad["TradewindRun"]): ad for ad in question.answer if "TradewindRun" in ad}

    def forget(self, run_id: str) -> None:
        """Query no more about a run."""
        self._watched.pop(run_id, None)
        self._absent.pop(run_id, None)
        self._history.pop(run_id, None)

    def said(self, handle: Handle) -> ClassAd | None:
        """The job ad of a run that the queue gave last; None when it did not list the run, or was not asked."""
        ad = self._ads.get(handle.run_id) if handle.run_id in self._covered else None
        if ad is not None:
            self._absent.pop(handle.run_id, None)
        return ad

    def missing(self, handle: Handle) -> bool:
        """True when the queue has been asked since the run was submitted, and did not list it, for a while."""
        if handle.run_id not in self._covered or self._asked <= (HtCondorData.of(handle).submitted or 0.0):
            return False
        first = self._absent.setdefault(handle.run_id, self._asked)
        return self._asked >= first + _ABSENT_SECONDS

    def remembered(self, handle: Handle) -> tuple[bool, dict[str, Any] | None]:
        """Look a run up in the history, which is queried once, in a thread.

        The job is looked for by its number, which takes less time than by its tag.

        Returns:
            False while there is no answer yet; and the job ad, or None.
        """
        question = self._history.get(handle.run_id)
        if question is None:
            constraint = run_constraint(handle.run_id)
            cluster = HtCondorData.of(handle).cluster
            if cluster is not None:
                constraint = f"ClusterId == {cluster} && {constraint}"
            question = self._history[handle.run_id] = _Query(lambda: self._condor.history(constraint, 1))
        if not question.done():
            return False, None
        return True, question.answer[0] if question.answer else None
