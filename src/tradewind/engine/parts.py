"""What a search is put together from, and what it needs of those who are no part of the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tradewind.engine.report_listener import ReportListener
from tradewind.engine.state_machine.search_machine import SearchMachine
from tradewind.problem import Problem, Run, RunOutput, RunRequest, Trial
from tradewind.searcher.base import Searcher
from tradewind.store.base import Store, StudyRow
from tradewind.utils.clock import Clock

if TYPE_CHECKING:
    from tradewind.deployer.runner.base import Runner


class DeployerProtocol(Protocol):
    """What the loop needs of a deployer."""

    @property
    def clock(self) -> Clock:
        """The clock that runs take place on."""
        ...

    @property
    def runner(self) -> Runner:
        """What carries out runs."""
        ...

    def launch(self, run: Run, request: RunRequest) -> Run:
        """Start a run whose row is stored."""
        ...

    def adopt(self, run: Run, request: RunRequest, unwanted: str = "") -> Run:
        """Find a run of an earlier process again; with a reason why it is ``unwanted``, only to end it."""
        ...

    def poll(self) -> list[Run]:
        """Rows of runs that changed."""
        ...

    def wait(self, seconds: float) -> None:
        """Return when something may have changed, when woken, or after ``seconds``."""
        ...

    def wake(self) -> None:
        """Let the `wait` that is under way return now, or else the next one at once; any thread may call it."""
        ...

    def abort(self, reasons: Mapping[str, str]) -> Sequence[Run]:
        """Begin to end some runs that are not wanted any more, while others go on; `poll` tells of their end."""
        ...

    def stop(self, reasons: Mapping[str, str]) -> None:
        """Begin to end some runs, all at the same time, before `cancel` waits for each."""
        ...

    def cancel(self, run_id: str, reason: str) -> Run | None:
        """End a run and give its machines back."""
        ...

    def settle(self, run_id: str) -> None:
        """Forget a run whose end is stored."""
        ...

    def sweep(self, known_run_ids: set[str]) -> list[str]:
        """Give back everything that has no row."""
        ...

    def output(self, run: Run, request: RunRequest) -> RunOutput:
        """What the interpreters read."""
        ...

    def close(self) -> None:
        """Give back connections."""
        ...


class LaunchGate(Protocol):
    """Who gives leave to run, where a search shares a cluster with others."""

    def want(self, trial: Trial) -> None:
        """A trial would run; `Search.grant` gives it leave."""
        ...

    def unwant(self, number: int) -> None:
        """A trial that wanted to run does not any more."""
        ...

    def launched(self, trial: Trial, run: Run, *, again: bool) -> None:
        """A run is started, or one of an earlier process found again."""
        ...

    def ended(self, run_id: str) -> None:
        """A run is gone, and its end is stored."""
        ...

    def told(self, trial: Trial) -> None:
        """The searcher was told of a trial."""
        ...


RunRequestFactory = Callable[[Trial, Run, float | None], RunRequest]
MetricsReader = Callable[[RunOutput], dict[str, float]]


@dataclass(frozen=True)
class SearchComponents:
    """The parts that a search is put together from.

    Attributes:
        study: The study's row.
        problem: The problem.
        machine: The state machine.
        searcher: The searcher.
        deployer: The deployer.
        store: The store.
        request: Makes the request of a run from its trial, its row and its wall time.
        read: Reads the metrics of a finished run.
        listener: Reads what runs report while they run, where a stopper wants to know.
    """

    study: StudyRow
    problem: Problem
    machine: SearchMachine
    searcher: Searcher
    deployer: DeployerProtocol
    store: Store
    request: RunRequestFactory
    read: MetricsReader
    listener: ReportListener | None = None
