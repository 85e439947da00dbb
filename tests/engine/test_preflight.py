"""What is refused before a search begins."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from tradewind.engine.deployment import build_deployer
from tradewind.engine.preflight import check_limits, check_offers, check_runner, ending_words, future_runs_warning
from tradewind.engine.search_builder import build_problem
from tradewind.errors import SpecError
from tradewind.problem.job_spec.spec import parse_spec

JOB = """\
name: j
job: {command: [run]}
space: {instance: {provider: aws, types: [m5.large, m5.xlarge]}}
deploy: {provisioner: simulated, runner: ssh}
"""


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ("", True),
        ("constraints: {deadline: 1h}", True),
        ("budget: {dollars: 1}", False),
        ("budget: {hours: 1}", False),
        ("budget: {trials: 3}", False),
        ("stop: never", True),
        ("future_runs: 100", False),
        ("future_runs: 100\nsearcher: gp", False),
        ("future_runs: 100\nsearcher: random", False),
        ("future_runs: 100\nobjective: {minimise: runtime}", True),
        ("future_runs: 100\nobjective: {maximise: cost}", True),
        ("future_runs: 100\nsearcher: random\nstop: [{use: no_improvement}]", False),
    ],
)
def test_machines_that_cost_money_want_a_limit(tmp_path: Path, more: str, refused: bool) -> None:
    spec = parse_spec(JOB + more, base=tmp_path)
    with pytest.raises(SpecError, match="nothing limits the search") if refused else nullcontext():
        check_limits(spec, build_problem(spec, tmp_path))


def test_what_costs_nothing_wants_none(tmp_path: Path) -> None:
    for job in (
        JOB.replace("provisioner: simulated, runner: ssh", "provisioner: none, runner: ssh"),
        JOB.replace("provider: aws, types: [m5.large, m5.xlarge]", "provider: local"),
    ):
        spec = parse_spec(job, base=tmp_path)
        check_limits(spec, build_problem(spec, tmp_path))


def test_future_runs_are_no_limit_where_there_is_always_more_to_try(tmp_path: Path) -> None:
    job = JOB.replace("m5.xlarge]}}", "m5.xlarge]}, level: 0.1..3.0}") + "future_runs: 100"
    spec = parse_spec(job, base=tmp_path)
    with pytest.raises(SpecError, match="the search: future_runs ends a search only once something works"):
        check_limits(spec, build_problem(spec, tmp_path))


def test_future_runs_that_end_nothing_are_told_of(tmp_path: Path) -> None:
    def told(more: str) -> str:
        return future_runs_warning(parse_spec(JOB + more, base=tmp_path))

    assert told("searcher: random") == told("future_runs: 100") == told("future_runs: 100\nsearcher: gp") == ""
    assert told("future_runs: 100\nsearcher: random") == ""
    assert told("future_runs: 100\nobjective: {minimise: runtime}").endswith("what one is worth (value: $2/h)")
    assert told("future_runs: 100\nvalue: $2/h\nobjective: {minimise: runtime}") == ""
    assert told("future_runs: 100\nobjective: {maximise: cost}").endswith("does not minimise the cost")


def test_the_first_line_says_what_ends_the_search(tmp_path: Path) -> None:
    def words(more: str) -> str:
        return ending_words(parse_spec(JOB + more, base=tmp_path))

    money = "The search stops when another trial would not pay for itself within"
    never = "changes it, stop: never uses the whole budget"
    assert words("searcher: random") == f"{money} 100 runs (future_runs: {never})."
    timed = "objective: {minimise: runtime}\n"
    assert words(timed + "value: $2/h\nfuture_runs: 50") == f"{money} 50 runs, at $2.00 for an hour of a run."
    share = "The search stops when another trial is not expected to improve the best by"
    assert words(timed) == f"{share} 1 % (least_improvement: {never}; value: $2/h weighs it by money)."
    assert words("objective: {maximise: accuracy}\nleast_improvement: 2%") == f"{share} 2 %."
    spec = parse_spec(JOB + "searcher: random", base=tmp_path)
    assert ending_words(spec, advice=False) == f"{money} 100 runs."
    for silent in ("stop: never", "searcher: exhaustive", "searcher: ernest"):
        assert words(silent) == ""
    assert words(timed + "stop: never") == ""
    assert words("objective: {maximise: accuracy}\nleast_improvement: 0") == ""


@pytest.mark.parametrize("image", ["''", "' '"])
def test_an_empty_image_is_none(tmp_path: Path, image: str) -> None:
    given = f"{{command: [run], image: {image}}}"
    job = f"name: j\njob: {given}\nspace: {{n: [1, 2]}}\ndeploy: {{runner: docker}}\n"
    spec = parse_spec(job, base=tmp_path)
    with pytest.raises(SpecError, match=r"needs job\.image"):
        check_runner(spec, build_problem(spec, tmp_path))


@pytest.mark.parametrize(
    ("job", "runner", "wrong"),
    [
        ("{command: [run]}", "{use: script, program: ./run.sh}", "the script runner keeps no checkpoints"),
        ("{command: [run], load: {command: x}}", "ssh", "a job with a load generator has no checkpoints"),
    ],
)
def test_checkpoints_that_nobody_keeps_are_refused(tmp_path: Path, job: str, runner: str, wrong: str) -> None:
    deploy = f"{{runner: {runner}, checkpoint: 5m}}"
    spec = parse_spec(f"name: j\njob: {job}\nspace: {{n: [1, 2]}}\ndeploy: {deploy}\n", base=tmp_path)
    with pytest.raises(SpecError, match=wrong):
        check_runner(spec, build_problem(spec, tmp_path))


@pytest.mark.parametrize(("more", "refused"), [(", image: debian", True), ("", False)])
def test_checkpoints_that_a_runner_does_not_keep_of_a_job_are_refused(tmp_path: Path, more: str, refused: bool) -> None:
    deploy = "{runner: htcondor, checkpoint: 5m}"
    spec = parse_spec(
        f"name: j\njob: {{command: [run]{more}}}\nspace: {{n: [1, 2]}}\ndeploy: {deploy}\n", base=tmp_path
    )
    problem, deployer = build_problem(spec, tmp_path), build_deployer(spec, "tw-1", tmp_path)
    if refused:
        with pytest.raises(SpecError, match="keeps no checkpoints of this job: condor_chirp"):
            check_offers(spec, problem, deployer)
    else:
        check_offers(spec, problem, deployer)
    deployer.close()


@pytest.mark.parametrize(("provisioner", "refused"), [("none", True), ("simulated", False)])
def test_machines_are_kept_only_where_some_are_made(tmp_path: Path, provisioner: str, refused: bool) -> None:
    deploy = f"{{keep: 10m, provisioner: {provisioner}}}"
    spec = parse_spec(f"name: j\njob: {{command: [run]}}\nspace: {{n: [1, 2]}}\ndeploy: {deploy}\n", base=tmp_path)
    problem = build_problem(spec, tmp_path)
    if refused:
        with pytest.raises(SpecError, match="provisioner none makes no machines that could be kept between trials"):
            check_runner(spec, problem)
    else:
        check_runner(spec, problem)


def test_checkpoints_that_a_runner_keeps_are_not(tmp_path: Path) -> None:
    text = "name: j\njob: {command: [run]}\nspace: {n: [1, 2]}\ndeploy: {checkpoint: 5m}\n"
    spec = parse_spec(text, base=tmp_path)
    check_runner(spec, build_problem(spec, tmp_path))
    assert spec.terms.checkpoint_seconds == 300.0


@pytest.mark.parametrize("runner", ["ssh", "slurm", "htcondor"])
@pytest.mark.parametrize(
    "given",
    ["env: {spring.port: 1}", "env: {1A: 1}", "secrets: {my-key: 'env:X'}", "load: {command: x, env: {a.b: 1}}"],
)
def test_a_variable_that_no_shell_can_have_is_refused_where_a_shell_sets_it(
    tmp_path: Path, runner: str, given: str
) -> None:
    job = f"name: j\njob:\n  command: [run]\n  {given}\nspace: {{instance: {{provider: local, limit: 1}}}}\n"
    spec = parse_spec(job + f"deploy: {{runner: {runner}}}", base=tmp_path)
    problem = build_problem(spec, tmp_path)
    if "load" in given and runner != "ssh":
        return  # refused for the load itself
    with pytest.raises(SpecError, match=r":4: job.* cannot be a variable of a shell, which the \w+ runner sets it in"):
        check_runner(spec, problem)
    spec = parse_spec(job, base=tmp_path)
    if "load" not in given:
        check_runner(spec, problem)  # a process is given any name
