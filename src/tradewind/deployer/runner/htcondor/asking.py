"""Asks HTCondor's queue and history in threads, so that a daemon that does not answer holds up nobody."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tradewind.deployer.runner.htcondor.commands import ClassAd, CondorCommands
from tradewind.deployer.runner.htcondor.handle import HtCondorData
from tradewind.deployer.runner.htcondor.submit_description import text_of_ad
from tradewind.errors import TradewindError
from tradewind.problem import Handle

_PATIENCE_SECONDS = 0.5
_HASTE_SECONDS = 0.5
_ABSENT_SECONDS = 1.0


def run_constraint(run_id: str) -> str:
    """The constraint that finds a run."""
    return f"TradewindRun == {text_of_ad(run_id)}"


class _Query:
    """Something that is asked in a thread."""

    def __init__(self, ask: Callable[[], list[ClassAd]]) -> None:
        self.asked = time.time()
        self.answer: list[ClassAd] | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, args=(ask,), name="tradewind-htcondor", daemon=True).start()

    def _run(self, ask: Callable[[], list[ClassAd]]) -> None:
        with contextlib.suppress(TradewindError, OSError):
            self.answer = ask()
        self._done.set()

    def done(self, seconds: float = 0.0) -> bool:
        """True when there is an answer, or will be none."""
        return self._done.wait(seconds)


class JobAdCache:
    """Knows what the queue said last about all runs that somebody waits for.

    Args:
        condor: The programs.
        interval: Seconds between two questions.
    """

    def __init__(self, condor: CondorCommands, interval: float) -> None:
        self._condor = condor
        self._interval = interval
        self._watched: dict[str, Handle] = {}
        self._covered: frozenset[str] = frozenset()
        self._asked = 0.0
        self._ads: Mapping[str, ClassAd] = {}
        self._question: _Query | None = None
        self._asking: frozenset[str] = frozenset()
        self._absent: dict[str, float] = {}
        self._history: dict[str, _Query] = {}

    def look(self, handles: Sequence[Handle], *, urgent: bool) -> None:
        """Have the queue asked about some runs, and all others that are waited for, when it is time.

        Args:
            handles: The runs.
            urgent: Nothing else tells how one of them stands.
        """
        self._watched.update((handle.run_id, handle) for handle in handles)
        if self._question is None:
            haste = urgent and any(handle.run_id not in self._covered for handle in handles)
            if time.time() < self._asked + (min(_HASTE_SECONDS, self._interval) if haste else self._interval):
                return
            told = {run_id: HtCondorData.of(each).cluster for run_id, each in self._watched.items()}
            clusters = {int(cluster) for cluster in told.values() if cluster is not None}
            terms = [f"ClusterId == {cluster}" for cluster in sorted(clusters)]
            terms += [run_constraint(run_id) for run_id, cluster in told.items() if cluster is None]
            constraint = " || ".join(f"({term})" for term in terms)
            self._asking = frozenset(self._watched)
            self._question = _Query(lambda: self._condor.queue(constraint))
        if self._question.done(_PATIENCE_SECONDS):
            question, self._question = self._question, None
            self._asked = question.asked
            self._covered = frozenset()
            if question.answer is not None:
                self._covered = self._asking
                self._ads = {str(ad["TradewindRun"]): ad for ad in question.answer if "TradewindRun" in ad}

    def forget(self, run_id: str) -> None:
        """Ask no more about a run."""
        self._watched.pop(run_id, None)
        self._absent.pop(run_id, None)
        self._history.pop(run_id, None)

    def said(self, handle: Handle) -> ClassAd | None:
        """The attributes of a run's job, as the queue had them last; None when it did not list it, or was not asked."""
        ad = self._ads.get(handle.run_id) if handle.run_id in self._covered else None
        if ad is not None:
            self._absent.pop(handle.run_id, None)
        return ad

    def missing(self, handle: Handle) -> bool:
        """True when the queue has been asked since the run was submitted, and did not list it, for a while."""
        if handle.run_id not in self._covered or self._asked <= (HtCondorData.of(handle).submitted or 0.0):
            return False
        first = self._absent.setdefault(handle.run_id, self._asked)
        return self._asked >= first + _ABSENT_SECONDS

    def remembered(self, handle: Handle) -> tuple[bool, dict[str, Any] | None]:
        """Whether the history has been asked, and the attributes of the job there; it is asked once.

        The job is looked for by its number, which takes less time than by its tag.
        """
        question = self._history.get(handle.run_id)
        if question is None:
            constraint = run_constraint(handle.run_id)
            cluster = HtCondorData.of(handle).cluster
            if cluster is not None:
                constraint = f"ClusterId == {cluster} && {constraint}"
            question = self._history[handle.run_id] = _Query(lambda: self._condor.history(constraint, 1))
        if not question.done():
            return False, None
        return True, question.answer[0] if question.answer else None
