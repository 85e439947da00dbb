"""The driver's end of the line to the keepers of a Ray cluster (see `tradewind.deployer.runner.ray.supervisor_actor`)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from tradewind.deployer.runner.ray.supervisor_actor import SupervisorActor

_ASK_SECONDS = 5.0
_AGAIN_SECONDS = 0.25
_REMEMBERED = 10_000


class RunEndNotifier:
    """One question to the keeper, however many wait for runs.

    It is asked while somebody waits. Who waits for runs that the keeper does not have is not told anything.

    Args:
        ask: Asks the keeper for the names of runs that have ended since a moment, which is told by what it last gave
            (None at first), for some seconds at most; gives the present moment and the names.
    """

    def __init__(self, ask: Callable[[Any, float], tuple[Any, list[str]]]) -> None:
        self._ask = ask
        self._moment: Any = None
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[frozenset[str], Callable[[], None]]] = {}
        self._ended: dict[str, None] = {}  # in their order
        self._asks = False

    def await_one(self, who: str, names: Collection[str], tell: Callable[[], None]) -> None:
        """Have somebody told once when one of some runs has ended, or when he waits for others instead.

        Args:
            who: Who waits.
            names: The runs, as keepers call them.
            tell: Called from any thread.
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
            threading.Thread(target=self._listen, name="tradewind-endings", daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                self._moment, names = self._ask(self._moment, _ASK_SECONDS)
            except Exception:  # the keeper is gone, or the cluster: who waits looks by himself every now and then
                time.sleep(_AGAIN_SECONDS)
                names = []
            with self._lock:
                self._ended |= dict.fromkeys(names)
                while len(self._ended) > _REMEMBERED:
                    del self._ended[next(iter(self._ended))]
                told = [who for who, (wanted, _) in self._waiting.items() if not wanted.isdisjoint(names)]
                calls = [self._waiting.pop(who)[1] for who in told]
                self._asks = bool(self._waiting)
                goes_on = self._asks
            for call in calls:
                call()
            if not goes_on:
                return


Document = dict[str, Any]

_NAMESPACE = "tradewind-keepers"
_HEAD = "node:__internal_head__"
_AT_ONCE = 100_000
_CALL_SECONDS = 60.0
_ANSWER_SECONDS = 2.5
_LEAVING_SECONDS = 0.1


class SupervisorClient:
    """All keepers of a cluster: each version of the sources has one of its own, so that old runs end as they began.

    Args:
        ray: The connected module.
        version: Of the sources.
    """

    def __init__(self, ray: Any, version: str) -> None:
        self._ray = ray
        self._name = f"tradewind-keeper-{version[:16]}"
        self._class = ray.remote(SupervisorActor)
        self._mine: Any = None

    def submit(self, order: Document, secrets: dict[str, str], options: Document) -> bool:
        """Have a run carried out; False when the cluster does not take it.

        Args:
            order: What the runner asked for.
            secrets: The values of its secrets.
            options: What its task must have, as Ray's ``options`` take it.
        """
        until = time.monotonic() + _CALL_SECONDS
        while (left := until - time.monotonic()) > 0:
            mine = self._mine = self._mine or self._own()
            try:
                if self._ray.get(mine.submit.remote(order, secrets, options), timeout=left):
                    return True
            except self._ray.exceptions.ActorDiedError:  # it went, or was lost: the next one takes it
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
        """All keepers that live, the present version's first.

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
        """The answers of those that live, to calls that are on their way at the same time."""
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
        """Wait until a run has ended of those that the first keeper has; see `SupervisorActor.ended`.

        Raises:
            LookupError: There is no keeper.
        """
        mine = self._mine or next(iter(self.every()), None)
        if mine is None:
            raise LookupError("no keeper")
        answer: tuple[Any, list[str]] = self._ray.get(
            mine.ended.remote(moment, seconds), timeout=seconds + _ANSWER_SECONDS
        )
        return answer

    def remove(self, node: str, folder: str) -> bool:
        """Remove the files of a run from a node, some time soon; False when there is nobody to do it."""
        return any(self._all([each.remove.remote(node, folder) for each in self.every()[:1]]))
