"""The folder of a run, in which its tasks work and its records are kept."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from tradewind.deployer.runner.warden.jobs import FAR_SOURCES
from tradewind.errors import DeployError, WorkflowError
from tradewind.utils.atomic_files import write_atomically
from tradewind.utils.units import count, listed
from tradewind.workflow.execution.journal import attempt_key
from tradewind.workflow.graph import Task, Workflow

_NAME = 120
"""Characters of a folder's name; a longer task id is cut and gets a digest."""

_CLEARED = ("files", "tasks", "machines", "pilots")
"""Folders of a run that a new one begins without."""


@dataclass(frozen=True)
class WorkflowRunFolder:
    """The folder of a run, on a file system that all its machines see.

    ``files/`` has the inputs and outputs of the tasks, ``tasks/ID/N/`` stdout, stderr and the end of attempt N,
    ``machines/`` what belongs to the machines, ``journal.jsonl`` what happened, ``results.json`` the times.

    Attributes:
        path: The folder, absolute.
    """

    path: Path

    @property
    def files(self) -> Path:
        """Folder in which tasks find their inputs and leave their outputs."""
        return self.path / "files"

    @property
    def journal(self) -> Path:
        """File of the journal."""
        return self.path / "journal.jsonl"

    @property
    def store_note(self) -> Path:
        """File that says in which store the run is; there is none where the journal is in the folder."""
        return self.path / "store.json"

    @property
    def results(self) -> Path:
        """File of the planned and actual times."""
        return self.path / "results.json"

    @property
    def rows(self) -> Path:
        """Folder of the rows of its machines, where nobody else keeps them."""
        return self.path / "machines" / ".rows"

    @property
    def programs(self) -> Path:
        """Folder of the programs that run on the machines."""
        return self.path / "pilots"

    def attempt(self, task: str, attempt: int) -> str:
        """The folder of an attempt, below the run's."""
        return f"tasks/{folder_name(task)}/{attempt}"

    def end(self, task: str, attempt: int) -> dict[str, Any] | None:
        """Read the end of an attempt that its machine has left, or None."""
        try:
            text = (self.path / self.attempt(task, attempt) / "end.json").read_text(encoding="utf-8")
            found = json.loads(text)
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and found.get("outcome") in ("done", "failed") else None

    def pilot(self, vm: str, pilot: int) -> Path:
        """The folder of a machine's pilot."""
        return self.path / "machines" / folder_name(vm) / str(pilot)

    def make(self) -> list[Path]:
        """Make the folder itself.

        Returns:
            The folders that were not there before, the innermost first.

        Raises:
            WorkflowError: It cannot be made.
        """
        made = [each for each in (self.path, *self.path.parents) if not each.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            return made
        except OSError as error:
            hint = "--folder names one"
            raise WorkflowError(f"cannot make the folder {self.path}: {error.strerror}", hint=hint) from None

    def prepare(self) -> str:
        """Make what is missing of it, and return the secret that its machines know their controller by.

        Raises:
            DeployError: The folder cannot be made.
        """
        try:
            for place in (self.files, self.path / "tasks", self.path / "machines"):
                place.mkdir(parents=True, exist_ok=True)
            secret = self.path / "secret"
            if not secret.exists():
                write_atomically(secret, secrets.token_hex(32), mode=0o600)
            return secret.read_text(encoding="utf-8")
        except OSError as error:
            raise _refused(self.path, error) from error

    def install(self) -> None:
        """Put the programs that run on the machines into it, as they are now: it may have those of another version.

        Raises:
            DeployError: They cannot be written.
        """
        self._install(self.programs)

    def equip(self, pilot: Path, secret: str) -> Path:
        """Make the working folder of a pilot that does not see the run's: its programs, and the secret of the run.

        Args:
            pilot: The pilot's folder.
            secret: Secret of the run.

        Returns:
            The working folder.

        Raises:
            DeployError: It cannot be written.
        """
        place = pilot / "work"
        self._install(place, "machines/courier.py")
        write_atomically(place / "secret", secret, mode=0o600)
        return place

    def _install(self, place: Path, *more: str) -> None:
        room = Path(__file__).parents[2]
        own = ("workflow/execution/attempt.py", *(f"deployer/runner/{name}" for name in FAR_SOURCES))
        files = {place / "tradewind" / name: room / name for name in own}
        files |= {place / Path(name).name: Path(__file__).parent / name for name in ("agent.py", *more)}
        try:
            for target, source in files.items():
                target.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(target, source.read_bytes())
        except OSError as error:
            raise _refused(place, error) from error

    def clear(self) -> None:
        """Remove all that an earlier run has left in it, but not what else lies there.

        Raises:
            DeployError: Something cannot be removed.
        """
        try:
            for name in _CLEARED:
                if (self.path / name).is_dir():
                    shutil.rmtree(self.path / name)
            for file in (self.path / "secret", self.results):
                file.unlink(missing_ok=True)
        except OSError as error:
            raise _refused(self.path, error) from error

    def require(self, flow: Workflow, source: Path, *, only: Collection[int], anew: bool = False) -> dict[Path, Path]:
        """Check that the files that come from outside are there.

        Args:
            flow: The workflow.
            source: The folder that they are in.
            only: The tasks whose inputs are wanted.
            anew: True where files in the run's folder do not count, as it is to be cleared.

        Returns:
            The files that are not in the run's folder yet, each with its place there.

        Raises:
            WorkflowError: A file is not there, or would be cleared before it could be copied.
        """
        return dict(self._wanted(flow, source, only, anew=anew))

    def _wanted(
        self, flow: Workflow, source: Path, only: Collection[int], *, anew: bool = False
    ) -> list[tuple[Path, Path]]:
        """As `require`; a file that two names stand for is there twice."""
        wanted: list[tuple[Path, Path]] = []
        missing = []
        if anew and any(source.resolve().is_relative_to((self.path / name).resolve()) for name in _CLEARED):
            raise WorkflowError(f"the inputs are in {source}, which --fresh removes", hint="copy them elsewhere before")
        for name, reader in external_inputs(flow, only).items():
            target, origin, absolute = self.files / name, source / name, name.startswith("/")
            if target.exists() and (absolute or not anew):
                continue
            if not (absolute or origin.exists()) and name in flow.locations:
                origin = Path(flow.locations[name])
            if absolute or not origin.exists():
                if reader is not None:
                    missing.append((origin, name, reader))
            else:
                wanted.append((origin, target))
        if missing:
            (first, name, reader), more = missing[0], f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            what = f"file {first}{more}" if source.is_dir() else f"folder {source} with {first.name!r}{more}"
            before = " before it" if name in flow.producers else ""
            raise WorkflowError(
                f"there is no {what}, which task {reader!r} reads and no task writes{before}",
                hint="name the folder of the inputs with --inputs" + _later(flow, name, reader),
            )
        return wanted

    def stage(self, flow: Workflow, source: Path, *, only: Collection[int]) -> None:
        """Copy the files that come from outside into it, unless they are there.

        Args:
            flow: The workflow.
            source: The folder that they are in.
            only: The tasks whose inputs are wanted.

        Raises:
            WorkflowError: A file is not there, or cannot be copied.
        """
        for origin, target in self._wanted(flow, source, only):
            try:
                _copy(origin, target)
            except OSError as error:
                raise _refused(target, error) from error

    def lacking(self, flow: Workflow, done: Collection[int]) -> set[int]:
        """The finished tasks that have to be run again, because an output that is still needed is not there.

        An output is needed when nobody reads it, or when a task reads it that has not finished, or has to run again.

        Args:
            flow: The workflow.
            done: The tasks that have finished.
        """
        again: set[int] = set()
        there: dict[str, bool] = {}
        for task in map(int, flow.order[::-1]):
            if task not in done:
                continue
            for name in flow.tasks[task].outputs:
                if name not in there:
                    there[name] = not _within(name) or (self.files / name).exists()
                readers = [child for child in flow.children[task] if name in flow.tasks[child].inputs]
                if not there[name] and (not readers or any(r not in done or r in again for r in readers)):
                    again.add(task)
        return again


def folder_name(name: str) -> str:
    """Turn a task id or machine name into the name of a folder."""
    text = quote(name, safe=" +,=@")
    if text in (".", ".."):
        text = text.replace(".", "%2E")
    if len(text) <= _NAME:
        return text
    return f"{text[:_NAME]}~{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def external_inputs(flow: Workflow, only: Iterable[int]) -> dict[str, str | None]:
    """The files that tasks with a command read and no task before writes, each with the first task that needs it.

    None stands for the task where all that read a file can do without it.
    """
    found: dict[str, str | None] = {}
    for place in only:
        task = flow.tasks[place]
        if task.command:
            for name in flow.from_outside[place]:
                found[name] = found.get(name) or (None if name in task.optional else task.id)
    return found


def _later(flow: Workflow, name: str, reader: str) -> str:
    """Advise about a file that is not there when a task reads it."""
    makers = [flow.tasks[place].id for place in flow.producers.get(name, ())]
    others = [maker for maker in makers if maker != reader]
    if others:
        return f", or let {reader!r} wait for {others[0]!r}, which writes it"
    return f", or leave it out of the inputs of {reader!r} if that makes it" if makers else ""


def check_commands(flow: Workflow) -> None:
    """Check that each task has a command.

    Raises:
        WorkflowError: A task has none.
    """
    if bare := [task.id for task in flow.tasks if not task.command]:
        raise WorkflowError(
            f"no command for {len(bare)} of {count(len(flow), 'task')}, the first is {bare[0]!r}",
            hint="--synthetic lets them take their time and do nothing",
        )


def check_subworkflows(flow: Workflow) -> None:
    """Check that no task stands for a workflow that was not opened.

    Raises:
        WorkflowError: One does.
    """
    closed = [f"{task.id!r} ({task.subworkflow})" for task in flow.tasks if task.subworkflow]
    if closed:
        what = "are workflows of their own" if len(closed) > 1 else "is a workflow of its own"
        files = "files were" if len(closed) > 1 else "file was"
        raise WorkflowError(
            f"{listed(closed)} {what}, whose {files} not there to be opened, and cannot be run",
            hint="bring the file to the workflow that names it, and plan again; --no-commands plays the plan as it is",
        )


def check_names(flow: Workflow) -> None:
    """Check that no task leaves the run's folder by the names of its files.

    Raises:
        WorkflowError: A task does.
    """
    for task in flow.tasks:
        if task.command:
            for name in task.outputs:
                if name.startswith("/"):
                    raise WorkflowError(
                        f"task {task.id!r} writes {name}, which is not in the folder of the run",
                        hint="name outputs by relative paths",
                    )
            for name in (*task.inputs, *task.outputs):
                parts = PurePosixPath(name).parts
                if ".." in parts or not parts:
                    raise WorkflowError(f"task {task.id!r} has a file {name!r}", hint="leave out .. and .")


def _within(name: str) -> bool:
    """True for the name of a file in the folder of the run; tasks that only sleep may have others, of elsewhere."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def written_files(task: Task) -> list[str]:
    """Names of the files that a task writes in the folder of the run.

    A task that only sleeps makes empty files, and must not put one in the place of something outside the folder.
    """
    return [name for name in task.outputs if _within(name)]


def start_order(
    task: Task,
    attempt: int,
    folder: WorkflowRunFolder,
    *,
    isolated: bool,
    seconds: float,
    common: Collection[str] = (),
    apart: bool = False,
    gpus: bool = False,
    log_bytes: int | None = None,
) -> dict[str, Any]:
    """Make the order by which a machine starts a task.

    Args:
        task: The task.
        attempt: Number of the attempt at the task, from 1.
        folder: The run's folder.
        isolated: True gives it a working folder of its own.
        seconds: Seconds that it takes, if it has no command.
        common: Files that several tasks write, which are not removed before this one begins.
        apart: True where its machine does not see the run's folder, and has one of its own.
        gpus: True where GPUs are given to tasks: this one is shown as many as it uses, and no others.
        log_bytes: Bytes that are kept of stdout and of stderr, each; None for all.
    """
    own = set(task.inputs)
    written = written_files(task)
    outputs = [name for name in written if name not in own or not task.command]
    return {
        "op": "start",
        "key": attempt_key(task.id, attempt),
        "folder": folder.attempt(task.id, attempt),
        "work": "" if apart else str(folder.files),
        "argv": list(task.command) or None,
        "seconds": seconds,
        "isolated": isolated,
        "inputs": list(task.inputs),
        "outputs": outputs,
        "updates": [name for name in written if name not in outputs],
        "clears": [name for name in outputs if name not in common],
        "gpus": task.gpus if gpus else None,
        "log_bytes": log_bytes,
        "env": {
            "TRADEWIND_TASK": task.id,
            "TRADEWIND_ACTIVITY": task.activity,
            "TRADEWIND_ATTEMPT": str(attempt),
            "TRADEWIND_CORES": str(task.cores),
            "TRADEWIND_FILES": str(folder.files),
        },
    }


def _copy(origin: Path, target: Path) -> None:
    """Copy a file or a folder whole, or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    if origin.is_dir():
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(origin, part, symlinks=True)
    else:
        shutil.copy2(origin, part)
    part.replace(target)


def _refused(path: Path, error: OSError) -> DeployError:
    return DeployError(
        f"cannot use {error.filename or path}: {error.strerror}", hint="name a folder with --folder", retryable=False
    )
