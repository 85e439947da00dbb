"""Watches machines that are kept between runs, and gives them back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from tradewind.deployer.provisioner.base import Cluster, ClusterState, Provisioner
from tradewind.errors import TeardownError, TradewindError
from tradewind.plugins import CallsNetwork
from tradewind.utils.clock import Clock
from tradewind.utils.retries import Backoff

_log = logging.getLogger("tradewind.deployer")

_BACKOFF = Backoff((1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0))
_REPEAT_SECONDS = 10.0
_PATIENCE_SECONDS = 30.0
_GLANCE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class KeptNews:
    """News of machines that are kept.

    Attributes:
        cluster: Their tag.
        gone: True when they are not there any more; False when they are no good any more.
        until: They were paid for until then, on the clock that they live on.
    """

    cluster: str
    gone: bool
    until: float


class _KeptCluster:
    """The machines of one tag.

    Args:
        cluster: The machines.
        until: They have been seen until then.
    """

    def __init__(self, cluster: Cluster, until: float) -> None:
        self.cluster = cluster
        self.leaving = False
        self.told = False
        self.task: Future[None] | None = None
        self.retry_at = 0.0
        self.refusals = 0
        self.asked_at = float("-inf")
        self.until = until
        self.accepted = False
        self.problem = ""

    @property
    def gone(self) -> bool:
        """True when the provider has confirmed that they are not there any more."""
        return self.cluster.state is ClusterState.GONE

    @property
    def lost(self) -> bool:
        """True when they are no good any more."""
        return self.gone or self.cluster.vanished or self.cluster.state is ClusterState.FAILED

    def note(self, cluster: Cluster, now: float) -> None:
        """Take in where they are."""
        # What an earlier process kept and is gone now was paid for until nobody knows when.
        unseen = self.cluster.state is ClusterState.UNKNOWN and cluster.state is ClusterState.GONE
        self.cluster = cluster
        if cluster.state is ClusterState.READY:
            self.accepted = False  # the order to destroy them was in vain
        if not (self.accepted or unseen):
            self.until = max(self.until, now)


class KeptFleet:
    """The machines that are kept between the runs of a search.

    Args:
        provisioner: Who has made them.
        clock: Gives the clock that they live on.
        later: Does in a thread what takes long.
        simulated: True where that clock stands still while nobody moves it.
    """

    def __init__(
        self,
        provisioner: Provisioner,
        clock: Callable[[], Clock],
        later: Callable[[Callable[[], None]], Future[None]],
        *,
        simulated: bool,
    ) -> None:
        self._provisioner = provisioner
        self._clock = clock
        self._later = later
        self._simulated = simulated
        self._clusters: dict[str, _KeptCluster] = {}

    @property
    def tags(self) -> set[str]:
        """The tags of all that are there."""
        return set(self._clusters)

    @property
    def polled(self) -> list[Cluster]:
        """Machines that the provisioner is to be asked for."""
        return [each.cluster for each in self._clusters.values() if not each.gone and each.task is None]

    @property
    def moving(self) -> list[Cluster]:
        """Machines that are on their way down, or of which nothing is known yet."""
        return [
            each.cluster
            for each in self._clusters.values()
            if each.leaving or each.cluster.state is ClusterState.UNKNOWN
        ]

    def put(self, cluster: Cluster) -> None:
        """Keep the machines of a run that is over."""
        self._clusters[cluster.run_id] = _KeptCluster(cluster, self._clock().now())

    def watch(self, tag: str) -> None:
        """Go on with machines that an earlier process has kept."""
        self._clusters[tag] = _KeptCluster(Cluster(tag, ClusterState.UNKNOWN), float("-inf"))

    def take(self, tag: str) -> Cluster | None:
        """Hand machines over to a run; None where they are not known."""
        found = self._clusters.pop(tag, None)
        return found.cluster if found is not None else None

    def note(self, polled: Mapping[str, Cluster]) -> None:
        """Take in what the provisioner says."""
        for tag, each in self._clusters.items():
            if tag in polled and each.task is None:
                each.note(polled[tag], self._clock().now())

    def give_back(self, tag: str) -> None:
        """Begin to give machines back; `advance` goes on with it until they are gone."""
        if tag not in self._clusters:
            self.watch(tag)
        self._clusters[tag].leaving = True
        self.advance()

    def advance(self) -> None:
        """Take all steps that can be taken now."""
        for each in self._clusters.values():
            if each.task is not None:
                self._land(each)
            if each.leaving and each.task is None and not each.gone:
                self._ask(each)

    def _ask(self, each: _KeptCluster) -> None:
        now = self._clock().now()
        if now < max(each.retry_at, each.asked_at + _REPEAT_SECONDS):
            return
        each.asked_at = now
        if isinstance(self._provisioner, CallsNetwork):
            each.task = self._later(lambda: self._destroy(each))
            return
        try:
            self._destroy(each)
        except TradewindError as error:
            self._put_off(each, error)

    def _destroy(self, each: _KeptCluster) -> None:
        answer = self._provisioner.destroy(each.cluster)
        if not each.accepted:  # providers stop billing when they take the order
            each.until = max(each.until, each.asked_at)
        each.accepted, each.problem = True, ""
        each.cluster = answer

    def _land(self, each: _KeptCluster) -> None:
        task = each.task
        if task is None or not task.done():
            return
        each.task = None
        try:
            task.result()
        except Exception as error:  # a bug in a plugin must not keep machines that cost money
            self._put_off(each, error)

    def _put_off(self, each: _KeptCluster, error: Exception) -> None:
        delay = _BACKOFF.pause(each.refusals)
        each.refusals += 1
        each.retry_at = self._clock().now() + delay
        each.asked_at = float("-inf")
        each.problem = str(error)
        _log.warning("kept machines of run %s: %s; trying again in %g s", each.cluster.run_id, error, delay)

    def news(self) -> list[KeptNews]:
        """Tell what has become of them since the last time; those that are gone are forgotten."""
        found = []
        for tag, each in list(self._clusters.items()):
            if each.gone and each.task is None:
                del self._clusters[tag]
                found.append(KeptNews(tag, gone=True, until=each.until))
            elif each.lost and not each.leaving and not each.told:
                each.told = True
                found.append(KeptNews(tag, gone=False, until=each.until))
        return found

    def next_try(self, seconds: float) -> float:
        """Seconds after which `advance` may do something, at most ``seconds``."""
        now = self._clock().now()
        waits = [each.retry_at - now for each in self._clusters.values() if each.leaving and each.retry_at > now]
        return min([seconds, *waits])

    def finish(self, tags: set[str] | None = None) -> None:
        """Give machines back and wait until they are gone; `news` tells of it.

        Args:
            tags: Which; all without it.

        Raises:
            TeardownError: They are not given back; they may still cost money.
        """
        wanted = self.tags if tags is None else tags
        for tag in wanted:
            self.give_back(tag)
        until = time.monotonic() + max(_PATIENCE_SECONDS, self._provisioner.patience_seconds)
        while left := [each for tag, each in self._clusters.items() if tag in wanted and not each.gone]:
            if time.monotonic() > until:
                raise TeardownError(
                    f"the kept machines of run {left[0].cluster.run_id} are not given back: "
                    f"{left[0].problem or 'they are still there'}",
                    hint="they may still cost money; the next start of this command tries again",
                )
            if self._simulated:
                self._clock().sleep(max(_GLANCE_SECONDS, self._provisioner.next_change([e.cluster for e in left])))
            else:
                time.sleep(_GLANCE_SECONDS)
            self.note(self._provisioner.poll([each.cluster for each in left if each.task is None]))
            self.advance()
