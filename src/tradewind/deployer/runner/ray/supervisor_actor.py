"""The supervisor of a Ray cluster: a small actor on its head that owns the tasks in which runs are carried out.

A run must outlive the controller that asked for it, and a task of Ray ends with its owner. An actor for each run does
outlive it, but each is a new process, which takes a second of processor time. Tasks share processes that Ray keeps:
the second run begins within milliseconds. So one detached actor, the supervisor, owns the tasks of all runs. It goes
when there has been nothing to do for a while. If it is lost, so are the runs that it has (their tasks end, and with
them their wardens and jobs), which the store still knows: it is on the head's node, where that store is.

A task whose run has ended takes the next one, as `tradewind.deployer.runner.ray.scheduling` says.

Like `tradewind.deployer.runner.ray.node_executor` this module is sent there by value. Drivers of other versions call
the actor's methods by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
import uuid
from collections import deque
from typing import Any

from tradewind.deployer.runner.ray.node_executor import NodeRun
from tradewind.deployer.runner.ray.node_files import remove
from tradewind.deployer.runner.ray.scheduling import TaskAssignment

_KEEP_SECONDS = 30.0
_LOOK_SECONDS = 1.0
_LEAVE_SECONDS = 1.0
_REMEMBERED = 10_000
_SPARE_SECONDS = 0.15


def name_of(space: str, key: str) -> str:
    """The name of a run within a supervisor.

    Args:
        space: The part of the store that the run is in.
        key: The run's key there.
    """
    return f"{space}|{key}"


def carry_out_runs(number: int, supervisor: Any) -> None:
    """Carry out runs in this task, one after the other, until there is none.

    Args:
        number: The supervisor's number of this task.
        supervisor: The `SupervisorActor`, which gives the runs, their secrets, and the word that one shall end.
    """

    def word(call: Any) -> Any:
        # Not `ray.get`: a task that waits in it gives its CPUs to another one.
        return call.future()

    order = word(supervisor.next.remote(number, None)).result()
    while order is not None:
        run, name = NodeRun(order), name_of(order["space"], order["key"])

        def pass_on_cancel(answer: Any, run: NodeRun = run) -> None:
            with contextlib.suppress(Exception):  # the supervisor is gone, and this task ends too
                reason = answer.result()
                if reason is not None:
                    run.cancel(reason)

        def pass_on_secrets(answer: Any, run: NodeRun = run) -> None:
            with contextlib.suppress(Exception):
                run.set_secrets(answer.result())

        word(supervisor.word.remote(name)).add_done_callback(pass_on_cancel)
        if order["secrets"]:
            word(supervisor.secrets.remote(name)).add_done_callback(pass_on_secrets)
        run.live()
        order = word(supervisor.next.remote(number, name)).result()


class _SupervisedRun:
    """A run that waits or is carried out.

    Args:
        order: The run, as the runner wrote it.
        kind: The resources that its task must have, as JSON.
    """

    def __init__(self, order: dict[str, Any], kind: str) -> None:
        self.order, self.kind = order, kind
        self.secrets: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self.word: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()


class SupervisorActor:
    """Owns the tasks in which runs are carried out; runs are named as by `name_of`.

    It ends when there has been nothing to do for as long as the last run's ``keep_seconds`` say.
    """

    def __init__(self) -> None:
        import ray

        self._keep_seconds = _KEEP_SECONDS
        self._me: Any = ray.get_runtime_context().current_actor
        self._carry: Any = ray.remote(carry_out_runs)
        self._remove: Any = ray.remote(remove)
        self._runs: dict[str, _SupervisedRun] = {}
        self._assignment = TaskAssignment()
        self._work: dict[int, Any] = {}  # Ray's references of the tasks
        self._spare: dict[int, asyncio.Future[None]] = {}  # done when a task need not keep its place any longer
        self._busy = time.monotonic()
        self._lock = threading.Lock()
        self._leaving = False
        self._others: set[Any] = set()
        self._born = uuid.uuid4().hex
        self._ended: deque[str] = deque(maxlen=_REMEMBERED)
        self._count = 0  # of runs that have ended
        self._news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        threading.Thread(target=self._leave_some_time, name="tradewind-supervisor", daemon=True).start()

    async def submit(self, order: dict[str, Any], secrets: dict[str, str], options: dict[str, Any]) -> bool:
        """Take a run; False when this supervisor is about to go.

        Args:
            order: The run, as the runner wrote it.
            secrets: The values of its secrets, by variable.
            options: The resources that its task must have, as Ray's ``options`` take them.
        """
        name = name_of(order["space"], order["key"])
        with self._lock:
            if self._leaving:
                return False
            self._busy = time.monotonic()
            self._keep_seconds = order["keep_seconds"]
            if name not in self._runs:
                self._take(name, order, options)
        if secrets:
            await self.tell(name, secrets)
        return True

    def _take(self, name: str, order: dict[str, Any], options: dict[str, Any]) -> None:
        kind = json.dumps(options, sort_keys=True)
        self._runs[name] = _SupervisedRun(order, kind)
        number, released = self._assignment.add(name, kind)
        for spare in released:
            self._spare[spare].set_result(None)
        if number is not None:
            self._work[number] = self._carry.options(**options, max_retries=0).remote(number, self._me)
            self._hold(self._watch(number))

    def _hold(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._others.add(task)  # the loop itself does not keep it from being collected
        task.add_done_callback(self._others.discard)

    async def _watch(self, number: int) -> None:
        """Wait for the end of a task, however it comes; how its run ended is in the store."""
        with contextlib.suppress(Exception, asyncio.CancelledError):
            await self._work[number]
        del self._work[number]
        lost = self._assignment.leave(number)
        if lost is not None:
            self._end(lost)

    def _end(self, name: str) -> None:
        """Take a run off the list: its result is in the store, or will never come."""
        with self._lock:
            self._busy = time.monotonic()
            if not self._assignment.end(name):
                return
            kept = self._runs.pop(name)
        if not kept.word.done():
            kept.word.set_result(None)
        kept.secrets.cancel()
        self._ended.append(name)
        self._count += 1
        self._news.set_result(None)
        self._news = asyncio.get_running_loop().create_future()

    async def next(self, number: int, done: str | None) -> dict[str, Any] | None:
        """Give a task its next run.

        Args:
            number: The task's number.
            done: The run that it has carried out; None when it begins.

        Returns:
            The run, as the runner wrote it; None when the task shall end.
        """
        assignment, now = self._assignment, time.monotonic()
        task = assignment.tasks[number]
        if done is None:
            assignment.begin(number, now)
        else:
            self._end(done)
            assignment.follow(number, now)
            if task.spare:
                self._spare[number] = asyncio.get_running_loop().create_future()
                await asyncio.wait([self._spare[number]], timeout=_SPARE_SECONDS)
                task.spare = False
                del self._spare[number]
        return None if task.run is None else self._runs[task.run].order

    async def live(self, space: str) -> list[str]:
        """The keys of the runs whose task is waiting or at work."""
        prefix = name_of(space, "")
        return [name.removeprefix(prefix) for name in self._runs if name.startswith(prefix)]

    async def tell(self, name: str, secrets: dict[str, str]) -> None:
        """Pass on the values of a run's secrets."""
        kept = self._runs.get(name)
        if kept is not None and not kept.secrets.done():
            kept.secrets.set_result(secrets)

    async def secrets(self, name: str) -> dict[str, str]:
        """Wait for the values of a run's secrets."""
        return await self._runs[name].secrets

    async def word(self, name: str) -> str | None:
        """Wait until a run shall end, and give the reason; None when it has ended by itself."""
        return await self._runs[name].word

    async def cancel(self, name: str, reason: str, *, unborn: bool, again: bool) -> None:
        """End a run.

        Args:
            name: The run.
            reason: Why it is cancelled, for its status.
            unborn: True when its task has not claimed it, and cannot any more.
            again: True when it has been cancelled before and did not end.
        """
        import ray

        kept = self._runs.get(name)
        if kept is None:
            return
        if not kept.word.done():
            kept.word.set_result(reason)
        number = self._assignment.runs[name]
        if number is not None:
            if again and not unborn:
                ray.cancel(self._work[number], force=True)
        elif unborn:
            self._end(name)
            unwanted = self._assignment.spare_task(kept.kind)
            if unwanted is not None:  # nothing runs in it, nor ever will: Ray interrupts what it finds there
                ray.cancel(self._work[unwanted], force=False)

    async def ended(self, moment: tuple[str, int] | None, seconds: float) -> tuple[tuple[str, int], list[str]]:
        """Wait until a run has ended, at most for some seconds.

        Args:
            moment: The moment that the last call returned, or None.
            seconds: How long to wait, at most.

        Returns:
            The present moment, and the runs that have ended since the last one; the latest of them if they are many.
        """
        seen = moment[1] if moment is not None and moment[0] == self._born else 0
        if seen == self._count:
            news = self._news
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(news), seconds)
        news_count = min(self._count - seen, len(self._ended))
        return (self._born, self._count), [self._ended[place] for place in range(-news_count, 0)]

    async def remove(self, node: str, folder: str) -> bool:
        """Remove the files of a run from a node, in a process that runs have used if there is one.

        Returns:
            False when this supervisor is about to go, and does not.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        with self._lock:
            if self._leaving:
                return False
            self._busy = time.monotonic()
        where = NodeAffinitySchedulingStrategy(node, soft=False)
        work = self._remove.options(num_cpus=0, max_retries=0, scheduling_strategy=where).remote(folder)

        async def see_to_it() -> None:
            with contextlib.suppress(Exception):  # the node is gone, and the files with it
                await work

        self._hold(see_to_it())
        return True

    def _leave_some_time(self) -> None:
        import ray

        while True:
            time.sleep(_LOOK_SECONDS)
            with self._lock:
                idle = not self._runs and not self._others
                self._leaving = idle and time.monotonic() - self._busy > self._keep_seconds
            if self._leaving:
                time.sleep(_LEAVE_SECONDS)  # answers that are on their way arrive
                ray.kill(self._me)
                return
