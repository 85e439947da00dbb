from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

from tradewind.cli.app import run
from tradewind.deployer import folder_versions
from tradewind.searcher.base import NothingLeft
from tradewind.searcher.exhaustive import ExhaustiveSearcher

JOB = """
name: quick
job:
  command: [sh, -c, 'echo "score={{ x }}"; echo $TRADEWIND_RUN_ID >> started; {{ do }}']
  parameters: {do: "true"}
space:
  instance: {provider: local, vcpu: 1, limit: 1}
  x: 1..6
objective: {maximise: score}
interpret:
- exit_code
- use: regex
  patterns: 'score=(?P<score>\\d+)'
searcher: {use: exhaustive, order: declared}
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a job may be written, with a data folder that is not there yet."""
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "home"))
    return tmp_path / "job.yaml"


def tuned(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = run(["tune", "job.yaml", "--json", *words])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else out.err


@pytest.mark.slow
def test_the_best_configuration_is_found_and_printed(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", str(job)]) == 0
    out = capsys.readouterr().out
    assert "trial 5 succeeded" in out
    assert "Use local.c1 of local with x=6" in out


@pytest.mark.slow
def test_json_has_the_best_trial_and_nothing_else(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = tuned(capsys)
    assert code == 0
    assert result["best"]["configuration"]["x"] == 6
    assert result["trials"] == {"succeeded": 6}
    assert result["reason"]


@pytest.mark.slow
def test_the_same_command_goes_on_and_fresh_starts_anew(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, first = tuned(capsys, "--trials", "2")
    assert first["trials"] == {"succeeded": 2}
    _, second = tuned(capsys, "--trials", "4")
    assert (second["id"], second["trials"]) == (first["id"], {"succeeded": 4})
    _, third = tuned(capsys, "--fresh", "--trials", "1")
    assert third["id"] != first["id"]
    assert (job.parent / "started").read_text().count("\n") == 5


@pytest.mark.slow
def test_another_problem_is_another_study(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, first = tuned(capsys, "--trials", "1")
    job.write_text(JOB.replace("1..6", "1..7"))
    _, second = tuned(capsys, "--trials", "1")
    assert second["id"] != first["id"]


@pytest.mark.slow
def test_nothing_feasible_has_its_own_exit_code(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB + "constraints: {metrics: {score: '>= 100'}}\n")
    assert run(["tune", str(job), "--quiet"]) == 6
    assert "no feasible configuration was found" in capsys.readouterr().err


def test_a_budget_that_pays_no_run_has_its_own_exit_code(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", str(job), "--quiet", "--budget", "0.0000000015"]) == 5
    assert "does not pay" in capsys.readouterr().err


def test_a_budget_that_pays_no_run_is_said_once(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "the budget of $1.00 does not pay a single run"
    monkeypatch.setattr(ExhaustiveSearcher, "ask", lambda *_: NothingLeft(reason))
    assert run(["tune", str(job), "--quiet", "--budget", "1"]) == 5
    assert capsys.readouterr().err.count("does not pay") == 1


def test_nothing_that_is_sold_is_no_matter_of_money(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ExhaustiveSearcher, "ask", lambda *_: NothingLeft("nothing is sold"))
    assert run(["tune", str(job), "--quiet", "--budget", "1"]) == 6
    assert "no feasible configuration was found: nothing is sold" in capsys.readouterr().err


@pytest.mark.slow
def test_failing_programs_end_the_search_with_the_reason(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace('do: "true"', 'do: "exit 3"') + "stop: [{use: all_failed, trials: 2}]\n")
    assert run(["tune", str(job), "--quiet"]) == 6
    assert "exited with code 3" in capsys.readouterr().err


@pytest.mark.slow
def test_a_second_process_learns_that_the_study_is_busy(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace('do: "true"', 'do: "sleep 30"'))
    process = subprocess.Popen([sys.executable, "-m", "tradewind", "tune", str(job)], stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: (job.parent / "started").is_file() and (job.parent / "started").read_text().endswith("\n"))
        assert run(["tune", str(job)]) == 12
        assert str(process.pid) in capsys.readouterr().err
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.thorough),
    ],
)
def test_an_interruption_stops_cleanly_and_the_same_command_resumes(
    job: Path, capsys: pytest.CaptureFixture[str], number: signal.Signals, quick: Path
) -> None:
    job.write_text(JOB.replace('do: "true"', 'do: "sleep 30"'))
    process = subprocess.Popen(
        [quick, "tune", str(job)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ),
        text=True,
    )
    eventually(lambda: (job.parent / "started").is_file() and (job.parent / "started").read_text().endswith("\n"))
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert f"tradewind tune {job} resumes" in err
    assert "Traceback" not in err
    # The same problem, but now its program ends at once: what was interrupted is run again, and paid twice.
    (job.parent / "sleep").write_text("#!/bin/sh\n")
    (job.parent / "sleep").chmod(0o755)
    path = {**os.environ, "PATH": f"{job.parent}:{os.environ['PATH']}"}
    done = subprocess.run([quick, "tune", str(job), "--json"], env=path, capture_output=True, timeout=60)
    result = json.loads(done.stdout)
    assert result["trials"] == {"succeeded": 6}
    assert (job.parent / "started").read_text().count("\n") == 7


@pytest.mark.slow
def test_reports_are_written_at_the_end(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", str(job), "--html", "r.html", "--png", "plots"]) == 0
    assert "echarts" in (job.parent / "r.html").read_text()
    assert list((job.parent / "plots").glob("*.png"))


@pytest.mark.slow
def test_a_refused_search_or_run_leaves_no_study_and_does_not_say_that_it_resumes(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tune", "job.yaml", "--quiet"]) == 0
    refused = "deploy: {runner: {use: replay, file: gone.csv}}\n"
    job.write_text(JOB + refused)
    capsys.readouterr()
    for words in (["tune", "job.yaml"], ["tune", "job.yaml", "--fresh"], ["run", "job.yaml", "--set", "x=1"]):
        assert run(words) == 3
        out = capsys.readouterr()
        assert "Resuming" not in out.out
        assert "gone.csv" in out.err
    assert run(["status", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1
    job.write_text(JOB)
    assert run(["tune", "job.yaml"]) == 0
    assert capsys.readouterr().out.startswith("Resuming quick after 6 trials")


@pytest.mark.slow
def test_a_dry_run_says_what_may_be_chosen_and_what_it_may_cost(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text(
        "name: clouds\njob: {command: work}\n"
        "space:\n  instance: {types: [t3.small, c7i.large]}\n  nodes: [1, 2]\n  level: 1..3\n"
        "where: nodes == 1 or instance.vcpu >= 8\n"
        "catalogues: {csv: {path: own.csv}}\noffers: {provider: csv}\n"
        "deploy: {provisioner: {use: terraform, region: eu-west-1}, runner: ssh, billing: {setup: 60s}}\nparallel: 2\n"
    )
    (tmp_path / "own.csv").write_text(
        "API Name,Provider,CPU,Memory,Category,Price\nt3.small,aws,2,8,general,0.1\nc7i.large,aws,8,32,general,0.4\n"
    )
    assert run(["tune", str(path), "--dry-run"]) == 3
    said, refused = capsys.readouterr()
    assert (
        "clouds: 9 configurations on 3 kinds of machines; tradewind searches, 2 at a time, on terraform and ssh" in said
    )
    assert "As it stands, the search is refused." in said
    assert "makes machines that cost money, and nothing limits the search (set budget.dollars" in refused
    assert "there is no deadline" in said
    words = ["--budget", "$2", "--deadline", "59m", "--trials", "5"]
    assert run(["tune", str(path), "--dry-run", *words]) == 0
    said = capsys.readouterr().out
    assert "2 × c7i.large aws 16 64 $0.800 $0.800 3" in " ".join(said.split())
    assert "The search may take $2.00 in total or 5 trials." in said
    assert run(["tune", str(path), "--dry-run", "--json", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["nodes"], row["hourly"], row["to_deadline"]) for row in found["machines"]] == [
        (1, 0.1, 0.1), (1, 0.4, 0.4), (2, 0.8, 0.8)
    ]  # fmt: skip
    longest = "u7in-32tb.224xlarge"
    (tmp_path / "own.csv").write_text((tmp_path / "own.csv").read_text().replace("c7i.large", longest))
    path.write_text(path.read_text().replace("c7i.large", longest))
    monkeypatch.setenv("COLUMNS", "64")
    assert run(["tune", str(path), "--dry-run", *words]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"2 × {longest} aws 16 64 $0.800 $0.800 3" in lines
    path.write_text(path.read_text().replace("level: 1..3", "level: 0.1..3.0"))
    assert run(["tune", str(path), "--dry-run"]) == 3
    assert "clouds: too many configurations to list on 2 kinds of machines" in capsys.readouterr().out
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("deploy", ["runner: deploy.sh", "runner: ssh, provisioner: {use: script, program: deploy.sh}"])
def test_a_script_of_the_users_that_cannot_be_called_is_refused_before_the_search(
    job: Path, deploy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job.write_text(job.read_text() + f"budget: {{dollars: 1}}\ndeploy: {{{deploy}}}\n")
    script = job.with_name("deploy.sh")
    for words in ([], ["--dry-run"]):
        assert run(["tune", str(job), *words]) == 3
        assert f"there is no script {script}" in capsys.readouterr().err
    script.write_text("#!/bin/sh\n")
    for words in ([], ["--dry-run"]):
        assert run(["tune", str(job), *words]) == 3
        assert f"the script {script} is not executable (chmod +x {script})" in capsys.readouterr().err
    script.chmod(0o700)
    assert run(["tune", str(job), "--dry-run"]) == 0


def test_a_dry_run_says_what_the_searcher_objects_to(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text("name: own\njob: {command: work}\nspace: {level: 1..3}\nsearcher: ernest\n")
    assert run(["tune", str(path), "--dry-run"]) == 3
    assert "the ernest searcher predicts how time falls" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "code"),
    [("ssh://me@127.0.0.1:1", 0), ("ssh://me@[::1]:2222", 0), ("http://h", 3), ("ssh://", 3), ("ssh://h/x", 3)],
)
def test_a_host_may_be_written_as_an_address_of_ssh(
    path: Path, host: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text(
        "name: own\njob: {command: work}\nspace: {instance: {provider: local, limit: 1}}\n"
        f"deploy: {{provisioner: {{use: none, hosts: ['{host}']}}, runner: ssh}}\n"
    )
    assert run(["tune", str(path), "--dry-run"]) == code
    assert ("deploy.provisioner.hosts.0: " in capsys.readouterr().err) is (code == 3)


@pytest.mark.parametrize(
    ("more", "abort", "words"),
    [
        ("", True, "A run that can no longer win is cut short (abort: false in the job lets all runs end)."),
        ("abort: false\n", False, "Every run goes to its end (abort: false in the job)."),
        ("searcher: done\n", False, "Every run goes to its end, as done is published (abort: true in the job cuts"),
        ("searcher: done\nabort: true\n", True, "A run that can no longer win is cut short"),
    ],
)
def test_a_dry_run_says_whether_runs_are_cut_short(
    more: str, abort: bool, words: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text(f"name: own\njob: {{command: work}}\nspace: {{level: 1..3}}\n{more}")
    assert run(["tune", str(path), "--dry-run"]) == 0
    assert words in capsys.readouterr().out
    assert run(["tune", str(path), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["abort"] is abort


@pytest.mark.slow
def test_a_dry_run_of_a_searcher_that_needs_a_past_looks_into_the_store(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "job: {command: [sh, -c, 'exit 0']}\nspace: {instance: {provider: local}}\nseed: 1\n"
    paris = "searcher: {use: paris, trees: 20, pairs_tried: 1}\n"
    path.write_text(f"name: mine\n{body}{paris}")
    assert run(["tune", str(path), "--dry-run"]) == 3
    assert "its table has 0" in capsys.readouterr().err
    for name in ("one", "two", "three"):
        other = tmp_path / f"{name}.yaml"
        other.write_text(f"name: {name}\n{body}searcher: exhaustive\nabort: false\n")
        assert run(["tune", str(other), "--quiet"]) == 0
    capsys.readouterr()
    assert run(["tune", str(path), "--dry-run"]) == 0
    assert "paris searches" in capsys.readouterr().out


def test_a_dry_run_says_what_future_runs_end(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text("name: own\njob: {command: work}\nspace: {level: 1..3}\nfuture_runs: 50\n")
    assert run(["tune", str(path), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "It has no budget." in said
    assert "The search stops when another trial would not pay for itself within 50 runs.\n" in said
    path.write_text(path.read_text().replace("future_runs: 50\n", ""))
    assert run(["tune", str(path), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "within 100 runs (future_runs: changes it, stop: never uses the whole budget).\n" in said
    path.write_text(path.read_text() + "stop: never\n")
    assert run(["tune", str(path), "--dry-run"]) == 0
    assert "Nothing limits the search: it has no budget." in (said := capsys.readouterr().out)
    assert "pay for itself" not in said
    path.write_text(path.read_text().replace("stop: never\n", "future_runs: 50\nobjective: {minimise: runtime}\n"))
    assert run(["tune", str(path), "--dry-run"]) == 0
    assert "future_runs does not end this search: it says how often an hour is saved" in capsys.readouterr().out
    path.write_text(path.read_text() + "value: $2/h\nsearcher: random\n")
    assert run(["tune", str(path), "--dry-run"]) == 0
    assert "within 50 runs, at $2.00 for an hour of a run.\n" in capsys.readouterr().out


def test_a_job_to_learn_from_that_is_nowhere_is_reported_once(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("{use: exhaustive, order: declared}", "tradewind") + "past: [quikc]\n")
    assert run(["tune", str(job), "--quiet", "--trials", "1"]) == 0
    said = "tradewind: past: nothing is stored yet of 'quikc', so that nothing is learned from it"
    assert capsys.readouterr().err.splitlines() == [f"{said} (known: no other job)"]


@pytest.mark.slow
def test_a_dry_run_says_what_is_left_to_a_study_that_has_begun(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> list[str]:
        assert run(["tune", str(job), "--dry-run", *words]) == 0
        # Before what becomes of runs that cannot win, and that nothing was started.
        return capsys.readouterr().out.splitlines()[-5:-3]

    assert run(["tune", str(job), "--quiet", "--trials", "2"]) == 0
    capsys.readouterr()
    first, second = said("--trials", "2")
    assert first.startswith(
        "The study quick (id 1) is finished, as the budget of 2 trials is used up: it has had 2 trials"
    )
    assert second == "Nothing is left of its budget of 2 trials: give it a larger one, or start anew with --fresh."
    assert said("--trials", "5")[1] == "The same command goes on with it (--fresh starts anew) and may take 3 trials."
    assert "may take $1.000 more in total or 3 trials." in said("--trials", "5", "--budget", "$1")[1]
    assert said()[1].endswith("and may take what it likes.")
    assert said("--fresh", "--trials", "2")[1] == "The search may take 2 trials."
    assert run(["tune", str(job), "--dry-run", "--json", "--trials", "5"]) == 0
    study = json.loads(capsys.readouterr().out)["study"]
    assert (study["id"], study["state"], study["used"]["trials"], study["left"]["trials"]) == (1, "finished", 2, 3)
    assert study["left"]["dollars"] is None


def test_charts_that_cannot_be_drawn_are_refused_before_anything_runs(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(["tune", str(job), "--png", "plots"]) != 0
    assert "PNG charts need matplotlib (pip install 'tradewind[plots]')" in capsys.readouterr().err
    assert not (job.parent / "started").exists()


TRIED = JOB.replace("{use: exhaustive, order: declared}", "random") + "budget: {trials: 3}\n"


def test_what_the_user_wants_is_tried_first(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(TRIED)
    assert run(["tune", "job.yaml", "--try", "x=5", "--try", "x=2,instance=local.c1", "--try", "x=5"]) == 0
    out, err = capsys.readouterr()
    first, *lines = out.splitlines()
    assert first.startswith("The search stops when another trial is not expected to improve the best by 1 %")
    assert lines[:2] == ["Trying first: instance=local.c1 x=5", "Trying first: instance=local.c1 x=2"]
    assert [line.partition("x=")[2][:1] for line in lines[2:4]] == ["5", "2"]
    assert err == "tradewind: --try x=5: the same trial as --try x=5, and not tried twice\n"
    assert run(["tune", "job.yaml", "--quiet", "--trials", "4", "--try", "x=5"]) == 0
    said = "tradewind: --try x=5: instance=local.c1 x=5 was tried already: trial 0 succeeded"
    assert capsys.readouterr().err.splitlines() == [said]


def test_what_is_tried_first_is_shown_and_checked_by_a_dry_run(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(TRIED)
    assert run(["tune", "job.yaml", "--dry-run", "--try", "x=5"]) == 0
    assert "It tries first: instance=local.c1 x=5" in capsys.readouterr().out
    for text, said in (
        ("x=9", "--try x=9: x='9' is not in the space (wanted 1 to 6)"),
        ("y=9", "--try y=9: there is no parameter 'y' (known: instance, x)"),
        ("x", "--try x: it is not NAME=VALUE,NAME=VALUE (write --try workers=4)"),
        ("x=1,x=2", "--try x=1,x=2: 'x' is given twice (give each of them once)"),
    ):
        for words in ((), ("--dry-run",)):
            assert run(["tune", "job.yaml", "--try", text, *words]) == 3
            assert capsys.readouterr().err == f"tradewind: {said}\n"
    four = [word for x in (1, 2, 3, 4) for word in ("--try", f"x={x}")]
    for words in ((), ("--dry-run",)):
        assert run(["tune", "job.yaml", *four, *words]) == 5
        assert "4 trials to be tried first, and the budget of 3 trials leaves 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        ("budget: {dollars: 0.000001}\n", 5, "the budget of 0.0001¢ does not pay a single run"),
        ("stop: bored\n", 3, "there is no rule named 'bored'"),
        ("deploy: {runner: {use: replay, file: gone.csv}}\n", 3, "gone.csv"),
    ],
)
def test_a_dry_run_refuses_what_a_search_refuses_in_the_same_words(
    more: str, code: int, said: str, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.write_text(JOB + more)
    lines = []
    for words in (("--dry-run",), ()):
        assert run(["tune", "job.yaml", *words]) == code
        lines.append(capsys.readouterr().err)
    assert lines[0] == lines[1]
    assert said in lines[0]
    assert run(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_machines_that_nobody_makes_are_refused_by_a_dry_run_too(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text("name: own\njob: {command: work}\nspace: {instance: {provider: aws, types: [c5.large]}}\n")
    lines = []
    for words in (("--dry-run",), ()):
        assert run(["tune", str(path), *words]) == 3
        lines.append(capsys.readouterr().err)
    assert lines[0] == lines[1] != ""


def test_what_the_job_wants_tried_first_goes_before_the_searcher(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(job.read_text() + "try_first:\n  - {x: 5}\n  - {x: 2}\n")
    assert run(["tune", str(job), "--dry-run", "--json"]) == 0
    assert [each["x"] for each in json.loads(capsys.readouterr().out)["first"]] == [5, 2]
    assert run(["tune", str(job), "--quiet", "--trials", "3", "--try", "x=5", "--try", "x=1"]) == 0
    assert "tradewind: --try x=5: the same trial as try_first.0, and not tried twice\n" in capsys.readouterr().err
    assert run(["export", "--format", "json"]) == 0
    trials = json.loads(capsys.readouterr().out)
    assert [trial["configuration"]["x"] for trial in trials] == [5, 2, 1]
    assert run(["tune", str(job), "--quiet", "--trials", "3"]) == 0
    assert capsys.readouterr().err == ""  # nobody asked for them again
    job.write_text(job.read_text().replace("{x: 2}", "{y: 2}"))
    for command in ("tune", "submit"):
        assert run([command, str(job)]) == 3
        assert f"{job}:" in (said := capsys.readouterr().err)
        assert "try_first.1: there is no parameter 'y'" in said


@pytest.mark.slow
def test_code_that_is_edited_during_the_search_is_said_once_and_recorded(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    monkeypatch.setattr(folder_versions, "_SHARE", 0.0)
    (path.parent / "program.sh").write_text('[ "$1" = 3 ] && echo "# edited" >> program.sh; echo "score=$1"\n')
    command = JOB[JOB.index("[sh") : JOB.index("\n  parameters")]
    path.write_text(JOB.replace(command, "sh program.sh {{ x }}"))
    assert run(["tune", "job.yaml", "--trials", "4", "--quiet"]) == 0
    capsys.readouterr()
    (path.parent / "program.sh").write_text('echo "score=$1"  # edited between two searches\n')
    assert run(["tune", "job.yaml", "--trials", "6", "--quiet"]) == 0
    capsys.readouterr()
    assert run(["status", "quick", "--json"]) == 0
    versions = json.loads(capsys.readouterr().out)["code"]
    assert [one["trials"] for one in versions] == [[0, 1, 2], [3], [4, 5]]
    assert run(["status", "quick"]) == 0
    assert "3 trials (0 to 2) ran version" in " ".join(capsys.readouterr().out.split())
    assert run(["report", "quick"]) == 0
    assert "The program's files changed between trials" in " ".join(capsys.readouterr().out.split())
