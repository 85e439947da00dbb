"""Reads the log of a run that is elsewhere, as long as it is not on this machine."""

from __future__ import annotations

from pathlib import Path

from tradewind.deployer.runner.base import StreamsLogs
from tradewind.engine.deployment import make_plugin
from tradewind.engine.remote_logs import has_remote_logs
from tradewind.errors import DeployError
from tradewind.problem import Run
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.service.requests.run_files import RunLogPart, log_part
from tradewind.store.base import Store
from tradewind.store.service.request_values import RequestRow


def remote_log(
    studies: Store, row: RequestRow, run: Run, stream: str, offset: int, limit: int, data_folder: Path
) -> RunLogPart | None:
    """A part of the log of a run where it runs; None where its runner cannot tell, or cannot be reached now.

    Args:
        studies: The studies.
        row: The request.
        run: Its run, which has not ended.
        stream: ``stdout`` or ``stderr``.
        offset: Where to begin, in bytes.
        limit: Bytes at most.
        data_folder: Where the runner keeps what it needs between processes.
    """
    if run.handle is None or row.study_id is None or stream not in ("stdout", "stderr"):
        return None
    study = studies.study(row.study_id)
    if not has_remote_logs(study):
        return None
    spec = JobSpec.from_json(study.spec)
    runner = make_plugin("runner", spec.runner.name, spec.runner.settings, spec.base, data_folder)
    assert isinstance(runner, StreamsLogs)
    try:
        return log_part(runner.read_log(run.handle, stream, offset)[:limit], offset, last=False)
    except DeployError:
        return None  # it goes on, and is read by the next look or when it has ended
    finally:
        runner.close()  # type: ignore[attr-defined]
