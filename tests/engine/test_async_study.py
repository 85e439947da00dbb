from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tradewind import AsyncStudy, report
from tradewind.errors import ConfigurationError
from tradewind.problem import TrialState

JOB: dict[str, Any] = {
    "name": "asynchronous",
    "space": {"x": "0..50"},
    "objective": {"minimise": "value"},
    "searcher": {"use": "random"},
    "budget": {"trials": 12},
}


def test_tasks_of_one_loop_share_a_study() -> None:
    async def work(study: AsyncStudy) -> int:
        done = 0
        while given := await study.ask():
            await asyncio.sleep(0)
            trial = await study.tell(given[0], runtime=1.0, metrics={"value": float(given[0].configuration["x"])})
            assert trial.state is TrialState.SUCCEEDED
            done += 1
        return done

    async def main() -> None:
        async with AsyncStudy(JOB) as study:
            assert sum(await asyncio.gather(*(work(study) for _ in range(4)))) == 12
            assert study.study.finished
            assert len(study.study.trials) == 12

    asyncio.run(main())


def test_coroutines_and_functions_are_tuned_several_at_a_time() -> None:
    most = 0
    running = 0

    async def coroutine(x: int) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        report(value=x)  # each task has a file of its own
        running -= 1
        if x % 5 == 0:
            raise ValueError("five is not wanted")

    async def main() -> None:
        async with AsyncStudy(JOB) as study:
            await study.optimise(coroutine, 8, parallel=4)
            trials = study.study.trials
            assert [trial.state.ended for trial in trials] == [True] * 8
            for trial in trials:
                failed = int(trial.configuration["x"]) % 5 == 0
                assert (trial.state is TrialState.FAILED) == failed
                if trial.observation and not failed:
                    assert trial.observation.objective == trial.configuration["x"]
            best = await study.optimise(lambda x: float(x), 4, parallel=2)
            assert best is not None
            assert len(study.study.trials) == 12

    asyncio.run(main())
    assert most == 4


def test_a_call_that_is_cancelled_loses_no_trial() -> None:
    async def main() -> None:
        async with AsyncStudy(JOB) as study:
            asking = asyncio.create_task(study.ask())
            await asyncio.sleep(0)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            begun = asyncio.Event()

            async def forever(x: int) -> float:
                begun.set()
                await asyncio.Event().wait()
                return 0.0

            optimising = asyncio.create_task(study.optimise(forever, parallel=3))
            await begun.wait()
            optimising.cancel()
            with pytest.raises(asyncio.CancelledError):
                await optimising
            assert study.study.pending == []
            await study.optimise(lambda x: float(x))
            assert [trial.state.ended for trial in study.study.trials] == [True] * 12

    asyncio.run(main())


def test_wrong_uses_say_what_is_wrong() -> None:
    async def main() -> None:
        study = AsyncStudy(JOB)
        with pytest.raises(ConfigurationError, match="async with AsyncStudy"):
            await study.ask()
        async with study:
            for parallel in (0, True, 1.5, "2"):
                with pytest.raises(ConfigurationError, match="no number of calls"):
                    await study.optimise(lambda x: 1.0, parallel=parallel)  # type: ignore[arg-type]

    asyncio.run(main())


def test_what_is_enqueued_comes_first() -> None:
    async def main() -> None:
        async with AsyncStudy(JOB) as study:
            wanted = await study.enqueue({"x": 7})
            (asked,) = await study.ask()
            assert asked.configuration == wanted.configuration
            await study.tell(asked, runtime=1.0, metrics={"value": 1.0})

    asyncio.run(main())
