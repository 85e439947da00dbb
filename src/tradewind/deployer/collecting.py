"""Brings what an ended job has left, and tries again where a connection broke: the run has been paid for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from tradewind.deployer.ended import RunEnding, ending_from_error
from tradewind.deployer.lifecycle.run_context import RunContext, backoff_seconds
from tradewind.deployer.runner.base import HasOwnFiles, Runner
from tradewind.deployer.staging import stage_out
from tradewind.errors import TradewindError, UnreachableError
from tradewind.problem import Run, RunRequest, RunState, RunStatus

_collector_log = logging.getLogger("tradewind.deployer")

_PATIENCE_SECONDS = 900.0
"""Machines that hold results are kept, and paid for, so long; to run the job again mostly costs more."""
_PAUSE_SECONDS = 1.0


class ResultCollector:
    """Brings what one run's ended job has left into the run's folder.

    Args:
        context: What all runs share.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._tries = 0
        self._until: float | None = None

    def needed(self, request: RunRequest) -> bool:
        """True when there is something to bring."""
        return bool(request.outputs) or type(self._context.runner).collect is not Runner.collect

    def bring(self, run: Run, request: RunRequest, status: RunStatus | None) -> None:
        """Bring logs, metrics and outputs into the run's folder; of a run that failed, as far as it goes.

        Raises:
            TradewindError: They cannot be brought, and the job went well.
        """
        assert run.handle is not None
        try:
            self._context.runner.collect(run.handle, request)
            if not isinstance(self._context.runner, HasOwnFiles):
                stage_out(request)
        except TradewindError as error:
            if status is None or status.state is RunState.DONE:
                raise
            _collector_log.warning("run %s: %s", run.run_id, error)

    def again(self, error: Exception, run: Run, request: RunRequest) -> tuple[Run, float] | None:
        """The run's row while it waits, and when bringing is tried again; None when the run is to end for the error."""
        if not isinstance(error, UnreachableError):
            return None
        now = self._context.runner.clock.now()
        if self._until is None:
            self._until = min(now + _PATIENCE_SECONDS, request.expires)
        delay = backoff_seconds(self._tries)
        self._tries += 1
        if now + delay >= self._until:
            return None
        reason = f"its results are not here yet: {error}; trying again"
        _collector_log.warning("run %s: %s in %g s", run.run_id, reason, delay)
        return replace(run, reason=reason), now + delay

    @staticmethod
    def retry_until(first: Callable[[], None], again: Callable[[], None], until: float) -> RunEnding | None:
        """Bring what a stopped run has left; where the connection breaks, again until a moment of ``time.monotonic``.

        Returns:
            How the run ends that it cannot be brought of: an end like any other, and no error of who stops it.
        """
        attempt = first
        while True:
            try:
                attempt()
            except Exception as error:
                if not isinstance(error, UnreachableError) or time.monotonic() + _PAUSE_SECONDS > until:
                    return ending_from_error(error)
            else:
                return None
            time.sleep(_PAUSE_SECONDS)
            attempt = again
