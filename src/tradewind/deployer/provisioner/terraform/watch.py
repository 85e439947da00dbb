"""Notices machines that a provider has taken back, without ever waiting for its answer."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from tradewind.deployer.provisioner.terraform.cloud import Cloud

_log = logging.getLogger("tradewind.deployer")

_EVERY_SECONDS = 15.0
_REST = 3.0
"""A look that took long is followed by a pause of this many times as long."""
_LOOKS = 2
"""In so many looks in a row a machine has to be missing: lists of providers are not always up to date."""


@dataclass(frozen=True, slots=True)
class MachineLoss:
    """What the looks at the machines of one run have shown.

    Attributes:
        lost: The ids of those that the provider does not have, or does not run, any more.
        vanished: True when the last look has shown none of them.
    """

    lost: tuple[str, ...] = ()
    vanished: bool = False


@dataclass(slots=True)
class _RegionState:
    """What is known of one region of one account.

    Attributes:
        wanted: The machines that the next look is about.
        missed: How many looks in a row have not shown a machine; of those that the last look was about.
        seen: Those that a look has shown.
        busy: True while a look goes on.
        next_at: When the next one may begin.
    """

    wanted: set[str] = field(default_factory=set)
    missed: dict[str, int] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    busy: bool = False
    next_at: float = float("-inf")


class MachineLossMonitor:
    """Asks each provider, account and region for the machines of all runs there at once, every 15 s or less often.

    What cannot be told counts as being there: a provider that does not answer has taken nothing back.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[Cloud, str], _RegionState] = {}
        self._guard = threading.Lock()

    def look(self, cloud: Cloud, region: str, machines: Collection[str], *, sure: bool) -> MachineLoss:
        """What the looks so far have shown of some machines; a new one is begun when it is time.

        Args:
            cloud: Who is asked.
            region: Where the machines are.
            machines: Their ids.
            sure: False where the provider may know them by other names, or may be asked in the wrong account: there,
                only what it has shown before can be missing.
        """
        with self._guard:
            place = self._places.setdefault((cloud, region), _RegionState())
            place.wanted.update(machines)
            if not place.busy and time.monotonic() >= place.next_at:
                place.busy = True
                wanted, place.wanted = place.wanted, set()
                arguments = (place, cloud, region, wanted)
                threading.Thread(target=self._ask, args=arguments, name="tradewind-terraform", daemon=True).start()
            missed = {each: place.missed.get(each, 0) for each in machines if sure or each in place.seen}
            lost = tuple(each for each, times in missed.items() if times >= _LOOKS)
            return MachineLoss(lost, len(missed) == len(machines) > 0 and all(missed.values()))

    def _ask(self, place: _RegionState, cloud: Cloud, region: str, wanted: set[str]) -> None:
        begun = time.monotonic()
        alive: Collection[str] | None = None
        try:
            alive = cloud.alive(region, wanted)
        except Exception as error:  # as well of a bug: it must not end healthy runs, nor the looks
            _log.info("whether machines in %s are still there is not known: %s", region, error)
        with self._guard:
            took = time.monotonic() - begun
            place.busy, place.next_at = False, begun + took + max(_EVERY_SECONDS, _REST * took)
            if alive is None:
                return
            place.seen = (place.seen | set(alive)) & wanted
            place.missed = {each: 0 if each in alive else place.missed.get(each, 0) + 1 for each in wanted}
