"""Parses submit descriptions of HTCondor, as far as they say what a job needs, and quotes what is written to them."""

from __future__ import annotations

import math
import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from tradewind.workflow.readers.command_words import ENV, without_env
from tradewind.workflow.readers.profiles import exact_memory

_REFERENCE = re.compile(r"\$\((\w[\w.+]*)(?::([^()]*))?\)")
_UNITS = {"": 2**20, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_DEEPEST = 20

_DOLLAR = re.compile(r"\$\(dollar\)", re.IGNORECASE)
_MARK = "\ue000"
"""Stands for the sign of ``$(DOLLAR)`` until all macros are expanded."""

_MACRO = re.compile(r"\$(?=\w*\()")
"""The sign that begins a macro or a function of macros."""


@dataclass(frozen=True)
class SubmittedJob:
    """One job as its submit description asks for it.

    Attributes:
        executable: Path of the program; empty where there is none.
        arguments: Words of its command line.
        cores: Cores asked for.
        memory_bytes: Memory asked for; None where it is not said, or is an expression.
        gpus: GPUs asked for.
        disk_bytes: Disk asked for; None likewise.
        priority: Its priority among the jobs of its user; that before a plan was made where Tradewind has written it.
        runtime: Seconds as Pegasus expects them; None elsewhere.
        limit: Seconds after which HTCondor ends it; None where it is not said, or is an expression.
        activity: Transformation of Pegasus, or else the program's name.
        inputs: Files that are sent to the job.
        outputs: Files that come back by name.
        jobs: Number of jobs that it queues.
        expressions: Keys whose values are expressions of the machine, which say nothing here.
        sizes: Bytes of its files, where Tradewind has written it.
        planned: True where it is written for a plan of Tradewind.
        task: Name of the task, where Tradewind has written it and the node cannot have this name.
    """

    executable: str
    arguments: tuple[str, ...]
    cores: int
    memory_bytes: int | None
    gpus: int
    disk_bytes: int | None
    priority: int | None
    runtime: float | None
    limit: float | None
    activity: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    jobs: int
    expressions: tuple[str, ...]
    sizes: Mapping[str, int]
    task: str
    planned: bool


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

    def requested(name: str, *more: str) -> str:
        # HTCondor takes the name of the attribute in the place of the command's.
        return value(f"request_{name}", f"request{name}", f"+request{name}", f"my.request{name}", *more)

    cores = _number(requested("cpus", "+pegasus_cores"))
    memory = exact_memory(_bytes(requested("memory")), value("+tradewind_memory_bytes"))
    disk = exact_memory(_bytes(requested("disk"), "k"), value("+tradewind_disk_bytes"))
    gpus = _number(requested("gpus"))
    for name, figure in (("cpus", cores), ("memory", memory), ("disk", disk), ("gpus", gpus)):
        if figure is None and requested(name):
            expressions.append(f"request_{name}")
    program, words = value("executable"), _words(value("arguments"))
    if program == ENV and value("transfer_executable").lower() == "false":
        program, *rest = without_env([program, *words])
        words = tuple(rest)
    runtime = _number(value("+pegasus_job_runtime"))
    # An execution is a part of the job's time, so its limit says more of the task's.
    limit = _number(value("allowed_execute_duration", "allowed_job_duration"))
    start = PurePosixPath(folder, value("initialdir", "initial_dir"))
    outputs = [each for each in value("transfer_output_files").split(",") if each.strip()]
    remaps = dict(
        pair.strip().split("=", 1) for pair in value("transfer_output_remaps").strip('"').split(";") if "=" in pair
    )
    activity = _string(value("+pegasus_wf_xformation")) or PurePosixPath(program).stem
    inputs = _files([each for each in value("transfer_input_files").split(",") if each.strip()], start)
    written = _files([remaps.get(each.strip(), each) for each in outputs], start)
    return SubmittedJob(
        program,
        words,
        max(1, math.ceil(cores or 1)),
        memory,
        math.ceil(gpus or 0),
        disk,
        _whole(value("+tradewind_priority", "priority", "prio", "+jobprio")),
        runtime or None,
        limit or None,
        activity,
        inputs,
        written,
        jobs,
        tuple(expressions),
        {**_sizes(written, value("+tradewind_output_bytes")), **_sizes(inputs, value("+tradewind_input_bytes"))},
        _string(value("+tradewind_task")),
        bool(value("+tradewind_priority")),
    )


def _sizes(names: Sequence[str], text: str) -> dict[str, int]:
    """Sizes of files, in their order; empty where one is not known."""
    sizes = text.strip('"').split(",")
    if len(sizes) != len(names):
        return {}
    return {name: int(size) for name, size in zip(names, sizes, strict=True) if size.isdecimal()}


def _expanded(text: str, values: Mapping[str, str]) -> str:
    for _ in range(_DEEPEST):
        new = _DOLLAR.sub(_MARK, text)
        new = _REFERENCE.sub(lambda found: values.get(found[1].lower(), found[2] or ""), new)
        if new == text:
            break
        text = new
    return text.replace(_MARK, "$").strip()


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < 2**31 else None


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[+-]?\d{1,9}", text) else None


def _bytes(text: str, unit: str = "") -> int | None:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", text.strip('"').lower())
    return int(float(found[1]) * _UNITS[found[2] or unit]) or None if found else None


def _words(text: str) -> tuple[str, ...]:
    """Words of ``arguments``: in its new syntax in double quotes, in which single quotes group words."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1].replace('""', '"')
        words = _grouped(text)
        if words is not None:
            return words
    return tuple(text.replace('\\"', '"').split())


def _grouped(text: str) -> tuple[str, ...] | None:
    """Words of the new syntax, in which ``''`` within single quotes is one of them; None if they are not closed."""
    parts = re.findall(r"'((?:[^']|'')*)'(?!')|(\s+)|([^\s']+)|(')", text)
    words: list[str] = []
    word: str | None = None
    for quoted, blank, plain, odd in parts:
        if odd:
            return None
        if blank:
            words += [] if word is None else [word]
            word = None
        else:
            word = (word or "") + (plain or quoted.replace("''", "'"))
    return tuple(words if word is None else [*words, word])


def quote_arguments(words: Sequence[str]) -> str:
    """Write words as the value of ``arguments``, in its new syntax.

    Args:
        words: The words, without line breaks and without ``$$(``, which nothing can stop HTCondor from replacing.
    """
    quoted = [word if re.fullmatch(r"[^\s']+", word) else "'" + word.replace("'", "''") + "'" for word in words]
    return '"' + quote_value(" ".join(quoted).replace('"', '""')) + '"'


def quote_value(text: str) -> str:
    """Write a text so that no macro is expanded in it."""
    return _MACRO.sub("$(DOLLAR)", text)


def quote_string(text: str) -> str:
    """Write a text as a string of a ClassAd."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + quote_value(escaped) + '"'


def _string(text: str) -> str:
    """The text of a ClassAd's string, without its quotes."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1]
    return re.sub(r'\\(["\\])', r"\1", text)


def _files(names: list[str], folder: PurePosixPath) -> tuple[str, ...]:
    found = (each.strip().strip('"') for each in names)
    return tuple(dict.fromkeys(each if "://" in each else os.path.normpath(folder / each) for each in found if each))
