"""The folder of a run that is exchanged with HTCondor: the files that go there, and those that come back."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tradewind.deployer.bundle import pack, unpack
from tradewind.deployer.checkpoints import put_checkpoint
from tradewind.deployer.environment import METRICS, OUTPUTS, check_workdir, resolve_secrets
from tradewind.deployer.runner.htcondor import checkpoints
from tradewind.deployer.runner.htcondor.checkpoints import NO_CHECKPOINTS
from tradewind.deployer.runner.htcondor.settings import HtCondorSettings
from tradewind.deployer.runner.htcondor.status import HtCondorData, result_of
from tradewind.deployer.runner.htcondor.submit_description import (
    CHECKPOINT_TAR,
    FOLDER,
    INPUTS_TAR,
    LOG,
    PACKED,
    RESULT,
    SCRIPT,
    SECRETS,
    WORK_TAR,
    script,
    secrets_script,
    shares_folders,
)
from tradewind.deployer.runner.log_limit import shorten_log
from tradewind.deployer.runner.run_files import folder_error, read_document, replace_document
from tradewind.deployer.staging import INPUTS, stage_out
from tradewind.errors import DeployError
from tradewind.problem import Fault, RunRequest, RunState
from tradewind.utils.units import parse_memory

_ORDER, _CLAIM, _CANCEL, _WAITS, _UNSENT = "order.json", "claim.json", "cancel", "waits.sub", "unsent.json"


class ExchangeFolder:
    """Writes, reads and removes the files of a run that this machine and HTCondor exchange.

    Args:
        folder: The run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = folder / FOLDER
        self.log = self.place / LOG
        self.result = self.place / RESULT

    @property
    def prepared(self) -> bool:
        """True when a process has prepared or submitted the run."""
        return bool(read_document(self.place / _ORDER) or read_document(self.place / _CLAIM))

    def data(self) -> HtCondorData:
        """The data of the run's handle, read from the files here; with the job, once there is one."""
        known = {**(read_document(self.place / _ORDER) or {}), **(read_document(self.place / _CLAIM) or {})}
        return replace(HtCondorData.from_json(known), folder=str(self.folder))

    def prepare(self, request: RunRequest, settings: HtCondorSettings, cache: Path) -> None:
        """Write all files that the job needs.

        Args:
            request: The run.
            settings: The settings of the runner.
            cache: The folder in which archives of working folders are kept.

        Raises:
            DeployError: Something is missing or cannot be written.
        """
        if request.offer.nodes > 1:
            raise DeployError(
                f"htcondor runs a job on one machine, and the offer has {request.offer.nodes}", retryable=False
            )
        check_workdir(request.workdir)
        shared = shares_folders(request, settings)
        if request.checkpoint is not None and request.image is not None:
            hint = "leave deploy.checkpoint out, or run the program without an image"
            raise DeployError(f"htcondor keeps no checkpoints here: {NO_CHECKPOINTS}", hint=hint, retryable=False)
        text, secrets = script(request, settings), secrets_script(resolve_secrets(request.secrets))
        limit = parse_memory(settings.sent_bytes)
        try:
            self.place.mkdir(parents=True, exist_ok=True)
            (self.folder / OUTPUTS).mkdir(exist_ok=True)
            (self.place / SCRIPT).unlink(missing_ok=True)
            (self.place / SCRIPT).write_text(text, encoding="utf-8")
            if request.checkpoint is not None and shared:
                put_checkpoint(request.checkpoint, self.folder)
            elif request.checkpoint is not None:
                checkpoints.put_checkpoint(request.checkpoint, self.place / CHECKPOINT_TAR)
            if not shared:
                _link(pack(request.workdir, cache, limit_bytes=limit).path, self.place / WORK_TAR)
                if (self.folder / INPUTS).is_dir():
                    _link(pack(self.folder / INPUTS, cache, limit_bytes=limit).path, self.place / INPUTS_TAR)
            order = HtCondorData(
                owner=request.owner,
                expires=request.expires,
                created=time.time(),
                price_per_hour=request.offer.hourly,
                program=request.argv[0],
                wall=request.limits.wall_seconds,
            )
            replace_document(self.place / _ORDER, order.to_json())
            if secrets:
                with os.fdopen(
                    os.open(self.place / SECRETS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
                ) as file:
                    file.write(secrets)
        except OSError as error:
            self.drop_secrets()
            raise folder_error(error, self.folder) from error

    def claim(self, cluster: int, process: int, submitted: float) -> None:
        """Write down the job of the run.

        Args:
            cluster: HTCondor's number of the submission.
            process: The number of the job in it.
            submitted: The time when it was submitted, in seconds since the epoch.
        """
        with contextlib.suppress(OSError):  # its tags and its log say the same
            replace_document(self.place / _CLAIM, {"cluster": cluster, "process": process, "submitted": submitted})
            (self.place / _WAITS).unlink(missing_ok=True)

    @property
    def waits(self) -> bool:
        """True while the run waits to be submitted."""
        return (self.place / _WAITS).exists() and read_document(self.place / _CLAIM) is None

    @property
    def description(self) -> str:
        """The submit description of a run that waits."""
        return (self.place / _WAITS).read_text(encoding="utf-8")

    def wait(self, description: str) -> None:
        """Write down that the run waits to be submitted, with its submit description.

        Raises:
            DeployError: The file cannot be written.
        """
        try:
            (self.place / _UNSENT).unlink(missing_ok=True)
            part = self.place / f"{_WAITS}.part"
            part.write_text(description, encoding="utf-8")
            part.replace(self.place / _WAITS)
        except OSError as error:
            raise folder_error(error, self.folder) from error

    @property
    def unsent(self) -> dict[str, Any] | None:
        """The end of a run that was never submitted: ``state``, ``fault``, ``reason``; None for any other run."""
        return read_document(self.place / _UNSENT)

    def give_up(self, state: RunState, fault: Fault | None, reason: str) -> None:
        """Write down the end of a run that waited to be submitted and never will be."""
        with contextlib.suppress(OSError):  # then it waits on
            replace_document(self.place / _UNSENT, {"state": state, "fault": fault, "reason": reason})
            (self.place / _WAITS).unlink(missing_ok=True)
        self.drop_secrets()

    @property
    def cancelled(self) -> str | None:
        """The reason of the run's cancellation, or None."""
        try:
            return (self.place / _CANCEL).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def cancel(self, reason: str) -> None:
        """Write down that the run is to be cancelled, before its job is removed."""
        with contextlib.suppress(OSError):
            (self.place / _CANCEL).write_text(reason, encoding="utf-8")

    def drop_secrets(self) -> None:
        """Remove the file of secrets, once the job has them or will never need them."""
        with contextlib.suppress(NotADirectoryError):
            (self.place / SECRETS).unlink(missing_ok=True)

    def drop_archives(self) -> None:
        """Remove the archives, which are large, once they are no longer needed."""
        for name in (WORK_TAR, INPUTS_TAR, CHECKPOINT_TAR, PACKED):
            (self.place / name).unlink(missing_ok=True)
        for path in self.place.glob("checkpoint-*.tar"):
            path.unlink(missing_ok=True)

    def collect(self, request: RunRequest, settings: HtCondorSettings, back: Path) -> None:
        """Bring the files that the job made into the run's folder.

        Args:
            request: The run.
            settings: The settings of the runner.
            back: The folder in which the results are unpacked first, not below the run's folder.

        Raises:
            DeployError: The archive of the results is damaged, hostile or too large.
        """
        packed, far = self.place / PACKED, back / quote(request.run_id, safe="")
        try:
            if shares_folders(request, settings):
                stage_out(request)
            elif packed.exists() and packed.stat().st_size:
                back.mkdir(parents=True, exist_ok=True)
                unpack(packed, far, limit_bytes=parse_memory(settings.sent_bytes), lenient=True)
                if (far / "run" / METRICS).is_file():
                    shutil.copyfile(far / "run" / METRICS, self.folder / METRICS)
                _carry(far / "run" / OUTPUTS, self.folder / OUTPUTS)
                if (far / "work").is_dir():
                    stage_out(replace(request, workdir=far / "work"))
                shutil.rmtree(far, ignore_errors=True)
            self._cut(request.limits.log_bytes)
        except OSError as error:
            raise folder_error(error, self.folder) from error

    def _cut(self, most: int | None) -> None:
        """Join the beginnings and the ends of the logs, and say so where something is missing."""
        fields = result_of(self.result)
        cut = False
        for name in ("out", "err"):
            more = fields.get(name, "").strip()
            written = most + int(more) if most is not None and more.isdigit() else None
            cut |= shorten_log(self.folder / f"std{name}", most, written)
        if cut:
            (self.folder / "result.json").write_text(json.dumps({"truncated": True}), encoding="utf-8")


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:  # another file system
        shutil.copyfile(source, target)


def _carry(source: Path, target: Path) -> None:
    """Copy the files of a folder that really lie in it; links that lead out are left behind."""
    root = source.resolve()
    for top, _, names in os.walk(source):
        for name in names:
            file = Path(top) / name
            if not file.resolve().is_relative_to(root) or not file.is_file():
                continue
            place = target / file.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            shutil.copy2(file, place)
