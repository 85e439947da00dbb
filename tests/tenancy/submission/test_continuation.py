"""Searches that are over go on, by ``submit --continue``, ``resume`` and ``tune``: one name is one study."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import tradewind
from tradewind import Study
from tradewind.cli.app import run
from tradewind.engine.search_builder import new_study, study_document
from tradewind.errors import InputError, QuotaError, StudyBusyError, StudyNotFoundError
from tradewind.problem import Offer, Proposal, Run, RunState, Trial, TrialState
from tradewind.problem.configuration import Configuration
from tradewind.problem.job_spec.spec import load_spec
from tradewind.store.base import Change, Store, store_at, this_process
from tradewind.store.clusters.cluster_store import ClusterStore, JobRow, JobState, TenantRow
from tradewind.tenancy.submission import search_submission
from tradewind.tenancy.submission.continuation import continue_search, resume_search, study_to_continue
from tradewind.utils.paths import store_url

JOB = """
name: train
job:
  command: [sh, -c, 'echo $TRADEWIND_RUN_ID >> {marks}; echo "{{\\"loss\\": $TRADEWIND_PARAM_X}}"']
space: {{x: 1..40}}
objective: {{minimise: loss}}
interpret: [{{use: json_lines, file: stdout}}]
budget: {{trials: 3, dollars: 2}}
searcher: random
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    made = tmp_path / "work" / "job.yaml"
    made.write_text(JOB.format(marks=tmp_path / "ran"))
    return made


@pytest.fixture
def studies(file: Path) -> Iterator[Store]:
    with closing(store_at(store_url())) as store:
        yield store


@pytest.fixture
def queue(studies: Store) -> Iterator[ClusterStore]:
    with closing(ClusterStore(store_url())) as store:
        yield store


def _study(studies: Store, file: Path, name: str, trials: int = 3, **changes: Any) -> int:
    """A study with some ended trials."""
    study = studies.create_study(new_study(load_spec(file), name=name))
    made = [
        Trial(n, Proposal(Configuration({"x": n + 1})), Offer("local", "m", 1, 1, 0.1), TrialState.FAILED, f"k{n}")
        for n in range(trials)
    ]
    studies.write(study.id, Change(trials=made, study={"state": "finished", **changes}))
    return study.id


def _job(queue: ClusterStore, file: Path, study: int | None, state: JobState, tenant: str = "default") -> JobRow:
    return queue.submit(JobRow(0, tenant, "train", study_document(load_spec(file)), study_id=study, state=state))


@pytest.mark.parametrize(
    ("budget", "words"),
    [({"trials": 3}, "3 trials of 3"), ({"trials": 9, "hours": 1}, "1h 00m of 1h 00m")],
)
def test_what_is_used_up_must_be_extended(
    studies: Store, queue: ClusterStore, file: Path, budget: dict[str, Any], words: str
) -> None:
    job = _job(queue, file, _study(studies, file, "default/train", elapsed=3600.0), "done")
    with pytest.raises(InputError, match=rf"nothing is left of the budget of study 1 .*{words}.*--trials or --budget"):
        resume_search(queue, studies, job, budget)
    assert queue.job(job.id) == job
    again = resume_search(queue, studies, job, {"trials": 4})
    assert (again.id, again.state, again.reason, again.ended) == (job.id, "queued", "", None)
    assert again.spec["budget"] == {"trials": 4, "dollars": 2.0, "hours": None}


@pytest.mark.parametrize("state", [TrialState.RUNNING, TrialState.PENDING])
def test_a_trial_that_was_interrupted_is_left_of_the_budget(
    studies: Store, queue: ClusterStore, file: Path, state: TrialState
) -> None:
    """The last one of a search that was killed: no command went on with it but tune."""
    study = _study(studies, file, "train")
    last = Trial(3, Proposal(Configuration({"x": 9})), Offer("local", "m", 1, 1, 0.1), state, "k3")
    studies.write(study, Change(trials=[last]))
    assert study_to_continue(studies, load_spec(file, {"budget.trials": 4}), "default").id == study
    job = _job(queue, file, study, "cancelled")
    assert resume_search(queue, studies, job, {"trials": 4}).state == "queued"


def test_what_a_rule_would_end_again_at_once_is_refused(studies: Store, queue: ClusterStore, file: Path) -> None:
    """A search of which all trials had failed was queued, and ended as failed without a run of the mended program."""
    study = _study(studies, file, "train", trials=8)
    job = _job(queue, file, study, "failed")
    with pytest.raises(InputError, match=r"study 1 \(train\) would end again at once: the first 8 trials all failed"):
        resume_search(queue, studies, job, {"trials": 20})
    assert queue.job(job.id) == job
    more = {"budget.trials": 20}
    with pytest.raises(InputError, match="without --continue, or with another rule under stop:"):
        study_to_continue(studies, load_spec(file, more), "default")
    file.write_text(file.read_text() + "stop: {all_failed: 12}\n")
    assert study_to_continue(studies, load_spec(file, more), "default").id == study


def test_the_study_that_a_quick_cluster_makes_is_not_told_as_an_earlier_one(
    studies: Store, queue: ClusterStore, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add = search_submission.add_search

    def added(*words: Any, **options: Any) -> JobRow:
        row = add(*words, **options)
        _study(studies, file, "default/train", trials=1)
        return row

    monkeypatch.setattr(search_submission, "add_search", added)
    assert run(["submit", str(file)]) == 0
    assert "begins anew" not in capsys.readouterr().out
    assert run(["submit", str(file)]) == 0
    assert (
        "It begins anew; --continue goes on with study 1 (default/train), which has had 1 trial."
        in capsys.readouterr().out
    )


def test_a_searcher_that_cannot_search_is_refused_before_it_waits_in_the_queue(
    queue: ClusterStore, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["submit", str(file), "--searcher", "hyperband"]) == 3
    assert "a budget of 3 trials is too small for the searcher hyperband" in capsys.readouterr().err
    assert queue.jobs() == []


def test_a_study_of_tune_is_that_of_the_default_tenant_and_of_no_other(
    studies: Store, queue: ClusterStore, file: Path
) -> None:
    spec = load_spec(file, {"budget.trials": 9})
    mine = _study(studies, file, "train")
    assert study_to_continue(studies, spec, "default").id == mine
    row = continue_search(queue, spec, JobRow(0, "default", "train", {}), studies.study(mine))
    assert (row.study_id, row.state) == (mine, "queued")
    with pytest.raises(StudyNotFoundError, match="no study physics/train"):
        study_to_continue(studies, spec, "physics")
    with pytest.raises(StudyBusyError, match="that of search 1, which is not over: queued"):
        continue_search(queue, spec, JobRow(0, "default", "train", {}), studies.study(mine))
    newer = _study(studies, file, "default/train")
    assert study_to_continue(studies, spec, "default").id == newer


def test_what_another_process_runs_or_is_of_another_problem_is_refused(
    studies: Store, queue: ClusterStore, file: Path
) -> None:
    study = _study(studies, file, "default/train")
    job = _job(queue, file, study, "cancelled")
    other = load_spec(file, {"budget.trials": 9, "objective.minimise": "other"})
    with pytest.raises(StudyNotFoundError, match=r"study 1 .*is of another problem: objective differs"):
        study_to_continue(studies, other, "default")
    token = studies.hold(study, this_process(), 60.0)
    for attempt in (
        lambda: study_to_continue(studies, load_spec(file, {"budget.trials": 9}), "default"),
        lambda: resume_search(queue, studies, job, {"trials": 9}),
    ):
        with pytest.raises(StudyBusyError, match="is being run by process"):
            attempt()
    queue.change_job(job.id, state="running")
    with pytest.raises(StudyBusyError, match=r"that of search 1, which is not over: running .*cancel 1 ends it"):
        study_to_continue(studies, load_spec(file, {"budget.trials": 9}), "default", queue)
    queue.change_job(job.id, state="cancelled")
    studies.release(study, token)
    assert resume_search(queue, studies, job, {"trials": 9}).state == "queued"


def test_a_continued_search_counts_once_in_its_tenants_quota(studies: Store, queue: ClusterStore, file: Path) -> None:
    queue.set_tenant(TenantRow("default", quota={"dollars": 2.5}))
    job = _job(queue, file, _study(studies, file, "default/train"), "done")
    assert resume_search(queue, studies, job, {"trials": 4}).state == "queued"
    queue.change_job(job.id, state="done")
    with pytest.raises(QuotaError, match="less than the budget"):
        resume_search(queue, studies, queue.job(job.id), {"dollars": 3, "trials": 4})
    assert queue.job(job.id).state == "done"
    never_begun = _job(queue, file, None, "cancelled")
    assert resume_search(queue, studies, never_begun, {"dollars": 0.1}).state == "queued"


@pytest.mark.parametrize("state", ["queued", "running", "paused"])
def test_tune_leaves_a_study_of_the_queue_alone(
    studies: Store, queue: ClusterStore, file: Path, state: JobState, capsys: pytest.CaptureFixture[str]
) -> None:
    job = _job(queue, file, None, state)
    assert run(["tune", str(file), "-q"]) != 0
    assert f"search {job.id} of the name 'train' waits on a cluster" in capsys.readouterr().err
    queue.change_job(job.id, study_id=_study(studies, file, "default/train"))
    assert run(["tune", str(file), "--trials", "9", "-q"]) != 0
    assert f"the study 'default/train' (id 1) is that of search {job.id}" in capsys.readouterr().err
    with pytest.raises(StudyBusyError, match="--fresh begins another study"):
        Study(file)
    queue.change_job(job.id, state="cancelled")
    with Study(file) as study:
        assert len(study.trials) == 3


def test_cancel_ends_a_search_at_once_where_no_cluster_runs_and_nothing_is_left_running(
    studies: Store, queue: ClusterStore, file: Path
) -> None:
    study = _study(studies, file, "default/train")
    job = _job(queue, file, study, "queued")
    running = Run("r", 0, state=RunState.EXECUTING)
    studies.write(study, Change(runs=[running]))
    assert run(["cancel", str(job.id)]) == 0
    assert (queue.job(job.id).state, queue.job(job.id).wanted) == ("queued", "cancel"), "its run has to be ended"
    studies.write(study, Change(runs=[Run("r", 0, state=RunState.FAILED)]))
    assert run(["cancel", str(job.id)]) == 0
    assert queue.job(job.id).state == "cancelled"


def test_the_budget_of_a_search_that_is_not_over_stays(
    queue: ClusterStore, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = _job(queue, file, None, "paused")
    assert run(["resume", str(job.id), "--trials", "9"]) != 0
    assert "is not over: its budget stays" in capsys.readouterr().err
    assert run(["resume", str(job.id)]) == 0
    assert queue.job(job.id).wanted == "run"


@pytest.mark.slow
def test_nothing_that_was_paid_for_runs_again(
    studies: Store, queue: ClusterStore, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ["cluster", "start", "--until-empty"]
    assert run(["submit", "job.yaml"]) == 0
    assert run(start) == 0
    assert run(["submit", "job.yaml"]) == 0
    assert "--continue goes on with study 1 (default/train), which has had 3 trials" in capsys.readouterr().out
    assert run(["submit", "job.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == 3
    assert run(["cancel", "2"]) == run(["cancel", "3"]) == 0
    assert run(["resume", "1", "--trials", "5"]) == 0
    assert run(start) == 0
    assert run(["tune", "job.yaml", "--trials", "7", "-q", "--json"]) == 0
    assert tradewind.submit("job.yaml", trials=9, go_on=True).id == 1
    assert run(start) == 0
    (study,) = studies.find_studies()
    assert study.spec["budget"]["trials"] == 9
    assert len(studies.trials(study.id)) == 9
    ran = (tmp_path / "ran").read_text().split()
    assert sorted(ran) == sorted({run.run_id for run in studies.runs(study.id)})
    assert [(row.id, row.state) for row in queue.jobs()] == [(3, "cancelled"), (2, "cancelled"), (1, "done")]


def test_of_two_that_go_on_at_the_same_moment_one_is_refused(
    studies: Store, queue: ClusterStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both saw a study that nobody had: two searches of the queue ran it, and took it from each other."""
    spec, wanted = load_spec(file, {"budget.trials": 9}), JobRow(0, "default", "train", {})
    study = studies.study(_study(studies, file, "train"))
    monkeypatch.setattr(ClusterStore, "searches_of", lambda *_: [])
    first = continue_search(queue, spec, wanted, study)
    with pytest.raises(StudyBusyError, match=r"study 1 is that of search 1 \(train\), which is not over: queued"):
        continue_search(queue, spec, wanted, study)
    queue.change_job(first.id, state="done")
    before = queue.job(first.id)
    monkeypatch.undo()
    monkeypatch.setattr(ClusterStore, "searches_of", lambda *_: [before])
    assert continue_search(queue, spec, wanted, study).id == first.id
    with pytest.raises(StudyBusyError, match=r"search 1 .train. is not over: queued"):
        continue_search(queue, spec, wanted, study)
    assert len(queue.jobs()) == 1
