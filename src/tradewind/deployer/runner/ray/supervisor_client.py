"""Calls from the driver to the supervisors of a Ray cluster, and the news that runs have ended.

See `tradewind.deployer.runner.ray.supervisor_actor`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from tradewind.deployer.runner.ray.supervisor_actor import SupervisorActor

Document = dict[str, Any]

# Supervisors of other versions are found by the namespace: it stays as it was, and so does the prefix of the names.
_NAMESPACE = "tradewind-keepers"
_NAME = "tradewind-keeper"
_HEAD = "node:__internal_head__"
_AT_ONCE = 100_000
_CALL_SECONDS = 60.0
_ANSWER_SECONDS = 2.5
_LEAVING_SECONDS = 0.1
_ASK_SECONDS = 5.0
_AGAIN_SECONDS = 0.25
_REMEMBERED = 10_000


class SupervisorClient:
    """Calls all supervisors of a cluster.

    Each version of the sources has a supervisor of its own, so that old runs end with the version that they began with.

    Args:
        ray: The ``ray`` module, connected.
        version: The version of the sources, as a hexadecimal digest.
    """

    def __init__(self, ray: Any, version: str) -> None:
        self._ray = ray
        self._name = f"{_NAME}-{version[:16]}"
        self._class = ray.remote(SupervisorActor)
        self._mine: Any = None

    def submit(self, order: Document, secrets: dict[str, str], options: Document) -> bool:
        """Have a run carried out; False when the cluster does not take it.

        Args:
            order: The run, as the runner wrote it.
            secrets: The values of its secrets, by variable.
            options: The resources that its task must have, as Ray's ``options`` take them.
        """
        until = time.monotonic() + _CALL_SECONDS
        while (left := until - time.monotonic()) > 0:
            mine = self._mine = self._mine or self._own()
            try:
                if self._ray.get(mine.submit.remote(order, secrets, options), timeout=left):
                    return True
            except self._ray.exceptions.ActorDiedError:  # it went, or was lost: the next one takes the run
                self._mine = None
            except self._ray.exceptions.GetTimeoutError:
                return False
            time.sleep(_LEAVING_SECONDS)
        return False

    def _own(self) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options: Document = {
            "name": self._name,
            "namespace": _NAMESPACE,
            "lifetime": "detached",
            "get_if_exists": True,
            "num_cpus": 0,
            "max_restarts": 0,
            "max_concurrency": _AT_ONCE,
        }
        # Where the store is: without it nothing is left to be kept.
        head = [each["NodeID"] for each in self._ray.nodes() if each["Alive"] and _HEAD in each["Resources"]]
        if head:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(head[0], soft=True)
        return self._class.options(**options).remote()

    def every(self, actors: Iterable[Document] | None = None) -> list[Any]:
        """The handles of all supervisors that live, the present version's first.

        Args:
            actors: All named actors of the cluster, where they are known already.
        """
        named = self._ray.util.list_named_actors(all_namespaces=True) if actors is None else actors
        names = {each["name"] for each in named if each["namespace"] == _NAMESPACE}
        found = []
        for name in sorted(names, key=lambda name: name != self._name):
            with contextlib.suppress(ValueError):  # it has gone since
                found.append(self._ray.get_actor(name, _NAMESPACE))
        return found

    def _all(self, calls: Sequence[Any]) -> list[Any]:
        """The answers to some calls that were made together, without those of supervisors that have died."""
        answers = []
        until = time.monotonic() + _ANSWER_SECONDS
        for call in calls:
            try:
                answers.append(self._ray.get(call, timeout=max(0.0, until - time.monotonic())))
            except self._ray.exceptions.ActorDiedError:
                continue
        return answers

    def live(self, space: str, actors: Iterable[Document]) -> set[str]:
        """The keys of the runs that are waiting or carried out.

        Args:
            space: Their part of the store.
            actors: All named actors of the cluster.
        """
        return {key for keys in self._all([each.live.remote(space) for each in self.every(actors)]) for key in keys}

    def tell(self, name: str, secrets: dict[str, str]) -> None:
        """Send a run its secrets once more."""
        self._all([each.tell.remote(name, secrets) for each in self.every()])

    def cancel(self, name: str, reason: str, *, unborn: bool, again: bool) -> None:
        """End a run; see `SupervisorActor.cancel`."""
        self._all([each.cancel.remote(name, reason, unborn=unborn, again=again) for each in self.every()])

    def ended(self, moment: Any, seconds: float) -> tuple[Any, list[str]]:
        """Wait until a run has ended of those that the first supervisor has; see `SupervisorActor.ended`.

        Raises:
            LookupError: There is no supervisor.
        """
        mine = self._mine or next(iter(self.every()), None)
        if mine is None:
            raise LookupError("no supervisor")
        answer: tuple[Any, list[str]] = self._ray.get(
            mine.ended.remote(moment, seconds), timeout=seconds + _ANSWER_SECONDS
        )
        return answer

    def remove(self, node: str, folder: str) -> bool:
        """Remove the files of a run from a node, some time soon; False when there is nobody to do it."""
        return any(self._all([each.remove.remote(node, folder) for each in self.every()[:1]]))


class RunEndNotifier:
    """Notifies those who wait for runs when one has ended, with one open call to the supervisor for all of them.

    The call is open only while somebody waits. Runs that the supervisor does not have cause no notification.

    Args:
        ask: ``ask(moment, seconds)`` waits at most so many seconds for runs that have ended since ``moment``, and
            returns the present moment and the names of those runs; ``moment`` is what it last returned, None at first.
    """

    def __init__(self, ask: Callable[[Any, float], tuple[Any, list[str]]]) -> None:
        self._ask = ask
        self._moment: Any = None
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[frozenset[str], Callable[[], None]]] = {}
        self._ended: dict[str, None] = {}  # in their order
        self._asks = False

    def await_one(self, who: str, names: Collection[str], tell: Callable[[], None]) -> None:
        """Have a function called once, when one of some runs has ended or the same caller awaits others instead.

        Args:
            who: The name of the caller, which awaits one set of runs at a time.
            names: The runs, by the names that supervisors have for them (`name_of`).
            tell: The function; it may be called from any thread.
        """
        with self._lock:
            before = self._waiting.pop(who, None)
            over = any(name in self._ended for name in names)
            if not over:
                self._waiting[who] = frozenset(names), tell
            begins = not self._asks and bool(self._waiting)
            self._asks = self._asks or begins
        if before is not None:
            before[1]()
        if over:
            tell()
        if begins:
            threading.Thread(target=self._listen, name="tradewind-run-ends", daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                self._moment, names = self._ask(self._moment, _ASK_SECONDS)
            except Exception:  # the supervisor is gone, or the cluster: who waits also polls every now and then
                time.sleep(_AGAIN_SECONDS)
                names = []
            with self._lock:
                self._ended |= dict.fromkeys(names)
                while len(self._ended) > _REMEMBERED:
                    del self._ended[next(iter(self._ended))]
                notified = [who for who, (wanted, _) in self._waiting.items() if not wanted.isdisjoint(names)]
                calls = [self._waiting.pop(who)[1] for who in notified]
                self._asks = bool(self._waiting)
                goes_on = self._asks
            for call in calls:
                call()
            if not goes_on:
                return
