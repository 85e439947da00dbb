"""The contract of a callback."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tradewind import plugins
from tradewind.problem import Problem, Run, Trial

SeriesPoint = tuple[int, float]
"""Step and value."""


@dataclass(frozen=True, slots=True)
class StudyFacts:
    """The study whose trials a callback is given.

    Attributes:
        id: Its number in the store.
        name: Its name.
        owner: The tag of everything that its runs create; no other study of any store has it.
        searcher: Name of its searcher.
        seed: Of the searcher.
        created: Seconds since the epoch.
        problem: Its problem.
        base: The folder of the job YAML, which relative paths start in.
        data_folder: Where Tradewind keeps its data, for callbacks that write files.
    """

    id: int
    name: str
    owner: str
    searcher: str
    seed: int
    created: float
    problem: Problem
    base: Path
    data_folder: Path


@dataclass(frozen=True, slots=True)
class BegunTrial:
    """A trial that has begun.

    Attributes:
        trial: The trial.
        run: Its last run, or None.
        series: By metric the values that the run has reported so far, by growing step.
    """

    trial: Trial
    run: Run | None = None
    series: Mapping[str, Sequence[SeriesPoint]] = field(default_factory=dict)

    @property
    def begun(self) -> float:
        """Start of its first run, in seconds since the epoch."""
        return self.trial.started if self.trial.started is not None else self.trial.created

    @property
    def machines(self) -> dict[str, str | int | float | bool]:
        """The machines that it runs on, with their price at launch."""
        offer = self.trial.offer
        return {
            "offer.provider": offer.provider,
            "offer.region": offer.region,
            "offer.instance_type": offer.instance_type,
            "offer.nodes": offer.nodes,
            "offer.spot": offer.spot,
            "offer.dollars_per_hour": offer.hourly,
        }


class EndedTrial(BegunTrial):
    """A trial that has ended; ``series`` has all that its last run has reported."""

    __slots__ = ()

    @property
    def ended(self) -> float:
        """End of its last run, in seconds since the epoch; no earlier than the start."""
        return max(self.begun, self.trial.ended if self.trial.ended is not None else self.begun)

    @property
    def reason(self) -> str:
        """The reason why it failed, was cut short or is infeasible; empty for a trial that did well."""
        seen = self.trial.observation
        return seen.reason if seen is not None else (self.run.reason if self.run is not None else "")

    @property
    def metrics(self) -> dict[str, float]:
        """Figures of the trial: cost and run time, what was paid for all of its runs (``spent``), and its metrics."""
        seen = self.trial.observation
        return {**(seen.figures if seen is not None else {}), "spent": self.trial.spent}


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """The end of a process's work on a study.

    Attributes:
        status: ``finished``; ``interrupted`` by the user; or ``failed``: it ended with an error.
        reason: Why, in words.
        trials: Trials of the study that have ended.
        spent: USD over all runs, total.
        best: The best feasible trial, or None.
    """

    status: Literal["finished", "interrupted", "failed"]
    reason: str = ""
    trials: int = 0
    spent: float = 0.0
    best: Trial | None = None


class Callback(plugins.Plugin, ABC):
    """Writes the trials of a study somewhere else: when they begin, while they run, and as they end.

    Its methods are called in a thread of its own, one after the other. Whatever one of them raises ends no search: it
    is said in one line, the callback is made anew, and what it has not taken is given to it again.

    Args:
        settings: An instance of the class's ``Settings``.
        study: The study.
    """

    def __init__(self, *, settings: plugins.Settings, study: StudyFacts) -> None:
        self.settings = settings
        self.study = study

    @abstractmethod
    def open(self) -> Collection[int]:
        """Begin, or go on with what an earlier process has written of this study.

        Returns:
            The numbers of the trials that are there with their end; they are not given again.
        """

    def begin(self, begun: BegunTrial) -> None:
        """Write the parameters of a trial whose run begins; one that ends soon may be given to `log` only.

        A trial is given again when its run is repeated, and when another process goes on with it.

        Args:
            begun: The trial.
        """

    def report(self, begun: BegunTrial) -> None:
        """Write what the run of a trial has reported since the last time; ``begun.series`` has all of it so far.

        Not every report is given, and with engines that cannot be read while a run is running there is none: `log`
        has all of them.

        Args:
            begun: The trial.
        """

    @abstractmethod
    def log(self, ended: EndedTrial) -> None:
        """Write a trial that has ended: whatever of it is not there yet, and how it ended.

        One that is given twice, or that a killed process had half written, is there once.

        Args:
            ended: The trial.
        """

    def close(self, end: SessionEnd) -> None:
        """Note that the work on the study is over for now; another process may go on with it.

        Args:
            end: How it ended.
        """

    @property
    def place(self) -> str:
        """The place that it writes to, in words, for messages; without passwords."""
        return self.name
