"""``tradewind workflow`` info, plan, simulate and convert."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tradewind.cli.app import run
from tradewind.cli.workflow.common import say
from tradewind.cli.workflow.run import plan_comparison

WORKFLOW = """\
name: totals
files: {raw.csv: 30MB}
tasks:
  split: {command: ./split.sh, runtime: 4s, inputs: [raw.csv], outputs: [a, b, c]}
  one: {activity: sum, runtime: 10s, inputs: [a], outputs: [x]}
  two: {activity: sum, runtime: 20s, inputs: [b], outputs: [y]}
  three: {activity: sum, runtime: 30s, inputs: [c], outputs: [z]}
  join: {runtime: 2s, inputs: [x, y, z], outputs: [all.csv]}
"""
VMS = "vms:\n  - {kind: small, count: 2, price: $3.6/h}\n  - {kind: large, speed: 2, price: $7.2/h}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "w.yaml").write_text(WORKFLOW)
    (tmp_path / "vms.yaml").write_text(VMS)
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code = run(["workflow", *words])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    found = json.loads(said(capsys, *words, "--json"))
    assert isinstance(found, dict)
    return found


@pytest.mark.usefixtures("folder")
def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "info", "w.yaml")
    for words in (
        "tasks          5 in 3 activities, 1 with a command",
        "edges          6",
        "levels         3, up to 3 tasks wide",
        "critical path  36.00 s (36.0 s), 3 tasks",
        "critical path: split > sum > join",
        "    1      3  ########",
        "warning: files without a size, which count as empty: a, all.csv, b, c and 3 more",
    ):
        assert words in out
    facts = document(capsys, "info", "w.yaml")
    assert facts["widths"] == [1, 3, 1]
    assert facts["critical_path"] == {"seconds": 36.0, "tasks": ["split", "three", "join"]}


@pytest.mark.parametrize("name", ["two", "three"])
def test_info_says_what_memory_tasks_need(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    text = WORKFLOW.replace(f"{name}: {{", f"{name}: {{memory: 3GB, ")
    (folder / "m.yaml").write_text(text)
    assert "memory         up to 3 GB a task; 1 of them say what they need" in said(capsys, "info", "m.yaml")
    facts = document(capsys, "info", "m.yaml")
    assert (facts["most_memory"], facts["tasks_with_memory"]) == (3_000_000_000, 1)
    assert "memory" not in said(capsys, "info", "w.yaml")


def test_names_cannot_write_to_the_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "a\x1b[31m\nb"
    tasks = [{"name": "t", "id": "t", "category": evil, "runtimeInSeconds": 1}]
    (folder / "evil.json").write_text(json.dumps({"name": evil, "workflow": {"tasks": tasks}}))
    for words in (("info", "evil.json"), ("plan", "evil.json", "--vms", "vms.yaml")):
        out = said(capsys, *words)
        assert "\x1b" not in out
        assert "a [31m b" in out


@pytest.mark.slow
def test_info_draws_the_graph(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "info", "w.yaml", "--dag", "dag.html", "--dag", "dag.png")
    assert "three" in (folder / "dag.html").read_text()
    assert (folder / "dag.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("columns", [40, 60, 80])
def test_info_fits_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.cli.workflow.common.width", lambda: columns)
    out = said(capsys, "info", "w.yaml")
    table = out[out.index("activity") :].splitlines()
    assert all(len(line) <= columns for line in table if not line.startswith("warning"))
    assert any(line.startswith("sum ") for line in table)


@pytest.mark.slow
def test_plan_and_simulate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(
        capsys, "plan", "w.yaml", "--vms", "vms.yaml", "--planner", "heft", "--out", "plan.json",
        "--gantt", "plan.html", "--gantt", "plan.png",
    )  # fmt: skip
    for words in ("makespan     ", "lower bound  ", "gap          ", "serial time  ", "utilisation  ", "cost         "):
        assert words in out
    assert "written: plan.json" in out
    assert "three" in (folder / "plan.html").read_text()
    assert (folder / "plan.png").read_bytes().startswith(b"\x89PNG")
    planned = json.loads((folder / "plan.json").read_text())
    for given in (["w.yaml", "--plan", "plan.json"], ["plan.json"]):
        result = document(capsys, "simulate", *given)
        figures = result["figures"]
        assert isinstance(figures, dict)
        assert figures["makespan"] == pytest.approx(planned["makespan"])
        assert result["planner"] == "heft"
    assert "planned " in said(capsys, "simulate", "w.yaml", "--plan", "plan.json")


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_an_order_that_was_changed_by_hand_is_followed_at_its_own_times(capsys: pytest.CaptureFixture[str]) -> None:
    Path("one.yaml").write_text("vms: [{kind: small, price: $3.6/h}]\n")
    Path("w2.yaml").write_text("name: two\ntasks:\n  a: {runtime: 0.1s}\n  b: {runtime: 0.2s}\n")
    said(capsys, "plan", "w2.yaml", "--vms", "one.yaml", "--out", "plan.json")
    plan = json.loads(Path("plan.json").read_text())
    assert [row["task"] for row in plan["tasks"]] == ["b", "a"]
    plan["tasks"][0]["start"] = 0.1
    plan["tasks"][1] |= {"start": 0.05}
    Path("plan.json").write_text(json.dumps(plan))
    why = "computed anew from its order: in the file machine 'small-1' runs more than it has slots for at 0.100 s"
    assert f"times        {why}" in said(capsys, "simulate", "plan.json")
    assert run(["workflow", "run", "plan.json", "--synthetic", "--quiet"]) == 0
    assert capsys.readouterr().err == f"plan.json: its times are {why}\n"
    rows = json.loads(Path("plan.run/results.json").read_text())["tasks"]
    assert [(row["planned_start"], row["planned_finish"]) for row in rows] == [(0.0, 0.1), (0.1, pytest.approx(0.3))]


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_run_says_what_it_costs_to_hold_machines_before_their_first_task(capsys: pytest.CaptureFixture[str]) -> None:
    Path("two.yaml").write_text("vms: [{kind: small, count: 2, price: $3600/h}]\nbilling: {granularity: 100ms}\n")
    Path("w2.yaml").write_text("name: two\ntasks:\n  a: {runtime: 0.1s}\n  b: {runtime: 0.1s, after: [a]}\n")
    said(capsys, "plan", "w2.yaml", "--vms", "two.yaml", "--out", "plan.json")
    plan = json.loads(Path("plan.json").read_text())
    plan["tasks"][1]["vm"] = "small-2"
    Path("plan.json").write_text(json.dumps(plan))
    words = said(capsys, "run", "plan.json", "--synthetic").splitlines()[0]
    assert words == (
        "cost: $0.200 as planned, each machine from its first task to its last; $0.300 as they are held, each from "
        "when it is asked for"
    )
    assert "cost: " not in said(capsys, "run", "plan.json", "--synthetic", "--fresh", "--ahead", "0s")


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_measured_times_are_what_the_next_plan_counts_with(capsys: pytest.CaptureFixture[str]) -> None:
    Path("one.yaml").write_text("vms: [{kind: small, price: $3.6/h}]\n")
    Path("w2.yaml").write_text("name: two\ntasks:\n  a: {runtime: 0.1s}\n  b: {runtime: 0.1s, after: [a]}\n")
    said(capsys, "plan", "w2.yaml", "--vms", "one.yaml", "--out", "plan.json")
    said(capsys, "run", "plan.json", "--synthetic", "--quiet", "--folder", "run")
    document_ = json.loads(Path("run/results.json").read_text())
    for row in document_["tasks"]:
        row["seconds"] = 0.4
    Path("run/results.json").write_text(json.dumps(document_))
    found = document(capsys, "plan", "w2.yaml", "--vms", "one.yaml", "--measured", "run")
    figures = found["figures"]
    assert isinstance(figures, dict)
    assert figures["makespan"] == pytest.approx(0.8, rel=1e-6)


@pytest.mark.usefixtures("folder")
def test_plan_on_one_machine_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    Path("one.yaml").write_text("vms: [{kind: small, price: $3.6/h}]\n")
    found = document(capsys, "plan", "w.yaml", "--vms", "one.yaml")
    figures = found["figures"]
    assert isinstance(figures, dict)
    assert figures["makespan"] == figures["serial"] == 66.0
    assert figures["lower_bound"] == pytest.approx(66.0, rel=1e-3)
    assert figures["cost"] == pytest.approx(0.066)
    assert figures["utilisation"] == 1.0


@pytest.mark.usefixtures("folder")
def test_delays_clustering_and_capitals(capsys: pytest.CaptureFixture[str]) -> None:
    Path("one.yaml").write_text("vms: [{kind: small}]\n")
    common = ("simulate", "w.yaml", "--planner", "FCFS", "--vms", "one.yaml")

    def makespan(*words: str) -> float:
        figures = document(capsys, *common, *words)["figures"]
        assert isinstance(figures, dict)
        return float(figures["makespan"])

    assert makespan() == 66.0
    assert makespan("--delay", "queue=2") == 66.0 + 5 * 2
    assert makespan("--delay", "queue=5s,1s") == 66.0 + 5 + 4 * 1
    joined = ("--clustering", "horizontal:1", "--delay", "clustering=7")
    assert makespan(*joined) == 66.0 + 7
    assert makespan(*joined, "--delay", "queue=2") == 66.0 + 7 + 3 * 2
    assert "3, 1 of them of several tasks" in said(capsys, *common, *joined)


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_many_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("simulate", "w.yaml", "--planner", "mct", "--vms", "vms.yaml", "--noise", "0.3", "--repeat", "12")
    found = document(capsys, *words, "--seed", "3")
    runs = found["runs"]
    assert isinstance(runs, list)
    assert [each["seed"] for each in runs] == list(range(3, 15))
    makespans = [each["makespan"] for each in runs]
    assert len(set(makespans)) == 12
    spread = found["spread"]["makespan"]  # type: ignore[index]
    assert spread["mean"] == pytest.approx(sum(makespans) / 12)
    assert min(makespans) == spread["least"] <= spread["low"] <= spread["high"] <= spread["most"] == max(makespans)
    assert document(capsys, *words, "--seed", "3") == found
    assert "12 seeds" in said(capsys, *words)


@pytest.mark.usefixtures("folder")
def test_failures_drift_and_moves_lengthen_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "plan", "w.yaml", "--vms", "vms.yaml", "--out", "plan.json")
    out = said(
        capsys, "simulate", "plan.json", "--failure", "0.8", "--drift", "0.1", "--period", "5s", "--migration", "0.5",
        "--pause", "2s", "--unknown", "0.1", "--retries", "99",
    )  # fmt: skip
    assert "attempts failed" in out


@pytest.mark.usefixtures("folder")
def test_a_task_that_fails_for_good_is_named_and_the_exit_code_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "plan", "w.yaml", "--vms", "vms.yaml", "--out", "plan.json")
    words = ["workflow", "simulate", "plan.json", "--failure", "1", "--retries", "1"]
    assert run([*words, "--gantt", "g.html"]) == 7
    out, err = capsys.readouterr()
    assert "failed       for good: split (2 attempts)" in out
    assert "not run      they need what failed: one, two, three, join" in out
    assert "until nothing more could run" in out and "gap" not in out
    assert "task 'split' failed for good; 4 that need them were not run (--retries" in err
    assert "split" in Path("g.html").read_text()
    assert run([*words, "--repeat", "3", "--json"]) == 7
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == [{"task": "split", "attempts": 2}]
    assert found["skipped"] == ["one", "two", "three", "join"]
    assert found["figures"]["gap"] is None and found["spread"]["makespan"] is None
    assert [(each["seed"], each["failed"], each["skipped"]) for each in found["runs"]] == [
        (0, ["split"], 4), (1, ["split"], 4), (2, ["split"], 4)
    ]  # fmt: skip
    outcomes = {row["task"]: (row["outcome"], row["vm"] is None) for row in found["tasks"]}
    assert outcomes == {"split": ("failed", False)} | dict.fromkeys(found["skipped"], ("skipped", True))


@pytest.mark.usefixtures("folder")
def test_of_several_seeds_those_count_in_which_nothing_failed_for_good(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "w.yaml", "--planner", "mct", "--vms", "vms.yaml", "--failure", "0.3", "--repeat", "12"]
    words += ["--retries", "0"]
    assert run(["workflow", *words, "--json"]) == 7
    found = json.loads(capsys.readouterr().out)
    well = [each for each in found["runs"] if not each["failed"]]
    assert 0 < len(well) < 12
    # No attempt may fail, so all of these take as long as planned.
    assert found["spread"]["makespan"]["least"] == found["spread"]["makespan"]["most"] == well[0]["makespan"]
    assert run(["workflow", *words]) == 7
    out, err = capsys.readouterr()
    assert f"in {12 - len(well)} of them tasks failed for good, and below are the others" in out
    assert f"in {12 - len(well)} of 12 seeds tasks failed; with seed " in err


@pytest.mark.usefixtures("folder")
def test_workflowsims_rules(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("simulate", "w.yaml", "--planner", "MCT", "--vms", "paper3:16", "--compat", "workflowsim")
    out = said(capsys, *words)
    assert "rules        those of WorkflowSim 1.0" in out
    figures = document(capsys, *words)["figures"]
    assert isinstance(figures, dict)
    # Of the three in the middle the last to be queued, of 30 s, goes to a slow machine; 30 MB are read in 2 s. On top
    # come 0.1 s, the stage-in job of 0.11 s, and steps of 0.11 s.
    plain = (4 + 2) / 4.156 + 30.0 + 2.0
    assert plain < figures["makespan"] < plain + 1.0


@pytest.mark.slow
def test_edges_that_files_imply_may_be_left_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = '<job id="{0}" name="p" runtime="100"><uses name="{1}" link="input"/><uses name="{2}" link="output"/></job>'
    jobs = (job.format(*each) for each in ("AwX", "BXY", "CYZ"))
    (folder / "chain.dax").write_text(f"<adag>{''.join(jobs)}</adag>")
    (folder / "three.yaml").write_text("vms: [{kind: one, count: 3}]\nstorage: shared\n")
    machines = ("--vms", "three.yaml")
    for option, edges, makespan in (((), 2, 300.0), (("--declared-edges",), 0, 100.0)):
        assert document(capsys, "info", "chain.dax", *option)["edges"] == edges
        for words in (("plan",), ("simulate", "--planner", "mct")):
            figures = document(capsys, words[0], "chain.dax", *words[1:], *machines, *option)["figures"]
            assert isinstance(figures, dict)
            assert figures["makespan"] == makespan
        said(capsys, "convert", "chain.dax", "--out", "own.yaml", *option)
        assert document(capsys, "info", "own.yaml")["edges"] == edges
    # WorkflowSim knows declared edges only: all three run at the same time, after a moment.
    theirs = ("simulate", "chain.dax", "--planner", "MCT", *machines, "--compat", "workflowsim")
    figures = document(capsys, *theirs)["figures"]
    assert isinstance(figures, dict)
    assert 100.0 < figures["makespan"] < 101.0


@pytest.mark.usefixtures("folder")
def test_workflowsims_heft_says_how_its_ties_fall(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "simulate", "w.yaml", "--planner", "HEFT", "--vms", "paper3:16", "--compat", "workflowsim")
    assert "ties         in the order of the file" in out


@pytest.mark.parametrize("to", ["own", "wfformat", "wfformat-1.4", "wfformat-1.6"])
def test_convert(to: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tradewind.workflow.files import read_workflow

    said(capsys, "convert", "w.yaml", "--to", to, "--out", "other")
    flow, again = read_workflow(folder / "w.yaml"), read_workflow(folder / "other")
    assert (again.tasks, again.parents, dict(again.sizes)) == (flow.tasks, flow.parents, dict(flow.sizes))
    assert said(capsys, "convert", "w.yaml", "--to", to).strip() == (folder / "other").read_text().strip()


@pytest.mark.usefixtures("folder")
def test_a_plan_of_another_workflow(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "plan", "w.yaml", "--vms", "vms.yaml", "--out", "plan.json")
    Path("other.yaml").write_text(WORKFLOW.replace("three", "four"))
    assert run(["workflow", "simulate", "other.yaml", "--plan", "plan.json"]) == 3
    assert "workflow totals has no task 'three'" in capsys.readouterr().err


def test_one_of_a_thing_that_went_wrong_is_one() -> None:
    planned = {"makespan": 1.0, "serial": 1.0, "utilisation": 1.0, "cost": 0.1}
    results = {"planned": planned, "actual": planned, "kept_cost": 0.1, "attempts": 2, "tasks": ["a"]}
    text = plan_comparison({**results, "machines_lost": ["m"], "replans": 1})
    assert text.endswith("1 attempt more than tasks, 1 machine lost, planned again 1 time.")


def test_texts_are_broken_between_words_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "critical path: " + " > ".join(f"NFCORE_FLOW.SEQUENCE_ASSEMBLY.PRESTO_UMI.STEP_{i}" for i in range(5))
    say(text)
    assert capsys.readouterr().out == text + "\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("tradewind.cli.workflow.common.width", lambda: 60)
    say(text, indent="  ")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 4
    assert max(map(len, lines)) < 60
    assert " ".join(" ".join(lines).split()) == text


MIXED = """\
name: mixed
tasks:
  split: {runtime: 4s, memory: 1GiB, outputs: [a]}
  model: {runtime: 30s, memory: 48GiB, inputs: [a], outputs: [m]}
  one: {runtime: 10s, memory: 1GiB, inputs: [a], outputs: [x]}
  two: {runtime: 10s, memory: 1GiB, inputs: [a], outputs: [y]}
  join: {runtime: 2s, memory: 2GiB, inputs: [m, x, y], outputs: [z]}
"""
FEW_LARGE = "vms:\n  - {kind: small, count: 2, slots: 4, memory: 8GiB}\n  - {kind: large, slots: 16, memory: 64GiB}\n"


@pytest.mark.slow
def test_a_few_large_machines_and_many_small_ones(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.yaml").write_text(MIXED)
    Path("few.yaml").write_text(FEW_LARGE)
    for planner in ("heft", "minmin", "roundrobin"):
        plan = document(capsys, "plan", "m.yaml", "--vms", "few.yaml", "--planner", planner, "--out", "plan.json")
        where = {row["task"]: row["vm"] for row in plan["tasks"]}  # type: ignore[attr-defined]
        assert where["model"] == "large-1"
    assert set(where.values()) > {"large-1"}
    for words in ("plan.json",), ("m.yaml", "--planner", "fcfs", "--vms", "few.yaml"):
        found = document(capsys, "simulate", *words)
        assert next(row["vm"] for row in found["tasks"] if row["task"] == "model") == "large-1"  # type: ignore[attr-defined]
    said(capsys, "run", "plan.json", "--synthetic", "--scale", "0.01", "--folder", "run")

    # A plan that somebody has changed by hand.
    text = (folder / "plan.json").read_text()
    row = next(line for line in text.splitlines() if '"task": "model"' in line)
    (folder / "wrong.json").write_text(text.replace(row, row.replace("large-1", "small-1")))
    for command in ("simulate", "run", "info"):
        assert run(["workflow", command, "wrong.json"]) == 3
        err = capsys.readouterr().err
        assert "wrong.json: task 'model' is planned on machine 'small-1', where it does not fit: it needs 48 GiB" in err

    Path("small.yaml").write_text("vms: [{kind: small, count: 2, slots: 4, memory: 8GiB}]\n")
    assert run(["workflow", "plan", "m.yaml", "--vms", "small.yaml"]) == 3
    err = capsys.readouterr().err
    assert "task 'model' needs 48 GiB of memory, and no machine has as much: the largest, 'small-1', has 8 GiB" in err
