"""Reads the log of a run where it runs, as long as it is not on this machine."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from tradewind import plugins
from tradewind.deployer.runner.base import Runner, StreamsLogs, ThisMachine
from tradewind.engine.deployment import make_plugin
from tradewind.errors import DeployError, PluginError
from tradewind.problem import Run
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.store.base import StudyRow


def has_remote_logs(study: StudyRow) -> bool:
    """True when the runs of a study are elsewhere, and its runner can read their logs while they are running."""
    document = study.spec.get("job")
    deploy = document.get("deploy", {}) if isinstance(document, dict) else {}
    name = str(deploy.get("runner", {}).get("use", ""))
    try:
        runner = plugins.load("runner", name)
    except PluginError:
        return False
    return issubclass(runner, StreamsLogs) and not issubclass(runner, ThisMachine)


class RemoteLog:
    """The log of a run, read by the study's runner; bytes that are not UTF-8 become ``�``.

    Args:
        study: The study; its specification says which runner with which settings.
        stream: ``stdout`` or ``stderr``.
        data_folder: Where the runner keeps what it needs between processes.

    Attributes:
        problem: Why nothing could be read the last time, in words; empty if it could.

    Raises:
        PluginError: The study's runner is not installed any more.
    """

    def __init__(self, study: StudyRow, stream: str, data_folder: Path) -> None:
        spec = JobSpec.from_json(study.spec)
        runner = make_plugin("runner", spec.runner.name, spec.runner.settings, spec.base, data_folder)
        assert isinstance(runner, Runner)
        assert isinstance(runner, StreamsLogs)
        self.problem = ""
        self._runner: Runner = runner
        self._source: StreamsLogs = runner
        self._stream = stream
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    @property
    def offset(self) -> int:
        """Offset in bytes at which a reader of the whole log goes on: after the last whole character."""
        return self._offset - len(self._decoder.getstate()[0])

    def read(self, run: Run) -> Iterator[str]:
        """Text written since the last call; nothing while the run has not begun or cannot be asked."""
        self.problem = ""
        if run.handle is None:
            return
        while True:
            try:
                piece = self._source.read_log(run.handle, self._stream, self._offset)
            except DeployError as error:
                self.problem = str(error)
                return
            if not piece:
                return
            self._offset += len(piece)
            yield self._decoder.decode(piece)

    def rest(self) -> str:
        """The text that an unfinished character at the end leaves, once nothing more will come."""
        return self._decoder.decode(b"", final=True)

    def close(self) -> None:
        """Give back connections; the run is not touched."""
        self._runner.close()
