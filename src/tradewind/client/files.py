"""Calls about what the runs of a request leave: logs and files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from tradewind.client.models import FileInfo, LogPartInfo
from tradewind.client.transport import ApiCalls, plain
from tradewind.errors import InputError, ServiceError
from tradewind.utils.atomic_files import atomic_path


class FileCalls(ApiCalls):
    """Logs and files."""

    def log(
        self,
        request: int,
        stream: str = "stdout",
        *,
        offset: int = 0,
        limit: int = 65536,
        trial: int | None = None,
        run: str = "",
    ) -> LogPartInfo:
        """A part of what a request's program has printed.

        Args:
            request: The request.
            stream: ``stdout``, ``stderr``, ``application.stdout``, ``application.stderr`` or ``hooks.log``.
            offset: Where to begin, in bytes.
            limit: Bytes at most.
            trial: Of this trial of a search; without it, of the one that began last.
            run: Without a trial, the run that the offset is of, as ``run`` of the part before says it: once its log is
                read to the end, that of the next run follows from its beginning.

        Raises:
            NotFoundError: There is no such request, trial or log.
        """
        path = f"/requests/{int(request)}/logs/{quote(stream, safe='')}"
        response = self._transport.call(
            "GET", path, params=plain({"offset": offset, "limit": limit, "trial": trial, "run": run or None})
        )
        headers = response.headers
        of = int(headers["x-log-trial"]) if "x-log-trial" in headers else None
        ended = headers["x-log-ended"] == "true"
        return LogPartInfo(response.text, int(headers["x-next-offset"]), ended, headers.get("x-log-run", ""), of)

    def logs(
        self, request: int, stream: str = "stdout", *, follow: bool = False, trial: int | None = None
    ) -> Iterator[str]:
        """What a request's program has printed, in pieces.

        Args:
            request: The request.
            stream: As in `log`.
            follow: Go on until nothing more will come; a line ``trial 3`` stands before what each further trial prints.
            trial: As in `log`.

        Raises:
            NotFoundError: There is no such request, trial or log.
        """
        offset, run, shown, pause = 0, "", "", 0.5
        while True:
            part = self.log(request, stream, offset=offset, limit=2**20, trial=trial, run=run)
            if run and part.run != run and not follow:
                return
            offset, run = part.next, part.run
            if part.text:
                yield headed(part.text, shown, run, part.trial)
                pause, shown = 0.5, run
            if part.ended or not (part.text or follow):
                return
            if not part.text:
                try:
                    path = f"/requests/{int(request)}/logs/{quote(stream, safe='')}"
                    for message in self._transport.messages(
                        path, params=plain({"offset": offset, "trial": trial, "run": run or None})
                    ):
                        if message.kind == "log":
                            found, offset = message.data, int(message.data["next"])
                            run = str(found.get("run", ""))
                            yield headed(str(found["text"]), shown, run, found.get("trial"))
                            shown = run
                        elif message.kind == "end":
                            return
                except ServiceError:
                    time.sleep(pause)
                    pause = min(5.0, 2 * pause)

    def files(self, request: int, *, trial: int | None = None) -> list[FileInfo]:
        """The files that a request's last run has left.

        Raises:
            NotFoundError: There is no such request or trial.
        """
        found = self._get(f"/requests/{int(request)}/files", params=plain({"trial": trial}))
        return [FileInfo.from_json(one) for one in found]

    def download(self, request: int, path: str, to: str | Path, *, trial: int | None = None) -> Path:
        """Save a file that a request's last run has left; what is there in part is not taken for the whole.

        Args:
            request: The request.
            path: The file's path, as `files` says it.
            to: The file to write, or a folder, which gets it under the last part of its path: one that is there, or any
                that ends with ``/``, which is made.
            trial: Of this trial of a search.

        Returns:
            Where it is.

        Raises:
            NotFoundError: There is no such request, trial or file.
            InputError: It cannot be written.
        """
        target = Path(to)
        folder = str(to).endswith("/")
        if folder or target.is_dir():
            target = target / (Path(path).name or "file")
        place = f"/requests/{int(request)}/files/{quote(path)}"
        try:
            if folder:
                target.parent.mkdir(parents=True, exist_ok=True)
            with (
                self._transport.stream(place, params=plain({"trial": trial})) as response,
                atomic_path(target) as part,
                part.open("wb") as file,
            ):
                for piece in response.iter_bytes():
                    file.write(piece)
        except OSError as error:
            raise InputError(f"{target} cannot be written: {error.strerror or error}") from error
        return target


def headed(text: str, before: str, run: str, trial: int | None) -> str:
    """A piece of a log, below a line where it is of another run than the piece before it."""
    return f"trial {trial}\n{text}" if before and run != before else text
