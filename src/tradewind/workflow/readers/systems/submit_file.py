"""Parses submit descriptions of HTCondor, as far as they say what a job needs."""

from __future__ import annotations

import math
import os.path
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

_REFERENCE = re.compile(r"\$\((\w[\w.+]*)(?::([^()]*))?\)")
_UNITS = {"": 2**20, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_DEEPEST = 20


@dataclass(frozen=True)
class SubmittedJob:
    """One job as its submit description asks for it.

    Attributes:
        executable: Path of the program; empty where there is none.
        arguments: Words of its command line.
        cores: Cores asked for.
        memory_bytes: Memory asked for; None where it is not said, or is an expression.
        runtime: Seconds as Pegasus expects them; None elsewhere.
        activity: Transformation of Pegasus, or else the program's name.
        inputs: Files that are sent to the job.
        outputs: Files that come back by name.
        jobs: Number of jobs that it queues.
        expressions: Keys whose values are expressions of the machine, which say nothing here.
    """

    executable: str
    arguments: tuple[str, ...]
    cores: int
    memory_bytes: int | None
    runtime: float | None
    activity: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    jobs: int
    expressions: tuple[str, ...]


def parse_submit(text: str, macros: Mapping[str, str], folder: str = "") -> SubmittedJob:
    """Parse a submit description.

    Args:
        text: The description.
        macros: Values of ``$(name)`` that the DAG gives, by their names in small letters.
        folder: Folder that the job is submitted from; its files are relative to it.
    """
    values = dict(macros)
    queued = 0
    for line in joined_lines(text):
        if re.match(r"queue\b", line, re.IGNORECASE):
            number = re.fullmatch(r"queue\s*(\d*)", line, re.IGNORECASE)
            queued += int(number[1] or 1) if number else 1
        elif "=" in line and not line.lower().startswith(("if ", "elif ")):
            key, _, value = line.partition("=")
            name = key.strip().lower()
            if name not in macros:
                values[name] = value.strip()
    return _job(values, folder, max(1, queued))


def joined_lines(text: str) -> list[str]:
    """Lines without comments and blanks around them; one that ends with a backslash goes on in the next."""
    found, before = [], ""
    for raw in text.lstrip("\ufeff").splitlines():
        line = before + raw.strip()
        before = ""
        if line.endswith("\\"):
            before = line[:-1]
        elif line and not line.startswith("#"):
            found.append(line)
    return [*found, before] if before.strip() else found


def _job(values: Mapping[str, str], folder: str, jobs: int) -> SubmittedJob:
    expressions = []

    def value(*names: str) -> str:
        return next((found for name in names if (found := _expanded(values.get(name, ""), values))), "")

    cores = _number(value("request_cpus", "+requestcpus", "+pegasus_cores", "my.requestcpus"))
    if cores is None and value("request_cpus"):
        expressions.append("request_cpus")
    memory = _bytes(value("request_memory", "+requestmemory"))
    if memory is None and value("request_memory"):
        expressions.append("request_memory")
    program = value("executable")
    runtime = _number(value("+pegasus_job_runtime"))
    start = PurePosixPath(folder, value("initialdir", "initial_dir"))
    outputs = [each for each in value("transfer_output_files").split(",") if each.strip()]
    remaps = dict(
        pair.strip().split("=", 1) for pair in value("transfer_output_remaps").strip('"').split(";") if "=" in pair
    )
    activity = value("+pegasus_wf_xformation").strip('"') or PurePosixPath(program).stem
    return SubmittedJob(
        program,
        _words(value("arguments")),
        max(1, math.ceil(cores or 1)),
        memory,
        runtime or None,
        activity,
        _files([each for each in value("transfer_input_files").split(",") if each.strip()], start),
        _files([remaps.get(each.strip(), each) for each in outputs], start),
        jobs,
        tuple(expressions),
    )


def _expanded(text: str, values: Mapping[str, str]) -> str:
    for _ in range(_DEEPEST):
        new = _REFERENCE.sub(lambda found: values.get(found[1].lower(), found[2] or ""), text)
        if new == text:
            break
        text = new
    return text.strip()


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < 2**31 else None


def _bytes(text: str) -> int | None:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", text.strip('"').lower())
    return int(float(found[1]) * _UNITS[found[2]]) or None if found else None


def _words(text: str) -> tuple[str, ...]:
    """Words of ``arguments``: in its new syntax in double quotes, in which single quotes group words."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1].replace('""', '"')
        lexer = shlex.shlex(text, posix=True)
        lexer.whitespace_split, lexer.quotes, lexer.escape, lexer.commenters = True, "'", "", ""
        try:
            return tuple(lexer)
        except ValueError:
            pass
    return tuple(text.replace('\\"', '"').split())


def _files(names: list[str], folder: PurePosixPath) -> tuple[str, ...]:
    found = (each.strip().strip('"') for each in names)
    return tuple(dict.fromkeys(each if "://" in each else os.path.normpath(folder / each) for each in found))
