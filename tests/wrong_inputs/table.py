"""What a wrong input is, and the words that the cases are written with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

JOB = """\
name: sort
job:
  command: [sh, -c, "exit 0"]
space:
  level: 1..9
  workers: [1, 2]
objective: {minimise: runtime}
constraints: {deadline: 60s}
budget: {trials: 2}
searcher: random
"""
"""A job that is right; each wrong one differs from it in one place."""

TUNE = ("tune", "job.yaml", "--quiet")
RUN = ("run", "job.yaml", "--set", "level=3", "--set", "workers=1")


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that a user may get wrong.

    Attributes:
        id: Its name.
        did: What the user did, in words.
        code: The exit code.
        says: The line on the standard error, without ``tradewind: `` before it; ``…`` stands for any text.
        words: The words after ``tradewind``.
        files: Files in the folder where the command is given; text or bytes.
        env: Environment variables, over those of the test.
        prepare: Name of a function of `preparations` that makes what files alone cannot.
        process: True to give the command in a process of its own.
        slow: True if it takes more than a few seconds.
        notice: A line that is printed before, while the command still works.
    """

    id: str
    did: str
    code: int
    says: str
    words: tuple[str, ...] = TUNE
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    prepare: str = ""
    process: bool = False
    slow: bool = False
    notice: str = ""


def job(old: str = "", new: str = "", *, more: str = "") -> dict[str, str | bytes]:
    """The right job with one place changed, and lines added at its end."""
    assert old in JOB
    return {"job.yaml": JOB.replace(old, new, 1) + more}


def program(script: str, more: str = "") -> dict[str, str | bytes]:
    """The right job with another program for the shell."""
    return job("exit 0", script, more=more)
