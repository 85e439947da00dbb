"""Settings of a search that the problem does not have: parallel runs, aborts, fallback offers, stopping rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from tradewind.engine.state_machine.stopping_rules import StoppingRule
from tradewind.problem import Offer
from tradewind.stopper.base import Stopper

FallbackKind = Literal["region", "on_demand"]

FallbackFinder = Callable[[Offer, Collection[str]], Offer | None]
"""Another offer of the same machines, none of those with the given keys; None if there is none."""


def no_fallback(_offer: Offer, _refused: Collection[str]) -> Offer | None:
    """There is no other offer."""
    return None


@dataclass(frozen=True, slots=True)
class KeepPolicy:
    """Rule for keeping machines between runs.

    Attributes:
        seconds: The longest time that they are kept for the next run.
        span: The seconds from its launch until what is left of a run may be destroyed, by its wall time (or None).
    """

    seconds: float
    span: Callable[[float | None], float]


@dataclass(frozen=True, slots=True)
class SearchPolicy:
    """Settings for carrying out a search.

    Attributes:
        owner: Tag and first part of the name of everything that the runs create.
        retries: Further attempts after the infrastructure's fault.
        abort: Cut short what can no longer win.
        priced_aborts: The searcher chooses where to cut.
        rules: When to stop.
        room: Whether a run on an offer may start beside those on other offers.
        kill_seconds: Seconds that a run may still take after its wall time, until it is gone.
        longest: Seconds that any run may take (``deploy.longest``), or None.
        elsewhere: Finds another offer for a trial that found no machines, or lost its spot machines.
        spot_attempts: Runs of a trial that may lose their spot machines before it goes elsewhere.
        exit_codes: Exit codes of the program that are no failure.
        searcher: The searcher's name, for those who watch.
        size: Number of candidates, or None.
        stopper: Which runs to give up for what they report, or None.
        gated: Each run waits for leave (`~tradewind.engine.state_machine.events.LaunchPermitted`);
            ``room`` is not asked.
        architectures: Processor architectures of the offers, where all configurations run the same program on machines
            as their offers say; else empty. What failed for its architecture is then tried on no other of that one.
        keep: How machines are kept between runs of the same offer, or None where each run's machines go with it.
    """

    owner: str
    retries: int = 2
    abort: bool = True
    priced_aborts: bool = False
    rules: Sequence[StoppingRule] = ()
    room: Callable[[Offer, Sequence[Offer]], bool] = lambda offer, running: True
    kill_seconds: float = 0.0
    longest: float | None = None
    elsewhere: FallbackFinder = no_fallback
    spot_attempts: int = 1
    exit_codes: frozenset[int] = frozenset({0})
    searcher: str = ""
    size: int | None = None
    stopper: Stopper | None = None
    gated: bool = False
    architectures: frozenset[str] = frozenset()
    keep: KeepPolicy | None = None
