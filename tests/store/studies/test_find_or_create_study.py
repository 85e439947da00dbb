"""Of several processes that begin the same search at the same moment, one makes its study."""

from __future__ import annotations

import contextlib
import queue
import threading

import pytest

from tradewind import plugins
from tradewind.store.base import Store, StudyRow
from tradewind.testing.stores import study_row

Answer = tuple[StudyRow, bool] | BaseException


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_of_several_who_ask_at_the_same_moment_one_makes_the_study(kind: str, request: pytest.FixtureRequest) -> None:
    url = str(request.getfixturevalue(f"{kind}_url"))
    with contextlib.ExitStack() as stack:
        # Each with a store of its own, as different processes have.
        stores = [stack.enter_context(contextlib.closing(plugins.create("store", "sql", {}, url=url))) for _ in "1234"]
        for name in ("a", "b", "c"):
            given = _ask(stores, name)
            found = [one for one in given if isinstance(one, tuple)]
            assert len(found) == len(stores), given
            assert len({study.id for study, _ in found}) == len(stores[0].find_studies(name)) == 1
            assert sorted(new for _, new in found) == [False, False, False, True]
        assert stores[0].find_or_create_study(study_row("a", problem_key="f" * 16))[1], "it is another problem"
        newest = stores[0].create_study(study_row("a"))
        assert stores[1].find_or_create_study(study_row("a", seed=8)) == (newest, False)


def _ask(stores: list[Store], name: str) -> list[Answer]:
    barrier, answers = threading.Barrier(len(stores)), queue.Queue[Answer]()

    def ask(store: Store) -> None:
        barrier.wait()
        try:
            answers.put(store.find_or_create_study(study_row(name)))
        except BaseException as error:  # so that the test fails, and does not wait
            answers.put(error)

    threads = [threading.Thread(target=ask, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    given = [answers.get(timeout=60) for _ in threads]
    for thread in threads:
        thread.join()
    return given
