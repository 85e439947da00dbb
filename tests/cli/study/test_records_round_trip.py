"""A study that goes out as records, comes into an empty store, and is replayed there."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tradewind.cli.app import run
from tradewind.cli.common import open_store
from tradewind.store.base import StudyRow

TABLE = """\
type,n,level,seconds,ok,loss
c5.large,1,low,610,yes,0.31
c5.large,2,low,330,yes,0.31
c5.xlarge,1,low,320,yes,0.30
c5.xlarge,2,low,170,yes,0.30
c5.large,1,high,910,yes,0.2
c5.large,2,high,490,yes,0.2
c5.xlarge,1,high,5,no,
c5.xlarge,2,high,250,yes,0.21
"""
JOB = """
name: recorded
job: {command: [train]}
space:
  instance: {provider: aws, region: us-east-1, types: [c5.large, c5.xlarge], spot: false}
  nodes: [1, 2]
  level: [low, high]
objective: {minimise: cost}
constraints: {deadline: 10m}
budget: {dollars: $5}
deploy:
  runner:
    use: replay
    file: runs.csv
    columns: {instance_type: type, nodes: n}
    time: seconds
    status: ok
    ok: ["yes"]
    metrics: [loss]
  billing: {granularity: 1m, setup: 40s}
"""
AGAIN = """
deploy:
  runner: {use: replay, records: records.jsonl}
  billing: {granularity: 1m, setup: 40s}
"""
PROGRAM = """
name: program
job:
  command:
  - sh
  - -c
  - 'echo "score={{ x }} speed: $((20 - {{ x }} * {{ x }}))"; echo "token $TOKEN" >&2; test {{ x }} != 3'
  secrets: {TOKEN: "env:MY_TOKEN"}
space:
  instance: {provider: local, vcpu: 1, limit: 1}
  x: 1..4
objective: {maximise: score}
interpret: [exit_code, {use: regex, patterns: 'score=(?P<score>[0-9]+)'}]
searcher: {use: exhaustive, order: declared}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_TOKEN", "hunter2secret")
    (tmp_path / "runs.csv").write_text(TABLE)
    (tmp_path / "job.yaml").write_text(JOB)
    go_to(tmp_path, monkeypatch, "one")
    return tmp_path


def go_to(folder: Path, monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    """As if on another machine: another data folder with an empty store."""
    monkeypatch.setenv("TRADEWIND_HOME", str(folder / machine))


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert run(list(words)) == code, capsys.readouterr().err
    out = capsys.readouterr()
    return out.out if code == 0 else out.err


def report(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """The report as text and as JSON, without the moments and the number of the study."""
    text = re.sub(r"\(id \d+\)", "(id)", said(capsys, "report", *words))
    document = json.loads(said(capsys, "report", *words, "--json"))
    best = document["best"]
    for part, key in ((document, "id"), (document, "created"), *((best, key) for key in DATES)):
        part.pop(key)
    return text, document


DATES = ("created", "started", "ended")


def exported(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    """All trials without their moments."""
    trials: list[dict[str, Any]] = json.loads(said(capsys, "export", *words, "--format", "json"))
    return [{key: value for key, value in trial.items() if key not in DATES} for trial in trials]


def test_export_import_and_replay_give_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "tune", "job.yaml", "-q")
    before = report(capsys, "recorded"), exported(capsys, "recorded"), said(capsys, "recommend", "job.yaml")
    states = {trial["state"] for trial in before[1]}
    assert {"succeeded", "aborted"} <= states, "cut runs are replayed, too"
    said(capsys, "export", "recorded", "--format", "records", "-o", "records.jsonl")
    go_to(folder, monkeypatch, "two")
    assert said(capsys, "import", "records.jsonl").startswith("took ")
    assert (report(capsys, "recorded"), exported(capsys, "recorded")) == before[:2]
    assert said(capsys, "recommend", "job.yaml") == before[2]
    head, _, _ = JOB.partition("deploy:")
    (folder / "again.yaml").write_text(head + AGAIN)
    said(capsys, "tune", "again.yaml", "-q")
    assert (report(capsys, "again.yaml"), exported(capsys, "again.yaml")) == before[:2]
    assert said(capsys, "recommend", "again.yaml").replace("again.yaml", "job.yaml") == before[2]
    assert said(capsys, "recommend", "job.yaml") == before[2], "a replay is no second experience"
    # Whoever goes on with the job finds the study.
    assert "Resuming recorded" in said(capsys, "tune", "job.yaml")


def test_the_job_comes_out_of_the_records(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "tune", "job.yaml", "-q")
    said(capsys, "export", "--format", "records", "-o", "records.jsonl")
    go_to(folder, monkeypatch, "two")
    said(capsys, "import", "records.jsonl", "--job", "elsewhere")
    assert (folder / "elsewhere/runs.csv").read_text() == TABLE
    assert "Resuming recorded" in said(capsys, "tune", "elsewhere/job.yaml")
    (folder / "runs.csv").unlink()
    said(capsys, "tune", "elsewhere/job.yaml", "--fresh", "-q")
    assert len(exported(capsys, "recorded")) > 2
    again = said(capsys, "import", "records.jsonl", "--job", "elsewhere", code=3)
    assert "job.yaml is there already" in again


def studies() -> list[StudyRow]:
    with contextlib.closing(open_store()) as store:
        return store.find_studies()


@pytest.mark.slow
def test_interpreters_read_the_logs_that_came_along(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "program.yaml").write_text(PROGRAM)
    said(capsys, "tune", "program.yaml", "-q")
    before = exported(capsys, "program")
    assert [trial["objective"] for trial in before] == [1, 2, None, 4]
    for name, words in (("logs.jsonl", ["--with-logs"]), ("plain.jsonl", [])):
        said(capsys, "export", "program", "--format", "records", "-o", name, *words)
        assert "hunter2secret" not in (folder / name).read_text()
    go_to(folder, monkeypatch, "two")
    said(capsys, "import", "logs.jsonl")
    assert said(capsys, "logs", "program", "0", "--stderr") == "token ***\n"
    runner = "deploy: {runner: {use: replay, records: %s}}\n"
    for name in ("logs", "plain"):
        (folder / f"{name}.yaml").write_text(PROGRAM + runner % f"{name}.jsonl")
        said(capsys, "tune", f"{name}.yaml", "-q")
        assert exported(capsys, f"{name}.yaml") == before, f"{name}: the trials of the records"
    other = PROGRAM.replace("score=(?P<score>", "speed: (?P<speed>").replace("maximise: score", "maximise: speed")
    (folder / "logs2.yaml").write_text(other + runner % "logs.jsonl")
    said(capsys, "tune", "logs2.yaml", "-q")
    assert [trial["objective"] for trial in exported(capsys, "logs2.yaml")] == [19, 16, None, 4]
    (folder / "plain2.yaml").write_text(other + runner % "plain.jsonl")
    assert "has no metric 'speed'" in said(capsys, "tune", "plain2.yaml", "-q", code=6)


@pytest.mark.slow
def test_logs_are_interpreted_anew_without_a_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "program.yaml").write_text(PROGRAM)
    said(capsys, "tune", "program.yaml", "-q")
    said(capsys, "export", "program", "--format", "records", "-o", "plain.jsonl")
    said(capsys, "export", "program", "--format", "records", "--with-logs", "-o", "logs.jsonl")
    assert "0 of 4 trials change" in said(capsys, "interpret", "program")
    go_to(folder, monkeypatch, "two")
    said(capsys, "import", "logs.jsonl")
    (folder / "new.yaml").write_text(
        PROGRAM.replace("score=(?P<score>", "speed: (?P<speed>").replace("maximise: score", "maximise: speed")
    )
    shown = said(capsys, "interpret", "program", "--with", "new.yaml")
    assert "trial 0: score 1 → -; speed - → 19" in shown
    assert "3 of 4 trials change" in shown
    assert "The best is trial 0 (instance=local.c1 x=1, speed 19); it was trial 3" in shown
    assert exported(capsys, "program")[0]["objective"] == 1, "nothing was stored"
    document = json.loads(said(capsys, "interpret", "program", "--with", "new.yaml", "--write", "--json"))
    assert (document["best_before"], document["best"], document["stored"]) == (3, 0, True)
    assert [one["number"] for one in document["changed"]] == [0, 1, 3]
    assert [trial["objective"] for trial in exported(capsys, "program")] == [19, 16, None, 4]
    records = said(capsys, "export", "program", "--format", "records").splitlines()
    (reading,) = json.loads(records[1])["observation"]["earlier_readings"]
    assert (reading["objective"], reading["metrics"]["score"]) == (1, 1)
    assert "Resuming program after 4 trials" in said(capsys, "tune", "new.yaml")
    (folder / "other.yaml").write_text(PROGRAM.replace("x: 1..4", "x: 1..5"))
    wrong = said(capsys, "interpret", "program", "--with", "other.yaml", code=3)
    assert "other.yaml is another job than that of study program: space" in wrong


@pytest.mark.slow
def test_trials_without_logs_are_not_made_failed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "program.yaml").write_text(PROGRAM)
    said(capsys, "tune", "program.yaml", "-q")
    said(capsys, "export", "program", "--format", "records", "-o", "plain.jsonl")
    (folder / "one").rename(folder / "gone")
    go_to(folder, monkeypatch, "two")
    said(capsys, "import", "plain.jsonl")
    (folder / "new.yaml").write_text(
        PROGRAM.replace("score=(?P<score>", "speed: (?P<speed>").replace("maximise: score", "maximise: speed")
    )
    assert "The logs of 3 trials are not here" in said(capsys, "interpret", "program", "--with", "new.yaml")
    refused = said(capsys, "interpret", "program", "--with", "new.yaml", "--write", code=3)
    assert "the logs of 3 trials (0, 1, 3) are not here" in refused
    assert [trial["objective"] for trial in exported(capsys, "program")] == [1, 2, None, 4]
