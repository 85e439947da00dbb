"""Which study a word of the command line means."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.engine.state_machine.test_trial_history import tried

from tradewind.cli.common import find_studies, find_study, open_store
from tradewind.engine.search_builder import new_study
from tradewind.errors import StoreReadOnlyError, StudyNotFoundError
from tradewind.problem.job_spec.spec import load_spec
from tradewind.store.base import Change, Store

JOB = """
name: sort
job: {{command: "sort -n {{{{ level }}}}"}}
space: {{instance: {{provider: local}}, level: {levels}}}
objective: {{minimise: cost}}
"""


def job(folder: Path, levels: str = "[1, 2]") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "job.yaml"
    path.write_text(JOB.format(levels=levels))
    return path


def stored(store: Store, path: Path, name: str | None = None, suffix: str = "") -> int:
    return store.create_study(new_study(load_spec(path), name=name, suffix=suffix)).id


def test_jobs_of_the_same_name_are_kept_apart_by_their_files(tmp_path: Path) -> None:
    first, second = job(tmp_path / "a"), job(tmp_path / "b", "[1, 2, 3]")
    store = open_store()
    mine = stored(store, first)
    with pytest.raises(StudyNotFoundError, match=f"'sort' of study {mine} is another job"):
        find_study(store, str(second))
    theirs = stored(store, second)
    assert (find_study(store, str(first)).id, find_study(store, str(second)).id) == (mine, theirs)
    assert [study.id for study in find_studies(store, "sort")] == [theirs, mine]
    assert [study.id for study in find_studies(store, str(first))] == [mine]
    store.close()


def test_a_job_finds_its_study_after_it_was_edited_or_moved(tmp_path: Path) -> None:
    path = job(tmp_path / "a")
    store = open_store()
    mine = stored(store, path)
    moved = job(tmp_path / "c")
    assert find_study(store, str(moved)).id == mine, "the problem is the same"
    job(tmp_path / "a", "[7]")
    assert find_study(store, str(path)).id == mine
    store.close()


def test_single_runs_are_found_where_there_is_no_search(tmp_path: Path) -> None:
    path = job(tmp_path / "a")
    store = open_store()
    with pytest.raises(StudyNotFoundError, match=r"no study of .*job.yaml yet \(tradewind tune "):
        find_study(store, str(path))
    runs = stored(store, path, "sort.runs", "/runs")
    assert find_study(store, str(path)).id == runs
    search = stored(store, path)
    assert find_study(store, str(path)).id == search
    store.close()


def test_a_study_without_trials_hides_none_of_the_same_name(tmp_path: Path) -> None:
    store = open_store()
    path = job(tmp_path / "a")
    mine = stored(store, path)
    store.write(mine, Change(trials=[tried(0, 1.0)]))
    empty = stored(store, path)
    assert (find_study(store, "sort").id, find_study(store, str(path)).id) == (mine, mine)
    assert find_study(store, str(empty)).id == empty
    store.hold(empty, "elsewhere:1", 60.0)
    assert find_study(store, "sort").id == empty, "a process has just begun with it"
    store.close()


def test_a_store_is_found_whatever_stands_behind_its_address(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tradewind.db'}"
    with pytest.raises(StudyNotFoundError, match="there is no store"):
        open_store(f"{url}?busy_timeout=5", must_exist=True)
    open_store(url).close()
    open_store(f"{url}?busy_timeout=5", must_exist=True).close()


def test_a_store_in_a_folder_of_another_user_says_that_it_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Path, **_: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "stat", refused)
    with pytest.raises(StoreReadOnlyError, match="Permission denied"):
        open_store(f"sqlite:///{tmp_path / 'tradewind.db'}", must_exist=True)
