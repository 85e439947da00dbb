"""Reads a run's job event log, which HTCondor writes beside the run's files, whether or not its daemons answer."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, replace
from pathlib import Path

_HEAD = re.compile(
    r"^(?P<number>\d{3}) \((?P<cluster>\d+)\.(?P<process>\d+)\.\d+\) "
    r"(?P<date>\d{4}-\d\d-\d\d|\d\d/\d\d(?:/\d\d)?)[ T](?P<time>\d\d:\d\d:\d\d)\S* ?(?P<words>.*)$"
)
_SUBMITTED, _EXECUTING, _EVICTED, _TERMINATED, _SIZE, _SHADOW = 0, 1, 4, 5, 6, 7
_ABORTED, _SUSPENDED, _RESUMED, _HELD, _RELEASED, _NOT_RECONNECTED = 9, 10, 11, 12, 13, 24
_LOG_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class JobLogSummary:
    """The state of a run by its job event log.

    Attributes:
        cluster: HTCondor's number of the submission, or None when it was never submitted.
        process: The number of its job in the submission.
        state: ``idle``, ``running``, ``terminated``, ``held``, ``removed`` or ``lost`` (it lost its machine).
        begun: The time when it began to run, in seconds since the epoch, or None.
        ended: The time of the last event, in seconds since the epoch, or None.
        code: The exit code, negative for a signal, or None.
        reason: The reason why it was held or removed, or lost its machine.
        hold: HTCondor's hold code and subcode.
        memory_bytes: The most memory that HTCondor has seen it use, in bytes, or None.
        cpu_seconds: The CPU time that it used, in seconds, or None.
    """

    cluster: int | None = None
    process: int = 0
    state: str = "idle"
    begun: float | None = None
    ended: float | None = None
    code: int | None = None
    reason: str = ""
    hold: tuple[int, int] = (0, 0)
    memory_bytes: int | None = None
    cpu_seconds: float | None = None

    @property
    def final(self) -> bool:
        """True when nothing more will happen to the run by itself."""
        return self.state in ("terminated", "held", "removed", "lost")


def read_event_log(path: Path) -> JobLogSummary:
    """Read a job event log; an event that is only half written is left for the next time."""
    try:
        with path.open("rb") as file:
            text = file.read(_LOG_BYTES).decode(errors="replace")
    except OSError:
        return JobLogSummary()
    summary = JobLogSummary()
    events = text.split("\n...\n")
    for event in events[:-1]:
        lines = event.strip("\n").split("\n")
        head = _HEAD.match(lines[0])
        if head is not None:
            summary = _after(summary, head, lines)
    return summary


def _after(summary: JobLogSummary, head: re.Match[str], lines: list[str]) -> JobLogSummary:
    number, when = int(head["number"]), _time(head["date"], head["time"])
    body = "\n".join(line.strip() for line in lines[1:])
    summary = replace(summary, cluster=int(head["cluster"]), process=int(head["process"]))
    if number == _SIZE:
        sizes = [int(size) for size in re.findall(r"^(\d+)\s+-\s+ResidentSetSize", body, re.MULTILINE)]
        seen = max([summary.memory_bytes or 0, *(size * 1024 for size in sizes)])
        return replace(summary, memory_bytes=seen or None)
    if number == _EXECUTING:
        return replace(summary, state="running", begun=when)
    if number == _TERMINATED:
        cpu, memory = _usage(summary, body)
        return replace(summary, state="terminated", ended=when, code=_code(body), cpu_seconds=cpu, memory_bytes=memory)
    if number == _HELD:
        codes = re.search(r"Code (\d+) Subcode (-?\d+)", body)
        hold = (int(codes[1]), int(codes[2])) if codes else (0, 0)
        reason = re.sub(r"\s*Code \d+ Subcode -?\d+\s*", "", body)
        return replace(summary, state="held", ended=when, reason=_joined(reason), hold=hold)
    if number == _RELEASED:
        return replace(summary, state="idle", reason="", hold=(0, 0))
    if number == _ABORTED and summary.state not in ("lost", "terminated", "held"):
        return replace(summary, state="removed", ended=when, reason=_joined(body))
    lost = number in (_EVICTED, _NOT_RECONNECTED) or (number == _SHADOW and summary.begun is not None)
    if lost and summary.state != "terminated":
        return replace(summary, state="lost", ended=when, reason=_joined(f"{head['words']} {body}"))
    return summary


def _joined(text: str) -> str:
    return " ".join(text.split())[:500]


def _code(body: str) -> int | None:
    ended = re.search(r"return value (-?\d+)", body)
    if ended:
        return int(ended[1])
    killed = re.search(r"signal (\d+)", body)
    return -int(killed[1]) if killed else None


def _usage(summary: JobLogSummary, body: str) -> tuple[float | None, int | None]:
    spent = re.search(r"Usr (\d+) ([\d:]+), Sys (\d+) ([\d:]+)\s+-\s+Total Remote Usage", body)
    cpu = None
    if spent:
        cpu = _seconds(spent[1], spent[2]) + _seconds(spent[3], spent[4])
    used = re.search(r"Memory \(MB\)\s*:\s*(\d+)", body)
    memory = max(summary.memory_bytes or 0, int(used[1]) * 2**20 if used else 0) or None
    return cpu, memory


def _seconds(days: str, clock: str) -> float:
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return float(int(days) * 86400 + hours * 3600 + minutes * 60 + seconds)


def _time(date: str, clock: str) -> float:
    """Local time in seconds since the epoch; older versions write no year."""
    now = datetime.datetime.now()
    try:
        if "-" in date:
            moment = datetime.datetime.fromisoformat(f"{date} {clock}")
        else:
            month, day = int(date[:2]), int(date[3:5])
            moment = datetime.datetime.combine(datetime.date(now.year, month, day), datetime.time.fromisoformat(clock))
            if moment > now + datetime.timedelta(days=1):
                moment = moment.replace(year=now.year - 1)
    except ValueError:
        moment = now
    return moment.timestamp()
