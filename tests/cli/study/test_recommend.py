from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tradewind.cli.app import run

pytestmark = pytest.mark.slow

JOB = """
name: sized
job:
  command: [sh, -c, 'sleep {{ 0.5 * size / workers }}']
  parameters: {size: 2, kind: plain}
space:
  instance: {provider: local, vcpu: 1, limit: 1}
  workers: 1..4
objective: {minimise: runtime}
constraints: {deadline: 10s}
budget: {trials: 4}
deploy: {billing: {granularity: 10ms}}
searcher: random
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def recommended(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = run(["recommend", "job.yaml", "--json", *words])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else out.err


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two searches, of sizes 2 and 8."""
    folder = tmp_path_factory.mktemp("searched")
    (folder / "job.yaml").write_text(JOB)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRADEWIND_HOME", str(folder / "home"))
        patch.chdir(folder)
        for size in ("2", "8"):
            assert run(["tune", "job.yaml", "--quiet", "--json", "--param", f"size={size}"]) == 0
    return folder / "home"


@pytest.fixture
def searched(history: Path, job: Path) -> Path:
    """The job, with a copy of that home."""
    shutil.copytree(history, os.environ["TRADEWIND_HOME"])
    return job


def test_it_answers_for_a_size_that_was_never_run(searched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = recommended(capsys, "--param", "size=4")
    assert code == 0
    assert (found["job"], found["parameters"]) == ("sized", {"size": 4, "kind": "plain"})
    assert found["searcher"] == "done", "the job's own searcher cannot recommend"
    assert found["runs"] == 8
    assert [one["configuration"]["workers"] for one in found["recommendations"]] == [4, 3, 2, 1]
    first = found["recommendations"][0]
    assert first["runtime_low"] < first["runtime"] < first["runtime_high"]
    assert first["cost_low"] <= first["cost"] <= first["cost_high"]
    assert 0.5 < first["probability_feasible"] <= 1.0
    assert first["reason"] == "run 2x with other job parameters"
    assert any("0 of them with these job parameters" in line for line in found["basis"])


def test_nothing_is_run_and_nothing_is_stored(searched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def studies() -> str:
        assert run(["status", "--json"]) == 0
        return capsys.readouterr().out

    before = studies()
    assert recommended(capsys, "--top", "1")[0] == 0
    assert studies() == before


def test_the_table_says_why(searched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recommend", "job.yaml", "--top", "2", "--deadline", "10ms"]) == 0
    out = capsys.readouterr().out
    assert "sized with size=2, kind=plain: predicted, not run" in out
    assert "8 runs of sized, 4 of them with these job parameters" in out
    assert "None is likely to keep deadline and bounds" in out
    assert out.count("instance=local") == 2


def test_single_runs_count_as_history(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--set", "instance=local.c1", "--json", "--param", "size=1"]
    for workers in ("1", "2"):
        assert run(["run", "job.yaml", "--set", f"workers={workers}", *words]) == 0
    capsys.readouterr()
    code, found = recommended(capsys, "--param", "size=1")
    assert (code, found["runs"]) == (0, 2)


def test_no_history_has_an_exit_code_of_its_own(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = recommended(capsys)
    assert code == 15
    assert text.count("\n") == 1
    assert "tradewind tune job.yaml" in text


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("1..4", "none of the 4 runs of sized can be answered from: of 4 runs, none came to its end"),
        ("[1]", "the only run of sized cannot be answered from: of 1 run, none came to its end"),
    ],
    ids=("several", "one"),
)
def test_runs_that_all_failed_are_no_ground(
    job: Path, capsys: pytest.CaptureFixture[str], values: str, said: str
) -> None:
    job.write_text(JOB.replace("sleep", "exit 3; sleep").replace("1..4", values))
    assert run(["tune", "job.yaml", "--quiet", "--json"]) == 6
    capsys.readouterr()
    code, text = recommended(capsys)
    assert code == 15
    assert said in text


def test_runs_of_another_space_are_no_ground(searched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    searched.write_text(JOB.replace("1..4", "[8, 16]"))
    code, text = recommended(capsys)
    assert code == 15
    assert "8 runs left out" in text


def test_a_searcher_that_recommends_is_asked_itself(searched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    searched.write_text(JOB.replace("searcher: random", "searcher: {use: done, terms: 50}"))
    assert recommended(capsys)[1]["searcher"] == "done"


def test_a_parameter_reaches_the_program_as_it_was_written(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("sleep {{ 0.5 * size / workers }}", "test {{ size }} = 40000 && test {{ kind }} = 7"))
    words = ["--set", "instance=local.c1", "--set", "workers=1", "--param", "size=40000", "-p", "kind=7"]
    assert run(["run", "job.yaml", *words]) == 0


SCORED = JOB.replace("sleep {{ 0.5 * size / workers }}", "echo score={{ workers * 10 }}").replace(
    "{minimise: runtime}", "{maximise: score}\ninterpret: [{use: regex, patterns: 'score=(?P<score>[0-9]+)'}]"
)


def test_a_metric_that_is_ranked_by_is_shown_with_its_range(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(SCORED)
    assert run(["tune", "job.yaml", "--quiet", "--json"]) == 0
    capsys.readouterr()
    code, found = recommended(capsys)
    assert (code, found["objective"]) == (0, {"metric": "score", "goal": "maximise"})
    expected = [one["objective"] for one in found["recommendations"]]
    assert expected == sorted(expected, reverse=True)
    assert expected[0] == pytest.approx(40, rel=0.3)
    assert all(one["objective_low"] < one["objective"] < one["objective_high"] for one in found["recommendations"])
    assert run(["recommend", "job.yaml"]) == 0
    heading = capsys.readouterr().out.splitlines()[1]
    assert heading.split()[:3] == ["configuration", "score", "90"]


def test_a_metric_that_no_run_said_is_said_to_be_unknown(searched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    searched.write_text(SCORED)
    code, found = recommended(capsys)
    assert (code, {one["objective"] for one in found["recommendations"]}) == (0, {None})
    assert "no run says its score yet: the quickest come first" in found["basis"]


def test_time_and_cost_have_their_columns_anyway(searched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert recommended(capsys)[1]["recommendations"][0]["objective"] is None


def test_recorded_runs_of_several_sizes_tell_what_the_size_does(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{size},{workers},{10 * size / workers}" for size in (2, 4, 8) for workers in (1, 2, 3, 4)]
    job.with_name("runs.csv").write_text("\n".join(["size,workers,s", *rows]) + "\n")
    recorded = "deploy: {runner: {use: replay, file: runs.csv, time: s}, billing"
    text = JOB.replace("deploy: {billing", recorded).replace("deadline: 10s", "deadline: 10m")
    job.write_text(text)
    for size in ("2", "8"):
        assert run(["tune", "job.yaml", "--quiet", "--param", f"size={size}"]) == 0
    capsys.readouterr()
    code, found = recommended(capsys, "--param", "size=4")
    first = found["recommendations"][0]
    assert (code, first["configuration"]["workers"]) == (0, 4)
    assert first["runtime"] == pytest.approx(10.0, rel=0.1), "as it was recorded with size 4, which no search looked up"
    assert run(["tune", "job.yaml", "--quiet", "--param", "size=5"]) == 3
    assert "no run was recorded with size=5 (size is 2, 4, 8 there" in capsys.readouterr().err


def test_it_says_what_is_worth_a_try(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for size in ("2", "4"):
        words = ["--param", f"size={size}", "--set", "instance=local.c1", "--set", "workers=1", "--json"]
        assert run(["run", "job.yaml", *words]) == 0
    capsys.readouterr()
    assert run(["recommend", "job.yaml", "--param", "size=2"]) == 0
    command = "tradewind run job.yaml --param size=2 --set instance=local.c1 --set workers=4"
    assert f"Try this, not yet known: {command}" in capsys.readouterr().out
    assert recommended(capsys, "--param", "size=2")[1]["try"]["configuration"]["workers"] == 4


def test_what_could_be_anything_is_not_known_yet(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "job.yaml", "--set", "instance=local.c1", "--set", "workers=1", "--json"]) == 0
    capsys.readouterr()
    far = ["--param", "size=200000000", "--deadline", "9999d"]
    assert run(["recommend", "job.yaml", *far]) == 0
    assert "not known yet" in capsys.readouterr().out
    first = recommended(capsys, *far)[1]["recommendations"][0]
    assert (first["known"], first["runtime"], first["cost_high"]) == (False, None, None)
