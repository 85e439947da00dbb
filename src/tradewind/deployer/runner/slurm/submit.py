"""Hands runs to Slurm: those that ask for the same resources as one job array, and none of them twice."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tradewind.deployer.checkpoints import put_checkpoint
from tradewind.deployer.environment import (
    OUTPUTS,
    check_variables,
    check_workdir,
    is_variable,
    job_environment,
    resolve_secrets,
)
from tradewind.deployer.runner.log_limit import log_words
from tradewind.deployer.runner.resource_limits import memory_of
from tradewind.deployer.runner.run_files import folder_error
from tradewind.deployer.runner.slurm.backlog import SlurmBacklog
from tradewind.deployer.runner.slurm.commands import SlurmCommands, refusal, surely_refused
from tradewind.deployer.runner.slurm.handle import quoted_name
from tradewind.deployer.runner.slurm.load_generator import driving_command
from tradewind.deployer.runner.slurm.options import (
    SlurmSettings,
    command_of,
    container_engine_of,
    cpus_per_node,
    sbatch_options,
)
from tradewind.deployer.runner.slurm.queue import SlurmQueue, comment_of
from tradewind.deployer.runner.slurm.spool import BY_US, Spool, SpoolNote
from tradewind.errors import CapacityError, DeployError, TradewindError, UnreachableError
from tradewind.problem import RunRequest
from tradewind.utils.retries import Backoff

_log = logging.getLogger("tradewind.deployer")

_OURS = re.compile(r"(SLURM|SBATCH|SRUN|PMI|PMIX)_?.*")
_SUBMIT_SECONDS = 60.0
_BACKOFF = Backoff.doubling(1.0, 8.0)


@dataclass
class SlurmSubmitter:
    """Hands runs to Slurm.

    Args:
        spool: The files that controllers and jobs share.
        programs: Slurm's programs.
        queue: The queue of Slurm.
        settings: The settings of the runner.
        runs: The parent of the runs' folders on the nodes, or None where they are the folders of this machine.
    """

    spool: Spool
    programs: SlurmCommands
    queue: SlurmQueue
    settings: SlurmSettings
    runs: Path | None
    backlog: SlurmBacklog = field(init=False)
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.backlog = SlurmBacklog(self.spool, self._hand_over_late, self.settings.full)

    def submit(self, requests: Sequence[RunRequest]) -> dict[str, TradewindError]:
        """Start some runs, unless they were started before; the errors of those that could not be started, by run id.

        Runs that Slurm has no room for wait in the backlog: that is no error.
        """
        errors: dict[str, TradewindError] = {}
        old: dict[str, tuple[tuple[str, ...], list[RunRequest]]] = {}
        groups: dict[tuple[str, tuple[str, ...]], list[RunRequest]] = {}
        with self._writing:
            for request in requests:
                try:
                    note = self.spool.known(request.owner, request.run_id)
                except UnreachableError as error:
                    errors[request.run_id] = error
                    continue
                options = sbatch_options(request, self.settings)
                if note is not None:
                    old.setdefault(str(note["batch"]), (options, []))[1].append(request)
                else:
                    groups.setdefault((request.owner, options), []).append(request)
            size = 1 if self.backlog.any else self.settings.max_array
            pieces = [
                (options, group[first : first + size])
                for (_, options), group in groups.items()
                for first in range(0, len(group), size)
            ]
            fresh = [(self._write(piece, options, errors), options, piece) for options, piece in pieces]
        for name, (options, piece) in old.items():
            about = self.spool.about(name)
            if about is None:
                continue  # its other runs are settled: poll gives the status of this one
            try:
                self._hand_over(name, options, fresh=False)
            except CapacityError as error:
                errors |= self._make_room(about, options, piece, error)
            except TradewindError as error:
                errors |= dict.fromkeys(about["runs"], error)
        for name, options, piece in fresh:
            errors |= self._hand_over_new(name, options, piece)
        return errors

    def _hand_over_new(
        self, name: str, options: Sequence[str], requests: Sequence[RunRequest]
    ) -> dict[str, TradewindError]:
        """Hand over a batch that was just written down; the errors of the runs that Slurm has not taken, by run id."""
        about = self.spool.about(name) if name else None
        if about is None:
            return {}
        if self.backlog.any and len(about["runs"]) == 1:
            self.backlog.put(name)
            return {}
        try:
            self._hand_over(name, options, fresh=True)
        except CapacityError as error:
            return self._make_room(about, options, requests, error)
        except TradewindError as error:
            if not isinstance(error, UnreachableError):
                self.spool.refuse(about)
            return dict.fromkeys(about["runs"], error)
        return {}

    def _make_room(
        self, about: SpoolNote, options: Sequence[str], requests: Sequence[RunRequest], error: CapacityError
    ) -> dict[str, TradewindError]:
        """Hand over as much of a batch as Slurm has room for, and let the rest wait; the errors, by run id.

        Slurm takes an array as a whole or not at all: halves are tried. Runs wait one by one, so that each takes the
        first free place.
        """
        if len(about["runs"]) == 1:
            self.backlog.put(about["name"], error.message, sure=surely_refused(error))
            return {}
        self.spool.refuse(about)
        errors: dict[str, TradewindError] = {}
        left = [request for request in requests if request.run_id in about["runs"]]
        middle = (len(left) + 1) // 2
        for half in (left[:middle], left[middle:]):
            pieces = [[request] for request in half] if self.backlog.any else [half]
            for piece in filter(None, pieces):
                with self._writing:
                    part = self._write(piece, options, errors)
                errors |= self._hand_over_new(part, options, piece)
        return errors

    def _hand_over_late(self, name: str, sure: bool) -> None:
        """Hand over a batch that waited; see `SlurmBacklog`."""
        about = self.spool.about(name)
        if about is None:
            return
        self._hand_over(name, about["options"], fresh=sure)
        job = self.spool.job(name)
        if job and self.spool.claim(name, 0) == BY_US:
            self.queue.cancel(job)  # it was taken back meanwhile

    def _write(self, group: Sequence[RunRequest], options: Sequence[str], errors: dict[str, TradewindError]) -> str:
        """Write down some runs as a batch; the name of the batch, or an empty text when none of them can be run."""
        requests: list[RunRequest] = []
        orders, facts = [], []
        name = quoted_name(group[0].run_id) + (f"+{len(group) - 1}" if len(group) > 1 else "")
        for request in group:
            try:
                index = len(requests)
                order, fact = self._order(request, self.spool.mark(name, index))
            except TradewindError as error:
                errors[request.run_id] = error
            else:
                requests.append(request)
                orders.append(order)
                facts.append(fact)
        if not requests:
            return ""
        try:
            self.spool.create(name, requests, orders, facts, options)
        except TradewindError as error:
            errors |= {request.run_id: error for request in requests}
            return ""
        return name

    def _order(self, request: RunRequest, mark: Path) -> tuple[bytes, SpoolNote]:
        check_workdir(request.workdir)
        settings = self.settings
        folder = request.folder.absolute() if self.runs is None else self.runs / quoted_name(request.run_id)
        make_folder(folder)
        if request.checkpoint is not None:
            try:
                put_checkpoint(request.checkpoint, folder)
            except OSError as error:
                raise folder_error(error, folder) from error
        memory, wall = memory_of(request), request.limits.wall_seconds
        names = [*request.env, *request.secrets, *job_environment(request, folder)]
        names, load = list(dict.fromkeys(names)), request.load
        if load is None:
            words = command_of(request, folder, settings, names, label_of(mark))
        else:
            words = driving_command(request, load, folder, settings, names, label_of(mark))
        order = job_order(
            request,
            folder,
            mark,
            words,
            {
                "inherit": settings.inherit and not self.programs.remote,
                "grace": settings.grace,
                "wall_seconds": wall,
                "memory_bytes": memory,
                "log_bytes": request.limits.log_bytes,
                "slots": cpus_per_node(request),
                "engine": container_engine_of(request, settings),
            },
        )
        note = {
            "folder": str(folder),
            "expires": request.expires,
            "submitted": time.time(),
            "program": request.argv[0],
            "workdir": str(request.workdir.absolute()),
            "wall_seconds": wall,
            "asked": request.limits.asked,
            "memory_bytes": memory,
            "load_cpus": 0 if load is None else load.cpus or cpus_per_node(request),
            "spread": bool(settings.mpi) or request.offer.nodes > 1 or settings.container in ("oci", "pyxis"),
        }
        return order, note

    def _hand_over(self, name: str, options: Sequence[str], *, fresh: bool) -> None:
        """Hand a batch to Slurm, unless that was done; the job is looked for before sbatch is tried again."""
        if self.spool.job(name):
            return
        until = time.monotonic() + self.settings.patience
        with self.spool.locked(name, _SUBMIT_SECONDS) as fd:
            for pause in _BACKOFF:
                try:
                    self._sbatch(name, options, fd, sure=fresh)
                    return
                except UnreachableError as error:
                    if time.monotonic() + pause > until:
                        raise
                    _log.info("%s; trying again in %g s", error, pause)
                    fresh = False
                    time.sleep(pause)

    def _sbatch(self, name: str, options: Sequence[str], fd: int, *, sure: bool) -> None:
        job = self.spool.job(name)
        about = self.spool.about(name)
        if job or about is None:
            return
        if not sure:
            job = self.queue.named(name)
            claims = {self.spool.claim(name, index) for index in range(len(about["runs"]))}
            job = job or next((claim.partition("_")[0] for claim in claims if claim[:1].isdigit()), "")
        waiting = [] if job else self.spool.waiting(about)
        if waiting:
            # The user's options win, but for what makes the run ours.
            words = ["--parsable", *options, *self._identity(name, about, waiting)]
            answer = self.programs.run(
                "sbatch",
                *words,
                str(self.spool.script()),
                str(self.spool.batch(name)),
                timeout=_SUBMIT_SECONDS,
                holding=fd,
            )
            if answer.code:
                raise refusal("sbatch", answer)
            # A site's own wrapper may say more before the id.
            job = answer.stdout.decode(errors="replace").strip().rpartition("\n")[2].partition(";")[0]
            self.queue.stir()
        if job:
            self.spool.keep_job(name, job)

    def _identity(self, name: str, about: SpoolNote, waiting: Sequence[int]) -> list[str]:
        now = time.time()
        # The time for which it has waited here does not count.
        lasts = about.get("lasts", max(0.0, about["expires"] - now))
        comment = comment_of(quoted_name(about["owner"]), now + lasts, lasts, quoted_name(str(self.spool.root)))
        words = [
            f"--job-name={name}",
            f"--comment={comment}",
            "--chdir=/",
            "--input=/dev/null",
            "--output=/dev/null",
            "--error=/dev/null",
            "--no-requeue",
            "--export=ALL",
        ]
        if len(about["runs"]) > 1:
            words.append(f"--array={ranges(waiting)}")
        return words


def job_order(request: RunRequest, folder: Path, mark: Path, words: Sequence[str], facts: Mapping[str, Any]) -> bytes:
    """The NUL-separated fields that a job reads; see ``job.sh``.

    Args:
        request: The run.
        folder: The run's folder, as the nodes see it.
        mark: The file that the run leaves when it has ended.
        words: The command.
        facts: The other fields: ``inherit`` (true when this process's environment is handed on), ``grace``,
            ``wall_seconds``, ``memory_bytes``, ``log_bytes``, ``slots`` and ``engine`` (the program that has to remove
            the run's container, or empty).

    Raises:
        DeployError: A secret cannot be read, or a variable's name or a value cannot be handed over.
    """
    given = {**request.env, **resolve_secrets(request.secrets)}
    check_variables(given)
    given |= job_environment(request, folder)
    inherited = {
        name: value
        for name, value in (os.environ.items() if facts["inherit"] else ())
        if is_variable(name) and not _OURS.fullmatch(name) and name not in given
    }
    memory, wall = facts["memory_bytes"], facts["wall_seconds"]
    fields = [
        str(folder),
        str(request.workdir.absolute()),
        "" if wall is None else str(max(1, round(wall * 100))),
        str(round(facts["grace"] * 100)),
        "" if memory is None else str(memory // 1024),
        log_words(facts["log_bytes"]),
        str(facts["slots"]),
        str(mark),
        facts["engine"],
        label_of(mark),
        str(len(inherited)),
        str(len(inherited) + len(given)),
        *(f"{name}={value}" for name, value in {**inherited, **given}.items()),
        *words,
    ]
    if any("\0" in field for field in fields):
        raise DeployError("a word or a variable of the command has a zero byte in it", retryable=False)
    return b"".join(os.fsencode(field) + b"\0" for field in fields)


def label_of(mark: Path) -> str:
    """The label of a run's containers, by which they are found.

    Args:
        mark: The file that the run leaves when it has ended.
    """
    return hashlib.sha256(str(mark).encode(errors="surrogateescape")).hexdigest()[:16]


def make_folder(folder: Path) -> None:
    """Make the folder of a run.

    Raises:
        DeployError: The folder cannot be made.
    """
    try:
        (folder / OUTPUTS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise folder_error(error, folder) from error


def ranges(indexes: Sequence[int]) -> str:
    """Write indexes as sbatch's ``--array`` takes them: ``0-4,7``."""
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
