"""Checks and names that the writers of workflow formats share."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tradewind.errors import WorkflowError
from tradewind.utils.units import count
from tradewind.workflow.files import Plan
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.command_words import ENV
from tradewind.workflow.readers.file_edges import implied_edges

_LONGEST = 100
_MIB = 1 << 20


@dataclass(frozen=True)
class WrittenWorkflow:
    """Text of a workflow in another format.

    Attributes:
        text: The text of the file itself.
        others: Texts of the files that belong to it, by their path relative to its folder.
        notes: Things that the user has to know or to do.
    """

    text: str
    others: Mapping[str, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkflowSource:
    """A workflow to be written, with the plan for it where there is one.

    Attributes:
        flow: The workflow.
        folder: Folder of the files that come from outside, and of programs with relative paths; None if not known.
        plan: The plan; None to leave open which machine runs which task.
    """

    flow: Workflow
    folder: Path | None = None
    plan: Plan | None = None

    def machines(self) -> list[str]:
        """The name of each task's machine; empty without a plan."""
        if self.plan is None:
            return []
        vms = self.plan.platform.vms
        return [vms[int(vm)].name for vm in self.plan.schedule.vm]

    def priorities(self) -> list[int]:
        """A number for each task that is the higher the earlier the plan begins it; empty without a plan."""
        if self.plan is None:
            return []
        found = [0] * len(self.flow)
        for place, task in enumerate(self.plan.schedule.sequence(self.flow)):
            found[int(task)] = len(self.flow) - place
        return found

    def described(self) -> str:
        """The workflow and its plan in one line of words."""
        said = f"{self.flow.name}, {count(len(self.flow), 'task')}"
        if self.plan is not None:
            used = len(set(self.machines()))
            said += f", planned by {self.plan.planner} on {count(used, 'machine')}: {self.plan.schedule.makespan:.1f} s"
        return " ".join(said.split())


def safe_names(names: Iterable[str], reserved: Iterable[str] = ()) -> dict[str, str]:
    """Give each of some names one of letters, digits, ``_`` and ``-``; no two of them differ in capitals only.

    Args:
        names: The names, which stay as they are where they can.
        reserved: Words that are no names, in small letters.
    """
    found: dict[str, str] = {}
    taken = set(reserved)
    for name in dict.fromkeys(names):
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:_LONGEST] or "_"
        chosen, number = plain, 1
        while chosen.lower() in taken:
            number += 1
            chosen = f"{plain}_{number}"
        taken.add(chosen.lower())
        found[name] = chosen
    return found


def check_file_names(flow: Workflow, system: str, wrong: Callable[[str], str]) -> None:
    """Check that files can be named in another system.

    Args:
        flow: The workflow.
        system: The name of the system.
        wrong: Finds what the system cannot take in a name, in words; empty where it can.

    Raises:
        WorkflowError: It cannot take one, or a name is no path within the folder of a run.
    """
    seen: set[str] = set()
    for task in flow.tasks:
        for name in (*task.inputs, *task.outputs):
            if name in seen:
                continue
            seen.add(name)
            why = _no_path(name) or wrong(name)
            if why:
                hint = "give it another name, in the command too"
                raise WorkflowError(f"task {task.id!r}: {system} cannot take file {name!r}: {why}", hint=hint)


def _no_path(name: str) -> str:
    path = PurePosixPath(name)
    if "://" in name:
        return "it is a URL"
    if path.is_absolute() or ".." in path.parts or not path.parts:
        return "it is no path in the folder of the run"
    if os.path.normpath(name) != name:
        return f"its shortest form is {os.path.normpath(name)!r}"
    return "it has a control character" if has_control(name) else ""


def has_control(text: str) -> bool:
    """True for a text with a line break, a tab or another control character."""
    return re.search(r"[\x00-\x1f\x7f\u2028\u2029\x85]", text) is not None


def check_commands(flow: Workflow, system: str, wrong: Callable[[str], str]) -> None:
    """Check that the words of all commands can be written for another system; as `check_file_names`.

    Raises:
        WorkflowError: A word cannot.
    """
    for task in flow.tasks:
        for word in task.command:
            why = "a line break or another control character" if has_control(word) else wrong(word)
            if why:
                words = f"the command of task {task.id!r} has {why} in {shown(word)}, which {system} cannot take"
                raise WorkflowError(words, hint="put the command into a script, and let the task run that")


def shown(word: str) -> str:
    """A word for a message, on one line and not too long."""
    return repr(word if len(word) <= 60 else word[:57] + "...")


@dataclass(frozen=True)
class Program:
    """A program with the words that follow it.

    Attributes:
        path: Path of the program.
        words: Words after it.
        sent: True where the program is sent to the machine, False where the machine has it.
    """

    path: str
    words: tuple[str, ...]
    sent: bool = False


def program_of(task: Task, words: Sequence[str], folder: Path | None, out: Path) -> Program:
    """Find out how another system starts the command of a task.

    A program without a path is looked for on the machine, by ``env``. One with an absolute path is there. One with a
    relative path is a file of the workflow that the task reads, or lies in the folder of the workflow and is sent.

    Args:
        task: The task.
        words: The words of its command.
        folder: The folder of the workflow.
        out: The folder that is written to; programs in it keep their relative path.

    Raises:
        WorkflowError: A program with a relative path is in neither place.
    """
    name = words[0]
    if name.startswith("/"):
        return Program(name, tuple(words[1:]))
    if "/" not in name or os.path.normpath(name) in task.inputs:
        if name.startswith("-") or "=" in name:
            raise WorkflowError(f"task {task.id!r}: {name!r} is no program that env can start", hint="give its path")
        return Program(ENV, tuple(words))
    if folder is None or not (folder / name).is_file():
        where = "" if folder is None else f" in {folder}"
        hint = "give its absolute path, or list it among the inputs of the task"
        raise WorkflowError(f"task {task.id!r}: its program {name!r} is no input of it, and no file{where}", hint=hint)
    if folder.absolute() == out.absolute():
        return Program(name, tuple(words[1:]), sent=True)
    return Program(str(folder.absolute() / os.path.normpath(name)), tuple(words[1:]), sent=True)


def mebibytes(size: int) -> int:
    """Memory or disk in whole MiB, rounded up."""
    return -(-size // _MIB)


def renamed_note(names: Mapping[str, str], what: str) -> tuple[str, ...]:
    """Say which names have changed, if any."""
    changed = [f"{name!r} is {chosen}" for name, chosen in names.items() if name != chosen]
    if not changed:
        return ()
    more = f" and {len(changed) - 3:,} more" if len(changed) > 3 else ""
    return (f"{what} are named by letters, digits, _ and - there: {', '.join(changed[:3])}{more}",)


def outside_files(flow: Workflow) -> list[str]:
    """The files that tasks read and no task before them writes, each once."""
    return list(dict.fromkeys(name for names in flow.from_outside for name in names))


def implied_note(flow: Workflow) -> tuple[str, ...]:
    """Say that files imply edges which the workflow does not have, if so."""
    if not (implied := implied_edges(flow, some=True)):
        return ()
    (parent, child), name = next(iter(implied.items()))
    first = f"{flow.tasks[child].id!r} reads {name!r} of {flow.tasks[parent].id!r}"
    return (f"files imply edges that are not written, the first is that {first}: read it with --declared-edges",)
