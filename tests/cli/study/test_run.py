from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.study.test_tune import JOB, job

from tradewind.cli.app import run

pytestmark = pytest.mark.slow

__all__ = ["job"]


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = run(["run", "job.yaml", "--json", *words])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else out.err


ALL = ("--set", "instance=local.c1", "--set", "x=4")


def test_a_given_configuration_is_run_and_its_objective_printed(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = ran(capsys, *ALL)
    assert (code, result["objective"], result["feasible"]) == (0, 4.0, True)
    assert result["record"]["configuration"]["x"] == 4
    assert result["record"]["runs"][0]["state"] == "done"
    assert result["study"] == "quick.runs"


def test_running_again_really_runs_again(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, first = ran(capsys, *ALL)
    _, second = ran(capsys, *ALL)
    assert first["record"]["runs"][0]["run_id"] != second["record"]["runs"][0]["run_id"]
    assert (job.parent / "started").read_text().count("\n") == 2


def test_the_best_known_configuration_is_the_default_and_can_be_varied(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tune", "job.yaml", "--quiet", "--json"]) == 0
    capsys.readouterr()
    assert ran(capsys)[1]["objective"] == 6.0
    assert ran(capsys, "--set", "x=2")[1]["objective"] == 2.0
    assert run(["tune", "job.yaml", "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"] == {"succeeded": 6}, "single runs are no trials of the search"


def test_a_parameter_with_one_possible_value_need_not_be_given(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = ran(capsys, "--set", "x=3")
    assert (code, result["record"]["configuration"]) == (0, {"instance": "local.c1", "x": 3})


def test_what_is_not_given_is_that_of_the_best_single_run_until_there_is_a_search(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for x in (2, 5, 3):
        assert ran(capsys, "--set", f"x={x}")[0] == 0
    assert ran(capsys)[1]["objective"] == 5.0
    assert run(["tune", "job.yaml", "--quiet", "--json", "--trials", "1"]) == 0
    capsys.readouterr()
    assert ran(capsys)[1]["objective"] == 1.0


def test_without_anything_known_the_values_must_be_given(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, message = ran(capsys)
    assert code == 3
    assert "nothing is known of quick yet" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "x"], "--set 'x' is not NAME=VALUE"),
        (["--set", "y=1"], "there is no parameter 'y'"),
        (["--set", "x=99"], "x='99' is not in the space"),
        (["--set", "instance=local.c1"], "x is missing"),
    ],
)
def test_wrong_values_are_one_line(
    job: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    code, text = ran(capsys, *words)
    assert code == 3
    assert message in text
    assert text.count("\n") == 1


def test_a_failed_program_has_its_exit_code(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace('do: "true"', 'do: "exit 3"'))
    assert run(["run", "job.yaml", *ALL]) == 7
    assert "exited with code 3" in capsys.readouterr().err


def test_a_broken_constraint_has_its_exit_code(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB + "constraints: {metrics: {score: '>= 100'}}\n")
    code, result = ran(capsys, *ALL)
    assert code == 6
    assert result["feasible"] is False
    assert result["objective"] == 4.0


@pytest.mark.slow
def test_several_runs_at_once_do_not_get_in_each_others_way(job: Path) -> None:
    command = [sys.executable, "-m", "tradewind", "run", "job.yaml", "--json", "--set", "instance=local.c1"]
    processes = [
        subprocess.Popen([*command, "--set", f"x={x}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for x in (1, 2, 3)
    ]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [p.returncode for p in processes] == [0, 0, 0], outputs
    assert [json.loads(out)["objective"] for out, _ in outputs] == [1.0, 2.0, 3.0]


def test_earlier_runs_and_the_searchs_limits_do_not_keep_a_run_from_running(job: Path) -> None:
    text = JOB + "stop: [{use: target, value: 3}, {use: all_failed, trials: 1}]\nbudget: {trials: 1, dollars: 1e-4}\n"
    job.write_text(text.replace('do: "true"', 'do: "sleep 0.1; exit 3"'))
    assert [run(["run", "job.yaml", *ALL]) for _ in range(3)] == [7, 7, 7]
    job.write_text(text)
    assert [run(["run", "job.yaml", *ALL]) for _ in range(3)] == [0, 0, 0]


def test_the_budget_of_a_run_is_that_runs(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unit = ran(capsys, *ALL)[1]["record"]["runs"][0]["cost"]
    for _ in range(3):
        assert ran(capsys, *ALL, "--budget", f"{2.5 * unit:.9f}")[0] == 0
    code, message = ran(capsys, *ALL, "--budget", f"{0.5 * unit:.9f}")
    assert code == 5
    assert "do not pay another run" in message


def test_values_of_parameters_that_are_switched_off_are_left_out(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nested = """  x: 1..6
  a: [go, stop]
  b: {values: [p, q], when: a == "go"}
  c: {values: [r, s], when: b == "p"}
"""
    job.write_text(JOB.replace("  x: 1..6\n", nested))
    assert run(["tune", "job.yaml", "--quiet", "--json", "--trials", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["best"]["configuration"]["c"] == "r"
    code, result = ran(capsys, "--set", "a=stop")
    assert code == 0
    assert set(result["record"]["configuration"]) == {"instance", "x", "a"}
    code, message = ran(capsys, "--set", "a=stop", "--set", "b=p")
    assert code == 3
    assert "b exists only when" in message


def test_a_run_at_a_limit_of_time_is_no_failed_program(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace('do: "true"', 'do: "sleep 30"') + "constraints: {deadline: 0.1s}\n")
    assert run(["run", "job.yaml", *ALL, "--abort", "--json"]) == 17
    said = capsys.readouterr()
    assert json.loads(said.out)["state"] == "aborted"
    # Its runner ends it, or, where the machine stood still at that moment, who looks after it.
    assert json.loads(said.out)["record"]["runs"][0]["state"] in ("timed_out", "cancelled")
    assert said.err.startswith("tradewind: quick was cut short: it ran into the deadline of 0.10 s (tradewind logs ")
