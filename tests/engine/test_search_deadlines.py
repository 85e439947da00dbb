"""On a clock that jumps, a run is ended when it is due, and not when somebody happens to look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tradewind import plugins
from tradewind.engine.search_builder import build_search, find_or_create_study
from tradewind.engine.state_machine.snapshot import SearchSnapshot
from tradewind.problem import Trial
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.store.base import Store
from tradewind.utils.paths import data_folder, store_url

JOB = """
name: due
job: {command: [unused]}
space:
  instance: {provider: aws, region: us-east-1, types: [m7i.xlarge, m7i.2xlarge, m7i.4xlarge]}
objective: {minimise: cost}
searcher: {use: exhaustive, order: declared}
deploy:
  runner: {use: replay, file: runs.csv, columns: {instance: instance_type}}
"""


@pytest.fixture
def store() -> Iterator[Store]:
    opened: Store = plugins.create("store", "sql", {}, url=store_url())
    yield opened
    opened.close()


def trials(text: str, base: Path, store: Store, seconds: tuple[int, int, int]) -> tuple[list[Trial], int]:
    """The trials of a search, by number, and how often it was looked at."""
    types = ("m7i.xlarge", "m7i.2xlarge", "m7i.4xlarge")
    rows = [f"{kind},{time}" for kind, time in zip(types, seconds, strict=True)]
    (base / "runs.csv").write_text("\n".join(["instance_type,runtime", *rows]) + "\n")
    spec = parse_spec(text, file="job.yaml", base=base)
    study, _ = find_or_create_study(spec, store)
    seen: list[SearchSnapshot] = []
    build_search(spec, study, store, data_folder(), observer=seen.append).run()
    return store.trials(study.id), len(seen)


def test_a_run_that_a_new_best_has_made_hopeless_is_ended_at_once(tmp_path: Path, store: Store) -> None:
    ended, looks = trials(JOB + "parallel: 2\n", tmp_path, store, (5000, 200, 100))
    seen = ended[0].observation
    assert seen is not None
    assert "could no longer cost less" in seen.reason
    # At $0.20 an hour it costs after 400 s what the others did.
    assert seen.runtime == pytest.approx(400.0, abs=2.0)
    assert looks < 50


def test_the_time_budget_ends_runs_when_it_is_used_up(tmp_path: Path, store: Store) -> None:
    given = JOB + "  provisioner: {use: simulated, boot: 600}\nbudget: {hours: 0.5}\n"
    ended, looks = trials(given, tmp_path, store, (5000, 200, 100))
    seen = ended[0].observation
    assert seen is not None
    assert seen.reason == "the time budget was used up"
    assert seen.runtime == pytest.approx(1200.0, abs=2.0)
    assert looks < 50


def test_the_money_ends_a_run_whose_machines_came_up_slowly_when_it_is_used_up(tmp_path: Path, store: Store) -> None:
    given = JOB + "  provisioner: {use: simulated, boot: 600}\nbudget: {dollars: 0.05}\n"
    ended, looks = trials(given, tmp_path, store, (5000, 200, 100))
    assert len(ended) == 1
    assert "the budget has no more" in getattr(ended[0].observation, "reason", "")
    assert ended[0].spent == pytest.approx(0.05, abs=0.0005)
    assert looks < 50


def test_several_runs_share_what_is_free(tmp_path: Path, store: Store) -> None:
    given = JOB + "  provisioner: {use: simulated, boot: 600}\nbudget: {dollars: 0.5}\nparallel: 3\n"
    ended, looks = trials(given, tmp_path, store, (5000, 5000, 5000))
    assert sum(trial.spent for trial in ended) == pytest.approx(0.5, abs=0.003)
    assert looks < 300
