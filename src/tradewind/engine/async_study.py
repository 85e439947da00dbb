"""A study for asyncio: the calls of `Study` as coroutines."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tradewind.engine.ask_tell.asked_trial import Asked, CallbackChoices, TrialEnd, whole_number
from tradewind.engine.function_calls import await_for_trial, call_for_trial, check_callable
from tradewind.engine.study import Study
from tradewind.errors import ConfigurationError
from tradewind.problem import Trial, Value


class AsyncStudy:
    """A `Study` whose calls are coroutines: the event loop waits neither for the disk nor for the searcher.

    Use it as ``async with AsyncStudy(...) as study``. A call that is cancelled loses nothing: what it would have been
    given comes with the next `ask`.

    Args:
        source: A job YAML's path, or the same as a mapping; ``job`` may be left out of a mapping.
        store: Address of the store; the user's own without it.
        fresh: Start anew even if there is a study to go on with.
        callbacks: Where trials are written, too, as for `Study`.
    """

    def __init__(
        self,
        source: Path | str | Mapping[str, Any],
        *,
        store: str | None = None,
        fresh: bool = False,
        callbacks: CallbackChoices | None = None,
    ) -> None:
        self._given: dict[str, Any] = {"source": source, "store": store, "fresh": fresh, "callbacks": callbacks}
        self._study: Study | None = None

    @property
    def study(self) -> Study:
        """The study itself, for what can be read at once: ``best``, ``trials``, ``spent``, ``finished``, ``pending``.

        Raises:
            ConfigurationError: It is not open.
        """
        if self._study is None:
            raise ConfigurationError("the AsyncStudy is not open", hint="write: async with AsyncStudy(...) as study")
        return self._study

    async def enqueue(self, configuration: Mapping[str, Value]) -> Trial:
        """`Study.enqueue`; one that is cancelled is still written."""
        return await asyncio.to_thread(self.study.enqueue, configuration)

    async def ask(self, count: int = 1) -> list[Asked]:
        """`Study.ask`."""
        study = self.study
        call = asyncio.ensure_future(asyncio.to_thread(study.ask, count))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            call.add_done_callback(lambda done: _give_back(study, done))
            raise

    async def tell(
        self,
        asked: Asked | int,
        *,
        runtime: float,
        metrics: Mapping[str, float] | None = None,
        cost: float | None = None,
        state: TrialEnd = "succeeded",
        reason: str = "",
    ) -> Trial:
        """`Study.tell`; one that is cancelled is still written."""
        return await asyncio.to_thread(
            self.study.tell, asked, runtime=runtime, metrics=metrics, cost=cost, state=state, reason=reason
        )

    async def optimise(
        self,
        function: Callable[..., Any],
        trials: int | None = None,
        *,
        parallel: int = 1,
        progress: bool | None = None,
    ) -> Trial | None:
        """`Study.optimise` with a coroutine function, or with a plain one, which is called in threads.

        Args:
            function: What to call, with the configuration as keyword arguments.
            trials: How many times at most, now; until the budget or the space is used up without it.
            parallel: Calls at the same time, at most. Programs that several plain functions start at once cannot
                report by themselves: let the function return their metrics.
            progress: Show a progress bar, as for `Study.optimise`.

        Returns:
            The best trial, or None.

        Raises:
            ConfigurationError: ``function`` cannot be called, ``trials`` or ``parallel`` is no number of calls, or
                ``progress`` is neither True nor False nor None.
        """
        check_callable(function)
        calls = whole_number(parallel)
        if calls is None or calls < 1:
            raise ConfigurationError(f"parallel={parallel!r} is no number of calls", hint="write a whole number from 1")
        with self.study.progress_bar(trials, shown=progress) as bar:
            return await self._optimise(function, trials, calls, bar.update)

    async def _optimise(
        self, function: Callable[..., Any], trials: int | None, parallel: int, after_trial: Callable[[], object]
    ) -> Trial | None:
        running: dict[asyncio.Task[dict[str, Any]], Asked] = {}
        begun = 0
        try:
            while True:
                room = parallel - len(running)
                room = room if trials is None else min(room, trials - begun)
                given = await self.ask(room) if room > 0 else []
                begun += len(given)
                for asked in given:
                    running[asyncio.create_task(self._call(function, asked))] = asked
                if not running:
                    return self.study.best
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    await self.tell(running[task], **task.result())
                    del running[task]
                    after_trial()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            if running:
                await asyncio.to_thread(self.study.give_back, list(running.values()))

    async def _call(self, function: Callable[..., Any], asked: Asked) -> dict[str, Any]:
        metric = self.study.objective_metric
        if inspect.iscoroutinefunction(function):
            coroutine: Callable[..., Awaitable[Any]] = function
            return await await_for_trial(coroutine, asked, metric, self.study._reports_of(asked))
        return await asyncio.to_thread(call_for_trial, function, asked, metric, self.study._reports_of(asked))

    async def close(self) -> None:
        """`Study.close`."""
        if self._study is not None:
            await asyncio.to_thread(self._study.close)

    async def __aenter__(self) -> Self:
        self._study = await asyncio.to_thread(lambda: Study(**self._given))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._study is not None:
            self._study._failed = True
        await self.close()


def _give_back(study: Study, call: asyncio.Future[list[Asked]]) -> None:
    """Return what a call of `ask` that nobody waits for any more was given."""
    if not call.cancelled() and call.exception() is None:
        study.give_back(call.result())
