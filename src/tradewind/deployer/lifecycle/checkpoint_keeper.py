"""Takes copies of a run's checkpoints while it runs, so that another run can go on where it was interrupted."""

from __future__ import annotations

import json
import logging
import math
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from tradewind.deployer.checkpoints import FOLDER, CheckpointLook, CheckpointStore, SavedCheckpoint, copy_folder
from tradewind.deployer.runner.base import FolderCheckpoints, KeepsCheckpoints, Runner
from tradewind.errors import DeployError, TradewindError
from tradewind.problem import CheckpointPlan, Fault, Handle, Run, RunRequest, RunState
from tradewind.utils.atomic_files import write_atomically

_log = logging.getLogger("tradewind.deployer")

_RESUMED_FILE = "resumed.json"
_LOOKS = 4
"""Looks at the job's folder in the time between two of its checkpoints, so that a new one is copied soon."""
_LONGEST_PAUSE = 60.0
_QUIET = 2.0
"""Seconds: a program that is killed while it writes has written within them."""


class CheckpointKeeper:
    """Keeps the checkpoints of one run.

    Args:
        runner: The runner of the job.
        request: The run.
        later: Does in a thread what takes long.
    """

    def __init__(
        self, runner: Runner, request: RunRequest, later: Callable[[Callable[[], None]], Future[None]]
    ) -> None:
        self._runner = runner
        self._note = request.folder / _RESUMED_FILE
        self._here = request.folder / FOLDER
        self._later = later
        plan = request.checkpoint if isinstance(runner, KeepsCheckpoints) else None
        self._plan: CheckpointPlan | None = plan
        self._store = CheckpointStore(plan.folder) if plan is not None else None
        self._resumed = 0.0
        self._next = 0.0
        self._began = math.inf
        self._saved = ""
        self._copied = CheckpointLook()
        self._warned = False
        self._ended = self._removed = False
        self._saving = threading.Lock()
        self._task: Future[None] | None = None

    def check(self) -> None:
        """Make sure, before machines are made, that the checkpoint can be read that a run begins at.

        Raises:
            PrerequisiteError: It belongs to somebody else.
        """
        if self._plan is not None and (latest := self._latest()) is not None:
            latest.check()

    def _latest(self) -> SavedCheckpoint | None:
        """The checkpoint that the run begins at, or that of another trial which is copied for it."""
        assert self._plan is not None
        origin = self._plan.origin
        own = CheckpointStore(self._plan.folder).latest()
        return own if own is not None or origin is None else CheckpointStore(origin).latest()

    def begin(self, run: Run) -> Run:
        """Note, before a run is submitted, how much work the checkpoint has saved that it begins at.

        Args:
            run: Its row.

        Returns:
            Its row with these seconds.

        Raises:
            DeployError: The checkpoint of another trial that it begins at cannot be copied.
        """
        if self._store is not None and not self._note.exists():
            latest = self._store.latest() or self._take_over()
            self._note.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._note, json.dumps({"seconds": latest.seconds if latest is not None else 0.0}))
        return self.resumed(run)

    def _take_over(self) -> SavedCheckpoint | None:
        """Copy the checkpoint of another trial that the first run of this one begins at; None where there is none."""
        assert self._plan is not None and self._store is not None
        origin = None if self._plan.origin is None else CheckpointStore(self._plan.origin).latest()
        if origin is None:
            return None

        def copy(folder: Path) -> float:
            copy_folder(origin.files, folder)
            return origin.seconds

        try:
            self._store.add(copy)
        except OSError as error:
            words = self._words_of(error)
            raise DeployError(f"the checkpoint that it begins at cannot be copied: {words}") from error
        return self._store.latest()

    def _words_of(self, error: OSError) -> str:
        """Say what is wrong, and where: the file that this user may not read, or else the folder of the copies."""
        place = error.filename if isinstance(error, PermissionError) else None
        words = (error.strerror or str(error)).lower()
        return words if self._plan is None else f"{words}: {place or self._plan.folder}"

    def resumed(self, run: Run) -> Run:
        """Give the row of a run that was submitted, maybe by an earlier process, with the seconds that it was saved."""
        if self._store is None or not self._note.exists():
            return run
        self._resumed = float(json.loads(self._note.read_bytes())["seconds"])
        return run.resumed_at(self._resumed)

    def look(self, run: Run) -> None:
        """Copy the checkpoint of a run that is running, in a thread, where it is time to look for a new one."""
        now = self._runner.clock.now()
        self._began = min(self._began, now - run.runtime)
        if self._plan is None or run.handle is None or now < self._next:
            return
        if self._task is None or self._task.done():
            self._next = now + min(_LONGEST_PAUSE, self._plan.every / _LOOKS)
            self._task = self._later(partial(self._save, run.handle, now - run.runtime))

    def _begin_of(self, run: Run) -> float | None:
        """The time at which the program of a run that has ended began; it may have waited in a queue before."""
        return run.started if self._began == math.inf else self._began

    def finish(self, run: Run) -> None:
        """Copy what a run has left at its end, where other trials may begin at it; its files are still there."""
        if self.kept and run.handle is not None and (began := self._begin_of(run)) is not None:
            self._save(run.handle, began, run.runtime)

    def save_last(self, run: Run, *, told: bool) -> None:
        """Copy what a run has saved that has ended and is run again; its files are still there.

        Args:
            run: Its row.
            told: Its program was told to end, and given time to save its work. Otherwise only what this machine sees
                by itself is copied, and only where nothing was written just before the end: a file may be a half one.
        """
        began = self._begin_of(run)
        if self._plan is None or run.handle is None or began is None:
            return
        if told:
            self._save(run.handle, began, run.runtime)
        elif isinstance(self._runner, FolderCheckpoints):
            self._save(run.handle, began, run.runtime, quiet=_QUIET)

    @property
    def kept(self) -> bool:
        """True where the latest checkpoint stays when the trial has succeeded, for others to begin at."""
        return self._plan is not None and self._plan.kept

    def _save(self, handle: Handle, began: float, lasted: float = math.inf, quiet: float = 0.0) -> None:
        """Copy what is new in the checkpoint of a run.

        Args:
            handle: The run.
            began: When it began, by the clock.
            lasted: Seconds until it ended; infinite while it goes on.
            quiet: Seconds before its end in which nothing may have been written.
        """
        runner, store = self._runner, self._store
        assert isinstance(runner, KeepsCheckpoints)
        assert store is not None
        self._saving.acquire()  # a look that is under way when the run ends
        try:
            found = runner.look_at_checkpoint(handle)
            if not found.fingerprint or found.fingerprint == self._saved or found.written <= began:
                return  # nothing was written since the run began, or since the last copy
            if quiet and found.written > began + lasted - quiet:
                return

            def copy(folder: Path) -> float | None:
                self._copied = runner.copy_checkpoint(handle, folder)
                return None if self._ended else self._resumed + min(self._copied.written - began, lasted)

            store.add(copy)
            self._saved = self._copied.fingerprint
        except (TradewindError, OSError) as error:
            # The machine may have been taken a moment ago; the copy before is still there.
            level = logging.INFO if self._warned or self._ended else logging.WARNING
            self._warned = True
            why = self._words_of(error) if isinstance(error, OSError) else str(error)
            _log.log(level, "run %s: its checkpoint is not copied: %s", handle.run_id, why)
        finally:
            self._saving.release()
            if self._removed:
                store.remove()

    def needed(self, state: RunState, fault: Fault | None, *, unwanted: bool) -> bool:
        """True where a run or another trial may go on from the checkpoint of a run that ends; see `end`."""
        own = state is RunState.FAILED and fault in (Fault.JOB, Fault.ARCHITECTURE)
        over = state is RunState.TIMED_OUT or (state is RunState.DONE and not self.kept)
        return self._plan is not None and not (own or over or unwanted)

    def end(self, state: RunState, fault: Fault | None, *, unwanted: bool) -> None:
        """Take no further copies; remove them all where the run has ended for good.

        Args:
            state: How it ended.
            fault: Whose fault that was.
            unwanted: True for one that was given up: its trial is not run again.
        """
        self._ended = True
        if self._store is not None and not self.needed(state, fault, unwanted=unwanted):
            self._removed = True
            self._store.remove()
        if self._store is not None:  # what another run begins at is in the store
            shutil.rmtree(self._here, ignore_errors=True)
