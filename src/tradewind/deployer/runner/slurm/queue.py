"""Queries Slurm about jobs: the queue for all of them at once, and the ends of those that have left it.

Every query has a time limit, and one that was not answered is not repeated for a while: a controller that is down,
or an accounting database that hangs, costs seconds and loses nothing.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from urllib.parse import unquote

from tradewind.deployer.runner.slurm.commands import SlurmCommands
from tradewind.deployer.runner.slurm.handle import SlurmData
from tradewind.errors import DeployError, MissingProgramError, TradewindError
from tradewind.utils.retries import Backoff

_log = logging.getLogger("tradewind.deployer")

_SEPARATOR = "\x1f"
_FORMAT = _SEPARATOR.join(("%i", "%A", "%K", "%T", "%M", "%r", "%j", "%k"))
_TAG = "tradewind"
WAITING_STATES = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
"""The states of a job that has not begun."""
_FIELDS = re.compile(r"(\w+)=(\S*)")
_BACKOFF = Backoff((2.0, 4.0, 8.0, 15.0, 30.0))
_AT_ONCE = 20
_SLOWER = 1.5
_SLOWEST = 10.0
_LATELY = 30.0


@dataclass(frozen=True, slots=True)
class SlurmQueueRow:
    """A job of ours in the queue.

    Attributes:
        job: Slurm's id; of an array's element ``ARRAY_INDEX``.
        raw: Slurm's own number of the job.
        name: The name of the batch.
        index: The index of the run in the batch.
        state: The state, in Slurm's word.
        reason: The reason why it waits, in Slurm's word.
        used: Seconds that it has run.
        tags: The tags in the comment: ``owner``, ``expires``, ``lasts``, ``spool``.
    """

    job: str
    raw: str
    name: str
    index: int
    state: str
    reason: str
    used: float
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SlurmQueueSnapshot:
    """All our jobs in the queue at a moment.

    Attributes:
        begun: The time when Slurm was asked, on the monotonic clock.
        rows: The jobs, by batch and index.
    """

    begun: float
    rows: Mapping[tuple[str, int], SlurmQueueRow]


@dataclass(frozen=True, slots=True)
class SlurmJobRecord:
    """Slurm's record of a job that is not in the queue any more.

    Attributes:
        state: The first word of the state, in Slurm's spelling.
        code: The exit code.
        signal: The number of the signal that ended it, or 0.
        elapsed: Seconds that it ran.
        nodes: The nodes that it ran on, as a list of Slurm.
        limit: Its time limit in seconds; 0 where it is not known.
        words: The whole state, exit code and source, for messages.
    """

    state: str
    code: int = 0
    signal: int = 0
    elapsed: float = 0.0
    nodes: str = ""
    limit: float = 0.0
    words: str = ""


@dataclass
class _Silence:
    """Delays queries to a program that did not answer."""

    until: float = 0.0
    failures: int = 0

    def failed(self) -> None:
        self.until = time.monotonic() + _BACKOFF.pause(self.failures)
        self.failures += 1

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.until


@dataclass
class SlurmQueue:
    """Queries the queue and the records of Slurm about our jobs.

    Args:
        programs: Slurm's programs.
        interval: Least seconds between two looks at the queue. While nothing changes there, the pauses grow up to ten
            times as long: controllers that look all the time are a burden to Slurm.
        timeout: Seconds that a query may take.
    """

    programs: SlurmCommands
    interval: float
    timeout: float
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _last: SlurmQueueSnapshot | None = None
    _stale: bool = True
    _slack: float = 1.0
    _away: _Silence = field(default_factory=_Silence)
    _deaf: dict[str, _Silence] = field(default_factory=dict)

    def stir(self) -> None:
        """Let the next look ask Slurm, as a job was submitted or cancelled."""
        self._stale = True

    def hasten(self) -> None:
        """Let the next look come after the shortest pause, as something is about to be decided."""
        self._slack = 1.0

    def look(self, since: float = 0.0) -> SlurmQueueSnapshot | None:
        """Our jobs in the queue; None when Slurm does not answer.

        Args:
            since: The answer must be younger than this moment of the monotonic clock.
        """
        with self._lock:
            last = self._last
            young = last is not None and time.monotonic() - last.begun < self.interval * self._slack
            if last is not None and young and not self._stale and last.begun >= since:
                return last
            if not self._away.over:
                return None
            calm, self._stale = not self._stale, False
            try:
                self._last = self._ask()
            except TradewindError as error:
                self._away.failed()
                self._last = None
                _log.warning("the queue of Slurm cannot be read: %s", error)
            else:
                self._away = _Silence()
                calm = calm and last is not None and _states(last) == _states(self._last)
                self._slack = min(_SLOWEST, self._slack * _SLOWER) if calm else 1.0
            return self._last

    def all(self) -> SlurmQueueSnapshot:
        """Query our jobs in the queue now.

        Raises:
            DeployError: Slurm does not answer.
            MissingProgramError: squeue is not there.
        """
        with self._lock:
            self._last = self._ask()
            return self._last

    def _ask(self) -> SlurmQueueSnapshot:
        begun = time.monotonic()
        text = self.programs.ask("squeue", "--noheader", "--array", "--me", f"--format={_FORMAT}", timeout=self.timeout)
        rows: dict[tuple[str, int], SlurmQueueRow] = {}
        for row in map(_row, text.splitlines()):
            if row is not None:
                known = rows.get((row.name, row.index))
                if known is None or known.state == "PENDING":  # of two jobs for one run the other will not start it
                    rows[row.name, row.index] = row
        return SlurmQueueSnapshot(begun, rows)

    def named(self, name: str) -> str:
        """Slurm's id of the job or array of a batch, ended or not; empty when it has none.

        Raises:
            DeployError: Slurm does not answer.
        """
        words = ("--noheader", "--me", "--states=all", f"--name={name}", "--format=%F")
        found = self.programs.ask("squeue", *words, timeout=self.timeout).split()
        return found[-1] if found else ""

    def row(self, key: tuple[str, int], since: float) -> SlurmQueueRow | None:
        """A job in the queue as it was seen lately, after a moment of the monotonic clock; None when it is not there.

        Args:
            key: The batch and the index of the run.
            since: The moment.
        """
        last = self._last
        if last is None or last.begun < since or time.monotonic() - last.begun > _LATELY:
            last = self.look(since)
        return last.rows.get(key) if last is not None else None

    def cancel(self, job: str) -> None:
        """End a job; one that is not there is no error.

        Args:
            job: Slurm's id, from a `SlurmQueueRow`: a slurmctld that lost its state gives the number to
                another job.

        Raises:
            DeployError: Slurm does not answer.
        """
        self.stir()
        answer = self.programs.run("scancel", "--quiet", job, timeout=self.timeout)
        words = answer.stderr.decode(errors="replace").strip()
        if answer.code and "Invalid job id" not in words:
            raise DeployError(f"scancel: {words or f'exit code {answer.code}'}")

    def ends(self, jobs: Mapping[str, tuple[str, str]], since: float) -> dict[str, SlurmJobRecord]:
        """The records of jobs that are not in the queue; scontrol, sacct and the file of ended jobs are asked in turn.

        Args:
            jobs: Slurm's id -> the batch, and Slurm's own number or an empty text where that is not known.
            since: The time before which none was submitted, in seconds since the epoch.

        Returns:
            The records that were found, by Slurm's id; a job that is still ending has the state ``COMPLETING``.
        """
        found: dict[str, SlurmJobRecord] = {}
        for job in list(jobs)[:_AT_ONCE]:
            record = self._controller(job, jobs[job][0])
            if record is not None:
                found[job] = record
        for words in (("--allocations",), ("--completion", "--allocations")):
            left = {job: jobs[job] for job in jobs if job not in found}
            if left:
                found |= self._accounting(words, left, since)
        # Those that were not asked for yet are asked for next time.
        return {**{job: SlurmJobRecord("COMPLETING") for job in list(jobs)[_AT_ONCE:]}, **found}

    def heard(self, tool: str, name: str, *words: str) -> str | None:
        """The output of a program; None where it does not answer, and then it is not run again for a while.

        Args:
            tool: The name of the kind of query, which is delayed by itself: programs may answer one and not another.
            name: The program.
            words: The arguments of the program.
        """
        silence = self._deaf.setdefault(tool, _Silence())
        if not silence.over:
            return None
        try:
            answer = self.programs.run(name, *words, timeout=self.timeout)
        except (DeployError, MissingProgramError) as error:
            silence.failed()
            _log.info("%s: %s", tool, error)
            return None
        said = answer.stderr.decode(errors="replace")
        if answer.code and "Invalid job id" not in said:
            silence.failed()
            _log.info("%s: %s", tool, said.strip())
            return None
        self._deaf.pop(tool, None)
        return answer.stdout.decode(errors="replace")

    def _controller(self, job: str, name: str) -> SlurmJobRecord | None:
        text = self.heard("scontrol", "scontrol", "--oneliner", "show", "job", job)
        facts = dict(_FIELDS.findall(text or ""))
        if "JobState" not in facts or facts.get("JobName") != name:
            return None
        elapsed = seconds_of(facts.get("RunTime", ""))
        limit = seconds_of(facts.get("TimeLimit", ""))
        record = _job_record(
            facts["JobState"], facts.get("ExitCode", ""), elapsed, facts.get("NodeList", ""), "scontrol"
        )
        return replace(record, limit=limit)

    def _accounting(
        self, words: Sequence[str], jobs: Mapping[str, tuple[str, str]], since: float
    ) -> dict[str, SlurmJobRecord]:
        # Without a start sacct shows nothing that ended before midnight.
        start = (datetime.fromtimestamp(since) - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%S")
        # The file of ended jobs does not know the elements of arrays.
        by_number = "--completion" in words
        asked = {(raw or job) if by_number else job: job for job, (_, raw) in jobs.items()}
        text = self.heard(
            f"sacct {words[0]}",
            "sacct",
            "--noheader",
            "--parsable2",
            *words,
            f"--starttime={start}",
            f"--jobs={','.join(asked)}",
            # The file of ended jobs does not have all columns.
            "--format=JobID,JobName,State,ExitCode,Elapsed,NodeList" + ("" if by_number else ",Timelimit"),
        )
        found = {}
        for line in (text or "").splitlines():
            job, name, state, code, elapsed, nodes, limit = [*line.split("|"), *[""] * 6][:7]
            if state and job in asked and name == jobs[asked[job]][0]:
                record = _job_record(state, code, seconds_of(elapsed), nodes, "sacct")
                found[asked[job]] = replace(record, limit=seconds_of(limit))
        return found


def comment_of(owner: str, expires: float, lasts: float, spool: str) -> str:
    """The comment of a job, by which it is found.

    Args:
        owner: The owner of its runs, quoted, without spaces.
        expires: The time from which anyone may end it, if it begins at once; in seconds since the epoch.
        lasts: Seconds after its beginning from which anyone may end it.
        spool: The folder with its files, quoted like the owner.
    """
    return f"{_TAG} owner={owner} expires={expires:.0f} lasts={lasts:.0f} spool={spool}"


def with_expiry(data: SlurmData, row: SlurmQueueRow | None, now: float | None = None) -> SlurmData:
    """The data of a run with its expiry: time in the queue does not count.

    A run that waits has none: it costs nothing, and once it has begun Slurm holds it to its time limit. One that runs
    has as long from its beginning as it was given when it was submitted.

    Args:
        data: The data of the run, from its note or from its job's comment.
        row: The run's job in the queue, or None where it is not there any more.
        now: The time, in seconds since the epoch.
    """
    if row is None:
        return data
    if row.state in WAITING_STATES:
        return data.waiting()
    lasts = float(row.tags["lasts"]) if row.tags.get("lasts", "").isdigit() else None
    if lasts is None and data.submitted is None:
        return data
    return replace(data, created=data.submitted).begun((time.time() if now is None else now) - row.used, lasts)


def seconds_of(text: str) -> float:
    """Convert Slurm's ``[DAYS-]HOURS:MINUTES:SECONDS`` to seconds; 0 for any other text."""
    days, _, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.replace(".", "", 1).isdigit() for part in parts) or (days and not days.isdigit()):
        return 0.0
    total = 0.0
    for part in parts:
        total = total * 60 + float(part)
    return total + 86400.0 * int(days or 0)


def _states(snapshot: SlurmQueueSnapshot) -> dict[tuple[str, int], tuple[str, str]]:
    return {key: (row.state, row.reason) for key, row in snapshot.rows.items()}


def _row(line: str) -> SlurmQueueRow | None:
    """Read a line of squeue; None unless it is a job of ours. Other jobs may have any characters in their names."""
    fields = line.split(_SEPARATOR)
    if len(fields) != 8 or not fields[7].startswith(_TAG + " "):
        return None
    job, raw, index, state, used, reason, name, comment = fields
    tags = {key: unquote(value) for key, value in _FIELDS.findall(comment)}
    return SlurmQueueRow(job, raw, name, int(index) if index.isdigit() else 0, state, reason, seconds_of(used), tags)


def _job_record(state: str, exit_code: str, elapsed: float, nodes: str, source: str) -> SlurmJobRecord:
    code, _, number = exit_code.partition(":")
    made = SlurmJobRecord(state.split()[0].rstrip("+"), elapsed=elapsed, nodes=nodes)
    words = f"{state} {exit_code}".strip() + f", says {source}"
    return replace(
        made, code=int(code) if code.isdigit() else 0, signal=int(number) if number.isdigit() else 0, words=words
    )
